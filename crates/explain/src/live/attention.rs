//! The attention of a model that is watched: its weights and scores from the queries and keys that a run has kept.

use vitreous_engine::ops::Attention;
use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Device, Executor, Graph, Op, Parameter, Shape, Value};

use crate::error::ExplainError;
use crate::matrix::copy_columns;
use crate::taps::{Projection, Tap};

/// Bytes of the weights of one layer that are computed at once.
const MOST_BYTES: usize = 512 << 20;
/// What stands for a masked score: JSON and canvases know no infinity.
pub const MASKED: f32 = -3.4e38;

/// Whose attention, to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionGroup {
    /// Of the tokens of a model with one stack of layers.
    Own,
    /// Of the source, to itself.
    Encoder,
    /// Of the target, to itself.
    Decoder,
    /// Of the target, to the source.
    Cross,
}

impl AttentionGroup {
    /// Its name in requests and answers.
    pub fn name(self) -> &'static str {
        match self {
            AttentionGroup::Own => "self",
            AttentionGroup::Encoder => "encoder",
            AttentionGroup::Decoder => "decoder",
            AttentionGroup::Cross => "cross",
        }
    }

    fn of(path: &str) -> AttentionGroup {
        match (path.starts_with("encoder."), path.starts_with("decoder."), path.contains(".cross_attention.")) {
            (true, ..) => AttentionGroup::Encoder,
            (_, _, true) => AttentionGroup::Cross,
            (_, true, _) => AttentionGroup::Decoder,
            _ => AttentionGroup::Own,
        }
    }
}

/// One layer's attention.
#[derive(Clone, Debug)]
pub(crate) struct LiveAttention {
    pub group: AttentionGroup,
    /// Its number among those of its group.
    pub layer: usize,
    /// `blocks.3.attention`.
    pub scope: String,
    pub tap: Tap,
    pub bias: Option<Value>,
    pub queries: usize,
    pub keys: usize,
}

/// All attention of a graph, in its order. That of a head that pools tokens is no layer's.
pub(crate) fn attentions(graph: &Graph) -> vitreous_engine::Result<Vec<LiveAttention>> {
    let mut found: Vec<LiveAttention> = Vec::new();
    let of_ops = graph.nodes().iter().filter_map(|node| match &node.op {
        Op::Attention(op) => Some((node, op)),
        _ => None,
    });
    for ((node, op), tap) in of_ops.zip(Tap::all(graph)?) {
        let Some((scope, _)) = node.path.rsplit_once('.') else { continue };
        if !scope.bytes().any(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let tokens = |value: Value| graph.shape_of(value).axes().get(1).copied().unwrap_or(1);
        let group = AttentionGroup::of(&node.path);
        let layer = found.iter().filter(|known| known.group == group).count();
        let keys = if op.packed { 0 } else { 1 };
        found.push(LiveAttention {
            group,
            layer,
            scope: scope.to_string(),
            bias: op.bias_input().map(|input| node.inputs[input]),
            queries: tokens(node.inputs[0]),
            keys: tokens(node.inputs[keys]),
            tap,
        });
    }
    Ok(found)
}

/// What an attention reads, as a run has it.
pub(crate) struct AttentionRead<'r> {
    pub attention: &'r LiveAttention,
    pub executor: &'r Executor,
}

impl AttentionRead<'_> {
    fn op(&self) -> &Attention {
        &self.attention.tap.op
    }

    /// Queries, keys or values of some heads: `[tokens, heads · width]`.
    pub fn projection(&self, projection: Projection, heads: std::ops::Range<usize>) -> Result<Vec<f32>, ExplainError> {
        let LiveAttention { tap, queries, keys, .. } = self.attention;
        let (value, columns) = tap.columns(projection, &heads);
        let row = match (tap.op.packed, projection) {
            (true, _) => 3 * tap.dim,
            (false, Projection::Query) => tap.dim,
            (false, _) => tap.op.kv_heads * tap.head_width(),
        };
        let tokens = if projection == Projection::Query { *queries } else { *keys };
        let mut found = vec![0.0; tokens * columns.len()];
        copy_columns(self.executor.output_slice(value)?, row, columns, &mut found);
        Ok(found)
    }

    /// The scores of a head before the softmax, `[queries, keys]`; masked ones are [`MASKED`].
    pub fn scores(&self, head: usize) -> Result<Vec<f32>, ExplainError> {
        let LiveAttention { tap, queries, keys, bias, .. } = self.attention;
        let (queries, keys, width) = (*queries, *keys, tap.head_width());
        let q = self.projection(Projection::Query, head..head + 1)?;
        let k = self.projection(Projection::Key, head..head + 1)?;
        let scale = self.op().scale_for(width);
        let mut scores: Vec<f32> = Vec::with_capacity(queries * keys);
        for row in q.chunks_exact(width) {
            let dot = |key: &[f32]| row.iter().zip(key).map(|(a, b)| a * b).sum::<f32>() * scale;
            scores.extend(k.chunks_exact(width).map(dot));
        }
        if let Some(bias) = bias {
            let bias = self.executor.output_slice(*bias)?;
            let of_head = if bias.len() > queries * keys { head } else { 0 };
            let bias = &bias[of_head * queries * keys..][..queries * keys];
            scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
        }
        for (at, score) in scores.iter_mut().enumerate() {
            if !is_seen(self.op(), [at / keys, at % keys], [queries, keys]) {
                *score = MASKED;
            }
        }
        Ok(scores)
    }
}

