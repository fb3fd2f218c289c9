//! The ops, one file each: formula, shape rule, FLOP count, gradient rule, and the builder method on [`Graph`].
//!
//! Elementwise ops are [`Step`]s of a [`Pointwise`] node. That is what makes fusion simple: the planner hangs a
//! node's steps behind the matrix product (or before the norm) that they belong to, and every executor
//! runs a list of steps on a row that is still in cache.

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::Graph;
use crate::types::Type;

pub mod activation;
mod add;
pub mod attention;
mod binary_cross_entropy;
mod broadcast;
mod cache;
mod cast;
mod concat;
mod cross_entropy;
mod dropout;
mod embedding;
pub mod image_draws;
mod layer_norm;
mod leaf;
mod linear;
pub mod loss_in_parts;
mod matmul;
mod multiply;
pub(crate) mod muon;
pub mod optimizer;
mod patchify;
mod pointwise;
mod pool;
pub(crate) mod prepare_images;
mod reshape;
mod rms_norm;
pub mod rotary;
mod scale;
mod slice;
mod softmax;
mod stochastic_depth;
mod top_k;
pub mod training_step;
mod transpose;
pub mod unfold;
mod write_rows;

pub use activation::Activation;
pub use attention::{Attention, AttentionGradient, AttentionInputs, AttentionOptions, AttentionWeights, Padding};
pub use binary_cross_entropy::{BinaryCrossEntropy, BinaryCrossEntropyGradient};
pub use broadcast::{Broadcast, SumLeading};
pub use cache::Cache;
pub use concat::Concat;
pub use cross_entropy::{CrossEntropy, CrossEntropyGradient, CrossEntropyOptions, Targets};
pub use dropout::Drop;
pub use embedding::{Embedding, EmbeddingGradient};
pub use image_draws::{ImageDraws, ImageDrawsMut};
pub use layer_norm::{LayerNorm, LayerNormGradient};
pub use leaf::{Constant, Input, Parameter};
pub use linear::{Linear, LinearInputGradient, LinearWeightGradient};
pub use matmul::MatMul;
pub use optimizer::{
    AccumulateGradient, AdamW, Ema, GradientNorm, Group, Lamb, MuonDirection, MuonUpdate, Sgd, StoredGradient,
};
pub use patchify::{Patchify, Unpatchify};
pub use pointwise::{Pointwise, Step};
pub use pool::{MaxTokens, MaxTokensGradient, MeanTokens, MeanTokensGradient};
pub use prepare_images::PrepareImages;
pub use reshape::Reshape;
pub use rms_norm::{RmsNorm, RmsNormGradient};
pub use rotary::{Rotary, RotaryOptions, RotaryPairing, rotary_frequencies};
pub use slice::{Pad, Slice};
pub use softmax::{Softmax, SoftmaxGradient};
pub use top_k::TopK;
pub use training_step::{MuonScale, Optimizer, StepOptions, StepValues};
pub use transpose::Transpose;
pub use unfold::{Fold, Sliding, Unfold};
pub use write_rows::WriteRows;

/// A rule that was broken, in words; the graph adds op, path and shapes.
pub(crate) type Broken = String;

/// What an op knows of itself.
pub(crate) trait Rules {
    /// Its name in paths, plans and errors.
    fn name(&self) -> &'static str;
    /// The results' types, or the rule that the inputs break.
    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken>;
    /// Floating-point operations, a multiply and an add counted as two. 0 for what only moves data.
    fn flops(&self, _inputs: &[&Type], _outputs: &[Type]) -> u64 {
        0
    }
    /// Adds the nodes that compute the inputs' gradients.
    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        backward.refuse("this op has no gradient rule")
    }
}

macro_rules! define_ops {
    ($($name:ident),* $(,)?) => {
        /// An op with its settings.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        impl Op {
            fn rules(&self) -> &dyn Rules {
                match self {
                    $(Op::$name(op) => op,)*
                }
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        })*
    };
}

define_ops! {
    Input, Parameter, Constant, Cache, Linear, LinearInputGradient, LinearWeightGradient, MatMul, Pointwise, Broadcast,
    SumLeading, Reshape, WriteRows, Transpose, Concat, Slice, Pad, Patchify, Unpatchify, Unfold, Fold, PrepareImages,
    Embedding, EmbeddingGradient, LayerNorm, LayerNormGradient, RmsNorm, RmsNormGradient, Rotary, Attention,
    AttentionWeights, AttentionGradient, MeanTokens, MeanTokensGradient, MaxTokens, MaxTokensGradient, Softmax,
    SoftmaxGradient, TopK, CrossEntropy,
    CrossEntropyGradient, BinaryCrossEntropy, BinaryCrossEntropyGradient, GradientNorm, AdamW, Sgd, Lamb,
    MuonDirection, MuonUpdate, Ema, AccumulateGradient, StoredGradient,
}

impl Op {
    /// Its name; empty for `Pointwise`, which is named after its steps.
    pub fn name(&self) -> &'static str {
        self.rules().name()
    }

    pub(crate) fn path_name(&self, steps: &[Step]) -> &'static str {
        match (self, steps) {
            (Op::Pointwise(_), [step, ..]) => step.name(),
            (Op::Pointwise(_), []) => "cast",
            _ => self.name(),
        }
    }

    pub(crate) fn infer(&self, inputs: &[Type], steps: &[Step]) -> Result<Vec<Type>, Broken> {
        let outputs = self.rules().infer(inputs)?;
        for step in steps {
            step.check(inputs)?;
        }
        Ok(outputs)
    }

    pub(crate) fn flops(&self, inputs: &[&Type], outputs: &[Type]) -> u64 {
        self.rules().flops(inputs, outputs)
    }

    pub(crate) fn gradient(&self, backward: &mut Backward) -> Result<()> {
        self.rules().gradient(backward)
    }

    /// Whether it computes nothing: inputs, parameters, constants, caches, gradients that are there already.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Op::Input(_) | Op::Parameter(_) | Op::Constant(_) | Op::Cache(_) | Op::StoredGradient(_))
    }

    /// Whether its result is its first input's memory.
    pub(crate) fn shows_its_input(&self) -> bool {
        matches!(self, Op::Reshape(_) | Op::WriteRows(_))
    }

    /// Whether it is run for what it changes, not for its results.
    pub fn has_effect(&self) -> bool {
        self.changes_parameters() || matches!(self, Op::AccumulateGradient(_))
    }

    /// Whether a cache is another after it: it is run even where nobody reads its result.
    pub fn writes_cache(&self) -> bool {
        matches!(self, Op::WriteRows(_))
    }

    /// Whether parameters or their average are others after it.
    pub fn changes_parameters(&self) -> bool {
        matches!(self, Op::AdamW(_) | Op::Sgd(_) | Op::Lamb(_) | Op::MuonUpdate(_) | Op::Ema(_))
    }
}

pub(crate) fn expect_inputs<const N: usize>(inputs: &[Type]) -> Result<&[Type; N], Broken> {
    inputs.try_into().map_err(|_| format!("takes {N} inputs, got {}", inputs.len()))
}

pub(crate) fn expect_float(input: &Type) -> Result<(), Broken> {
    if input.dtype.is_float() { Ok(()) } else { Err("inputs must be floats".to_string()) }
}

impl Graph {
    /// Adds a plain op (no steps) and gives its first result.
    pub(crate) fn push(&mut self, op: impl Into<Op>, inputs: &[crate::graph::Value]) -> Result<crate::graph::Value> {
        self.add_op(op.into(), inputs, Vec::new())
    }
}
