//! Matrix products on operands that already lie in the L1 or L2 cache.
//!
//! A general product packs its operands first; here they are a few dozen rows each, were just written by the previous
//! step, and packing would cost as much as it saves. The right operand's rows are contiguous and padded to whole
//! vectors, so lanes run over columns; the left operand is read one value at a time, so that its transpose is only
//! another pair of strides.

use super::super::memory::Shared;
use super::super::simd::{Lanes, simd_fn};

/// Right operands are walked in pieces of so many rows: 64 columns of them stay in the L1 cache.
const DEPTH_BLOCK: usize = 128;

/// A matrix whose rows are contiguous: row `i` starts at `i * stride`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub values: &'a [f32],
    pub stride: usize,
}

impl<'a> Rows<'a> {
    /// The rows from `first` on.
    pub fn starting_at(self, first: usize) -> Rows<'a> {
        Rows { values: &self.values[(first * self.stride).min(self.values.len())..], stride: self.stride }
    }

    /// These rows as a left operand.
    pub fn as_they_are(self) -> Strided<'a> {
        Strided { values: self.values, row_stride: self.stride, column_stride: 1 }
    }

    /// Their transpose as a left operand.
    pub fn transposed(self) -> Strided<'a> {
        Strided { values: self.values, row_stride: 1, column_stride: self.stride }
    }
}

/// A matrix read value by value: (i, j) is `values[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy)]
pub struct Strided<'a> {
    values: &'a [f32],
    row_stride: usize,
    column_stride: usize,
}

/// Where a product goes: row `i` starts at `start + i * stride`. It may lie between other tiles' columns.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub values: Shared<'a, f32>,
    pub start: usize,
    pub stride: usize,
}

impl<'a> Target<'a> {
    /// Rows in scratch memory.
    pub fn scratch(values: &'a mut [f32], stride: usize) -> Self {
        Target { values: Shared::new(values), start: 0, stride }
    }

    /// The rows from `first` on.
    pub fn starting_at(self, first: usize) -> Self {
        Target { start: self.start + first * self.stride, ..self }
    }
}

/// What a product is multiplied by.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    /// One number.
    All(f32),
    /// A number for each row.
    Rows(&'a [f32]),
}

/// `rows x depth` times `depth x columns`.
#[derive(Clone, Copy)]
pub struct Size {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
}

simd_fn! {
    /// `c = factor * a * b`, or `c += factor * a * b`. Rows of `b` and `c` are read and written up to the next whole
    /// vector after `columns`: there must be room, and in `c` no other tile may use it.
    pub fn product(size: Size, factor: Factor, a: Strided, b: Rows, c: Target, add: bool) = product_body;
}

/// The places a tile works on, all inside their slices.
#[derive(Clone, Copy)]
struct Operands {
    a: *const f32,
    a_row: usize,
    a_column: usize,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    factors: *const f32,
    /// 1 where each row has its factor, 0 where all have the same.
    factor_step: usize,
    add: bool,
}

#[inline(always)]
unsafe fn product_body<V: Lanes>(size: Size, factor: Factor, a: Strided, b: Rows, c: Target, add: bool) {
    let Size { rows, columns, depth } = size;
    if rows == 0 || columns == 0 {
        return;
    }
    let width = columns.div_ceil(V::COUNT) * V::COUNT;
    assert!(c.start + (rows - 1) * c.stride + width <= c.values.len());
    if depth > 0 {
        assert!((rows - 1) * a.row_stride + (depth - 1) * a.column_stride < a.values.len());
        assert!((depth - 1) * b.stride + width <= b.values.len());
    }
    let (factors, factor_step) = match &factor {
        Factor::All(factor) => (std::slice::from_ref(factor), 0),
        Factor::Rows(factors) => (&factors[..rows], 1),
    };
    let mut first = 0;
    loop {
        let piece = (depth - first).min(DEPTH_BLOCK);
        // SAFETY: the checks above: every value read and every vector loaded or stored lies inside its slice.
        unsafe {
            let operands = Operands {
                a: a.values.as_ptr().add(if piece > 0 { first * a.column_stride } else { 0 }),
                a_row: a.row_stride,
                a_column: a.column_stride,
                b: b.values.as_ptr().add(if piece > 0 { first * b.stride } else { 0 }),
                b_stride: b.stride,
                c: c.values.as_ptr().add(c.start),
                c_stride: c.stride,
                factors: factors.as_ptr(),
                factor_step,
                add: add || first > 0,
            };
            panels::<V>(rows, width / V::COUNT, piece, operands);
        }
        first += piece;
        if first >= depth {
            return;
        }
    }
}

