//! The end of a training step, on the flat buffers: gradient norm, AdamW, SGD, LAMB, Muon, EMA; and gradient accumulation.

use std::sync::{Mutex, PoisonError};

use super::kernel::{Kernel, tile_rows};
use super::memory::Shared;
use super::rows::{self, AdamwStep, LambStep, SgdStep};
use super::team::Team;
use crate::graph::{Graph, Parameter};
use crate::ops::{AdamW, GradientNorm, Group, Lamb, MuonDirection, MuonUpdate, Op, Sgd};
use crate::shard::{Shard, ShardLink};
use crate::state::State;
use crate::types::Shape;

/// Floats of a flat buffer per tile.
const TILE: usize = Shard::TILE;

/// The flat buffers that updates change, and the tiles over the trained parameters.
pub(super) struct Buffers<'a> {
    pub parameters: Shared<'a, f32>,
    pub gradients: Shared<'a, f32>,
    first: Shared<'a, f32>,
    second: Shared<'a, f32>,
    ema: Shared<'a, f32>,
    pieces: &'a [Piece],
    /// The processes that have the moments of other pieces.
    others: Option<Others<'a>>,
}

/// The processes that have the moments of other pieces, and by node whether it is theirs alone: see [`of_others`].
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    pub link: &'a dyn Link,
    pub nodes: &'a [bool],
}

/// What an update needs of other processes, asked for by one thread at a time.
pub(super) trait Link: Sync {
    fn add_up(&self, sums: &mut [f64]);
    fn complete(&self, parameters: &mut [f32]);
}

impl Link for Mutex<&mut dyn ShardLink> {
    fn add_up(&self, sums: &mut [f64]) {
        self.lock().unwrap_or_else(PoisonError::into_inner).add_up(sums);
    }

    fn complete(&self, parameters: &mut [f32]) {
        self.lock().unwrap_or_else(PoisonError::into_inner).complete(parameters);
    }
}

/// A part of one trained parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    index: usize,
    parameter: usize,
    gradient: usize,
    length: usize,
    /// Where its moments are; `None` if another process has them, and updates it.
    moments: Option<usize>,
}

/// Splits the trained parameters into tiles.
pub(super) fn pieces(table: &[Parameter], shard: Option<&Shard>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, parameter) in table.iter().enumerate() {
        let Some(gradient) = parameter.gradient_offset else { continue };
        let elements = parameter.shape.elements();
        for start in (0..elements).step_by(TILE) {
            let length = TILE.min(elements - start);
            let (parameter, gradient) = (parameter.offset + start, gradient + start);
            let moments = shard.map_or(Some(gradient), |shard| shard.place_of(gradient));
            pieces.push(Piece { index, parameter, gradient, length, moments });
        }
    }
    pieces
}

/// The nodes of an update that are another process's: they lead from the direction of a parameter to its update, and have no other use.
pub(super) fn of_others(graph: &Graph, pieces: &[Piece]) -> Vec<bool> {
    let mut skipped = vec![false; graph.nodes().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        let is_elsewhere =
            |parameter| pieces.iter().any(|piece: &Piece| piece.index == parameter && piece.moments.is_none());
        skipped[index] = match &node.op {
            Op::MuonDirection(op) => is_elsewhere(op.parameter),
            _ => node.inputs.iter().any(|input| skipped[input.node()]),
        };
    }
    skipped
}

/// How many [`pieces`] there are. A plan asks for this of models that are larger than any memory, so they are not listed.
fn piece_count(table: &[Parameter]) -> usize {
    let trained = table.iter().filter(|parameter| parameter.gradient_offset.is_some());
    trained.map(|parameter| parameter.shape.elements().div_ceil(TILE)).sum()
}

impl<'a> Buffers<'a> {
    /// The buffers of a state.
    pub fn new(state: &'a mut State, pieces: &'a [Piece], others: Option<Others<'a>>) -> Self {
        Buffers {
            parameters: Shared::new(state.parameters.as_mut_slice()),
            gradients: Shared::new(state.gradients.as_mut_slice()),
            first: Shared::new(state.first.as_mut_slice()),
            second: Shared::new(state.second.as_mut_slice()),
            ema: Shared::new(state.ema.as_mut_slice()),
            pieces,
            others,
        }
    }

    /// Whether another process runs a node.
    pub fn is_elsewhere(&self, node: usize) -> bool {
        self.others.is_some_and(|others| others.nodes[node])
    }

    /// Where gradient and moments of a parameter begin that is updated as a whole; `None` if another process does it.
    fn whole(&self, parameter: usize) -> Option<(usize, usize)> {
        let first = self.pieces.iter().find(|piece| piece.index == parameter)?;
        Some((first.gradient, first.moments?))
    }

