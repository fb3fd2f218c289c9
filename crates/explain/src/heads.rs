//! The weights of some heads of a layer, from their queries and keys.
//!
//! It is the graph's own op for weights, over the inputs that the layer's attention had: on the CPU the same bits as a tap in the model.

use std::ops::Range;

use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Device, Executor, Graph, Parameter, Value};

use crate::error::ExplainError;
use crate::forward::Forward;
use crate::taps::{Projection, Tap};

pub(crate) struct Heads {
    executor: Executor,
    weights: Value,
    heads: usize,
    at_once: usize,
}

impl Heads {
    /// For layers like this one, with so many bytes of weights at once, but one head's at least.
    pub fn new(tap: &Tap, tokens: usize, memory: usize, device: &Device) -> Result<Heads, ExplainError> {
        let heads = tap.op.heads;
        let one_head = 4 * tokens * tokens;
        let group = heads / tap.op.kv_heads;
        // Query heads that share a key head stay together, or are some of one such group.
        let whole = |some: usize| some.is_multiple_of(group) || group.is_multiple_of(some);
        let fits = |&some: &usize| heads.is_multiple_of(some) && whole(some) && some.saturating_mul(one_head) <= memory;
        let at_once = (1..=heads).rev().find(fits).unwrap_or(1);

        let mut graph = Graph::for_inference();
        let kv_heads = at_once.div_ceil(group);
        let q = graph.input("queries", [1, tokens, at_once * tap.head_width()], DType::F32)?;
        let k = graph.input("keys", [1, tokens, kv_heads * tap.head_width()], DType::F32)?;
        let options = AttentionOptions {
            heads: at_once,
            kv_heads: Some(kv_heads),
            scale: tap.op.scale,
            causal: tap.op.causal,
            window: tap.op.window,
            ..AttentionOptions::default()
        };
        // Values have no part in weights: any of their shape will do.
        let attention = graph.attention(AttentionInputs::Separate { q, k, v: k }, &options)?;
        let weights = graph.attention_weights(attention)?;
        let plan = device.plan_with_fixed_weights(&graph, &[weights])?;
        device.check_memory("attention of some heads", device.bytes_needed_with_weights(&plan))?;
        let executor = Executor::with_weights(plan, device, no_parameters)?;
        Ok(Heads { executor, weights, heads, at_once })
    }

    /// Shows the weights of a layer to `look`: which heads, and their `[heads, tokens, tokens]`, until all were shown.
    pub fn of_layer(
        &mut self,
        forward: &Forward,
        layer: usize,
        mut look: impl FnMut(Range<usize>, &[f32]) -> Result<(), ExplainError>,
    ) -> Result<(), ExplainError> {
        for first in (0..self.heads).step_by(self.at_once) {
            let heads = first..first + self.at_once;
            forward.copy_heads(layer, Projection::Query, &heads, self.executor.input("queries")?)?;
            forward.copy_heads(layer, Projection::Key, &heads, self.executor.input("keys")?)?;
            self.executor.infer()?;
            look(heads, self.executor.output_slice(self.weights)?)?;
        }
        Ok(())
    }
}

fn no_parameters(parameter: &Parameter) -> vitreous_engine::Result<std::borrow::Cow<'static, [f32]>> {
    let message = format!("attention's weights have no parameter, but `{}` was asked for", parameter.name);
    Err(vitreous_engine::Error::Machine(message))
}
