//! What ends a training step, on the flat buffers: gradient norm, AdamW, SGD, average.

use super::kernel::{Kernel, tile_rows};
use super::memory::Shared;
use super::rows::{self, AdamwStep, SgdStep};
use super::team::Team;
use crate::graph::Parameter;
use crate::ops::{AdamW, Group, Op, Sgd};
use crate::state::State;

/// Floats of a flat buffer that one tile works on.
const TILE: usize = 131_072;

/// The flat buffers that updates change, and the tiles over the trained parameters.
pub(super) struct Buffers<'a> {
    pub parameters: Shared<'a, f32>,
    pub gradients: Shared<'a, f32>,
    first: Shared<'a, f32>,
    second: Shared<'a, f32>,
    ema: Shared<'a, f32>,
    pieces: &'a [Piece],
}

/// A part of one trained parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    index: usize,
    parameter: usize,
    gradient: usize,
    length: usize,
}

/// Cuts the trained parameters into tiles.
pub(super) fn pieces(table: &[Parameter]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, parameter) in table.iter().enumerate() {
        let Some(gradient) = parameter.gradient_offset else { continue };
        let elements = parameter.shape.elements();
        for start in (0..elements).step_by(TILE) {
            let length = TILE.min(elements - start);
            pieces.push(Piece { index, parameter: parameter.offset + start, gradient: gradient + start, length });
        }
    }
    pieces
}

impl<'a> Buffers<'a> {
    /// The buffers of a state.
    pub fn new(state: &'a mut State, pieces: &'a [Piece]) -> Self {
        Buffers {
            parameters: Shared::new(state.parameters.as_mut_slice()),
            gradients: Shared::new(state.gradients.as_mut_slice()),
            first: Shared::new(state.first.as_mut_slice()),
            second: Shared::new(state.second.as_mut_slice()),
            ema: Shared::new(state.ema.as_mut_slice()),
            pieces,
        }
    }
}

/// Runs the node if it is one of these.
pub(super) fn run(kernel: &Kernel, team: &mut Team, buffers: &Buffers) {
    match &kernel.node.op {
        Op::GradientNorm(_) => gradient_norm(kernel, team, buffers),
        Op::AdamW(op) => adamw(kernel, team, buffers, op),
        Op::Sgd(op) => sgd(kernel, team, buffers, op),
        Op::Ema(_) => ema(kernel, team, buffers),
        _ => {}
    }
}

/// Floats of workspace for the gradient norm: an f64 a tile.
pub(super) fn norm_workspace(table: &[Parameter]) -> usize {
    2 * pieces(table).len()
}

/// The global gradient norm.
fn gradient_norm(kernel: &Kernel, team: &mut Team, buffers: &Buffers) {
    let workspace = kernel.workspace();
    let gradients = buffers.gradients;
    // Each partial sum is an f64 in two floats of the workspace, which starts at a cache line.
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = buffers.pieces[tile];
        // SAFETY: gradients are only read here; each tile has its own partial sum.
        unsafe {
            let sum = rows::sum_squares(gradients.range(piece.gradient..piece.gradient + piece.length));
            let place: &mut [[u32; 1]] = bytemuck::cast_slice_mut(workspace.range(2 * tile..2 * tile + 2));
            let bits = sum.to_bits();
            place.copy_from_slice(&[[bits as u32], [(bits >> 32) as u32]]);
        }
    });
    // SAFETY: no tile runs any more.
    let partial = unsafe { workspace.range(0..2 * buffers.pieces.len()) };
    let bits = |pair: &[f32]| u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32;
    let sum: f64 = partial.chunks_exact(2).map(|pair| f64::from_bits(bits(pair))).sum();
    // SAFETY: the result is this kernel's.
    unsafe { kernel.output_raw::<f32>(0).range(0..1)[0] = sum.sqrt() as f32 };
}

/// What gradients are multiplied by so that their norm does not pass the limit.
fn clip_factor(kernel: &Kernel, clip: Option<f64>) -> f64 {
    clip.map_or(1.0, |limit| (limit / (f64::from(kernel.input_f32(1)[0]) + 1e-6)).min(1.0))
}

fn group_of(groups: &[Option<Group>], piece: &Piece) -> Group {
    groups[piece.index].expect("a trained parameter has a group")
}

/// AdamW on every trained parameter.
fn adamw(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &AdamW) {
    let rate = f64::from(kernel.input_f32(0)[0]);
    let gradient_factor = clip_factor(kernel, op.clip);
    let t = kernel.run.step as f64 + 1.0;
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = &buffers.pieces[tile];
        let group = group_of(&op.groups, piece);
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
        let flat = piece.gradient..piece.gradient + piece.length;
        // SAFETY: each tile has its own part of every buffer.
        unsafe {
            rows::adamw(
                buffers.parameters.range(piece.parameter..piece.parameter + piece.length),
                buffers.gradients.range(flat.clone()),
                buffers.first.range(flat.clone()),
                buffers.second.range(flat),
                &step,
            );
        }
    });
}

/// SGD on every trained parameter.
fn sgd(kernel: &Kernel, team: &mut Team, buffers: &Buffers, op: &Sgd) {
    let rate = f64::from(kernel.input_f32(0)[0]);
    let gradient_factor = clip_factor(kernel, op.clip);
    team.run(buffers.pieces.len(), &|tile, _| {
        let piece = &buffers.pieces[tile];
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
                buffers.gradients.range(flat.clone()),
                buffers.first.range(flat),
                &step,
            );
        }
    });
}

/// The average of all parameters, trained or not.
fn ema(kernel: &Kernel, team: &mut Team, buffers: &Buffers) {
    let decay = f64::from(kernel.input_f32(0)[0]);
    let floats = buffers.ema.len();
    team.run(floats.div_ceil(TILE), &|tile, _| {
        let range = tile_rows(tile, TILE, floats);
        // SAFETY: each tile has its own part of both buffers.
        unsafe { rows::ema(buffers.ema.range(range.clone()), buffers.parameters.range(range), decay) };
    });
}
