//! Rows by number: embedding and its gradient.

use super::launch::{Address, Argument, Buffer, Building, Launch, c_type, source, vector};
use super::quantised::{self, Layout};
use crate::graph::{Graph, Node};
use crate::ops::Op;

const KERNEL: &str = include_str!("kernels/table.cu");
const GRADIENT_KERNEL: &str = include_str!("kernels/table_gradient.cu");

/// Threads of a block of the gradient.
const GRADIENT_BLOCK: usize = 256;
/// Rows of the table that a block of its gradient has: each block looks through all numbers of its chunk.
const ROWS_PER_BLOCK: usize = 8;
/// Columns of these rows, so that their sums fit into shared memory.
const MOST_COLUMNS: usize = 768;
/// Blocks that keep a GPU busy: with fewer, the numbers are divided into chunks.
const ENOUGH_BLOCKS: usize = 512;
/// The fewest numbers of a chunk.
const LEAST_CHUNK: usize = 256;

/// How the gradient of a table is divided into blocks: by shapes alone, so that sums do not depend on the GPU.
struct GradientBlocks {
    rows: usize,
    pieces: usize,
    chunks: usize,
    /// Numbers in a chunk.
    chunk: usize,
}

impl GradientBlocks {
    fn new(vocabulary: usize, columns: usize, numbers: usize) -> GradientBlocks {
        let (rows, pieces) = (vocabulary.div_ceil(ROWS_PER_BLOCK), columns.div_ceil(MOST_COLUMNS));
        let chunks = (ENOUGH_BLOCKS / (rows * pieces).max(1)).clamp(1, numbers.div_ceil(LEAST_CHUNK).max(1));
        let chunk = numbers.div_ceil(chunks).max(1);
        GradientBlocks { rows, pieces, chunks: numbers.div_ceil(chunk).max(1), chunk }
    }

    fn of(graph: &Graph, node: &Node, vocabulary: usize) -> GradientBlocks {
        let [dy, numbers] = [0, 1].map(|index| &graph.type_of(node.inputs[index]).shape);
        GradientBlocks::new(vocabulary, dy.columns(), numbers.elements())
    }
}

/// Bytes for the sums of the chunks, if there are several.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    let Op::EmbeddingGradient(op) = &node.op else { return 0 };
    match GradientBlocks::of(graph, node, op.vocabulary).chunks {
        1 => 0,
        chunks => 4 * chunks * node.outputs[0].shape.elements(),
    }
}

/// Where kernels note the first position of a number that is out of range.
pub(super) fn fault() -> Argument {
    Argument::Address(Address { buffer: Buffer::Run, byte: 16 })
}

/// A node that finds rows by number.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    match &building.node().op {
        Op::Embedding(_) => vec![embedding(building)],
        Op::EmbeddingGradient(op) => gradient(building, op.vocabulary),
        op => unreachable!("{} has no table", op.name()),
    }
}

fn embedding(building: &Building) -> Launch {
    if let Some(layout) = Layout::of(building.graph(), building.node()) {
        return quantised::embedding(building, &layout, fault());
    }
    let columns = building.output_type(0).shape.columns();
    let constants = [
        ("FROM", c_type(building.input_type(0).dtype)),
        ("TO", c_type(building.output_type(0).dtype)),
        ("VECTOR", vector(columns).to_string()),
        ("COLUMNS", columns.to_string()),
        ("LIMIT", building.input_type(0).shape.rows().to_string()),
    ];
    Launch {
        source: source(&constants, "", KERNEL),
        entry: "embedding",
        grid: [building.output_type(0).shape.rows() as u32, 1, 1],
        block: 128,
        shared_bytes: 0,
        arguments: vec![building.input(0), building.input(1), building.output(0), fault()],
    }
}

/// The gradient of a table: one launch, or one for the sums of each chunk of the numbers and one that adds them.
fn gradient(building: &Building, vocabulary: usize) -> Vec<Launch> {
    let blocks = GradientBlocks::of(building.graph(), building.node(), vocabulary);
    let columns = building.output_type(0).shape.columns();
    let numbers = building.input_type(1).shape.elements();
    let in_chunks = blocks.chunks > 1;
    let constants = [
        ("FROM", c_type(building.input_type(0).dtype)),
        ("COLUMNS", columns.to_string()),
        ("LIMIT", vocabulary.to_string()),
        ("ROWS", ROWS_PER_BLOCK.to_string()),
        ("PIECE", columns.min(MOST_COLUMNS).to_string()),
    ];
    let source = source(&constants, "", GRADIENT_KERNEL);
    let result = if in_chunks { building.workspace() } else { building.output(0) };
    let mut launches = vec![Launch {
        source: source.clone(),
        entry: "embedding_gradient",
        grid: [blocks.rows as u32, blocks.pieces as u32, blocks.chunks as u32],
        block: GRADIENT_BLOCK as u32,
        shared_bytes: 0,
        arguments: vec![
            building.input(0),
            building.input(1),
            result,
            fault(),
            Argument::U32(numbers as u32),
            Argument::U32(blocks.chunk as u32),
        ],
    }];
    if in_chunks {
        let values = building.output_type(0).shape.elements();
        launches.push(Launch {
            source,
            entry: "add_chunks",
            grid: [values.div_ceil(GRADIENT_BLOCK) as u32, 1, 1],
            block: GRADIENT_BLOCK as u32,
            shared_bytes: 0,
            arguments: vec![building.workspace(), building.output(0), Argument::U32(blocks.chunks as u32)],
        });
    }
    launches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_numbers_and_keep_a_gpu_busy() {
        for (vocabulary, columns, numbers) in
            [(2, 768, 32_768), (30_522, 768, 32_768), (1, 1, 1), (7, 5000, 300), (3, 4, 0)]
        {
            let blocks = GradientBlocks::new(vocabulary, columns, numbers);
            assert!(blocks.chunks * blocks.chunk >= numbers && (blocks.chunks - 1) * blocks.chunk <= numbers);
            assert!(blocks.rows * ROWS_PER_BLOCK >= vocabulary && blocks.pieces * MOST_COLUMNS >= columns);
            let all = blocks.rows * blocks.pieces * blocks.chunks;
            assert!(all >= ENOUGH_BLOCKS / 2 || blocks.chunk <= 2 * LEAST_CHUNK, "{all} blocks of {vocabulary} rows");
        }
    }
}
