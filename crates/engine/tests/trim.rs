//! Rows that nobody reads are not computed, and nothing else changes.

mod common;

use common::{leaf_values, reference_for};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, GradientOptions, Graph, Mode, Padding, Plan,
    Precision, Result, Run, State, Value,
};

const BATCH: usize = 3;
const TOKENS: usize = 11;
const DIM: usize = 32;

fn dense(g: &mut Graph, name: &str, x: Value, to: usize) -> Result<Value> {
    let from = g.shape_of(x).columns();
    g.scope(name, |g| {
        let (weight, bias) = (g.parameter("weight", [to, from])?, g.parameter("bias", [to])?);
        g.linear(x, weight, Some(bias))
    })
}

fn norm(g: &mut Graph, name: &str, x: Value) -> Result<Value> {
    g.scope(name, |g| {
        let (gamma, beta) = (g.parameter("weight", [DIM])?, g.parameter("bias", [DIM])?);
        g.layer_norm(x, gamma, beta, 1e-6)
    })
}

/// What varies between the layers that are tried.
#[derive(Clone, Copy, Debug, Default)]
struct Variant {
    separate: bool,
    padded: bool,
    causal: bool,
    biased: bool,
    dropout: f32,
}

/// A layer with all that a token can meet; gives all tokens.
fn layer(g: &mut Graph, kind: Variant) -> Result<Value> {
    let x = g.input("x", [BATCH, TOKENS, DIM], DType::F32)?;
    let positions = g.parameter("positions", [TOKENS, DIM])?;
    let x = g.add(x, positions)?;
    let y = norm(g, "norm1", x)?;
    let inputs = if kind.separate {
        AttentionInputs::Separate { q: dense(g, "q", y, DIM)?, k: dense(g, "k", y, DIM)?, v: dense(g, "v", y, DIM)? }
    } else {
        AttentionInputs::Packed(dense(g, "qkv", y, 3 * DIM)?)
    };
    let padding = if kind.padded { Padding::Lengths(g.input("lengths", [BATCH], DType::I32)?) } else { Padding::None };
    let bias = if kind.biased { Some(g.parameter("bias", [1, 4, TOKENS, TOKENS])?) } else { None };
    let options = AttentionOptions {
        heads: 4,
        padding,
        bias,
        causal: kind.causal,
        dropout: kind.dropout,
        ..AttentionOptions::default()
    };
    let y = g.attention(inputs, &options)?;
    let y = dense(g, "output", y, DIM)?;
    let x = g.add(x, y)?;
    let y = norm(g, "norm2", x)?;
    let y = dense(g, "fc1", y, 4 * DIM)?;
    let y = g.gelu(y)?;
    let y = dense(g, "fc2", y, DIM)?;
    let scale = g.parameter("layer_scale", [DIM])?;
    let y = g.multiply(y, scale)?;
    let y = g.add(y, positions)?;
    let x = g.add(x, y)?;
    norm(g, "norm", x)
}

/// The share of the graph's work that is left for some results, which are compared with the reference.
fn share(graph: &Graph, outputs: &[Value], limit: f64) -> f64 {
    let values = leaf_values(graph, &|_, position| [5, 11, 1][position % 3]);
    let plan = Plan::for_cpu(graph, outputs).expect("plans");
    let share = plan.flops() as f64 / graph.flops() as f64;
    let mut executor = Executor::new(plan, 2).expect("starts");
    let mut state = State::new(graph).expect("memory");
    common::fill(&mut executor, &mut state, graph, &values);
    executor.poison();
    executor.run(&mut state, Run { seed: 3, step: 1 }).expect("runs");
    let truth = reference_for(graph, &values).run(graph, Run { seed: 3, step: 1 }).expect("runs");
    for &output in outputs {
        let (ours, theirs) = (executor.output(output).expect("a result"), &truth.get(output).data);
        let size = theirs.iter().map(|x| x * x).sum::<f64>().sqrt();
        let difference = ours.iter().zip(theirs).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
        assert!(difference <= limit * size, "{difference:e} of {size:e}");
    }
    share
}

fn token(g: &mut Graph, x: Value, first: usize, end: usize) -> Value {
    g.slice(x, 1, first, end).expect("a slice")
}

