//! A state's buffers on a device: they stay there from run to run, and are copied to the host on request.

use std::sync::Arc;

use half::bf16;

use super::device::Device;
use super::launch::Buffer;
use super::memory::DeviceBuffer;
use super::stream::Event;
use crate::buffer::Floats;
use crate::error::Result;

/// The buffers of a state on a device.
pub(crate) struct Resident {
    /// The end of the last run with this state: the next one waits for it, whoever starts it. It is the first field
    /// because it must not outlive the device, whose last reference the others may hold.
    pub(super) last_run: Option<Arc<Event>>,
    device: Arc<Device>,
    /// In the order of [`Resident::upload`].
    buffers: [DeviceBuffer; 5],
    /// The parameters rounded to bf16, if needed.
    narrow: DeviceBuffer,
    /// The device has newer values.
    pub host_is_behind: bool,
    /// The host has newer values.
    pub device_is_behind: bool,
}

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resident").field("device", &self.device.gpu().name).finish_non_exhaustive()
    }
}

impl Resident {
    /// Allocates buffers of these lengths in floats: parameters, gradients, moments, average.
    pub fn new(device: &Arc<Device>, floats: [usize; 5]) -> Result<Resident> {
        let [parameters, gradients, first, second, average] = floats;
        let take = |floats: usize| DeviceBuffer::zeroed(device, 4 * floats);
        Ok(Resident {
            last_run: None,
            device: Arc::clone(device),
            buffers: [take(parameters)?, take(gradients)?, take(first)?, take(second)?, take(average)?],
            narrow: DeviceBuffer::new(device, 0)?,
            host_is_behind: false,
            device_is_behind: true,
        })
    }

    pub fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Copies the host's values to the device and, if requested, makes a bf16 copy of the parameters.
    pub fn bring(&mut self, narrow: bool, host: [&Floats; 5]) -> Result<()> {
        let all = self.device_is_behind;
        let missing = narrow && self.narrow.bytes() == 0 && self.buffers[0].bytes() > 0;
        if all || missing {
            // Nothing may still read what is overwritten, or write what is read.
            self.device.wait()?;
        }
        if all {
            for (buffer, values) in self.buffers.iter_mut().zip(host) {
                buffer.write(0, values.as_slice())?;
            }
        }
        if missing {
            self.narrow = DeviceBuffer::new(&self.device, self.buffers[0].bytes() / 2)?;
        }
        if self.narrow.bytes() > 0 && (all || missing) {
            let rounded: Vec<bf16> = match all {
                true => host[0].as_slice().iter().map(|&value| bf16::from_f32(value)).collect(),
                false => {
                    let mut there = vec![0.0f32; host[0].len()];
                    self.buffers[0].read(0, &mut there)?;
                    there.into_iter().map(bf16::from_f32).collect()
                }
            };
            self.narrow.write(0, &rounded)?;
        }
        self.device_is_behind = false;
        Ok(())
    }

    /// Copies the device's values to the host.
    pub fn take_home(&mut self, host: [&mut Floats; 5]) -> Result<()> {
        // A run may still change them: executors do not wait for its end.
        self.device.wait()?;
        for (buffer, values) in self.buffers.iter().zip(host) {
            buffer.read(0, values.as_mut_slice())?;
        }
        self.host_is_behind = false;
        Ok(())
    }

    /// The next run changes the parameters, but not their bf16 copy, which is updated on the next request.
    pub fn forget_narrow(&mut self) -> Result<()> {
        if self.narrow.bytes() > 0 {
            self.device.wait()?;
            self.narrow = DeviceBuffer::new(&self.device, 0)?;
        }
        Ok(())
    }

    /// The address of a buffer.
    pub fn start(&self, buffer: Buffer) -> u64 {
        match buffer {
            Buffer::Parameters => self.buffers[0].start(),
            Buffer::NarrowParameters => self.narrow.start(),
            Buffer::Gradients => self.buffers[1].start(),
            Buffer::First => self.buffers[2].start(),
            Buffer::Second => self.buffers[3].start(),
            Buffer::Average => self.buffers[4].start(),
            _ => unreachable!("{buffer:?} is not a buffer of a state"),
        }
    }

    /// The addresses of all buffers: a recorded step (CUDA graph) is valid for these only.
    pub fn starts(&self) -> [u64; 6] {
        let [a, b, c, d, e] = &self.buffers;
        [a.start(), b.start(), c.start(), d.start(), e.start(), self.narrow.start()]
    }
}
