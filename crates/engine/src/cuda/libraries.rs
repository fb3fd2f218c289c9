//! Which of NVIDIA's libraries there are on this machine, and what to do about those that are missing.

use std::ffi::c_int;

use cudarc::driver::sys;

use crate::error::{Error, Result};

/// The oldest driver whose CUDA version this program's kernels are written for.
const LEAST_DRIVER: c_int = 12_000;

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
    fn new(name: &'static str, version: Option<String>, advice: &str) -> Library {
        let fault = version.is_none().then(|| format!("{name} was not found; {advice}"));
        Library { name, version, fault }
    }

    /// The first number of its version.
    fn major(&self) -> Option<u32> {
        self.version.as_ref()?.split('.').next()?.parse().ok()
    }
}

impl Libraries {
    /// Looks for them.
    pub fn find() -> Libraries {
        Libraries {
            needed: [
                driver_found(),
                Library::new(
                    "NVRTC",
                    compiler_version(),
                    "install the CUDA toolkit (12 or 13), or `pip install nvidia-cuda-nvrtc` and put its lib folder into LD_LIBRARY_PATH",
                ),
                Library::new(
                    "cuBLASLt",
                    products_version(),
                    "install the CUDA toolkit (12 or 13), or `pip install nvidia-cublas` and put its lib folder into LD_LIBRARY_PATH",
                ),
            ],
        }
    }

    /// NCCL and the CUDA runtime: nothing is computed with them, but who looks for a fault wants to know.
    pub fn others() -> [Library; 2] {
        [
            Library::new("NCCL", nccl_version(), "it is not needed: a run uses one GPU"),
            Library::new("CUDA runtime", runtime_version(), "it is not needed: the driver is called directly"),
        ]
    }

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

    /// What may go wrong with what was found: a driver loads nothing of a later generation of CUDA.
    pub fn doubt(&self) -> Option<String> {
        let [driver, compiler, products] = &self.needed;
        let newer = |library: &Library| library.major() > driver.major() && driver.version.is_some();
        let names: Vec<&str> =
            [compiler, products].into_iter().filter(|&library| newer(library)).map(|library| library.name).collect();
        (!names.is_empty()).then(|| {
            let version = driver.version.as_deref().unwrap_or("?");
            format!(
                "{} of a later CUDA than the driver's ({version}): install a newer driver, or libraries of its CUDA",
                match names.as_slice() {
                    [name] => format!("{name} is"),
                    names => format!("{} are", names.join(" and ")),
                }
            )
        })
    }
}

/// `13.0` of 13000.
fn version(number: c_int) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// The driver, if it is there.
pub(super) fn driver_found() -> Library {
    driver(driver_version())
}

fn driver(number: Option<c_int>) -> Library {
    // The kernel's part without the library is what a container has that was not given its GPUs.
    let advice = match std::path::Path::new("/proc/driver/nvidia/version").exists() {
        true => {
            "the system has one, but libcuda.so is not here: a container needs to be given its GPUs (as in `docker run --gpus all`)"
        }
        false => "install NVIDIA's driver (on Linux the package of your system, such as nvidia-driver)",
    };
    let mut library = Library::new("NVIDIA's driver", number.map(version), advice);
    if let Some(number) = number.filter(|&number| number < LEAST_DRIVER) {
        library.fault = Some(format!(
            "NVIDIA's driver knows CUDA {}, but {} is needed; install a newer driver",
            version(number),
            version(LEAST_DRIVER)
        ));
    }
    library
}

