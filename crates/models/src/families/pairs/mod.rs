//! What encoder-decoders share: their inputs, for teacher forcing and for a step with KV caches, and the attention of a decoder.
//!
//! The whole model has the inputs `source [batch, source]`, `source_lengths [batch]`, behind which a source is padding, and
//! `target [batch, target]`. Padding behind a target needs no mask: no earlier place sees it.
//!
//! A step has `token [batch]`, the last token of each target; `place [batch]`, how many tokens came before it; `length [batch]`, one more
//! than that; `source_lengths [batch]`; and, of each layer, the caches `decoder.N.keys` and `decoder.N.values [batch, capacity, width]`,
//! to which a run adds those of its own token, and `source_keys` and `source_values [batch, source, width]`. Where attention depends on
//! how far back a key lies, it also has `distances [batch, capacity]`: for each key `max(place - key, 0)`.

#[cfg(test)]
mod tests;

use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Error, Graph, Padding, Result, Value};

use crate::call::{Call, Outputs, Part};

/// What the parts of an encoder-decoder's graph have in common.
pub(crate) struct PairSizes {
    /// The family, in errors.
    pub family: &'static str,
    /// The most tokens of a source and of a target.
    pub max_length: usize,
    pub decoder_layers: usize,
    /// The vocabulary size of targets.
    pub vocabulary: usize,
}

/// Builds the part of a model that a call asks for, of an encoder, which gives its result, a decoder, which gives logits
/// `[batch, length, vocabulary]`, and the keys and values that a layer of the decoder takes of the encoder's result. Outputs: of the
/// whole, `memory [batch, source, dim]`, the encoder's result, and `logits`; of a step, `logits [batch, vocabulary]`; of the encoder, what
/// a decoder's caches take.
pub(crate) fn build_part(
    g: &mut Graph,
    call: &Call,
    sizes: &PairSizes,
    encoder: impl Fn(&mut Graph) -> Result<(Value, Source)>,
    decoder: impl Fn(&mut Graph, &Target) -> Result<Value>,
    keys_and_values: impl Fn(&mut Graph, Value) -> Result<(Value, Value)>,
) -> Result<Outputs> {
    let longest = call.tokens.max(if call.part == Part::Encode { 0 } else { call.target });
    if longest > sizes.max_length {
        let what = format!("a sequence of {longest} tokens is longer than max_length, {}", sizes.max_length);
        return Err(refused(sizes.family, what));
    }
    match call.part {
        Part::Whole => {
            let (memory, source) = encoder(g)?;
            let target = Target::whole(g, call, &source, memory)?;
            Ok(Outputs::new([("memory", memory), ("logits", decoder(g, &target)?)]))
        }
        Part::Encode => {
            let (memory, _) = encoder(g)?;
            source_outputs(g, sizes.decoder_layers, |g| keys_and_values(g, memory))
        }
        Part::Step => {
            let target = Target::step(g, call)?;
            let logits = decoder(g, &target)?; // [batch, 1, vocabulary]
            Ok(Outputs::new([("logits", g.reshape(logits, [call.batch, sizes.vocabulary])?)]))
        }
    }
}

/// The sources of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// `[batch, length]`.
    pub tokens: Value,
    /// `[batch]`.
    pub lengths: Value,
}

impl Source {
    /// Declares the inputs.
    pub fn new(g: &mut Graph, call: &Call) -> Result<Source> {
        let tokens = g.input("source", [call.batch, call.tokens], DType::I32)?;
        let lengths = g.input("source_lengths", [call.batch], DType::I32)?;
        Ok(Source { tokens, lengths })
    }

    /// Attention to all tokens of the source.
    pub fn attend(&self, g: &mut Graph, inputs: AttentionInputs, options: AttentionOptions) -> Result<Value> {
        g.attention(inputs, &AttentionOptions { padding: Padding::Lengths(self.lengths), ..options })
    }
}

/// The targets of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// `[batch, length]`; in a step `[batch]`.
    pub tokens: Value,
    /// `[batch]`.
    source_lengths: Value,
    /// The encoder's result, where no cache has the source's keys and values: `[batch, source, dim]`.
    memory: Option<Value>,
    /// Where a step is.
    pub step: Option<StepPlace>,
    /// Samples.
    pub batch: usize,
    /// Tokens of each target.
    pub length: usize,
    /// Rows of the caches of sources, and of targets.
    source: usize,
    capacity: usize,
    cache: DType,
}

/// Where a step is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepPlace {
    /// Tokens before this one: `[batch]`.
    pub place: Value,
    /// Tokens with this one: `[batch]`.
    length: Value,
}

/// The KV caches of one decoder layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerCaches {
    /// Keys and values of the target's tokens so far: each step adds its own.
    own: (Value, Value),
    /// Keys and values of the source.
    source: (Value, Value),
}

