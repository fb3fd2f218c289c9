//! Quantised weights on a device: the blocks of a file, re-ordered so that threads read theirs at once, and neither widened
//! nor rounded, except that the scales and offsets of super-blocks (Q4_K, Q5_K, Q6_K) are multiplied out to f16.
//!
//! The kernels that multiply them are `few_rows.rs`'s; for more rows, a matrix is expanded to bf16 right before its product.

use std::thread;

use half::f16;

use super::launch::{Address, Argument, Buffer, Building, Launch, c_type, source};
use super::products::Sizes;
use crate::blocks::BlockFormat;
use crate::graph::{Graph, Node};
use crate::types::DType;

/// Values of a piece, and of a span, as in the kernels.
const PIECE: usize = 32;
const SPAN: usize = 128;
/// Threads that share a piece.
const THREADS: usize = 4;
const ROWS_KERNEL: &str = include_str!("kernels/quantised_rows.cu");

/// How a matrix is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    format: BlockFormat,
    rows: usize,
    columns: usize,
}

impl Layout {
    /// The functions of kernels that read it.
    pub const TEXT: &str = include_str!("kernels/quantised.cu");

    pub fn new(format: BlockFormat, rows: usize, columns: usize) -> Layout {
        Layout { format, rows, columns }
    }

    /// The layout of the weight of a linear layer or embedding, if it is quantised.
    pub fn of(graph: &Graph, node: &Node) -> Option<Layout> {
        let (format, shape) = graph.quantised_weight(node)?;
        Some(Layout::new(format, shape.rows(), shape.columns()))
    }

    /// What two matrices must share to be multiplied by one kernel.
    pub fn form(self) -> (BlockFormat, usize) {
        (self.format, self.columns)
    }

    fn spans(&self) -> usize {
        self.columns.div_ceil(SPAN)
    }

    /// Bits of a number beyond the lower four, which are stored apart; 0 for bytes.
    fn planes(&self) -> usize {
        match self.format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K | BlockFormat::Q8_0 => 0,
            BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5K => 1,
            BlockFormat::Q6K => 2,
        }
    }

    /// Words per thread and span for the lower bits.
    fn low_words(&self) -> usize {
        if self.format == BlockFormat::Q8_0 { 8 } else { 4 }
    }

    /// Whether each half of a piece has a scale of its own.
    fn halves(&self) -> bool {
        self.format.group() < PIECE
    }

    fn has_offsets(&self) -> bool {
        match self.format {
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => true,
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 | BlockFormat::Q6K => false,
        }
    }

    /// Words of a row before its planes, its scales, its offsets, and of all of it.
    fn parts(&self) -> [usize; 4] {
        let planes = self.spans() * THREADS * self.low_words();
        let scales = planes + self.spans() * THREADS * self.planes();
        let offsets = scales + self.spans() * if self.halves() { 4 } else { 2 };
        let end = offsets + if self.has_offsets() { 2 * self.spans() } else { 0 };
        [planes, scales, offsets, end.next_multiple_of(4)]
    }

    fn row_bytes(&self) -> usize {
        4 * self.parts()[3]
    }

    /// Bytes of the matrix.
    pub fn bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// The constants of kernels that read it.
    pub fn constants(&self) -> Vec<(&'static str, String)> {
        vec![
            ("ROW_BYTES", self.row_bytes().to_string()),
            ("ROW_SPANS", self.spans().to_string()),
            ("LOW_WORDS", self.low_words().to_string()),
            ("PLANES", self.planes().to_string()),
            ("HALVES", usize::from(self.halves()).to_string()),
            ("OFFSETS", usize::from(self.has_offsets()).to_string()),
            ("ZERO", format!("{}u", self.format.zero())),
        ]
    }

    /// Re-orders blocks, on all cores.
    pub fn pack(&self, blocks: &[u8]) -> Vec<u32> {
        let words = self.parts()[3];
        let mut packed = vec![0u32; self.rows * words];
        let from = self.columns / self.format.values() * self.format.bytes();
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let rows = self.rows.div_ceil(workers).max(1);
        thread::scope(|scope| {
            for (to, from) in packed.chunks_mut(rows * words).zip(blocks.chunks(rows * from)) {
                scope.spawn(move || self.pack_rows(from, to));
            }
        });
        packed
    }

    fn pack_rows(&self, blocks: &[u8], to: &mut [u32]) {
        let blocks_per_row = self.columns / self.format.values();
        let rows = blocks.chunks_exact(blocks_per_row * self.format.bytes()).zip(to.chunks_exact_mut(self.parts()[3]));
        for (blocks, to) in rows {
            for (index, block) in blocks.chunks_exact(self.format.bytes()).enumerate() {
                self.pack_block(block, index * self.format.values(), to);
            }
        }
    }

    /// Puts a block that begins at a column into its row.
    fn pack_block(&self, block: &[u8], column: usize, to: &mut [u32]) {
        let unpacked = self.format.unpack(block);
        let [planes, scales, offsets, _] = self.parts();
        let mut put_half = |start: usize, which: usize, value: f32| {
            let bits = u32::from(f16::from_f32(value.clamp(-65504.0, 65504.0)).to_bits());
            to[start + which / 2] |= bits << (16 * (which % 2));
        };
        let group = self.format.group();
        for index in 0..self.format.values() / group {
            let place = (column + index * group) / group;
            put_half(scales, place, unpacked.scale(index));
            if self.has_offsets() {
                put_half(offsets, place, unpacked.offset(index));
            }
        }
        for (index, &number) in unpacked.integers[..self.format.values()].iter().enumerate() {
            let Place { thread, value, piece, span } = self.place(column + index);
            let (number, at) = (u32::from(number), span * THREADS + thread);
            if self.low_words() == 8 {
                to[at * 8 + 2 * piece + value / 4] |= number << (8 * (value % 4));
                continue;
            }
            // A pair of neighbours is four apart, so that one mask gives both.
            let bit = value / 2 + 4 * (value % 2);
            to[at * 4 + piece] |= (number & 15) << (4 * bit);
            for plane in 0..self.planes() {
                to[planes + at * self.planes() + plane] |= (number >> (4 + plane) & 1) << (8 * piece + bit);
            }
        }
    }

    /// Whose value a column is.
    fn place(&self, column: usize) -> Place {
        let within = column % PIECE;
        let (thread, value) = match self.halves() {
            true => (within % 16 / 4, within / 16 * 4 + within % 4),
            false => (within / 8, within % 8),
        };
        Place { thread, value, piece: column % SPAN / PIECE, span: column / SPAN }
    }
}

