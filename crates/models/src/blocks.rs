//! Building blocks shared by families: linear layers, norms, residual branches, feed-forward blocks. Each declares its
//! parameters with their roles.

use vitreous_engine::{DType, Graph, Init, LayerKind, Mode, Precision, Result, Role, Value};

use crate::adapters::{Adapters, adapt};
use crate::settings::{Activation, NormOrder};

/// A linear layer: `x Wᵀ + b`, with parameters `NAME.weight [out, in]` and `NAME.bias [out]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear<'a> {
    pub name: &'a str,
    pub out: usize,
    pub bias: bool,
    pub kind: LayerKind,
    /// The projections stacked in it, e.g. query, key and value.
    pub parts: &'static [&'static str],
    pub role: Role,
    /// Initial values of the matrix, if they are not those of the initialisation scheme.
    pub init: Option<Init>,
}

impl<'a> Linear<'a> {
    pub fn new(name: &'a str, out: usize, bias: bool) -> Linear<'a> {
        Linear { name, out, bias, kind: LayerKind::Linear, parts: &[], role: Role::Weight, init: None }
    }

    /// A linear layer of a feed-forward block.
    pub fn feed_forward(name: &'a str, out: usize) -> Linear<'a> {
        Linear { kind: LayerKind::FeedForward, ..Linear::new(name, out, true) }
    }

    pub fn of(self, g: &mut Graph, x: Value) -> Result<Value> {
        g.scope(self.name, |g| {
            let fan_in = g.shape_of(x).columns();
            let init = self.init.unwrap_or(Init::Matrix(self.kind));
            let matrix = self.role.starting(init).of_parts(self.parts);
            let weight = g.declare("weight", [self.out, fan_in], matrix)?;
            let bias = match self.bias {
                true => {
                    let starting = Role::Bias.starting(Init::Bias { kind: self.kind, fan_in });
                    Some(g.declare("bias", [self.out], starting.of_parts(self.parts))?)
                }
                false => None,
            };
            g.linear(x, weight, bias)
        })
    }

    /// With a low-rank adapter, if there are adapters.
    pub fn adapted(self, g: &mut Graph, adapters: Option<&Adapters>, x: Value) -> Result<Value> {
        let y = self.of(g, x)?;
        adapters.map_or(Ok(y), |adapters| g.scope(self.name, |g| adapt(g, adapters, x, y)))
    }
}

/// `x Wᵀ + b`, with parameters `NAME.weight` and `NAME.bias`.
pub(crate) fn linear(g: &mut Graph, name: &str, x: Value, out: usize, bias: bool) -> Result<Value> {
    Linear::new(name, out, bias).of(g, x)
}

/// Layer norm, with parameters `NAME.weight` and `NAME.bias`.
pub(crate) fn norm(g: &mut Graph, name: &str, x: Value, eps: f32) -> Result<Value> {
    g.scope(name, |g| {
        let width = g.shape_of(x).columns();
        let weight = g.declare("weight", [width], Role::Norm.starting(Init::Constant(1.0)))?;
        let bias = g.declare("bias", [width], Role::Norm.starting(Init::Constant(0.0)))?;
        g.layer_norm(x, weight, bias, eps)
    })
}

/// RMS norm, with the parameter `NAME.weight`.
pub(crate) fn rms_norm(g: &mut Graph, name: &str, x: Value, eps: f32) -> Result<Value> {
    g.scope(name, |g| {
        let width = g.shape_of(x).columns();
        let weight = g.declare("weight", [width], Role::Norm.starting(Init::Constant(1.0)))?;
        g.rms_norm(x, weight, eps)
    })
}

/// A branch of the residual stream: `x + f(norm(x))` or `norm(x + f(x))`, with dropout, a learned scale and stochastic depth. `f` is
/// built in the scope `name`, which is also the name of what it adds to the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    pub name: &'a str,
    pub norm: &'a str,
    pub order: NormOrder,
    pub eps: f32,
    pub dropout: f32,
    /// Name and initial value of the learned scale (LayerScale).
    pub layer_scale: Option<(&'a str, f32)>,
    pub stochastic_depth: f32,
}

impl Branch<'_> {
    pub fn around(&self, g: &mut Graph, x: Value, f: impl FnOnce(&mut Graph, Value) -> Result<Value>) -> Result<Value> {
        let (x, seen) = match self.order {
            NormOrder::Pre => (x, norm(g, self.norm, x, self.eps)?),
            NormOrder::Post => {
                let x = normalised_stream(g, x)?;
                (x, x)
            }
        };
        let mut y = g.scope(self.name, |g| f(g, seen))?;
        y = g.dropout(y, self.dropout)?;
        if let Some((name, start)) = self.layer_scale {
            let width = g.shape_of(x).columns();
            let scale = g.declare(name, [width], Role::Scale.starting(Init::Constant(start)))?;
            y = g.multiply(y, scale)?;
        }
        y = g.stochastic_depth(y, self.stochastic_depth)?;
        y = g.name(self.name, y)?;
        let sum = g.add(x, y)?;
        if self.order == NormOrder::Post { norm(g, self.norm, sum, self.eps) } else { Ok(sum) }
    }
}

/// One layer, a unit of recomputation: `build` in a block called `path`, which is also the name of the residual stream after it.
pub(crate) fn layer(g: &mut Graph, path: &str, build: impl FnOnce(&mut Graph) -> Result<Value>) -> Result<Value> {
    let x = g.block(path, build)?;
    g.name(path, x)
}

/// A residual stream that was just normalised. Its values are of the size of one and are rounded for the next multiplication
/// anyway: where no gradient is to come, the residual is rounded with them, which saves a pass over memory.
fn normalised_stream(g: &mut Graph, x: Value) -> Result<Value> {
    match (g.mode(), g.precision()) {
        (Mode::Inference, Precision::Bf16) => g.cast(x, DType::Bf16),
        _ => Ok(x),
    }
}

/// The feed-forward block, applied to each token: `fc2(dropout(activation(fc1 x)))`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mlp {
    pub hidden: usize,
    pub activation: Activation,
    pub dropout: f32,
}