/// Cuts the columns into panels as wide as the register file likes: with 32 registers, 24 sums and a row of `b`.
#[inline(always)]
unsafe fn panels<V: Lanes>(rows: usize, vectors: usize, depth: usize, operands: Operands) {
    let mut done = 0;
    while done < vectors {
        let left = vectors - done;
        // SAFETY: `done` whole vectors further in, `left` are left.
        unsafe {
            let mut panel = operands;
            panel.b = panel.b.add(done * V::COUNT);
            panel.c = panel.c.add(done * V::COUNT);
            if V::COUNT == 16 {
                match left {
                    1 => row_tiles::<V, 8, 4, 1>(rows, depth, panel),
                    2 => row_tiles::<V, 8, 4, 2>(rows, depth, panel),
                    4 => row_tiles::<V, 6, 3, 4>(rows, depth, panel),
                    _ => row_tiles::<V, 8, 4, 3>(rows, depth, panel),
                }
                done += if left == 4 { 4 } else { left.min(3) };
            } else {
                match left {
                    1 => row_tiles::<V, 6, 3, 1>(rows, depth, panel),
                    _ => row_tiles::<V, 6, 3, 2>(rows, depth, panel),
                }
                done += left.min(2);
            }
        }
    }
}

#[inline(always)]
unsafe fn row_tiles<V: Lanes, const R: usize, const HALF: usize, const C: usize>(
    rows: usize,
    depth: usize,
    panel: Operands,
) {
    let mut done = 0;
    while done < rows {
        let left = rows - done;
        // SAFETY: `done < rows`, so the first row of each operand lies inside.
        unsafe {
            let mut tile = panel;
            tile.a = tile.a.add(done * panel.a_row);
            tile.c = tile.c.add(done * panel.c_stride);
            tile.factors = tile.factors.add(done * panel.factor_step);
            // The last few rows: a tile with fewer rows wastes less.
            if left <= HALF {
                row_tile::<V, HALF, C>(left, depth, tile);
                done += left;
            } else {
                row_tile::<V, R, C>(left.min(R), depth, tile);
                done += R;
            }
        }
    }
}

/// `R` rows times `C` vectors, of which the first `valid` rows exist; the others repeat the last one.
#[inline(always)]
unsafe fn row_tile<V: Lanes, const R: usize, const C: usize>(valid: usize, depth: usize, tile: Operands) {
    // SAFETY: the caller vouches for `valid` rows, `depth` columns of `a` and rows of `b`, and `C` vectors.
    unsafe {
        let mut a_rows = [tile.a; R];
        for r in 1..R {
            a_rows[r] = tile.a.add(r.min(valid - 1) * tile.a_row);
        }
        let mut sums = [[V::splat(0.0); C]; R];
        let mut b_row = tile.b;
        let mut offset = 0;
        for _ in 0..depth {
            let mut b = [V::splat(0.0); C];
            for j in 0..C {
                b[j] = V::load(b_row.add(j * V::COUNT));
            }
            for r in 0..R {
                let a = V::splat(*a_rows[r].add(offset));
                for j in 0..C {
                    sums[r][j] = a.mul_add(b[j], sums[r][j]);
                }
            }
            offset += tile.a_column;
            b_row = b_row.wrapping_add(tile.b_stride);
        }
        for r in 0..R {
            if r < valid {
                let factor = V::splat(*tile.factors.add(r * tile.factor_step));
                let to = tile.c.add(r * tile.c_stride);
                for j in 0..C {
                    let place = to.add(j * V::COUNT);
                    let before = if tile.add { V::load(place) } else { V::splat(0.0) };
                    sums[r][j].mul_add(factor, before).store(place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_every_edge_agree_with_loops() {
        let pattern = |i: usize| ((i * 7919) % 31) as f32 - 15.0;
        for rows in [1, 2, 3, 5, 6, 7, 8, 9, 17, 33] {
            for columns in [1usize, 4, 5, 16, 31, 48, 64, 65, 80, 113] {
                for depth in [0, 1, 2, 19, 200] {
                    let stride = columns.next_multiple_of(16) + 16;
                    let a: Vec<f32> = (0..rows * depth).map(pattern).collect();
                    let b: Vec<f32> = (0..depth * stride).map(|i| pattern(i + 5)).collect();
                    for (row_stride, column_stride) in [(depth, 1), (1, rows)] {
                        let left = Strided { values: &a, row_stride, column_stride };
                        let mut c = vec![2.0; rows * stride];
                        let size = Size { rows, columns, depth };
                        let right = Rows { values: &b, stride };
                        product(size, Factor::All(0.5), left, right, Target::scratch(&mut c, stride), true);
                        let added = c.clone();
                        product(size, Factor::All(0.5), left, right, Target::scratch(&mut c, stride), false);
                        let factors: Vec<f32> = (0..rows).map(|i| i as f32).collect();
                        let mut scaled = c.clone();
                        let target = Target::scratch(&mut scaled, stride);
                        product(size, Factor::Rows(&factors), left, right, target, false);
                        for i in 0..rows {
                            for j in 0..columns {
                                let sum: f32 =
                                    (0..depth).map(|k| a[i * row_stride + k * column_stride] * b[k * stride + j]).sum();
                                assert_eq!(c[i * stride + j], 0.5 * sum, "{rows} {columns} {depth} at {i} {j}");
                                assert_eq!(added[i * stride + j], 2.0 + 0.5 * sum);
                                assert_eq!(scaled[i * stride + j], i as f32 * sum);
                            }
                        }
                    }
                }
            }
        }
    }
}
