//! A model's parameters on a device, shared by the executors of all its plans: text comes in many shapes, and each has its plan.

use vitreous_engine::{
    BlockFormat, Device, Error, Executor, Graph, Parameter, Plan, Result, SharedWeights, Value, WeightView,
};

use crate::model::Model;

/// Where a model's parameters are.
pub type Weights<'w> = Box<dyn WeightsByName<'w> + 'w>;

/// A model's parameters by name.
pub trait WeightsByName<'w> {
    /// The values of a parameter.
    fn weight(&self, name: &str) -> Result<WeightView<'w>>;

    /// The format of a parameter that [`WeightsByName::weight`] gives as quantised blocks; known without reading it.
    fn blocks(&self, name: &str) -> Option<BlockFormat>;
}

/// Values that are not quantised.
impl<'w, F: Fn(&str) -> Result<WeightView<'w>>> WeightsByName<'w> for F {
    fn weight(&self, name: &str) -> Result<WeightView<'w>> {
        self(name)
    }

    fn blocks(&self, _name: &str) -> Option<BlockFormat> {
        None
    }
}

impl<'m> WeightsByName<'m> for &'m Model {
    fn weight(&self, name: &str) -> Result<WeightView<'m>> {
        Model::weight(self, name).map_err(|error| Error::Machine(error.to_string()))
    }

    fn blocks(&self, name: &str) -> Option<BlockFormat> {
        Model::blocks(self, name)
    }
}

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

    /// Plans a graph of the model, whose quantised weights stay so.
    pub fn plan(&self, graph: &mut Graph, outputs: &[Value]) -> Result<Plan> {
        graph.store_weights(|name| self.weights.blocks(name));
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
                // Weights that are there already are not taken again.
                let needed = self.device.bytes_needed_with_weights(&plan).saturating_sub(self.shared.bytes());
                self.device.check_memory(purpose, needed)?;
                let weights = |parameter: &Parameter| self.weights.weight(&parameter.name);
                Executor::with_shared_weights(plan, &self.device, &mut self.shared, weights)
            }
        }
    }
}
