//! The state of a training: parameters, gradients, the optimizer's moments, and the moving average (EMA) of the
//! parameters. Each is one flat buffer; one table of names and ranges describes them all.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Floats;
use crate::cuda;
use crate::error::{Error, Result};
use crate::graph::{Graph, Parameter};
use crate::machine::check_memory;
use crate::ops::Op;
use crate::shard::Shard;

/// The flat buffers of a model. For a graph without a training step, these are the parameters alone.
///
/// A state that ran on a GPU stays there: call [`State::bring_home`] after training runs, before reading.
#[derive(Debug)]
pub struct State {
    table: Vec<Parameter>,
    by_name: HashMap<String, usize>,
    pub(crate) parameters: Floats,
    pub(crate) gradients: Floats,
    pub(crate) first: Floats,
    pub(crate) second: Floats,
    pub(crate) ema: Floats,
    /// Of which pieces the moments are those, if others have the rest.
    shard: Option<Shard>,
    /// How many first and second moments there are in all.
    all_moments: [usize; 2],
    /// The same buffers on a GPU, once it has run with this state.
    resident: Option<Box<cuda::Resident>>,
}

impl State {
    /// Zeros in every buffer that the graph needs. An error if there is not enough memory, before any is taken: that of the
    /// parameters is asked for here, as all of them get values on the host; that of the others, which a GPU may have alone,
    /// by whoever trains.
    pub fn new(graph: &Graph) -> Result<Self> {
        State::with_moments(graph, None)
    }

    /// As [`State::new`], with the moments of some pieces alone.
    pub fn sharded(graph: &Graph, shard: Shard) -> Result<Self> {
        State::with_moments(graph, Some(shard))
    }

    fn with_moments(graph: &Graph, shard: Option<Shard>) -> Result<Self> {
        let floats = graph.parameter_floats();
        check_memory(&format!("a model of {floats} parameters"), floats.saturating_mul(4))?;
        let [_, all_first, all_second, _] = State::buffers_needed(graph);
        let [gradients, first, second, ema] = State::buffers_with(graph, shard.as_ref());
        let by_name = graph.parameters().iter().enumerate().map(|(index, p)| (p.name.clone(), index)).collect();
        Ok(State {
            table: graph.parameters().to_vec(),
            by_name,
            parameters: Floats::zeroed(graph.parameter_floats())?,
            gradients: Floats::zeroed(gradients)?,
            first: Floats::zeroed(first)?,
            second: Floats::zeroed(second)?,
            ema: Floats::zeroed(ema)?,
            shard,
            all_moments: [all_first, all_second],
            resident: None,
        })
    }

    /// Of which pieces it has the moments, if not of all.
    pub fn shard(&self) -> Option<&Shard> {
        self.shard.as_ref()
    }

    /// How many first and second moments there are, here and elsewhere.
    pub fn all_moments(&self) -> [usize; 2] {
        self.all_moments
    }

    /// Puts other moments in the place of those that it has, and gives these back: for a moment, those of all pieces, which a checkpoint
    /// has.
    pub fn exchange_moments(&mut self, first: Floats, second: Floats) -> (Floats, Floats) {
        (std::mem::replace(&mut self.first, first), std::mem::replace(&mut self.second, second))
    }

    /// A copy of the parameters alone.
    pub fn parameters_alone(&self) -> Result<State> {
        let table: Vec<Parameter> =
            self.table.iter().map(|parameter| Parameter { gradient_offset: None, ..parameter.clone() }).collect();
        Ok(State {
            table,
            by_name: self.by_name.clone(),
            parameters: Floats::holding(self.parameters())?,
            gradients: Floats::zeroed(0)?,
            first: Floats::zeroed(0)?,
            second: Floats::zeroed(0)?,
            ema: Floats::zeroed(0)?,
            shard: None,
            all_moments: [0; 2],
            resident: None,
        })
    }

    /// The table of names, shapes and offsets.
    pub fn table(&self) -> &[Parameter] {
        &self.table
    }

    /// The bytes that [`State::new`] would allocate.
    pub fn bytes_needed(graph: &Graph) -> usize {
        State::bytes_needed_with(graph, None)
    }

    /// The bytes that [`State::sharded`] would allocate, if there is a shard.
    pub fn bytes_needed_with(graph: &Graph, shard: Option<&Shard>) -> usize {
        4 * (graph.parameter_floats() + State::buffers_with(graph, shard).iter().sum::<usize>())
    }

