//! The CUDA executor: the same graphs on NVIDIA's GPUs.
//!
//! Nothing of CUDA is needed to build or to start this program: its libraries are looked for when a GPU is asked for. Kernels are text that
//! NVRTC compiles at first use, with the sizes of the node as constants; what was compiled is kept on disk. Matrix products are
//! cuBLASLt's, or on Hopper a kernel's of ours where that is faster.
//!
//! A plan becomes a list of kernels and products, each with its arguments' places in a few large buffers; running it is going through the list.

mod attention;
mod caches;
mod chip;
mod choice;
mod compile;
mod cublaslt;
mod design;
mod device;
mod exchange;
mod executor;
mod failures;
mod few_rows;
mod hopper;
mod launch;
mod libraries;
mod limit;
mod losses;
mod memory;
mod moves;
mod nccl;
mod norms;
mod pointwise;
mod pools;
mod prepare_images;
mod products;
mod quantised;
mod remembered;
mod resident;
mod start;
mod steps;
mod stream;
mod tables;
mod target;
mod token_rows;
mod top_k;
mod unfold;
mod updates;
mod warpgroup;
mod weights;

pub use crate::gpu::{Gpu, Libraries, Library};
pub(crate) use caches::CacheMemory;
pub use compile::cache_folder;
pub use device::{Device, free_memory, gpus};
pub use executor::Executor;
pub use limit::measured_limit;
pub use nccl::Reduction;
pub(crate) use nccl::{alone as link_alone, open as open_link};
pub(crate) use resident::Resident;
pub(crate) use weights::{SharedWeights, weight_bytes};