/// Whether a query attends to a key. See [`vitreous_engine::ops::attention`].
fn is_seen(op: &Attention, [query, key]: [usize; 2], [queries, keys]: [usize; 2]) -> bool {
    let position = query + keys.saturating_sub(queries);
    match (op.causal, op.window) {
        (true, None) => key <= position,
        (true, Some(window)) => key <= position && key + window > position,
        (false, Some(window)) => key + window >= position && key <= position + window,
        (false, None) => true,
    }
}

/// Computes the weights of all heads of layers that are alike.
pub(crate) struct LiveWeights {
    op: Attention,
    shape: [usize; 2],
    executor: Executor,
    weights: Value,
}

impl LiveWeights {
    pub fn fits(&self, attention: &LiveAttention) -> bool {
        self.op == attention.tap.op && self.shape == [attention.queries, attention.keys]
    }

    pub fn new(attention: &LiveAttention, bias: Option<&Shape>, device: &Device) -> Result<LiveWeights, ExplainError> {
        let (op, width) = (&attention.tap.op, attention.tap.head_width());
        let (queries, keys) = (attention.queries, attention.keys);
        let bytes = op.heads.saturating_mul(queries).saturating_mul(keys).saturating_mul(4);
        if bytes > MOST_BYTES {
            let what = format!(
                "the attention weights of one layer take {bytes} bytes, more than {MOST_BYTES}: give a shorter input"
            );
            return Err(vitreous_engine::Error::Memory(what).into());
        }
        let mut graph = Graph::for_inference();
        let q = graph.input("queries", [1, queries, op.heads * width], DType::F32)?;
        let k = graph.input("keys", [1, keys, op.kv_heads * width], DType::F32)?;
        let bias = bias.map(|shape| graph.input("bias", shape.clone(), DType::F32)).transpose()?;
        let options = AttentionOptions {
            heads: op.heads,
            kv_heads: Some(op.kv_heads),
            scale: op.scale,
            causal: op.causal,
            window: op.window,
            bias,
            ..AttentionOptions::default()
        };
        // Values have no part in weights: any of their shape will do.
        let attended = graph.attention(AttentionInputs::Separate { q, k, v: k }, &options)?;
        let weights = graph.attention_weights(attended)?;
        let plan = device.plan_with_fixed_weights(&graph, &[weights])?;
        device.check_memory("attention of a layer", device.bytes_needed_with_weights(&plan))?;
        let executor = Executor::with_weights(plan, device, no_parameters)?;
        Ok(LiveWeights { op: op.clone(), shape: [queries, keys], executor, weights })
    }

    /// `[heads, queries, keys]`.
    pub fn of(&mut self, read: &AttentionRead) -> Result<&[f32], ExplainError> {
        let heads = self.op.heads;
        let q = read.projection(Projection::Query, 0..heads)?;
        let k = read.projection(Projection::Key, 0..heads)?;
        self.executor.input("queries")?.copy_from_slice(&q);
        self.executor.input("keys")?.copy_from_slice(&k);
        if let Some(bias) = read.attention.bias {
            self.executor.input("bias")?.copy_from_slice(read.executor.output_slice(bias)?);
        }
        self.executor.infer()?;
        Ok(self.executor.output_slice(self.weights)?)
    }
}

fn no_parameters(parameter: &Parameter) -> vitreous_engine::Result<std::borrow::Cow<'static, [f32]>> {
    let message = format!("attention's weights have no parameter, but `{}` was asked for", parameter.name);
    Err(vitreous_engine::Error::Machine(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_those_of_the_op() {
        let op = |causal: bool, window: Option<usize>| {
            let mut graph = Graph::for_inference();
            let x = graph.input("x", [1, 4, 2], DType::F32).expect("an input");
            let options = AttentionOptions { heads: 1, causal, window, ..AttentionOptions::default() };
            let y = graph.attention(AttentionInputs::Separate { q: x, k: x, v: x }, &options).expect("attention");
            match &graph.node(y).op {
                Op::Attention(op) => op.clone(),
                other => panic!("{other:?}"),
            }
        };
        let row = |op: &Attention, query: usize| -> Vec<bool> {
            (0..4).map(|key| is_seen(op, [query, key], [4, 4])).collect()
        };
        assert_eq!(row(&op(true, None), 1), [true, true, false, false]);
        assert_eq!(row(&op(true, Some(2)), 2), [false, true, true, false]);
        assert_eq!(row(&op(false, Some(1)), 1), [true, true, true, false]);
        assert_eq!(row(&op(false, None), 0), [true; 4]);
    }
}
