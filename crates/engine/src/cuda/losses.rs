//! Softmax, cross-entropy, binary cross-entropy, and their gradients.
//!
//! A loss is two kernels: the losses of the rows go to the workspace, and one block sums them, always in the same
//! order.

use super::launch::{Address, Argument, Buffer, Building, Launch, c_type, source};
use super::norms::rows::{Kept, Rows, vector_of, with_rows};
use super::steps::float;
use crate::graph::{Graph, Node};
use crate::ops::{BinaryCrossEntropy, CrossEntropy, CrossEntropyGradient, CrossEntropyOptions, Op, Targets};
use crate::types::Shape;

/// A row of logits, or of targets, in registers.
const ONE_ROW: Kept = Kept { by_warp: 64, by_block: 64 };
/// A row of softmax outputs and one of their gradients.
const TWO_ROWS: Kept = Kept { by_warp: 32, by_block: 32 };
const BLOCK: usize = 256;
/// Threads of the single block that processes the losses or targets of all rows.
const MEAN_BLOCK: u32 = 1024;

const EXPONENTIALS: &str = include_str!("kernels/exponentials.cu");
const TARGET: &str = include_str!("kernels/target.cu");
const MEAN_LOSS: &str = include_str!("kernels/mean_loss.cu");

/// Where kernels record the first position of an out-of-range value, with `atomicMin`: after the parameters of the run.
fn fault() -> Argument {
    Argument::Address(Address { buffer: Buffer::Run, byte: 16 })
}

/// Bytes of the number of targets that are not ignored, in front of the losses.
const COUNT_BYTES: usize = 16;

/// Bytes that a node's kernels exchange: the number of targets that are not ignored, and a loss per row.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    match &node.op {
        Op::CrossEntropy(_) | Op::BinaryCrossEntropy(_) => COUNT_BYTES + 4 * graph.shape_of(node.inputs[0]).rows(),
        Op::CrossEntropyGradient(op) if ignored_index(op.targets, &op.options).is_some() => COUNT_BYTES,
        _ => 0,
    }
}

/// The launches of a softmax, a loss, or a gradient of one.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    match &building.node().op {
        Op::Softmax(_) => vec![softmax(building)],
        Op::SoftmaxGradient(_) => vec![softmax_gradient(building)],
        Op::CrossEntropy(op) => cross_entropy(building, op),
        Op::CrossEntropyGradient(op) => cross_entropy_gradient(building, op),
        Op::BinaryCrossEntropy(op) => binary_cross_entropy(building, op.sum_classes),
        Op::BinaryCrossEntropyGradient(op) => vec![binary_cross_entropy_gradient(building, op.sum_classes)],
        _ => unreachable!("a softmax or a loss"),
    }
}

fn rows_of(building: &Building, shape: &Shape, kept: Kept) -> Rows {
    let vector = vector_of(building.graph(), building.node(), shape.columns());
    Rows::new(shape.rows(), shape.columns(), vector, kept, BLOCK)
}

/// A launch with one or more rows per block. The last argument is the number of rows.
fn launch(rows: &Rows, source: String, entry: &'static str, mut arguments: Vec<Argument>) -> Launch {
    arguments.push(rows.argument());
    let grid = [rows.blocks(), 1, 1];
    Launch { source, entry, grid, block: rows.block as u32, shared_bytes: 0, arguments }
}

/// A launch of one block for all rows. The last argument is their number.
fn launch_one(rows: &Rows, source: String, entry: &'static str, mut arguments: Vec<Argument>) -> Launch {
    arguments.push(rows.argument());
    Launch { source, entry, grid: [1, 1, 1], block: MEAN_BLOCK, shared_bytes: 0, arguments }
}

fn softmax(building: &Building) -> Launch {
    let rows = rows_of(building, &building.input_type(0).shape, ONE_ROW);
    let mut constants = rows.constants();
    constants
        .extend([("X_TYPE", c_type(building.input_type(0).dtype)), ("Y_TYPE", c_type(building.output_type(0).dtype))]);
    let kernel = format!("{EXPONENTIALS}{}", include_str!("kernels/softmax.cu"));
    let source = source(&constants, "", &with_rows(&kernel));
    launch(&rows, source, "softmax", vec![building.input(0), building.output(0)])
}

fn softmax_gradient(building: &Building) -> Launch {
    let rows = rows_of(building, &building.input_type(0).shape, TWO_ROWS);
    let mut constants = rows.constants();
    constants.extend([
        ("DY_TYPE", c_type(building.input_type(0).dtype)),
        ("Y_TYPE", c_type(building.input_type(1).dtype)),
        ("DX_TYPE", c_type(building.output_type(0).dtype)),
    ]);
    let source = source(&constants, "", &with_rows(include_str!("kernels/softmax_gradient.cu")));
    launch(&rows, source, "softmax_gradient", vec![building.input(0), building.input(1), building.output(0)])
}

/// The ignored hard target.
fn ignored_index(targets: Targets, options: &CrossEntropyOptions) -> Option<i32> {
    options.ignored_index.filter(|_| targets == Targets::Hard)
}

