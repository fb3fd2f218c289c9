//! `--watch`: what happens inside a model while it learns. After some updates, the model runs once more, without dropout, on the batch that it has
//! just learned from, and its attention, its units and its losses are looked at. A run that is watched learns what it would learn unwatched.

mod rows;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vitreous_data::loader::{ArraySpec, ArrayValues, Batch, ElementType, NamedArray};
use vitreous_engine::ops::attention::PaddingKind;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, DType, Device, Executor, Graph, Mode, Op, Padding, Precision, Run, State, Step,
    Value,
};
use vitreous_explain::inside::HeadSums;

use crate::error::TrainError;
use crate::stepper::fill_inputs;
use crate::task::Task;
use rows::TextRows;

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
    /// The same: induction scores on the batch, of models that write tokens one after the other. Copies of a token count within its document.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub induction: BTreeMap<String, Vec<f64>>,
    /// The mean loss of the next token at each position, of such models; nothing where no token is learned, as at the questions of chats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_by_position: Vec<Option<f64>>,
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
        let learned: Vec<f64> = self.loss_by_position.iter().copied().flatten().collect();
        if let [first, .., last] = learned[..] {
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
    attention: Vec<WatchedAttention>,
    logits: Option<Value>,
}

struct WatchedAttention {
    /// Its scope: `blocks.3.attention`.
    name: String,
    /// `[samples, heads, queries, keys]`.
    weights: Value,
    /// Whether tokens attend to those before them alone.
    is_causal: bool,
    /// Whether some keys may be padding.
    is_padded: bool,
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
            .chain(attention.iter().map(|attention| attention.weights))
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
        let rows = TextRows::of(batch);
        for (name, value) in &self.dead {
            let axes = shape(&self.executor, *value);
            let real = rows.as_ref().filter(|rows| axes.len() == 3 && axes[1] == rows.length());
            let values = self.executor.output_slice(*value)?;
            metrics.dead_units.insert(name.clone(), dead_share(values, axes.last().copied().unwrap_or(1), real));
        }
        for attention in &self.attention {
            let axes = shape(&self.executor, attention.weights);
            let &[_, heads, queries, keys] = &axes[..] else { continue };
            let weights = HeadWeights { weights: self.executor.output_slice(attention.weights)?, heads, queries, keys };
            // Attention that knows of no padding is of an image, or of text that has none.
            let rows = rows.as_ref().filter(|rows| queries == keys && keys == rows.length());
            let padded = rows.filter(|_| attention.is_padded);
            let entropies = (0..heads).map(|head| weights.entropy(head, padded)).collect();
            metrics.attention_entropy.insert(attention.name.clone(), entropies);
            if let (true, Some(rows)) = (attention.is_causal, rows) {
                let inductions = (0..heads).map(|head| weights.induction(head, rows)).collect();
                metrics.induction.insert(attention.name.clone(), inductions);
            }
        }
        if let (Some(logits), Some(rows)) = (self.logits, &rows) {
            let axes = shape(&self.executor, logits);
            metrics.loss_by_position = losses(self.executor.output_slice(logits)?, &axes, rows);
        }
        Ok(())
    }
}

/// The weights of an attention, `[samples, heads, queries, keys]`.
struct HeadWeights<'w> {
    weights: &'w [f32],
    heads: usize,
    queries: usize,
    keys: usize,
}

