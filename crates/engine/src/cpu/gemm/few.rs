//! Multiplications with few rows (text decoding): memory-bound, they read B once, in place.

use half::bf16;

use super::pack::Stored;
use super::{Finish, Operand, Product, Shape};
use crate::cpu::memory::FloatSlice;
use crate::cpu::simd::{Lanes, simd_fn};
use crate::cpu::team::Team;

/// Approximate number of values of B per tile.
const TILE_VALUES: usize = 1 << 16;
/// Columns summed in parallel in dot products.
const ABREAST: usize = 4;

/// Columns per tile; a multiple of the widest kernel's step, except for the last tile.
pub fn tile_columns(shape: &Shape) -> usize {
    (TILE_VALUES / shape.depth.max(1)).next_multiple_of(128).min(shape.columns)
}

/// A as f32, and the tile's sums.
pub fn scratch_floats(shape: &Shape) -> usize {
    let rows = if shape.shared_b { shape.rows * shape.batch } else { shape.rows };
    (rows * (shape.depth + tile_columns(shape))).next_multiple_of(16)
}

pub fn multiply(team: &mut Team, product: &Product, claimed: usize, finish: Option<&Finish>) {
    let width = tile_columns(&product.shape());
    let tiles = product.columns.div_ceil(width);
    let (rows, depth) = (product.rows, product.depth);
    team.run(product.batch * tiles, &|index, scratch| {
        let (batch, tile) = (index / tiles, index % tiles);
        let first = tile * width;
        let columns = width.min(product.columns - first);
        let (scratch, spare) = scratch.split_at_mut(claimed);
        let (a, sums) = scratch.split_at_mut(rows * depth);
        let sums = &mut sums[..rows * columns];
        widen_rows(&product.a, batch * product.a_batch_stride, rows, depth, a);
        let b = Operand { offset: product.b.offset + batch * product.b_batch_stride, ..product.b };
        sum_columns(&b, a, rows, depth, first, columns, sums);
        for (row, values) in sums.chunks_exact_mut(columns).enumerate() {
            let row = batch * rows + row;
            if let Some(finish) = finish {
                finish(row, first, values, spare);
            }
            // SAFETY: each tile writes its own columns.
            unsafe { product.output.write(row * product.columns + first, values) };
        }
    });
}

/// Rows of A, contiguous and as f32.
fn widen_rows(a: &Operand, skip: usize, rows: usize, depth: usize, to: &mut [f32]) {
    for row in 0..rows {
        let to = &mut to[row * depth..][..depth];
        let start = a.offset + skip + row * a.row_stride;
        if a.column_stride == 1 && depth > 0 {
            a.values.copy_to(start..start + depth, to);
            continue;
        }
        for (k, to) in to.iter_mut().enumerate() {
            *to = match a.values {
                FloatSlice::F32(values) => values[start + k * a.column_stride],
                FloatSlice::Bf16(values) => values[start + k * a.column_stride].to_f32(),
            };
        }
    }
}

simd_fn! {
    /// `sums` (rows x columns) = `a` (rows x depth) times the columns of `b` from `first` on.
    fn sum_columns(b: &Operand, a: &[f32], rows: usize, depth: usize, first: usize, columns: usize,
        sums: &mut [f32]) = sum_columns_body;
}

#[inline(always)]
unsafe fn sum_columns_body<V: Lanes>(
    b: &Operand,
    a: &[f32],
    rows: usize,
    depth: usize,
    first: usize,
    columns: usize,
    sums: &mut [f32],
) {
    assert!(a.len() == rows * depth && sums.len() == rows * columns);
    b.check(depth, first + columns, 1, 0);
    // SAFETY: all lengths were just checked.
    unsafe {
        match b.values {
            FloatSlice::F32(values) => {
                let start = values.as_ptr().wrapping_add(b.offset + first * b.column_stride);
                by_rows::<V, f32>(start, b, a.as_ptr(), rows, depth, columns, sums.as_mut_ptr());
            }
            FloatSlice::Bf16(values) => {
                let start = values.as_ptr().wrapping_add(b.offset + first * b.column_stride);
                by_rows::<V, bf16>(start, b, a.as_ptr(), rows, depth, columns, sums.as_mut_ptr());
            }
        }
    }
}

#[inline(always)]
unsafe fn by_rows<V: Lanes, T: Stored>(
    start: *const T,
    b: &Operand,
    a: *const f32,
    rows: usize,
    depth: usize,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match rows {
            1 => one_tile::<V, T, 1, 8>(start, b, a, depth, columns, sums),
            2 => one_tile::<V, T, 2, 8>(start, b, a, depth, columns, sums),
            3 => one_tile::<V, T, 3, 4>(start, b, a, depth, columns, sums),
            _ => one_tile::<V, T, 4, 4>(start, b, a, depth, columns, sums),
        }
    }
}

