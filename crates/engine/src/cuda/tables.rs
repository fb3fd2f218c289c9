//! Rows by number: embedding, its gradient, rows written into a cache.

use super::launch::{Address, Argument, Buffer, Building, Launch, c_type, source, vector};
use crate::ops::Op;

const KERNEL: &str = include_str!("kernels/table.cu");

/// Where kernels note the first position of a number that is out of range.
pub(super) fn fault() -> Argument {
    Argument::Address(Address { buffer: Buffer::Run, byte: 16 })
}

/// A node that finds rows by number.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    let columns = building.output_type(0).shape.columns();
    let rows_of = |index: usize| building.input_type(index).shape.rows();
    let (entry, blocks, limit, width, arguments) = match &building.node().op {
        Op::Embedding(_) => {
            let arguments = vec![building.input(0), building.input(1), building.output(0), fault()];
            ("embedding", building.output_type(0).shape.rows(), rows_of(0), vector(columns), arguments)
        }
        Op::EmbeddingGradient(op) => {
            let numbers = building.input_type(1).shape.elements();
            let mut arguments = vec![building.input(0), building.input(1), building.output(0), fault()];
            arguments.push(Argument::U32(numbers as u32));
            ("embedding_gradient", op.vocabulary, op.vocabulary, 1, arguments)
        }
        Op::WriteRows(_) => {
            let arguments = vec![building.input(1), building.input(2), building.output(0), fault()];
            let capacity = building.input_type(0).shape.axes()[1];
            ("write_rows", rows_of(1), capacity, vector(columns), arguments)
        }
        _ => unreachable!("an op on tables"),
    };
    let numbers = building.input_type(if matches!(building.node().op, Op::WriteRows(_)) { 2 } else { 1 });
    let from = if matches!(building.node().op, Op::WriteRows(_)) { 1 } else { 0 };
    let constants = [
        ("FROM", c_type(building.input_type(from).dtype)),
        ("TO", c_type(building.output_type(0).dtype)),
        ("VECTOR", width.to_string()),
        ("COLUMNS", columns.to_string()),
        ("LIMIT", limit.to_string()),
        // Of rows that are written: how many per slot.
        ("ROWS_PER_SLOT", (blocks / numbers.shape.elements().max(1)).max(1).to_string()),
    ];
    let source = source(&constants, "", KERNEL);
    vec![Launch { source, entry, grid: [blocks as u32, 1, 1], block: 128, shared_bytes: 0, arguments }]
}
