//! Device memory, and pinned host memory.

use std::sync::Arc;

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use super::device::{Device, failed};
use super::stream::{Stream, while_nothing_is_recorded};
use crate::error::{Error, Result};

/// An uninitialised buffer on the device.
pub(super) struct DeviceBuffer {
    device: Arc<Device>,
    start: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates memory; an error if the device is out of memory.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<DeviceBuffer> {
        device.bind()?;
        let _together = while_nothing_is_recorded();
        let start = match bytes {
            0 => 0,
            // SAFETY: a plain allocation.
            _ => unsafe { driver::malloc_sync(bytes) }.map_err(|error| failed("taking memory", error))?,
        };
        Ok(DeviceBuffer { device: Arc::clone(device), start, bytes })
    }

    /// Like [`DeviceBuffer::new`], zeroed.
    pub fn zeroed(device: &Arc<Device>, bytes: usize) -> Result<DeviceBuffer> {
        let buffer = DeviceBuffer::new(device, bytes)?;
        if bytes > 0 {
            let _together = while_nothing_is_recorded();
            // SAFETY: the buffer has this many bytes.
            unsafe { driver::memset_d8_sync(buffer.start, 0, bytes) }
                .map_err(|error| failed("clearing memory", error))?;
            arrived()?;
        }
        Ok(buffer)
    }

    /// Its address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills all of it with the values, repeated.
    pub fn fill_with<T: bytemuck::Pod>(&self, values: &[T]) -> Result<()> {
        let first = size_of_val(values).min(self.bytes);
        if first == 0 {
            return Ok(());
        }
        self.device.bind()?;
        let _together = while_nothing_is_recorded();
        let of = |error| failed("filling memory", error);
        // SAFETY: each part lies inside the buffer, and the first is written before it is copied.
        unsafe {
            driver::memcpy_htod_sync(self.start, &bytemuck::cast_slice::<T, u8>(values)[..first]).map_err(of)?;
            let mut there = first;
            while there < self.bytes {
                let more = there.min(self.bytes - there);
                driver::memcpy_dtod_sync(self.start + there as u64, self.start, more).map_err(of)?;
                there += more;
            }
        }
        arrived()
    }

    /// Copies from the host into it.
    ///
    /// # Panics
    /// Panics if it is too small.
    pub fn write<T: bytemuck::Pod>(&mut self, byte: usize, values: &[T]) -> Result<()> {
        assert!(byte + size_of_val(values) <= self.bytes, "{byte} + {} of {}", size_of_val(values), self.bytes);
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let _together = while_nothing_is_recorded();
        // SAFETY: the values fit into the buffer.
        unsafe { driver::memcpy_htod_sync(self.start + byte as u64, values) }
            .map_err(|error| failed("copying to the GPU", error))?;
        arrived()
    }

    /// Copies from it to the host; nothing that is still running may write to it.
    ///
    /// # Panics
    /// Panics if it is too small.
    pub fn read<T: bytemuck::Pod>(&self, byte: usize, values: &mut [T]) -> Result<()> {
        assert!(byte + size_of_val(values) <= self.bytes, "{byte} + {} of {}", size_of_val(values), self.bytes);
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let _together = while_nothing_is_recorded();
        // SAFETY: the values lie inside the buffer.
        unsafe { driver::memcpy_dtoh_sync(values, self.start + byte as u64) }
            .map_err(|error| failed("copying from the GPU", error))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.bytes > 0 && self.device.bind().is_ok() {
            let _together = while_nothing_is_recorded();
            // SAFETY: allocated in `new`, freed once.
            let _ = unsafe { driver::free_sync(self.start) };
        }
    }
}

/// Waits for the default stream: copies and fills may return early, and our streams do not wait for them.
fn arrived() -> Result<()> {
    // SAFETY: the default stream, which every context has.
    unsafe { driver::stream::synchronize(driver::stream::null()) }.map_err(|error| failed("copying", error))
}

/// The driver reports "out of memory" for pinned host memory, too.
fn no_host_memory(bytes: usize, error: driver::DriverError) -> Error {
    match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::Machine(format!(
            "cannot allocate {bytes} bytes of pinned host memory; take a smaller batch, or end what else uses it"
        )),
        _ => failed("taking memory of the host", error),
    }
}

/// Pinned host memory, so that the device copies asynchronously.
pub(super) struct HostBuffer {
    device: Arc<Device>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for HostBuffer {}
// SAFETY: as above; writing needs `&mut`.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Zeros.
    pub fn zeroed(device: &Arc<Device>, bytes: usize) -> Result<HostBuffer> {
        device.bind()?;
        let _together = while_nothing_is_recorded();
        let start = match bytes {
            0 => std::ptr::NonNull::<u64>::dangling().as_ptr().cast::<u8>(),
            // SAFETY: a plain allocation, zeroed before it is used.
            _ => unsafe {
                let start = driver::malloc_host(bytes, 0).map_err(|error| no_host_memory(bytes, error))?;
                std::ptr::write_bytes(start.cast::<u8>(), 0, bytes);
                start.cast::<u8>()
            },
        };
        Ok(HostBuffer { device: Arc::clone(device), start, bytes })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes were allocated and zeroed.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and there is no other reference.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Copies a part of it to the device, asynchronously.
    ///
    /// # Safety
    /// The part must not be written until the stream has done it, and the address must have as many bytes on the
    /// device.
    pub unsafe fn send(&self, byte: usize, bytes: usize, to: u64, stream: &Stream) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { driver::memcpy_htod_async(to, &self.bytes()[byte..byte + bytes], stream.handle()) }
            .map_err(|error| failed("copying to the GPU", error))
    }

    /// Copies from the device into a part of it, asynchronously.
    ///
    /// # Safety
    /// The part must not be read until the stream has done it, and the address must have as many bytes on the device.
    pub unsafe fn fetch(&self, byte: usize, bytes: usize, from: u64, stream: &Stream) -> Result<()> {
        assert!(byte + bytes <= self.bytes);
        // SAFETY: guaranteed by the caller; the part lies inside.
        unsafe {
            let to = std::slice::from_raw_parts_mut(self.start.add(byte), bytes);
            driver::memcpy_dtoh_async(to, from, stream.handle())
        }
        .map_err(|error| failed("copying from the GPU", error))
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if self.bytes > 0 && self.device.bind().is_ok() {
            let _together = while_nothing_is_recorded();
            // SAFETY: allocated in `zeroed`, freed once.
            let _ = unsafe { driver::free_host(self.start.cast()) };
        }
    }
}