/// `VECTORS` vectors of a B with contiguous rows are summed in parallel: more of them mean longer sequential reads, but
/// all sums must stay in registers.
#[inline(always)]
unsafe fn one_tile<V: Lanes, T: Stored, const ROWS: usize, const VECTORS: usize>(
    start: *const T,
    b: &Operand,
    a: *const f32,
    depth: usize,
    columns: usize,
    sums: *mut f32,
) {
    let mut column = 0;
    // SAFETY: columns and depths stay inside the tile, which lies inside B and the sums.
    unsafe {
        if b.row_stride == 1 {
            while column + ABREAST <= columns {
                let from = start.wrapping_add(column * b.column_stride);
                dots::<V, T, ROWS, ABREAST>(from, b.column_stride, a, depth, sums.add(column), columns);
                column += ABREAST;
            }
            while column < columns {
                let from = start.wrapping_add(column * b.column_stride);
                dots::<V, T, ROWS, 1>(from, b.column_stride, a, depth, sums.add(column), columns);
                column += 1;
            }
        } else if b.column_stride == 1 {
            while column + VECTORS * V::COUNT <= columns {
                across::<V, T, ROWS, VECTORS>(
                    start.wrapping_add(column),
                    b.row_stride,
                    a,
                    depth,
                    sums.add(column),
                    columns,
                );
                column += VECTORS * V::COUNT;
            }
            while column + V::COUNT <= columns {
                across::<V, T, ROWS, 1>(start.wrapping_add(column), b.row_stride, a, depth, sums.add(column), columns);
                column += V::COUNT;
            }
        }
        // The remainder, and a B that is contiguous in no direction.
        while column < columns {
            for row in 0..ROWS {
                let mut sum = 0.0;
                for k in 0..depth {
                    let value = *start.wrapping_add(column * b.column_stride + k * b.row_stride);
                    sum += *a.add(row * depth + k) * value.widened();
                }
                *sums.add(row * columns + column) = sum;
            }
            column += 1;
        }
    }
}

/// Dot products with some columns that are contiguous in memory.
#[inline(always)]
unsafe fn dots<V: Lanes, T: Stored, const ROWS: usize, const COLUMNS: usize>(
    b: *const T,
    stride: usize,
    a: *const f32,
    depth: usize,
    sums: *mut f32,
    sums_stride: usize,
) {
    // SAFETY: guaranteed by the caller: `COLUMNS` columns and `ROWS` rows of `depth` values.
    unsafe {
        let mut totals = [[V::splat(0.0); COLUMNS]; ROWS];
        let whole = depth / V::COUNT * V::COUNT;
        let mut k = 0;
        while k < whole {
            for column in 0..COLUMNS {
                let value = T::load::<V>(b.add(column * stride + k));
                for row in 0..ROWS {
                    totals[row][column] = value.mul_add(V::load(a.add(row * depth + k)), totals[row][column]);
                }
            }
            k += V::COUNT;
        }
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let mut sum = totals[row][column].sum();
                for k in whole..depth {
                    sum += *a.add(row * depth + k) * (*b.add(column * stride + k)).widened();
                }
                *sums.add(row * sums_stride + column) = sum;
            }
        }
    }
}

/// Some vectors of columns of a B whose rows are contiguous.
#[inline(always)]
unsafe fn across<V: Lanes, T: Stored, const ROWS: usize, const VECTORS: usize>(
    b: *const T,
    stride: usize,
    a: *const f32,
    depth: usize,
    sums: *mut f32,
    sums_stride: usize,
) {
    // SAFETY: guaranteed by the caller: `VECTORS` vectors of columns and `ROWS` rows of `depth` values.
    unsafe {
        let mut totals = [[V::splat(0.0); VECTORS]; ROWS];
        for k in 0..depth {
            for vector in 0..VECTORS {
                let value = T::load::<V>(b.add(k * stride + vector * V::COUNT));
                for row in 0..ROWS {
                    let factor = V::splat(*a.add(row * depth + k));
                    totals[row][vector] = value.mul_add(factor, totals[row][vector]);
                }
            }
        }
        for row in 0..ROWS {
            for vector in 0..VECTORS {
                totals[row][vector].store(sums.add(row * sums_stride + vector * V::COUNT));
            }
        }
    }
}
