//! What training a model costs, read off its graph.

use std::collections::BTreeMap;

use vitreous_engine::{GradientOptions, Graph, Op, Plan, Precision};
use vitreous_models::{Architecture, Call, Takes};

use crate::error::Error;
use crate::training_graph::training_graph;

/// What a training step of a model costs.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Whether it takes images.
    pub images: bool,
    /// Parameters.
    pub parameters: f64,
    /// Layers that repeat, and the parameters of the largest.
    pub layers: usize,
    /// Parameters of the largest layer.
    pub layer_parameters: f64,
    /// Heads of its attention.
    pub heads: usize,
    /// Heads of its keys and values.
    pub kv_heads: usize,
    /// Tokens of a sample.
    pub tokens: usize,
    /// Their width.
    pub width: usize,
    /// FLOPs of a sample, forward and backward.
    pub flops: f64,
    /// FLOPs more if activations are computed again.
    pub flops_recomputed: f64,
    /// Bytes besides parameters and what belongs to them.
    pub activations: Activations,
    /// The same with recomputation.
    pub activations_recomputed: Activations,
    /// Bytes of an activation between two layers, of each token and number.
    pub activation_number: f64,
}

/// Bytes that a step needs by its batch: planned for one sample and for the batch, a line between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activations {
    /// For a batch of one.
    pub one: f64,
    /// More for each further sample.
    pub each: f64,
}

impl Activations {
    /// Of a batch.
    pub fn of(&self, batch: usize) -> f64 {
        self.one + self.each * (batch as f64 - 1.0)
    }
}

impl Workload {
    /// Of a model with samples of `tokens` (images have their own) in batches of `batch`.
    pub fn of(model: &dyn Architecture, batch: usize, tokens: usize, precision: Precision) -> Result<Workload, Error> {
        let step = |batch: usize, recompute: bool| Planned::step(model, batch, tokens, precision, recompute);
        let whole = step(batch, false)?;
        let again = step(batch, true)?;
        let activations = |of_batch: &Planned, of_one: &Planned| Activations {
            one: of_one.bytes,
            each: (of_batch.bytes - of_one.bytes).max(0.0) / (batch as f64 - 1.0).max(1.0),
        };
        let (activations, activations_recomputed) = match batch {
            1 => (activations(&whole, &whole), activations(&again, &again)),
            _ => (activations(&whole, &step(1, false)?), activations(&again, &step(1, true)?)),
        };
        let (layers, layer_parameters) = whole.layers();
        let attention = whole.attention().ok_or_else(|| Error::input("this model has no attention"))?;
        let flops = whole.plan.flops() as f64 / batch as f64;
        Ok(Workload {
            images: matches!(model.signature().takes, Takes::Images(_)),
            parameters: whole.graph.parameter_floats() as f64,
            layers,
            layer_parameters,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            tokens: attention.rows / batch,
            width: attention.width,
            flops,
            flops_recomputed: (again.plan.flops() as f64 / batch as f64 - flops).max(0.0),
            activations,
            activations_recomputed,
            // The residual stream is f32; products of bf16 are what tensor-parallel ranks add up.
            activation_number: if precision == Precision::Bf16 { 2.0 } else { 4.0 },
        })
    }
}

/// A training step that is planned and not run.
struct Planned {
    graph: Graph,
    plan: Plan,
    bytes: f64,
}

/// The first attention of a model.
struct FirstAttention {
    heads: usize,
    kv_heads: usize,
    rows: usize,
    width: usize,
}

impl Planned {
    fn step(
        model: &dyn Architecture,
        batch: usize,
        tokens: usize,
        precision: Precision,
        recompute: bool,
    ) -> Result<Planned, Error> {
        let call = Call::whole(batch).tokens(tokens).target(tokens);
        // A smaller batch, or another model, could be planned.
        let refused = |error: vitreous_engine::Error| Error::input(error.to_string());
        let (graph, loss) = training_graph(model, &call, precision, GradientOptions { recompute }).map_err(refused)?;
        // A build without CUDA plans for the processor, which needs somewhat more in bf16.
        let plan = Plan::for_cuda(&graph, &[loss]).or_else(|_| Plan::for_cpu(&graph, &[loss])).map_err(refused)?;
        let bytes = plan.arena_bytes() as f64;
        Ok(Planned { graph, plan, bytes })
    }

    /// How many layers there are, and the parameters of the largest.
    fn layers(&self) -> (usize, f64) {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for parameter in self.graph.parameters() {
            if let Some(layer) = layer_of(&parameter.name) {
                *sizes.entry(layer).or_default() += parameter.shape.elements();
            }
        }
        (sizes.len().max(1), sizes.values().max().copied().unwrap_or_default() as f64)
    }

    fn attention(&self) -> Option<FirstAttention> {
        self.graph.nodes().iter().find_map(|node| match &node.op {
            Op::Attention(op) => Some(FirstAttention {
                heads: op.heads,
                kv_heads: op.kv_heads,
                rows: node.outputs[0].shape.rows(),
                width: node.outputs[0].shape.columns(),
            }),
            _ => None,
        })
    }
}

/// `blocks.3` of `blocks.3.attention.qkv.weight`.
fn layer_of(name: &str) -> Option<&str> {
    let mut end = 0;
    for part in name.split('.') {
        let is_number = end > 0 && part.bytes().all(|byte| byte.is_ascii_digit());
        end += part.len() + usize::from(end > 0);
        if is_number {
            return Some(&name[..end]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_belong_to_numbered_layers() {
        assert_eq!(layer_of("blocks.3.attention.qkv.weight"), Some("blocks.3"));
        assert_eq!(layer_of("encoder.blocks.11.norm1.bias"), Some("encoder.blocks.11"));
        assert_eq!(layer_of("head.weight"), None);
    }
}
