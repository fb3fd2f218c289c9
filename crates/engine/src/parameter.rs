//! What a parameter is, stated once, where the model declares it: its role, its level in the stack of layers, and its
//! initial values. Weight decay, layer-wise learning rates, freezing, LoRA and initialisation use this, never names.

use crate::blocks::BlockFormat;
use crate::error::{Error, Result};
use crate::types::Shape;
use crate::weights::WeightView;

/// The role of a parameter in its layer.
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
    /// A number that comes with the model and is never trained.
    Constant,
}

impl Role {
    /// Whether weight decay applies by default: to matrices and embeddings, as in timm and `transformers`.
    pub fn decays(self) -> bool {
        matches!(self, Role::Weight | Role::Embedding | Role::Adapter)
    }

    /// Declares a parameter with this role and these initial values.
    pub fn starting(self, init: Init) -> Declaration {
        Declaration { role: self, init, parts: &[] }
    }
}

/// The level of a parameter in the stack, from which layer-wise learning rates are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Before the first block: embeddings.
    Stem,
    /// In a block ([`Graph::block`](crate::Graph::block)), counted from 0.
    Block(u32),
    /// After the last block: the final norm, the head.
    Top,
}

/// The kind of layer that a matrix or bias belongs to: initialisation schemes distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Any linear layer.
    Linear,
    /// A linear layer of a feed-forward block (MLP).
    FeedForward,
    /// A convolution, or a linear layer that is equivalent to one (patch embedding).
    Convolution,
}

/// The initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All equal to this value.
    Constant(f32),
    /// Normal with this standard deviation.
    Normal(f64),
    /// Stacked projections of which the first is the query's: normal with these standard deviations.
    NormalQuery {
        /// Of the query's.
        query: f64,
        /// Of the others.
        others: f64,
    },
    /// A matrix `[out, in]` or `[out, in, ..]`, drawn by the run's initialisation scheme.
    Matrix(LayerKind),
    /// A matrix whose result is added to the residual stream, drawn as `Matrix` and divided by `√(2 · layers)`: GPT-2 starts so, since
    /// each of its layers adds to the stream twice.
    ResidualMatrix {
        /// The layer.
        kind: LayerKind,
        /// Layers of the model.
        layers: usize,
    },
    /// A bias, drawn by the initialisation scheme.
    Bias {
        /// The layer.
        kind: LayerKind,
        /// Number of inputs of the layer.
        fan_in: usize,
    },
    /// An embedding table, drawn by the initialisation scheme.
    Table,
    /// Uniform within `±1 / √in`, as PyTorch's `Linear`, whatever the scheme.
    PyTorchLinear,
    /// Whisper's fixed positions `[rows, width]`: sines, then cosines, of frequencies from 1 to 1/10000.
    Sinusoidal,
}

/// What a model declares about a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Declaration {
    /// Its role.
    pub role: Role,
    /// Its initial values.
    pub init: Init,
    /// The projections stacked in it, e.g. `query`, `key`, `value`; empty for a single one.
    pub parts: &'static [&'static str],
}

impl Declaration {
    /// The same, for several projections stacked in one parameter.
    pub fn of_parts(self, parts: &'static [&'static str]) -> Declaration {
        Declaration { parts, ..self }
    }
}

/// A parameter's name, shape, declaration, and offsets in the flat buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its path, e.g. `blocks.3.attention.qkv.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Its offset in the flat buffer of parameters.
    pub offset: usize,
    /// Offset of its gradient and moments in theirs; `None` if it is frozen.
    pub gradient_offset: Option<usize>,
    /// Its role and initial values.
    pub declared: Declaration,
    /// Its level in the stack.
    pub level: Level,
    /// Whether it belongs to the head, which is replaced when a model is fine-tuned for another task.
    pub head: bool,
    /// The format of its values if they are quantised: see [`Graph::store_weights`](crate::Graph::store_weights).
    pub blocks: Option<BlockFormat>,
}

impl Parameter {
    /// Its role.
    pub fn role(&self) -> Role {
        self.declared.role
    }

    /// The names of the projections stacked in it, or its own name: `a.qkv.weight` with parts query, key and value
    /// gives `a.query.weight`, `a.key.weight`, `a.value.weight`.
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

    /// The bytes of values that are blocks of a format; an error if they are something else.
    pub(crate) fn blocks_of<'v>(&self, format: BlockFormat, values: &'v WeightView) -> Result<&'v [u8]> {
        match values {
            WeightView::Blocks(given, bytes) if *given == format => Ok(bytes),
            _ => {
                let (name, expected) = (self.name.clone(), format!("blocks of {}", format.name()));
                Err(Error::Data { what: "parameter", name, expected, got: "values in another format".to_string() })
            }
        }
    }

    /// An error if the number of values differs from the shape's.
    pub(crate) fn check_count(&self, given: usize) -> Result<()> {
        let count = self.shape.elements();
        if given == count {
            return Ok(());
        }
        let (expected, got) = (format!("{count} values"), format!("{given} values"));
        Err(Error::Data { what: "parameter", name: self.name.clone(), expected, got })
    }
}