/// A value among those of a row: of four threads, eight values each, four pieces, and the spans.
struct Place {
    thread: usize,
    value: usize,
    piece: usize,
    span: usize,
}

/// Bytes for a linear layer of many rows: its weight and, if it is not there, its input as bf16.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    let Sizes { m, n, k, .. } = Sizes::of(graph, node);
    let rounded = if graph.type_of(node.inputs[0]).dtype == DType::Bf16 { 0 } else { 2 * m * k };
    (2 * n * k).next_multiple_of(256) + rounded
}

/// Where [`expand`] puts the weight, and the input behind it.
pub(super) fn expanded(building: &Building) -> [Address; 2] {
    let Sizes { n, k, .. } = Sizes::of(building.graph(), building.node());
    let weight = Address { buffer: Buffer::Arena, byte: building.plan.workspace(building.index) };
    [weight, weight.plus((2 * n * k).next_multiple_of(256))]
}

/// Writes a linear layer's weight as bf16 into its workspace.
pub(super) fn expand(building: &Building, layout: &Layout) -> Launch {
    let weight = Address { buffer: Buffer::QuantisedParameters, ..building.place(building.node().inputs[1]) };
    let arguments = [weight, expanded(building)[0]].map(Argument::Address).to_vec();
    rows_launch(layout, "expand", DType::Bf16, layout.rows, arguments)
}

/// An embedding whose table is quantised.
pub(super) fn embedding(building: &Building, layout: &Layout, fault: Argument) -> Launch {
    let table = Address { buffer: Buffer::QuantisedParameters, ..building.place(building.node().inputs[0]) };
    let arguments = vec![Argument::Address(table), building.input(1), building.output(0), fault];
    let to = building.output_type(0);
    rows_launch(layout, "quantised_embedding", to.dtype, to.shape.rows(), arguments)
}

fn rows_launch(layout: &Layout, entry: &'static str, to: DType, blocks: usize, arguments: Vec<Argument>) -> Launch {
    let mut constants = layout.constants();
    constants.extend([("COLUMNS", layout.columns.to_string()), ("LIMIT", layout.rows.to_string()), ("TO", c_type(to))]);
    let source = source(&constants, Layout::TEXT, ROWS_KERNEL);
    Launch { source, entry, grid: [blocks as u32, 1, 1], block: 128, shared_bytes: 0, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::quantised::tests::random_blocks;

    /// Reads a value back as the kernels do.
    fn value_at(layout: &Layout, row: &[u32], column: usize) -> f32 {
        let Place { thread, value, piece, span } = layout.place(column);
        let [planes, scales, offsets, _] = layout.parts();
        let at = span * THREADS + thread;
        let number = match layout.low_words() {
            8 => row[at * 8 + 2 * piece + value / 4] >> (8 * (value % 4)) & 255,
            _ => {
                let bit = value / 2 + 4 * (value % 2);
                let high = |plane| row[planes + at * layout.planes() + plane] >> (8 * piece + bit) & 1;
                (0..layout.planes())
                    .fold(row[at * 4 + piece] >> (4 * bit) & 15, |sum, plane| sum | high(plane) << (4 + plane))
            }
        };
        let half =
            |start: usize, which: usize| f16::from_bits((row[start + which / 2] >> (16 * (which % 2))) as u16).to_f32();
        let group = column / layout.format.group();
        let offset = if layout.has_offsets() { half(offsets, group) } else { 0.0 };
        half(scales, group) * (number as f32 - f32::from(layout.format.zero())) + offset
    }

    #[test]
    fn every_value_is_where_kernels_look_for_it() {
        for format in BlockFormat::ALL {
            // Rows that end within a span.
            for blocks in [1, 5] {
                let layout = Layout::new(format, 3, blocks * format.values());
                let bytes = random_blocks(format, layout.rows * layout.columns, 3);
                let mut expected = vec![0.0; layout.rows * layout.columns];
                format.dequantise(&bytes, &mut expected);
                let packed = layout.pack(&bytes);
                assert_eq!(4 * packed.len(), layout.bytes());
                for (row, words) in packed.chunks_exact(layout.parts()[3]).enumerate() {
                    for column in 0..layout.columns {
                        let (got, expected) =
                            (value_at(&layout, words, column), expected[row * layout.columns + column]);
                        // Scales and offsets of super-blocks were rounded to f16; their sums are up to 700.
                        let close = (got - expected).abs() <= 700.0 / 2048.0;
                        let exact = format.values() == 256 || got == expected;
                        assert!(close && exact, "{format:?}, {row}, {column}: {got}, not {expected}");
                    }
                }
            }
        }
    }
}