fn target_constants(
    building: &Building,
    (targets, options): (Targets, &CrossEntropyOptions),
    input: usize,
) -> Vec<(&'static str, String)> {
    let ignored = ignored_index(targets, options);
    vec![
        ("TARGETS_TYPE", c_type(building.input_type(input).dtype)),
        ("Z_LOSS", float(options.z_loss)),
        ("HARD", u8::from(targets == Targets::Hard).to_string()),
        ("SMOOTHS", u8::from(options.label_smoothing != 0.0).to_string()),
        ("SMOOTHING", float(options.label_smoothing)),
        ("HAS_IGNORED", u8::from(ignored.is_some()).to_string()),
        // As bits: the lowest number cannot be written with a minus sign.
        ("IGNORED", format!("((int)0x{:08x}u)", ignored.unwrap_or(0))),
        ("MEAN_BLOCK", MEAN_BLOCK.to_string()),
    ]
}

/// The launch that counts the targets that are not ignored, if some can be, and where their number is then.
fn count(building: &Building, ignored: Option<i32>, source: &str, input: usize) -> (Option<Launch>, Argument) {
    if ignored.is_none() {
        return (None, Argument::Nothing);
    }
    let arguments = vec![building.input(input), building.workspace(), target_count(building, Targets::Hard, input)];
    let (source, entry, grid) = (source.to_string(), "count_targets", [1, 1, 1]);
    let launch = Launch { source, entry, grid, block: MEAN_BLOCK, shared_bytes: 0, arguments };
    (Some(launch), building.workspace())
}

/// The number of targets, ignored ones among them.
fn target_count(building: &Building, targets: Targets, input: usize) -> Argument {
    let shape = &building.input_type(input).shape;
    Argument::U64(if targets == Targets::Hard { shape.elements() } else { shape.rows() } as u64)
}

fn first_row(first: Option<usize>) -> Argument {
    Argument::U64(first.unwrap_or(0) as u64)
}

/// Where the loss of each row is.
fn losses(building: &Building) -> Argument {
    match building.workspace() {
        Argument::Address(workspace) => Argument::Address(workspace.plus(COUNT_BYTES)),
        other => other,
    }
}

fn cross_entropy(building: &Building, op: &CrossEntropy) -> Vec<Launch> {
    let rows = rows_of(building, &building.input_type(0).shape, ONE_ROW);
    let mut constants = rows.constants();
    constants.extend(target_constants(building, (op.targets, &op.options), 1));
    constants.push(("LOGITS_TYPE", c_type(building.input_type(0).dtype)));
    let kernel = format!("{EXPONENTIALS}{TARGET}{}{MEAN_LOSS}", include_str!("kernels/loss.cu"));
    let source = source(&constants, "", &with_rows(&kernel));
    let (counting, counted) = count(building, ignored_index(op.targets, &op.options), &source, 1);
    let losses = losses(building);
    let arguments =
        vec![building.input(0), building.input(1), losses, building.output(1), fault(), first_row(op.first_row)];
    let mut launches = vec![launch(&rows, source.clone(), "cross_entropy", arguments)];
    launches.extend(counting);
    let arguments = vec![losses, counted, building.output(0), target_count(building, op.targets, 1)];
    launches.push(launch_one(&rows, source, "mean_loss", arguments));
    launches
}

fn cross_entropy_gradient(building: &Building, op: &CrossEntropyGradient) -> Vec<Launch> {
    let rows = rows_of(building, &building.input_type(1).shape, ONE_ROW);
    let mut constants = rows.constants();
    constants.extend(target_constants(building, (op.targets, &op.options), 2));
    constants.extend([
        ("D_LOSS_TYPE", c_type(building.input_type(0).dtype)),
        ("LOGITS_TYPE", c_type(building.input_type(1).dtype)),
        ("D_LOGITS_TYPE", c_type(building.output_type(0).dtype)),
    ]);
    let kernel = format!("{TARGET}{}", include_str!("kernels/loss_gradient.cu"));
    let source = source(&constants, "", &with_rows(&kernel));
    let (counting, counted) = count(building, ignored_index(op.targets, &op.options), &source, 2);
    let mut arguments: Vec<Argument> = (0..4).map(|index| building.input(index)).collect();
    arguments.extend([counted, building.output(0), fault(), first_row(op.first_row)]);
    arguments.push(target_count(building, op.targets, 2));
    counting.into_iter().chain([launch(&rows, source, "cross_entropy_gradient", arguments)]).collect()
}

