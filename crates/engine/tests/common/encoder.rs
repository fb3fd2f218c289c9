//! A small encoder with everything that training has, and its training step.

use std::collections::HashMap;

use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, Optimizer,
    Parameter, Precision, Result, StepOptions, StepValues, Value,
};

use super::leaf_values;

/// A small pre-norm encoder with everything that training has: dropout, stochastic depth, LayerScale, class token, loss.
pub fn encoder(g: &mut Graph, batch: usize, layers: usize, dim: usize) -> Result<Value> {
    let (tokens, heads) = (9, 2);
    let images = g.input("images", [batch, 3, 12, 12], DType::F32)?;
    let labels = g.input("labels", [batch], DType::I32)?;
    let patches = g.patchify(images, [4, 4])?;
    let embed = g.parameter("embed.weight", [dim, 48])?;
    let embed_bias = g.parameter("embed.bias", [dim])?;
    let mut x = g.linear(patches, embed, Some(embed_bias))?;
    let class = g.parameter("class_token", [1, dim])?;
    let class = g.broadcast(class, [batch, 1, dim])?;
    x = g.concat(&[class, x], 1)?;
    let positions = g.parameter("positions", [tokens + 1, dim])?;
    x = g.add(x, positions)?;
    for layer in 0..layers {
        x = g.block(&format!("blocks.{layer}"), |g| {
            let normal = norm(g, "norm1", x, dim)?;
            let attended = g.scope("attention", |g| {
                let qkv = dense(g, "qkv", normal, dim, 3 * dim)?;
                let options = AttentionOptions { heads, dropout: 0.1, ..AttentionOptions::default() };
                let mixed = g.attention(AttentionInputs::Packed(qkv), &options)?;
                dense(g, "proj", mixed, dim, dim)
            })?;
            let attended = g.dropout(attended, 0.1)?;
            let attended = g.stochastic_depth(attended, 0.1)?;
            let x = g.add(x, attended)?;
            let normal = norm(g, "norm2", x, dim)?;
            let hidden = dense(g, "fc1", normal, dim, 4 * dim)?;
            let hidden = g.gelu(hidden)?;
            let hidden = g.dropout(hidden, 0.1)?;
            let out = dense(g, "fc2", hidden, 4 * dim, dim)?;
            let scale = g.parameter("layer_scale", [dim])?;
            let out = g.multiply(out, scale)?;
            g.add(x, out)
        })?;
    }
    let x = norm(g, "norm", x, dim)?;
    let class = g.slice(x, 1, 0, 1)?;
    let class = g.reshape(class, [batch, dim])?;
    let logits = dense(g, "head", class, dim, 7)?;
    g.name("logits", logits)?;
    g.cross_entropy(logits, labels, CrossEntropyOptions { label_smoothing: 0.1, ..Default::default() })
}

pub fn dense(g: &mut Graph, name: &str, x: Value, from: usize, to: usize) -> Result<Value> {
    g.scope(name, |g| {
        let weight = g.parameter("weight", [to, from])?;
        let bias = g.parameter("bias", [to])?;
        g.linear(x, weight, Some(bias))
    })
}

pub fn norm(g: &mut Graph, name: &str, x: Value, dim: usize) -> Result<Value> {
    g.scope(name, |g| {
        let (gamma, beta) = (g.parameter("weight", [dim])?, g.parameter("bias", [dim])?);
        g.layer_norm(x, gamma, beta, 1e-6)
    })
}

pub fn group(parameter: &Parameter) -> Option<Group> {
    let matrix = parameter.shape.rank() == 2;
    Some(Group {
        decay: if matrix { 0.1 } else { 0.0 },
        rate_factor: if parameter.name.starts_with("head") { 2.0 } else { 1.0 },
    })
}

/// All but the patch embedding.
pub fn group_without_embedding(parameter: &Parameter) -> Option<Group> {
    if parameter.name.starts_with("embed") { None } else { group(parameter) }
}

pub fn options(optimizer: Optimizer) -> StepOptions<'static> {
    StepOptions { optimizer, group: &group, clip: Some(0.5), ema: true, gradient: GradientOptions::default() }
}

pub struct Training {
    pub graph: Graph,
    pub loss: Value,
    pub step: StepValues,
}

pub fn training(batch: usize, layers: usize, dim: usize, precision: Precision, options: &StepOptions) -> Training {
    let mut graph = Graph::new(Mode::Training, precision);
    let loss = encoder(&mut graph, batch, layers, dim).unwrap();
    let step = graph.training_step(loss, options).unwrap();
    Training { graph, loss, step }
}

pub fn values(graph: &Graph) -> HashMap<String, Vec<f64>> {
    let mut values = leaf_values(graph, &|_, position| (position % 7) as i32);
    // Weights of a size at which a network trains.
    for parameter in graph.parameters() {
        for value in values.get_mut(&parameter.name).unwrap() {
            *value = f64::from(*value as f32 * 0.25);
        }
    }
    values.insert("learning_rate".to_string(), vec![f64::from(1e-2f32)]);
    values.insert("ema_decay".to_string(), vec![f64::from(0.9f32)]);
    values
}