    /// Total size of all buffers in bytes.
    pub fn bytes(&self) -> usize {
        let buffers = [&self.parameters, &self.gradients, &self.first, &self.second, &self.ema];
        buffers.iter().map(|buffer| buffer.len() * 4).sum()
    }

    /// A parameter's values.
    pub fn parameter(&self, name: &str) -> Result<&[f32]> {
        let range = self.range(name)?;
        Ok(&self.parameters()[range])
    }

    /// A parameter's values, mutable.
    pub fn parameter_mut(&mut self, name: &str) -> Result<&mut [f32]> {
        let range = self.range(name)?;
        Ok(&mut self.parameters_mut()[range])
    }

    /// A parameter's gradient after a run of a training step.
    pub fn gradient(&self, name: &str) -> Result<&[f32]> {
        let range = self.gradient_range(name)?;
        Ok(&self.gradients()[range])
    }

    /// The gradient norm of every trained parameter, by name, after the last run. With gradient accumulation, the norm
    /// of the sum.
    pub fn gradient_norms(&self) -> impl Iterator<Item = (&str, f32)> {
        let trained = self.table.iter().filter_map(|parameter| Some((parameter, parameter.gradient_offset?)));
        trained.map(|(parameter, offset)| {
            let gradient = &self.gradients()[offset..offset + parameter.shape.elements()];
            let squares: f64 = gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum();
            (parameter.name.as_str(), squares.sqrt() as f32)
        })
    }

    /// A parameter's moving average; zeros until it is set or updated.
    pub fn average(&self, name: &str) -> Result<&[f32]> {
        let range = self.range(name)?;
        self.averages().get(range).ok_or_else(|| self.unknown("averaged parameter", name))
    }

    /// Sets the moving average to the parameters' current values.
    pub fn start_average(&mut self) {
        if !self.ema.is_empty() {
            self.will_change();
            self.ema.as_mut_slice().copy_from_slice(self.parameters.as_slice());
        }
    }

    /// Swaps the parameters and their moving average, to evaluate or save the average; call it again to continue
    /// training. Does nothing if there is no average.
    pub fn swap_average(&mut self) {
        if !self.ema.is_empty() {
            self.will_change();
            std::mem::swap(&mut self.parameters, &mut self.ema);
        }
    }

    /// All parameters as one flat slice.
    pub fn parameters(&self) -> &[f32] {
        self.is_read();
        self.parameters.as_slice()
    }

    /// All parameters as one flat slice, mutable.
    pub fn parameters_mut(&mut self) -> &mut [f32] {
        self.will_change();
        self.parameters.as_mut_slice()
    }

    /// All gradients as one flat slice.
    pub fn gradients(&self) -> &[f32] {
        self.is_read();
        self.gradients.as_slice()
    }

    /// All gradients as one flat slice, mutable.
    pub fn gradients_mut(&mut self) -> &mut [f32] {
        self.will_change();
        self.gradients.as_mut_slice()
    }

    /// Adam's first moment or SGD's velocity, and Adam's second moment, as flat slices (empty if there is none).
    pub fn moments(&self) -> (&[f32], &[f32]) {
        self.is_read();
        (self.first.as_slice(), self.second.as_slice())
    }

    /// The moments, mutable: for resuming from a checkpoint.
    pub fn moments_mut(&mut self) -> (&mut [f32], &mut [f32]) {
        self.will_change();
        (self.first.as_mut_slice(), self.second.as_mut_slice())
    }

    /// The moving average as one flat slice (empty if there is none).
    pub fn averages(&self) -> &[f32] {
        self.is_read();
        self.ema.as_slice()
    }

    /// The moving average as one flat slice, mutable.
    pub fn averages_mut(&mut self) -> &mut [f32] {
        self.will_change();
        self.ema.as_mut_slice()
    }

    /// Copies what a GPU has changed back to the host. Does nothing if the host is up to date.
    pub fn bring_home(&mut self) -> Result<()> {
        let State { parameters, gradients, first, second, ema, resident, .. } = self;
        match resident {
            Some(resident) if resident.host_is_behind => {
                resident.take_home([parameters, gradients, first, second, ema])
            }
            _ => Ok(()),
        }
    }

    /// Makes the host's copy the current one, because the host will change it.
    pub(crate) fn take_over(&mut self) -> Result<()> {
        self.bring_home()?;
        self.will_change();
        Ok(())
    }

