//! Single ops, forward and backward.

use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, GradientOptions, Graph, Mode, Precision, Result,
};

use super::work::{Benchmark, Work, activation_dtype, adamw_step, forward_and_backward};

pub fn linear([rows, inputs, outputs]: [usize; 3], precision: Precision, threads: usize) -> Result<Benchmark> {
    forward_and_backward(precision, threads, |graph| {
        let x = graph.input("x", [rows, inputs], activation_dtype(precision))?;
        let weight = graph.parameter("weight", [outputs, inputs])?;
        let bias = graph.parameter("bias", [outputs])?;
        graph.linear(x, weight, Some(bias))
    })
}

/// The forward multiplication alone.
pub fn product([rows, inputs, outputs]: [usize; 3], precision: Precision, threads: usize) -> Result<Benchmark> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let x = graph.input("x", [rows, inputs], activation_dtype(precision))?;
    let weight = graph.parameter("weight", [outputs, inputs])?;
    let y = graph.linear(x, weight, None)?;
    Ok(Work::new(&graph, vec![y], threads)?.into())
}

pub fn attention(
    [batch, heads, tokens, head_dim]: [usize; 4],
    precision: Precision,
    threads: usize,
) -> Result<Benchmark> {
    forward_and_backward(precision, threads, |graph| {
        let qkv = graph.input("qkv", [batch, tokens, 3 * heads * head_dim], activation_dtype(precision))?;
        graph.attention(AttentionInputs::Packed(qkv), &AttentionOptions { heads, ..Default::default() })
    })
}

pub fn layer_norm([rows, columns]: [usize; 2], precision: Precision, threads: usize) -> Result<Benchmark> {
    forward_and_backward(precision, threads, |graph| {
        let x = graph.input("x", [rows, columns], DType::F32)?;
        let gamma = graph.parameter("weight", [columns])?;
        let beta = graph.parameter("bias", [columns])?;
        graph.layer_norm(x, gamma, beta, 1e-5)
    })
}

pub fn gelu([rows, columns]: [usize; 2], precision: Precision, threads: usize) -> Result<Benchmark> {
    forward_and_backward(precision, threads, |graph| {
        let x = graph.input("x", [rows, columns], activation_dtype(precision))?;
        graph.gelu(x)
    })
}

pub fn dropout([rows, columns]: [usize; 2], precision: Precision, threads: usize) -> Result<Benchmark> {
    forward_and_backward(precision, threads, |graph| {
        let x = graph.input("x", [rows, columns], activation_dtype(precision))?;
        graph.dropout(x, 0.1)
    })
}

pub fn cross_entropy([rows, classes]: [usize; 2], precision: Precision, threads: usize) -> Result<Benchmark> {
    forward_and_backward(precision, threads, |graph| {
        let logits = graph.input("logits", [rows, classes], DType::F32)?;
        let labels = graph.input("labels", [rows], DType::I32)?;
        graph.cross_entropy(logits, labels, CrossEntropyOptions::default())
    })
}

/// AdamW on one large parameter.
///
/// Every run has to compute a gradient, so the loss is one whose gradient is a mere fill: the sum of the parameter's
/// rows times a fixed row, which makes that row the gradient of every row. The time of the fill alone is subtracted.
/// What remains is the update and the global gradient norm, which every training step of ours computes.
pub fn adamw(shape: [usize; 2], precision: Precision, threads: usize) -> Result<Benchmark> {
    let [_, columns] = shape;
    let loss_of = |graph: &mut Graph| {
        let parameter = graph.parameter("parameter", shape)?;
        let row = graph.input("row", [columns], DType::F32)?;
        let sum = graph.sum_leading(parameter, [columns])?;
        let product = graph.multiply(sum, row)?;
        Ok((parameter, graph.sum_leading(product, [])?))
    };
    let mut graph = Graph::new(Mode::Training, precision);
    let (_, loss) = loss_of(&mut graph)?;
    adamw_step(&mut graph, loss)?;
    // Requesting the loss would add the forward pass; what is compared is the parameter.
    let work = Work::new(&graph, Vec::new(), threads)?;

    let mut graph = Graph::new(Mode::Training, precision);
    let (parameter, loss) = loss_of(&mut graph)?;
    let gradients = graph.gradients(loss, &[parameter], GradientOptions::default())?;
    let besides = Work::new(&graph, gradients, threads)?;
    Ok(Benchmark { work, besides: Some(besides) })
}
