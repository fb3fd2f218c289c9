//! How fast one rank computes, and how much memory it has.

use super::workload::Workload;

/// What one rank computes with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// FLOP/s of forward and backward passes as they are, not of a single matrix multiplication at its best.
    pub flops: f64,
    /// Bytes of memory.
    pub memory: f64,
    /// Bytes per second that the update reads and writes.
    pub bandwidth: f64,
}

/// A speed that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The model that it was measured with.
    pub model: &'static str,
    /// Its width.
    width: usize,
    /// Whether it takes images.
    images: bool,
    /// FLOP/s of forward and backward passes.
    pub flops: f64,
}

/// Whole training steps in bf16 on one H200 less their update, from BENCHMARKS.md ("On a GPU", "Training language models on a
/// GPU"): FLOPs of the planned step over the time. ViT-S/16 512 in 40.6 ms, ViT-B/16 256 in 57.3 ms, ViT-L/16 128 in 96.0 ms;
/// GPT-2 32 x 1024 in 78.0 ms, LLaMA-1.1B 4 x 2048 in 133.6 ms.
const H200: [Measured; 5] = [
    Measured { model: "ViT-S/16", width: 384, images: true, flops: 0.42 * LARGE_PRODUCT },
    Measured { model: "ViT-B/16", width: 768, images: true, flops: 0.57 * LARGE_PRODUCT },
    Measured { model: "ViT-L/16", width: 1024, images: true, flops: 0.62 * LARGE_PRODUCT },
    Measured { model: "GPT-2", width: 768, images: false, flops: 0.47 * LARGE_PRODUCT },
    Measured { model: "LLaMA-1.1B", width: 2048, images: false, flops: 0.62 * LARGE_PRODUCT },
];
/// FLOP/s of a large product in bf16 there.
const LARGE_PRODUCT: f64 = 790e12;

impl Device {
    /// An H200 with a model like this one: as fast as the widest measured model that is not wider, and which it was.
    pub fn h200(workload: &Workload) -> (Device, Measured) {
        let of_kind = H200.iter().filter(|measured| measured.images == workload.images);
        let narrower = of_kind.clone().rfind(|measured| measured.width <= workload.width);
        let measured = *narrower.or(of_kind.clone().next()).unwrap_or(&H200[0]);
        // Its memory, and what kernels that only read and write reach of 4.8 TB/s: 3.7 to 4.2.
        (Device { flops: measured.flops, memory: 139.8 * GIB, bandwidth: 4.2e12 }, measured)
    }
}

const GIB: f64 = (1u64 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(images: bool, width: usize) -> &'static str {
        Device::h200(&Workload { images, width, ..Workload::default() }).1.model
    }

    #[test]
    fn the_speed_is_that_of_the_next_narrower_model() {
        assert_eq!(measured(true, 768), "ViT-B/16");
        assert_eq!(measured(true, 6144), "ViT-L/16");
        assert_eq!(measured(true, 192), "ViT-S/16");
        assert_eq!(measured(false, 8192), "LLaMA-1.1B");
        assert_eq!(measured(false, 1024), "GPT-2");
    }
}
