//! What the encoders of texts have in common (BERT with its relatives, and ALBERT): embeddings, layers, heads, and
//! Hugging Face's names for them. It is no family: a family says which [`Encoder`] it is, and stacks the layers.
//!
//! ```text
//! x = norm(word[tokens] + type[token_types] + position[offset..])     then projected, if embeddings are narrower
//! layer:   x = norm(x + attention(x));  x = norm(x + mlp(x))
//! pooler:  features = tanh(W x[0])
//! masked tokens:  logits = word · norm(activation(W x)) + b           tied to the word embeddings, or not
//! classes, labels, numbers:  logits = W features + b                  or of the first token, by a layer of its own
//! classes of tokens, spans:  logits = W x + b
//! ```

mod architecture;
mod config;
mod graph;
mod head;
mod names;
#[cfg(test)]
mod tests;

use crate::settings::{Activation, ConfigError, check_eps, check_layers, check_rates, check_sizes, rule};
use crate::signature::{Gives, Head, Signature, Takes, TokenInput};

pub(crate) use architecture::EncoderConfig;
pub(crate) use config::{KEYS, Keys, Sizes, check_supported};
pub(crate) use graph::{build, layer, refused};
pub(crate) use head::{HeadNames, HeadReading, class_of_head, put_problem_type, read_head};
pub(crate) use names::{MaskedNames, Names};

/// An encoder of texts, as its graph needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    /// The family, in messages.
    pub family: &'static str,
    pub vocabulary: usize,
    /// Width of the embeddings.
    pub embedding_dim: usize,
    /// Whether a linear layer brings embeddings to `dim`.
    pub projects: bool,
    pub dim: usize,
    pub heads: usize,
    pub mlp_dim: usize,
    pub activation: Activation,
    /// Maximum sequence length.
    pub max_length: usize,
    /// The row of the position table that the first token gets.
    pub position_offset: usize,
    pub token_types: usize,
    pub norm_eps: f32,
    pub pooler: bool,
    pub head: Head,
    pub classifier: Classifier,
    /// Activation of the masked-token head.
    pub masked_activation: Activation,
    /// Whether the masked-token head shares the word embeddings.
    pub tied: bool,
    pub dropout: f32,
    pub attention_dropout: f32,
    /// Dropout before the output of a head for classes.
    pub head_dropout: f32,
    /// Dropout before the output of a head for spans.
    pub span_dropout: f32,
}

/// What a head for the class of a text stands on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Classifier {
    /// The pooler.
    Pooler,
    /// A layer of its own over the first token.
    Layer {
        activation: Activation,
        /// Whether there is dropout before that layer, too.
        dropout_before: bool,
    },
}

impl Encoder {
    /// An error for an encoder of `layers` layers that cannot be built, with the requirement.
    pub fn check(&self, layers: usize) -> Result<(), ConfigError> {
        check_sizes(&[
            ("vocabulary", self.vocabulary),
            ("dim", self.dim),
            ("embedding_dim", self.embedding_dim),
            ("depth", layers),
            ("heads", self.heads),
            ("mlp_dim", self.mlp_dim),
            ("max_length", self.max_length),
            ("position_offset", self.position_offset.saturating_add(1)),
            ("token_types", self.token_types.saturating_add(1)),
            ("the number of outputs of the head", self.head.size().unwrap_or(1)),
        ])?;
        check_layers(self.dim, self.heads, layers)?;
        let rates = [("dropout", self.dropout), ("attention_dropout", self.attention_dropout)];
        check_rates(&rates)?;
        check_rates(&[("head_dropout", self.head_dropout)])?;
        check_eps(self.norm_eps)?;
        rule(self.pooler || !self.head_stands_on_pooler(self.head), || {
            "its head stands on the pooler: set pooler = true".into()
        })
    }

    /// Whether a head needs the pooler.
    fn head_stands_on_pooler(&self, head: Head) -> bool {
        self.classifier == Classifier::Pooler && matches!(head, Head::Classes(_) | Head::Labels(_) | Head::Numbers(_))
    }

    /// Whether there is a pooler after a new head was put on: as in Hugging Face's class of the model with this head.
    pub fn pooler_with(&self, head: Head) -> bool {
        match head {
            Head::None => self.pooler,
            other => self.head_stands_on_pooler(other),
        }
    }

    /// The model's inputs and outputs.
    pub fn signature(&self) -> Signature {
        let tokens = TokenInput {
            vocabulary: self.vocabulary,
            longest: self.max_length,
            token_types: self.token_types,
            window: None,
        };
        let vector = self.pooler.then_some(Gives::Vector(self.dim));
        let gives = [Gives::TokenVectors(self.dim)].into_iter().chain(vector).chain(self.head.gives(self.vocabulary));
        Signature { takes: Takes::Tokens(tokens), gives: gives.collect() }
    }
}
