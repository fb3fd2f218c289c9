//! The truth: every op in naive f64, one plain loop after the other. Slow, short, and what the executors are tested against.
//!
//! It runs any graph, fused or not, so it also checks the planner's rewriting. Storage formats are ignored: every number
//! is an f64 (whole numbers too).

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::ops::*;
use crate::random::{Mask, Run, Stream};
use crate::types::{DType, Shape};

/// A value with its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Sizes of the axes.
    pub shape: Shape,
    /// The numbers.
    pub data: Vec<f64>,
}

/// Runs graphs in f64. Holds the inputs and what training changes, by parameter.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// Inputs by path.
    pub inputs: HashMap<String, Vec<f64>>,
    /// Caches by path: what a run writes is there for the next one.
    pub caches: HashMap<String, Vec<f64>>,
    /// Parameters, in the graph's order.
    pub parameters: Vec<Vec<f64>>,
    /// Gradients that were added up.
    pub gradients: Vec<Vec<f64>>,
    /// Adam's first moment, or SGD's velocity.
    pub first: Vec<Vec<f64>>,
    /// Adam's second moment.
    pub second: Vec<Vec<f64>>,
    /// The average of the parameters.
    pub ema: Vec<Vec<f64>>,
}

impl Reference {
    /// All zeros, for a graph's parameters.
    pub fn new(graph: &Graph) -> Self {
        let zeros: Vec<Vec<f64>> = graph.parameters().iter().map(|p| vec![0.0; p.shape.elements()]).collect();
        Reference {
            inputs: HashMap::new(),
            caches: HashMap::new(),
            parameters: zeros.clone(),
            gradients: zeros.clone(),
            first: zeros.clone(),
            second: zeros.clone(),
            ema: zeros,
        }
    }

    /// Runs every node and gives all results.
    pub fn run(&mut self, graph: &Graph, run: Run) -> Result<Values> {
        let mut values = Values { nodes: Vec::with_capacity(graph.nodes().len()) };
        for node in graph.nodes() {
            let inputs: Vec<Tensor> = node.inputs.iter().map(|&input| values.get(input).clone()).collect();
            let results = self.node(graph, node, inputs, run)?;
            values.nodes.push(results);
        }
        Ok(values)
    }

    fn node(&mut self, graph: &Graph, node: &Node, mut inputs: Vec<Tensor>, run: Run) -> Result<Vec<Tensor>> {
        // A norm's steps come before it, all others' after it.
        let before = matches!(node.op, Op::LayerNorm(_) | Op::RmsNorm(_));
        let mut stored = HashMap::new();
        if before && !node.steps.is_empty() {
            let x = inputs[0].clone();
            inputs[0] = steps(x, &node.steps, &inputs, &mut stored, run);
        }
        let data = self.op(graph, node, &inputs, run)?;
        let mut results: Vec<Tensor> = Vec::new();
        for (index, output) in node.outputs.iter().enumerate() {
            let data = data.get(index).cloned().unwrap_or_default();
            results.push(Tensor { shape: output.shape.clone(), data });
        }
        if !before && !node.steps.is_empty() {
            results[0] = steps(results[0].clone(), &node.steps, &inputs, &mut stored, run);
        }
        for (output, value) in stored {
            results[output] = value;
        }
        Ok(results)
    }

