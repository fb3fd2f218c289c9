//! The CUDA executor: the same graphs on NVIDIA's GPUs.
//!
//! Nothing of CUDA is needed to build or to start this program: its libraries are looked for when a GPU is asked for. Kernels are text that
//! NVRTC compiles at first use, with the sizes of the node as constants; what was compiled is kept on disk. Matrix products are
//! cuBLASLt's.
//!
//! A plan becomes a list of kernels and products, each with its arguments' places in a few large buffers; running it is going through the list.

mod attention;
mod compile;
mod device;
mod executor;
mod launch;
mod losses;
mod memory;
mod moves;
mod norms;
mod pointwise;
mod pools;
mod prepare_images;
mod products;
mod steps;
mod tables;
mod target;
mod updates;

pub use device::{Device, Gpu, Libraries, Library};
pub use executor::Executor;
