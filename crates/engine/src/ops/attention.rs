//! Attention: `softmax(scale · Q Kᵀ + bias, masked) V`, head by head, without ever storing the matrix of weights.
//!
//! A masked position has weight exactly 0; a query whose keys are all masked gives zeros. With a causal mask query i sees
//! key j when `j <= i + keys - queries`: the last query sees every key, as a decoder with a cache needs it.
//! Dropout acts on the weights.
//!
//! | | |
//! |---|---|
//! | shapes | `q [batch, queries, dim]`, `k`, `v [batch, keys, dim]`, or all three in one `[batch, tokens, 3·dim]` (q, then k, then v), give `[batch, queries, dim]`, and each row's log Σ e^score `[batch, heads, queries]` |
//! | padding | lengths `[batch]`, or a mask `[batch, keys]` (0 is padding), i32 |
//! | bias | `[1 or batch, 1 or heads, queries, keys]` |
//! | FLOPs | `4 · batch · queries · keys · dim`, and `5 · batch · heads · queries · keys` for the softmax; the gradient 10 and 8 |
//! | gradients | with weights P (computed again), `dP = dO Vᵀ`, `dS = P (dP - Σ dO·O)`: `dQ = scale dS K`, `dK = scale dSᵀ Q`, `dV = Pᵀ dO`, `dbias = dS` summed over what was repeated |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Mode, Value};
use crate::ops::linear::product_dtype;
use crate::ops::{Broken, Drop, Op, Rules, expect_float};
use crate::precision::Precision;
use crate::random::place_of;
use crate::types::{DType, Shape, Type};

/// Queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub enum AttentionInputs {
    /// One value `[batch, tokens, 3·dim]`: q, k, v side by side.
    Packed(Value),
    /// Three values; queries may be fewer or more than keys.
    Separate {
        /// `[batch, queries, dim]`
        q: Value,
        /// `[batch, keys, dim]`
        k: Value,
        /// `[batch, keys, dim]`
        v: Value,
    },
}

/// Which keys are padding.
#[derive(Clone, Copy, Debug, Default)]
pub enum Padding {
    /// None.
    #[default]
    None,
    /// Keys from `lengths [batch]` (i32) on.
    Lengths(Value),
    /// Keys whose `mask [batch, keys]` (i32) is 0.
    Mask(Value),
}

/// Settings of attention.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions {
    /// Number of heads; must divide dim.
    pub heads: usize,
    /// What scores are multiplied by; by default 1/√(dim/heads).
    pub scale: Option<f32>,
    /// Whether a query sees only keys up to its own place.
    pub causal: bool,
    /// Which keys are padding.
    pub padding: Padding,
    /// Added to the scores.
    pub bias: Option<Value>,
    /// Dropout rate on the weights.
    pub dropout: f32,
}

/// What kind of padding the inputs carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingKind {
    /// No padding input.
    None,
    /// Lengths.
    Lengths,
    /// A mask.
    Mask,
}

/// Inputs: qkv or q, k, v; then padding; then bias, as far as they are there. Results: the output, and the log-sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
    /// What scores are multiplied by; `None`: 1/√(dim/heads).
    pub scale: Option<f32>,
    /// Whether a query sees only keys up to its own place.
    pub causal: bool,
    /// Whether q, k and v come as one value.
    pub packed: bool,
    /// Kind of padding.
    pub padding: PaddingKind,
    /// Whether there is a bias.
    pub bias: bool,
    /// Dropout on the weights.
    pub dropout: Option<Drop>,
    /// Precision that the result is stored in.
    pub precision: Precision,
}

/// The weights themselves, before dropout: `[batch, heads, queries, keys]`. Inputs as for [`Attention`].
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionWeights {
    /// The attention whose weights they are.
    pub of: Attention,
}

/// The gradient. Inputs as for [`Attention`], then the output, the log-sums, and the output's gradient. Results: dqkv or dq, dk, dv; then
/// dbias if `bias_gradient`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGradient {
    /// The attention whose gradient it is.
    pub of: Attention,
    /// Whether the bias' gradient is computed.
    pub bias_gradient: bool,
}

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Samples.
    pub batch: usize,
    /// Heads.
    pub heads: usize,
    /// Queries a sample.
    pub queries: usize,
    /// Keys a sample.
    pub keys: usize,
    /// Numbers a head.
    pub head_dim: usize,
}

