//! The device that a model is run on.

use std::str::FromStr;

use vitreous_engine::{Device, cuda};

use crate::error::Error;

/// What to compute on, as it is written: `auto`, `cpu`, `cuda:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU, or the CPU where there is none.
    #[default]
    Auto,
    /// The CPU.
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
    /// Opens it; the CPU with so many threads.
    pub fn open(self, threads: usize) -> Result<Device, Error> {
        match self {
            DeviceChoice::Cpu => Ok(Device::Cpu { threads }),
            DeviceChoice::Cuda(number) => Ok(Device::Cuda(cuda::Device::open(number)?)),
            DeviceChoice::Auto => Ok(automatic(threads).0),
        }
    }
}

/// The first GPU, or the CPU and why no GPU can be used.
pub fn automatic(threads: usize) -> (Device, Option<vitreous_engine::Error>) {
    match cuda::Device::open(0) {
        Ok(device) => (Device::Cuda(device), None),
        Err(error) => (Device::Cpu { threads }, Some(error)),
    }
}

/// What a device is called in a line for people, behind "on": `the CPU, 2 threads`, or `NVIDIA H200 (cuda:0)`.
pub fn described(device: &Device) -> String {
    match device {
        Device::Cpu { threads: 1 } => "the CPU, 1 thread".to_string(),
        Device::Cpu { threads } => format!("the CPU, {threads} threads"),
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
