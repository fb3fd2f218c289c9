//! Whole models, built from the graph's own ops.

use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, Graph, Mode, Precision, Result, Value,
};

use super::work::{Subject, Work, adamw_step};

/// Whether a norm comes before attention and MLP, or after their sum with what entered them.
#[derive(Clone, Copy, PartialEq)]
enum Norms {
    Before,
    After,
}

/// The sizes of a vision transformer.
#[derive(Clone, Copy)]
struct Vit {
    batch: usize,
    image: usize,
    patch: usize,
    dim: usize,
    layers: usize,
    heads: usize,
    hidden: usize,
    classes: usize,
    norms: Norms,
    eps: f32,
    dropout: f32,
}

/// 32x32 images, 16 tokens of 128, six layers.
const SMALL: Vit = Vit {
    batch: 128,
    image: 32,
    patch: 8,
    dim: 128,
    layers: 6,
    heads: 4,
    hidden: 512,
    classes: 10,
    norms: Norms::After,
    eps: 1e-5,
    dropout: 0.1,
};

/// ViT-B/16, four images at a time.
const BASE: Vit = Vit {
    batch: 4,
    image: 224,
    patch: 16,
    dim: 768,
    layers: 12,
    heads: 12,
    hidden: 3072,
    classes: 1000,
    norms: Norms::Before,
    eps: 1e-6,
    dropout: 0.0,
};

pub fn small_vit_training(precision: Precision, threads: usize) -> Result<Subject> {
    SMALL.training(precision, threads)
}

/// Without dropout, whose random numbers differ from PyTorch's, losses can be compared.
pub fn small_vit_training_without_dropout(precision: Precision, threads: usize) -> Result<Subject> {
    Vit { dropout: 0.0, ..SMALL }.training(precision, threads)
}

pub fn small_vit_inference(precision: Precision, threads: usize) -> Result<Subject> {
    SMALL.inference(precision, threads)
}

pub fn vit_b16_training(precision: Precision, threads: usize) -> Result<Subject> {
    BASE.training(precision, threads)
}

pub fn vit_b16_inference(precision: Precision, threads: usize) -> Result<Subject> {
    BASE.inference(precision, threads)
}

pub fn vit_b16_single_inference(precision: Precision, threads: usize) -> Result<Subject> {
    Vit { batch: 1, ..BASE }.inference(precision, threads)
}

/// A linear layer with its parameters, in a scope of its own.
fn linear(graph: &mut Graph, name: &str, x: Value, outputs: usize) -> Result<Value> {
    let inputs = graph.shape_of(x).columns();
    graph.scope(name, |graph| {
        let weight = graph.parameter("weight", [outputs, inputs])?;
        let bias = graph.parameter("bias", [outputs])?;
        graph.linear(x, weight, Some(bias))
    })
}

/// Sine and cosine of each place at frequencies falling from 1 to 1/10000, taking turns.
fn sinusoidal_positions(tokens: usize, dim: usize) -> Vec<f32> {
    let number = |token: usize, column: usize| {
        let exponent = (column / 2 * 2) as f64 / dim as f64;
        let angle = token as f64 / 10_000f64.powf(exponent);
        if column.is_multiple_of(2) { angle.sin() as f32 } else { angle.cos() as f32 }
    };
    (0..tokens * dim).map(|i| number(i / dim, i % dim)).collect()
}

impl Vit {
    fn training(self, precision: Precision, threads: usize) -> Result<Subject> {
        let mut graph = Graph::new(Mode::Training, precision);
        let logits = self.logits(&mut graph)?;
        let labels = graph.input("labels", [self.batch], DType::I32)?;
        let loss = graph.cross_entropy(logits, labels, CrossEntropyOptions::default())?;
        adamw_step(&mut graph, loss)?;
        Ok(Work::new(&graph, vec![loss], threads)?.into())
    }

    fn inference(self, precision: Precision, threads: usize) -> Result<Subject> {
        let mut graph = Graph::new(Mode::Inference, precision);
        let logits = self.logits(&mut graph)?;
        Ok(Work::inference(&graph, vec![logits], threads)?.into())
    }

    fn norm(&self, graph: &mut Graph, name: &str, x: Value) -> Result<Value> {
        graph.scope(name, |graph| {
            let gamma = graph.parameter("gamma", [self.dim])?;
            let beta = graph.parameter("beta", [self.dim])?;
            graph.layer_norm(x, gamma, beta, self.eps)
        })
    }

    fn attention(&self, graph: &mut Graph, x: Value) -> Result<Value> {
        let qkv = linear(graph, "qkv", x, 3 * self.dim)?;
        let options = AttentionOptions { heads: self.heads, dropout: self.dropout, ..Default::default() };
        let y = graph.attention(AttentionInputs::Packed(qkv), &options)?;
        let y = linear(graph, "output", y, self.dim)?;
        graph.dropout(y, self.dropout)
    }

    fn mlp(&self, graph: &mut Graph, x: Value) -> Result<Value> {
        let y = linear(graph, "first", x, self.hidden)?;
        let y = graph.gelu(y)?;
        let y = graph.dropout(y, self.dropout)?;
        let y = linear(graph, "second", y, self.dim)?;
        graph.dropout(y, self.dropout)
    }

    /// `x + f(norm(x))` or `norm(x + f(x))`.
    fn residual(
        &self,
        graph: &mut Graph,
        name: &str,
        x: Value,
        f: impl FnOnce(&Self, &mut Graph, Value) -> Result<Value>,
    ) -> Result<Value> {
        graph.scope(name, |graph| match self.norms {
            Norms::Before => {
                let y = self.norm(graph, "norm", x)?;
                let y = f(self, graph, y)?;
                graph.add(x, y)
            }
            Norms::After => {
                let y = f(self, graph, x)?;
                let sum = graph.add(x, y)?;
                self.norm(graph, "norm", sum)
            }
        })
    }

    fn logits(&self, graph: &mut Graph) -> Result<Value> {
        let Vit { batch, image, patch, dim, .. } = *self;
        let images = graph.input("images", [batch, 3, image, image], DType::F32)?;
        let patches = graph.patchify(images, [patch, patch])?;
        let mut x = linear(graph, "embedding", patches, dim)?;
        let places = (image / patch) * (image / patch);
        x = match self.norms {
            Norms::After => {
                let positions = graph.constant("positions", [places, dim], sinusoidal_positions(places, dim))?;
                graph.add(x, positions)?
            }
            Norms::Before => {
                let class = graph.parameter("class_token", [dim])?;
                let class = graph.broadcast(class, [batch, 1, dim])?;
                let tokens = graph.concat(&[class, x], 1)?;
                let positions = graph.parameter("positions", [places + 1, dim])?;
                graph.add(tokens, positions)?
            }
        };
        for layer in 0..self.layers {
            x = graph.block(&format!("blocks.{layer}"), |graph| {
                let x = self.residual(graph, "attention", x, Vit::attention)?;
                self.residual(graph, "mlp", x, Vit::mlp)
            })?;
        }
        let pooled = match self.norms {
            Norms::After => graph.mean_tokens(x)?,
            Norms::Before => {
                let x = self.norm(graph, "norm", x)?;
                let class = graph.slice(x, 1, 0, 1)?;
                graph.reshape(class, [batch, dim])?
            }
        };
        linear(graph, "head", pooled, self.classes)
    }
}
