//! A model's parameters on a device, shared by the executors of all its plans: text comes in many shapes, and each has its plan.

use std::cell::RefCell;
use std::collections::HashMap;

use vitreous_engine::{
    BlockFormat, Device, Executor, Graph, Parameter, Plan, Result, SharedWeights, Value, WeightView,
};

/// Where a model's parameters are.
pub type Weights<'w> = Box<dyn Fn(&str) -> Result<WeightView<'w>> + 'w>;

/// A model's parameters on the device that runs it.
pub struct OnDevice<'w> {
    device: Device,
    weights: Weights<'w>,
    /// The formats of those that are quantised, by name, as far as they were asked for.
    formats: RefCell<HashMap<String, Option<BlockFormat>>>,
    /// What is on the device of them, for the executors of all plans.
    shared: SharedWeights,
}

impl<'w> OnDevice<'w> {
    /// Nothing is on the device yet.
    pub fn new(device: &Device, weights: Weights<'w>) -> OnDevice<'w> {
        OnDevice { device: device.clone(), weights, formats: RefCell::default(), shared: SharedWeights::new(device) }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Plans a graph of the model, whose quantised weights stay so.
    pub fn plan(&self, graph: &mut Graph, outputs: &[Value]) -> Result<Plan> {
        let mut formats = self.formats.borrow_mut();
        for parameter in graph.parameters() {
            if !formats.contains_key(&parameter.name) {
                let format = match (self.weights)(&parameter.name)? {
                    WeightView::Blocks(format, _) => Some(format),
                    _ => None,
                };
                formats.insert(parameter.name.clone(), format);
            }
        }
        graph.store_weights(|name| formats.get(name).copied().flatten());
        self.device.plan_with_fixed_weights(graph, outputs)
    }

    /// What runs a plan of [`OnDevice::plan`]: the executor that is there, if it can change, or a new one in its
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
