//! Multi-head attention: `softmax(scale · Q Kᵀ + bias, masked) V`. The weight matrix is never materialised.
//!
//! A masked key has weight exactly 0; a query whose keys are all masked gives zeros. Dropout applies to the weights.
//!
//! **Heads.** Keys and values may have fewer heads than queries (grouped-query attention; multi-query attention has
//! one): query head h reads key/value head `h / (heads / kv_heads)`, as if each had been repeated `heads / kv_heads`
//! times in a row (LLaMA's `repeat_kv`). Their gradients are summed over the query heads of a group.
//!
//! **Positions.** Key j is at position j. Query i of sample b is at position `p = offsets[b] + i` or, without offsets,
//! at `p = i + keys - queries`: the last query is at the last key. With a KV cache, k and v have `capacity` rows, and
//! the offset is the number of rows that a sample had before this call.
//!
//! | mask | a query at position p attends to key j if | |
//! |---|---|---|
//! | `causal` | `j <= p` | |
//! | `causal` and `window` | `p - window < j <= p` | Mistral's sliding window: `window` keys including its own |
//! | `window` alone | `p - window <= j <= p + window` | Longformer's one-sided width: `2 · window + 1` keys |
//!
//! Padding masks further keys. Rows of k and v that are hidden from every query of a sample, by padding or by position,
//! are never read: the unused part of a cache may hold anything, even NaN.
//!
//! | | |
//! |---|---|
//! | shapes | `q [batch, queries, heads·d]`, `k`, `v [batch, keys, kv_heads·d]`, or all three packed as `[batch, tokens, 3·heads·d]` (q, then k, then v), give `[batch, queries, heads·d]`, and log Σ e^score per row `[batch, heads, queries]` |
//! | padding | lengths `[batch]`, or a mask `[batch, keys]` (0 is padding), i32 |
//! | bias | `[1 or batch, 1 or heads, queries, keys]` |
//! | offsets | `[batch]`, i32 |
//! | FLOPs | `4 · batch · queries · keys · heads · d`, and `5 · batch · heads · queries · keys` for the softmax; 10 and 8 for the gradient. With a window, `keys` is at most the number of keys that a query attends to |
//! | gradients | with the weights P (recomputed), `dP = dO Vᵀ`, `dS = P (dP - Σ dO·O)`: `dQ = scale dS K`, `dK = scale dSᵀ Q`, `dV = Pᵀ dO`, `dbias = dS`, each summed over broadcast axes; lengths, masks and offsets have none |

use std::ops::Range;

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Mode, Value};
use crate::ops::linear::product_dtype;
use crate::ops::{Broken, Drop, Op, Pad, Rules, SoftmaxGradient, expect_float};
use crate::precision::Precision;
use crate::random::place_of;
use crate::types::{DType, Shape, Type};

/// Queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub enum AttentionInputs {
    /// One value `[batch, tokens, 3·dim]`: q, k, v concatenated along the last axis.
    Packed(Value),
    /// Three values; the number of queries may differ from the number of keys.
    Separate {
        /// `[batch, queries, heads·head_dim]`
        q: Value,
        /// `[batch, keys, kv_heads·head_dim]`
        k: Value,
        /// `[batch, keys, kv_heads·head_dim]`
        v: Value,
    },
}

/// Which keys are padding.
#[derive(Clone, Copy, Debug, Default)]
pub enum Padding {
    /// None.
    #[default]
    None,
    /// Keys at index `lengths[sample]` and beyond; `[batch]`, i32.
    Lengths(Value),
    /// Keys whose `mask [batch, keys]` (i32) is 0.
    Mask(Value),
}

/// Settings of attention.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions {
    /// Number of query heads; must divide the width of q.
    pub heads: usize,
    /// Number of key/value heads; must divide `heads`. Defaults to `heads`. Fewer require separate inputs.
    pub kv_heads: Option<usize>,
    /// Scale of the scores; defaults to 1/√head_dim.
    pub scale: Option<f32>,
    /// Whether a query attends only to keys up to its own position.
    pub causal: bool,
    /// With `causal`, the number of keys that a query attends to, including its own; without, the number on each side
    /// of its own.
    pub window: Option<usize>,
    /// `[batch]`, i32: the position of each sample's first query, for `causal` or `window`. By default the last query
    /// is at the last key.
    pub offsets: Option<Value>,
    /// Which keys are padding.
    pub padding: Padding,
    /// Added to the scores.
    pub bias: Option<Value>,
    /// Dropout rate of the weights.
    pub dropout: f32,
}