    /// The buffers on a GPU, up to date; with `narrow`, including a bf16 copy of the parameters. With `changes`, the
    /// run may modify them.
    pub(crate) fn on_device(
        &mut self,
        device: &Arc<cuda::Device>,
        narrow: bool,
        changes: bool,
    ) -> Result<&mut cuda::Resident> {
        if self.resident.as_ref().is_some_and(|resident| !resident.is_on(device)) {
            self.bring_home()?;
            self.resident = None;
        }
        let State { parameters, gradients, first, second, ema, resident, .. } = self;
        let host = [&*parameters, gradients, first, second, ema];
        let resident = match resident {
            Some(resident) => resident,
            none => none.insert(Box::new(cuda::Resident::new(device, host.map(Floats::len))?)),
        };
        resident.bring(narrow, host)?;
        if changes && !narrow {
            resident.forget_narrow()?;
        }
        resident.host_is_behind |= changes;
        Ok(resident)
    }

    /// The buffers on a GPU, up to date; what follows changes the gradients there, and nothing else.
    pub(crate) fn gradients_on_device(&mut self, device: &Arc<cuda::Device>) -> Result<&mut cuda::Resident> {
        let resident = self.on_device(device, false, false)?;
        resident.host_is_behind = true;
        Ok(resident)
    }

    /// # Panics
    /// Panics if a GPU has newer values, i.e. if the caller forgot [`State::bring_home`].
    fn is_read(&self) {
        let behind = self.resident.as_ref().is_some_and(|resident| resident.host_is_behind);
        assert!(!behind, "the GPU has newer values of this state: call State::bring_home before reading");
    }

    /// The host changes values, which makes the GPU's copy stale.
    fn will_change(&mut self) {
        self.is_read();
        if let Some(resident) = &mut self.resident {
            resident.device_is_behind = true;
        }
    }

    /// Checks that this state has the parameters and the buffers that a graph needs.
    pub(crate) fn fits(&self, graph: &Graph) -> Result<()> {
        // A graph that trains must train the same parameters as this state's graph; one that does not may share the
        // parameters.
        let same = |a: &Parameter, b: &Parameter| {
            let gradient = a.gradient_offset.is_none() || a.gradient_offset == b.gradient_offset;
            a.name == b.name && a.shape == b.shape && a.offset == b.offset && gradient
        };
        let parameters = graph.parameters();
        let equal = parameters.len() == self.table.len() && parameters.iter().zip(&self.table).all(|(a, b)| same(a, b));
        let needed = State::buffers_with(graph, self.shard.as_ref());
        let there = [&self.gradients, &self.first, &self.second, &self.ema].map(Floats::len);
        if equal && needed.iter().zip(&there).all(|(needed, there)| needed <= there) {
            return Ok(());
        }
        Err(Error::Data {
            what: "state",
            name: "parameters".to_string(),
            expected: format!("{} parameters and buffers {there:?} of another graph", self.table.len()),
            got: format!("a graph of {} parameters that needs {needed:?}", parameters.len()),
        })
    }

    /// How many floats of gradients, moments and averages a graph needs, where a process has the moments of some pieces alone.
    fn buffers_with(graph: &Graph, shard: Option<&Shard>) -> [usize; 4] {
        let mut needed = State::buffers_needed(graph);
        if let Some(shard) = shard {
            needed[1..3].iter_mut().for_each(|moments| *moments = (*moments).min(shard.floats()));
        }
        needed
    }

    pub(crate) fn buffers_needed(graph: &Graph) -> [usize; 4] {
        let floats = graph.gradient_floats();
        let mut needed = [floats, 0, 0, 0];
        for node in graph.nodes() {
            match node.op {
                Op::AdamW(_) | Op::Lamb(_) => needed[1..3].fill(floats),
                Op::Sgd(_) | Op::MuonDirection(_) => needed[1] = floats,
                Op::Ema(_) => needed[3] = graph.parameter_floats(),
                _ => {}
            }
        }
        needed
    }

    fn range(&self, name: &str) -> Result<Range<usize>> {
        let index = self.by_name.get(name).ok_or_else(|| self.unknown("parameter", name))?;
        let parameter = &self.table[*index];
        Ok(parameter.offset..parameter.offset + parameter.shape.elements())
    }

    fn gradient_range(&self, name: &str) -> Result<Range<usize>> {
        let index = self.by_name.get(name).ok_or_else(|| self.unknown("parameter", name))?;
        let parameter = &self.table[*index];
        let offset = parameter.gradient_offset.ok_or_else(|| self.unknown("trained parameter", name))?;
        Ok(offset..offset + parameter.shape.elements())
    }

    fn unknown(&self, what: &'static str, name: &str) -> Error {
        Error::Unknown { what, name: name.to_string(), known: self.table.iter().map(|p| p.name.clone()).collect() }
    }
}
