//! `--watch`: what happens inside a model while it learns. After some updates, the model runs once more, without dropout, on the batch that it has
//! just learned from, and its attention, its units and its losses are looked at. A run that is watched learns what it would learn unwatched.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vitreous_data::loader::{ArraySpec, ArrayValues, Batch, ElementType, NamedArray};
use vitreous_engine::ops::attention::PaddingKind;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, DType, Device, Executor, Graph, Mode, Op, Padding, Precision, Run, State, Step,
    Value,
};
use vitreous_explain::inside::head_scores;

use crate::error::TrainError;
use crate::stepper::fill_inputs;
use crate::task::Task;

/// The most numbers of one value that are looked at: of larger ones, those of the first samples.
const MOST_NUMBERS: usize = 1 << 22;

/// A line of what was seen. What a model does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchMetrics {
    /// Updates so far.
    pub step: u64,
    /// By part of the model (`blocks.3.mlp`): the length of the last update of its weights, over the length of the weights.
    pub update_ratios: BTreeMap<String, f64>,
    /// By MLP: the share of its hidden units that are above 0 for no token of the batch's first samples.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dead_units: BTreeMap<String, f64>,
    /// By attention (`blocks.3.attention`) and head: the mean entropy of attention in nats.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention_entropy: BTreeMap<String, Vec<f64>>,
    /// The same: induction scores on the batch, of models that write tokens one after the other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub induction: BTreeMap<String, Vec<f64>>,
    /// The mean loss of the next token at each position, of such models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_by_position: Vec<f64>,
}

impl WatchMetrics {
    /// The numbers that matter most, in a few words.
    pub fn excerpt(&self) -> String {
        let mut parts = Vec::new();
        let ratios = || self.update_ratios.values().copied().filter(|ratio| *ratio > 0.0);
        if let (Some(least), Some(most)) = (ratios().reduce(f64::min), ratios().reduce(f64::max)) {
            parts.push(format!("updates {least:.0e} to {most:.0e} of the weights"));
        }
        if let Some((name, share)) = self.dead_units.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
            parts.push(format!("dead units at most {:.1} % ({name})", 100.0 * share));
        }
        let entropies = || self.attention_entropy.values().flatten().copied();
        if let (Some(least), Some(most)) = (entropies().reduce(f64::min), entropies().reduce(f64::max)) {
            parts.push(format!("attention entropy {least:.2} to {most:.2} nats"));
        }
        let inductions = self.induction.iter().flat_map(|(name, heads)| {
            heads.iter().enumerate().map(move |(head, score)| (format!("{name}.heads.{head}"), *score))
        });
        if let Some((head, score)) = inductions.max_by(|a, b| a.1.total_cmp(&b.1)) {
            parts.push(format!("induction at most {score:.2} ({head})"));
        }
        if let [first, .., last] = self.loss_by_position[..] {
            parts.push(format!("loss {first:.2} at the first token, {last:.2} at the last"));
        }
        parts.join("; ")
    }
}

/// Looks at a model between updates.
#[derive(Default)]
pub(crate) struct Watcher {
    /// The weights before an update that is looked at.
    before: Vec<f32>,
    /// By group of batches: the plan that looks.
    looks: BTreeMap<usize, Look>,
}

/// A plan with what is looked at.
struct Look {
    executor: Executor,
    dead: Vec<(String, Value)>,
    /// Path, weights `[samples, heads, queries, keys]`, and whether tokens attend to those before them alone.
    attention: Vec<(String, Value, bool)>,
    logits: Option<Value>,
}

impl Watcher {
    /// Keeps the weights before an update.
    pub fn before(&mut self, state: &mut State) -> Result<(), TrainError> {
        state.bring_home()?;
        self.before.clear();
        self.before.extend_from_slice(state.parameters());
        Ok(())
    }

    /// Looks at the model after the update that learned from this batch.
    pub fn after(
        &mut self,
        task: &dyn Task,
        state: &mut State,
        batch: &Batch,
        run: Run,
        device: &Device,
    ) -> Result<WatchMetrics, TrainError> {
        state.bring_home()?;
        let mut metrics = WatchMetrics { update_ratios: self.update_ratios(state), ..WatchMetrics::default() };
        let look = match self.looks.remove(&batch.group) {
            Some(look) => look,
            None => Look::new(task, batch, device)?,
        };
        let look = self.looks.entry(batch.group).or_insert(look);
        look.run(state, batch, run, &mut metrics)?;
        Ok(metrics)
    }

