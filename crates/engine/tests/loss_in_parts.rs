//! The loss of a linear layer's results, some rows at a time, against the loss of all of them.

mod common;

use common::{Checks, RUN, check, leaf_values, reference_for, relative_error, run_cpu};
use vitreous_engine::{CrossEntropyOptions, DType, GradientOptions, Graph, Mode, Plan, Precision, Result, Value};

const ROWS: usize = 11;
const DIM: usize = 6;

/// Every third row is ignored.
fn targets(classes: usize) -> impl Fn(&str, usize) -> i32 {
    move |_, row| if row % 3 == 1 { -100 } else { ((row * 5) % classes) as i32 }
}

fn options(z_loss: f32) -> CrossEntropyOptions {
    CrossEntropyOptions { ignored_index: Some(-100), z_loss, ..Default::default() }
}

/// The loss of `x [rows, dim]` through a matrix `[classes, dim]`, with so many rows at once.
fn loss(g: &mut Graph, classes: usize, z_loss: f32, at_once: Option<usize>) -> Result<Value> {
    let x = g.input("x", [1, ROWS, DIM], DType::F32)?;
    let weight = g.parameter("weight", [classes, DIM])?;
    let logits = g.linear(x, weight, None)?;
    let targets = g.input("targets", [1, ROWS], DType::I32)?;
    match at_once {
        Some(rows) => g.cross_entropy_in_parts(logits, targets, options(z_loss), rows),
        None => g.cross_entropy(logits, targets, options(z_loss)),
    }
}

/// The loss and its gradients by `x` and `weight`.
fn with_gradients(precision: Precision, classes: usize, z_loss: f32, at_once: Option<usize>) -> (Graph, Vec<Value>) {
    let mut graph = Graph::new(Mode::Training, precision);
    let loss = loss(&mut graph, classes, z_loss, at_once).expect("a loss");
    let wanted = [graph.find("x").expect("x"), graph.find("weight").expect("the weight")];
    let mut values = graph.gradients(loss, &wanted, GradientOptions::default()).expect("gradients");
    values.insert(0, loss);
    (graph, values)
}

/// A loss that is scaled is differentiated through each part; the harness compares with finite differences.
#[test]
fn parts_are_differentiated_as_any_other_nodes() {
    for classes in [5, 8] {
        check(
            &|g: &mut Graph| {
                let loss = loss(g, classes, 0.25, Some(4))?;
                g.scale(loss, 3.0)
            },
            &targets(classes),
            Checks { differences: 4, ..Checks::default() },
        );
    }
}

/// Gradients that are computed with the loss, against those of the whole in f64. 5 classes are padded to 64, 8 are not.
#[test]
fn gradients_computed_with_the_loss_are_those_of_the_whole() {
    for (classes, z_loss, at_once) in [(5, 0.0, 4), (5, 0.25, 1), (8, 0.25, 4), (8, 0.0, 10), (70, 0.0, 11)] {
        let (whole, expected) = with_gradients(Precision::F32, classes, z_loss, None);
        let values = leaf_values(&whole, &targets(classes));
        let reference = reference_for(&whole, &values).run(&whole, RUN).expect("the reference runs");
        for precision in [Precision::F32, Precision::Bf16] {
            let (graph, asked) = with_gradients(precision, classes, z_loss, Some(at_once));
            let got = run_cpu(&graph, &asked, &values, 2);
            let limit = if precision == Precision::F32 { 1e-5 } else { 1e-2 };
            for ((got, &expected), what) in got.iter().zip(&expected).zip(["loss", "x", "weight"]) {
                let error = relative_error(got, &reference.get(expected).data, 1e-3);
                assert!(error < limit, "{what}, {classes} classes, {at_once} rows at once, {precision:?}: {error}");
            }
        }
    }
}

/// The plan of a GPT-2's loss on 4 x 512 tokens: less memory than its logits alone take, one matrix product for each use of them and
/// no gradients where only the loss is asked for.
#[test]
fn logits_of_a_large_vocabulary_are_never_all_stored() {
    let (rows, dim, vocabulary) = (2048, 768, 50_257);
    let mut graph = Graph::for_training();
    let x = graph.input("x", [4, rows / 4, dim], DType::F32).unwrap();
    let weight = graph.parameter("weight", [vocabulary, dim]).unwrap();
    let logits = graph.linear(x, weight, None).unwrap();
    let targets = graph.input("targets", [4, rows / 4], DType::I32).unwrap();
    let loss = graph.cross_entropy(logits, targets, options(0.0)).unwrap();
    let evaluation = Plan::for_cpu(&graph, &[loss]).expect("a plan");
    assert!(!evaluation.to_string().contains("gradient"), "gradients that nobody asks for");
    let wanted = [graph.find("x").unwrap(), weight];
    let gradients = graph.gradients(loss, &wanted, GradientOptions::default()).unwrap();
    let plan = Plan::for_cpu(&graph, &[loss, gradients[0], gradients[1]]).expect("a plan");
    let products = plan.graph().nodes().iter().filter(|node| node.op.name().starts_with("linear")).count();
    assert_eq!(products, 2 * 3, "of two parts: logits, and two gradients");
    let logits_bytes = 4 * rows * vocabulary;
    // One part's logits and their gradient, and the matrix padded and its gradient before and after the last part.
    let most = logits_bytes + 4 * 4 * vocabulary.next_multiple_of(64) * dim;
    assert!(plan.arena_bytes() < most + (64 << 20), "{} bytes; all logits take {logits_bytes}", plan.arena_bytes());
}
