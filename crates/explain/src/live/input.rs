//! What a model that is watched is given.

use std::sync::Arc;

use vitreous_engine::Executor;
use vitreous_models::Call;

use crate::error::ExplainError;
use crate::inputs::InputValues::{Floats, Integers};
use crate::inputs::fill;
use crate::inside::Given;

/// One input of a model, as the model takes it.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveInput {
    /// An image: channels, rows, columns.
    Image(Arc<[f32]>),
    /// A text.
    Text {
        /// Its tokens.
        ids: Vec<u32>,
        /// Their types; empty: all 0.
        types: Vec<u32>,
        /// Of models that fill in masks: the places that are filled in.
        masked: Vec<usize>,
    },
    /// A source and what the decoder reads: its start and the target.
    Pair {
        /// The source's tokens.
        source: Vec<u32>,
        /// What the decoder reads.
        read: Vec<u32>,
    },
    /// A window of audio and what the decoder reads.
    Audio {
        /// The log-mel spectrogram: `[frames, bins]`.
        mel: Arc<[f32]>,
        /// What the decoder reads.
        read: Vec<u32>,
    },
}

/// What of an input a graph depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lengths {
    /// Tokens, or those of the source.
    pub tokens: usize,
    /// What the decoder reads.
    pub target: usize,
    /// Places that are filled in.
    pub masked: usize,
}

impl LiveInput {
    /// What a graph for it depends on.
    pub fn lengths(&self) -> Lengths {
        match self {
            LiveInput::Image(_) => Lengths { tokens: 1, target: 1, masked: 0 },
            LiveInput::Text { ids, masked, .. } => Lengths { tokens: ids.len(), target: 1, masked: masked.len() },
            LiveInput::Pair { source, read } => Lengths { tokens: source.len(), target: read.len(), masked: 0 },
            LiveInput::Audio { read, .. } => Lengths { tokens: 1, target: read.len(), masked: 0 },
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        4 * match self {
            LiveInput::Image(pixels) => pixels.len(),
            LiveInput::Text { ids, types, masked } => ids.len() + types.len() + 2 * masked.len(),
            LiveInput::Pair { source, read } => source.len() + read.len(),
            LiveInput::Audio { mel, read } => mel.len() + read.len(),
        }
    }

    /// The same for the analyses of a stack of layers; `None` of inputs with two sides.
    pub(crate) fn given(&self) -> Option<Given> {
        match self {
            LiveInput::Image(pixels) => Some(Given::Image(pixels.to_vec())),
            LiveInput::Text { ids, .. } => Some(Given::Tokens(ids.clone())),
            LiveInput::Pair { .. } | LiveInput::Audio { .. } => None,
        }
    }

    pub(crate) fn fill(&self, executor: &mut Executor) -> Result<(), ExplainError> {
        let integers = |numbers: &[u32]| -> Vec<i32> { numbers.iter().map(|&number| number as i32).collect() };
        match self {
            LiveInput::Image(pixels) => fill(executor, &[("images", Floats(pixels))]),
            LiveInput::Text { ids, types, masked } => {
                let types = if types.len() == ids.len() { integers(types) } else { vec![0; ids.len()] };
                let masked: Vec<i32> = masked.iter().map(|&place| place as i32).collect();
                let (tokens, lengths) = (integers(ids), [ids.len() as i32]);
                let inputs =
                    [("tokens", &tokens[..]), ("token_types", &types), ("lengths", &lengths), ("masked", &masked)];
                fill(executor, &inputs.map(|(name, numbers)| (name, Integers(numbers))))
            }
            LiveInput::Pair { source, read } => {
                let (lengths, source, read) = ([source.len() as i32], integers(source), integers(read));
                let inputs = [("source", &source[..]), ("source_lengths", &lengths), ("target", &read)];
                fill(executor, &inputs.map(|(name, numbers)| (name, Integers(numbers))))
            }
            LiveInput::Audio { mel, read } => {
                fill(executor, &[("mel", Floats(mel)), ("target", Integers(&integers(read)))])
            }
        }
    }
}

impl Lengths {
    pub(crate) fn call(self) -> Call<'static> {
        Call::whole(1).tokens(self.tokens).target(self.target).masked(self.masked)
    }
}
