//! What is known of GPUs and of NVIDIA's libraries, with the feature `cuda` or without.

use crate::error::{Error, Result};

/// A GPU, as the driver describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Its number, as in `cuda:0`.
    pub ordinal: usize,
    /// What it is called.
    pub name: String,
    /// Major and minor number of its compute capability.
    pub capability: (u32, u32),
    /// Processors.
    pub processors: u32,
    /// Bytes of shared memory that a block of threads may have.
    pub shared_bytes: usize,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes per second that its memory can give or take, as its clock and width say.
    pub bandwidth: f64,
}

/// One of NVIDIA's libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// What it is called.
    pub name: &'static str,
    /// Its version; `None` if it was not found.
    pub version: Option<String>,
    /// Why nothing can be computed with it, and what to do; `None` if it is there and new enough.
    pub fault: Option<String>,
}

/// What a GPU needs, and what was found of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// The driver, NVRTC, cuBLASLt: without one of them, no GPU is used.
    pub needed: [Library; 3],
}

impl Library {
    pub(crate) fn new(name: &'static str, version: Option<String>, advice: &str) -> Library {
        let fault = version.is_none().then(|| format!("{name} was not found; {advice}"));
        Library { name, version, fault }
    }
}

impl Libraries {
    /// Whether there is a driver: without one, nothing of CUDA is expected.
    pub fn has_driver(&self) -> bool {
        self.needed[0].version.is_some()
    }

    /// The first of those needed that cannot be used, as an error.
    pub fn check(&self) -> Result<()> {
        match self.needed.iter().find_map(|library| library.fault.clone()) {
            Some(fault) => Err(Error::Machine(fault)),
            None => Ok(()),
        }
    }
}
