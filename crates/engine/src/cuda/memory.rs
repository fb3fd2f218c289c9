//! Memory on the device.

use std::sync::Arc;

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use super::device::{Device, failed};
use crate::error::Result;

/// A buffer on the device; it holds whatever was there before.
pub(super) struct DeviceBuffer {
    device: Arc<Device>,
    start: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceBuffer {
    /// Takes memory; an error if the device has no more.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<DeviceBuffer> {
        device.bind()?;
        let start = match bytes {
            0 => 0,
            // SAFETY: a plain allocation.
            _ => unsafe { driver::malloc_sync(bytes) }.map_err(|error| failed("taking memory", error))?,
        };
        Ok(DeviceBuffer { device: Arc::clone(device), start, bytes })
    }

    /// As [`DeviceBuffer::new`], of zeros.
    pub fn zeroed(device: &Arc<Device>, bytes: usize) -> Result<DeviceBuffer> {
        let buffer = DeviceBuffer::new(device, bytes)?;
        if bytes > 0 {
            // SAFETY: the buffer has so many bytes.
            unsafe { driver::memset_d8_sync(buffer.start, 0, bytes) }
                .map_err(|error| failed("clearing memory", error))?;
        }
        Ok(buffer)
    }

    /// Where it starts.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
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
        // SAFETY: the values fit into the buffer.
        unsafe { driver::memcpy_htod_sync(self.start + byte as u64, values) }
            .map_err(|error| failed("copying to the GPU", error))
    }

    /// Copies from it to the host, after all that was started on it has ended.
    ///
    /// # Panics
    /// Panics if it is too small.
    pub fn read<T: bytemuck::Pod>(&self, byte: usize, values: &mut [T]) -> Result<()> {
        assert!(byte + size_of_val(values) <= self.bytes, "{byte} + {} of {}", size_of_val(values), self.bytes);
        if values.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the values lie inside the buffer.
        unsafe { driver::memcpy_dtoh_sync(values, self.start + byte as u64) }
            .map_err(|error| failed("copying from the GPU", error))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.bytes > 0 && self.device.bind().is_ok() {
            // SAFETY: taken in `new`, given back once.
            let _ = unsafe { driver::free_sync(self.start) };
        }
    }
}