/// The kind of padding input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingKind {
    /// No padding input.
    None,
    /// Lengths.
    Lengths,
    /// A mask.
    Mask,
}

/// Inputs: qkv or q, k, v; then those of padding, bias and offsets that are used. Results: the output, and the
/// log-sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads.
    pub kv_heads: usize,
    /// Scale of the scores; `None`: 1/√head_dim.
    pub scale: Option<f32>,
    /// Whether a query attends only to keys up to its own position.
    pub causal: bool,
    /// See [`AttentionOptions::window`].
    pub window: Option<usize>,
    /// Whether q, k and v are packed in one value.
    pub packed: bool,
    /// Kind of padding.
    pub padding: PaddingKind,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether there are offsets.
    pub offsets: bool,
    /// Dropout of the weights.
    pub dropout: Option<Drop>,
    /// Precision; determines the dtype of the result.
    pub precision: Precision,
}

/// The attention weights, before dropout: `[batch, heads, queries, keys]`. Inputs as for [`Attention`].
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionWeights {
    /// The attention they belong to.
    pub of: Attention,
}

/// The gradient. Inputs as for [`Attention`], then the output, the log-sums, and the output's gradient. Results: dqkv
/// or dq, dk, dv; then dbias if `bias_gradient`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGradient {
    /// The attention that is differentiated.
    pub of: Attention,
    /// Whether the bias gradient is computed.
    pub bias_gradient: bool,
}

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of samples.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads.
    pub kv_heads: usize,
    /// Queries per sample.
    pub queries: usize,
    /// Keys per sample.
    pub keys: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl Sizes {
    /// Query heads that share a key/value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }
}

/// How far a query attends: at position p, to keys `p - behind ..= p + ahead`. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Keys before its own position.
    pub behind: Option<usize>,
    /// Keys after its own position.
    pub ahead: Option<usize>,
}

impl Reach {
    /// Whether a query attends to all keys, whatever its position.
    pub fn is_unlimited(self) -> bool {
        self.behind.is_none() && self.ahead.is_none()
    }

    /// The keys of `0..keys` that queries at positions `first ..= last` attend to, taken together.
    pub fn keys(self, first: i64, last: i64, keys: usize) -> Range<usize> {
        let limited = |position: i64| position.clamp(0, keys as i64) as usize;
        let as_position = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 2);
        let start = self.behind.map_or(0, |behind| limited(first.saturating_sub(as_position(behind))));
        let end = self.ahead.map_or(keys, |ahead| limited(last.saturating_add(as_position(ahead)).saturating_add(1)));
        start.min(end)..end
    }

    /// The most keys of `0..keys` that one query attends to.
    fn most_keys(self, keys: usize) -> usize {
        match (self.behind, self.ahead) {
            (Some(behind), Some(ahead)) => behind.saturating_add(ahead).saturating_add(1).min(keys),
            _ => keys,
        }
    }
}

impl Attention {
    /// Number of inputs that hold q, k and v.
    pub fn projections(&self) -> usize {
        if self.packed { 1 } else { 3 }
    }

    /// Index of the padding input.
    pub fn padding_input(&self) -> Option<usize> {
        (self.padding != PaddingKind::None).then(|| self.projections())
    }

    /// Index of the bias input.
    pub fn bias_input(&self) -> Option<usize> {
        self.bias.then(|| self.projections() + usize::from(self.padding != PaddingKind::None))
    }

    /// Index of the offsets input: the last one.
    pub fn offsets_input(&self) -> Option<usize> {
        self.offsets.then(|| self.input_count() - 1)
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        let optional = [self.padding != PaddingKind::None, self.bias, self.offsets];
        self.projections() + optional.into_iter().filter(|&used| used).count()
    }

    /// The scale of the scores.
    pub fn scale_for(&self, head_dim: usize) -> f32 {
        self.scale.unwrap_or_else(|| (1.0 / (head_dim as f64).sqrt()) as f32)
    }

    /// How far a query attends.
    pub(crate) fn reach(&self) -> Reach {
        match (self.causal, self.window) {
            (true, window) => Reach { behind: window.map(|window| window.saturating_sub(1)), ahead: Some(0) },
            (false, window) => Reach { behind: window, ahead: window },
        }
    }

