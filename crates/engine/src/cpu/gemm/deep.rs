//! Matrix multiplications with a large depth and a small result: weight gradients, whose depth is all rows of a batch
//! (split-K).
//!
//! Tiled by output, such a multiplication would read all of B for every tile. So it is split along the depth: a tile
//! takes a range of consecutive rows of B, packs them chunk by chunk into its scratch, and accumulates into sums that
//! stay in its cache. Both operands are read once. The partial sums are added in order at the end, so the result does
//! not depend on the number of threads, bit for bit.

use std::ops::Range;

use super::super::memory::{FloatShared, Shared};
use super::super::rows;
use super::super::team::Team;
use super::micro::MicroKernel;
use super::{Blocking, DEPTH_BLOCK, LEAST_TILES, Operand, Product, Shape, part, tile};
use crate::precision::Precision;

/// The largest result, and the smallest depth, for which the depth is split.
const MOST_RESULTS: usize = 96 << 10;
const LEAST_DEPTH: usize = 1024;
/// Target depth of a part: its sums are written and reduced once.
const PART_DEPTH: usize = 512;
const MOST_PARTS: usize = 8;
/// Floats of B packed at once.
const CHUNK_FLOATS: usize = 128 << 10;

/// How a multiplication is split.
#[derive(Clone, Copy)]
struct Division {
    /// Number of parts of the depth.
    parts: usize,
    /// Depth packed at once.
    chunk: usize,
    /// Floats of a part's sums, and of its row sums of A.
    results: usize,
    row_sums: usize,
}

impl Division {
    fn of(shape: &Shape, kind: MicroKernel) -> Self {
        let sizes = kind.sizes();
        let width = shape.columns.next_multiple_of(sizes.lanes);
        Division {
            parts: (shape.depth / PART_DEPTH).clamp(1, MOST_PARTS),
            chunk: (CHUNK_FLOATS / width).clamp(16, DEPTH_BLOCK) * sizes.values,
            results: (shape.rows * shape.columns).next_multiple_of(16),
            row_sums: shape.rows.next_multiple_of(16),
        }
    }

    /// Offset of a part's sums, followed by its row sums of A, in the workspace. The first part's are in the output.
    fn place(&self, part: usize) -> usize {
        (part - 1) * (self.results + self.row_sums)
    }
}

/// Whether splitting the depth is the better choice.
pub fn suits(shape: &Shape) -> bool {
    shape.batch == 1 && shape.rows * shape.columns <= MOST_RESULTS && shape.depth >= LEAST_DEPTH
}

/// Floats of workspace: the sums of all parts but the first.
pub fn workspace_floats(shape: &Shape, precision: Precision) -> usize {
    let division = Division::of(shape, MicroKernel::best(precision));
    division.place(division.parts)
}

/// Floats of scratch per thread.
pub fn scratch_floats(shape: &Shape, precision: Precision) -> usize {
    let kind = MicroKernel::best(precision);
    let division = Division::of(shape, kind);
    let blocking = Blocking::new(&Shape { depth: division.chunk, ..*shape }, kind);
    let product = blocking.packed_units().next_multiple_of(16) + blocking.row_scratch();
    product.max(shape.rows)
}

/// Computes a multiplication that [`suits`], and optionally the row sums of A: the bias gradient along with a weight
/// gradient, computed while the chunk is in the cache. This requires A's rows to be adjacent in memory (row stride 1).
///
/// # Panics
/// Panics if an operand or a result is too short for the shape, or the workspace or the threads' scratch for
/// [`workspace_floats`] and [`scratch_floats`].
pub fn multiply(
    team: &mut Team,
    product: &Product,
    output: Shared<f32>,
    row_sums: Option<Shared<f32>>,
    workspace: &mut [f32],
) {
    let (shape, kind) = (product.shape(), MicroKernel::best(product.precision));
    product.a.check(shape.rows, shape.depth, 1, 0);
    product.b.check(shape.depth, shape.columns, 1, 0);
    assert!(row_sums.is_none() || product.a.row_stride == 1, "A's rows are not neighbours");
    let division = Division::of(&shape, kind);
    let workspace = Shared::new(&mut workspace[..division.place(division.parts)]);
    assert!(output.len() >= shape.rows * shape.columns, "the output is too short");
    // The sums of a part, and its row sums of A.
    let sums_of = |part: usize| match part {
        0 => (output, row_sums),
        _ => {
            // SAFETY: inside the workspace, where each part has its own range.
            let own = |at: usize, len: usize| unsafe { Shared::from_raw(workspace.as_ptr().add(at), len) };
            let at = division.place(part);
            (own(at, division.results), row_sums.map(|_| own(at + division.results, division.row_sums)))
        }
    };
    team.run(division.parts, &|index, scratch| {
        let (sums, row_sums) = sums_of(index);
        // SAFETY: no other tile has this part's sums.
        let mut row_sums = row_sums.map(|sums| unsafe { sums.range(0..shape.rows) });
        row_sums.iter_mut().for_each(|sums| sums.fill(0.0));
        let depth = part(shape.depth, division.parts, index);
        for start in depth.clone().step_by(division.chunk) {
            let chunk = Product {
                depth: division.chunk.min(depth.end - start),
                a: Operand { offset: product.a.offset + start * product.a.column_stride, ..product.a },
                b: Operand { offset: product.b.offset + start * product.b.row_stride, ..product.b },
                output: FloatShared::F32(sums),
                ..*product
            };
            multiply_chunk(&chunk, kind, start > depth.start, scratch);
            if let Some(sums) = &mut row_sums {
                add_columns(&chunk.a, chunk.depth, sums, scratch);
            }
        }
    });
    let tiles = LEAST_TILES.min(shape.rows);
    team.run(tiles, &|index, _| {
        let rows = part(shape.rows, tiles, index);
        let range = rows.start * shape.columns..rows.end * shape.columns;
        let add = |to: Shared<f32>, from: Shared<f32>, range: Range<usize>| {
            // SAFETY: all parts are done, and each tile adds up its own rows.
            unsafe { rows::add(to.range(range.clone()), from.range(range)) };
        };
        let (sums, row_sums) = sums_of(0);
        for other in 1..division.parts {
            let (more, more_row_sums) = sums_of(other);
            add(sums, more, range.clone());
            if let (Some(sums), Some(more)) = (row_sums, more_row_sums) {
                add(sums, more, rows.clone());
            }
        }
    });
}

