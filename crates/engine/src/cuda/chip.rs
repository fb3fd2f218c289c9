//! What kernels are cut to: how many processors a GPU has, and what each of them holds and can do.

use super::warpgroup;
use crate::gpu::Gpu;

/// What a kernel's text and launch may depend on, besides shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chip {
    /// Whether it has the tensor cores of the Hopper generation, which some kernels are for.
    pub is_hopper: bool,
    pub processors: u32,
    /// Bytes of shared memory that a block may have.
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

/// For tests, which want to see what becomes of a model on GPUs that are not here.
#[cfg(test)]
pub(super) mod testing {
    use super::Chip;

    pub const A100: Chip = Chip { is_hopper: false, processors: 108, shared_bytes: 163 << 10 };
    /// The least that a GPU since the A100 has, as capabilities 8.6, 8.9 and 12.0 do.
    pub const RTX_4090: Chip = Chip { is_hopper: false, processors: 128, shared_bytes: 99 << 10 };
    pub const H200: Chip = Chip { is_hopper: true, processors: 132, shared_bytes: 227 << 10 };
}
