//! Whole models, from the presets.

use vitreous_engine::{CrossEntropyOptions, DType, Graph, Mode, Precision, Result};
use vitreous_models::config::Qkv;
use vitreous_models::{VitConfig, preset, vit};

use super::work::{Benchmark, Work, adamw_step};

/// 32x32 images, 16 tokens of width 128, six post-norm layers. Query, key and value are one matrix here, as on
/// PyTorch's side.
fn small() -> VitConfig {
    VitConfig { qkv: Qkv::Fused, ..preset("vit_cifar").expect("a preset") }
}

fn base() -> VitConfig {
    preset("vit_base_patch16_224").expect("a preset")
}

pub fn small_vit_training(precision: Precision, threads: usize) -> Result<Benchmark> {
    training(small(), 128, precision, threads)
}

/// Without dropout, whose random numbers differ from PyTorch's, losses can be compared.
pub fn small_vit_training_without_dropout(precision: Precision, threads: usize) -> Result<Benchmark> {
    training(VitConfig { dropout: 0.0, attention_dropout: 0.0, ..small() }, 128, precision, threads)
}

pub fn small_vit_inference(precision: Precision, threads: usize) -> Result<Benchmark> {
    inference(small(), 128, precision, threads)
}

pub fn vit_b16_training(precision: Precision, threads: usize) -> Result<Benchmark> {
    training(base(), 4, precision, threads)
}

pub fn vit_b16_inference(precision: Precision, threads: usize) -> Result<Benchmark> {
    inference(base(), 4, precision, threads)
}

pub fn vit_b16_single_inference(precision: Precision, threads: usize) -> Result<Benchmark> {
    inference(base(), 1, precision, threads)
}

fn training(config: VitConfig, batch: usize, precision: Precision, threads: usize) -> Result<Benchmark> {
    let mut graph = Graph::new(Mode::Training, precision);
    let logits = vit(&mut graph, &config, batch)?.logits.expect("a head");
    let labels = graph.input("labels", [batch], DType::I32)?;
    let loss = graph.cross_entropy(logits, labels, CrossEntropyOptions::default())?;
    adamw_step(&mut graph, loss)?;
    Ok(Work::new(&graph, vec![loss], threads)?.into())
}

fn inference(config: VitConfig, batch: usize, precision: Precision, threads: usize) -> Result<Benchmark> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let logits = vit(&mut graph, &config, batch)?.logits.expect("a head");
    Ok(Work::inference(&graph, vec![logits], threads)?.into())
}