    fn op(&mut self, graph: &Graph, node: &Node, inputs: &[Tensor], run: Run) -> Result<Vec<Vec<f64>>> {
        Ok(match &node.op {
            Op::Input(_) => vec![given("input", &self.inputs, node)?],
            Op::Cache(_) => vec![given("cache", &self.caches, node)?],
            Op::Parameter(op) => vec![self.parameters[op.index].clone()],
            Op::Constant(op) => {
                let number = |&x: &f32| match op.dtype {
                    DType::I32 => f64::from(x.to_bits() as i32),
                    DType::F32 | DType::Bf16 => f64::from(x),
                };
                vec![graph.constants[op.index].iter().map(number).collect()]
            }
            Op::Linear(_) => vec![product(&inputs[0], false, &inputs[1], true)],
            Op::LinearInputGradient(_) => vec![product(&inputs[0], false, &inputs[1], false)],
            Op::LinearWeightGradient(op) => {
                let dw = product(&inputs[0], true, &inputs[1], false);
                let db = op.bias.then(|| sum_rows(&inputs[0].data, inputs[0].shape.columns()));
                std::iter::once(dw).chain(db).collect()
            }
            Op::MatMul(op) => vec![batched_product(op, &inputs[0], &inputs[1])],
            Op::Pointwise(_) | Op::Reshape(_) => vec![inputs[0].data.clone()],
            Op::WriteRows(_) => vec![self.write_rows(graph, node, inputs)?],
            Op::Broadcast(op) => vec![inputs[0].data.repeat(op.shape.elements() / inputs[0].data.len())],
            Op::SumLeading(op) => vec![sum_rows(&inputs[0].data, op.shape.elements())],
            Op::Transpose(op) => vec![transpose(&inputs[0], &op.order)],
            Op::Concat(op) => vec![concat(inputs, op.axis)],
            Op::Slice(op) => vec![slice(&inputs[0], op.axis, op.start, op.end)],
            Op::Pad(op) => vec![pad(&inputs[0], op)],
            Op::Patchify(op) => vec![patchify(&inputs[0].data, inputs[0].shape.axes(), op.patch, false)],
            Op::Unpatchify(op) => vec![patchify(&inputs[0].data, op.images.axes(), op.patch, true)],
            Op::Unfold(op) => vec![unfold::unfold(op, &inputs[0])],
            Op::Fold(op) => vec![unfold::fold(op, &inputs[0])],
            Op::PrepareImages(op) => vec![prepare_images::prepare_images(op, inputs)],
            Op::Embedding(_) => vec![embedding(node, &inputs[0], &inputs[1])?],
            Op::EmbeddingGradient(op) => vec![embedding_gradient(node, op.vocabulary, &inputs[0], &inputs[1])?],
            Op::LayerNorm(op) => layer_norm(op, inputs),
            Op::LayerNormGradient(op) => layer_norm_gradient(op, inputs),
            Op::RmsNorm(op) => rms_norm(op, inputs),
            Op::RmsNormGradient(_) => rms_norm_gradient(inputs),
            Op::Rotary(op) => vec![rotary::rotary(op, inputs)],
            Op::Attention(op) => attention::forward(op, inputs, run),
            Op::AttentionWeights(op) => vec![attention::weights(&op.of, inputs).0],
            Op::AttentionGradient(op) => attention::gradient(op, inputs, run),
            Op::MeanTokens(_) => vec![mean_tokens(&inputs[0])],
            Op::MeanTokensGradient(op) => vec![spread(&inputs[0], op.tokens, |dy, _, _| dy / op.tokens as f64)],
            Op::MaxTokens(_) => max_tokens(&inputs[0]),
            Op::MaxTokensGradient(op) => {
                let winners = &inputs[1].data;
                vec![spread(&inputs[0], op.tokens, |dy, token, i| if winners[i] as usize == token { dy } else { 0.0 })]
            }
            Op::Softmax(_) => vec![inputs[0].data.chunks(inputs[0].shape.columns()).flat_map(softmax).collect()],
            Op::SoftmaxGradient(_) => vec![softmax_gradient(inputs)],
            Op::TopK(op) => top_k(&inputs[0], op.k),
            Op::CrossEntropy(op) => loss::forward(node, op, inputs)?,
            Op::CrossEntropyGradient(op) => vec![loss::gradient(node, op, inputs)?],
            Op::BinaryCrossEntropy(op) => vec![loss::binary(op.sum_classes, inputs)],
            Op::BinaryCrossEntropyGradient(op) => vec![loss::binary_gradient(op.sum_classes, inputs)],
            Op::GradientNorm(op) => updates::gradient_norm(op, inputs),
            Op::AdamW(op) => self.adamw(op, inputs, run),
            Op::Sgd(op) => self.sgd(op, inputs, run),
            Op::Lamb(op) => self.lamb(op, inputs, run),
            Op::MuonDirection(op) => vec![self.muon_direction(op, inputs)],
            Op::MuonUpdate(op) => self.muon_update(op, inputs),
            Op::Ema(_) => self.update_ema(inputs),
            Op::AccumulateGradient(op) => self.accumulate(op.parameter, inputs),
            Op::StoredGradient(op) => vec![self.gradients[op.parameter].clone()],
        })
    }

