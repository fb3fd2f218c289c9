//! MPI: whichever library the launcher belongs to, found when it is needed.
//!
//! There is one program for Open MPI and for MPICH with its relatives, and none of their headers is needed to build it. The functions
//! are the same; what differs is how they name communicators, types and requests: pointers to symbols in Open MPI, numbers in MPICH
//! (whose numbers Intel MPI, MVAPICH and Cray have, too). One thread makes all calls.

#[cfg(feature = "mpi")]
mod abi;
#[cfg(feature = "mpi")]
mod beats;
#[cfg(feature = "mpi")]
mod library;
#[cfg(feature = "mpi")]
mod link;

use super::{Collective, Launcher};
use crate::error::Result;

/// Begins MPI with the library of this launcher. To be called once, by the thread that makes all further calls.
#[cfg(feature = "mpi")]
pub fn open(launcher: &Launcher) -> Result<Box<dyn Collective>> {
    library::open(launcher)
}

/// A build without the feature `mpi`.
#[cfg(not(feature = "mpi"))]
pub fn open(_launcher: &Launcher) -> Result<Box<dyn Collective>> {
    Err(crate::error::Error::Machine(
        "this process was started with others, and this build has no MPI; build it with the feature `mpi`".to_string(),
    ))
}

/// An MPI library that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The name under which it was found.
    pub file: String,
    /// What it says of itself, the first line.
    pub version: String,
    /// How it names things.
    pub abi: Abi,
}

/// The binary interfaces of MPI libraries: how they name communicators, types and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// Pointers to symbols: Open MPI.
    OpenMpi,
    /// Numbers: MPICH, Intel MPI, MVAPICH, Cray.
    Mpich,
}

impl Abi {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Abi::OpenMpi => "Open MPI",
            Abi::Mpich => "MPICH",
        }
    }
}

/// The libraries that would be found, each with its version: without starting MPI.
#[cfg(feature = "mpi")]
pub fn installed() -> Vec<Installed> {
    library::installed()
}

/// A build without the feature `mpi` looks for none.
#[cfg(not(feature = "mpi"))]
pub fn installed() -> Vec<Installed> {
    Vec::new()
}