    fn update_ratios(&self, state: &State) -> BTreeMap<String, f64> {
        let mut squares: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for parameter in state.table().iter().filter(|parameter| parameter.gradient_offset.is_some()) {
            let range = parameter.offset..parameter.offset + parameter.shape.elements();
            let (Some(before), Some(now)) = (self.before.get(range.clone()), state.parameters().get(range)) else {
                continue;
            };
            let (change, size) = squares.entry(part_of(&parameter.name)).or_default();
            for (before, now) in before.iter().zip(now) {
                *change += f64::from(now - before).powi(2);
                *size += f64::from(*before).powi(2);
            }
        }
        let ratio = |(change, size): (f64, f64)| if size > 0.0 { (change / size).sqrt() } else { 0.0 };
        squares.into_iter().map(|(name, sums)| (name, ratio(sums))).collect()
    }
}

/// `blocks.3.mlp.fc1.weight` is of `blocks.3.mlp`, `embedding.words` of `embedding`.
fn part_of(parameter: &str) -> String {
    let words: Vec<&str> = parameter.split('.').collect();
    let count = match words[..] {
        [_, number, _, _, ..] if number.parse::<usize>().is_ok() => 3,
        [_, number, ..] if number.parse::<usize>().is_ok() => 2,
        _ => 1,
    };
    words[..count.min(words.len())].join(".")
}

impl Look {
    fn new(task: &dyn Task, batch: &Batch, device: &Device) -> Result<Look, TrainError> {
        let mut graph = Graph::new(Mode::Inference, Precision::F32);
        let arrays: Vec<ArraySpec> = batch.arrays.iter().map(spec).collect();
        task.build(&mut graph, &arrays)?;
        let attention = attentions(&mut graph)?;
        let dead = hidden_units(&mut graph)?;
        let logits = next_token_logits(&mut graph, &attention)?;
        let outputs: Vec<Value> = (dead.iter().map(|(_, value)| *value))
            .chain(attention.iter().map(|(_, value, _)| *value))
            .chain(logits)
            .collect();
        let plan = device.plan(&graph, &outputs)?;
        device.check_memory("watching a run", device.bytes_needed(&plan))?;
        Ok(Look { executor: Executor::new(plan, device)?, dead, attention, logits })
    }

    fn run(
        &mut self,
        state: &mut State,
        batch: &Batch,
        run: Run,
        metrics: &mut WatchMetrics,
    ) -> Result<(), TrainError> {
        if self.dead.is_empty() && self.attention.is_empty() {
            return Ok(());
        }
        let taken: Vec<String> = self.executor.plan().graph().inputs().map(|(name, _)| name.to_string()).collect();
        fill_inputs(&mut self.executor, batch, |name| taken.iter().any(|taken| taken == name))?;
        self.executor.run(state, run)?;
        let shape = |executor: &Executor, value: Value| -> Vec<usize> {
            let graph = executor.plan().graph();
            executor.plan().value(value).map_or(Vec::new(), |value| graph.shape_of(value).axes().to_vec())
        };
        for (name, value) in &self.dead {
            let width = shape(&self.executor, *value).last().copied().unwrap_or(1);
            metrics.dead_units.insert(name.clone(), dead_share(self.executor.output_slice(*value)?, width));
        }
        let tokens = batch.i32("tokens").unwrap_or_default();
        for (name, value, causal) in &self.attention {
            let axes = shape(&self.executor, *value);
            let &[samples, heads, queries, keys] = &axes[..] else { continue };
            let weights = self.executor.output_slice(*value)?;
            let of_head = |head: usize| {
                let one = queries * keys;
                (0..samples)
                    .map(move |sample| &weights[(sample * heads + head) * one..(sample * heads + head + 1) * one])
            };
            let entropy = |head: usize| {
                let (sum, rows) = of_head(head).flat_map(|weights| weights.chunks_exact(keys)).fold(
                    (0.0, 0usize),
                    |(sum, rows), row| {
                        // A query of padding has no weights.
                        let is_query = row.iter().any(|weight| *weight > 0.0);
                        (sum + entropy(row), rows + usize::from(is_query))
                    },
                );
                sum / rows.max(1) as f64
            };
            metrics.attention_entropy.insert(name.clone(), (0..heads).map(entropy).collect());
            if *causal && queries == keys && tokens.len() >= samples * keys {
                let rows: Vec<Vec<u32>> = tokens
                    .chunks_exact(keys)
                    .take(samples)
                    .map(|row| row.iter().map(|&token| token as u32).collect())
                    .collect();
                let score = |head: usize| {
                    let all = of_head(head).zip(&rows).map(|(weights, tokens)| head_scores(tokens, weights).induction);
                    all.sum::<f64>() / samples.max(1) as f64
                };
                metrics.induction.insert(name.clone(), (0..heads).map(score).collect());
            }
        }
        if let Some(logits) = self.logits {
            let axes = shape(&self.executor, logits);
            let length = batch.arrays.iter().find(|array| array.name == "tokens").and_then(|array| array.shape.last());
            let length = length.copied().unwrap_or_default();
            metrics.loss_by_position = losses(self.executor.output_slice(logits)?, &axes, tokens, length);
        }
        Ok(())
    }
}

