//! Which of NVIDIA's libraries are installed, and what to do about missing ones.

use std::ffi::c_int;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::gpu::{Libraries, Library};

/// The oldest supported driver, by its CUDA version.
const LEAST_DRIVER: c_int = 12_000;

impl Libraries {
    /// Looks for the libraries.
    pub fn find() -> Libraries {
        Libraries::of(driver_version(), compiler_version(), products_version())
    }

    fn of(driver_number: Option<c_int>, compiler: Option<String>, products: Option<String>) -> Libraries {
        let library = |name: &'static str, version: Option<String>, package: &str| {
            let advice = advice(package, driver_number);
            let mut library = Library::new(name, version, &format!("install {advice}"));
            // A driver loads nothing of a later generation of CUDA.
            if let (Some(found), Some(number), Some(major)) = (&library.version, driver_number, major(&library))
                && major > number / 1000
            {
                let known = version_of(number);
                library.fault = Some(format!(
                    "{name} {found} needs a driver for CUDA {major}, and this one is for {known}; install a newer driver, or in place of this library {advice}"
                ));
            }
            library
        };
        Libraries {
            needed: [
                driver(driver_number),
                library("NVRTC", compiler, "nvidia-cuda-nvrtc"),
                library("cuBLASLt", products, "nvidia-cublas"),
            ],
        }
    }

    /// NCCL, which several GPUs can do without, and the CUDA runtime, which is not used but often asked about.
    pub fn others() -> [Library; 2] {
        [nccl(), Library::new("CUDA runtime", runtime_version(), "it is not needed: the driver is called directly")]
    }
}

/// NCCL, or why it is not used.
fn nccl() -> Library {
    let found = super::nccl::version();
    let without = "it is not needed: without it, several GPUs add up gradients through host memory";
    let mut library = Library::new("NCCL", found.clone().ok(), without);
    if let Err(why) = found.as_ref().map_err(|why| why.as_str())
        && why != "NCCL was not found"
    {
        library.fault = Some(format!("NCCL was not found: {why}; {without}"));
    }
    library
}

/// The first number of a library's version.
fn major(library: &Library) -> Option<c_int> {
    library.version.as_ref()?.split('.').next()?.parse().ok()
}

/// How to install a library that matches a driver.
fn advice(package: &str, driver: Option<c_int>) -> String {
    let (toolkit, suffix) = match driver {
        Some(number) if number < 13_000 => ("12", "-cu12"),
        Some(_) => ("13", ""),
        None => ("12 or 13", ""),
    };
    format!(
        "the CUDA toolkit ({toolkit}), or `pip install {package}{suffix}` and put its lib folder into LD_LIBRARY_PATH"
    )
}

/// 13000 to `13.0`.
fn version_of(number: c_int) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// The driver, if it is there.
pub(super) fn driver_found() -> Library {
    driver(driver_version())
}

fn driver(number: Option<c_int>) -> Library {
    // A kernel module without the library is typical of a container without access to GPUs.
    let advice = match std::path::Path::new("/proc/driver/nvidia/version").exists() {
        true => {
            "the system has one, but libcuda.so is not here: a container needs to be given its GPUs (as in `docker run --gpus all`)"
        }
        false => "install NVIDIA's driver (on Linux the package of your system, such as nvidia-driver)",
    };
    let mut library = Library::new("NVIDIA's driver", number.map(version_of), advice);
    if let Some(number) = number.filter(|&number| number < LEAST_DRIVER) {
        library.fault = Some(format!(
            "NVIDIA's driver knows CUDA {}, but {} is needed; install a newer driver",
            version_of(number),
            version_of(LEAST_DRIVER)
        ));
    }
    library
}

pub(super) fn driver_version() -> Option<c_int> {
    static FOUND: OnceLock<Option<c_int>> = OnceLock::new();
    *FOUND.get_or_init(ask_driver)
}