#[test]
fn only_the_tokens_that_are_read_are_computed() {
    for precision in [Precision::F32, Precision::Bf16] {
        // Ten products in a row, each of rounded numbers.
        let limit = if precision == Precision::F32 { 1e-5 } else { 4e-2 };
        for (separate, padded) in [(false, false), (true, false), (false, true), (true, true)] {
            for (first, end) in [(0, 1), (3, 5), (TOKENS - 1, TOKENS)] {
                let mut g = Graph::new(Mode::Inference, precision);
                let x = layer(&mut g, Variant { separate, padded, ..Variant::default() }).expect("builds");
                let some = token(&mut g, x, first, end);
                let logits = dense(&mut g, "head", some, 5).expect("builds");
                let share = share(&g, &[logits], limit);
                // Projections of keys and values are needed whole: two of twelve parts, and queries where they are packed with them.
                assert!(share < 0.5, "{share}");
            }
        }
    }
}

#[test]
fn all_tokens_are_computed_where_somebody_reads_them() {
    let mut g = Graph::for_inference();
    let x = layer(&mut g, Variant::default()).expect("builds");
    let class = token(&mut g, x, 0, 1);
    assert!(share(&g, &[class, x], 1e-5) > 0.999);
    let nearly_all = token(&mut g, x, 1, TOKENS);
    assert!(share(&g, &[nearly_all], 1e-5) > 0.999);
    let mean = g.mean_tokens(x).expect("builds");
    assert!(share(&g, &[class, mean], 1e-5) > 0.99);
    // Different tokens for one result.
    let last = token(&mut g, x, TOKENS - 1, TOKENS);
    let both = g.concat(&[class, last], 1).expect("builds");
    assert!(share(&g, &[both], 1e-5) > 0.99);
    // For two results, each is computed by itself.
    assert!(share(&g, &[class, last], 1e-5) < 0.6);
}