    /// The sizes, or the requirement that the inputs do not meet.
    pub(crate) fn sizes<'s>(&self, count: usize, shape: impl Fn(usize) -> &'s Shape) -> Result<Sizes, Broken> {
        if count < self.input_count() {
            return Err(format!("takes {} inputs, got {count}", self.input_count()));
        }
        let (batch, queries, keys, dim, kv_dim) = if self.packed {
            match *shape(0).axes() {
                [batch, tokens, packed] if packed % 3 == 0 => (batch, tokens, tokens, packed / 3, packed / 3),
                _ => return Err("packed q, k, v must be [batch, tokens, 3·dim]".to_string()),
            }
        } else {
            match (shape(0).axes(), shape(1).axes(), shape(2).axes()) {
                (&[batch, queries, dim], k @ &[k_batch, keys, kv_dim], v) if k == v && k_batch == batch => {
                    (batch, queries, keys, dim, kv_dim)
                }
                _ => return Err(self.separate_rule()),
            }
        };
        if self.heads == 0 || dim % self.heads != 0 {
            return Err(format!("the {} heads must divide dim {dim}", self.heads));
        }
        if !self.heads.is_multiple_of(self.kv_heads) || self.kv_heads == 0 {
            return Err(format!("the {} key/value heads must divide the {} query heads", self.kv_heads, self.heads));
        }
        let head_dim = dim / self.heads;
        if kv_dim != self.kv_heads * head_dim {
            return Err(self.separate_rule());
        }
        self.check_masks([batch, keys], shape)?;
        Ok(Sizes { batch, heads: self.heads, kv_heads: self.kv_heads, queries, keys, head_dim })
    }

    fn separate_rule(&self) -> Broken {
        match (self.packed, self.kv_heads == self.heads) {
            (true, _) => "packed q, k, v have as many key/value heads as query heads; give them separately".to_string(),
            (false, true) => "q must be [batch, queries, dim], k and v [batch, keys, dim]".to_string(),
            (false, false) => format!(
                "q must be [batch, queries, {}·head_dim], k and v [batch, keys, {}·head_dim]",
                self.heads, self.kv_heads
            ),
        }
    }

    fn check_masks<'s>(&self, [batch, keys]: [usize; 2], shape: impl Fn(usize) -> &'s Shape) -> Result<(), Broken> {
        match (self.padding, self.padding_input().map(|input| shape(input).axes())) {
            (PaddingKind::Lengths, Some(axes)) if axes != [batch] => return Err("lengths must be [batch]".to_string()),
            (PaddingKind::Mask, Some(axes)) if axes != [batch, keys] => {
                return Err("the mask must be [batch, keys]".to_string());
            }
            _ => {}
        }
        match self.offsets_input().map(|input| shape(input).axes()) {
            Some(axes) if axes != [batch] => Err("offsets must be [batch]".to_string()),
            _ => Ok(()),
        }
    }

    fn check(&self, inputs: &[Type]) -> Result<Sizes, Broken> {
        let sizes = self.sizes(inputs.len(), |input| &inputs[input].shape)?;
        for input in &inputs[..self.projections()] {
            expect_float(input)?;
        }
        if self.padding_input().is_some_and(|i| inputs[i].dtype != DType::I32) {
            return Err("lengths and masks must be i32".to_string());
        }
        if self.offsets_input().is_some_and(|i| inputs[i].dtype != DType::I32) {
            return Err("offsets must be i32".to_string());
        }
        if self.window == Some(0) {
            return Err("the window must be at least 1".to_string());
        }
        if self.offsets && self.reach().is_unlimited() {
            return Err("offsets need `causal` or a window: without them no weight depends on positions".to_string());
        }
        self.check_bias(inputs, sizes)?;
        if self.scale.is_some_and(|scale| !scale.is_finite()) {
            return Err("the scale must be finite".to_string());
        }
        if let Some(drop) = self.dropout.filter(|drop| !(0.0..1.0).contains(&drop.rate)) {
            return Err(format!("the dropout rate must be at least 0 and under 1, it is {}", drop.rate));
        }
        Ok(sizes)
    }

    fn check_bias(&self, inputs: &[Type], sizes: Sizes) -> Result<(), Broken> {
        let Some(bias) = self.bias_input().map(|i| &inputs[i]) else { return Ok(()) };
        let fits = match *bias.shape.axes() {
            [batch, heads, queries, keys] => {
                (batch == 1 || batch == sizes.batch)
                    && (heads == 1 || heads == sizes.heads)
                    && (queries, keys) == (sizes.queries, sizes.keys)
            }
            _ => false,
        };
        if !fits || bias.dtype != DType::F32 {
            return Err("the bias must be f32 [1 or batch, 1 or heads, queries, keys]".to_string());
        }
        Ok(())
    }

    fn output_dtype(&self, inputs: &[Type]) -> DType {
        match product_dtype(self.precision) {
            DType::Bf16 => DType::Bf16,
            _ => inputs[0].dtype,
        }
    }

    /// The number of scores, and the FLOPs of computing them.
    fn score_count(inputs: &[&Type], op: &Attention) -> (u64, u64) {
        op.sizes(inputs.len(), |input| &inputs[input].shape).map_or((0, 0), |s| {
            let scores = (s.batch * s.heads * s.queries) as u64 * op.reach().most_keys(s.keys) as u64;
            (scores, scores * s.head_dim as u64)
        })
    }
}

