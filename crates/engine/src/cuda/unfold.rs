//! Unfold and its gradient, fold.

use super::launch::{Building, Launch, blocks, c_type, source};
use crate::ops::{Op, Sliding};

const KERNEL: &str = include_str!("kernels/unfold.cu");
const BLOCK: usize = 256;

/// A node of unfold, from `[batch, time, channels]` to positions, or of fold, which goes back.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    let (from, to) = (building.input_type(0).shape.axes(), building.output_type(0).shape.axes());
    match &building.node().op {
        Op::Unfold(op) => vec![launch(building, "unfold", op.sliding, [from[1], to[1], from[2]])],
        Op::Fold(op) => vec![launch(building, "fold", op.sliding, [to[1], from[1], to[2]])],
        op => unreachable!("{} is no unfold", op.name()),
    }
}

fn launch(
    building: &Building,
    entry: &'static str,
    sliding: Sliding,
    [time, positions, channels]: [usize; 3],
) -> Launch {
    let count = building.output_type(0).shape.elements();
    let constants = [
        ("FROM", c_type(building.input_type(0).dtype)),
        ("TO", c_type(building.output_type(0).dtype)),
        ("TIME", format!("{time}ll")),
        ("POSITIONS", format!("{positions}ll")),
        ("CHANNELS", format!("{channels}ll")),
        ("KERNEL", format!("{}ll", sliding.kernel)),
        ("STRIDE", format!("{}ll", sliding.stride)),
        ("PADDING", format!("{}ll", sliding.padding)),
        ("COUNT", format!("{count}ull")),
    ];
    Launch {
        source: source(&constants, "", KERNEL),
        entry,
        grid: [blocks(count, BLOCK), 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        arguments: vec![building.input(0), building.output(0)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::norms::testing::check;
    use crate::gradient::GradientOptions;
    use crate::graph::Graph;
    use crate::types::DType;

    #[test]
    fn unfold_and_fold_compile() {
        for (kernel, stride, padding) in [(3, 1, 1), (3, 2, 1), (1, 2, 0), (5, 3, 7)] {
            for dtype in [DType::F32, DType::Bf16] {
                let mut graph = Graph::for_training();
                let x = graph.input("x", [2, 11, 4], dtype).unwrap();
                let y = graph.unfold(x, Sliding { kernel, stride, padding }).unwrap();
                let seed = graph.input("seed", graph.shape_of(y).clone(), dtype).unwrap();
                let mut outputs = vec![y];
                outputs.extend(graph.gradients_from(y, seed, &[x], GradientOptions::default()).unwrap());
                let is_own = |op: &Op| matches!(op, Op::Unfold(_) | Op::Fold(_));
                assert_eq!(check(&graph, &outputs, &is_own, &|_, _| 0, &build).launches, 2);
            }
        }
    }
}