    /// Gets the pieces that other processes have updated. Nothing where there are none.
    pub fn complete_parameters(&self) {
        if let Some(others) = self.others {
            // SAFETY: the update has ended, and nothing else runs.
            let parameters = unsafe { self.parameters.range(0..self.parameters.len()) };
            others.link.complete(parameters);
        }
    }
}

/// Runs the node if it is one of these.
pub(super) fn run(kernel: &Kernel, team: &mut Team, buffers: &Buffers) {
    match &kernel.node.op {
        Op::GradientNorm(op) => gradient_norm(kernel, team, buffers, op),
        Op::AdamW(op) => adamw(kernel, team, buffers, op),
        Op::Sgd(op) => sgd(kernel, team, buffers, op),
        Op::Lamb(op) => lamb(kernel, team, buffers, op),
        Op::MuonDirection(op) => muon_direction(kernel, team, buffers, op),
        Op::MuonUpdate(op) => muon_update(kernel, team, buffers, op),
        Op::Ema(_) => ema(kernel, team, buffers),
        Op::AccumulateGradient(op) => accumulate(kernel, team, buffers, op.parameter),
        _ => {}
    }
}

/// Floats of workspace for the gradient norm: one f64 per tile.
pub(super) fn norm_workspace(table: &[Parameter]) -> usize {
    2 * piece_count(table)
}

/// Floats of workspace for LAMB: two f64 per tile.
pub(super) fn lamb_workspace(table: &[Parameter]) -> usize {
    4 * piece_count(table)
}

/// Floats of workspace for the direction of Muon: one f64 per tile of each matrix.
pub(super) fn muon_workspace(direction: &Shape) -> usize {
    let [matrices, rows, columns] = *direction.axes() else { return 0 };
    2 * matrices * (rows * columns).div_ceil(TILE)
}

/// Writes an f64 into two floats of the workspace, which is aligned to a cache line.
fn put_f64(place: &mut [f32], value: f64) {
    let bits = value.to_bits();
    place.copy_from_slice(&[f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)]);
}

fn get_f64(place: &[f32]) -> f64 {
    f64::from_bits(u64::from(place[0].to_bits()) | u64::from(place[1].to_bits()) << 32)
}

/// The global gradient norm, and the factor of the gradients.
fn gradient_norm(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &GradientNorm) {
    let workspace = kernel.workspace();
    let gradients = buffers.gradients;
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = buffers.pieces[tile];
        // SAFETY: gradients are only read here; each tile has its own partial sum.
        unsafe {
            let sum = match piece.moments {
                Some(_) => rows::sum_squares(gradients.range(piece.gradient..piece.gradient + piece.length)),
                None => 0.0,
            };
            put_f64(workspace.range(2 * tile..2 * tile + 2), sum);
        }
    });
    // SAFETY: all tiles have finished.
    let partial = unsafe { workspace.range(0..2 * buffers.pieces.len()) };
    let sum: f64 = match buffers.others {
        None => partial.chunks_exact(2).map(get_f64).sum(),
        Some(others) => {
            // Each is of one process, and 0 elsewhere: added in the same order, they are the same sum.
            let mut all: Vec<f64> = partial.chunks_exact(2).map(get_f64).collect();
            others.link.add_up(&mut all);
            all.iter().sum()
        }
    };
    let mut number = [0.0];
    let first = kernel.input(0).read(0..1, &mut number)[0];
    let (norm, factor) = op.results(f64::from(first), sum.sqrt());
    // SAFETY: this kernel owns the results.
    unsafe {
        kernel.output_raw::<f32>(0).range(0..1)[0] = norm as f32;
        kernel.output_raw::<f32>(1).range(0..1)[0] = factor as f32;
    }
}

/// The factor of the gradients; `None` if there must be no update.
fn gradient_factor(kernel: &Kernel) -> Option<f64> {
    let factor = kernel.input_f32(1)[0];
    (!factor.is_nan()).then_some(f64::from(factor))
}

/// The group of a trained parameter.
fn group_of(groups: &[Option<Group>], piece: &Piece) -> Group {
    groups[piece.index].expect("a trained parameter has a group")
}

/// AdamW on every trained parameter.
fn adamw(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &AdamW) {
    let rate = f64::from(kernel.input_f32(0)[0]);
    let Some(gradient_factor) = gradient_factor(kernel) else { return };
    let t = kernel.run.step as f64 + 1.0;
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = &buffers.pieces[tile];
        // Muon's matrices are none of AdamW's, and some pieces are another process's.
        let (Some(group), Some(moments)) = (op.groups[piece.index], piece.moments) else { return };
        let step = AdamwStep {
            rate: rate * group.rate_factor,
            beta1: op.beta1,
            beta2: op.beta2,
            eps: op.eps,
            decay: group.decay,
            bias_correction1: 1.0 - op.beta1.powf(t),
            bias_correction2: 1.0 - op.beta2.powf(t),
            gradient_factor,
        };
        let (flat, moments) = (piece.gradient..piece.gradient + piece.length, moments..moments + piece.length);
        // SAFETY: each tile has its own part of every buffer.
        unsafe {
            rows::adamw(
                buffers.parameters.range(piece.parameter..piece.parameter + piece.length),
                buffers.gradients.range(flat),
                buffers.first.range(moments.clone()),
                buffers.second.range(moments),
                &step,
            );
        }
    });
}

