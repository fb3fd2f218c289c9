//! Generating text token by token: slots, caches and search, for every decoder.
//!
//! A decoder has a number of slots, each one sequence that is being written; its keys and values stay in caches on the device. A step
//! computes one token for every slot and leaves all but the likeliest next tokens on the device. [`SearchOptions`] says how sequences
//! go on from there.

mod decoder;
mod encoder;
mod search;
mod translate;

use vitreous_engine::{Device, Executor, Parameter, Plan, Result, SharedWeights, WeightView};

pub use search::{Hypothesis, SearchOptions};
pub use translate::{SpecialTokens, TranslateOptions, Translator};

/// Where a model's parameters are.
pub type Weights<'w> = Box<dyn Fn(&str) -> Result<WeightView<'w>> + 'w>;

/// A model's parameters on the device that it generates on.
struct Source<'w> {
    device: Device,
    weights: Weights<'w>,
    /// What is on the device of them, for the executors of all plans.
    shared: SharedWeights,
}

impl Source<'_> {
    /// What runs a plan: the executor that is there, if it can change, or a new one in its place.
    fn executor(&mut self, there: Option<Executor>, plan: Plan) -> Result<Executor> {
        match there {
            Some(mut executor) if executor.can_change_to(&plan) => {
                executor.change_to(plan)?;
                Ok(executor)
            }
            there => {
                // Its memory goes back before the new one takes its own.
                drop(there);
                self.device.check_memory("generating", self.device.bytes_needed_with_weights(&plan))?;
                let weights = |parameter: &Parameter| (self.weights)(&parameter.name);
                Executor::with_shared_weights(plan, &self.device, &mut self.shared, weights)
            }
        }
    }
}
