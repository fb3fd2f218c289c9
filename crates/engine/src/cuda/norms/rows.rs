//! How the rows of a kernel are distributed over threads: see `kernels/rows.cu`.

use super::super::launch::{self, Argument};
use crate::graph::{Graph, Node};
use crate::ops::Step;
use crate::types::DType;

/// Number of SMs to use.
const PROCESSORS: usize = 132;
/// Threads that share a row which is too long for a warp.
const MOST_THREADS: usize = 512;

/// A row kernel, with the shared source of such kernels.
pub(in crate::cuda) fn with_rows(kernel: &str) -> String {
    format!("{}{kernel}", include_str!("../kernels/rows.cu"))
}

/// Values of a row that a thread can keep in registers.
#[derive(Clone, Copy)]
pub(in crate::cuda) struct Kept {
    /// If a warp, or a part of it, processes the row.
    pub by_warp: usize,
    /// If a block processes it: all of its threads need registers.
    pub by_block: usize,
}

/// How rows are distributed over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) struct Rows {
    pub count: usize,
    pub columns: usize,
    /// Adjacent values that a thread loads at once.
    pub vector: usize,
    /// Threads per row: some lanes of a warp, or whole warps.
    pub threads: usize,
    /// Threads per block.
    pub block: usize,
    /// Whether the row stays in registers between passes.
    pub keeps: bool,
}

impl Rows {
    pub fn new(count: usize, columns: usize, vector: usize, kept: Kept, most_block: usize) -> Rows {
        let fits = |threads: usize, kept: usize| columns.div_ceil(threads * vector) * vector <= kept;
        if fits(32, kept.by_warp) {
            let threads = columns.div_ceil(vector).next_power_of_two().clamp(4, 32);
            // With few rows, small blocks spread them over more SMs.
            let block = (count * threads).div_ceil(PROCESSORS).next_power_of_two().clamp(32, most_block);
            return Rows { count, columns, vector, threads, block, keeps: true };
        }
        let threads = columns.div_ceil(kept.by_block.min(16)).next_power_of_two().clamp(64, MOST_THREADS);
        let keeps = fits(threads, kept.by_block);
        Rows { count, columns, vector, threads, block: threads, keeps }
    }

    /// Like [`Rows::new`], for a kernel that keeps much per column: four values per thread, if there are enough
    /// threads, so that an SM has room for many rows. All constants are the fastest on an H200.
    pub fn of_teams(count: usize, columns: usize, vector: usize) -> Rows {
        const KEPT: Kept = Kept { by_warp: 8, by_block: 16 };
        if columns <= 32 * KEPT.by_warp || columns > MOST_THREADS * KEPT.by_block {
            return Rows::new(count, columns, vector, KEPT, 128);
        }
        let threads = columns.div_ceil(4).next_multiple_of(32).min(MOST_THREADS);
        // Short rows share a block, which combines their sums.
        let teams = if threads <= 128 { count.div_ceil(PROCESSORS).min(384 / threads) } else { 1 };
        Rows { count, columns, vector: vector.min(4), threads, block: threads * teams, keeps: true }
    }

    /// The number of rows, as an argument: kernels for any number of rows are the same, and compiled once.
    pub fn argument(&self) -> Argument {
        Argument::U64(self.count as u64)
    }

    /// The other numbers as constants of the kernel source.
    pub fn constants(&self) -> Vec<(&'static str, String)> {
        vec![
            ("COLUMNS", self.columns.to_string()),
            ("VECTOR", self.vector.to_string()),
            ("THREADS", self.threads.to_string()),
            ("BLOCK", self.block.to_string()),
            ("KEEPS", u8::from(self.keeps).to_string()),
        ]
    }

    /// Number of blocks for all rows; each loops if there are more.
    pub fn blocks(&self) -> u32 {
        launch::blocks(self.count, self.block / self.threads)
    }

    /// Blocks of a team kernel that an SM holds at the same time.
    pub fn held_blocks(&self) -> usize {
        match self.threads {
            ..=32 => (512 / self.block).clamp(1, 3),
            threads if self.columns <= 4 * threads => (1152 / self.block).max(1),
            _ => 1,
        }
    }

    /// Like [`Rows::blocks`], but at most those that run at the same time: each ends with sums of its own.
    pub fn summing_blocks(&self) -> usize {
        self.count.div_ceil(self.block / self.threads).min(PROCESSORS * self.held_blocks())
    }
}

/// Values that a thread of a row kernel loads at once: 16 bytes of the narrowest dtype, if rows are divisible. Random
/// masks are drawn for eight columns at a time.
pub(in crate::cuda) fn vector_of(graph: &Graph, node: &Node, columns: usize) -> usize {
    let inputs = node.inputs.iter().map(|&input| graph.type_of(input));
    let narrow = inputs.chain(&node.outputs).any(|value| value.dtype == DType::Bf16);
    let masked = node.steps.iter().any(|step| matches!(step, Step::Dropout(_) | Step::DroppedActivation { .. }));
    launch::vector(columns).min(if narrow || masked { 8 } else { 4 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORWARD: Kept = Kept { by_warp: 64, by_block: 64 };

    #[test]
    fn rows_up_to_2048_columns_have_a_warp_and_longer_ones_a_block() {
        for columns in 1..=2048 {
            let rows = Rows::new(10_000, columns, launch::vector(columns), FORWARD, 256);
            assert!(rows.threads <= 32 && rows.keeps && rows.block == 256, "{rows:?}");
        }
        for (columns, keeps) in [(2049, true), (4096, true), (8000, true), (32_768, true), (50_257, false)] {
            let rows = Rows::new(10_000, columns, launch::vector(columns), FORWARD, 256);
            assert_eq!((rows.threads, rows.keeps), (rows.block, keeps), "{rows:?}");
        }
    }

    #[test]
    fn teams_have_all_columns_and_hardware_for_their_barriers() {
        for columns in 1..=9000 {
            let rows = Rows::of_teams(50_432, columns, launch::vector(columns));
            let teams = rows.block / rows.threads.max(32);
            assert!(rows.block <= 512 && (1..16).contains(&teams) && rows.keeps == (columns <= 8192), "{rows:?}");
            assert!(rows.threads <= 32 || rows.threads.is_multiple_of(32), "{rows:?}");
            assert!(columns.is_multiple_of(rows.vector), "{rows:?}");
        }
        let division = |columns| {
            let rows = Rows::of_teams(50_432, columns, launch::vector(columns));
            (rows.threads, rows.vector, rows.block, rows.held_blocks())
        };
        assert_eq!(
            [128, 384, 768, 1024].map(division),
            [(16, 8, 128, 3), (96, 4, 384, 3), (192, 4, 192, 6), (256, 4, 256, 4)]
        );
    }

    #[test]
    fn every_thread_of_a_block_belongs_to_a_row_and_every_block_has_one() {
        for count in [1, 3, 197, 50_432] {
            for columns in [1, 10, 64, 100, 768, 1000, 3072, 9000] {
                let kept = Kept { by_warp: 32, by_block: 16 };
                let vector = launch::vector(columns);
                for rows in [Rows::new(count, columns, vector, kept, 128), Rows::of_teams(count, columns, vector)] {
                    assert!(rows.block.is_multiple_of(rows.threads) && rows.block.is_multiple_of(32), "{rows:?}");
                    let first_row = |block: usize| block * (rows.block / rows.threads);
                    assert!(first_row(rows.blocks() as usize - 1) < count, "{rows:?}");
                    assert!(first_row(rows.summing_blocks() - 1) < count, "{rows:?}");
                }
            }
        }
    }
}