/// SGD on every trained parameter.
fn sgd(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &Sgd) {
    let rate = f64::from(kernel.input_f32(0)[0]);
    let Some(gradient_factor) = gradient_factor(kernel) else { return };
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = &buffers.pieces[tile];
        let Some(moments) = piece.moments else { return };
        let group = group_of(&op.groups, piece);
        let step = SgdStep {
            rate: rate * group.rate_factor,
            momentum: op.momentum,
            decay: group.decay,
            nesterov: op.nesterov,
            first_step: kernel.run.step == 0,
            gradient_factor,
        };
        let flat = piece.gradient..piece.gradient + piece.length;
        // SAFETY: each tile has its own part of every buffer.
        unsafe {
            rows::sgd(
                buffers.parameters.range(piece.parameter..piece.parameter + piece.length),
                buffers.gradients.range(flat),
                buffers.first.range(moments..moments + piece.length),
                &step,
            );
        }
    });
}

/// LAMB: one pass over memory updates the moments and computes, per tile, the squared norms of parameters and updates;
/// a second one updates the parameters, with a rate that all tiles of a parameter share.
fn lamb(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &Lamb) {
    let rate = f64::from(kernel.input_f32(0)[0]);
    let Some(gradient_factor) = gradient_factor(kernel) else { return };
    let t = kernel.run.step as f64 + 1.0;
    let step_of = |group: &Group| LambStep {
        beta1: op.beta1,
        beta2: op.beta2,
        eps: op.eps,
        decay: group.decay,
        bias_correction1: 1.0 - op.beta1.powf(t),
        bias_correction2: 1.0 - op.beta2.powf(t),
        gradient_factor,
    };
    let workspace = kernel.workspace();
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = &buffers.pieces[tile];
        // SAFETY: each tile has its own part of every buffer.
        unsafe {
            let (parameters, updates) = match piece.moments {
                None => (0.0, 0.0),
                Some(moments) => rows::lamb_moments(
                    buffers.parameters.range(piece.parameter..piece.parameter + piece.length),
                    buffers.gradients.range(piece.gradient..piece.gradient + piece.length),
                    buffers.first.range(moments..moments + piece.length),
                    buffers.second.range(moments..moments + piece.length),
                    &step_of(&group_of(&op.groups, piece)),
                ),
            };
            put_f64(workspace.range(4 * tile..4 * tile + 2), parameters);
            put_f64(workspace.range(4 * tile + 2..4 * tile + 4), updates);
        }
    });
    let mut sums: Vec<f64> =
        kernel.memory.read_workspace(kernel.index)[..4 * buffers.pieces.len()].chunks_exact(2).map(get_f64).collect();
    if let Some(others) = buffers.others {
        // As for the gradient norm.
        others.link.add_up(&mut sums);
    }
    let squares = |index: usize, which: usize| -> f64 {
        let of_parameter = buffers.pieces.iter().enumerate().filter(|(_, piece)| piece.index == index);
        of_parameter.map(|(tile, _)| sums[2 * tile + which]).sum()
    };
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = &buffers.pieces[tile];
        let Some(moments) = piece.moments else { return };
        let group = group_of(&op.groups, piece);
        let trust = op.trust(&group, squares(piece.index, 0), squares(piece.index, 1));
        // SAFETY: each tile has its own part of every buffer.
        unsafe {
            rows::lamb_move(
                buffers.parameters.range(piece.parameter..piece.parameter + piece.length),
                buffers.first.range(moments..moments + piece.length),
                buffers.second.range(moments..moments + piece.length),
                &step_of(&group),
                rate * group.rate_factor * trust,
            );
        }
    });
}

