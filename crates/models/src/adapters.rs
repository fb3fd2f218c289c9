//! Low-rank adapters (LoRA, Hu et al. 2021): fine-tuning that trains two thin matrices beside each large one, which is
//! frozen.
//!
//! ```text
//! y = W x + b + alpha / rank · B (A x)        A: [rank, in], B: [out, rank]
//! ```
//!
//! A starts random and B at zero, so that training starts from the original model. A fused projection of query, key and
//! value has one adapter over all three, as `peft` does for a fused `Linear`: they share A. [`merge_adapters`] folds
//! `alpha / rank · B A` into W, after which the model is an ordinary one again.

use vitreous_engine::{Error, Graph, Init, Result, Role, State, Value};

use crate::call::Call;
use crate::family::Architecture;

/// Which layers have adapters, and their rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapters {
    /// The rank of the adapters, usually 4 to 64.
    pub rank: usize,
    /// The output of adapters is scaled by `alpha / rank`.
    pub alpha: f32,
    /// Whether the feed-forward layers have adapters too, in addition to the attention projections.
    pub mlp: bool,
}

impl Adapters {
    /// The scale of an adapter's output.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank as f32
    }

    /// An error for a rank of 0 and an alpha that is not finite.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        match (self.rank, self.alpha.is_finite()) {
            (0, _) => Err("the rank of adapters must be at least 1".to_string()),
            (_, false) => Err(format!("the alpha of adapters must be finite, it is {}", self.alpha)),
            _ => Ok(()),
        }
    }
}

/// Adds the adapter's output for `x`, with parameters in the current scope, to the layer's output `y`.
pub(crate) fn adapt(g: &mut Graph, adapters: &Adapters, x: Value, y: Value) -> Result<Value> {
    let (into, out) = (g.shape_of(x).columns(), g.shape_of(y).columns());
    let a = g.declare("lora_a", [adapters.rank, into], Role::Adapter.starting(Init::PyTorchLinear))?;
    let b = g.declare("lora_b", [out, adapters.rank], Role::Adapter.starting(Init::Constant(0.0)))?;
    let inner = g.linear(x, a, None)?;
    let change = g.linear(inner, b, None)?;
    let change = g.scale(change, adapters.scale())?;
    g.add(y, change)
}

/// A parameter of the merged model: a weight with its adapter folded in, anything else as in the state.
pub fn merged(state: &State, adapters: &Adapters, parameter: &str) -> Result<Vec<f32>> {
    let mut weight = state.parameter(parameter)?.to_vec();
    let Some(layer) = parameter.strip_suffix(".weight") else { return Ok(weight) };
    let name = format!("{layer}.lora_a");
    let Some(entry) = state.table().iter().find(|entry| entry.name == name) else { return Ok(weight) };
    if entry.shape.rows() != adapters.rank {
        return Err(Error::Data {
            what: "adapter",
            expected: format!("rank {}", adapters.rank),
            got: format!("rank {}", entry.shape.rows()),
            name,
        });
    }
    let (a, b) = (state.parameter(&name)?, state.parameter(&format!("{layer}.lora_b"))?);
    let into = entry.shape.columns();
    let mut change = vec![0f64; into];
    for (row, of_b) in weight.chunks_exact_mut(into).zip(b.chunks_exact(adapters.rank)) {
        change.fill(0.0);
        for (of_a, &factor) in a.chunks_exact(into).zip(of_b) {
            for (change, &a) in change.iter_mut().zip(of_a) {
                *change += f64::from(factor) * f64::from(a);
            }
        }
        for (weight, change) in row.iter_mut().zip(&change) {
            *weight = (f64::from(*weight) + f64::from(adapters.scale()) * change) as f32;
        }
    }
    Ok(weight)
}

/// The parameters of a model as it is without adapters: those of a state that has some, with each folded into its weight.
pub fn without_adapters(architecture: &dyn Architecture, state: &State, adapters: &Adapters) -> Result<State> {
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1))?;
    let mut plain = State::new(&graph)?;
    let names: Vec<String> = plain.table().iter().map(|parameter| parameter.name.clone()).collect();
    for name in names {
        let values = merged(state, adapters, &name)?;
        plain.parameter_mut(&name)?.copy_from_slice(&values);
    }
    Ok(plain)
}

/// Folds all adapters into the weights of their layers. Each B becomes zero, so that the model with adapters computes
/// the same as before.
pub fn merge_adapters(state: &mut State, adapters: &Adapters) -> Result<()> {
    let names: Vec<String> = state.table().iter().map(|entry| entry.name.clone()).collect();
    for layer in names.iter().filter_map(|name| name.strip_suffix(".lora_b")) {
        let weight = format!("{layer}.weight");
        let values = merged(state, adapters, &weight)?;
        state.parameter_mut(&weight)?.copy_from_slice(&values);
        state.parameter_mut(&format!("{layer}.lora_b"))?.fill(0.0);
    }
    Ok(())
}
