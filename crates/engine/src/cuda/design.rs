//! A plan as work for a GPU: which products the library computes, and the texts of all other kernels.

use std::sync::Arc;

use super::choice::Fastest;
use super::compile::Kernels;
use super::cublaslt::Library;
use super::device::Device;
use super::memory::DeviceBuffer;
use super::target::{Built, Task, work_of};
use crate::error::Result;
use crate::plan::Plan;

/// What a plan becomes, before its kernels are compiled.
pub(super) struct Design {
    pub plan: Plan,
    pub kernels: Kernels,
    pub products: Library,
    pub built: Vec<Task>,
    pub tables: Vec<u8>,
}

impl Design {
    pub fn new(
        plan: Plan,
        device: &Arc<Device>,
        arena: &Arc<DeviceBuffer>,
        workspace: &Arc<DeviceBuffer>,
    ) -> Result<Design> {
        device.bind()?;
        let mut kernels = Kernels::new(Arc::clone(device));
        let products = Library::open(device, arena, workspace)?;
        let (built, tables) = work_of(&plan, &Fastest::new(&plan, device, &products, &mut kernels))?;
        Ok(Design { plan, kernels, products, built, tables })
    }

    pub fn sources(&self) -> impl Iterator<Item = &str> {
        sources(&self.built)
    }
}

/// The texts of all kernels.
pub(super) fn sources(built: &[Task]) -> impl Iterator<Item = &str> {
    built.iter().filter_map(|task| match &task.built {
        Built::Launch(launch) => Some(launch.source.as_str()),
        Built::Product(_) => None,
    })
}
