//! Layers that every family has.

use vitreous_engine::{Graph, Result, Value};

/// `x Wᵀ + b`, with parameters `NAME.weight` and `NAME.bias`.
pub(crate) fn linear(g: &mut Graph, name: &str, x: Value, out: usize, bias: bool) -> Result<Value> {
    g.scope(name, |g| {
        let into = g.shape_of(x).columns();
        let weight = g.parameter("weight", [out, into])?;
        let bias = if bias { Some(g.parameter("bias", [out])?) } else { None };
        g.linear(x, weight, bias)
    })
}

/// Layer norm, with parameters `NAME.weight` and `NAME.bias`.
pub(crate) fn norm(g: &mut Graph, name: &str, x: Value, eps: f32) -> Result<Value> {
    g.scope(name, |g| {
        let width = g.shape_of(x).columns();
        let weight = g.parameter("weight", [width])?;
        let bias = g.parameter("bias", [width])?;
        g.layer_norm(x, weight, bias, eps)
    })
}
