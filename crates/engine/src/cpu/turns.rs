//! Several plans that share memory and threads: batches of text have many shapes, and only one runs at a time.

use super::Executor;
use crate::buffer::Floats;
use crate::error::{Error, Result};
use crate::plan::Plan;

/// An inactive plan, with its constants.
pub(super) struct Resting {
    plan: Plan,
    pub constants: Floats,
}

impl Executor {
    /// Like [`Executor::new`], for plans of graphs with the same parameters. It allocates the memory of the largest.
    /// The first plan is active; see [`Executor::choose`].
    pub fn for_turns(plans: Vec<Plan>, threads: usize) -> Result<Self> {
        if plans.iter().any(|plan| plan.fixed_weights().is_some()) {
            let message = "plans with fixed weights take no turns: use `Executor::change_to`".to_string();
            return Err(Error::Machine(message));
        }
        let arena = plans.iter().map(Plan::arena_bytes).max().unwrap_or(0);
        let scratch = plans.iter().map(Plan::scratch_bytes).max().unwrap_or(0);
        let mut plans = plans.into_iter();
        let first = plans.next().ok_or_else(|| Error::Machine("there is no plan to run".to_string()))?;
        let mut executor = Executor::with_memory(first, threads, arena, scratch)?;
        executor.resting.push(None);
        for plan in plans {
            executor.resting.push(Some(Resting { constants: Floats::holding(&plan.constants())?, plan }));
        }
        Ok(executor)
    }

    /// Activates a plan, given by its index among those passed to [`Executor::for_turns`]. All inputs must be set
    /// again.
    ///
    /// # Panics
    /// Panics if there is no such plan.
    pub fn choose(&mut self, plan: usize) {
        if plan == self.turn {
            return;
        }
        let Resting { plan: next, constants } = self.resting[plan].take().expect("an inactive plan");
        let plan_before = std::mem::replace(&mut self.plan, next);
        let constants = std::mem::replace(&mut self.constants, constants);
        self.resting[self.turn] = Some(Resting { plan: plan_before, constants });
        self.turn = plan;
    }
}