fn spec(array: &NamedArray) -> ArraySpec {
    let element = match array.values {
        ArrayValues::F32(_) => ElementType::F32,
        ArrayValues::I32(_) => ElementType::I32,
    };
    ArraySpec { name: array.name, shape: array.shape.clone(), element }
}

/// As many samples of a value as may be looked at, at least one.
fn first_samples(graph: &mut Graph, value: Value, numbers: usize) -> vitreous_engine::Result<Value> {
    let axes = graph.shape_of(value).axes().to_vec();
    let samples = (MOST_NUMBERS / (numbers / axes[0].max(1)).max(1)).clamp(1, axes[0]);
    if samples == axes[0] { Ok(value) } else { graph.slice(value, 0, 0, samples) }
}

/// The weights of every attention, for the first samples.
fn attentions(graph: &mut Graph) -> vitreous_engine::Result<Vec<(String, Value, bool)>> {
    let found: Vec<_> = graph
        .nodes()
        .iter()
        .filter_map(|node| match &node.op {
            Op::Attention(op) => Some((node.path.clone(), op.clone(), node.inputs.clone())),
            _ => None,
        })
        .collect();
    let mut weights = Vec::with_capacity(found.len());
    for (path, op, inputs) in found {
        let queries = graph.shape_of(inputs[0]).axes()[1];
        let keys = graph.shape_of(inputs[op.projections() - 1]).axes()[1];
        let numbers = graph.shape_of(inputs[0]).axes()[0] * op.heads * queries * keys;
        let mut first = Vec::with_capacity(inputs.len());
        for &input in &inputs {
            first.push(first_samples(graph, input, numbers)?);
        }
        let projections = match first[..] {
            [packed, ..] if op.packed => AttentionInputs::Packed(packed),
            [q, k, v, ..] => AttentionInputs::Separate { q, k, v },
            _ => continue,
        };
        let padding = match (op.padding, op.padding_input()) {
            (PaddingKind::Lengths, Some(input)) => Padding::Lengths(first[input]),
            (PaddingKind::Mask, Some(input)) => Padding::Mask(first[input]),
            _ => Padding::None,
        };
        let options = AttentionOptions {
            heads: op.heads,
            kv_heads: Some(op.kv_heads),
            scale: op.scale,
            causal: op.causal,
            window: op.window,
            padding,
            bias: op.bias_input().map(|input| first[input]),
            offsets: op.offsets_input().map(|input| first[input]),
            dropout: 0.0,
        };
        let name = path.rsplit_once('.').map_or(path.as_str(), |(scope, _)| scope).to_string();
        let attention = graph.scope("watch", |graph| graph.attention(projections, &options))?;
        weights.push((name, graph.attention_weights(attention)?, op.causal));
    }
    Ok(weights)
}

/// What comes out of the activation of every MLP, for the first samples.
fn hidden_units(graph: &mut Graph) -> vitreous_engine::Result<Vec<(String, Value)>> {
    let paths: Vec<String> = graph
        .nodes()
        .iter()
        .filter(|node| node.path.contains(".mlp.") && matches!(node.steps[..], [Step::Activation(_)]))
        .map(|node| node.path.clone())
        .collect();
    let mut units = Vec::with_capacity(paths.len());
    for path in paths {
        let value = graph.find(&path)?;
        let numbers = graph.shape_of(value).elements();
        let first = first_samples(graph, value, numbers)?;
        let name = path.split(".mlp.").next().map_or(path.clone(), |layer| format!("{layer}.mlp"));
        units.push((name, graph.cast(first, DType::F32)?));
    }
    Ok(units)
}

