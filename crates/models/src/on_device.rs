//! A model's parameters on a device, shared by the executors of all its plans: text comes in many shapes, and each has its plan.

use vitreous_engine::{Device, Executor, Parameter, Plan, Result, SharedWeights, WeightView};

/// Where a model's parameters are.
pub type Weights<'w> = Box<dyn Fn(&str) -> Result<WeightView<'w>> + 'w>;

/// A model's parameters on the device that runs it.
pub struct OnDevice<'w> {
    device: Device,
    weights: Weights<'w>,
    /// What is on the device of them, for the executors of all plans.
    shared: SharedWeights,
}

impl<'w> OnDevice<'w> {
    /// Nothing is on the device yet.
    pub fn new(device: &Device, weights: Weights<'w>) -> OnDevice<'w> {
        OnDevice { device: device.clone(), weights, shared: SharedWeights::new(device) }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What runs a plan of [`Device::plan_with_fixed_weights`]: the executor that is there, if it can change, or a new one in its
    /// place. `purpose` is for the error of a device without enough memory: "generating".
    pub fn executor(&mut self, purpose: &str, there: Option<Executor>, plan: Plan) -> Result<Executor> {
        match there {
            Some(mut executor) if executor.can_change_to(&plan) => {
                executor.change_to(plan)?;
                Ok(executor)
            }
            there => {
                // Its memory goes back before the new one takes its own.
                drop(there);
                self.device.check_memory(purpose, self.device.bytes_needed_with_weights(&plan))?;
                let weights = |parameter: &Parameter| (self.weights)(&parameter.name);
                Executor::with_shared_weights(plan, &self.device, &mut self.shared, weights)
            }
        }
    }
}
