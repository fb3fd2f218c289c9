//! The values that training starts from.
//!
//! Each number is a pure function of (seed, name of the parameter, place in it): neither the order of parameters nor what else is
//! initialised changes it. Norms start at 1 and 0, LayerScale where the configuration says, and adapters as `peft` has them (A as
//! PyTorch's `Linear`, B zero), whatever the scheme.

use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{Result, State};

use crate::config::{Qkv, VitConfig};

/// How matrices and biases start. Positions are normal with deviation 0.02 and prefix tokens nearly 0, as timm has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialisation {
    /// Xavier-uniform matrices, each of query, key and value by itself; biases zero.
    Xavier,
    /// timm's default: normal matrices with deviation 0.02, biases zero, the patch embedding as PyTorch's convolution.
    TruncatedNormal,
    /// PyTorch's `Linear`: matrices and biases uniform up to `1 / √in`.
    PyTorch,
    /// timm's `jax`, which is the paper's: Xavier-uniform matrices (a fused projection as one), biases of feed-forward layers normal with
    /// deviation 1e-6, the patch embedding LeCun-normal, heads zero.
    Jax,
    /// Zero matrices and biases: how the paper starts the new head of a model that is fine-tuned.
    Zeros,
}

/// How the numbers of one parameter are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Draw {
    Constant(f32),
    /// Uniform from -bound to bound.
    Uniform(f64),
    /// Normal of this deviation.
    Normal(f64),
    /// Normal of this deviation, drawn again where it is beyond two deviations.
    Truncated(f64),
}

/// The deviation of a standard normal that is cut off at two.
const TRUNCATED_DEVIATION: f64 = 0.879_625_661_034_239_8;

/// A parameter's initial values.
pub fn initial_values(
    scheme: Initialisation,
    config: &VitConfig,
    parameter: &str,
    shape: &[usize],
    seed: u64,
) -> Vec<f32> {
    draw_of(scheme, config, parameter, shape).values(parameter, shape, seed)
}

/// Gives the parameters of a Transformer their initial values, as its paper's readers have them: every matrix, tables of words too, uniform
/// by Xavier's rule, biases zero.
pub fn initialise_transformer(state: &mut State, seed: u64) -> Result<()> {
    let table: Vec<(String, Vec<usize>)> =
        state.table().iter().map(|entry| (entry.name.clone(), entry.shape.axes().to_vec())).collect();
    for (name, shape) in &table {
        let draw = match shape[..] {
            [out, into] => xavier(into, out),
            // Of vectors only norms have weights.
            _ if name.ends_with("weight") => Draw::Constant(1.0),
            _ => Draw::Constant(0.0),
        };
        state.parameter_mut(name)?.copy_from_slice(&draw.values(name, shape, seed));
    }
    Ok(())
}

/// Gives the wanted parameters of a state their initial values.
pub fn initialise(
    state: &mut State,
    scheme: Initialisation,
    config: &VitConfig,
    seed: u64,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let table: Vec<(String, Vec<usize>)> =
        state.table().iter().map(|entry| (entry.name.clone(), entry.shape.axes().to_vec())).collect();
    for (name, shape) in table.iter().filter(|(name, _)| wanted(name)) {
        let values = initial_values(scheme, config, name, shape, seed);
        state.parameter_mut(name)?.copy_from_slice(&values);
    }
    Ok(())
}

fn draw_of(scheme: Initialisation, config: &VitConfig, parameter: &str, shape: &[usize]) -> Draw {
    let (path, last) = parameter.rsplit_once('.').unwrap_or(("", parameter));
    let layer = path.rsplit_once('.').map_or(path, |(_, layer)| layer);
    match (layer, last) {
        ("norm" | "norm1" | "norm2", "weight") => Draw::Constant(1.0),
        ("norm" | "norm1" | "norm2", _) => Draw::Constant(0.0),
        (_, "layer_scale1" | "layer_scale2") => Draw::Constant(config.layer_scale.unwrap_or(1.0)),
        (_, "class_token" | "register_tokens") => Draw::Normal(1e-6),
        (_, "distillation_token" | "positions") => Draw::Normal(0.02),
        (_, "lora_a") => torch_uniform(shape[1]),
        (_, "lora_b") => Draw::Constant(0.0),
        _ => match last {
            "weight" => matrix(scheme, config, layer, shape),
            _ => bias(scheme, config, path, layer),
        },
    }
}

/// PyTorch's default: uniform up to `1 / √in`.
fn torch_uniform(fan_in: usize) -> Draw {
    Draw::Uniform(1.0 / (fan_in as f64).sqrt())
}

/// Xavier's rule: uniform up to `√(6 / (in + out))`.
fn xavier(into: usize, out: usize) -> Draw {
    Draw::Uniform((6.0 / (into + out) as f64).sqrt())
}

fn is_head(layer: &str) -> bool {
    matches!(layer, "head" | "distillation_head")
}

fn matrix(scheme: Initialisation, config: &VitConfig, layer: &str, shape: &[usize]) -> Draw {
    let (out, into) = (shape[0], shape[1..].iter().product::<usize>());
    let xavier = |out: usize| xavier(into, out);
    match (scheme, layer) {
        (Initialisation::Zeros, _) => Draw::Constant(0.0),
        (Initialisation::PyTorch, _) | (Initialisation::TruncatedNormal, "patch_embedding") => torch_uniform(into),
        (Initialisation::TruncatedNormal, _) => Draw::Normal(0.02),
        (Initialisation::Xavier, "qkv") if config.qkv == Qkv::Fused => xavier(out / 3),
        (Initialisation::Jax, "patch_embedding") => Draw::Truncated(1.0 / (into as f64).sqrt() / TRUNCATED_DEVIATION),
        (Initialisation::Jax, layer) if is_head(layer) => Draw::Constant(0.0),
        (Initialisation::Xavier | Initialisation::Jax, _) => xavier(out),
    }
}

fn bias(scheme: Initialisation, config: &VitConfig, path: &str, layer: &str) -> Draw {
    match scheme {
        Initialisation::PyTorch => torch_uniform(fan_in(config, layer)),
        Initialisation::TruncatedNormal if layer == "patch_embedding" => torch_uniform(fan_in(config, layer)),
        Initialisation::Jax if path.contains(".mlp.") => Draw::Normal(1e-6),
        _ => Draw::Constant(0.0),
    }
}

/// The width of what a layer reads.
fn fan_in(config: &VitConfig, layer: &str) -> usize {
    match layer {
        "patch_embedding" => config.channels * config.patch.height * config.patch.width,
        "fc2" | "down" => config.mlp_dim,
        "pre_logits" => config.pooled(),
        "head" => config.features(),
        _ => config.dim,
    }
}

impl Draw {
    /// The numbers of a parameter.
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

    /// The four numbers of a block of the stream.
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
                    // Each further attempt has blocks of its own, behind all first ones.
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

/// A number between 0 and 1, never either.
fn unit(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

/// Four standard normal numbers, by Box and Muller.
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