impl Mlp {
    pub fn of(&self, g: &mut Graph, adapters: Option<&Adapters>, x: Value) -> Result<Value> {
        self.starting(g, adapters, x, None)
    }

    /// The same with other initial values of the second matrix than the initialisation scheme's.
    pub fn starting(
        &self,
        g: &mut Graph,
        adapters: Option<&Adapters>,
        x: Value,
        second: Option<Init>,
    ) -> Result<Value> {
        let width = g.shape_of(x).columns();
        let hidden = Linear::feed_forward("fc1", self.hidden).adapted(g, adapters, x)?;
        let hidden = g.activation(hidden, self.activation.into())?;
        let hidden = g.dropout(hidden, self.dropout)?;
        Linear { init: second, ..Linear::feed_forward("fc2", width) }.adapted(g, adapters, hidden)
    }
}

/// An embedding table: declared on first use and shared afterwards.
pub(crate) fn embedding_table(g: &mut Graph, name: &str, rows: usize, width: usize) -> Result<Value> {
    match g.find(name) {
        Ok(there) => Ok(there),
        Err(_) => g.declare(name, [rows, width], Role::Embedding.starting(Init::Table)),
    }
}

/// One token of each sequence: `[batch, tokens, dim]` gives `[batch, dim]`.
pub(crate) fn token(g: &mut Graph, x: Value, index: usize) -> Result<Value> {
    let axes = g.shape_of(x).axes();
    let (batch, dim) = (axes[0], axes[axes.len() - 1]);
    let one = g.slice(x, 1, index, index + 1)?;
    g.reshape(one, [batch, dim])
}