    /// Puts rows into a cache, which keeps them for later runs.
    fn write_rows(&mut self, graph: &Graph, node: &Node, inputs: &[Tensor]) -> Result<Vec<f64>> {
        let [cache, rows, offsets] = inputs else { unreachable!("three inputs") };
        let (capacity, dim, count) = (cache.shape.axes()[1], cache.shape.axes()[2], rows.shape.axes()[1]);
        let mut out = cache.data.clone();
        for (slot, &offset) in offsets.data.iter().enumerate() {
            let offset = in_range(node, slot, offset, capacity - count + 1)?;
            for i in 0..count * dim {
                out[(slot * capacity + offset) * dim + i] = rows.data[slot * count * dim + i];
            }
        }
        self.caches.insert(graph.nodes()[node.inputs[0].node()].path.clone(), out.clone());
        Ok(out)
    }
}

/// What a leaf was given, by its path.
fn given(what: &'static str, all: &HashMap<String, Vec<f64>>, node: &Node) -> Result<Vec<f64>> {
    let expected = &node.outputs[0];
    let name = node.path.clone();
    match all.get(&node.path) {
        Some(data) if data.len() == expected.shape.elements() => Ok(data.clone()),
        Some(data) => {
            Err(Error::Data { what, name, expected: expected.to_string(), got: format!("{} numbers", data.len()) })
        }
        None => Err(Error::Unknown { what, name, known: all.keys().cloned().collect() }),
    }
}

/// All results of a run.
#[derive(Clone, Debug)]
pub struct Values {
    nodes: Vec<Vec<Tensor>>,
}

impl Values {
    /// One result.
    pub fn get(&self, value: Value) -> &Tensor {
        &self.nodes[value.node()][value.output()]
    }
}

/// The mask of a dropout in this run.
pub(crate) fn mask_of(drop: &Drop, run: Run) -> Mask {
    Mask::new(Stream::new(run.seed, run.step, drop.place), drop.rate)
}

fn steps(mut v: Tensor, steps: &[Step], inputs: &[Tensor], stored: &mut HashMap<usize, Tensor>, run: Run) -> Tensor {
    let columns = v.shape.columns();
    let sample = v.data.len() / v.shape.axes().first().copied().unwrap_or(1);
    let factor = |drop: &Drop, i: usize| f64::from(mask_of(drop, run).factor((i / columns) as u64, i % columns));
    for step in steps {
        if let Step::Store { output } = *step {
            stored.insert(output, v.clone());
            continue;
        }
        if let Step::DroppedActivation { activation, ref drop, slope } = *step {
            let mut slopes = v.clone();
            for (i, slope) in slopes.data.iter_mut().enumerate() {
                *slope = activation_gradient(activation, *slope) * factor(drop, i);
            }
            stored.insert(slope, slopes);
        }
        for (i, value) in v.data.iter_mut().enumerate() {
            let other = |input: usize| inputs[input].data[i % inputs[input].data.len()];
            *value = match step {
                Step::Add { input } => *value + other(*input),
                Step::Multiply { input } => *value * other(*input),
                Step::Scale(factor) => *value * f64::from(*factor),
                Step::Activation(kind) => activation(*kind, *value),
                Step::ActivationGradient { activation, input } => {
                    *value * activation_gradient(*activation, other(*input))
                }
                Step::Dropout(drop) => *value * factor(drop, i),
                Step::DroppedActivation { activation: kind, drop, .. } => activation(*kind, *value) * factor(drop, i),
                Step::StochasticDepth(drop) => *value * f64::from(mask_of(drop, run).factor((i / sample) as u64, 0)),
                Step::Round | Step::Store { .. } => *value,
            };
        }
    }
    v
}

/// erf by its series for small x and its continued fraction for large x, both to f64 accuracy.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let magnitude = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else if a < 6.0 {
        let tail = (1..200).rev().fold(a, |fraction, k| a + f64::from(k) / 2.0 / fraction);
        1.0 - (-a * a).exp() / (tail * std::f64::consts::PI.sqrt())
    } else {
        1.0
    };
    magnitude.copysign(x)
}

