//! What happens without a part of a model (ablation), and with a part of another run in its place (activation patching).

use vitreous_engine::{Edit, Intervention};

use super::lens::log_sum;
use super::{Inside, part_path, stream_path};
use crate::error::ExplainError;

/// What an output is without each head, and without each layer's MLP.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadEffects {
    /// The output's logit and log-probability (natural) in the model as it is.
    pub logit: f64,
    /// See `logit`.
    pub log_probability: f64,
    /// By layer and head: the change of the log-probability when that head gives zeros.
    pub heads: Vec<Vec<f64>>,
    /// The same of the logit.
    pub head_logits: Vec<Vec<f64>>,
    /// By layer: the change of the log-probability when its MLP gives zeros.
    pub mlps: Vec<f64>,
    /// The same of the logit.
    pub mlp_logits: Vec<f64>,
}

/// What a difference of two outputs' logits becomes when the stream of one token after one layer is taken from another run.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchEffects {
    /// The difference in this run.
    pub own: f64,
    /// The difference in the other run.
    pub other: f64,
    /// By place (before the first layer, then after each) and token: the difference with that one vector taken over.
    pub patched: Vec<Vec<f64>>,
}

impl Inside<'_> {
    /// Switches off each head, and each MLP, alone. The heads of a layer are one batch, which begins with that layer.
    pub fn head_effects(&mut self, token: usize, output: usize) -> Result<HeadEffects, ExplainError> {
        let [logit, log_probability] = self.outcome(token, output)?;
        let (layers, heads) = (self.layers, self.heads);
        let mut effects = HeadEffects {
            logit,
            log_probability,
            heads: vec![vec![0.0; heads]; layers],
            head_logits: vec![vec![0.0; heads]; layers],
            mlps: vec![0.0; layers],
            mlp_logits: vec![0.0; layers],
        };
        for layer in 0..layers {
            let (stream, mixed) = (self.streams[layer].clone(), self.mixed[layer].clone());
            let width = mixed.len() / self.tokens / heads;
            let values = |head: usize, path: usize| match path {
                0 => stream.clone(),
                _ => without_columns(&mixed, heads * width, head * width..(head + 1) * width),
            };
            let paths = [stream_path(layer), part_path(layer, "attention.heads")];
            self.logits_with(&paths, &[], heads, token, values, |head, logits| {
                let [logit, log_probability] = of_logits(logits, output);
                effects.heads[layer][head] = log_probability - effects.log_probability;
                effects.head_logits[layer][head] = logit - effects.logit;
            })?;
            let without = [Intervention::new(part_path(layer, "mlp"), Edit::Zero)];
            self.logits_with(
                &paths[..1],
                &without,
                1,
                token,
                |_, _| stream.clone(),
                |_, logits| {
                    let [logit, log_probability] = of_logits(logits, output);
                    effects.mlps[layer] = log_probability - effects.log_probability;
                    effects.mlp_logits[layer] = logit - effects.logit;
                },
            )?;
        }
        Ok(effects)
    }

    /// Takes the stream of each token after each layer from another run of the model, one at a time, and gives the difference of two logits,
    /// `outputs[0] - outputs[1]`. Both runs must have as many tokens.
    pub fn patch_effects(
        &mut self,
        other: &mut Inside,
        token: usize,
        outputs: [usize; 2],
    ) -> Result<PatchEffects, ExplainError> {
        if self.tokens != other.tokens {
            return Err(ExplainError::OtherLength { own: self.tokens, other: other.tokens });
        }
        let (tokens, dim) = (self.tokens, self.dim);
        let difference = |logits: &[f32]| f64::from(logits[outputs[0]]) - f64::from(logits[outputs[1]]);
        let mut effects = PatchEffects { own: 0.0, other: 0.0, patched: vec![vec![0.0; tokens]; self.layers + 1] };
        self.with_own_logits(token, |logits| effects.own = difference(logits))?;
        other.with_own_logits(token, |logits| effects.other = difference(logits))?;
        for place in 0..=self.layers {
            let (own, others) = (self.streams[place].clone(), other.streams[place].clone());
            let values = |at: usize, _: usize| {
                let (mut stream, row) = (own.clone(), at * dim..(at + 1) * dim);
                stream[row.clone()].copy_from_slice(&others[row]);
                stream
            };
            self.logits_with(&[stream_path(place)], &[], tokens, token, values, |at, logits| {
                effects.patched[place][at] = difference(logits);
            })?;
        }
        Ok(effects)
    }

    /// Shows the model's own logits of a token.
    pub fn with_own_logits(&mut self, token: usize, look: impl FnOnce(&[f32])) -> Result<(), ExplainError> {
        let last = self.streams[self.layers].clone();
        let mut look = Some(look);
        self.logits_with(
            &[stream_path(self.layers)],
            &[],
            1,
            token,
            |_, _| last.clone(),
            |_, logits| {
                if let Some(look) = look.take() {
                    look(logits);
                }
            },
        )
    }

    /// Logit and log-probability of an output in the model as it is.
    fn outcome(&mut self, token: usize, output: usize) -> Result<[f64; 2], ExplainError> {
        let (mut outcome, mut count) = (None, 0);
        self.with_own_logits(token, |logits| {
            count = logits.len();
            outcome = (output < count).then(|| of_logits(logits, output));
        })?;
        outcome.ok_or(ExplainError::NotThere { what: "class", asked: output, count })
    }
}

/// The logit of an output, and its log-probability.
pub(crate) fn of_logits(logits: &[f32], output: usize) -> [f64; 2] {
    let logit = f64::from(logits[output]);
    [logit, logit - log_sum(logits)]
}

/// A matrix with zeros in some columns.
fn without_columns(matrix: &[f32], width: usize, columns: std::ops::Range<usize>) -> Vec<f32> {
    let mut without = matrix.to_vec();
    without.chunks_exact_mut(width).for_each(|row| row[columns.clone()].fill(0.0));
    without
}
