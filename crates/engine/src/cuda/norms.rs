//! LayerNorm and RMSNorm with preceding steps, and their gradients with following steps.

pub(super) mod rows;
#[cfg(test)]
pub(super) mod testing;

use super::launch::{Argument, Building, Launch, c_type, source};
use super::steps;
use crate::graph::{Graph, Node};
use crate::ops::Op;
use rows::{Kept, Rows, vector_of, with_rows};

/// A row of x, in registers.
const FORWARD: Kept = Kept { by_warp: 64, by_block: 64 };
const FORWARD_BLOCK: usize = 256;
/// Threads and columns per block of `add_partials`.
const ADDING_BLOCK: u32 = 512;
const ADDING_COLUMNS: usize = 32;

/// The variant of a norm.
struct NormVariant {
    /// Whether the mean is subtracted, and there is a β.
    layer: bool,
    affine: bool,
}

impl NormVariant {
    fn of(op: &Op) -> NormVariant {
        match op {
            Op::LayerNorm(op) => NormVariant { layer: true, affine: op.affine },
            Op::LayerNormGradient(op) => NormVariant { layer: true, affine: op.affine },
            _ => NormVariant { layer: false, affine: true },
        }
    }

    fn constants(&self) -> [(&'static str, String); 2] {
        [("LAYER", u8::from(self.layer).to_string()), ("AFFINE", u8::from(self.affine).to_string())]
    }

    /// Partial sums per block of the gradient: of dγ, and of dβ.
    fn partial_width(&self, columns: usize) -> usize {
        match (self.affine, self.layer) {
            (false, _) => 0,
            (true, false) => columns,
            (true, true) => 2 * columns,
        }
    }
}

/// The rows of a norm, or of a norm's gradient: all of them have the shape of their first input.
fn rows_of(graph: &Graph, node: &Node) -> Rows {
    let shape = &graph.type_of(node.inputs[0]).shape;
    let vector = vector_of(graph, node, shape.columns());
    match node.op {
        Op::LayerNormGradient(_) | Op::RmsNormGradient(_) => Rows::of_teams(shape.rows(), shape.columns(), vector),
        _ => Rows::new(shape.rows(), shape.columns(), vector, FORWARD, FORWARD_BLOCK),
    }
}

/// Bytes between a gradient's two kernels: each block's sums of dγ and dβ.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    match node.op {
        Op::LayerNormGradient(_) | Op::RmsNormGradient(_) => {
            let rows = rows_of(graph, node);
            4 * rows.summing_blocks() * NormVariant::of(&node.op).partial_width(rows.columns)
        }
        _ => 0,
    }
}

/// The launches of a norm or of a norm's gradient.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    match building.node().op {
        Op::LayerNorm(_) | Op::RmsNorm(_) => vec![forward(building)],
        Op::LayerNormGradient(_) | Op::RmsNormGradient(_) => gradient(building),
        _ => unreachable!("a norm"),
    }
}

fn forward(building: &Building) -> Launch {
    let node = building.node();
    let variant = NormVariant::of(&node.op);
    let eps = match &node.op {
        Op::LayerNorm(op) => op.eps,
        Op::RmsNorm(op) => op.eps,
        _ => unreachable!("a norm"),
    };
    let rows = rows_of(building.graph(), node);
    let steps = steps::of(building);
    let mut constants = rows.constants();
    constants.extend(variant.constants());
    constants.extend([
        ("X_TYPE", c_type(building.input_type(0).dtype)),
        ("Y_TYPE", c_type(building.output_type(0).dtype)),
        ("EPS", steps::float(eps)),
    ]);
    let mut arguments = vec![
        building.input(0),
        if variant.affine { building.input(1) } else { Argument::Nothing },
        if variant.affine && variant.layer { building.input(2) } else { Argument::Nothing },
        building.output(0),
        if variant.layer { building.output(1) } else { Argument::Nothing },
        building.output(if variant.layer { 2 } else { 1 }),
        building.run(),
        rows.argument(),
    ];
    arguments.extend(steps.arguments);
    Launch {
        source: source(&constants, &steps.text, &with_rows(include_str!("kernels/norm.cu"))),
        entry: "normalize",
        grid: [rows.blocks(), 1, 1],
        block: rows.block as u32,
        shared_bytes: 0,
        arguments,
    }
}

