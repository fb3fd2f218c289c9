//! The part of an architecture that a graph is built for, and its named outputs.

use vitreous_engine::{DType, Error, Result, Value};

use crate::adapters::Adapters;

/// Which part of a model to build, and for which sizes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// Batch size.
    pub batch: usize,
    /// Tokens per sample, or per source sequence. Unused by image models.
    pub tokens: usize,
    /// Tokens per target sequence; in a decoding step, the capacity of the KV cache.
    pub target: usize,
    /// The part.
    pub part: Part,
    /// The format of the KV caches of a decoding step.
    pub cache: CacheFormat,
    /// Images that the graph computes itself, in place of an input.
    pub images: Option<Value>,
    /// Number of masked tokens of the whole batch: the masked-token head computes `logits [masked, vocabulary]` only for
    /// the tokens that the input `masked [masked]` (i32) names by their index in `batch * length`. 0: for every token.
    pub masked: usize,
    /// The most documents in a sequence of a decoder, if they are kept apart: each is read as if it were alone. The inputs
    /// `documents [batch, length]` and, of models with absolute positions, `positions [batch, length]` (i32) give each token's document and
    /// its place there. 0: a sequence is one text.
    pub documents: usize,
    /// Low-rank adapters.
    pub adapters: Option<&'a Adapters>,
}

/// The format of KV caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheFormat {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, for graphs that compute in bf16.
    Bf16,
}

impl From<CacheFormat> for DType {
    fn from(format: CacheFormat) -> DType {
        match format {
            CacheFormat::F32 => DType::F32,
            CacheFormat::Bf16 => DType::Bf16,
        }
    }
}

/// The shape of a decoding step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepShape {
    /// Targets that are decoded at once: slots of the caches.
    pub batch: usize,
    /// Tokens of each source, with padding.
    pub source: usize,
    /// The most tokens of a target.
    pub capacity: usize,
    /// The format of the KV caches.
    pub cache: CacheFormat,
}

impl From<StepShape> for Call<'_> {
    fn from(shape: StepShape) -> Self {
        let StepShape { batch, source, capacity, cache } = shape;
        Call { cache, ..Call::whole(batch).tokens(source).target(capacity).part(Part::Step) }
    }
}

/// A part of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// From all inputs to all outputs; decoders with teacher forcing.
    #[default]
    Whole,
    /// The encoder, and the cross-attention keys and values of every decoder layer.
    Encode,
    /// One decoding step: one token per sequence, with the keys and values of earlier tokens in a KV cache.
    Step,
}

impl<'a> Call<'a> {
    /// The whole model for this batch size, with one token per sample.
    pub fn whole(batch: usize) -> Call<'a> {
        Call { batch, tokens: 1, target: 1, ..Call::default() }
    }

    /// Sets the number of tokens per sample.
    pub fn tokens(self, tokens: usize) -> Call<'a> {
        Call { tokens, ..self }
    }

    /// Sets the number of tokens per target.
    pub fn target(self, target: usize) -> Call<'a> {
        Call { target, ..self }
    }

    /// Sets the part.
    pub fn part(self, part: Part) -> Call<'a> {
        Call { part, ..self }
    }

    /// Sets the adapters, if any.
    pub fn adapters(self, adapters: Option<&'a Adapters>) -> Call<'a> {
        Call { adapters, ..self }
    }

    /// Sets the number of masked tokens that the masked-token head is computed for.
    pub fn masked(self, masked: usize) -> Call<'a> {
        Call { masked, ..self }
    }

    /// Keeps so many documents of a sequence apart.
    pub fn documents(self, documents: usize) -> Call<'a> {
        Call { documents, ..self }
    }

    /// Sets images computed by the graph.
    pub fn images(self, images: Option<Value>) -> Call<'a> {
        Call { images, ..self }
    }
}

/// The named outputs of a model.
#[derive(Clone, Debug, Default)]
pub struct Outputs(Vec<(String, Value)>);

impl Outputs {
    /// These outputs.
    pub fn new<const N: usize>(values: [(&str, Value); N]) -> Outputs {
        Outputs(values.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }

    /// Adds an output, if there is one.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Option<Value>>) {
        if let Some(value) = value.into() {
            self.0.push((name.into(), value));
        }
    }

    /// The output with this name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The output with this name, or an error that lists those there are.
    pub fn need(&self, name: &str) -> Result<Value> {
        self.get(name).ok_or_else(|| {
            let known = self.0.iter().map(|(name, _)| name.clone()).collect();
            Error::Unknown { what: "output", name: name.to_string(), known }
        })
    }

    /// The main result: logits if the model has a head, otherwise one vector per sample or per token.
    pub fn result(&self) -> Result<Value> {
        self.get("logits").or_else(|| self.get("features")).map_or_else(|| self.need("tokens"), Ok)
    }

    /// All names and outputs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}