/// Muon's direction of a parameter: one pass writes it and adds up its squares, a second one divides it by its norm.
fn muon_direction(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &MuonDirection) {
    let (direction, sums) = (kernel.output_raw::<f32>(0), kernel.workspace());
    let floats = kernel.output_type(0).shape.elements();
    let length = floats / op.matrices;
    let tiles = length.div_ceil(TILE);
    let Some((start, moments)) = buffers.whole(op.parameter) else { return };
    let factor = kernel.input_f32(0)[0];
    let (beta, fresh) = (op.momentum as f32, (1.0 - op.momentum) as f32);
    let range_of = |tile: usize| {
        let own = tile_rows(tile % tiles, TILE, length);
        let matrix = tile / tiles * length;
        matrix + own.start..matrix + own.end
    };
    team.run(op.matrices * tiles, &|tile, _| {
        let range = range_of(tile);
        // SAFETY: each tile has its own part of the direction and its own sum; gradients and momentum are only read.
        let (to, gradients, momentum, sum) = unsafe {
            let gradients = buffers.gradients.range(start + range.start..start + range.end);
            let momentum = buffers.first.range(moments + range.start..moments + range.end);
            (direction.range(range), gradients, momentum, sums.range(2 * tile..2 * tile + 2))
        };
        if factor.is_nan() {
            to.fill(0.0);
            return put_f64(sum, 0.0);
        }
        for ((to, &mut g), &mut m) in to.iter_mut().zip(gradients).zip(momentum) {
            let g = g * factor;
            let m = m + fresh * (g - m);
            *to = if op.nesterov { g + beta * (m - g) } else { m };
        }
        put_f64(sum, rows::sum_squares(to));
    });
    let sums = kernel.memory.read_workspace(kernel.index);
    team.run(op.matrices * tiles, &|tile, _| {
        let matrix = tile / tiles * tiles;
        let squares: f64 = sums[2 * matrix..2 * (matrix + tiles)].chunks_exact(2).map(get_f64).sum();
        let factor = (1.0 / MuonDirection::divisor(squares)) as f32;
        // SAFETY: each tile has its own part of the direction.
        unsafe { direction.range(range_of(tile)) }.iter_mut().for_each(|value| *value *= factor);
    });
}

/// Muon's update of a parameter and its momentum.
fn muon_update(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &MuonUpdate) {
    let Some(factor) = gradient_factor(kernel) else { return };
    let parameter = &kernel.graph.parameters()[op.parameter];
    let Some((gradient, moments)) = buffers.whole(op.parameter) else { return };
    let rate = f64::from(kernel.input_f32(0)[0]) * op.group.rate_factor;
    let (factor, fresh) = (factor as f32, (1.0 - op.momentum) as f32);
    let (keep, stride) = ((1.0 - rate * op.group.decay) as f32, (rate * op.scale) as f32);
    let direction = kernel.input_f32(2);
    team.run(direction.len().div_ceil(TILE), &|tile, _| {
        let range = tile_rows(tile, TILE, direction.len());
        // SAFETY: each tile has its own part of every buffer.
        let (values, gradients, momentum) = unsafe {
            let values = buffers.parameters.range(parameter.offset + range.start..parameter.offset + range.end);
            let gradients = buffers.gradients.range(gradient + range.start..gradient + range.end);
            (values, gradients, buffers.first.range(moments + range.start..moments + range.end))
        };
        let moments = momentum.iter_mut().zip(gradients);
        for ((value, (m, &mut g)), &o) in values.iter_mut().zip(moments).zip(&direction[range]) {
            *m += fresh * (g * factor - *m);
            *value = *value * keep - stride * o;
        }
    });
}

/// Floats of scratch per thread into which a bf16 gradient is widened, part by part.
pub(super) const ACCUMULATE_SCRATCH: usize = 4096;

/// Adds a gradient to the buffer, or overwrites it.
fn accumulate(kernel: &Kernel, team: &mut Team, buffers: &Buffers, parameter: usize) {
    let adds = kernel.input_f32(0)[0] != 0.0;
    let gradient = kernel.input(1);
    let start = kernel.graph.parameters()[parameter].gradient_offset.expect("an accumulated gradient has a place");
    team.run(gradient.len().div_ceil(TILE), &|tile, scratch| {
        let whole = tile_rows(tile, TILE, gradient.len());
        for first in whole.clone().step_by(ACCUMULATE_SCRATCH) {
            let part = first..(first + ACCUMULATE_SCRATCH).min(whole.end);
            // SAFETY: each tile has its own part of the buffer.
            let sum = unsafe { buffers.gradients.range(start + part.start..start + part.end) };
            match adds {
                true => rows::add(sum, gradient.read(part, scratch)),
                false => gradient.copy_to(part, sum),
            }
        }
    });
}

/// The moving average of all parameters, trained or not.
fn ema(kernel: &Kernel, team: &mut Team, buffers: &Buffers) {
    buffers.complete_parameters();
    if gradient_factor(kernel).is_none() {
        return;
    }
    let decay = f64::from(kernel.input_f32(0)[0]);
    let floats = buffers.ema.len();
    team.run(floats.div_ceil(TILE), &|tile, _| {
        let range = tile_rows(tile, TILE, floats);
        // SAFETY: each tile has its own part of both buffers.
        unsafe { rows::ema(buffers.ema.range(range.clone()), buffers.parameters.range(range), decay) };
    });
}
