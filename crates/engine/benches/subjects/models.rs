//! Whole models, from the presets.

use vitreous_engine::{CrossEntropyOptions, DType, Graph, Mode, Precision, Result};
use vitreous_models::{Architecture, Call, OpenOptions, preset};

use super::work::{Benchmark, Work, adamw_step};

/// 32x32 images, 16 tokens of 128, six post-norm layers. Query, key and value are one matrix here, as on PyTorch's side.
fn small(changes: OpenOptions) -> Box<dyn Architecture> {
    let changes = changes.with("qkv", "fused");
    preset("vit_cifar").expect("a preset").with_settings(&changes.settings).expect("builds")
}

fn base() -> Box<dyn Architecture> {
    preset("vit_base_patch16_224").expect("a preset")
}

pub fn small_vit_training(precision: Precision, threads: usize) -> Result<Benchmark> {
    training(small(OpenOptions::default()), 128, precision, threads)
}

/// Without dropout, whose random numbers differ from PyTorch's, losses can be compared.
pub fn small_vit_training_without_dropout(precision: Precision, threads: usize) -> Result<Benchmark> {
    let rates = OpenOptions::default().with("dropout", 0.0).with("attention_dropout", 0.0);
    training(small(rates), 128, precision, threads)
}

pub fn small_vit_inference(precision: Precision, threads: usize) -> Result<Benchmark> {
    inference(small(OpenOptions::default()), 128, precision, threads)
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

fn training(model: Box<dyn Architecture>, batch: usize, precision: Precision, threads: usize) -> Result<Benchmark> {
    let mut graph = Graph::new(Mode::Training, precision);
    let logits = model.build_result(&mut graph, &Call::whole(batch))?;
    let labels = graph.input("labels", [batch], DType::I32)?;
    let loss = graph.cross_entropy(logits, labels, CrossEntropyOptions::default())?;
    adamw_step(&mut graph, loss)?;
    Ok(Work::new(&graph, vec![loss], threads)?.into())
}

fn inference(model: Box<dyn Architecture>, batch: usize, precision: Precision, threads: usize) -> Result<Benchmark> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let logits = model.build_result(&mut graph, &Call::whole(batch))?;
    Ok(Work::inference(&graph, vec![logits], threads)?.into())
}
