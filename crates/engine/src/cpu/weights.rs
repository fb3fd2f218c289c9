//! Taking weights in: once, as the kernels want them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::team::Team;
use super::{Executor, SharedTeam, lock, products, quantised};
use crate::buffer::Floats;
use crate::error::{Error, Result};
use crate::graph::Parameter;
use crate::machine::check_memory;
use crate::plan::{FixedWeights, Plan, WeightForm, WeightKey};
use crate::weights::WeightView;

/// Forms start at multiples of this many floats: a cache line.
const ALIGNMENT: usize = 16;

/// The weights that an executor reads, form by form, in the order of its plan's.
#[derive(Default)]
pub(super) struct Weights {
    forms: Vec<Form>,
    /// What keeps them alive.
    buffers: Vec<Arc<Floats>>,
}

/// Where a form lies.
#[derive(Clone, Copy)]
pub(super) struct Form {
    start: *const f32,
    floats: usize,
}

// SAFETY: a pointer into a buffer that its owner keeps and nobody writes.
unsafe impl Send for Form {}
// SAFETY: as above.
unsafe impl Sync for Form {}

impl Form {
    /// Where it starts.
    pub fn start(&self) -> *const f32 {
        self.start
    }

    /// How long it is.
    pub fn floats(&self) -> usize {
        self.floats
    }
}

impl Weights {
    /// All forms.
    pub fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// Floats of all buffers that they lie in.
    pub fn floats(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }
}

/// Weights that executors on the CPU share: of each parameter the forms that some plan's kernels read. And their threads.
#[derive(Default)]
pub(crate) struct SharedWeights {
    team: Option<SharedTeam>,
    known: HashMap<WeightKey, (usize, Range<usize>)>,
    buffers: Vec<Arc<Floats>>,
}

impl SharedWeights {
    /// Bytes of all forms.
    pub fn bytes(&self) -> usize {
        4 * self.buffers.iter().map(|buffer| buffer.len()).sum::<usize>()
    }

    /// The forms that a plan reads, if all are there.
    fn weights_for(&self, wanted: &FixedWeights) -> Option<Weights> {
        let mut weights = Weights::default();
        let mut used = vec![false; self.buffers.len()];
        for key in wanted.keys() {
            let (buffer, range) = self.known.get(key)?;
            let values = &self.buffers[*buffer].as_slice()[range.clone()];
            weights.forms.push(Form { start: values.as_ptr(), floats: values.len() });
            used[*buffer] = true;
        }
        let buffers = self.buffers.iter().zip(used).filter(|(_, used)| *used);
        weights.buffers = buffers.map(|(buffer, _)| Arc::clone(buffer)).collect();
        Some(weights)
    }

    /// Adds the forms of `missing`, which lie in a buffer one behind the other.
    fn add(&mut self, missing: &[&WeightForm], buffer: Floats) {
        for (form, range) in missing.iter().zip(ranges(missing)) {
            self.known.insert(form.key.clone(), (self.buffers.len(), range));
        }
        self.buffers.push(Arc::new(buffer));
    }
}

impl Executor {
    /// Takes the memory and threads for a plan with fixed weights, and the weights: `values` gives those of each parameter
    /// that is used, and may lend them from where they are (a mapped file), for they are not needed afterwards.
    pub fn with_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        plan: Plan,
        threads: usize,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Self, E> {
        Executor::with_shared_weights(plan, threads, &mut SharedWeights::default(), values)
    }

    /// As [`Executor::with_weights`], with weights that other executors have, too: `values` is asked only for what none of them has
    /// read in this form.
    pub(crate) fn with_shared_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        plan: Plan,
        threads: usize,
        shared: &mut SharedWeights,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Self, E> {
        let mut executor = match &shared.team {
            Some(team) => {
                let (arena, scratch) = (plan.arena_bytes(), plan.scratch_bytes());
                lock(team).grow(scratch / 4)?;
                Executor::with_team(plan, Arc::clone(team), arena, scratch)?
            }
            None => Executor::without_weights(plan, threads)?,
        };
        shared.team = Some(Arc::clone(&executor.team));
        executor.share_weights(shared, None, values)?;
        Ok(executor)
    }

    /// Takes other weights in place of those that it was made with. Executors that share those keep them.
    pub fn take_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        &mut self,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<(), E> {
        let Weights { buffers, .. } = std::mem::take(&mut self.weights);
        // A buffer that nobody shares is filled again.
        let own = buffers.into_iter().next_back().and_then(|buffer| Arc::try_unwrap(buffer).ok());
        self.share_weights(&mut SharedWeights::default(), own, values)
    }