pub(crate) fn activation(kind: Activation, x: f64) -> f64 {
    match kind {
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => 0.5 * x * (1.0 + gelu_inner(x).tanh()),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Exp => x.exp(),
    }
}

fn gelu_inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

fn activation_gradient(kind: Activation, x: f64) -> f64 {
    match kind {
        Activation::Gelu => {
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
        }
        Activation::GeluTanh => {
            let tanh = gelu_inner(x).tanh();
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
            0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
        }
        Activation::QuickGelu => {
            let sigmoid = 1.0 / (1.0 + (-1.702 * x).exp());
            sigmoid * (1.0 + 1.702 * x * (1.0 - sigmoid))
        }
        Activation::Relu => f64::from(u8::from(x > 0.0)),
        Activation::Silu => {
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            sigmoid * (1.0 + x * (1.0 - sigmoid))
        }
        Activation::Tanh => 1.0 - x.tanh().powi(2),
        Activation::Exp => x.exp(),
    }
}

/// `A B` of matrices whose leading axes are flattened into rows.
fn product(a: &Tensor, transpose_a: bool, b: &Tensor, transpose_b: bool) -> Vec<f64> {
    let flat = |t: &Tensor| Tensor { shape: Shape::from([t.shape.rows(), t.shape.columns()]), data: t.data.clone() };
    let op = MatMul { transpose_a, transpose_b, precision: crate::Precision::F32 };
    batched_product(&op, &flat(a), &flat(b))
}

fn batched_product(op: &MatMul, a: &Tensor, b: &Tensor) -> Vec<f64> {
    let (batch, m, n, k) = op.sizes(&a.shape, &b.shape).unwrap_or_default();
    let mut out = vec![0.0; batch * m * n];
    for s in 0..batch {
        for i in 0..m {
            for j in 0..n {
                for p in 0..k {
                    let x = a.data[s * m * k + if op.transpose_a { p * m + i } else { i * k + p }];
                    let y = b.data[s * k * n + if op.transpose_b { j * k + p } else { p * n + j }];
                    out[(s * m + i) * n + j] += x * y;
                }
            }
        }
    }
    out
}