/// Runs a plan on the values that all of these tests use; gives the bits of its first result.
fn first_bits(graph: &Graph, outputs: &[Value]) -> Vec<u32> {
    let values = leaf_values(graph, &|_, position| [5, 11, 1][position % 3]);
    let mut executor = Executor::new(Plan::for_cpu(graph, outputs).expect("plans"), 2).expect("starts");
    let mut state = State::new(graph).expect("memory");
    common::fill(&mut executor, &mut state, graph, &values);
    executor.poison();
    executor.run(&mut state, Run { seed: 3, step: 1 }).expect("runs");
    executor.output(outputs[0]).expect("a result").iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_result_has_the_same_bits_in_any_company() {
    for precision in [Precision::F32, Precision::Bf16] {
        for separate in [false, true] {
            let mut g = Graph::new(Mode::Inference, precision);
            let x = layer(&mut g, Variant { separate, ..Variant::default() }).expect("builds");
            let class = token(&mut g, x, 0, 1);
            let logits = dense(&mut g, "head", class, 5).expect("builds");
            let alone = first_bits(&g, &[logits]);

            let attention = g.find("attention").expect("an attention");
            let weights = g.attention_weights(attention).expect("its weights");
            let query = g.find(if separate { "q.linear" } else { "qkv.linear" }).expect("a projection");
            let last = token(&mut g, x, TOKENS - 1, TOKENS);
            let mean = g.mean_tokens(x).expect("builds");
            let hidden = g.find("fc1.linear").expect("a product");
            let others = [weights, query, attention, x, last, mean, hidden, class];
            for other in others {
                assert_eq!(first_bits(&g, &[logits, other]), alone, "{precision:?}, beside {}", g.path(other));
                assert_eq!(first_bits(&g, &[other]), first_bits(&g, &[other, logits]), "{}", g.path(other));
            }
            let all: Vec<Value> = [logits].into_iter().chain(others).collect();
            assert_eq!(first_bits(&g, &all), alone);
        }
    }
}

#[test]
fn what_depends_on_its_place_keeps_it() {
    for (kind, dropout) in [
        (Variant { causal: true, ..Variant::default() }, 0.0),
        (Variant { biased: true, ..Variant::default() }, 0.0),
        (Variant { dropout: 0.3, ..Variant::default() }, 0.0),
        (Variant::default(), 0.3),
    ] {
        let mut g = Graph::new(Mode::Training, Precision::F32);
        let x = layer(&mut g, kind).expect("builds");
        let dropped = g.dropout(x, dropout).expect("builds");
        let class = token(&mut g, dropped, 2, 3);
        share(&g, &[class], 1e-5);
    }
}

/// A class token's loss behind a layer and stochastic depth.
fn training_graph(kind: Variant, precision: Precision) -> (Graph, Value, Value, Value) {
    let mut g = Graph::new(Mode::Training, precision);
    let x = g.block("layer", |g| layer(g, kind)).expect("builds");
    let x = g.stochastic_depth(x, 0.4).expect("builds");
    let class = token(&mut g, x, 0, 1);
    let class = g.reshape(class, [BATCH, DIM]).expect("builds");
    let logits = dense(&mut g, "head", class, 5).expect("builds");
    let labels = g.input("labels", [BATCH], DType::I32).expect("builds");
    let loss = g.cross_entropy(logits, labels, CrossEntropyOptions::default()).expect("builds");
    (g, x, logits, loss)
}

#[test]
fn gradients_go_through_the_tokens_that_are_read_alone() {
    for (precision, limit) in [(Precision::F32, 1e-5), (Precision::Bf16, 4e-2)] {
        for (separate, padded) in [(false, false), (true, false), (false, true)] {
            for recompute in [false, true] {
                let (mut g, x, logits, loss) =
                    training_graph(Variant { separate, padded, ..Variant::default() }, precision);
                let names: Vec<String> = g.parameters().iter().map(|parameter| parameter.name.clone()).collect();
                let wanted: Vec<Value> = names.iter().map(|name| g.find(name).expect("a parameter")).collect();
                let options = GradientOptions { recompute };
                let whole = g.gradients(loss, &wanted, options).expect("has gradients");
                let trimmed = g.parameter_gradients(loss, &wanted, options).expect("has gradients");

                let mut values = leaf_values(&g, &|name, position| {
                    if name == "labels" { (position % 5) as i32 } else { [5, 11, 1][position % 3] }
                });
                // Weights of a size at which a network trains: with larger ones, gradients of rounded numbers say little.
                for name in &names {
                    values
                        .get_mut(name)
                        .expect("a parameter")
                        .iter_mut()
                        .for_each(|x| *x = f64::from(*x as f32 * 0.25));
                }
                let run = Run { seed: 3, step: 1 };
                let truth = reference_for(&g, &values).run(&g, run).expect("runs");
                let outputs: Vec<Value> = [logits, loss, x].into_iter().chain(trimmed.iter().copied()).collect();
                let plan = Plan::for_cpu(&g, &outputs[..2]).expect("plans");
                assert!(plan.value(x).is_none(), "the loss needs no other token");
                let mut executor = Executor::new(Plan::for_cpu(&g, &outputs).expect("plans"), 2).expect("starts");
                let mut state = State::new(&g).expect("memory");
                common::fill(&mut executor, &mut state, &g, &values);
                executor.poison();
                executor.run(&mut state, run).expect("runs");
                let wholes = [logits, loss, x].into_iter().chain(whole.iter().copied());
                for (&output, whole) in outputs.iter().zip(wholes) {
                    let exact = &truth.get(whole).data;
                    let ours: Vec<f64> =
                        executor.output(output).expect("a result").into_iter().map(f64::from).collect();
                    for (values, limit) in [(&truth.get(output).data, 1e-9), (&ours, limit)] {
                        // The gradient of a key's bias is nothing.
                        let size = exact.iter().map(|x| x * x).sum::<f64>().sqrt().max(0.1);
                        let difference = values.iter().zip(exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        assert!(difference <= limit * size, "{difference:e} of {size:e} at {}", g.path(whole));
                    }
                }
                let flops = |outputs: &[Value]| Plan::for_cpu(&g, outputs).expect("plans").flops() as f64;
                let share = flops(&trimmed) / flops(&whole);
                assert!(share < 0.55, "{share}");
            }
        }
    }
}
