//! Kernels get exactly the scratch memory that they ask for: [`Team::lend`](super::team::Team::lend). So one that asks for too
//! little fails in every test that runs it. Here is the other side: none asks for more than it needs.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Executor;
use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::attention::{AttentionInputs, AttentionOptions};
use crate::ops::unfold::Sliding;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::random::Run;
use crate::state::State;
use crate::types::DType;
use crate::{GradientOptions, Mode};

type Build = fn(&mut Graph, [Value; 2]) -> Result<Value>;

/// An op, and what its gradient consists of. All numbers are bf16, so that what has to be widened is widened.
const OPS: [(&str, Build); 16] = [
    ("layer_norm", |g, [x, _]| {
        let (gamma, beta) = (g.parameter("gamma", [48])?, g.parameter("beta", [48])?);
        g.layer_norm(x, gamma, beta, 1e-5)
    }),
    ("rms_norm", |g, [x, _]| {
        let gamma = g.parameter("gamma", [48])?;
        g.rms_norm(x, gamma, 1e-5)
    }),
    ("gelu", |g, [x, z]| {
        let y = g.gelu(x)?;
        g.multiply(y, z)
    }),
    ("softmax", |g, [x, _]| g.softmax(x)),
    ("hard targets", |g, [x, _]| {
        let targets = g.input("targets", [6, 8], DType::I32)?;
        g.cross_entropy(x, targets, Default::default())
    }),
    ("soft targets", |g, [x, z]| g.cross_entropy(x, z, Default::default())),
    ("binary", |g, [x, z]| g.binary_cross_entropy(x, z, false)),
    ("mean_tokens", |g, [x, _]| g.mean_tokens(x)),
    ("max_tokens", |g, [x, _]| g.max_tokens(x)),
    ("embedding", |g, [x, _]| {
        let (table, numbers) = (g.parameter("table", [9, 160])?, g.input("numbers", [6, 8], DType::I32)?);
        let table = g.cast(table, DType::Bf16)?;
        let (rows, weight) = (g.embedding(table, numbers)?, g.parameter("weight", [48, 160])?);
        let y = g.linear(rows, weight, None)?;
        g.add(y, x)
    }),
    ("concat", |g, [x, z]| g.concat(&[x, z, x, z, x, z], 1)),
    ("conv1d", |g, [x, _]| {
        let weight = g.parameter("weight", [16, 3 * 48])?;
        g.conv1d(x, weight, None, Sliding { kernel: 3, stride: 1, padding: 1 })
    }),
    ("broadcast", |g, [x, _]| {
        let row = g.parameter("row", [8, 48])?;
        let row = g.cast(row, DType::Bf16)?;
        let all = g.broadcast(row, [6, 8, 48])?;
        let weights = g.attention(
            AttentionInputs::Separate { q: x, k: all, v: all },
            &AttentionOptions { heads: 3, ..Default::default() },
        )?;
        g.add(weights, x)
    }),
    ("top_k", |g, [x, _]| Ok(g.top_k(x, 4)?.0)),
    ("one query", |g, [x, z]| {
        let q = g.slice(x, 1, 0, 1)?;
        g.attention(AttentionInputs::Separate { q, k: z, v: z }, &AttentionOptions { heads: 3, ..Default::default() })
    }),
    ("linear", |g, [x, _]| {
        let (weight, bias) = (g.parameter("weight", [700, 48])?, g.parameter("bias", [700])?);
        let y = g.linear(x, weight, Some(bias))?;
        g.gelu(y)
    }),
];

fn graph(build: Build, with_gradient: bool) -> (Graph, Vec<Value>) {
    let mut g = Graph::new(if with_gradient { Mode::Training } else { Mode::Inference }, Precision::Bf16);
    let leaves = ["x", "z"].map(|name| g.input(name, [6, 8, 48], DType::F32).expect("an input"));
    let narrow = leaves.map(|leaf| g.cast(leaf, DType::Bf16).expect("a cast"));
    let y = build(&mut g, narrow).expect("the graph is right");
    let mut wanted = vec![y];
    if with_gradient {
        let shape = g.shape_of(y).clone();
        let seed = g.constant("seed", shape.clone(), vec![0.5; shape.elements()]).expect("a constant");
        let of: Vec<Value> = leaves
            .into_iter()
            .take(1)
            .chain(g.parameters().to_vec().iter().filter_map(|p| g.find(&p.name).ok()))
            .collect();
        wanted.extend(g.gradients_from(y, seed, &of, GradientOptions::default()).expect("gradients"));
    }
    (g, wanted)
}

/// Whether a plan runs.
fn runs(graph: &Graph, plan: Plan) -> bool {
    let mut executor = Executor::new(plan, 1).expect("memory");
    let mut state = State::new(graph).expect("memory");
    let run = catch_unwind(AssertUnwindSafe(|| executor.run(&mut state, Run { seed: 1, step: 1 })));
    run.is_ok_and(|run| run.is_ok())
}

#[test]
fn no_kernel_asks_for_more_scratch_than_it_needs() {
    let mut tight = BTreeSet::new();
    let mut loose = Vec::new();
    for (name, build) in OPS {
        for with_gradient in [false, true].into_iter().filter(|gradient| !gradient || name != "top_k") {
            let (graph, wanted) = graph(build, with_gradient);
            let plan = Plan::for_cpu(&graph, &wanted).expect("a plan");
            let whole = runs(&graph, plan.clone());
            if !whole {
                loose.push(format!("{name}: does not run at all"));
                continue;
            }
            for node in 0..plan.graph().nodes().len() {
                let (label, bytes) = (plan.graph().nodes()[node].op.name(), plan.node_scratch_bytes(node));
                match bytes.checked_sub(64) {
                    None => {}
                    // It goes through its values in pieces of what it gets.
                    Some(_) if label == "concat" => {}
                    Some(less) if runs(&graph, plan.clone().with_scratch_of(node, less)) => {
                        loose.push(format!("{name}: {label} asks for {bytes} bytes and runs with {less}"));
                    }
                    Some(_) => _ = tight.insert(label),
                }
            }
        }
    }
    assert!(loose.is_empty(), "{}", loose.join("\n"));
    assert!(tight.len() >= 20, "few kernels were tried: {tight:?}");
}