fn sum_rows(data: &[f64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for (i, x) in data.iter().enumerate() {
        sums[i % columns] += x;
    }
    sums
}

fn transpose(x: &Tensor, order: &[usize]) -> Vec<f64> {
    let axes = x.shape.axes();
    let stride = |axis: usize| axes[axis + 1..].iter().product::<usize>();
    let to: Vec<usize> = order.iter().map(|&axis| axes[axis]).collect();
    let mut out = Vec::with_capacity(x.data.len());
    for i in 0..x.data.len() {
        let (mut rest, mut from) = (i, 0);
        for axis in (0..to.len()).rev() {
            from += rest % to[axis] * stride(order[axis]);
            rest /= to[axis];
        }
        out.push(x.data[from]);
    }
    out
}

/// Numbers behind one position of an axis, itself included.
fn inner(shape: &Shape, axis: usize) -> usize {
    shape.axes()[axis..].iter().product()
}

fn concat(inputs: &[Tensor], axis: usize) -> Vec<f64> {
    let outer: usize = inputs[0].shape.axes()[..axis].iter().product();
    let part = |x: &Tensor, i: usize| x.data[i * inner(&x.shape, axis)..(i + 1) * inner(&x.shape, axis)].to_vec();
    (0..outer).flat_map(|i| inputs.iter().flat_map(move |x| part(x, i))).collect()
}

fn slice(x: &Tensor, axis: usize, start: usize, end: usize) -> Vec<f64> {
    let (size, one) = (inner(&x.shape, axis), inner(&x.shape, axis) / x.shape.axes()[axis]);
    x.data.chunks(size).flat_map(|chunk| chunk[start * one..end * one].to_vec()).collect()
}

fn pad(x: &Tensor, op: &Pad) -> Vec<f64> {
    let size = inner(&x.shape, op.axis);
    let one = size / x.shape.axes()[op.axis];
    let mut out = vec![0.0; x.data.len() / size * op.size * one];
    for (from, to) in x.data.chunks(size).zip(out.chunks_mut(op.size * one)) {
        to[op.start * one..op.start * one + size].copy_from_slice(from);
    }
    out
}

fn patchify(data: &[f64], images: &[usize], [ph, pw]: [usize; 2], back: bool) -> Vec<f64> {
    let &[n, channels, height, width] = images else { return Vec::new() };
    let mut out = vec![0.0; data.len()];
    for s in 0..n {
        for c in 0..channels {
            for y in 0..height {
                for x in 0..width {
                    let image = ((s * channels + c) * height + y) * width + x;
                    let patch = s * (height / ph) * (width / pw) + (y / ph) * (width / pw) + x / pw;
                    let inside = (patch * channels + c) * ph * pw + (y % ph) * pw + x % pw;
                    let (to, from) = if back { (image, inside) } else { (inside, image) };
                    out[to] = data[from];
                }
            }
        }
    }
    out
}

/// Checks a whole number against its range.
fn in_range(node: &Node, position: usize, value: f64, limit: usize) -> Result<usize> {
    if value >= 0.0 && (value as usize) < limit {
        return Ok(value as usize);
    }
    Err(Error::OutOfRange { op: node.op.name(), path: node.path.clone(), value: value as i64, position, limit })
}

fn embedding(node: &Node, table: &Tensor, numbers: &Tensor) -> Result<Vec<f64>> {
    let dim = table.shape.columns();
    let mut out = Vec::new();
    for (position, &number) in numbers.data.iter().enumerate() {
        let row = in_range(node, position, number, table.shape.axes()[0])?;
        out.extend_from_slice(&table.data[row * dim..(row + 1) * dim]);
    }
    Ok(out)
}

fn embedding_gradient(node: &Node, vocabulary: usize, dy: &Tensor, numbers: &Tensor) -> Result<Vec<f64>> {
    let dim = dy.shape.columns();
    let mut out = vec![0.0; vocabulary * dim];
    for (position, &number) in numbers.data.iter().enumerate() {
        let row = in_range(node, position, number, vocabulary)?;
        for i in 0..dim {
            out[row * dim + i] += dy.data[position * dim + i];
        }
    }
    Ok(out)
}

fn layer_norm(op: &LayerNorm, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let n = inputs[0].shape.columns();
    let (mut y, mut means, mut inverses) = (Vec::new(), Vec::new(), Vec::new());
    for row in inputs[0].data.chunks(n) {
        let mean = row.iter().sum::<f64>() / n as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
        let inverse = 1.0 / (variance + f64::from(op.eps)).sqrt();
        for (i, x) in row.iter().enumerate() {
            let normal = (x - mean) * inverse;
            y.push(if op.affine { normal * inputs[1].data[i] + inputs[2].data[i] } else { normal });
        }
        means.push(mean);
        inverses.push(inverse);
    }
    vec![y, means, inverses]
}

fn layer_norm_gradient(op: &LayerNormGradient, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let [dy, x, means, inverses] = [0, 1, 2, 3].map(|i| &inputs[i].data);
    let n = inputs[1].shape.columns();
    let (mut dx, mut d_gamma, mut d_beta) = (Vec::new(), vec![0.0; n], vec![0.0; n]);
    for row in 0..means.len() {
        let normal: Vec<f64> = (0..n).map(|i| (x[row * n + i] - means[row]) * inverses[row]).collect();
        let g: Vec<f64> = (0..n).map(|i| dy[row * n + i] * if op.affine { inputs[4].data[i] } else { 1.0 }).collect();
        let mean_g = g.iter().sum::<f64>() / n as f64;
        let mean_gx = g.iter().zip(&normal).map(|(g, x)| g * x).sum::<f64>() / n as f64;
        for i in 0..n {
            dx.push(inverses[row] * (g[i] - mean_g - normal[i] * mean_gx));
            d_gamma[i] += dy[row * n + i] * normal[i];
            d_beta[i] += dy[row * n + i];
        }
    }
    vec![dx, d_gamma, d_beta]
}

fn rms_norm(op: &RmsNorm, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let n = inputs[0].shape.columns();
    let (mut y, mut inverses) = (Vec::new(), Vec::new());
    for row in inputs[0].data.chunks(n) {
        let inverse = 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / n as f64 + f64::from(op.eps)).sqrt();
        y.extend(row.iter().zip(&inputs[1].data).map(|(x, gamma)| x * inverse * gamma));
        inverses.push(inverse);
    }
    vec![y, inverses]
}

