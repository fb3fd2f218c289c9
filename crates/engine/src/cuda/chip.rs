//! The properties of a GPU that kernels are specialised for: number of SMs, and their memory and capabilities.

use super::warpgroup;
use crate::gpu::Gpu;

/// What a kernel's source and launch may depend on, besides shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chip {
    /// Whether it has Hopper's tensor cores, which some kernels require.
    pub is_hopper: bool,
    pub processors: u32,
    /// Shared memory per block, in bytes.
    pub shared_bytes: usize,
}

impl Chip {
    pub fn of(gpu: &Gpu) -> Chip {
        Chip {
            is_hopper: gpu.capability == warpgroup::CAPABILITY,
            processors: gpu.processors,
            shared_bytes: gpu.shared_bytes,
        }
    }
}

/// For tests that plan for GPUs which are not present.
#[cfg(test)]
pub(super) mod testing {
    use super::Chip;

    pub const A100: Chip = Chip { is_hopper: false, processors: 108, shared_bytes: 163 << 10 };
    /// The least shared memory of a GPU since the A100, as on compute capabilities 8.6, 8.9 and 12.0.
    pub const RTX_4090: Chip = Chip { is_hopper: false, processors: 128, shared_bytes: 99 << 10 };
    pub const H200: Chip = Chip { is_hopper: true, processors: 132, shared_bytes: 227 << 10 };
}
