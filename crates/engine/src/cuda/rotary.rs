//! Rotary positions: one kernel, with the frequencies in its text.

use super::launch::{Argument, Building, Launch, c_type, source, vector};
use super::steps::float;
use crate::ops::Op;
use crate::ops::rotary::RotaryPairing;

const KERNEL: &str = include_str!("kernels/rotary.cu");
const MOST_THREADS: usize = 256;

/// A node of rotary positions.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    let Op::Rotary(op) = &building.node().op else { unreachable!("a node of rotary positions") };
    let value_type = building.output_type(0);
    let &[_, tokens, columns] = value_type.shape.axes() else { unreachable!("checked when the graph was built") };
    let (head_dim, pairs) = (columns / op.heads, op.frequencies.len());
    let halves = op.pairing == RotaryPairing::Halves;
    // Neighbours form pairs: at least two at once.
    let width = vector(head_dim).min(if halves { vector(pairs) } else { vector(2 * pairs) });
    let width = if halves { width } else { width.max(2) };
    let units = op.heads * pairs / width.min(pairs);
    let threads = units.next_multiple_of(32).min(MOST_THREADS);
    let bits: Vec<String> = op.frequencies.iter().map(|frequency| format!("0x{:08x}u", frequency.to_bits())).collect();
    let constants = [
        ("TYPE", c_type(value_type.dtype)),
        ("TOKENS", tokens.to_string()),
        ("HEADS", op.heads.to_string()),
        ("HEAD_DIM", head_dim.to_string()),
        ("PAIRS", pairs.to_string()),
        ("THREADS", threads.to_string()),
        ("VECTOR", width.to_string()),
        ("HALVES", usize::from(halves).to_string()),
        ("OFFSETS", usize::from(op.offsets).to_string()),
        ("SIGN", if op.inverse { "-" } else { "" }.to_string()),
        ("FACTOR", float(op.factor)),
        ("FREQUENCY_BITS", bits.join(", ")),
    ];
    let offsets = if op.offsets { building.input(1) } else { Argument::Nothing };
    vec![Launch {
        source: source(&constants, "", KERNEL),
        entry: "rotary",
        grid: [value_type.shape.rows() as u32, 1, 1],
        block: threads as u32,
        shared_bytes: 0,
        arguments: vec![building.input(0), offsets, building.output(0)],
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::norms::testing::check;
    use crate::gradient::GradientOptions;
    use crate::graph::Graph;
    use crate::ops::RotaryOptions;
    use crate::types::DType;

    #[test]
    fn rotary_positions_compile() {
        // Wide and narrow vectors, heads of odd sizes, values that are not rotated.
        for (heads, head_dim, pairs) in [(4, 64, 32), (3, 80, 10), (2, 7, 3), (1, 2, 1), (32, 128, 64)] {
            for (dtype, pairing) in [(DType::F32, RotaryPairing::Pairs), (DType::Bf16, RotaryPairing::Halves)] {
                let mut graph = Graph::for_training();
                let x = graph.input("x", [2, 5, heads * head_dim], dtype).unwrap();
                let seed = graph.input("seed", [2, 5, heads * head_dim], dtype).unwrap();
                let offsets = (pairs % 2 == 0).then(|| graph.input("offsets", [2], DType::I32).unwrap());
                let frequencies = (0..pairs).map(|k| 1.0 / (k + 1) as f32).collect();
                let options = RotaryOptions { heads, frequencies, pairing, factor: 1.2, offsets };
                let y = graph.rotary(x, &options).unwrap();
                let mut outputs = vec![y];
                outputs.extend(graph.gradients_from(y, seed, &[x], GradientOptions::default()).unwrap());
                let is_own = |op: &Op| matches!(op, Op::Rotary(_));
                assert_eq!(check(&graph, &outputs, &is_own, &|_, _| 0, &build).launches, 2);
            }
        }
    }
}