impl HeadWeights<'_> {
    /// The rows of weights of one head, one sample after the other.
    fn of_head(&self, head: usize) -> impl Iterator<Item = &[f32]> {
        let one = self.queries * self.keys;
        self.weights.chunks_exact(one * self.heads).map(move |sample| &sample[head * one..(head + 1) * one])
    }

    /// The mean entropy of a head's queries. Those of padding attend to text, but mean nothing.
    fn entropy(&self, head: usize, padded: Option<&TextRows>) -> f64 {
        let (mut sum, mut count) = (0.0, 0usize);
        for (sample, weights) in self.of_head(head).enumerate() {
            let real = padded.map_or(self.queries, |rows| rows.real(sample));
            for row in weights.chunks_exact(self.keys).take(real) {
                sum += entropy(row);
                count += 1;
            }
        }
        sum / count.max(1) as f64
    }

    fn induction(&self, head: usize, rows: &TextRows) -> f64 {
        let mut sums = HeadSums::default();
        for (sample, weights) in self.of_head(head).enumerate() {
            for document in rows.documents(sample) {
                let weight = |query, key| weights[(document.start + query) * self.keys + document.start + key];
                sums.add(&rows.tokens(sample, document.clone()), weight);
            }
        }
        sums.scores().induction
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
fn attentions(graph: &mut Graph) -> vitreous_engine::Result<Vec<WatchedAttention>> {
    let found: Vec<_> = graph
        .nodes()
        .iter()
        .filter_map(|node| match &node.op {
            Op::Attention(op) => Some((node.path.clone(), op.clone(), node.inputs.clone())),
            _ => None,
        })
        .collect();
    let mut all = Vec::with_capacity(found.len());
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
        all.push(WatchedAttention {
            name,
            weights: graph.attention_weights(attention)?,
            is_causal: op.causal,
            is_padded: op.padding != PaddingKind::None,
        });
    }
    Ok(all)
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
fn next_token_logits(graph: &mut Graph, attention: &[WatchedAttention]) -> vitreous_engine::Result<Option<Value>> {
    let Ok(logits) = graph.find("logits") else { return Ok(None) };
    let &[rows, length, vocabulary] = graph.shape_of(logits).axes() else { return Ok(None) };
    let node = graph.node(logits);
    let (Op::Linear(_), &[hidden, matrix], []) = (&node.op, &node.inputs[..], &node.steps[..]) else { return Ok(None) };
    if !attention.iter().any(|attention| attention.is_causal) {
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

/// The share of units that are above 0 for no token, of rows of text for no token of theirs.
fn dead_share(values: &[f32], width: usize, rows: Option<&TextRows>) -> f64 {
    let mut lives = vec![false; width];
    for (token, values) in values.chunks_exact(width).enumerate() {
        if rows.is_none_or(|rows| token % rows.length() < rows.real(token / rows.length())) {
            values.iter().zip(&mut lives).for_each(|(value, lives)| *lives |= *value > 0.0);
        }
    }
    lives.iter().filter(|lives| !**lives).count() as f64 / width.max(1) as f64
}

/// `-Σ a ln a`.
fn entropy(row: &[f32]) -> f64 {
    row.iter().filter(|weight| **weight > 0.0).map(|&weight| -f64::from(weight) * f64::from(weight).ln()).sum()
}

/// The mean loss of what is to be predicted at each position, from logits `[samples, positions, vocabulary]` of the first rows.
fn losses(logits: &[f32], axes: &[usize], rows: &TextRows) -> Vec<Option<f64>> {
    let &[_, positions, vocabulary] = axes else { return Vec::new() };
    if positions > rows.length() || !rows.has_targets() {
        return Vec::new();
    }
    let mut sums = vec![(0.0, 0usize); positions];
    for (row, logits) in logits.chunks_exact(vocabulary).enumerate() {
        let (sample, at) = (row / positions, row % positions);
        let Some(&own) = rows.target(sample, at).and_then(|next| logits.get(next)) else { continue };
        let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let log_sum = most + logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum::<f64>().ln();
        sums[at].0 += log_sum - f64::from(own);
        sums[at].1 += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f64)).collect()
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

    fn batch(arrays: &[(&'static str, &[usize], &[i32])]) -> Batch {
        let array = |(name, shape, values): &(&'static str, &[usize], &[i32])| NamedArray {
            name,
            shape: shape.to_vec(),
            values: ArrayValues::I32(values.to_vec()),
        };
        Batch { arrays: arrays.iter().map(array).collect(), ..Batch::default() }
    }

    #[test]
    fn dead_units_and_entropy() {
        let values = [1.0, -1.0, 0.0, 0.0, -2.0, 3.0];
        assert_eq!(dead_share(&values, 3, None), 1.0 / 3.0);
        let padded = batch(&[("tokens", &[1, 2], &[5, 0]), ("lengths", &[1], &[1])]);
        assert_eq!(dead_share(&values, 3, TextRows::of(&padded).as_ref()), 2.0 / 3.0);
        assert!((entropy(&[0.5, 0.5, 0.0]) - 2f64.ln()).abs() < 1e-12);
        // The second query is padding.
        let weights = HeadWeights { weights: &[1.0, 0.0, 0.5, 0.5], heads: 1, queries: 2, keys: 2 };
        assert_eq!(weights.entropy(0, TextRows::of(&padded).as_ref()), 0.0);
        assert!((weights.entropy(0, None) - 0.5 * 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn losses_are_those_of_what_is_predicted() {
        let ignored = vitreous_data::text::IGNORED;
        let targets = [1, ignored, 2, ignored, 1, ignored];
        let arrays = batch(&[("tokens", &[2, 3], &[0; 6]), ("targets", &[2, 3], &targets)]);
        let rows = TextRows::of(&arrays).expect("rows");
        let even = losses(&[0.0; 24], &[2, 3, 4], &rows);
        assert_eq!(even.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true]);
        assert!(even.iter().flatten().all(|loss| (loss - 4f64.ln()).abs() < 1e-12), "{even:?}");
        // The first row alone, two positions of three: at the second nothing is learned.
        let some = losses(&[0.0, 9e9, 0.0, 0.0], &[1, 2, 2], &rows);
        assert_eq!(some, [Some(0.0), None]);
        // Targets of something else, as classes of texts, are none of tokens.
        let classes = batch(&[("tokens", &[2, 3], &[0; 6]), ("targets", &[2], &[1, 0])]);
        assert!(losses(&[0.0; 24], &[2, 3, 4], &TextRows::of(&classes).expect("rows")).is_empty());
    }

    /// A head that attends, from every token, to what followed an earlier copy: in the same document, in another, in padding.
    #[test]
    fn induction_counts_copies_within_a_document() {
        let tokens = [7, 8, 7, 8, 7, 8, 0, 0, 0];
        let length = tokens.len();
        let mut weights = vec![0.0; length * length];
        // Of the first document: 8 at 3 to what followed 8 at 1.
        weights[3 * length + 2] = 1.0;
        // Of the second, with a copy only in the first, and of padding.
        weights[5 * length + 2] = 1.0;
        weights[8 * length + 7] = 1.0;
        let weights = HeadWeights { weights: &weights, heads: 1, queries: length, keys: length };
        let own = ("tokens", &[1, 9][..], &tokens[..]);
        let score = |more: &[(&'static str, &[usize], &[i32])]| {
            let arrays = batch(&[&[own], more].concat());
            weights.induction(0, &TextRows::of(&arrays).expect("rows"))
        };
        let lengths = ("lengths", &[1][..], &[6][..]);
        let documents = ("documents", &[1, 9][..], &[0, 0, 0, 0, 1, 1, 0, 0, 0][..]);
        // Repeated are 7 and 8 of the first; apart, nothing of the second.
        assert_eq!(score(&[lengths, documents]), 1.0 / 2.0);
        assert_eq!(score(&[lengths]), 2.0 / 4.0);
        assert_eq!(score(&[]), 3.0 / 6.0);
    }
}