impl Rules for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let s = self.check(inputs)?;
        let output = Type::new([s.batch, s.queries, s.heads * s.head_dim], self.output_dtype(inputs));
        Ok(vec![output, Type::f32([s.batch, s.heads, s.queries])])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        let (scores, products) = Attention::score_count(inputs, self);
        4 * products + 5 * scores
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(d_out) = backward.output_gradient(0) else { return Ok(()) };
        let mut inputs = Vec::new();
        for index in 0..self.input_count() {
            inputs.push(backward.input(index)?);
        }
        inputs.extend([backward.output(0)?, backward.output(1)?, d_out]);
        let bias_gradient = self.bias_input().is_some_and(|index| backward.wants(index));
        let op = AttentionGradient { of: self.clone(), bias_gradient };
        let first = backward.graph().push(op, &inputs)?;
        for index in 0..self.projections() {
            if backward.wants(index) {
                backward.give(index, Value::new(first.node(), index))?;
            }
        }
        match self.bias_input() {
            Some(index) if bias_gradient => backward.give(index, Value::new(first.node(), self.projections())),
            _ => Ok(()),
        }
    }
}

impl Rules for AttentionWeights {
    fn name(&self) -> &'static str {
        "attention_weights"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let s = self.of.check(inputs)?;
        Ok(vec![Type::f32([s.batch, s.heads, s.queries, s.keys])])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        let (scores, products) = Attention::score_count(inputs, &self.of);
        2 * products + 5 * scores
    }

    /// With the weights P, `dS = P (dP - Σ P dP)`: `dQ = scale dS K`, `dK = scale dSᵀ Q`.
    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(dp) = backward.output_gradient(0) else { return Ok(()) };
        if self.of.bias_input().is_some_and(|index| backward.wants(index)) {
            return backward.refuse("attention weights give no gradient to a bias; take it through attention itself");
        }
        let p = backward.output(0)?;
        let mut inputs = Vec::new();
        for index in 0..self.of.projections() {
            inputs.push(backward.input(index)?);
        }
        let wanted = (0..self.of.projections()).any(|index| backward.wants(index));
        if !wanted {
            return Ok(());
        }
        let gradients = score_gradients(backward.graph(), &self.of, &inputs, [dp, p])?;
        for (index, gradient) in gradients.into_iter().enumerate() {
            if backward.wants(index) {
                backward.give(index, gradient)?;
            }
        }
        Ok(())
    }
}

