//! What `--device` says: where a command computes.

use std::str::FromStr;

use anyhow::anyhow;
use clap::Args;
use vitreous_engine::{Device, cuda};

use crate::failure::Failure;

/// The options of commands that compute.
#[derive(Args, Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// What to compute on: auto, cpu, or a GPU such as cuda:0
    #[arg(long, default_value = "auto")]
    pub device: DeviceChoice,
    /// On a GPU, round the factors of f32 products to TF32: several times as fast, to three digits
    #[arg(long)]
    tf32: bool,
}

impl DeviceOptions {
    /// Opens what was chosen; the processor with so many threads.
    pub fn open(self, threads: usize) -> Result<Device, Failure> {
        let device = self.device.open(threads)?;
        match &device {
            Device::Cuda(gpu) if self.tf32 => gpu.allow_tf32(),
            Device::Cpu { .. } if self.tf32 => say!("note: --tf32 is for GPUs; the CPU computes in f32"),
            _ => {}
        }
        Ok(device)
    }
}

/// What `--device` was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU, or the processor where there is none.
    #[default]
    Auto,
    Cpu,
    /// A GPU by its number.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let text = text.to_lowercase();
        match text.as_str() {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" | "gpu" => Ok(DeviceChoice::Cuda(0)),
            _ => match text.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(number)) => Ok(DeviceChoice::Cuda(number)),
                _ => Err(format!("`{text}` is no device; there are auto, cpu, and cuda:0, cuda:1 ..")),
            },
        }
    }
}

impl DeviceChoice {
    fn open(self, threads: usize) -> Result<Device, Failure> {
        match self {
            DeviceChoice::Cpu => Ok(Device::Cpu { threads }),
            DeviceChoice::Cuda(number) => match cuda::Device::open(number) {
                Ok(device) => Ok(Device::Cuda(device)),
                Err(error) => Err(Failure::work(anyhow!(
                    "{error}; `--device cpu` computes on the processor, `vitreous doctor` says what was found"
                ))),
            },
            DeviceChoice::Auto => {
                let (device, why) = automatic(threads);
                // Without a driver there is no GPU, which is no news; a GPU that cannot be used is.
                if let Some(why) = why.filter(|_| cuda::Libraries::find().has_driver()) {
                    say!("note: {why}; computing on the CPU (`vitreous doctor` says more)");
                }
                Ok(device)
            }
        }
    }
}

/// The first GPU, or the processor and why no GPU can be used.
pub fn automatic(threads: usize) -> (Device, Option<vitreous_engine::Error>) {
    match cuda::Device::open(0) {
        Ok(device) => (Device::Cuda(device), None),
        Err(error) => (Device::Cpu { threads }, Some(error)),
    }
}

/// What a device is called in a line for people, behind "on": `the CPU, 2 threads`, or `NVIDIA H200 (cuda:0)`.
pub fn described(device: &Device) -> String {
    match device {
        Device::Cpu { threads } => format!("the CPU, {}", crate::format::count(*threads, "thread", "threads")),
        Device::Cuda(gpu) => format!("{} ({})", gpu.gpu().name, device.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_people_write_them() {
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        assert_eq!("CPU".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        for wrong in ["", "cuda:", "cuda:x", "cuda:-1", "tpu", "cuda3"] {
            let error = wrong.parse::<DeviceChoice>().unwrap_err();
            assert!(error.contains("auto, cpu, and cuda:0"), "{error}");
        }
    }

    #[test]
    fn the_processor_is_always_there() {
        assert_eq!(
            DeviceChoice::Cpu.open(3).map(|device| described(&device)).ok().as_deref(),
            Some("the CPU, 3 threads")
        );
        assert!(DeviceChoice::Auto.open(1).is_ok());
    }
}
