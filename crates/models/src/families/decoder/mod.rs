//! What decoder-only language models share: their inputs, for a whole sequence and for a step with KV caches, and causal attention.

use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Error, Graph, Padding, Result, Value};

use crate::call::{Call, Part};
use crate::checkpoint::json::Fault;
use crate::checkpoint::prefix_of;
use crate::family::Checkpoint;
use crate::settings::ConfigError;
use crate::signature::{Gives, Signature, Takes, TokenInput};

/// The tokens of a call, and what attention needs to know of them.
///
/// The whole model has the inputs `tokens [batch, length]` and `lengths [batch]`, beyond which a sequence is padding. A step has
/// `tokens [batch, length]`, the next tokens of each sequence; `place [batch]`, how many came before them; `length [batch]`, how many
/// there are with them; and the caches `blocks.N.keys` and `blocks.N.values [batch, capacity, width]`, to which it adds its own.
/// Behind the last token of a shorter sequence anything may stand: the next step overwrites it. With a sliding window a step also has
/// `row [batch]`, the row of the cache that the first of them goes to, which `length` then counts from, too: a cache needs the rows of
/// the window only, if those before are dropped. If documents in one sequence are kept apart, there is `documents [batch, length]`, the
/// number of each token's document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    /// `[batch, length]`.
    pub tokens: Value,
    /// Keys that a sequence has: `[batch]`.
    lengths: Value,
    /// The position of the first token of each sequence, in a step: `[batch]`.
    pub place: Option<Value>,
    /// The row of the cache that it goes to, if that is not its position: `[batch]`.
    row: Option<Value>,
    /// What is added to attention scores, so that documents in one sequence do not see each other: `[batch, 1, length, length]`.
    between: Option<Value>,
    batch: usize,
    length: usize,
    /// Rows of a cache, and how they are stored.
    capacity: usize,
    cache: DType,
}

/// The KV cache of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerCache {
    keys: Value,
    values: Value,
}

impl Sequence {
    /// Declares the inputs of a call.
    pub fn new(g: &mut Graph, call: &Call, family: &'static str, max_length: usize) -> Result<Sequence> {
        let (batch, length) = (call.batch, call.tokens);
        let longest = if call.part == Part::Step { call.target.max(length) } else { length };
        if longest > max_length {
            let what = format!("a sequence of {longest} tokens is longer than max_length, {max_length}");
            return Err(refused(family, what));
        }
        let tokens = g.input("tokens", [batch, length], DType::I32)?;
        let (lengths, place) = match call.part {
            Part::Whole => (g.input("lengths", [batch], DType::I32)?, None),
            Part::Step => {
                let place = g.input("place", [batch], DType::I32)?;
                (g.input("length", [batch], DType::I32)?, Some(place))
            }
            Part::Encode => return Err(refused(family, "a decoder has no encoder".to_string())),
        };
        let between = match (call.part, call.documents) {
            (Part::Whole, documents @ 1..) => Some(between_documents(g, batch, length, documents)?),
            _ => None,
        };
        Ok(Sequence {
            tokens,
            lengths,
            place,
            row: None,
            between,
            batch,
            length,
            capacity: call.target,
            cache: call.cache.into(),
        })
    }

    /// Declares what attention with a sliding window needs besides.
    pub fn with_window(self, g: &mut Graph, window: Option<usize>) -> Result<Sequence> {
        let row = match (self.place, window) {
            (Some(_), Some(_)) => Some(g.input("row", [self.batch], DType::I32)?),
            _ => None,
        };
        Ok(Sequence { row, ..self })
    }

    /// Declares the cache of a layer for keys and values of this width, if there is one. In the layer's scope.
    pub fn layer_cache(&self, g: &mut Graph, width: usize) -> Result<Option<LayerCache>> {
        if self.place.is_none() {
            return Ok(None);
        }
        let mut declare = |name: &str| g.cache(name, [self.batch, self.capacity, width], self.cache);
        Ok(Some(LayerCache { keys: declare("keys")?, values: declare("values")? }))
    }

    /// Causal attention of the tokens to themselves and to those before them: `q [batch, length, heads * head_dim]`.
    pub fn attend(
        &self,
        g: &mut Graph,
        [q, k, v]: [Value; 3],
        cache: Option<LayerCache>,
        options: AttentionOptions,
    ) -> Result<Value> {
        let row = self.row.or(self.place);
        let (k, v) = match (cache, row) {
            (Some(cache), Some(row)) => {
                let (k, v) = (g.cast(k, self.cache)?, g.cast(v, self.cache)?);
                (g.write_rows(cache.keys, k, row)?, g.write_rows(cache.values, v, row)?)
            }
            _ => (k, v),
        };
        g.attention(AttentionInputs::Separate { q, k, v }, &self.causal(options))
    }