/// The logits of a model that writes tokens one after the other, for as many of the first samples as may be looked at, or
/// for the first positions of one sample. The vocabulary's product is written once more for these alone: logits of a whole
/// batch are what training takes care never to have.
fn next_token_logits(graph: &mut Graph, attention: &[(String, Value, bool)]) -> vitreous_engine::Result<Option<Value>> {
    let Ok(logits) = graph.find("logits") else { return Ok(None) };
    let &[rows, length, vocabulary] = graph.shape_of(logits).axes() else { return Ok(None) };
    let node = graph.node(logits);
    let (Op::Linear(_), &[hidden, matrix], []) = (&node.op, &node.inputs[..], &node.steps[..]) else { return Ok(None) };
    if !attention.iter().any(|(_, _, causal)| *causal) {
        return Ok(None);
    }
    let most = 16 * MOST_NUMBERS / vocabulary.max(1);
    let (samples, positions) = ((most / length.max(1)).clamp(1, rows), length.min(most.max(2)));
    let mut first = hidden;
    for (axis, (kept, all)) in [(samples, rows), (positions, length)].into_iter().enumerate() {
        if kept < all {
            first = graph.slice(first, axis, 0, kept)?;
        }
    }
    let logits = graph.linear(first, matrix, None)?;
    graph.cast(logits, DType::F32).map(Some)
}

fn dead_share(values: &[f32], width: usize) -> f64 {
    let mut lives = vec![false; width];
    for row in values.chunks_exact(width) {
        row.iter().zip(&mut lives).for_each(|(value, lives)| *lives |= *value > 0.0);
    }
    lives.iter().filter(|lives| !**lives).count() as f64 / width.max(1) as f64
}

/// `-Σ a ln a`.
fn entropy(row: &[f32]) -> f64 {
    row.iter().filter(|weight| **weight > 0.0).map(|&weight| -f64::from(weight) * f64::from(weight).ln()).sum()
}

/// The mean loss of the next token at each position, from logits `[samples, positions, vocabulary]` of the first of `tokens`,
/// which have `length` in a row.
fn losses(logits: &[f32], axes: &[usize], tokens: &[i32], length: usize) -> Vec<f64> {
    let &[samples, positions, vocabulary] = axes else { return Vec::new() };
    if positions > length || tokens.len() < samples * length {
        return Vec::new();
    }
    let mut sums = vec![0.0; positions.min(length.saturating_sub(1))];
    for (row, logits) in logits.chunks_exact(vocabulary).enumerate() {
        let (sample, at) = (row / positions, row % positions);
        let (Some(sum), Some(&next)) = (sums.get_mut(at), tokens.get(sample * length + at + 1)) else { continue };
        let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let log_sum = most + logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum::<f64>().ln();
        let own = usize::try_from(next).ok().and_then(|next| logits.get(next)).map_or(most, |&logit| f64::from(logit));
        *sum += (log_sum - own) / samples as f64;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_models() {
        let parts = [
            "blocks.3.mlp.fc1.weight",
            "blocks.3.norm1.weight",
            "embedding.words",
            "norm.weight",
            "blocks.2.layer_scale1",
        ];
        let expected = ["blocks.3.mlp", "blocks.3.norm1", "embedding", "norm", "blocks.2"];
        assert_eq!(parts.map(part_of), expected);
    }

    #[test]
    fn dead_units_entropy_and_losses() {
        assert_eq!(dead_share(&[1.0, -1.0, 0.0, 0.0, -2.0, 3.0], 3), 1.0 / 3.0);
        assert!((entropy(&[0.5, 0.5, 0.0]) - 2f64.ln()).abs() < 1e-12);
        let even = losses(&[0.0; 12], &[1, 3, 4], &[0, 1, 2], 3);
        assert_eq!(even.len(), 2);
        assert!(even.iter().all(|loss| (loss - 4f64.ln()).abs() < 1e-12), "{even:?}");
        assert!(losses(&[0.0; 12], &[1, 3, 4], &[0], 3).is_empty());
        // Two positions of three: the second token is certain, of the third nothing is known.
        let some = losses(&[9e9, 0.0, 0.0, 0.0], &[1, 2, 2], &[1, 0, 1], 3);
        assert!(some.len() == 2 && some[0] == 0.0 && (some[1] - 2f64.ln()).abs() < 1e-12, "{some:?}");
    }
}
