//! Attention kernels for graph nodes.

use super::attention::{self, Bias, Heads, HeadsOut};
use super::kernel::Kernel;
use super::memory::FloatSlice;
use super::steps::mask_of;
use super::team::Team;
use crate::graph::{Graph, Node};
use crate::ops::attention::{PaddingKind, Sizes};
use crate::ops::{Attention, AttentionGradient, Op};
use crate::random::{Mask, Stream};
use crate::types::DType;

fn sizes(op: &Attention, graph: &Graph, node: &Node) -> Sizes {
    op.sizes(node.inputs.len(), |input| graph.shape_of(node.inputs[input]))
        .expect("shapes were checked when the graph was built")
}

fn describe<'a>(kernel: &Kernel<'a>, op: &Attention) -> attention::Attention<'a> {
    let s = sizes(op, kernel.graph, kernel.node);
    let padding = |kind: PaddingKind| op.padding_input().filter(|_| op.padding == kind).map(|i| kernel.input_i32(i));
    attention::Attention {
        batch: s.batch,
        heads: s.heads,
        kv_heads: s.kv_heads,
        queries: s.queries,
        keys: s.keys,
        head_dim: s.head_dim,
        scale: op.scale_for(s.head_dim),
        reach: op.reach(),
        offsets: op.offsets_input().map(|input| kernel.input_i32(input)),
        key_lengths: padding(PaddingKind::Lengths),
        key_mask: padding(PaddingKind::Mask),
        bias: op.bias_input().map(|input| {
            let axes = kernel.input_type(input).shape.axes();
            Bias { values: kernel.input(input), batch: axes[0], heads: axes[1] }
        }),
        dropout: op.dropout.as_ref().map(|drop| mask_of(kernel, drop)),
        first_sample: kernel.first_sample(),
    }
}

/// Floats of scratch memory per thread.
pub(super) fn scratch_floats(graph: &Graph, node: &Node) -> usize {
    match &node.op {
        Op::Attention(op) => {
            let is_f32 = |input: usize| graph.type_of(node.inputs[input]).dtype == DType::F32;
            let both_f32 = if op.packed { is_f32(0) } else { is_f32(1) && is_f32(2) };
            attention::forward_scratch(&shapes(op, graph, node), both_f32)
        }
        Op::AttentionWeights(op) => attention::weights_scratch(&shapes(&op.of, graph, node)),
        Op::AttentionGradient(op) => attention::backward_scratch(&shapes(&op.of, graph, node)),
        _ => 0,
    }
}

/// The shapes of an attention before it runs: its arrays are empty, and only there where it has some.
fn shapes(op: &Attention, graph: &Graph, node: &Node) -> attention::Attention<'static> {
    let s = sizes(op, graph, node);
    let padding = |kind: PaddingKind| op.padding_input().filter(|_| op.padding == kind).map(|_| &[][..]);
    attention::Attention {
        batch: s.batch,
        heads: s.heads,
        kv_heads: s.kv_heads,
        queries: s.queries,
        keys: s.keys,
        head_dim: s.head_dim,
        scale: op.scale_for(s.head_dim),
        reach: op.reach(),
        offsets: op.offsets_input().map(|_| &[][..]),
        key_lengths: padding(PaddingKind::Lengths),
        key_mask: padding(PaddingKind::Mask),
        bias: op.bias_input().map(|_| Bias { values: FloatSlice::F32(&[]), batch: 0, heads: 0 }),
        dropout: op.dropout.as_ref().map(|drop| Mask::new(Stream::new(0, 0, drop.place), drop.rate)),
        first_sample: 0,
    }
}

/// q, k or v: an input of its own, or a part of the packed one.
fn heads<'a>(kernel: &Kernel<'a>, op: &Attention, which: usize) -> Heads<'a> {
    let (input, offset, row_stride) = place(kernel, op, which);
    Heads { values: kernel.input(input), offset, row_stride }
}

/// The input, the first column in it, and the length of the input's rows.
fn place(kernel: &Kernel, op: &Attention, which: usize) -> (usize, usize, usize) {
    let input = if op.packed { 0 } else { which };
    let columns = kernel.input_type(input).shape.columns();
    if op.packed { (input, which * (columns / 3), columns) } else { (input, 0, columns) }
}

fn whole(values: FloatSlice, columns: usize) -> Heads {
    Heads { values, offset: 0, row_stride: columns }
}

/// Attention.
pub(super) fn forward(kernel: &Kernel, team: &mut Team, op: &Attention) {
    let output = kernel.output(0);
    let attention = describe(kernel, op);
    let out = HeadsOut { values: output, offset: 0, row_stride: kernel.output_type(0).shape.columns() };
    let log_sums = kernel.output_raw(1);
    attention::forward(
        team,
        &attention,
        heads(kernel, op, 0),
        heads(kernel, op, 1),
        heads(kernel, op, 2),
        out,
        log_sums,
    );
}

/// The weights, for inspection.
pub(super) fn weights(kernel: &Kernel, team: &mut Team, op: &Attention) {
    let output = kernel.output_raw(0);
    attention::weights(team, &describe(kernel, op), heads(kernel, op, 0), heads(kernel, op, 1), output);
}

/// Attention's gradient.
pub(super) fn gradient(kernel: &Kernel, team: &mut Team, op: &AttentionGradient) {
    let attention = describe(kernel, &op.of);
    let first = op.of.input_count();
    let columns = kernel.input_type(first).shape.columns();
    let out = whole(kernel.input(first), columns);
    let d_out = whole(kernel.input(first + 2), columns);
    let log_sums = kernel.input_f32(first + 1);
    let gradient = |which: usize| {
        let (output, offset, row_stride) = place(kernel, &op.of, which);
        HeadsOut { values: kernel.output(output), offset, row_stride }
    };
    let d_bias = op.bias_gradient.then(|| kernel.output_raw(op.of.projections()));
    let [q, k, v] = [0, 1, 2].map(|which| heads(kernel, &op.of, which));
    let [dq, dk, dv] = [0, 1, 2].map(gradient);
    attention::backward(team, &attention, q, k, v, out, d_out, log_sums, dq, dk, dv, d_bias);
}
