//! What a parameter is, said once, where the model declares it: its role, its place in the stack of layers, and how its values
//! start. Weight decay, layer-wise learning rates, freezing, LoRA and initialisation follow from this, never from names.

use crate::error::{Error, Result};
use crate::types::Shape;

/// What a parameter does in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The matrix of a linear layer.
    Weight,
    /// A bias.
    Bias,
    /// The weight or bias of a normalisation layer.
    Norm,
    /// A learned scale of a residual branch (LayerScale).
    Scale,
    /// A table of token embeddings, or the projection of patches.
    Embedding,
    /// A table of position embeddings.
    Position,
    /// A learned token: class, distillation, registers.
    Token,
    /// A low-rank adapter.
    Adapter,
}

impl Role {
    /// Whether weight decay applies by default: to matrices and embeddings, as timm and `transformers` have it.
    pub fn decays(self) -> bool {
        matches!(self, Role::Weight | Role::Embedding | Role::Adapter)
    }

    /// Declares a parameter of this role that starts like this.
    pub fn starting(self, init: Init) -> Declaration {
        Declaration { role: self, init, parts: &[] }
    }
}

/// Where in the stack a parameter stands: layer-wise learning rates count from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Before the first block: embeddings.
    Stem,
    /// In a block ([`Graph::block`](crate::Graph::block)), counted from 0.
    Block(u32),
    /// After the last block: the final norm, the head.
    Top,
}

/// The kind of layer that a matrix or bias belongs to: initialisation schemes tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Any linear layer.
    Linear,
    /// A linear layer of a feed-forward block (MLP).
    FeedForward,
    /// A convolution, or a linear layer that is one (patch embedding).
    Convolution,
}

/// How a parameter's values start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All the same.
    Constant(f32),
    /// Normal with this standard deviation.
    Normal(f64),
    /// A matrix `[out, in]` or `[out, in, ..]`: as the run's initialisation scheme draws matrices.
    Matrix(LayerKind),
    /// A bias of a layer with so many inputs: as the scheme draws biases.
    Bias {
        /// The layer.
        kind: LayerKind,
        /// Inputs of the layer.
        fan_in: usize,
    },
    /// A table of embeddings: as the scheme draws them.
    Table,
    /// Uniform up to `1 / √in`, as PyTorch's `Linear`, whatever the scheme.
    PyTorchLinear,
}

/// What a model says of a parameter when it declares it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Declaration {
    /// What it does.
    pub role: Role,
    /// How its values start.
    pub init: Init,
    /// The projections that are stacked in it, e.g. `query`, `key`, `value`; empty for one of its own.
    pub parts: &'static [&'static str],
}

impl Declaration {
    /// The same, for several projections stacked in one parameter.
    pub fn of_parts(self, parts: &'static [&'static str]) -> Declaration {
        Declaration { parts, ..self }
    }
}

/// A parameter's name, shape, declaration, and place in the flat buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its path, e.g. `blocks.3.attention.qkv.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Where it starts in the flat buffer of parameters.
    pub offset: usize,
    /// Where its gradient and moments start in theirs; `None` if it is not trained.
    pub gradient_offset: Option<usize>,
    /// What it is and how it starts.
    pub declared: Declaration,
    /// Where in the stack it stands.
    pub level: Level,
    /// Whether it belongs to the head: what is replaced when a model is fine-tuned for another task.
    pub head: bool,
}

impl Parameter {
    /// What it does.
    pub fn role(&self) -> Role {
        self.declared.role
    }

    /// The names of the projections that it stacks, or its own: `a.qkv.weight` with parts query, key and value is
    /// `a.query.weight`, `a.key.weight`, `a.value.weight`.
    pub fn part_names(&self) -> Vec<String> {
        let mut segments: Vec<&str> = self.name.split('.').collect();
        let Some(layer) = segments.len().checked_sub(2).filter(|_| !self.declared.parts.is_empty()) else {
            return vec![self.name.clone()];
        };
        let named = |part: &&'static str| {
            segments[layer] = part;
            segments.join(".")
        };
        self.declared.parts.iter().map(named).collect()
    }

    /// An error if it has another number of values than it was given.
    pub(crate) fn check_count(&self, given: usize) -> Result<()> {
        let count = self.shape.elements();
        if given == count {
            return Ok(());
        }
        let (expected, got) = (format!("{count} values"), format!("{given} values"));
        Err(Error::Data { what: "parameter", name: self.name.clone(), expected, got })
    }
}
