//! Initial values of parameters.
//!
//! Each value is a pure function of (seed, parameter name, index): it depends neither on the order of parameters nor on
//! what else is initialised. The declaration of a parameter says how it starts ([`Init`]): norms at 1 and 0, LayerScale
//! at its setting, adapters as in `peft` (A as PyTorch's `Linear`, B zero). The scheme decides for matrices, biases and
//! embeddings.

use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{Init, LayerKind, Parameter, Result, State};

/// Initialisation scheme of matrices, biases and embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialisation {
    /// Xavier-uniform matrices, with query, key and value separately; biases zero.
    Xavier,
    /// timm's default: normal matrices with standard deviation 0.02, biases zero, the patch embedding as PyTorch's
    /// convolution.
    TruncatedNormal,
    /// PyTorch's `Linear`: matrices and biases uniform within `±1 / √in`.
    PyTorch,
    /// timm's `jax`, which follows the ViT paper: Xavier-uniform matrices (a fused projection as one), biases of
    /// feed-forward layers normal with standard deviation 1e-6, the patch embedding LeCun-normal, heads zero.
    Jax,
    /// Zero: the initialisation of a new head for fine-tuning in the ViT paper.
    Zeros,
}

/// The distribution of one parameter's values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Draw {
    Constant(f32),
    /// Uniform from -bound to bound.
    Uniform(f64),
    /// Normal with this standard deviation.
    Normal(f64),
    /// Normal with this standard deviation, redrawn beyond two of them.
    Truncated(f64),
}

/// The standard deviation of a standard normal distribution truncated at ±2.
const TRUNCATED_DEVIATION: f64 = 0.879_625_661_034_239_8;

/// A parameter's initial values.
pub fn initial_values(scheme: Initialisation, parameter: &Parameter, seed: u64) -> Vec<f32> {
    if let (Init::Sinusoidal, &[rows, width]) = (parameter.declared.init, parameter.shape.axes()) {
        return crate::positions::whisper(rows, width);
    }
    let mut values = draw_of(scheme, parameter).values(&parameter.name, parameter.shape.axes(), seed);
    let mut multiply = |count: usize, factor: f64| {
        values[..count].iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
    };
    let count = parameter.shape.elements();
    match parameter.declared.init {
        Init::NormalQuery { query, others } => {
            multiply(count / parameter.declared.parts.len().max(1), query / others);
        }
        Init::ResidualMatrix { layers, .. } => multiply(count, 1.0 / (2.0 * layers.max(1) as f64).sqrt()),
        Init::Constant(_)
        | Init::Normal(_)
        | Init::Matrix(_)
        | Init::Bias { .. }
        | Init::Table
        | Init::Sinusoidal
        | Init::PyTorchLinear => {}
    }
    values
}

/// Sets the selected parameters of a state to their initial values.
pub fn initialise(
    state: &mut State,
    scheme: Initialisation,
    seed: u64,
    wanted: &dyn Fn(&Parameter) -> bool,
) -> Result<()> {
    let table: Vec<Parameter> = state.table().iter().filter(|parameter| wanted(parameter)).cloned().collect();
    for parameter in &table {
        let values = initial_values(scheme, parameter, seed);
        state.parameter_mut(&parameter.name)?.copy_from_slice(&values);
    }
    Ok(())
}

fn draw_of(scheme: Initialisation, parameter: &Parameter) -> Draw {
    match parameter.declared.init {
        Init::Constant(value) => Draw::Constant(value),
        Init::Normal(deviation) | Init::NormalQuery { others: deviation, .. } => Draw::Normal(deviation),
        Init::PyTorchLinear => torch_uniform(fan_in(parameter)),
        Init::Sinusoidal => Draw::Constant(0.0),
        Init::Matrix(kind) | Init::ResidualMatrix { kind, .. } => matrix(scheme, parameter, kind),
        Init::Bias { kind, fan_in } => bias(scheme, kind, fan_in),
        Init::Table => table(scheme, parameter),
    }
}

/// Inputs of a matrix `[out, in]` or `[out, in, ..]`.
fn fan_in(parameter: &Parameter) -> usize {
    parameter.shape.axes()[1..].iter().product()
}