impl Attention {
    /// Number of inputs that hold q, k and v.
    pub fn projections(&self) -> usize {
        if self.packed { 1 } else { 3 }
    }

    /// Which input is the padding.
    pub fn padding_input(&self) -> Option<usize> {
        (self.padding != PaddingKind::None).then(|| self.projections())
    }

    /// Which input is the bias.
    pub fn bias_input(&self) -> Option<usize> {
        self.bias.then(|| self.projections() + usize::from(self.padding != PaddingKind::None))
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.projections() + usize::from(self.padding != PaddingKind::None) + usize::from(self.bias)
    }

    /// The factor of the scores.
    pub fn scale_for(&self, head_dim: usize) -> f32 {
        self.scale.unwrap_or_else(|| (1.0 / (head_dim as f64).sqrt()) as f32)
    }

    /// The sizes, or the rule that the inputs break.
    pub(crate) fn sizes<'s>(&self, count: usize, shape: impl Fn(usize) -> &'s Shape) -> Result<Sizes, Broken> {
        if count < self.input_count() {
            return Err(format!("takes {} inputs, got {count}", self.input_count()));
        }
        let (batch, queries, keys, dim) = if self.packed {
            match *shape(0).axes() {
                [batch, tokens, packed] if packed % 3 == 0 => (batch, tokens, tokens, packed / 3),
                _ => return Err("packed q, k, v must be [batch, tokens, 3·dim]".to_string()),
            }
        } else {
            match (shape(0).axes(), shape(1).axes(), shape(2).axes()) {
                (&[batch, queries, dim], k @ &[k_batch, keys, k_dim], v)
                    if k == v && k_batch == batch && k_dim == dim =>
                {
                    (batch, queries, keys, dim)
                }
                _ => return Err("q must be [batch, queries, dim], k and v [batch, keys, dim]".to_string()),
            }
        };
        if self.heads == 0 || dim % self.heads != 0 {
            return Err(format!("the {} heads must divide dim {dim}", self.heads));
        }
        let sizes = Sizes { batch, heads: self.heads, queries, keys, head_dim: dim / self.heads };
        match (self.padding, self.padding_input().map(|input| shape(input).axes())) {
            (PaddingKind::Lengths, Some(axes)) if axes != [batch] => Err("lengths must be [batch]".to_string()),
            (PaddingKind::Mask, Some(axes)) if axes != [batch, keys] => {
                Err("the mask must be [batch, keys]".to_string())
            }
            _ => Ok(sizes),
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
        if let Some(bias) = self.bias_input().map(|i| &inputs[i]) {
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
        }
        if self.scale.is_some_and(|scale| !scale.is_finite()) {
            return Err("the scale must be finite".to_string());
        }
        if let Some(drop) = self.dropout.filter(|drop| !(0.0..1.0).contains(&drop.rate)) {
            return Err(format!("the dropout rate must be at least 0 and under 1, it is {}", drop.rate));
        }
        Ok(sizes)
    }

    fn output_dtype(&self, inputs: &[Type]) -> DType {
        match product_dtype(self.precision) {
            DType::Bf16 => DType::Bf16,
            _ => inputs[0].dtype,
        }
    }

    fn score_count(inputs: &[&Type], op: &Attention) -> (u64, u64) {
        op.sizes(inputs.len(), |input| &inputs[input].shape).map_or((0, 0), |s| {
            let scores = (s.batch * s.heads * s.queries) as u64 * s.keys as u64;
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

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        backward.refuse("the weights on request are for looking at; take the gradient through attention itself")
    }
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
    /// Attention over heads. The result is `[batch, queries, dim]`.
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
        let acts = options.dropout != 0.0 && (self.mode() == Mode::Training || !(0.0..1.0).contains(&options.dropout));
        let place = place_of(&self.next_path("attention"));
        let op = Attention {
            heads: options.heads,
            scale: options.scale,
            causal: options.causal,
            packed,
            padding,
            bias: options.bias.is_some(),
            dropout: acts.then_some(Drop { rate: options.dropout, place }),
            precision: self.precision(),
        };
        self.push(op, &values)
    }

    /// The weights of an attention, `[batch, heads, queries, keys]`, before dropout: a tap that changes nothing else.
    /// `attention` is what [`Graph::attention`] gave.
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
