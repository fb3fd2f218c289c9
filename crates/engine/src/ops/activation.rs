//! Activations: GELU (exact, tanh and quick), ReLU, SiLU, tanh, e^x.
//!
//! | | |
//! |---|---|
//! | shapes | y has x's shape |
//! | FLOPs | by convention, per element: 8 for the GELUs, 1 for ReLU, 4 for the others |
//! | gradients | `dx = dy · f'(x)`; ReLU's derivative at 0 is 0 |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Op, Pointwise, Step};

/// An elementwise activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x Φ(x)` with the exact normal distribution: `x/2 (1 + erf(x/√2))`.
    Gelu,
    /// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x / (1 + e^-1.702x)`, CLIP's approximation of GELU.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `x / (1 + e^-x)`.
    Silu,
    /// `tanh x`.
    Tanh,
    /// `e^x`.
    Exp,
}

impl Activation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::QuickGelu => "quick_gelu",
            Activation::Relu => "relu",
            Activation::Silu => "silu",
            Activation::Tanh => "tanh",
            Activation::Exp => "exp",
        }
    }

    pub(crate) fn gradient_name(self) -> &'static str {
        match self {
            Activation::Gelu => "gelu_gradient",
            Activation::GeluTanh => "gelu_tanh_gradient",
            Activation::QuickGelu => "quick_gelu_gradient",
            Activation::Relu => "relu_gradient",
            Activation::Silu => "silu_gradient",
            Activation::Tanh => "tanh_gradient",
            Activation::Exp => "exp_gradient",
        }
    }

    pub(crate) fn flops(self) -> u64 {
        match self {
            Activation::Gelu | Activation::GeluTanh | Activation::QuickGelu => 8,
            Activation::Relu => 1,
            Activation::Silu | Activation::Tanh | Activation::Exp => 4,
        }
    }
}

pub(super) fn gradient(backward: &mut Backward, activation: Activation) -> Result<()> {
    if !backward.wants(0) {
        return Ok(());
    }
    let x = backward.input(0)?;
    backward.map_gradient(|graph, dy| {
        let dtype = graph.type_of(dy).dtype;
        let step = Step::ActivationGradient { activation, input: 1 };
        graph.add_op(Op::Pointwise(Pointwise { dtype }), &[dy, x], vec![step])
    })
}

impl Graph {
    /// An activation.
    pub fn activation(&mut self, x: Value, activation: Activation) -> Result<Value> {
        self.unary(Step::Activation(activation), x)
    }

    /// Exact GELU (erf).
    pub fn gelu(&mut self, x: Value) -> Result<Value> {
        self.activation(x, Activation::Gelu)
    }

    /// GELU with the tanh approximation.
    pub fn gelu_tanh(&mut self, x: Value) -> Result<Value> {
        self.activation(x, Activation::GeluTanh)
    }

    /// `max(x, 0)`.
    pub fn relu(&mut self, x: Value) -> Result<Value> {
        self.activation(x, Activation::Relu)
    }

    /// `x / (1 + e^-x)`.
    pub fn silu(&mut self, x: Value) -> Result<Value> {
        self.activation(x, Activation::Silu)
    }

    /// `tanh x`.
    pub fn tanh(&mut self, x: Value) -> Result<Value> {
        self.activation(x, Activation::Tanh)
    }

    /// `e^x`.
    pub fn exp(&mut self, x: Value) -> Result<Value> {
        self.activation(x, Activation::Exp)
    }
}