/// PyTorch's default: uniform within `±1 / √in`.
fn torch_uniform(fan_in: usize) -> Draw {
    Draw::Uniform(1.0 / (fan_in as f64).sqrt())
}

/// Xavier's rule: uniform within `±√(6 / (in + out))`.
fn xavier(into: usize, out: usize) -> Draw {
    Draw::Uniform((6.0 / (into + out) as f64).sqrt())
}

fn matrix(scheme: Initialisation, parameter: &Parameter, kind: LayerKind) -> Draw {
    let (out, into) = (parameter.shape.axes()[0], fan_in(parameter));
    match (scheme, kind) {
        (Initialisation::Zeros, _) => Draw::Constant(0.0),
        (Initialisation::PyTorch, _) | (Initialisation::TruncatedNormal, LayerKind::Convolution) => torch_uniform(into),
        (Initialisation::TruncatedNormal, _) => Draw::Normal(0.02),
        (Initialisation::Xavier, _) => xavier(into, out / parameter.declared.parts.len().max(1)),
        (Initialisation::Jax, LayerKind::Convolution) => {
            Draw::Truncated(1.0 / (into as f64).sqrt() / TRUNCATED_DEVIATION)
        }
        (Initialisation::Jax, _) if parameter.head => Draw::Constant(0.0),
        (Initialisation::Jax, _) => xavier(into, out),
    }
}

fn bias(scheme: Initialisation, kind: LayerKind, fan_in: usize) -> Draw {
    match (scheme, kind) {
        (Initialisation::PyTorch, _) | (Initialisation::TruncatedNormal, LayerKind::Convolution) => {
            torch_uniform(fan_in)
        }
        (Initialisation::Jax, LayerKind::FeedForward) => Draw::Normal(1e-6),
        _ => Draw::Constant(0.0),
    }
}

/// Embeddings: implementations of the 2017 Transformer initialise them like any matrix; BERT and GPT normal with 0.02.
fn table(scheme: Initialisation, parameter: &Parameter) -> Draw {
    match scheme {
        Initialisation::Xavier => xavier(fan_in(parameter), parameter.shape.axes()[0]),
        Initialisation::TruncatedNormal | Initialisation::Jax => Draw::Normal(0.02),
        Initialisation::PyTorch => Draw::Normal(1.0),
        Initialisation::Zeros => Draw::Constant(0.0),
    }
}

impl Draw {
    /// The values of a parameter.
    fn values(self, parameter: &str, shape: &[usize], seed: u64) -> Vec<f32> {
        let stream = Stream::new(seed, 0, place_of(parameter));
        let count: usize = shape.iter().product();
        let mut values = Vec::with_capacity(count.next_multiple_of(4));
        for block in 0..count.div_ceil(4) {
            values.extend(self.four(&stream, block as u64));
        }
        values.truncate(count);
        values
    }

    /// The four values of a block of the stream.
    fn four(self, stream: &Stream, block: u64) -> [f32; 4] {
        match self {
            Draw::Constant(value) => [value; 4],
            Draw::Uniform(bound) => stream.four(block).map(|word| (bound * (2.0 * unit(word) - 1.0)) as f32),
            Draw::Normal(deviation) => four_normals(stream, block).map(|number| (deviation * number) as f32),
            Draw::Truncated(deviation) => {
                let mut numbers = four_normals(stream, block);
                let mut attempt: u64 = 0;
                while numbers.iter().any(|number| number.abs() > 2.0) {
                    attempt += 1;
                    // Each retry has blocks of its own, after all first ones.
                    let again = four_normals(stream, block | attempt << 40);
                    for (number, again) in numbers.iter_mut().zip(again).filter(|(number, _)| number.abs() > 2.0) {
                        *number = again;
                    }
                }
                numbers.map(|number| (deviation * number) as f32)
            }
        }
    }
}

/// A number strictly between 0 and 1.
fn unit(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

/// Four standard normal numbers (Box and Muller).
fn four_normals(stream: &Stream, block: u64) -> [f64; 4] {
    let [a, b, c, d] = stream.four(block).map(unit);
    let pair = |length: f64, angle: f64| {
        let radius = (-2.0 * length.ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * angle).sin_cos();
        [radius * cosine, radius * sine]
    };
    let ([first, second], [third, fourth]) = (pair(a, b), pair(c, d));
    [first, second, third, fourth]
}
