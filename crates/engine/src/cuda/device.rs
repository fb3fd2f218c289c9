//! The GPUs of this machine, and an opened one.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use super::compile::Modules;
pub(super) use super::failures::failed;
use super::libraries::{driver_found, driver_version};
use super::stream::while_nothing_is_recorded;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Libraries};

/// The minimum compute capability: bf16 on tensor cores, and asynchronous copies.
const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// The minimum compute capability and driver for kernels that start early (programmatic dependent launch in CUDA graphs).
const EARLY_CAPABILITY: (u32, u32) = (9, 0);
const EARLY_DRIVER: c_int = 12_040;

/// The GPUs of this machine.
pub fn gpus() -> Result<Vec<Gpu>> {
    start_driver()?;
    let count = driver::device::get_count().map_err(|error| failed("counting GPUs", error))?;
    (0..count as usize).map(describe).collect()
}

/// Free memory of a GPU in bytes, even if libraries for computing are missing.
pub fn free_memory(gpu: &Gpu) -> Result<u64> {
    Context::retain(gpu.ordinal)?.free_memory()
}

/// Loads and initialises the driver. Other libraries may be missing: GPUs can be listed without them.
fn start_driver() -> Result<()> {
    if let Some(fault) = driver_found().fault {
        return Err(Error::Machine(fault));
    }
    driver::init().map_err(|error| failed("starting the driver", error))
}

fn describe(ordinal: usize) -> Result<Gpu> {
    use sys::CUdevice_attribute as Attribute;
    let of = |error| failed("asking for a GPU", error);
    let device = driver::device::get(ordinal as c_int).map_err(of)?;
    // SAFETY: the device handle is from the driver.
    let attribute = |which| unsafe { driver::device::get_attribute(device, which) }.map(|number| number as u32);
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map_err(of)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).map_err(of)?;
    let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(of)?;
    let shared = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).map_err(of)?;
    let clock = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).map_err(of)?;
    let width = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).map_err(of)?;
    Ok(Gpu {
        ordinal,
        name: driver::device::get_name(device).map_err(of)?,
        // Two transfers per clock.
        bandwidth: 2.0 * 1e3 * f64::from(clock) * f64::from(width) / 8.0,
        capability: (major, minor),
        processors,
        shared_bytes: shared as usize,
        // SAFETY: as above.
        memory: unsafe { driver::device::total_mem(device) }.map_err(of)? as u64,
    })
}

/// An opened GPU.
pub struct Device {
    gpu: Gpu,
    /// Kernels that are loaded. Before the context, which they are loaded in.
    modules: Modules,
    context: Context,
    /// Whether f32 matrix multiplications may use TF32.
    rounds_products: AtomicBool,
}

/// The device's primary context, released at the end.
struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context may be used by any thread that makes it current.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn retain(ordinal: usize) -> Result<Context> {
        let of = |error| failed("opening the GPU", error);
        let device = driver::device::get(ordinal as c_int).map_err(of)?;
        // SAFETY: the device handle is from the driver.
        let context = Context { device, handle: unsafe { driver::primary_ctx::retain(device) }.map_err(of)? };
        context.bind()?;
        Ok(context)
    }

    /// Makes this the context of the calling thread.
    fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as this.
        unsafe { driver::ctx::set_current(self.handle) }.map_err(|error| failed("using the GPU", error))
    }

    fn free_memory(&self) -> Result<u64> {
        self.bind()?;
        let (free, _) = driver::mem_get_info().map_err(|error| failed("asking for memory", error))?;
        Ok(free as u64)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `Context::retain`, released once.
        let _ = unsafe { driver::primary_ctx::release(self.device) };
    }
}

impl Device {
    /// Opens a GPU by its index.
    pub fn open(ordinal: usize) -> Result<Arc<Device>> {
        let all = gpus()?;
        let Some(gpu) = all.get(ordinal).cloned() else {
            let there = match all.len() {
                0 => "there is no GPU that CUDA can use".to_string(),
                1 => "there is only cuda:0".to_string(),
                count => format!("there are cuda:0 to cuda:{}", count - 1),
            };
            return Err(Error::Machine(format!("no device is called cuda:{ordinal}; {there}")));
        };
        let (major, minor) = gpu.capability;
        if gpu.capability < LEAST_CAPABILITY {
            return Err(Error::Machine(format!(
                "{} is too old: its compute capability is {major}.{minor}, and kernels need {}.{} (an A100 or later)",
                gpu.name, LEAST_CAPABILITY.0, LEAST_CAPABILITY.1
            )));
        }
        Libraries::find().check()?;
        let context = Context::retain(ordinal)?;
        Ok(Arc::new(Device { gpu, modules: Modules::default(), context, rounds_products: AtomicBool::new(false) }))
    }

    /// Its description.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Which GPU this is, among those of all machines.
    pub(super) fn identity(&self) -> Result<String> {
        let of = |error| failed("asking for a GPU", error);
        let uuid = driver::device::get_uuid(self.context.device).map_err(of)?;
        Ok(uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect())
    }

    /// Waits until everything launched on it has finished.
    pub(super) fn wait(&self) -> Result<()> {
        self.bind()?;
        let _together = while_nothing_is_recorded();
        driver::ctx::synchronize().map_err(|error| failed("running", error))
    }

    /// Free memory in bytes.
    pub fn free_memory(&self) -> Result<u64> {
        self.context.free_memory()
    }

    /// Lets f32 matrix multiplications use TF32 (10 mantissa bits instead of 23) in executors created from now on:
    /// several times faster. By default f32 is f32.
    pub fn allow_tf32(&self) {
        self.rounds_products.store(true, Ordering::Relaxed);
    }

    /// Whether f32 matrix multiplications use TF32.
    pub fn allows_tf32(&self) -> bool {
        self.rounds_products.load(Ordering::Relaxed)
    }

    /// Whether a kernel can be started before the previous one has ended, also where it is recorded.
    pub(super) fn can_start_early(&self) -> bool {
        self.gpu.capability >= EARLY_CAPABILITY && driver_version().is_some_and(|version| version >= EARLY_DRIVER)
    }

    /// Kernels that are loaded on it.
    pub(super) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Makes this the device of the calling thread.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            self.modules.clear();
        }
    }
}
