//! Taking weights in: once, as the kernels want them.

use std::borrow::Cow;
use std::ops::Range;

use super::team::Team;
use super::{Executor, products};
use crate::buffer::Floats;
use crate::error::{Error, Result};
use crate::graph::{Graph, Parameter};
use crate::ops::Op;
use crate::plan::Plan;

impl Executor {
    /// Takes the memory and threads for a plan with fixed weights, and the weights: `values` gives those of each parameter
    /// that is used, and may lend them from where they are (a mapped file), for they are not needed afterwards.
    pub fn with_weights<'w, E: From<Error>>(
        plan: Plan,
        threads: usize,
        values: impl FnMut(&Parameter) -> Result<Cow<'w, [f32]>, E>,
    ) -> Result<Self, E> {
        let mut executor = Executor::without_weights(plan, threads)?;
        executor.take_weights(values)?;
        Ok(executor)
    }

    /// Takes other weights in place of those that it was made with.
    pub fn take_weights<'w, E: From<Error>>(
        &mut self,
        mut values: impl FnMut(&Parameter) -> Result<Cow<'w, [f32]>, E>,
    ) -> Result<(), E> {
        let Executor { plan, team, weights, .. } = self;
        let Some(places) = plan.fixed_weights() else {
            let message = "plan with `Plan::for_cpu_with_fixed_weights` to give an executor its weights".to_string();
            return Err(Error::Machine(message).into());
        };
        let graph = plan.graph();
        let packed = packed_forms(graph, &places.packed);
        for (parameter, (plain, packed)) in graph.parameters().iter().zip(places.plain.iter().zip(packed)) {
            if plain.is_none() && packed.is_empty() {
                continue;
            }
            let values = values(parameter)?;
            parameter.check_count(values.len())?;
            if let Some(start) = *plain {
                weights.as_mut_slice()[start..start + values.len()].copy_from_slice(&values);
            }
            for (node, range) in packed {
                let to = &mut weights.as_mut_slice()[range];
                products::pack_weight(team, graph, &graph.nodes()[node], &values, to);
            }
        }
        Ok(())
    }

    /// Whether another plan's kernels want the same weights, as they were taken in here: those of a batch of another size, say.
    pub fn can_change_to(&self, plan: &Plan) -> bool {
        let (mine, other) = (self.plan.graph(), plan.graph());
        let (Some(places), Some(others)) = (self.plan.fixed_weights(), plan.fixed_weights()) else { return false };
        let packed = (0..places.packed.len()).filter(|&node| places.packed[node].is_some());
        let same = |node: usize| {
            let weight = |graph: &Graph| graph.root_of(graph.nodes()[node].inputs[1]);
            let op = |graph: &Graph| (graph.nodes()[node].op.clone(), graph.nodes()[weight(graph).node()].op.clone());
            op(mine) == op(other)
        };
        mine.parameters() == other.parameters() && places == others && packed.into_iter().all(same)
    }

    /// Goes on with another plan, with the same weights and threads, in the same memory where that is large enough. All inputs must be
    /// given anew.
    pub fn change_to(&mut self, plan: Plan) -> Result<()> {
        if !self.can_change_to(&plan) {
            let message = "this plan wants other weights than the executor has: make another".to_string();
            return Err(Error::Machine(message));
        }
        let scratch = plan.scratch_bytes().max(self.scratch);
        let team = match scratch > self.scratch {
            true => Some(Team::new(self.threads(), scratch / 4)?),
            false => None,
        };
        let arena = match plan.arena_bytes() > 4 * self.arena.len() {
            true => Some(Floats::zeroed(plan.arena_bytes() / 4)?),
            false => None,
        };
        let constants = Floats::holding(&plan.constants())?;
        // From here on nothing can fail: the plan and its memory change together.
        if let Some(team) = team {
            self.team = team;
        }
        if let Some(arena) = arena {
            self.arena = arena;
        }
        self.constants = constants;
        self.scratch = scratch;
        self.plan = plan;
        Ok(())
    }
}

/// For each parameter the places of its packed forms, each with a node that reads it.
fn packed_forms(graph: &Graph, places: &[Option<Range<usize>>]) -> Vec<Vec<(usize, Range<usize>)>> {
    let mut forms: Vec<Vec<(usize, Range<usize>)>> = vec![Vec::new(); graph.parameters().len()];
    for (node, place) in places.iter().enumerate() {
        let Some(place) = place else { continue };
        if let Op::Parameter(parameter) = &graph.nodes()[graph.root_of(graph.nodes()[node].inputs[1]).node()].op {
            let forms = &mut forms[parameter.index];
            if forms.iter().all(|(_, known)| known != place) {
                forms.push((node, place.clone()));
            }
        }
    }
    forms
}