fn gradient(building: &Building) -> Vec<Launch> {
    let node = building.node();
    let variant = NormVariant::of(&node.op);
    let rows = rows_of(building.graph(), node);
    let steps = steps::of(building);
    let partials = rows.summing_blocks();
    let mut constants = rows.constants();
    constants.extend(variant.constants());
    constants.extend([
        ("DY_TYPE", c_type(building.input_type(0).dtype)),
        ("X_TYPE", c_type(building.input_type(1).dtype)),
        ("DX_TYPE", c_type(building.output_type(0).dtype)),
        ("BLOCKS_HELD", rows.held_blocks().to_string()),
    ]);
    let source = source(&constants, &steps.text, &with_rows(include_str!("kernels/norm_gradient.cu")));
    // RMSNorm has no mean, so the following inputs have lower indices.
    let inverse = if variant.layer { 3 } else { 2 };
    let mut arguments = vec![
        building.input(0),
        building.input(1),
        if variant.layer { building.input(2) } else { Argument::Nothing },
        building.input(inverse),
        if variant.affine { building.input(inverse + 1) } else { Argument::Nothing },
        building.output(0),
        if variant.affine { building.workspace() } else { Argument::Nothing },
        building.run(),
        rows.argument(),
    ];
    arguments.extend(steps.arguments);
    let mut launches = vec![Launch {
        source: source.clone(),
        entry: "norm_gradient",
        grid: [partials as u32, 1, 1],
        block: rows.block as u32,
        shared_bytes: 0,
        arguments,
    }];
    if variant.affine {
        launches.push(Launch {
            source,
            entry: "add_partials",
            grid: [variant.partial_width(rows.columns).div_ceil(ADDING_COLUMNS) as u32, 1, 1],
            block: ADDING_BLOCK,
            shared_bytes: 0,
            arguments: vec![
                building.workspace(),
                building.output(1),
                if variant.layer { building.output(2) } else { Argument::Nothing },
                Argument::U32(partials as u32),
            ],
        });
    }
    launches
}

#[cfg(test)]
mod tests {
    use super::testing::{Checked, check};
    use super::*;
    use crate::types::DType;
    use crate::{GradientOptions, Mode, Precision, Value};

    fn is_norm(op: &Op) -> bool {
        matches!(op, Op::LayerNorm(_) | Op::RmsNorm(_) | Op::LayerNormGradient(_) | Op::RmsNormGradient(_))
    }

    fn checked(graph: &Graph, outputs: &[Value]) -> Checked {
        check(graph, outputs, &is_norm, &workspace_bytes, &build)
    }

    /// A norm of `[samples, tokens, columns]` inputs with its gradients.
    fn norm_and_gradients(columns: usize, dtype: DType, affine: bool, layer: bool) -> Checked {
        let mut graph = Graph::for_training();
        let shape = [3, 5, columns];
        let x = graph.input("x", shape, dtype).unwrap();
        let seed = graph.input("seed", shape, dtype).unwrap();
        let gamma = graph.parameter("gamma", [columns]).unwrap();
        let beta = graph.parameter("beta", [columns]).unwrap();
        let (y, wanted) = match (layer, affine) {
            (true, true) => (graph.layer_norm(x, gamma, beta, 1e-6).unwrap(), vec![x, gamma, beta]),
            (true, false) => (graph.layer_norm_plain(x, 1e-6).unwrap(), vec![x]),
            _ => (graph.rms_norm(x, gamma, 1e-6).unwrap(), vec![x, gamma]),
        };
        let mut outputs = graph.gradients_from(y, seed, &wanted, GradientOptions::default()).unwrap();
        outputs.push(y);
        checked(&graph, &outputs)
    }

    #[test]
    fn norms_compile_for_every_length_of_rows_and_format() {
        // Parts of a warp, one warp with odd and even rows, several warps, rows in registers and longer ones.
        for columns in [3, 16, 100, 192, 768, 1024, 2048, 4096, 10_000, 40_000] {
            for dtype in [DType::F32, DType::Bf16] {
                for layer in [true, false] {
                    assert_eq!(norm_and_gradients(columns, dtype, true, layer).launches, 3);
                }
            }
        }
        assert_eq!(norm_and_gradients(768, DType::F32, false, true).launches, 2);
    }

    #[test]
    fn steps_come_before_norms_and_behind_their_gradients() {
        let mut graph = Graph::new(Mode::Training, Precision::Bf16);
        let x = graph.input("x", [4, 7, 64], DType::F32).unwrap();
        let residual = graph.input("residual", [4, 7, 64], DType::Bf16).unwrap();
        let weight = graph.parameter("weight", [48, 64]).unwrap();
        let gamma = graph.parameter("gamma", [64]).unwrap();
        let beta = graph.parameter("beta", [64]).unwrap();
        let dropped = graph.dropout(x, 0.1).unwrap();
        let path = graph.stochastic_depth(dropped, 0.2).unwrap();
        let sum = graph.add(path, residual).unwrap();
        let normal = graph.layer_norm(sum, gamma, beta, 1e-5).unwrap();
        let y = graph.linear(normal, weight, None).unwrap();
        let seed = graph.input("seed", [4, 7, 48], DType::F32).unwrap();
        let wanted = [x, gamma, beta];
        let mut outputs = graph.gradients_from(y, seed, &wanted, GradientOptions::default()).unwrap();
        outputs.extend([sum, y]);
        let checked = checked(&graph, &outputs);
        assert_eq!(checked.launches, 3);
        assert!(checked.labels.iter().any(|label| label.starts_with("layer_norm+dropout")), "{:?}", checked.labels);
        assert!(checked.labels.iter().any(|label| label.starts_with("layer_norm_gradient+")), "{:?}", checked.labels);
    }
}