/// A multiplication on one thread, with B packed in scratch; overwrites the output or accumulates into it.
fn multiply_chunk(product: &Product, kind: MicroKernel, accumulate: bool, scratch: &mut [f32]) {
    let blocking = &Blocking::new(&product.shape(), kind);
    let (packed, scratch) = scratch.split_at_mut(blocking.packed_units().next_multiple_of(16));
    let packed = Shared::new(packed);
    for block in 0..blocking.blocks {
        for panel in 0..blocking.panels {
            // SAFETY: the kernel is supported by this CPU; `packed` holds all panels.
            unsafe { tile::pack_panel(kind, product, blocking, 0, block, panel, packed) };
        }
    }
    // The output is f32, so the sums need no separate buffer.
    let claimed = blocking.row_scratch();
    for index in 0..blocking.tiles() {
        // SAFETY: as above; operands and output were checked, and no other thread has this part's sums.
        unsafe { tile::compute(kind, product, blocking, 0, index, accumulate, packed, scratch, claimed, None) };
    }
}

/// Adds the columns of A, whose values are adjacent in memory, to `sums`.
fn add_columns(a: &Operand, columns: usize, sums: &mut [f32], scratch: &mut [f32]) {
    for column in 0..columns {
        let start = a.offset + column * a.column_stride;
        rows::add(sums, a.values.read(start..start + sums.len(), scratch));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::memory::FloatSlice;
    use super::*;
    use crate::buffer::Floats;
    use half::bf16;

    /// Small integers: all sums are exact, in both precisions, in any order.
    fn number(at: usize) -> f32 {
        ((at * 7919) % 13) as f32 - 6.0
    }

    fn check(shape: Shape, precision: Precision, threads: usize) {
        let Shape { rows, columns, depth, .. } = shape;
        let a: Vec<f32> = (0..depth * rows).map(number).collect();
        let b: Vec<f32> = (0..depth * columns).map(|at| number(at + 3)).collect();
        let a_bf16: Vec<bf16> = a.iter().map(|&value| bf16::from_f32(value)).collect();
        let mut workspace = Floats::zeroed(workspace_floats(&shape, precision)).unwrap();
        let mut team = Team::new(threads, scratch_floats(&shape, precision)).unwrap();
        for values in [FloatSlice::F32(&a), FloatSlice::Bf16(&a_bf16)] {
            let (mut output, mut sums) = (vec![f32::NAN; rows * columns], vec![f32::NAN; rows]);
            workspace.as_mut_slice().fill(f32::NAN);
            let output_place = Shared::new(&mut output);
            let product = Product {
                rows,
                columns,
                depth,
                a: Operand { values, offset: 0, row_stride: 1, column_stride: rows },
                b: Operand { values: FloatSlice::F32(&b), offset: 0, row_stride: columns, column_stride: 1 },
                precision,
                output: FloatShared::F32(output_place),
                batch: 1,
                a_batch_stride: 0,
                b_batch_stride: 0,
                prepacked: false,
            };
            let row_sums = Some(Shared::new(&mut sums));
            multiply(&mut team, &product, output_place, row_sums, workspace.as_mut_slice());
            for row in 0..rows {
                assert_eq!(sums[row], (0..depth).map(|k| a[k * rows + row]).sum::<f32>());
                for column in 0..columns {
                    let sum: f32 = (0..depth).map(|k| a[k * rows + row] * b[k * columns + column]).sum();
                    assert_eq!(output[row * columns + column], sum, "{shape:?} {precision:?} at {row} {column}");
                }
            }
        }
    }

    #[test]
    fn products_divided_by_depth_agree_with_loops() {
        for (rows, columns, depth) in [(8, 16, 1024), (5, 7, 1025), (37, 129, 2111), (16, 300, 4609), (9, 1, 1500)] {
            let shape = Shape { rows, columns, depth, batch: 1, shared_b: true, prepacked: false };
            assert!(suits(&shape));
            for precision in [Precision::F32, Precision::Bf16] {
                for threads in [1, 3] {
                    check(shape, precision, threads);
                }
            }
        }
    }
}