    fn share_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        &mut self,
        shared: &mut SharedWeights,
        buffer: Option<Floats>,
        mut values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<(), E> {
        let Executor { plan, team, .. } = self;
        let Some(wanted) = plan.fixed_weights() else {
            let message = "plan with `Plan::for_cpu_with_fixed_weights` to give an executor its weights".to_string();
            return Err(Error::Machine(message).into());
        };
        let missing: Vec<&WeightForm> =
            wanted.forms.iter().filter(|form| !shared.known.contains_key(&form.key)).collect();
        if !missing.is_empty() {
            let floats = ranges(&missing).last().map_or(0, |last| last.end.next_multiple_of(ALIGNMENT));
            let mut buffer = match buffer.filter(|buffer| buffer.len() == floats) {
                Some(buffer) => buffer,
                None => {
                    check_memory("the weights of this model", floats.saturating_mul(4))?;
                    Floats::zeroed(floats)?
                }
            };
            fill(plan, &mut lock(team), &missing, &mut buffer, |parameter| values(parameter).map(Into::into))?;
            shared.add(&missing, buffer);
        }
        self.weights = shared.weights_for(wanted).unwrap_or_default();
        Ok(())
    }

    /// Whether another plan's kernels want the same weights, as they were taken in here: those of a batch of another size, say.
    pub fn can_change_to(&self, plan: &Plan) -> bool {
        let (Some(mine), Some(others)) = (self.plan.fixed_weights(), plan.fixed_weights()) else { return false };
        self.plan.graph().parameters() == plan.graph().parameters() && mine.keys().eq(others.keys())
    }

    /// Goes on with another plan, with the same weights and threads, in the same memory where that is large enough. All inputs must be
    /// given anew.
    pub fn change_to(&mut self, plan: Plan) -> Result<()> {
        if !self.can_change_to(&plan) {
            let message = "this plan wants other weights than the executor has: make another".to_string();
            return Err(Error::Machine(message));
        }
        let scratch = plan.scratch_bytes().max(self.scratch);
        lock(&self.team).grow(scratch / 4)?;
        let arena = match plan.arena_bytes() > 4 * self.arena.len() {
            true => Some(Floats::zeroed(plan.arena_bytes() / 4)?),
            false => None,
        };
        let constants = Floats::holding(&plan.constants())?;
        // From here on nothing can fail: the plan and its memory change together.
        if let Some(arena) = arena {
            self.arena = arena;
        }
        self.constants = constants;
        self.scratch = scratch;
        self.plan = plan;
        Ok(())
    }
}

/// Where forms lie that fill a buffer one behind the other.
fn ranges(forms: &[&WeightForm]) -> Vec<Range<usize>> {
    let mut start = 0;
    let place = |form: &&WeightForm| {
        let range = start..start + form.key.floats();
        start = range.end.next_multiple_of(ALIGNMENT);
        range
    };
    forms.iter().map(place).collect()
}

/// Fills a buffer with forms, one behind the other. Each parameter is asked for once.
fn fill<'w, E: From<Error>>(
    plan: &Plan,
    team: &mut Team,
    forms: &[&WeightForm],
    buffer: &mut Floats,
    mut values: impl FnMut(&Parameter) -> Result<WeightView<'w>, E>,
) -> Result<(), E> {
    let graph = plan.graph();
    let ranges = ranges(forms);
    for (index, parameter) in graph.parameters().iter().enumerate() {
        let mut own = forms.iter().zip(&ranges).filter(|(form, _)| form.parameter == index).peekable();
        if own.peek().is_none() {
            continue;
        }
        let values = values(parameter)?;
        parameter.check_count(values.len())?;
        for (form, range) in own {
            let to = &mut buffer.as_mut_slice()[range.clone()];
            match form.packed_for {
                None => values.read_into(0, to),
                Some(node) => match &form.key {
                    WeightKey::Quantised { format, .. } => {
                        parameter.blocks_of(*format, &values)?;
                        quantised::pack(team, graph, &graph.nodes()[node], &values, to);
                    }
                    WeightKey::Plain { .. } | WeightKey::Packed { .. } => {
                        products::pack_weight(team, graph, &graph.nodes()[node], &values, to);
                    }
                },
            }
        }
    }
    Ok(())
}