    /// The same of `qkv [batch, length, 3 dim]`, which is taken apart only where keys and values go into a cache.
    pub fn attend_packed(
        &self,
        g: &mut Graph,
        qkv: Value,
        cache: Option<LayerCache>,
        options: AttentionOptions,
    ) -> Result<Value> {
        if cache.is_none() {
            return g.attention(AttentionInputs::Packed(qkv), &self.causal(options));
        }
        let axis = g.shape_of(qkv).rank() - 1;
        let dim = g.shape_of(qkv).columns() / 3;
        let mut part = |index: usize| g.slice(qkv, axis, index * dim, (index + 1) * dim);
        let parts = [part(0)?, part(1)?, part(2)?];
        self.attend(g, parts, cache, options)
    }

    /// What each token attends to.
    fn causal(&self, options: AttentionOptions) -> AttentionOptions {
        let (offsets, padding) = (self.row.or(self.place), Padding::Lengths(self.lengths));
        AttentionOptions { causal: true, padding, offsets, bias: self.between, ..options }
    }

    /// The tokens that logits are computed for: all, `[batch, length, dim]`; in a step the last of each sequence, `[batch, dim]`, which
    /// the input `last [batch]` names by its index in `batch * length` if a step takes several tokens.
    pub fn for_logits(&self, g: &mut Graph, x: Value) -> Result<Value> {
        let width = g.shape_of(x).columns();
        if self.place.is_none() {
            return Ok(x);
        }
        let rows = g.reshape(x, [self.batch * self.length, width])?;
        if self.length == 1 {
            return Ok(rows);
        }
        let last = g.input("last", [self.batch], DType::I32)?;
        g.embedding(rows, last)
    }
}

/// What is added to the attention score of two tokens: 0 in one document, and so little otherwise that no weight is left. `[batch, 1, length,
/// length]`.
///
/// Tokens are as many unit vectors as there are documents; the product with a matrix that has zeros on its diagonal compares them.
fn between_documents(g: &mut Graph, batch: usize, length: usize, documents: usize) -> Result<Value> {
    const FAR_BELOW: f32 = -1e9;
    let numbers = g.input("documents", [batch, length], DType::I32)?;
    g.scope("documents_apart", |g| {
        let matrix = |same: f32, other: f32| {
            let entry = move |place: usize| if place / documents == place % documents { same } else { other };
            (0..documents * documents).map(entry).collect::<Vec<f32>>()
        };
        let own = g.constant("own", [documents, documents], matrix(1.0, 0.0))?;
        let others = g.constant("others", [documents, documents], matrix(0.0, FAR_BELOW))?;
        let (own, others) = (g.embedding(own, numbers)?, g.embedding(others, numbers)?); // [batch, length, documents]
        let scores = g.matmul(own, others, false, true)?; // [batch, length, length]
        let scores = g.cast(scores, DType::F32)?;
        g.reshape(scores, [batch, 1, length, length])
    })
}

/// An error for a graph that a family cannot build.
pub(crate) fn refused(family: &'static str, rule: String) -> Error {
    Error::Rule { op: family, path: "config".to_string(), inputs: Vec::new(), rule }
}

/// What a language model takes and gives.
pub(crate) fn signature(vocabulary: usize, dim: usize, longest: usize, window: Option<usize>) -> Signature {
    let takes = Takes::Tokens(TokenInput { vocabulary, longest, token_types: 0, window });
    Signature { takes, gives: vec![Gives::NextToken(vocabulary), Gives::TokenVectors(dim)] }
}

/// The refusal of another head.
pub(crate) fn keeps_head() -> ConfigError {
    ConfigError("the head of a language model cannot be replaced".to_string())
}

/// What stands before the names of a checkpoint's tensors.
pub(crate) struct Prefixes {
    /// Before all of them.
    pub all: String,
    /// Behind that, before those of the backbone, with its dot; empty in a file of the backbone alone.
    pub backbone: String,
    /// Whether the output has a matrix of its own.
    pub has_head: bool,
}

/// The prefixes in a checkpoint of Hugging Face's, found by its table of words.
pub(crate) fn prefixes(checkpoint: &Checkpoint, words: &str, backbone: &str) -> std::result::Result<Prefixes, Fault> {
    let Some(tensors) = checkpoint.tensors else {
        return Ok(Prefixes { all: String::new(), backbone: String::new(), has_head: true });
    };
    let model_type = checkpoint.model_type()?.unwrap_or_default();
    let prefix = prefix_of(tensors, words, &[backbone]).ok_or_else(|| {
        Fault::whole(format!("it is a configuration of `{model_type}`, but no tensor beside it is called `{words}`"))
    })?;
    let backbone = format!("{backbone}.");
    let (all, backbone) = match prefix.strip_suffix(&backbone) {
        Some(all) => (all.to_string(), backbone),
        None => (prefix.to_string(), String::new()),
    };
    let has_head = tensors.contains_key(&format!("{all}lm_head.weight"));
    Ok(Prefixes { all, backbone, has_head })
}
