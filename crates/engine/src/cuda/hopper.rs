//! Matrix multiplication by our own kernel on Hopper's tensor cores, with all of a node's steps as epilogue.
//!
//! cuBLASLt supports few epilogues: exact GELU, dropout and others need another pass over memory. This kernel applies
//! all steps to the sums in registers, while tensor cores work on the next tile. It is for large bf16 multiplications
//! on GPUs of compute capability 9.0, whose instructions no other has; whether it is faster is measured.

use super::chip::Chip;
use super::launch::{Argument, Axis, Building, Launch, Matrix, c_type, source};
use super::products::{Sizes, place_as};
use super::steps;
use super::warpgroup::{AROUND, Left, multiply};
use crate::precision::Precision;
use crate::types::DType;

const KERNEL: &str = include_str!("kernels/product.cu");
/// The kernel's name, as shown in profiles.
pub(super) const ENTRY: &str = "product_with_steps";
/// Rows and columns of a tile, as in the kernel.
const TILE: usize = 128;
/// Depth of a piece, as in the kernel: 128 bytes.
const PIECE: usize = 64;
/// Pipeline stages of pieces of A and B. Shared memory would hold one more.
const STAGES: usize = 6;
/// Two consumer warpgroups and one producer.
const THREADS: u32 = 3 * 128;

/// A matrix multiplication node as one launch, if this kernel supports it.
pub(super) fn build(building: &Building, chip: Chip) -> Option<Launch> {
    let (graph, node) = (building.graph(), building.node());
    let Sizes { m: rows, n: columns, k: depth, batch, transposed: [first, second], precision } = Sizes::of(graph, node);
    // Half of the SMs would be idle.
    let is_small = rows * columns < TILE * TILE * chip.processors as usize / 2;
    // Rows must be aligned to 16 bytes, and a deep right operand is loaded in groups of 32 columns.
    let fits = columns.is_multiple_of(if second { 32 } else { 8 }) && depth.is_multiple_of(8);
    // The kernel indexes with i32, up to the end of the last tile.
    let can_count = [rows, columns, depth].iter().all(|&size| size <= i32::MAX as usize - 2 * TILE);
    if !chip.is_hopper || precision != Precision::Bf16 || batch > 1 || first || is_small || !fits || !can_count {
        return None;
    }
    let place = |input: usize| place_as(building, node.inputs[input], DType::Bf16);
    let left = Matrix::new(place(0)?, &[axis(depth, 1, PIECE), axis(rows, depth, TILE)]);
    let right = match second {
        true => Matrix::new(place(1)?, &deep_axes(columns, depth)),
        false => Matrix::new(place(1)?, &[axis(columns, 1, TILE / 2), axis(depth, columns, PIECE)]),
    };
    let steps = steps::unrounded(building);
    let constants = [
        ("ROWS", rows.to_string()),
        ("COLUMNS", columns.to_string()),
        ("DEPTH", depth.to_string()),
        ("STAGES", STAGES.to_string()),
        ("B_IS_DEEP", u32::from(second).to_string()),
        ("TO", c_type(building.output_type(0).dtype)),
    ];
    let mut arguments = vec![Argument::Matrix(left), Argument::Matrix(right), building.output(0), building.run()];
    arguments.extend(steps.arguments);
    let pairs = rows.div_ceil(2 * TILE) * columns.div_ceil(TILE);
    Some(Launch {
        source: source(
            &constants,
            &[&steps.text, AROUND, &multiply("multiply", TILE, Left::Shared, second)].concat(),
            KERNEL,
        ),
        entry: ENTRY,
        grid: [2 * pairs.min(chip.processors as usize / 2) as u32, 1, 1],
        block: THREADS,
        shared_bytes: (STAGES * 2 * TILE * PIECE * 2) as u32,
        arguments,
    })
}

fn axis(size: usize, stride: usize, piece: usize) -> Axis {
    Axis { size, stride, piece }
}

/// The right operand if each of its columns is contiguous. Tensor cores give a thread two adjacent values of each eight
/// columns of the result. Within every 32, columns are loaded in such an order that these are adjacent in the matrix,
/// too: eight per thread. The driver's manual requires increasing strides; these are not, and drivers accept them.
fn deep_axes(columns: usize, depth: usize) -> [Axis; 5] {
    let [neighbours, threads, pairs] = [axis(2, depth, 2), axis(4, 8 * depth, 4), axis(4, 2 * depth, 4)];
    [axis(depth, 1, PIECE), neighbours, threads, pairs, axis(columns / 32, 32 * depth, TILE / 2 / 32)]
}

#[cfg(test)]
mod tests;