pub(super) fn driver_version() -> Option<c_int> {
    // SAFETY: looks for a library, as everything in this file that is asked before it is used.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let mut number = 0;
    // SAFETY: the driver is there; it writes one number.
    let result = unsafe { sys::cuDriverGetVersion(&mut number) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(number)
}

fn compiler_version() -> Option<String> {
    // SAFETY: as above.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there; it writes two numbers.
    let result = unsafe { cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
    result.result().ok().map(|()| format!("{major}.{minor}"))
}

fn products_version() -> Option<String> {
    // SAFETY: as above.
    if !unsafe { cudarc::cublaslt::sys::is_culib_present() } {
        return None;
    }
    // SAFETY: the library is there.
    let number = unsafe { cudarc::cublaslt::sys::cublasLtGetVersion() };
    Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
}

fn nccl_version() -> Option<String> {
    number_of(&["libnccl.so.2", "libnccl.so"], c"ncclGetVersion").map(nccl_words)
}

/// `2.27.3` of 22703. Up to 2.8 a number had a digit less.
fn nccl_words(number: c_int) -> String {
    let major = if number < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}

fn runtime_version() -> Option<String> {
    let names = ["libcudart.so.13", "libcudart.so.12", "libcudart.so", "cudart64_13.dll", "cudart64_12.dll"];
    number_of(&names, c"cudaRuntimeGetVersion").map(version)
}

/// What a function of the first of these libraries that there is writes: both that are asked for have this form, and return 0.
fn number_of(libraries: &[&str], function: &std::ffi::CStr) -> Option<c_int> {
    // SAFETY: NVIDIA's libraries, whose constructors run in any program that is linked to them.
    let library = libraries.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok())?;
    let mut number = 0;
    // SAFETY: both functions that are asked for are declared like this, and write one number.
    let result = unsafe {
        let found = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(function.to_bytes_with_nul());
        found.ok().map(|function| function(&mut number))
    };
    // Left where it is: such libraries are not made to be taken away again.
    std::mem::forget(library);
    (result == Some(0)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(driver: Option<c_int>, compiler: Option<&str>, products: Option<&str>) -> Libraries {
        let library = |name, version: Option<&str>| Library::new(name, version.map(str::to_string), "install it");
        Libraries { needed: [self::driver(driver), library("NVRTC", compiler), library("cuBLASLt", products)] }
    }

    #[test]
    fn versions_are_those_that_people_know() {
        assert_eq!([13_000, 12_040, 11_080].map(version), ["13.0", "12.4", "11.8"]);
        assert_eq!([22_703, 2_804, 21_005].map(nccl_words), ["2.27.3", "2.8.4", "2.10.5"]);
    }

    #[test]
    fn the_first_that_is_missing_is_named() {
        let says = |libraries: Libraries| libraries.check().map_err(|error| error.to_string());
        assert_eq!(says(found(Some(12_040), Some("12.4"), Some("12.4.2"))), Ok(()));
        let none = says(found(None, None, None)).expect_err("no driver");
        assert!(none.starts_with("NVIDIA's driver was not found; "), "{none}");
        let old = says(found(Some(11_040), None, None)).expect_err("an old driver");
        assert_eq!(old, "NVIDIA's driver knows CUDA 11.4, but 12.0 is needed; install a newer driver");
        let missing = says(found(Some(13_000), Some("13.0"), None)).expect_err("no library");
        assert_eq!(missing, "cuBLASLt was not found; install it");
    }

    #[test]
    fn libraries_that_are_newer_than_the_driver_are_doubted() {
        assert_eq!(found(Some(13_000), Some("12.4"), Some("12.4.2")).doubt(), None);
        assert_eq!(found(Some(12_040), Some("12.9"), None).doubt(), None);
        assert_eq!(found(None, Some("13.0"), Some("13.0.1")).doubt(), None);
        let both = found(Some(12_040), Some("13.0"), Some("13.0.1")).doubt().expect("a doubt");
        assert!(both.starts_with("NVRTC and cuBLASLt are of a later CUDA than the driver's (12.4)"), "{both}");
        let one = found(Some(12_040), Some("13.0"), Some("12.4.2")).doubt().expect("a doubt");
        assert!(one.starts_with("NVRTC is of a later CUDA"), "{one}");
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_eq!(number_of(&["libvitreous-does-not-exist.so"], c"nothing"), None);
    }
}
