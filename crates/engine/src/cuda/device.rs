//! What there is of CUDA on this machine, and the devices that kernels run on.

use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use crate::error::{Error, Result};

/// The oldest driver whose CUDA version this program's kernels are written for.
const LEAST_DRIVER: c_int = 12_000;

/// One of CUDA's libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// What it is called.
    pub name: &'static str,
    /// Its version; `None` if it was not found.
    pub version: Option<String>,
    /// What to do where it is missing.
    pub advice: &'static str,
}

/// All that a GPU needs, and what was found of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// The driver, NVRTC, cuBLASLt.
    pub all: [Library; 3],
}

/// A GPU, as the driver describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Its number, as in `cuda:0`.
    pub ordinal: usize,
    /// What it is called.
    pub name: String,
    /// Major and minor number of what its processors can do.
    pub capability: (u32, u32),
    /// Processors.
    pub processors: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes a second that its memory can give or take, as its clock and width say.
    pub bandwidth: f64,
}

/// `13.0` of 13000.
fn version(number: c_int) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn driver_version() -> Option<c_int> {
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

impl Libraries {
    /// Looks for them.
    pub fn find() -> Libraries {
        Libraries {
            all: [
                Library {
                    name: "driver",
                    version: driver_version().map(version),
                    advice: "install NVIDIA's driver (on Linux the package of your system, such as nvidia-driver)",
                },
                Library {
                    name: "NVRTC",
                    version: compiler_version(),
                    advice: "install the CUDA toolkit (12 or 13), or `pip install nvidia-cuda-nvrtc` and put its lib folder into LD_LIBRARY_PATH",
                },
                Library {
                    name: "cuBLASLt",
                    version: products_version(),
                    advice: "install the CUDA toolkit (12 or 13), or `pip install nvidia-cublas` and put its lib folder into LD_LIBRARY_PATH",
                },
            ],
        }
    }

    /// Whether there is a driver: without one, nothing of CUDA is expected.
    pub fn has_driver(&self) -> bool {
        self.all[0].version.is_some()
    }

    /// The first that is missing, as an error.
    pub fn check(&self) -> Result<()> {
        match self.all.iter().find(|library| library.version.is_none()) {
            Some(library) => Err(Error::Machine(format!("CUDA's {} was not found; {}", library.name, library.advice))),
            None => Ok(()),
        }
    }
}

/// An error of the driver in words.
pub(super) fn failed(what: &str, error: driver::DriverError) -> Error {
    let name = error.error_string().map_or_else(|_| "?".to_string(), |text: &CStr| text.to_string_lossy().into_owned());
    Error::Machine(match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            format!("{what}: the GPU's memory is full; take a smaller batch or model, or turn recomputation on")
        }
        sys::CUresult::CUDA_ERROR_NO_DEVICE => "there is no GPU that CUDA can use".to_string(),
        sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => format!("{what}: the GPU is used by another program alone"),
        code => format!(
            "{what}: the GPU says \"{name}\" ({code:?}); if it goes on, the device may be lost: restart the program"
        ),
    })
}

/// The GPUs of this machine.
pub fn gpus() -> Result<Vec<Gpu>> {
    start_driver()?;
    let count = driver::device::get_count().map_err(|error| failed("counting GPUs", error))?;
    (0..count as usize).map(describe).collect()
}

fn start_driver() -> Result<()> {
    let Some(number) = driver_version() else {
        Libraries::find().check()?;
        return Err(Error::Machine("CUDA's driver does not answer".to_string()));
    };
    if number < LEAST_DRIVER {
        return Err(Error::Machine(format!(
            "the driver knows CUDA {}, but {} is needed: install a newer driver",
            version(number),
            version(LEAST_DRIVER)
        )));
    }
    driver::init().map_err(|error| failed("starting the driver", error))
}

fn describe(ordinal: usize) -> Result<Gpu> {
    use sys::CUdevice_attribute as Attribute;
    let of = |error| failed("asking for a GPU", error);
    let device = driver::device::get(ordinal as c_int).map_err(of)?;
    // SAFETY: the device is one that the driver gave.
    let attribute = |which| unsafe { driver::device::get_attribute(device, which) }.map(|number| number as u32);
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map_err(of)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).map_err(of)?;
    let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(of)?;
    let clock = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).map_err(of)?;
    let width = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).map_err(of)?;
    Ok(Gpu {
        ordinal,
        name: driver::device::get_name(device).map_err(of)?,
        // Two transfers a beat.
        bandwidth: 2.0 * 1e3 * f64::from(clock) * f64::from(width) / 8.0,
        capability: (major, minor),
        processors,
        // SAFETY: as above.
        memory: unsafe { driver::device::total_mem(device) }.map_err(of)? as u64,
    })
}

/// A GPU with everything that running on it needs.
pub struct Device {
    gpu: Gpu,
    context: Context,
    /// Whether f32 operands of products may be rounded to TF32.
    rounds_products: AtomicBool,
}

/// The device's primary context, which is given back at the end.
struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context may be used by any thread that makes it current.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `Device::open`, released once.
        let _ = unsafe { driver::primary_ctx::release(self.device) };
    }
}

impl Device {
    /// Opens a GPU by its number.
    pub fn open(ordinal: usize) -> Result<Arc<Device>> {
        let all = gpus()?;
        Libraries::find().check()?;
        let Some(gpu) = all.get(ordinal).cloned() else {
            let there = match all.len() {
                0 => "there is no GPU that CUDA can use".to_string(),
                1 => "there is only cuda:0".to_string(),
                count => format!("there are cuda:0 to cuda:{}", count - 1),
            };
            return Err(Error::Machine(format!("no device is called cuda:{ordinal}; {there}")));
        };
        let of = |error| failed("opening the GPU", error);
        let device = driver::device::get(ordinal as c_int).map_err(of)?;
        // SAFETY: the device is one that the driver gave.
        let context = Context { device, handle: unsafe { driver::primary_ctx::retain(device) }.map_err(of)? };
        let opened = Device { gpu, context, rounds_products: AtomicBool::new(false) };
        opened.bind()?;
        Ok(Arc::new(opened))
    }

    /// What it is.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Bytes of its memory that are free now.
    pub fn free_memory(&self) -> Result<u64> {
        self.bind()?;
        let (free, _) = driver::mem_get_info().map_err(|error| failed("asking for memory", error))?;
        Ok(free as u64)
    }

    /// Lets products of f32 round their operands to TF32 (ten bits behind the point instead of 23), in executors that are made from now on:
    /// several times as fast. Without being asked for it, f32 is f32.
    pub fn allow_tf32(&self) {
        self.rounds_products.store(true, Ordering::Relaxed);
    }

    /// Whether products of f32 round their operands.
    pub fn allows_tf32(&self) -> bool {
        self.rounds_products.load(Ordering::Relaxed)
    }

    /// Makes this the device of the calling thread.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as this device.
        unsafe { driver::ctx::set_current(self.context.handle) }.map_err(|error| failed("using the GPU", error))
    }
}
