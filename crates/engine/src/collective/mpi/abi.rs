//! The functions of MPI that are used, with the handles of either kind of library.

use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

use crate::error::{Error, Result};

/// Bytes that a version or the name of a host may take: the most that any library asks for.
const MOST_TEXT: usize = 8192;

/// How a library names communicators, types and requests.
pub(super) trait Handle: Copy + Send + 'static {
    /// The communicator of all processes, and the type of a byte.
    fn names(library: &Library) -> Result<[Self; 2]>;
    /// A request that is none.
    fn no_request(library: &Library) -> Result<Self>;
    /// What stands for "no status is wanted".
    const NO_STATUS: usize;
}

/// Open MPI's: pointers to symbols.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pointer(*mut c_void);

// SAFETY: these pointers are names that the library gives out; only one thread passes them on at a time.
unsafe impl Send for Pointer {}

impl Pointer {
    fn to(library: &Library, symbol: &str) -> Result<Pointer> {
        // SAFETY: only the address is taken, of a library that is never unloaded.
        let address = unsafe { library.get::<*mut c_void>(symbol.as_bytes()).map_err(missing)?.try_as_raw_ptr() };
        Ok(Pointer(address.unwrap_or(std::ptr::null_mut())))
    }
}

impl Handle for Pointer {
    fn names(library: &Library) -> Result<[Pointer; 2]> {
        Ok([Pointer::to(library, "ompi_mpi_comm_world")?, Pointer::to(library, "ompi_mpi_byte")?])
    }

    fn no_request(library: &Library) -> Result<Pointer> {
        Pointer::to(library, "ompi_request_null")
    }

    const NO_STATUS: usize = 0;
}

/// MPICH's: numbers, which its binary interface has fixed.
impl Handle for c_int {
    fn names(_library: &Library) -> Result<[c_int; 2]> {
        Ok([0x4400_0000, 0x4c00_010d])
    }

    fn no_request(_library: &Library) -> Result<c_int> {
        Ok(0x2c00_0000)
    }

    const NO_STATUS: usize = 1;
}

/// The functions.
pub(super) struct Functions<H> {
    pub init_thread: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
    pub comm_rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    pub comm_size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    pub processor_name: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int,
    pub send: unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    pub receive: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    pub test: unsafe extern "C" fn(*mut H, *mut c_int, *mut c_void) -> c_int,
    pub test_all: unsafe extern "C" fn(c_int, *mut H, *mut c_int, *mut c_void) -> c_int,
    pub abort: unsafe extern "C" fn(H, c_int) -> c_int,
    pub finalize: unsafe extern "C" fn() -> c_int,
}

impl<H: Handle> Functions<H> {
    pub fn of(library: &Library) -> Result<Functions<H>> {
        /// Looks a function up; its type is that of the field.
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the standard declares the function like the field that it is put into.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(missing)?
            };
        }
        Ok(Functions {
            init_thread: function!("MPI_Init_thread"),
            comm_rank: function!("MPI_Comm_rank"),
            comm_size: function!("MPI_Comm_size"),
            processor_name: function!("MPI_Get_processor_name"),
            send: function!("MPI_Isend"),
            receive: function!("MPI_Irecv"),
            test: function!("MPI_Test"),
            test_all: function!("MPI_Testall"),
            abort: function!("MPI_Abort"),
            finalize: function!("MPI_Finalize"),
        })
    }
}

fn missing(error: libloading::Error) -> Error {
    Error::Machine(format!("this MPI library lacks a function: {}", super::library::reason(&error)))
}

/// Calls a function that writes a text and its length.
pub(super) fn text_of(function: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut bytes = vec![0u8; MOST_TEXT];
    let mut length = 0;
    let failed = function(bytes.as_mut_ptr().cast(), &mut length) != 0;
    let length = usize::try_from(length).ok().filter(|&length| !failed && length <= bytes.len())?;
    let text = String::from_utf8_lossy(&bytes[..length]).trim_end_matches('\0').trim().to_string();
    Some(text).filter(|text| !text.is_empty())
}

/// What a library says of itself: this may be asked before MPI begins.
pub(super) fn version_of(library: &Library) -> Option<String> {
    // SAFETY: the standard declares the function like this.
    let function = unsafe {
        library.get::<unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(b"MPI_Get_library_version\0").ok()?
    };
    // SAFETY: the buffer is as long as any library asks for.
    let text = text_of(|bytes, length| unsafe { function(bytes, length) })?;
    text.lines().next().map(in_short)
}

/// `Open MPI v4.1.4, package: ..` and `MPICH Version:      4.0.2` without what does not matter here.
fn in_short(line: &str) -> String {
    let line = line.split(", package").next().unwrap_or(line);
    line.split_whitespace().filter(|word| *word != "Version:").collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_short() {
        let open = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022";
        assert_eq!(super::in_short(open), "Open MPI v4.1.4");
        assert_eq!(super::in_short("MPICH Version:      4.0.2"), "MPICH 4.0.2");
    }
}
