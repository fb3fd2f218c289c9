//! Trains a small Vision Transformer, from the patches to the optimizer, with the engine alone.
//!
//!     cargo run --release --example small_vit
//!
//! The model is the usual small ViT for 32x32 images: patches of 8, width 128, six post-norm layers of four heads. The
//! images are synthetic: gratings of ten orientations in random colours, phases and noise. In about half a minute on
//! two cores it classifies nearly all of them correctly (ten classes, so chance is 10 %).

use std::time::Instant;

use vitreous_engine::cpu::Executor;
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, Optimizer,
    Plan, Precision, Result, Run, State, StepOptions, Value,
};

const BATCH: usize = 128;
const STEPS: u64 = 200;
const IMAGE: usize = 32;
const PATCH: usize = 8;
const TOKENS: usize = (IMAGE / PATCH) * (IMAGE / PATCH);
const DIM: usize = 128;
const LAYERS: usize = 6;
const HEADS: usize = 4;
const HIDDEN: usize = 512;
const CLASSES: usize = 10;
const DROPOUT: f32 = 0.1;

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());

    // The model is a function that builds a graph; a training step is built from its loss.
    let mut graph = Graph::new(Mode::Training, Precision::F32);
    let (loss, logits) = small_vit(&mut graph)?;
    graph.training_step(
        loss,
        &StepOptions {
            optimizer: Optimizer::adamw(),
            group: &|p| Some(Group { decay: if p.shape.rank() > 1 { 0.1 } else { 0.0 }, rate_factor: 1.0 }),
            clip: Some(1.0),
            ema: false,
            gradient: GradientOptions::default(),
        },
    )?;
    let plan = Plan::for_cpu(&graph, &[loss, logits])?;
    let parameters: usize = graph.parameters().iter().map(|p| p.shape.elements()).sum();
    println!(
        "{parameters} parameters, {} kernels per step, {:.0} MiB of memory, {:.1} GFLOP per step, {threads} threads",
        plan.graph().nodes().iter().filter(|node| !node.op.is_leaf()).count(),
        plan.peak_bytes(threads) as f64 / (1 << 20) as f64,
        plan.flops() as f64 / 1e9,
    );

    let mut executor = Executor::new(plan, threads)?;
    let mut state = State::new(&graph)?;
    initialise(&graph, &mut state)?;

    let mut labels = vec![0; BATCH];
    let start = Instant::now();
    let mut computing = 0.0;
    for step in 0..STEPS {
        make_batch(step, executor.input("images")?, &mut labels);
        executor.input_i32("labels")?.copy_from_slice(&labels);
        executor.input("learning_rate")?[0] = learning_rate(step);
        let before = Instant::now();
        executor.run(&mut state, Run { seed: 1, step })?;
        computing += before.elapsed().as_secs_f64();
        if step % 20 == 19 {
            let right = accuracy(executor.output_slice(logits)?, &labels);
            let speed = (BATCH as u64 * (step + 1)) as f64 / computing;
            println!(
                "step {:>4}  loss {:.3}  accuracy {:>5.1} %  {speed:.0} images/s",
                step + 1,
                executor.number(loss)?,
                100.0 * right
            );
        }
    }
    println!("{:.1} s in all", start.elapsed().as_secs_f64());
    Ok(())
}

/// From images and labels to loss and logits.
fn small_vit(g: &mut Graph) -> Result<(Value, Value)> {
    let images = g.input("images", [BATCH, 3, IMAGE, IMAGE], DType::F32)?;
    let labels = g.input("labels", [BATCH], DType::I32)?;
    let patches = g.patchify(images, [PATCH, PATCH])?;
    let mut x = linear(g, "patch_embedding", patches, 3 * PATCH * PATCH, DIM)?;
    let positions = g.constant("positions", [TOKENS, DIM], sinusoidal_positions())?;
    x = g.add(x, positions)?;
    x = g.dropout(x, DROPOUT)?;
    for layer in 0..LAYERS {
        x = g.block(&format!("layers.{layer}"), |g| encoder_layer(g, x))?;
    }
    let pooled = g.mean_tokens(x)?;
    let logits = linear(g, "head", pooled, DIM, CLASSES)?;
    let loss = g.cross_entropy(logits, labels, CrossEntropyOptions::default())?;
    Ok((loss, logits))
}

