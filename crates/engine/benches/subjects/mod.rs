//! The benchmarks by name: used by the benchmark binary itself and, through [`serve`], by the comparison with PyTorch.

mod data;
mod models;
pub mod serve;
mod single;
mod work;

use vitreous_engine::{Precision, Result};
pub use work::Benchmark;

/// Rows, inputs and outputs of the linear layers.
const LINEAR: [[usize; 3]; 2] = [[2048, 128, 512], [1576, 768, 3072]];
/// Batch, heads, tokens and head dimension of the attentions.
const ATTENTION: [[usize; 4]; 2] = [[128, 4, 16, 32], [8, 12, 197, 64]];
const LAYER_NORM: [[usize; 2]; 2] = [[2048, 128], [1576, 768]];
const GELU: [[usize; 2]; 1] = [[1576, 3072]];
const DROPOUT: [[usize; 2]; 1] = [[1576, 768]];
const CROSS_ENTROPY: [[usize; 2]; 1] = [[1024, 1000]];
/// 86.4 million parameters, as many as ViT-B/16 has.
const ADAMW: [[usize; 2]; 1] = [[84_375, 1024]];

const F32: &[Precision] = &[Precision::F32];
const BOTH: &[Precision] = &[Precision::F32, Precision::Bf16];

type Build = Box<dyn Fn(usize) -> Result<Benchmark>>;

/// A name, and a function that builds its benchmark for a number of threads.
pub struct Entry {
    pub name: String,
    pub build: Build,
}

fn entries<const N: usize>(
    op: &str,
    shapes: &[[usize; N]],
    precisions: &[Precision],
    build: fn([usize; N], Precision, usize) -> Result<Benchmark>,
) -> Vec<Entry> {
    let mut found = Vec::new();
    for &shape in shapes {
        for &precision in precisions {
            let sizes = shape.map(|size| size.to_string()).join("x");
            let name = format!("{op}/{sizes}/{}", precision_name(precision));
            found.push(Entry { name, build: Box::new(move |threads| build(shape, precision, threads)) });
        }
    }
    found
}

fn models(name: &str, build: fn(Precision, usize) -> Result<Benchmark>) -> Vec<Entry> {
    let entry = |&precision: &Precision| Entry {
        name: format!("{name}/{}", precision_name(precision)),
        build: Box::new(move |threads| build(precision, threads)),
    };
    BOTH.iter().map(entry).collect()
}

fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}

/// All benchmarks.
pub fn all() -> Vec<Entry> {
    [
        entries("product", &LINEAR, BOTH, single::product),
        entries("linear", &LINEAR, BOTH, single::linear),
        entries("attention", &ATTENTION, BOTH, single::attention),
        entries("layer_norm", &LAYER_NORM, F32, single::layer_norm),
        entries("gelu", &GELU, BOTH, single::gelu),
        entries("dropout", &DROPOUT, F32, single::dropout),
        entries("cross_entropy", &CROSS_ENTROPY, F32, single::cross_entropy),
        entries("adamw", &ADAMW, F32, single::adamw),
        models("small_vit_training", models::small_vit_training),
        models("small_vit_training_without_dropout", models::small_vit_training_without_dropout),
        models("small_vit_inference", models::small_vit_inference),
        models("vit_b16_training", models::vit_b16_training),
        models("vit_b16_inference", models::vit_b16_inference),
        models("vit_b16_single_inference", models::vit_b16_single_inference),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The names that begin with a prefix.
pub fn names(beginning: &str) -> Vec<String> {
    all().into_iter().map(|entry| entry.name).filter(|name| name.starts_with(beginning)).collect()
}

/// Builds the benchmark with this name.
///
/// # Panics
/// Panics if there is no such benchmark or the engine returns an error.
pub fn build(name: &str, threads: usize) -> Benchmark {
    let entry = all().into_iter().find(|entry| entry.name == name);
    let entry = entry.unwrap_or_else(|| panic!("no benchmark is called {name}; there are {:?}", names("")));
    (entry.build)(threads).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// As many threads as there are cores.
pub fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