fn ask_driver() -> Option<c_int> {
    // SAFETY: looks for a library, as everything in this file does before using it.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let mut number = 0;
    // SAFETY: the driver is there; it writes one number.
    let result = unsafe { sys::cuDriverGetVersion(&mut number) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(number)
}

pub(super) fn compiler_version() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(ask_compiler).clone()
}

fn ask_compiler() -> Option<String> {
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

fn runtime_version() -> Option<String> {
    let names = ["libcudart.so.13", "libcudart.so.12", "libcudart.so", "cudart64_13.dll", "cudart64_12.dll"];
    number_of(&names, c"cudaRuntimeGetVersion").map(version_of)
}

/// Calls a version function of the first of these libraries that exists: both have this form, and return 0.
fn number_of(libraries: &[&str], function: &std::ffi::CStr) -> Option<c_int> {
    // SAFETY: NVIDIA's libraries, whose constructors run in any program that is linked to them.
    let library = libraries.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok())?;
    let mut number = 0;
    // SAFETY: both functions that are asked for are declared like this, and write one number.
    let result = unsafe {
        let found = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(function.to_bytes_with_nul());
        found.ok().map(|function| function(&mut number))
    };
    // Never unloaded: such libraries do not support it.
    std::mem::forget(library);
    (result == Some(0)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(driver: Option<c_int>, compiler: Option<&str>, products: Option<&str>) -> Libraries {
        Libraries::of(driver, compiler.map(str::to_string), products.map(str::to_string))
    }

    fn says(libraries: Libraries) -> Result<(), String> {
        libraries.check().map_err(|error| error.to_string())
    }

    #[test]
    fn versions_are_those_that_people_know() {
        assert_eq!([13_000, 12_040, 11_080].map(version_of), ["13.0", "12.4", "11.8"]);
    }

    #[test]
    fn the_first_that_is_missing_is_named() {
        assert_eq!(says(found(Some(12_040), Some("12.4"), Some("12.4.2"))), Ok(()));
        let none = says(found(None, None, None)).expect_err("no driver");
        assert!(none.starts_with("NVIDIA's driver was not found; "), "{none}");
        let old = says(found(Some(11_040), None, None)).expect_err("an old driver");
        assert_eq!(old, "NVIDIA's driver knows CUDA 11.4, but 12.0 is needed; install a newer driver");
        let missing = says(found(Some(13_000), Some("13.0"), None)).expect_err("no library");
        assert!(
            missing
                .starts_with("cuBLASLt was not found; install the CUDA toolkit (13), or `pip install nvidia-cublas` ")
        );
    }

    #[test]
    fn libraries_of_a_later_cuda_than_the_drivers_are_refused() {
        for (driver, compiler, products) in
            [(13_000, "12.4", "12.4.2"), (13_000, "13.4", "13.4.0"), (12_040, "12.9", "12.9.1")]
        {
            assert_eq!(says(found(Some(driver), Some(compiler), Some(products))), Ok(()));
        }
        // Without a driver, that is the error.
        assert!(says(found(None, Some("13.0"), Some("13.0.1"))).is_err_and(|said| said.starts_with("NVIDIA's driver")));
        let both = says(found(Some(12_090), Some("13.0"), Some("13.0.1"))).expect_err("too new");
        assert_eq!(
            both,
            "NVRTC 13.0 needs a driver for CUDA 13, and this one is for 12.9; install a newer driver, or in place of this library the CUDA toolkit (12), \
             or `pip install nvidia-cuda-nvrtc-cu12` and put its lib folder into LD_LIBRARY_PATH"
        );
        let one = says(found(Some(12_040), Some("12.4"), Some("13.0.1"))).expect_err("too new");
        assert!(one.starts_with("cuBLASLt 13.0.1 needs a driver for CUDA 13, and this one is for 12.4; "), "{one}");
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_eq!(number_of(&["libvitreous-does-not-exist.so"], c"nothing"), None);
    }
}
