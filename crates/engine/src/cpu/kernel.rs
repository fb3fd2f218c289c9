//! What every kernel gets, and the choice of the kernel for a node.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::bind::Memory;
use super::memory::{FloatShared, FloatSlice, Shared};
use super::team::Team;
use super::{
    attend, losses, moves, norms, prepare_images, products, reductions, rotary, steps, tables, top_k, unfold, updates,
};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::ops::Op;
use crate::random::Run;
use crate::types::Type;

/// One node with its memory and threads.
pub(super) struct Kernel<'a> {
    pub graph: &'a Graph,
    pub index: usize,
    pub node: &'a Node,
    pub memory: Memory<'a>,
    pub run: Run,
    /// The tile's first sample, in a chain; B of matrix products is packed already then.
    pub tile: Option<usize>,
    /// The first position in an input of whole numbers that was out of range.
    pub fault: &'a AtomicUsize,
}

/// No fault.
pub(super) const NO_FAULT: usize = usize::MAX;

impl<'a> Kernel<'a> {
    /// The first sample that this kernel works on.
    pub fn first_sample(&self) -> usize {
        self.tile.unwrap_or(0)
    }

    /// An input to read.
    pub fn input(&self, index: usize) -> FloatSlice<'a> {
        self.memory.read(self.node.inputs[index])
    }

    /// An f32 input to read.
    pub fn input_f32(&self, index: usize) -> &'a [f32] {
        self.memory.read_f32(self.node.inputs[index])
    }

    /// An input of whole numbers.
    pub fn input_i32(&self, index: usize) -> &'a [i32] {
        self.memory.read_i32(self.node.inputs[index])
    }

    /// An input's type.
    pub fn input_type(&self, index: usize) -> &'a Type {
        self.graph.type_of(self.node.inputs[index])
    }

    /// A result to write.
    pub fn output(&self, index: usize) -> FloatShared<'a> {
        self.memory.write(Value::new(self.index, index))
    }

    /// A result of plain data to write.
    pub fn output_raw<T: bytemuck::Pod>(&self, index: usize) -> Shared<'a, T> {
        self.memory.write_raw(Value::new(self.index, index))
    }

    /// A result's type.
    pub fn output_type(&self, index: usize) -> &'a Type {
        &self.node.outputs[index]
    }

    /// Its weight, if the executor keeps that as quantised blocks.
    pub fn quantised_weight(&self) -> Option<&'a [f32]> {
        self.graph.quantised_weight(self.node)?;
        self.memory.packed_weight(self.index)
    }

    /// The node's workspace.
    pub fn workspace(&self) -> Shared<'a, f32> {
        self.memory.workspace(self.index)
    }

    /// Notes that a whole number is out of range; the run ends with an error that names the first.
    pub fn report_fault(&self, position: usize) {
        self.fault.fetch_min(position, Ordering::Relaxed);
    }
}

/// Rows that make one tile: about 16,000 numbers, and at least eight tiles if there is work for them.
/// It depends on shapes alone, so that results do not depend on the number of threads.
pub(super) fn rows_per_tile(rows: usize, columns: usize) -> usize {
    let by_size = (16_384 / columns.max(1)).max(1);
    let by_count = if rows * columns >= 32_768 { rows.div_ceil(8) } else { rows };
    by_size.min(by_count).max(1)
}

/// The rows of one tile.
pub(super) fn tile_rows(tile: usize, rows_per_tile: usize, rows: usize) -> std::ops::Range<usize> {
    tile * rows_per_tile..((tile + 1) * rows_per_tile).min(rows)
}

