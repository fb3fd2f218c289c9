//! What the GPU can do at best: a large product, which its library computes as fast as anything is computed there.

use std::borrow::Cow;
use std::sync::Arc;

use super::device::Device;
use super::executor::Executor;
use crate::error::{Error, Result};
use crate::graph::{Graph, Mode};
use crate::plan::Plan;
use crate::precision::Precision;
use crate::random::Run;
use crate::types::DType;

/// Rows, columns and depth of the product.
const SIDE: usize = 8192;
const DEPTH: usize = 4096;
/// Runs of which the fastest counts.
const RUNS: usize = 8;

/// Floating-point operations a second of a large product of random numbers: zeros would be faster.
pub fn measured_limit(device: &Arc<Device>, precision: Precision) -> Result<f64> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let dtype = if precision == Precision::Bf16 { DType::Bf16 } else { DType::F32 };
    let x = graph.input("x", [SIDE, DEPTH], dtype)?;
    let weight = graph.parameter("weight", [SIDE, DEPTH])?;
    let y = graph.linear(x, weight, None)?;
    let plan = Plan::for_cuda(&graph, &[y])?;
    let mut executor =
        Executor::with_weights(plan, device, |_| Ok::<_, Error>(Cow::Owned(numbers().take(SIDE * DEPTH).collect())))?;
    match dtype {
        DType::Bf16 => {
            let to = executor.input_bf16("x")?.iter_mut();
            to.zip(numbers()).for_each(|(to, number)| *to = half::bf16::from_f32(number));
        }
        _ => executor.input("x")?.iter_mut().zip(numbers()).for_each(|(to, number)| *to = number),
    }
    let mut shortest = f64::INFINITY;
    for _ in 0..RUNS {
        let times = executor.profile(None, Run { seed: 0, step: 0 })?;
        shortest = times.iter().map(|(_, _, seconds)| *seconds).fold(shortest, f64::min);
    }
    Ok(2.0 * (SIDE * SIDE * DEPTH) as f64 / shortest)
}

/// Numbers between -1 and 1 without an order: as random as a product's time asks for.
fn numbers() -> impl Iterator<Item = f32> {
    let mut state = 1u32;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
    })
}
