//! `--device` and `--tf32`: where a command computes.

use anyhow::anyhow;
use clap::Args;
use vitreous_engine::{Device, cuda};
use vitreous_runtime::DeviceChoice;
use vitreous_runtime::device::automatic;

use crate::failure::Failure;

/// The options of commands that compute.
#[derive(Args, Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// What to compute on: auto, cpu, or a GPU such as cuda:0
    #[arg(long, default_value = "auto")]
    pub device: DeviceChoice,
    /// On a GPU, use TF32 matrix multiplication: several times faster, about three significant digits
    #[arg(long)]
    tf32: bool,
}

impl DeviceOptions {
    /// Opens what was chosen; the CPU with so many threads.
    pub fn open(self, threads: usize) -> Result<Device, Failure> {
        let device = match self.device {
            DeviceChoice::Auto => {
                let (device, why) = automatic(threads);
                // Without a driver there is no GPU, which is no news; a GPU that cannot be used is.
                if let Some(why) = why.filter(|_| cuda::Libraries::find().has_driver()) {
                    say!("note: {why}; computing on the CPU (`vitreous doctor` says more)");
                }
                device
            }
            choice => choice.open(threads).map_err(|error| {
                Failure::work(anyhow!(
                    "{error}; `--device cpu` computes on the CPU, `vitreous doctor` says what was found"
                ))
            })?,
        };
        match &device {
            Device::Cuda(gpu) if self.tf32 => gpu.allow_tf32(),
            Device::Cpu { .. } if self.tf32 => say!("note: --tf32 is for GPUs; the CPU computes in f32"),
            _ => {}
        }
        Ok(device)
    }
}
