//! Settings: the common form of every family's configuration, and checks of configurations.

use serde::{Deserialize, Serialize};
use vitreous_engine::machine::check_memory;

/// A configuration as keys and values: a recipe's `[model]`, or our own section of a `config.json`.
pub type Settings = serde_json::Map<String, serde_json::Value>;

/// Height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SizeForm", into = "SizeForm")]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// A size as written in JSON: one number for a square, or height and width.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SizeForm {
    Square(usize),
    Sides([usize; 2]),
}

impl From<SizeForm> for Size {
    fn from(form: SizeForm) -> Size {
        match form {
            SizeForm::Square(side) => Size::square(side),
            SizeForm::Sides([height, width]) => Size { height, width },
        }
    }
}

impl From<Size> for SizeForm {
    fn from(size: Size) -> SizeForm {
        if size.height == size.width {
            SizeForm::Square(size.height)
        } else {
            SizeForm::Sides([size.height, size.width])
        }
    }
}

impl Size {
    /// A square.
    pub fn square(side: usize) -> Size {
        Size { height: side, width: side }
    }

    /// Height times width.
    pub fn area(self) -> usize {
        self.height.saturating_mul(self.width)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

/// An enum of named choices, written in snake case.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }
    };
}
pub(crate) use choice;

choice! {
    /// The position of a layer's norms.
    NormOrder {
        /// `x = x + f(LN(x))`.
        Pre,
        /// `x = LN(x + f(x))`.
        Post,
    }
}

choice! {
    /// The activation of the feed-forward block.
    Activation {
        /// Exact GELU (erf).
        Gelu,
        /// GELU with the tanh approximation.
        GeluTanh,
        /// `x / (1 + e^-1.702x)`.
        QuickGelu,
        /// `max(x, 0)`.
        Relu,
        /// `x / (1 + e^-x)`.
        Silu,
        /// `tanh x`.
        Tanh,
    }
}

impl From<Activation> for vitreous_engine::Activation {
    fn from(activation: Activation) -> vitreous_engine::Activation {
        match activation {
            Activation::Gelu => vitreous_engine::Activation::Gelu,
            Activation::GeluTanh => vitreous_engine::Activation::GeluTanh,
            Activation::QuickGelu => vitreous_engine::Activation::QuickGelu,
            Activation::Relu => vitreous_engine::Activation::Relu,
            Activation::Silu => vitreous_engine::Activation::Silu,
            Activation::Tanh => vitreous_engine::Activation::Tanh,
        }
    }
}

impl Activation {
    /// The activation with this name in Hugging Face's configurations.
    pub fn from_hugging_face(name: &str) -> Option<Activation> {
        Some(match name {
            "gelu" | "gelu_python" => Activation::Gelu,
            // All of these are the same formula.
            "gelu_new" | "gelu_fast" | "gelu_accurate" | "gelu_pytorch_tanh" | "gelu_python_tanh" => {
                Activation::GeluTanh
            }
            "quick_gelu" => Activation::QuickGelu,
            "relu" => Activation::Relu,
            "silu" | "swish" => Activation::Silu,
            "tanh" => Activation::Tanh,
            _ => return None,
        })
    }

    /// Hugging Face's name for it.
    pub fn hugging_face(self) -> &'static str {
        match self {
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_pytorch_tanh",
            Activation::QuickGelu => "quick_gelu",
            Activation::Relu => "relu",
            Activation::Silu => "silu",
            Activation::Tanh => "tanh",
        }
    }
}

/// A configuration that cannot be built, with the requirement that it does not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this model cannot be built: {0}")]
pub struct ConfigError(pub String);

/// An error with this message if the requirement is not met.
pub(crate) fn rule(kept: bool, says: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if kept { Ok(()) } else { Err(ConfigError(says())) }
}

/// Upper bound of every size: products of sizes stay far from overflow, and the graph checks each one.
const LARGEST_SIZE: usize = 1 << (usize::BITS / 8 * 5);
/// As many layers as the deepest published model has (DeepNet). A configuration may come without weights, which would bound
/// their number, and a graph of 65,536 layers takes minutes to plan.
pub(crate) const MOST_LAYERS: usize = 1000;
/// The largest table of fixed positions, in elements: it is computed, and allocated, when the graph is built.
const LARGEST_FIXED_TABLE: usize = 1 << 26;

/// Every size must be at least 1 and within the bound.
pub(crate) fn check_sizes(sizes: &[(&str, usize)]) -> Result<(), ConfigError> {
    for &(name, size) in sizes {
        rule(size > 0, || format!("{name} must be at least 1"))?;
    }
    let fits = sizes.iter().all(|&(_, size)| size < LARGEST_SIZE);
    rule(fits, || "its sizes are too large for any machine".to_string())
}

/// The number of heads must divide the width, and there must not be too many layers.
pub(crate) fn check_layers(dim: usize, heads: usize, layers: usize) -> Result<(), ConfigError> {
    rule(dim.is_multiple_of(heads), || format!("{heads} heads do not divide a dim of {dim}"))?;
    rule(layers <= MOST_LAYERS, || format!("{layers} layers are more than {MOST_LAYERS}"))
}

/// Dropout rates must be at least 0 and below 1.
pub(crate) fn check_rates(rates: &[(&str, f32)]) -> Result<(), ConfigError> {
    rates.iter().try_for_each(|&(name, rate)| {
        rule((0.0..1.0).contains(&rate), || format!("{name} must be in 0..1, not {rate}"))
    })
}

/// The epsilon of norms must be positive.
pub(crate) fn check_eps(eps: f32) -> Result<(), ConfigError> {
    rule(eps > 0.0 && eps.is_finite(), || format!("norm_eps must be above 0, not {eps}"))
}

/// A table of fixed positions must not be larger than any model's, and there must be memory for it.
pub(crate) fn check_fixed_table(rows: usize, dim: usize) -> Result<(), ConfigError> {
    let numbers = rows.saturating_mul(dim);
    rule(numbers <= LARGEST_FIXED_TABLE, || format!("a fixed table of {numbers} positions is too large"))?;
    let what = format!("a fixed table of {rows} positions of {dim} numbers");
    check_memory(&what, numbers.saturating_mul(4)).map_err(|refusal| ConfigError(refusal.to_string()))
}
