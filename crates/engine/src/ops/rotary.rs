//! Rotary position embedding (Su et al., RoFormer, 2021): rotates pairs of values of each head by an angle that grows with the
//! token's position, so that the product of a query and a key depends on the distance between them.
//!
//! At position p, pair k with inverse frequency f of `frequencies[k]` and `angle = p · f`:
//! `(a, b)` becomes `factor · (a cos(angle) - b sin(angle), b cos(angle) + a sin(angle))`.
//!
//! | pairing | pair k of a head x, with n frequencies | |
//! |---|---|---|
//! | `Halves` | `(x[k], x[k + n])` | GPT-NeoX, and LLaMA in the layout of Hugging Face |
//! | `Pairs` | `(x[2k], x[2k + 1])` | GPT-J, and LLaMA as published |
//!
//! The first 2n values of each head are rotated, the others are copied. Token i of sample b stands at position `offsets[b] + i`,
//! or at i without offsets.
//!
//! Frequencies are a list, so that scaled ones (linear, NTK, LLaMA 3, YaRN) need no setting here; YaRN also multiplies cosines
//! and sines by `factor`. The angle is the product of position and frequency **rounded to f32**, as in `transformers`, whose
//! results define what models were trained with: at position 131,072 an exact product would be up to 0.004 radians away from
//! theirs. Cosine and sine of that angle are right to the last digits of f32, at any position. With values stored as bf16 the
//! rotation is computed in f32 and rounded once; `transformers` rounds cosines, sines and both products.
//!
//! | | |
//! |---|---|
//! | shapes | `x [batch, tokens, heads·head_dim]`, `offsets [batch]` (i32) give the shape of x |
//! | FLOPs | `6 · batch · tokens · heads · n` |
//! | gradients | `dx`: dy rotated by the negative angle; offsets have none |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float};
use crate::types::{DType, Type};

/// Which values of a head form pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotaryPairing {
    /// Value k with value k + n: the first half of what is rotated with the second.
    #[default]
    Halves,
    /// Value 2k with value 2k + 1.
    Pairs,
}

/// Settings of a rotary position embedding.
#[derive(Clone, Debug)]
pub struct RotaryOptions {
    /// Number of heads; must divide the width of x.
    pub heads: usize,
    /// Inverse frequencies, one per pair: radians per position. See [`rotary_frequencies`].
    pub frequencies: Vec<f32>,
    /// Which values form pairs.
    pub pairing: RotaryPairing,
    /// What cosines and sines are multiplied by.
    pub factor: f32,
    /// `[batch]`, i32: the position of each sample's first token; 0 by default.
    pub offsets: Option<Value>,
}

impl Default for RotaryOptions {
    fn default() -> Self {
        RotaryOptions {
            heads: 0,
            frequencies: Vec::new(),
            pairing: RotaryPairing::default(),
            factor: 1.0,
            offsets: None,
        }
    }
}

/// The usual inverse frequencies for `rotated` values of a head: `base^(-2k / rotated)`, in steps of f32 as `transformers`
/// computes them.
pub fn rotary_frequencies(base: f32, rotated: usize) -> Vec<f32> {
    let frequency = |k: usize| {
        let exponent = (2 * k) as f32 / rotated as f32;
        1.0 / f64::from(base).powf(f64::from(exponent)) as f32
    };
    (0..rotated / 2).map(frequency).collect()
}

/// Inputs: x, and offsets if there are any.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Number of heads.
    pub heads: usize,
    /// Inverse frequencies, one per pair.
    pub frequencies: Vec<f32>,
    /// Which values form pairs.
    pub pairing: RotaryPairing,
    /// What cosines and sines are multiplied by.
    pub factor: f32,
    /// Whether there are offsets.
    pub offsets: bool,
    /// Whether the angle is negative, as in the gradient.
    pub inverse: bool,
}

impl Rotary {
    /// The angle of a pair at a position, in f32. See the module's comment.
    pub(crate) fn angle(&self, position: i64, pair: usize) -> f32 {
        let angle = position as f32 * self.frequencies[pair];
        if self.inverse { -angle } else { angle }
    }

    /// Where in a head the two values of a pair are.
    pub(crate) fn members(&self, pair: usize) -> [usize; 2] {
        match self.pairing {
            RotaryPairing::Halves => [pair, pair + self.frequencies.len()],
            RotaryPairing::Pairs => [2 * pair, 2 * pair + 1],
        }
    }

    fn check(&self, inputs: &[Type]) -> Result<(), Broken> {
        let count = 1 + usize::from(self.offsets);
        if inputs.len() != count {
            return Err(format!("takes {count} inputs, got {}", inputs.len()));
        }
        expect_float(&inputs[0])?;
        let &[batch, _, dim] = inputs[0].shape.axes() else {
            return Err("x must be [batch, tokens, heads·head_dim]".to_string());
        };
        if self.heads == 0 || dim % self.heads != 0 {
            return Err(format!("the {} heads must divide dim {dim}", self.heads));
        }
        let (rotated, head_dim) = (2 * self.frequencies.len(), dim / self.heads);
        if rotated == 0 || rotated > head_dim {
            return Err(format!("two values per frequency, {rotated}, must be between 2 and head_dim, {head_dim}"));
        }
        if !self.frequencies.iter().chain([&self.factor]).all(|number| number.is_finite()) {
            return Err("frequencies and factor must be finite".to_string());
        }
        match inputs.get(1) {
            Some(offsets) if offsets.dtype != DType::I32 || offsets.shape.axes() != [batch] => {
                Err("offsets must be i32 [batch]".to_string())
            }
            _ => Ok(()),
        }
    }
}

impl Rules for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        self.check(inputs)?;
        Ok(vec![inputs[0].clone()])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        6 * inputs[0].shape.rows() as u64 * (self.heads * self.frequencies.len()) as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let offsets = if self.offsets { Some(backward.input(1)?) } else { None };
        let op = Rotary { inverse: !self.inverse, ..self.clone() };
        backward.map_gradient(|graph, dy| graph.push(op, &[dy].into_iter().chain(offsets).collect::<Vec<_>>()))
    }
}

impl Graph {
    /// Rotates pairs of values of each head of `x [batch, tokens, heads·head_dim]` by their token's position.
    pub fn rotary(&mut self, x: Value, options: &RotaryOptions) -> Result<Value> {
        let op = Rotary {
            heads: options.heads,
            frequencies: options.frequencies.clone(),
            pairing: options.pairing,
            factor: options.factor,
            offsets: options.offsets.is_some(),
            inverse: false,
        };
        let inputs: Vec<Value> = [x].into_iter().chain(options.offsets).collect();
        self.push(op, &inputs)
    }
}
