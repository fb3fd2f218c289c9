//! `--device` and `--tf32`, `--precision` and `--threads`: where and how a command computes.

use anyhow::anyhow;
use clap::Args;
use vitreous_engine::{Device, Precision, cuda};
use vitreous_runtime::DeviceChoice;
use vitreous_runtime::device::automatic;

use crate::commands::{PrecisionName, parse_threads};
use crate::failure::Failure;
use crate::shared_out::SharedOut;

/// The options of commands that run a model.
#[derive(Args, Clone, Copy, Debug)]
pub struct ComputeOptions {
    /// Precision of matrix multiplications
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Threads that compute on the CPU, or prepare images for a GPU [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
}

impl ComputeOptions {
    /// The precision of matrix multiplications.
    pub fn precision(self) -> Precision {
        self.precision.into()
    }

    /// The number of threads.
    pub fn threads(self) -> usize {
        self.threads.unwrap_or_else(vitreous_runtime::threads)
    }

    /// The number of threads of a rank.
    pub fn threads_of(self, shared: &SharedOut) -> usize {
        self.threads.unwrap_or_else(|| shared.threads())
    }

    /// Opens the device of a rank.
    pub fn device_of(self, shared: &SharedOut) -> Result<Device, Failure> {
        self.device.open_for(self.threads_of(shared), shared.local_rank())
    }

    /// Opens the device.
    pub fn device(self) -> Result<Device, Failure> {
        self.device.open(self.threads())
    }
}

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
        self.open_for(threads, 0)
    }

    /// The same for one of several processes of a machine: unless a GPU was named, each takes its own, and more processes than GPUs take
    /// turns.
    pub fn open_for(self, threads: usize, local_rank: usize) -> Result<Device, Failure> {
        let choice = match (self.device, local_rank) {
            (DeviceChoice::Auto, 1..) => match cuda::gpus().map_or(0, |gpus| gpus.len()) {
                0 => DeviceChoice::Auto,
                gpus => DeviceChoice::Cuda(local_rank % gpus),
            },
            (choice, _) => choice,
        };
        let device = match choice {
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