/// Post-norm: `x = LN(x + attention(x))`, `x = LN(x + mlp(x))`.
fn encoder_layer(g: &mut Graph, x: Value) -> Result<Value> {
    let attended = g.scope("attention", |g| {
        let q = linear(g, "query", x, DIM, DIM)?;
        let k = linear(g, "key", x, DIM, DIM)?;
        let v = linear(g, "value", x, DIM, DIM)?;
        let options = AttentionOptions { heads: HEADS, dropout: DROPOUT, ..AttentionOptions::default() };
        let mixed = g.attention(AttentionInputs::Separate { q, k, v }, &options)?;
        linear(g, "output", mixed, DIM, DIM)
    })?;
    let attended = g.dropout(attended, DROPOUT)?;
    let sum = g.add(x, attended)?;
    let x = layer_norm(g, "norm1", sum)?;
    let hidden = g.scope("mlp", |g| {
        let hidden = linear(g, "fc1", x, DIM, HIDDEN)?;
        let hidden = g.gelu(hidden)?;
        let hidden = g.dropout(hidden, DROPOUT)?;
        linear(g, "fc2", hidden, HIDDEN, DIM)
    })?;
    let hidden = g.dropout(hidden, DROPOUT)?;
    let sum = g.add(x, hidden)?;
    layer_norm(g, "norm2", sum)
}

fn linear(g: &mut Graph, name: &str, x: Value, from: usize, to: usize) -> Result<Value> {
    g.scope(name, |g| {
        let weight = g.parameter("weight", [to, from])?;
        let bias = g.parameter("bias", [to])?;
        g.linear(x, weight, Some(bias))
    })
}

fn layer_norm(g: &mut Graph, name: &str, x: Value) -> Result<Value> {
    g.scope(name, |g| {
        let gamma = g.parameter("weight", [DIM])?;
        let beta = g.parameter("bias", [DIM])?;
        g.layer_norm(x, gamma, beta, 1e-5)
    })
}

/// `PE(pos, 2i) = sin(pos / 10000^(2i/d))`, `PE(pos, 2i+1) = cos` of the same.
fn sinusoidal_positions() -> Vec<f32> {
    let angle = |position: usize, i: usize| position as f64 / 10_000f64.powf((i / 2 * 2) as f64 / DIM as f64);
    let value = |position: usize, i: usize| {
        if i.is_multiple_of(2) { angle(position, i).sin() } else { angle(position, i).cos() }
    };
    (0..TOKENS).flat_map(|position| (0..DIM).map(move |i| value(position, i) as f32)).collect()
}

/// Xavier-uniform matrices, norms of one, biases of zero; each a function of its name, so the order does not matter.
fn initialise(graph: &Graph, state: &mut State) -> Result<()> {
    for parameter in graph.parameters() {
        let values = state.parameter_mut(&parameter.name)?;
        match *parameter.shape.axes() {
            [to, from] => {
                let limit = (6.0 / (from + to) as f32).sqrt();
                let stream = Stream::new(1, 0, place_of(&parameter.name));
                for (index, value) in values.iter_mut().enumerate() {
                    *value = limit * (2.0 * uniform(stream.four(index as u64)[0]) - 1.0);
                }
            }
            _ if parameter.name.contains("norm") && parameter.name.ends_with("weight") => values.fill(1.0),
            _ => values.fill(0.0),
        }
    }
    Ok(())
}

fn uniform(word: u32) -> f32 {
    (word >> 8) as f32 / (1u32 << 24) as f32
}

/// Linear warm-up over the first tenth, then cosine decay to zero.
fn learning_rate(step: u64) -> f32 {
    let warmup = STEPS / 10;
    let progress = (step - step.min(warmup)) as f32 / (STEPS - warmup) as f32;
    let ramp = ((step + 1) as f32 / warmup as f32).min(1.0);
    1e-3 * ramp * 0.5 * (1.0 + (std::f32::consts::PI * progress).cos())
}

/// Gratings: the class is the orientation; colour, wavelength, phase and noise are random.
fn make_batch(step: u64, images: &mut [f32], labels: &mut [i32]) {
    for (sample, (image, label)) in images.chunks_mut(3 * IMAGE * IMAGE).zip(labels).enumerate() {
        let stream = Stream::new(2, step, sample as u64);
        let [class, wave, phase, colour] = stream.four(0);
        *label = (class % CLASSES as u32) as i32;
        let angle = *label as f32 * std::f32::consts::PI / CLASSES as f32;
        let frequency = 0.5 + 0.7 * uniform(wave);
        let phase = std::f32::consts::TAU * uniform(phase);
        for (pixel, value) in image.iter_mut().enumerate() {
            let (x, y) = ((pixel % IMAGE) as f32, (pixel / IMAGE % IMAGE) as f32);
            let channel = 0.3 + 0.7 * uniform(colour.rotate_left(11 * (pixel / IMAGE / IMAGE) as u32));
            let noise = 4.0 * (uniform(stream.four(1 + pixel as u64)[0]) - 0.5);
            *value = channel * (frequency * (x * angle.cos() + y * angle.sin()) + phase).sin() + noise;
        }
    }
}

fn accuracy(logits: &[f32], labels: &[i32]) -> f32 {
    let best = |row: &[f32]| (0..CLASSES).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i32;
    let right = logits.chunks(CLASSES).zip(labels).filter(|(row, label)| best(row) == **label).count();
    right as f32 / labels.len() as f32
}