/// The gradients of what weights are computed from, as attention has its inputs: qkv, or q and k.
fn score_gradients(g: &mut Graph, op: &Attention, inputs: &[Value], [dp, p]: [Value; 2]) -> Result<Vec<Value>> {
    let &[batch, heads, queries, keys] = g.shape_of(p).axes() else { return Ok(Vec::new()) };
    let (q, k) = match *inputs {
        [packed] => {
            let dim = g.shape_of(packed).columns() / 3;
            (g.slice(packed, 2, 0, dim)?, g.slice(packed, 2, dim, 2 * dim)?)
        }
        _ => (inputs[0], inputs[1]),
    };
    let width = g.shape_of(q).columns() / heads;
    let (kv, rows) = (op.kv_heads, heads / op.kv_heads * queries);
    let ds = g.push(SoftmaxGradient, &[dp, p])?;
    let ds = g.scale(ds, op.scale_for(width))?;
    let ds = g.reshape(ds, [batch, kv, rows, keys])?;
    let by_heads = g.by_heads(q, [batch, queries, heads, width])?;
    let by_heads = g.reshape(by_heads, [batch, kv, rows, width])?;
    let k = g.by_heads(k, [batch, keys, kv, width])?;
    let dq = g.matmul(ds, k, false, false)?;
    let dq = g.reshape(dq, [batch, heads, queries, width])?;
    let dk = g.matmul(ds, by_heads, true, false)?;
    let mut back = |x: Value, tokens: usize, heads: usize| {
        let x = g.transpose(x, &[0, 2, 1, 3])?;
        g.reshape(x, [batch, tokens, heads * width])
    };
    let (dq, dk) = (back(dq, queries, heads)?, back(dk, keys, kv)?);
    if !op.packed {
        return Ok(vec![dq, dk]);
    }
    let both = g.concat(&[dq, dk], 2)?;
    let dim = heads * width;
    Ok(vec![g.push(Pad { axis: 2, start: 0, size: 3 * dim }, &[both])?])
}

impl Rules for AttentionGradient {
    fn name(&self) -> &'static str {
        "attention_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let count = self.of.input_count();
        self.of.check(inputs.get(..count).ok_or("takes attention's inputs, output, log-sums and gradient")?)?;
        let mut outputs = inputs[..self.of.projections()].to_vec();
        if let Some(bias) = self.of.bias_input().filter(|_| self.bias_gradient) {
            outputs.push(inputs[bias].clone());
        }
        Ok(outputs)
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        let (scores, products) = Attention::score_count(inputs, &self.of);
        10 * products + 8 * scores
    }
}

impl Graph {
    /// Multi-head attention. The result is `[batch, queries, heads·head_dim]`.
    pub fn attention(&mut self, inputs: AttentionInputs, options: &AttentionOptions) -> Result<Value> {
        let (mut values, packed) = match inputs {
            AttentionInputs::Packed(qkv) => (vec![qkv], true),
            AttentionInputs::Separate { q, k, v } => (vec![q, k, v], false),
        };
        let padding = match options.padding {
            Padding::None => PaddingKind::None,
            Padding::Lengths(lengths) => {
                values.push(lengths);
                PaddingKind::Lengths
            }
            Padding::Mask(mask) => {
                values.push(mask);
                PaddingKind::Mask
            }
        };
        values.extend(options.bias);
        values.extend(options.offsets);
        let acts = options.dropout != 0.0 && (self.mode() == Mode::Training || !(0.0..1.0).contains(&options.dropout));
        let place = place_of(&self.next_path("attention"));
        let op = Attention {
            heads: options.heads,
            kv_heads: options.kv_heads.unwrap_or(options.heads),
            scale: options.scale,
            causal: options.causal,
            window: options.window,
            packed,
            padding,
            bias: options.bias.is_some(),
            offsets: options.offsets.is_some(),
            dropout: acts.then_some(Drop { rate: options.dropout, place }),
            precision: self.precision(),
        };
        let attention = self.push(op, &values)?;
        let mixed = self.intervened_attention(attention)?;
        let heads = self.next_path("heads");
        self.register(heads, mixed, "values")?;
        Ok(mixed)
    }

    /// The weights of an attention, `[batch, heads, queries, keys]`, before dropout. Requesting them changes nothing
    /// else. `attention` is a result of [`Graph::attention`].
    pub fn attention_weights(&mut self, attention: Value) -> Result<Value> {
        let node = self.nodes().get(attention.node());
        let Some((Op::Attention(op), inputs, path)) = node.map(|n| (n.op.clone(), n.inputs.clone(), n.path.clone()))
        else {
            let rule = "weights can be asked of the result of an attention only".to_string();
            let path = self.path_of("attention_weights");
            return Err(crate::Error::Rule { op: "attention_weights", path, inputs: Vec::new(), rule });
        };
        self.add_op_at(AttentionWeights { of: op }.into(), &inputs, Vec::new(), format!("{path}_weights"))
    }
}
