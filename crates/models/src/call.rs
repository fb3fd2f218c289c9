//! What is asked of an architecture when its graph is built, and the values that it gives by name.

use vitreous_engine::{DType, Error, Result, Value};

use crate::adapters::Adapters;

/// Which part of a model to build, and for which sizes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// Samples at once.
    pub batch: usize,
    /// Tokens of each sample, or of each source. Models of images do not need it.
    pub tokens: usize,
    /// Tokens of each target; in a decoding step the capacity of its cache.
    pub target: usize,
    /// The part.
    pub part: Part,
    /// The format of the KV caches of a decoding step.
    pub cache: CacheFormat,
    /// Images that the graph computes itself, in place of an input.
    pub images: Option<Value>,
    /// Low-rank adapters beside the matrices.
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
    /// From all inputs to all outputs; a decoder by teacher forcing.
    #[default]
    Whole,
    /// What a decoder reads of the source: the encoder, and the keys and values of its result for every decoder layer.
    Encode,
    /// One decoding step: a token per sequence, with the keys and values of those before it in a cache.
    Step,
}

impl<'a> Call<'a> {
    /// The whole model for so many samples; one token each.
    pub fn whole(batch: usize) -> Call<'a> {
        Call { batch, tokens: 1, target: 1, ..Call::default() }
    }

    /// The same for sequences of so many tokens.
    pub fn tokens(self, tokens: usize) -> Call<'a> {
        Call { tokens, ..self }
    }

    /// The same for targets of so many tokens.
    pub fn target(self, target: usize) -> Call<'a> {
        Call { target, ..self }
    }

    /// Another part.
    pub fn part(self, part: Part) -> Call<'a> {
        Call { part, ..self }
    }

    /// With adapters, if there are some.
    pub fn adapters(self, adapters: Option<&'a Adapters>) -> Call<'a> {
        Call { adapters, ..self }
    }

    /// With images that the graph computes.
    pub fn images(self, images: Option<Value>) -> Call<'a> {
        Call { images, ..self }
    }
}

/// The named values that a model gives.
#[derive(Clone, Debug, Default)]
pub struct Outputs(Vec<(String, Value)>);

impl Outputs {
    /// With these values.
    pub fn new<const N: usize>(values: [(&str, Value); N]) -> Outputs {
        Outputs(values.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }

    /// Adds a value, if it is there.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Option<Value>>) {
        if let Some(value) = value.into() {
            self.0.push((name.into(), value));
        }
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The value of a name; an error that says which there are.
    pub fn need(&self, name: &str) -> Result<Value> {
        self.get(name).ok_or_else(|| {
            let known = self.0.iter().map(|(name, _)| name.clone()).collect();
            Error::Unknown { what: "output", name: name.to_string(), known }
        })
    }

    /// The result that the model is for: logits where it has a head, otherwise one vector per sample, or per token.
    pub fn result(&self) -> Result<Value> {
        self.get("logits").or_else(|| self.get("features")).map_or_else(|| self.need("tokens"), Ok)
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}
