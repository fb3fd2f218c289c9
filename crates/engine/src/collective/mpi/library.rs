//! Which library is loaded: the one that the launcher belongs to.

use std::ffi::c_int;

use libloading::Library;

use super::abi::{Pointer, version_of};
use super::link::Mpi;
use super::{Abi, Installed};
use crate::collective::{Collective, Launcher};
use crate::error::{Error, Result};

/// Names another library, where it has an unusual name or place.
const VARIABLE: &str = "VITREOUS_MPI";

/// Open MPI 5 to 2.
const OPEN_MPI: [&str; 3] = ["libmpi.so.40", "libmpi.so.20", "libmpi.40.dylib"];
/// MPICH and its relatives, under Debian's name and under that of their common binary interface.
const MPICH: [&str; 4] = ["libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpi.12.dylib"];
/// Whatever is installed for those who compile.
const ANY: [&str; 2] = ["libmpi.so", "libmpi.dylib"];

/// The names to look under, the likeliest first.
fn names(launcher: &Launcher) -> Vec<&'static str> {
    match launcher {
        Launcher::OpenMpi => [&OPEN_MPI[..], &ANY].concat(),
        Launcher::Pmi => [&MPICH[..], &OPEN_MPI, &ANY].concat(),
        Launcher::Pmix => [&OPEN_MPI[..], &MPICH, &ANY].concat(),
        Launcher::Rendezvous { .. } => Vec::new(),
    }
}

/// What the system says of a library that cannot be loaded.
pub(super) fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn load(name: &str) -> Result<Library, libloading::Error> {
    // Open MPI loads parts of itself, which look for its symbols among those of the whole process.
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library as Unix, RTLD_GLOBAL, RTLD_NOW};
        // SAFETY: a library whose constructors run in any program that is linked to it.
        unsafe { Unix::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.map(Library::from)
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as above.
        unsafe { Library::new(name) }
    }
}

/// Loads a library and begins MPI.
pub(super) fn open(launcher: &Launcher) -> Result<Box<dyn Collective>> {
    let (library, name) = find(launcher)?;
    let version = version_of(&library).unwrap_or_else(|| name.clone());
    match abi_of(&library) {
        Abi::OpenMpi => Ok(Box::new(Mpi::<Pointer>::begin(library, version)?)),
        Abi::Mpich => Ok(Box::new(Mpi::<c_int>::begin(library, version)?)),
    }
}

fn abi_of(library: &Library) -> Abi {
    // SAFETY: only looked for.
    match unsafe { library.get::<*mut u8>(b"ompi_mpi_comm_world\0") }.is_ok() {
        true => Abi::OpenMpi,
        false => Abi::Mpich,
    }
}

fn find(launcher: &Launcher) -> Result<(Library, String)> {
    if let Some(named) = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()) {
        let failed = |error| {
            Error::Machine(format!("{VARIABLE}={named}: this MPI library cannot be loaded: {}", reason(&error)))
        };
        return Ok((load(&named).map_err(failed)?, named));
    }
    let mut reasons = Vec::new();
    for name in names(launcher) {
        match load(name) {
            Ok(library) => return Ok((library, name.to_string())),
            Err(error) => reasons.push(reason(&error)),
        }
    }
    let who = match launcher {
        Launcher::OpenMpi => "mpirun of Open MPI",
        Launcher::Pmi => "mpirun of MPICH or a relative, or srun",
        Launcher::Pmix => "srun or prun with PMIx",
        Launcher::Rendezvous { .. } => "RANK and WORLD_SIZE",
    };
    let reason = reasons.into_iter().next().unwrap_or_default();
    Err(Error::Machine(format!(
        "this process was started with others by {who}, but no MPI library of that kind was found ({reason}); install it on every \
         machine (Debian: libopenmpi3 or libmpich12), or name the library with {VARIABLE}=/path/to/libmpi.so"
    )))
}

/// The libraries that would be found.
pub(super) fn installed() -> Vec<Installed> {
    let mut found: Vec<Installed> = Vec::new();
    for name in OPEN_MPI.iter().chain(&MPICH) {
        let Ok(library) = load(name) else { continue };
        let version = version_of(&library).unwrap_or_else(|| "an unknown version".to_string());
        let abi = abi_of(&library);
        // Never unloaded: such libraries do not support it.
        std::mem::forget(library);
        if !found.iter().any(|other| other.version == version) {
            found.push(Installed { file: name.to_string(), version, abi });
        }
    }
    found
}