impl Target {
    /// Declares the inputs of teacher forcing.
    pub fn whole(g: &mut Graph, call: &Call, source: &Source, memory: Value) -> Result<Target> {
        let tokens = g.input("target", [call.batch, call.target], DType::I32)?;
        Ok(Target { memory: Some(memory), ..Target::new(call, tokens, source.lengths, call.target) })
    }

    /// Declares the inputs of a step.
    pub fn step(g: &mut Graph, call: &Call) -> Result<Target> {
        let mut numbers = |name: &str| g.input(name, [call.batch], DType::I32);
        let (tokens, place) = (numbers("token")?, numbers("place")?);
        let (length, source_lengths) = (numbers("length")?, numbers("source_lengths")?);
        Ok(Target { step: Some(StepPlace { place, length }), ..Target::new(call, tokens, source_lengths, 1) })
    }

    fn new(call: &Call, tokens: Value, source_lengths: Value, length: usize) -> Target {
        let (batch, source, capacity, cache) = (call.batch, call.tokens, call.target, call.cache.into());
        Target { tokens, source_lengths, memory: None, step: None, batch, length, source, capacity, cache }
    }

    /// Rows of the cache of a target.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How far back each row of the cache lies, in a step: `[batch, capacity]`.
    pub fn distances(&self, g: &mut Graph) -> Result<Value> {
        g.input("distances", [self.batch, self.capacity], DType::I32)
    }

    /// Declares the caches of a layer for keys and values of this width, in a step. In the layer's scope.
    pub fn caches(&self, g: &mut Graph, width: usize) -> Result<Option<LayerCaches>> {
        if self.step.is_none() {
            return Ok(None);
        }
        let mut declare = |name: &str, rows: usize| g.cache(name, [self.batch, rows, width], self.cache);
        Ok(Some(LayerCaches {
            own: (declare("keys", self.capacity)?, declare("values", self.capacity)?),
            source: (declare("source_keys", self.source)?, declare("source_values", self.source)?),
        }))
    }

    /// Attention of the tokens to themselves and to those before them.
    pub fn attend_own(
        &self,
        g: &mut Graph,
        [q, k, v]: [Value; 3],
        caches: Option<LayerCaches>,
        options: AttentionOptions,
    ) -> Result<Value> {
        let (Some(caches), Some(step)) = (caches, self.step) else {
            let options = AttentionOptions { causal: true, ..options };
            return g.attention(AttentionInputs::Separate { q, k, v }, &options);
        };
        let (k, v) = (g.cast(k, self.cache)?, g.cast(v, self.cache)?);
        let k = g.write_rows(caches.own.0, k, step.place)?; // [batch, capacity, width]
        let v = g.write_rows(caches.own.1, v, step.place)?;
        let options = AttentionOptions { padding: Padding::Lengths(step.length), ..options };
        g.attention(AttentionInputs::Separate { q, k, v }, &options)
    }

    /// Attention to the source: to the keys and values that a cache has, or that are computed of the encoder's result.
    pub fn attend_source(
        &self,
        g: &mut Graph,
        q: Value,
        caches: Option<LayerCaches>,
        options: AttentionOptions,
        of_memory: impl FnOnce(&mut Graph, Value) -> Result<(Value, Value)>,
    ) -> Result<Value> {
        let (k, v) = match (caches, self.memory) {
            (Some(caches), _) => caches.source,
            (None, Some(memory)) => of_memory(g, memory)?,
            (None, None) => {
                return Err(refused("decoder", "it needs an encoder's result, or a cache of it".to_string()));
            }
        };
        let options = AttentionOptions { padding: Padding::Lengths(self.source_lengths), ..options };
        g.attention(AttentionInputs::Separate { q, k, v }, &options)
    }
}

/// What a decoder asks of the source: of each decoder layer the keys and values of the encoder's result, by the names of the caches that
/// they are for.
pub(crate) fn source_outputs(
    g: &mut Graph,
    layers: usize,
    mut keys_and_values: impl FnMut(&mut Graph) -> Result<(Value, Value)>,
) -> Result<Outputs> {
    let mut outputs = Outputs::default();
    for layer in 0..layers {
        let (keys, values) = g.scope(&format!("decoder.{layer}.cross_attention"), &mut keys_and_values)?;
        outputs.push(format!("decoder.{layer}.source_keys"), keys);
        outputs.push(format!("decoder.{layer}.source_values"), values);
    }
    Ok(outputs)
}

/// The parts of `[.., 3 width]`: query, key and value.
pub(crate) fn three_parts(g: &mut Graph, qkv: Value, width: usize) -> Result<[Value; 3]> {
    let axis = g.shape_of(qkv).rank() - 1;
    let mut part = |index: usize| g.slice(qkv, axis, index * width, (index + 1) * width);
    Ok([part(0)?, part(1)?, part(2)?])
}

/// An error for a graph that a family cannot build.
pub(crate) fn refused(family: &'static str, rule: String) -> Error {
    Error::Rule { op: family, path: "config".to_string(), inputs: Vec::new(), rule }
}
