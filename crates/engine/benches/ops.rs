//! Times of single ops and whole models, through the public API: `cargo bench -p vitreous-engine`.
//!
//! `scripts/bench_ops.py` runs the same benchmarks in turns with PyTorch, by `ops list` and `ops serve NAME`.

#![allow(missing_docs)] // the benchmark functions' names say what they measure

mod subjects;

use divan::Bencher;
use divan::counter::ItemsCount;
use subjects::{all_cores, build, names};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list", ..] => println!("{}", names("").join("\n")),
        ["serve", name, ..] => subjects::serve::serve(name).expect("a served benchmark"),
        _ => divan::main(),
    }
}

fn bench(bencher: Bencher, name: &str, threads: usize) {
    let mut subject = build(name, threads);
    subject.work.run();
    bencher.bench_local(|| subject.work.run());
}

#[divan::bench(args = names("linear/"))]
fn linear(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

#[divan::bench(args = names("attention/"))]
fn attention(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

#[divan::bench(args = names("layer_norm/"))]
fn layer_norm(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

#[divan::bench(args = names("gelu/"))]
fn gelu(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

#[divan::bench(args = names("dropout/"))]
fn dropout(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

#[divan::bench(args = names("cross_entropy/"))]
fn cross_entropy(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

/// The whole step: computing the gradient, the gradient norm, the update.
#[divan::bench(args = names("adamw/"), sample_count = 10)]
fn adamw(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

/// What `adamw` does in addition to the norm and the update; to be subtracted from its time.
#[divan::bench(args = names("adamw/"), sample_count = 10)]
fn adamw_gradient_alone(bencher: Bencher, name: &str) {
    let mut fill = build(name, all_cores()).besides.expect("adamw fills in a gradient");
    fill.run();
    bencher.bench_local(|| fill.run());
}

#[divan::bench(args = names("small_vit"), sample_count = 20)]
fn small_vit(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

#[divan::bench(args = names("vit_b16"), sample_count = 5)]
fn vit_b16(bencher: Bencher, name: &str) {
    bench(bencher, name, all_cores());
}

/// Our matrix multiplication and the `gemm` crate's, `x Wᵀ` in f32. Both on one thread: the crate would need rayon for
/// more.
mod product_on_one_thread {
    use super::*;

    const SHAPES: [[usize; 3]; 2] = [[2048, 128, 512], [1576, 768, 3072]];

    fn flops([rows, inputs, outputs]: [usize; 3]) -> ItemsCount {
        ItemsCount::new(2 * rows * inputs * outputs)
    }

    #[divan::bench(args = SHAPES)]
    fn ours(bencher: Bencher, shape: [usize; 3]) {
        let name = format!("product/{}/f32", shape.map(|size| size.to_string()).join("x"));
        bench(bencher.counter(flops(shape)), &name, 1);
    }

    #[divan::bench(args = SHAPES)]
    fn gemm_crate(bencher: Bencher, shape: [usize; 3]) {
        let [rows, inputs, outputs] = shape;
        let x = vec![0.5f32; rows * inputs];
        let weight = vec![0.25f32; outputs * inputs];
        let mut y = vec![0f32; rows * outputs];
        bencher.counter(flops(shape)).bench_local(|| {
            // SAFETY: the matrices have the given sizes and strides: contiguous rows, with the weight read as its
            // transpose.
            unsafe {
                gemm::gemm(
                    rows,
                    outputs,
                    inputs,
                    y.as_mut_ptr(),
                    1,
                    outputs as isize,
                    false,
                    x.as_ptr(),
                    1,
                    inputs as isize,
                    weight.as_ptr(),
                    inputs as isize,
                    1,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
            divan::black_box(&y);
        });
    }
}