fn binary_cross_entropy(building: &Building, sum_classes: bool) -> Vec<Launch> {
    let shape = &building.input_type(0).shape;
    let rows = rows_of(building, shape, ONE_ROW);
    let mut constants = rows.constants();
    constants.extend([
        ("LOGITS_TYPE", c_type(building.input_type(0).dtype)),
        ("TARGETS_TYPE", c_type(building.input_type(1).dtype)),
        ("MEAN_BLOCK", MEAN_BLOCK.to_string()),
        ("HAS_IGNORED", "0".to_string()),
    ]);
    let kernel = format!("{}{MEAN_LOSS}", include_str!("kernels/binary_loss.cu"));
    let source = source(&constants, "", &with_rows(&kernel));
    let losses = losses(building);
    let arguments = vec![building.input(0), building.input(1), losses];
    let divisor = Argument::U64(BinaryCrossEntropy::count(sum_classes, shape) as u64);
    vec![
        launch(&rows, source.clone(), "binary_cross_entropy", arguments),
        launch_one(&rows, source, "mean_loss", vec![losses, Argument::Nothing, building.output(0), divisor]),
    ]
}

fn binary_cross_entropy_gradient(building: &Building, sum_classes: bool) -> Launch {
    let shape = &building.input_type(1).shape;
    let rows = rows_of(building, shape, ONE_ROW);
    let mut constants = rows.constants();
    constants.extend([
        ("D_LOSS_TYPE", c_type(building.input_type(0).dtype)),
        ("LOGITS_TYPE", c_type(building.input_type(1).dtype)),
        ("TARGETS_TYPE", c_type(building.input_type(2).dtype)),
        ("D_LOGITS_TYPE", c_type(building.output_type(0).dtype)),
        ("DIVISOR", format!("{}ull", BinaryCrossEntropy::count(sum_classes, shape))),
    ]);
    let source = source(&constants, "", &with_rows(include_str!("kernels/binary_loss_gradient.cu")));
    let mut arguments: Vec<Argument> = (0..3).map(|index| building.input(index)).collect();
    arguments.push(building.output(0));
    launch(&rows, source, "binary_cross_entropy_gradient", arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GradientOptions;
    use crate::cuda::norms::testing::check;
    use crate::graph::Value;
    use crate::types::DType;

    const LENGTHS: [usize; 6] = [1, 10, 197, 1000, 8000, 50_257];

    fn is_own(op: &Op) -> bool {
        matches!(
            op,
            Op::Softmax(_)
                | Op::SoftmaxGradient(_)
                | Op::CrossEntropy(_)
                | Op::CrossEntropyGradient(_)
                | Op::BinaryCrossEntropy(_)
                | Op::BinaryCrossEntropyGradient(_)
        )
    }

    /// Launches of a loss of logits and of its gradient.
    fn launches(mut graph: Graph, loss: Value, logits: Value) -> usize {
        let mut outputs = graph.gradients(loss, &[logits], GradientOptions::default()).unwrap();
        outputs.push(loss);
        check(&graph, &outputs, &is_own, &workspace_bytes, &build).launches
    }

    #[test]
    fn softmax_compiles_for_every_length_of_rows_and_format() {
        for columns in LENGTHS {
            for dtype in [DType::F32, DType::Bf16] {
                let mut graph = Graph::for_training();
                let x = graph.input("x", [3, 2, columns], dtype).unwrap();
                let y = graph.softmax(x).unwrap();
                let seed = graph.input("seed", [3, 2, columns], DType::F32).unwrap();
                let mut outputs = graph.gradients_from(y, seed, &[x], GradientOptions::default()).unwrap();
                outputs.push(y);
                assert_eq!(check(&graph, &outputs, &is_own, &workspace_bytes, &build).launches, 2);
            }
        }
    }

    #[test]
    fn cross_entropy_compiles_for_every_kind_of_target() {
        for (columns, dtype) in LENGTHS.into_iter().zip([DType::F32, DType::Bf16].into_iter().cycle()) {
            for label_smoothing in [0.0, 0.1] {
                let mut graph = Graph::for_training();
                let logits = graph.input("logits", [5, columns], dtype).unwrap();
                let targets = graph.input("targets", [5, columns], DType::F32).unwrap();
                let options = CrossEntropyOptions { label_smoothing, z_loss: label_smoothing, ..Default::default() };
                let loss = graph.cross_entropy(logits, targets, options).unwrap();
                assert_eq!(launches(graph, loss, logits), 3);
                for ignored_index in [None, Some(-1), Some(i32::MIN), Some(0)] {
                    let mut graph = Graph::for_training();
                    let logits = graph.input("logits", [5, columns], dtype).unwrap();
                    let targets = graph.input("targets", [5], DType::I32).unwrap();
                    let options = CrossEntropyOptions { label_smoothing, ignored_index, ..Default::default() };
                    let loss = graph.cross_entropy(logits, targets, options).unwrap();
                    assert_eq!(launches(graph, loss, logits), if ignored_index.is_some() { 5 } else { 3 });
                }
            }
        }
    }

    #[test]
    fn binary_cross_entropy_compiles() {
        for columns in LENGTHS {
            for (dtype, sum_classes) in [(DType::F32, false), (DType::Bf16, true)] {
                let mut graph = Graph::for_training();
                let logits = graph.input("logits", [5, columns], dtype).unwrap();
                let targets = graph.input("targets", [5, columns], DType::F32).unwrap();
                let loss = graph.binary_cross_entropy(logits, targets, sum_classes).unwrap();
                assert_eq!(launches(graph, loss, logits), 3);
            }
        }
    }
}
