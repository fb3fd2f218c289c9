//! Pointwise nodes, and the steps after a matrix multiplication.

use super::launch::{Address, Argument, Building, Launch, blocks, c_type, source, vector};
use super::steps;
use crate::types::DType;

const KERNEL: &str = include_str!("kernels/pointwise.cu");
const BLOCK: usize = 256;

/// A pointwise node.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    vec![apply(building, 0, building.input(0), building.input_type(0).dtype)]
}

/// Rounds a node's first input to bf16.
pub(super) fn round(building: &Building, to: Address) -> Launch {
    let input = building.input_type(0);
    let (elements, width) = (input.shape.elements(), vector(input.shape.columns()));
    let constants = [
        ("FROM", c_type(input.dtype)),
        ("TO", c_type(DType::Bf16)),
        ("VECTOR", width.to_string()),
        ("COLUMNS", input.shape.columns().to_string()),
    ];
    let count = Argument::U64((elements / width) as u64);
    Launch {
        source: source(&constants, steps::NONE, KERNEL),
        entry: "pointwise",
        grid: [blocks(elements / width, BLOCK), 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        arguments: vec![building.input(0), Argument::Address(to), building.run(), count],
    }
}

/// Applies a node's steps, except for the first few, to values with the shape of its first output, and stores them
/// there. They may be there already.
pub(super) fn apply(building: &Building, first: usize, from: Argument, dtype: DType) -> Launch {
    let output = building.output_type(0);
    let (elements, width) = (output.shape.elements(), vector(output.shape.columns()));
    let steps = steps::from(building, first);
    let constants = [
        ("FROM", c_type(dtype)),
        ("TO", c_type(output.dtype)),
        ("VECTOR", width.to_string()),
        ("COLUMNS", output.shape.columns().to_string()),
    ];
    let mut arguments = vec![from, building.output(0), building.run(), Argument::U64((elements / width) as u64)];
    arguments.extend(steps.arguments);
    Launch {
        source: source(&constants, &steps.text, KERNEL),
        entry: "pointwise",
        grid: [blocks(elements / width, BLOCK), 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        arguments,
    }
}