fn rms_norm_gradient(inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let [dy, x, inverses, gamma] = [0, 1, 2, 3].map(|i| &inputs[i].data);
    let n = gamma.len();
    let (mut dx, mut d_gamma) = (Vec::new(), vec![0.0; n]);
    for row in 0..inverses.len() {
        let normal: Vec<f64> = (0..n).map(|i| x[row * n + i] * inverses[row]).collect();
        let mean = (0..n).map(|i| dy[row * n + i] * gamma[i] * normal[i]).sum::<f64>() / n as f64;
        for i in 0..n {
            dx.push(inverses[row] * (dy[row * n + i] * gamma[i] - normal[i] * mean));
            d_gamma[i] += dy[row * n + i] * normal[i];
        }
    }
    vec![dx, d_gamma]
}

fn mean_tokens(x: &Tensor) -> Vec<f64> {
    let n = x.shape.columns();
    let tokens = x.shape.axes()[x.shape.rank() - 2];
    x.data.chunks(tokens * n).flat_map(|sample| sum_rows(sample, n)).map(|sum| sum / tokens as f64).collect()
}

fn max_tokens(x: &Tensor) -> Vec<Vec<f64>> {
    let n = x.shape.columns();
    let tokens = x.shape.axes()[x.shape.rank() - 2];
    let (mut maxima, mut winners) = (Vec::new(), Vec::new());
    for sample in x.data.chunks(tokens * n) {
        for i in 0..n {
            let winner = (1..tokens).fold(0, |best, t| if sample[t * n + i] > sample[best * n + i] { t } else { best });
            maxima.push(sample[winner * n + i]);
            winners.push(winner as f64);
        }
    }
    vec![maxima, winners]
}

/// Gives each token of `[.., tokens, n]` a function of dy at its sample and column.
fn spread(dy: &Tensor, tokens: usize, value: impl Fn(f64, usize, usize) -> f64) -> Vec<f64> {
    let n = dy.shape.columns();
    let samples = dy.data.len() / n;
    let place = |s: usize, i: usize| s * n + i;
    let all = (0..samples).flat_map(|s| (0..tokens).flat_map(move |t| (0..n).map(move |i| (s, t, i))));
    all.map(|(s, t, i)| value(dy.data[place(s, i)], t, place(s, i))).collect()
}

/// Softmax of one row; zeros if there is nothing but minus infinity.
pub(crate) fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return vec![0.0; row.len()];
    }
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().map(|x| (x - max).exp() / sum).collect()
}

/// Sorts each row, NaN left out, and takes the first k.
fn top_k(x: &Tensor, k: usize) -> Vec<Vec<f64>> {
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in x.data.chunks(x.shape.columns()) {
        let mut order: Vec<usize> = (0..row.len()).filter(|&index| !row[index].is_nan()).collect();
        // Stable: of equal numbers the first stays first.
        order.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).unwrap_or(std::cmp::Ordering::Equal));
        for rank in 0..k {
            values.push(order.get(rank).map_or(f64::NEG_INFINITY, |&index| row[index]));
            indices.push(order.get(rank).map_or(-1.0, |&index| index as f64));
        }
    }
    vec![values, indices]
}

fn softmax_gradient(inputs: &[Tensor]) -> Vec<f64> {
    let n = inputs[0].shape.columns();
    let rows = inputs[0].data.chunks(n).zip(inputs[1].data.chunks(n));
    rows.flat_map(|(dy, y)| {
        let dot: f64 = dy.iter().zip(y).map(|(dy, y)| dy * y).sum();
        dy.iter().zip(y).map(|(dy, y)| y * (dy - dot)).collect::<Vec<_>>()
    })
    .collect()
}

mod attention;
mod loss;
mod prepare_images;
mod rotary;
mod unfold;
mod updates;