/// Runs the node. Only nodes outside of chains can change the `buffers` of training.
pub(super) fn run(kernel: &Kernel, team: &mut Team, buffers: Option<&updates::Buffers>) -> Result<()> {
    if let Some(buffers) = buffers {
        updates::run(kernel, team, buffers);
    }
    match &kernel.node.op {
        Op::Input(_) | Op::Parameter(_) | Op::Constant(_) | Op::Cache(_) | Op::StoredGradient(_) | Op::Reshape(_) => {}
        Op::Linear(_) | Op::LinearInputGradient(_) | Op::MatMul(_) => products::multiply(kernel, team),
        Op::LinearWeightGradient(_) => products::weight_gradient(kernel, team),
        Op::Pointwise(_) => steps::pointwise(kernel, team),
        Op::WriteRows(_) => tables::write_rows(kernel, team),
        Op::Broadcast(_) => moves::broadcast(kernel, team),
        Op::Transpose(op) => moves::transpose(kernel, team, &op.order),
        Op::Concat(op) => moves::concat(kernel, team, op.axis),
        Op::Slice(op) => moves::slice(kernel, team, op),
        Op::Pad(op) => moves::pad(kernel, team, op),
        Op::Patchify(op) => moves::patchify(kernel, team, op.patch),
        Op::Unpatchify(op) => moves::unpatchify(kernel, team, op.patch),
        Op::Unfold(op) => unfold::unfold(kernel, team, op),
        Op::Fold(op) => unfold::fold(kernel, team, op),
        Op::PrepareImages(op) => prepare_images::prepare_images(kernel, team, op),
        Op::SumLeading(op) => reductions::sum_leading(kernel, team, op.shape.elements()),
        Op::MeanTokens(_) => reductions::mean_tokens(kernel, team),
        Op::MeanTokensGradient(op) => reductions::mean_tokens_gradient(kernel, team, op.tokens),
        Op::MaxTokens(_) => reductions::max_tokens(kernel, team),
        Op::MaxTokensGradient(op) => reductions::max_tokens_gradient(kernel, team, op.tokens),
        Op::Embedding(_) => tables::embedding(kernel, team),
        Op::EmbeddingGradient(op) => tables::embedding_gradient(kernel, team, op.vocabulary),
        Op::LayerNorm(_) | Op::RmsNorm(_) => norms::forward(kernel, team),
        Op::LayerNormGradient(_) | Op::RmsNormGradient(_) => norms::gradient(kernel, team),
        Op::Rotary(op) => rotary::rotary(kernel, team, op),
        Op::Attention(op) => attend::forward(kernel, team, op),
        Op::AttentionWeights(op) => attend::weights(kernel, team, &op.of),
        Op::AttentionGradient(op) => attend::gradient(kernel, team, op),
        Op::Softmax(_) => losses::softmax(kernel, team),
        Op::SoftmaxGradient(_) => losses::softmax_gradient(kernel, team),
        Op::TopK(op) => top_k::top_k(kernel, team, op.k),
        Op::CrossEntropy(op) => losses::cross_entropy(kernel, team, op),
        Op::CrossEntropyGradient(op) => losses::cross_entropy_gradient(kernel, team, op),
        Op::BinaryCrossEntropy(op) => losses::binary_cross_entropy(kernel, team, op.sum_classes),
        Op::BinaryCrossEntropyGradient(op) => losses::binary_cross_entropy_gradient(kernel, team, op.sum_classes),
        // Done above.
        Op::GradientNorm(_) | Op::AdamW(_) | Op::Sgd(_) | Op::Lamb(_) | Op::Ema(_) | Op::AccumulateGradient(_) => {}
        Op::MuonDirection(_) | Op::MuonUpdate(_) => {}
    }
    match kernel.fault.load(Ordering::Relaxed) {
        NO_FAULT => Ok(()),
        position => Err(out_of_range(kernel, position)),
    }
}

/// The error of a whole number outside its range, in the op's second input or, for a loss's gradient and written rows, its third.
fn out_of_range(kernel: &Kernel, position: usize) -> Error {
    let (numbers, limit) = match &kernel.node.op {
        Op::Embedding(_) => (1, kernel.input_type(0).shape.axes()[0]),
        Op::EmbeddingGradient(op) => (1, op.vocabulary),
        Op::WriteRows(_) => (2, kernel.input_type(0).shape.axes()[1] - kernel.input_type(1).shape.axes()[1] + 1),
        Op::CrossEntropyGradient(_) => (2, kernel.input_type(1).shape.columns()),
        _ => (1, kernel.input_type(0).shape.columns()),
    };
    let value = i64::from(kernel.input_i32(numbers)[position]);
    let (op, path) = (kernel.node.op.name(), kernel.node.path.clone());
    Error::OutOfRange { op, path, value, position, limit }
}
