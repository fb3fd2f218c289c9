//! Products of great depth and a small result: weight gradients, whose depth is all rows of a batch.
//!
//! Divided by its result, such a product would read all of B for every tile. So it is divided by depth: a tile takes some
//! consecutive rows of B, packs them a chunk at a time where only it sees them, and adds to sums that stay in its cache. Both
//! operands are read once. The tiles' sums are added in order at the end, so the number of threads changes no bit.

use std::ops::Range;

use super::super::memory::{FloatShared, Shared};
use super::super::rows;
use super::super::team::Team;
use super::micro::Kind;
use super::{DEPTH_BLOCK, LEAST_TILES, Layout, Operand, Product, Shape, part, tile};
use crate::precision::Precision;

/// The largest result, and the least depth, that are divided by depth.
const MOST_RESULTS: usize = 96 << 10;
const LEAST_DEPTH: usize = 1024;
/// Depth that a part should have: its sums are written and added up again once.
const PART_DEPTH: usize = 512;
const MOST_PARTS: usize = 8;
/// Floats of B that are packed at once.
const CHUNK_FLOATS: usize = 128 << 10;

/// How a product is divided.
#[derive(Clone, Copy)]
struct Division {
    /// Parts of the depth.
    parts: usize,
    /// Depth that is packed at once.
    chunk: usize,
    /// Floats of a part's sums, and of the sums of A's rows.
    results: usize,
    row_sums: usize,
}

impl Division {
    fn of(shape: &Shape, kind: Kind) -> Self {
        let sizes = kind.sizes();
        let width = shape.columns.next_multiple_of(sizes.lanes);
        Division {
            parts: (shape.depth / PART_DEPTH).clamp(1, MOST_PARTS),
            chunk: (CHUNK_FLOATS / width).clamp(16, DEPTH_BLOCK) * sizes.values,
            results: (shape.rows * shape.columns).next_multiple_of(16),
            row_sums: shape.rows.next_multiple_of(16),
        }
    }

    /// Where a part's sums, and then its sums of A's rows, are in the workspace. The first part's are in place.
    fn place(&self, part: usize) -> usize {
        (part - 1) * (self.results + self.row_sums)
    }
}

/// Whether a product is better divided by depth.
pub fn suits(shape: &Shape) -> bool {
    shape.batch == 1 && shape.rows * shape.columns <= MOST_RESULTS && shape.depth >= LEAST_DEPTH
}

/// Floats of the workspace: the sums of all parts but the first.
pub fn workspace_floats(shape: &Shape, precision: Precision) -> usize {
    let division = Division::of(shape, Kind::best(precision));
    division.place(division.parts)
}

/// Floats of each thread's scratch.
pub fn scratch_floats(shape: &Shape, precision: Precision) -> usize {
    let kind = Kind::best(precision);
    let division = Division::of(shape, kind);
    let layout = Layout::new(&Shape { depth: division.chunk, ..*shape }, kind);
    let product = layout.packed_units().next_multiple_of(16) + layout.row_scratch();
    product.max(shape.rows)
}

/// Computes a product that [`suits`], and, if wanted, the sums of A's rows: the bias gradient beside a weight gradient. They
/// are made while the chunk is in the cache. Then A's rows must be neighbours in memory.
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
    let (shape, kind) = (product.shape(), Kind::best(product.precision));
    product.a.check(shape.rows, shape.depth, 1, 0);
    product.b.check(shape.depth, shape.columns, 1, 0);
    assert!(row_sums.is_none() || product.a.row_stride == 1, "A's rows are not neighbours");
    let division = Division::of(&shape, kind);
    let workspace = Shared::new(&mut workspace[..division.place(division.parts)]);
    assert!(output.len() >= shape.rows * shape.columns, "the output is too short");
    // Where a part's sums are, and its sums of A's rows.
    let sums_of = |part: usize| match part {
        0 => (output, row_sums),
        _ => {
            // SAFETY: inside the workspace, where each part has its own place.
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

/// A product on one thread, its B packed in scratch; the output gets it, or has it added.
fn multiply_chunk(product: &Product, kind: Kind, accumulate: bool, scratch: &mut [f32]) {
    let layout = &Layout::new(&product.shape(), kind);
    let (packed, scratch) = scratch.split_at_mut(layout.packed_units().next_multiple_of(16));
    let packed = Shared::new(packed);
    for block in 0..layout.blocks {
        for panel in 0..layout.panels {
            // SAFETY: the kind is this machine's best; `packed` holds all panels.
            unsafe { tile::pack_panel(kind, product, layout, 0, block, panel, packed) };
        }
    }
    // The output is f32, so that sums need no place of their own.
    let claimed = layout.row_scratch();
    for index in 0..layout.tiles() {
        // SAFETY: as above; operands and output were checked, and no other thread has this part's sums.
        unsafe { tile::compute(kind, product, layout, 0, index, accumulate, packed, scratch, claimed, None) };
    }
}

/// Adds the columns of A, whose values are neighbours in memory, to `sums`.
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

    /// Small whole numbers: all sums are exact, in both precisions, in any order.
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
            let shape = Shape { rows, columns, depth, batch: 1, shared_b: true };
            assert!(suits(&shape));
            for precision in [Precision::F32, Precision::Bf16] {
                for threads in [1, 3] {
                    check(shape, precision, threads);
                }
            }
        }
    }
}
