//! NCCL's functions, found when several GPUs are to work together.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::{Error, Result};

/// Names another library, where it has an unusual name or place.
const VARIABLE: &str = "VITREOUS_NCCL";
/// Its usual names.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// The oldest that is used: 2.18, which knows bf16, may be recorded in a CUDA graph, and says in words what went wrong.
const LEAST: c_int = 21_800;

/// `ncclResult_t`: all is well; what was asked is still going on.
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

/// What a communicator is begun with: `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::cuda) struct Id(pub [u8; Id::BYTES]);

impl Id {
    pub const BYTES: usize = 128;
}

/// `ncclDataType_t`, as far as it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(in crate::cuda) enum Kind {
    U8 = 1,
    F32 = 7,
    Bf16 = 9,
}

/// `ncclSum` of `ncclRedOp_t`.
pub(super) const SUM: c_int = 0;

/// `ncclComm_t`.
pub(super) type Handle = *mut c_void;
/// `cudaStream_t`, which is the driver's.
pub(super) type StreamHandle = *mut c_void;

/// The functions that are used, as `nccl.h` of 2.18 and later declares them.
pub(super) struct Functions {
    get_version: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub get_unique_id: unsafe extern "C" fn(*mut Id) -> c_int,
    pub init_rank: unsafe extern "C" fn(*mut Handle, c_int, Id, c_int) -> c_int,
    pub destroy: unsafe extern "C" fn(Handle) -> c_int,
    pub async_error: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(Handle) -> *const c_char,
    pub all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, StreamHandle) -> c_int,
    pub send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Handle, StreamHandle) -> c_int,
    pub receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, StreamHandle) -> c_int,
    pub group_start: unsafe extern "C" fn() -> c_int,
    pub group_end: unsafe extern "C" fn() -> c_int,
}

impl Functions {
    fn of(library: &Library) -> Result<Functions, libloading::Error> {
        /// Looks a function up; its type is that of the field.
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: `nccl.h` declares the function like the field that it is put into.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        Ok(Functions {
            get_version: function!("ncclGetVersion"),
            get_unique_id: function!("ncclGetUniqueId"),
            init_rank: function!("ncclCommInitRank"),
            destroy: function!("ncclCommDestroy"),
            async_error: function!("ncclCommGetAsyncError"),
            error_string: function!("ncclGetErrorString"),
            last_error: function!("ncclGetLastError"),
            all_reduce: function!("ncclAllReduce"),
            send: function!("ncclSend"),
            receive: function!("ncclRecv"),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
        })
    }

    fn version(&self) -> Option<c_int> {
        let mut number = 0;
        // SAFETY: it writes one number, and may be called at any time.
        let code = unsafe { (self.get_version)(&mut number) };
        (code == SUCCESS).then_some(number)
    }

    /// An error for a code that is none of success.
    pub fn check(&self, code: c_int, what: &str) -> Result<()> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: both give a text that lives as long as the library, or nothing; without a communicator it is the last error of all.
        let (general, last) =
            unsafe { (text((self.error_string)(code)), text((self.last_error)(std::ptr::null_mut()))) };
        let general = general.unwrap_or_else(|| format!("error {code}"));
        let last = last.map(|last| format!(": {last}")).unwrap_or_default();
        Err(Error::Machine(format!("{what}: NCCL says \"{general}\"{last}; NCCL_DEBUG=WARN says more")))
    }
}

/// A text of the library in one line, unless it is empty.
///
/// # Safety
/// The address must be that of a text that ends with a zero, or of nothing.
unsafe fn text(from: *const c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line).filter(|line| !line.is_empty())
}

/// The library, if it can be used; or why not, in a few words.
pub(super) fn functions() -> Result<&'static Functions, String> {
    static FOUND: OnceLock<Result<Functions, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<Functions, String> {
    let named = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    let names: Vec<&str> = named.as_deref().map_or_else(|| NAMES.to_vec(), |name| vec![name]);
    let mut reason = String::new();
    for name in names {
        // SAFETY: NVIDIA's library, whose constructors run in any program that is linked to it.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                let functions =
                    Functions::of(&library).map_err(|_| format!("{name} lacks a function: install NCCL 2.18 or later"));
                // Never unloaded: such libraries do not support it.
                std::mem::forget(library);
                return functions.and_then(new_enough);
            }
            Err(error) if named.is_some() => reason = format!("{VARIABLE}={name} cannot be loaded: {error}"),
            Err(_) => {}
        }
    }
    Err(if reason.is_empty() { "NCCL was not found".to_string() } else { reason })
}

fn new_enough(functions: Functions) -> Result<Functions, String> {
    match functions.version() {
        Some(number) if number >= LEAST => Ok(functions),
        Some(number) => Err(format!("NCCL {} is too old: install {} or later", words(number), words(LEAST))),
        None => Err("NCCL does not say its version".to_string()),
    }
}

/// The version that is used, or found and not good enough.
pub(in crate::cuda) fn version() -> Result<String, String> {
    functions().map(|functions| functions.version().map_or_else(|| "?".to_string(), words))
}

/// 22703 to `2.27.3`. Up to 2.8 the number had a digit less.
fn words(number: c_int) -> String {
    let major = if number < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_people_know() {
        assert_eq!([22_703, 2_804, 21_005, LEAST].map(words), ["2.27.3", "2.8.4", "2.10.5", "2.18.0"]);
    }

    #[test]
    fn what_is_passed_has_the_size_of_the_header() {
        assert_eq!((size_of::<Id>(), align_of::<Id>(), size_of::<Kind>()), (128, 1, size_of::<c_int>()));
    }

    /// Where a library is installed (or named with VITREOUS_NCCL), all functions are there, and an error is told in words, without a GPU.
    #[test]
    fn an_installed_library_has_all_functions() {
        let functions = match functions() {
            Ok(functions) => functions,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        assert!(version().is_ok_and(|version| version.starts_with("2.")));
        assert!(functions.check(SUCCESS, "nothing").is_ok());
        let said = functions.check(4, "a test").map_err(|error| error.to_string()).expect_err("invalid argument");
        assert!(said.starts_with("a test: NCCL says \"invalid argument"), "{said}");
        // SAFETY: a communicator that is none is refused.
        let code = unsafe { (functions.init_rank)(std::ptr::null_mut(), 1, Id([0; Id::BYTES]), 0) };
        assert!(functions.check(code, "a communicator of nothing").is_err());
    }
}
