//! Matrix products on operands that are already in the L1 or L2 cache.
//!
//! A general GEMM packs its operands first; here they are a few dozen rows each, were just written by the previous
//! step, and packing would cost as much as it saves. The right operand's rows are contiguous and padded to whole
//! vectors, so lanes run over columns; the left operand is read one value at a time, so that its transpose is only
//! another pair of strides.
//!
//! Operands consist of 32-bit [`Unit`]s along the depth. Pairs of bf16 values are handled as f32 values with the same
//! bits.

use std::ops::Range;

use half::bf16;

use super::super::gemm::micro::{Kernel, MicroKernel, kernel_fn};
use super::super::memory::Shared;
use super::super::simd::Lanes;
use crate::precision::Precision;

/// Right operands are read in pieces of this many rows: 64 columns of them stay in the L1 cache.
const DEPTH_BLOCK: usize = 128;

/// The meaning of 32 bits of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One f32.
    Single,
    /// Two bf16 values adjacent in depth.
    Pair,
}

impl Unit {
    /// Number of values per unit.
    pub const fn values(self) -> usize {
        match self {
            Unit::Single => 1,
            Unit::Pair => 2,
        }
    }

    /// Number of units for `depth` values; a missing second half of the last pair is zero.
    pub const fn count(self, depth: usize) -> usize {
        depth.div_ceil(self.values())
    }

    /// The range, extended to the start of the unit of its first value.
    pub const fn whole_units(self, range: Range<usize>) -> Range<usize> {
        range.start / self.values() * self.values()..range.end
    }

    /// Whether this CPU multiplies pairs.
    pub fn has_pairs() -> bool {
        MicroKernel::best_of_vectors(Precision::Bf16).rounds()
    }

    /// The kernel that multiplies such units.
    ///
    /// # Panics
    /// Panics if the CPU has none: see [`Unit::has_pairs`].
    pub fn kind(self) -> MicroKernel {
        let kind = MicroKernel::best_of_vectors(if self == Unit::Pair { Precision::Bf16 } else { Precision::F32 });
        assert_eq!(kind.sizes().values, self.values(), "this machine multiplies no pairs");
        kind
    }
}

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
        self.strided(self.stride, 1, Unit::Single)
    }

    /// Their transpose as a left operand.
    pub fn transposed(self) -> Strided<'a> {
        self.strided(1, self.stride, Unit::Single)
    }

    /// The transpose of rows of pairs as a left operand.
    pub fn transposed_pairs(self) -> Strided<'a> {
        self.strided(1, self.stride, Unit::Pair)
    }

    fn strided(self, row_stride: usize, column_stride: usize, unit: Unit) -> Strided<'a> {
        Strided {
            bytes: bytemuck::cast_slice(self.values),
            row_bytes: 4 * row_stride,
            column_bytes: 4 * column_stride,
            unit,
        }
    }
}

/// A matrix read unit by unit: (i, j) is the four bytes at `i * row_bytes + j * column_bytes`, at any alignment.
#[derive(Clone, Copy)]
pub struct Strided<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    column_bytes: usize,
    unit: Unit,
}

impl<'a> Strided<'a> {
    /// Rows of a bf16 tensor, `stride` apart, as pairs of adjacent values.
    pub fn pairs_of_rows(values: &'a [bf16], stride: usize) -> Self {
        Strided { bytes: bytemuck::cast_slice(values), row_bytes: 2 * stride, column_bytes: 4, unit: Unit::Pair }
    }

    /// The rows from `first` on.
    pub fn starting_at(self, first: usize) -> Self {
        Strided { bytes: &self.bytes[(first * self.row_bytes).min(self.bytes.len())..], ..self }
    }

    pub fn unit(self) -> Unit {
        self.unit
    }
}

/// The destination of a product: row `i` starts at `start + i * stride`. It may lie between other tiles' columns.
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

/// The factor of a product.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    /// One factor.
    All(f32),
    /// One factor per row.
    Rows(&'a [f32]),
}

/// `rows x depth` times `depth x columns`; the depth is in units.
#[derive(Clone, Copy)]
pub struct Size {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
}

/// `c = factor * a * b`, or `c += factor * a * b`; `b` has the same units as `a`. Rows of `b` and `c` are read and
/// written up to the next whole vector after `columns`: there must be room, and no other tile may use it in `c`.
///
/// Each value is one sum in the order of the depth, which goes on from `c` if it is added to with a factor of 1. So a depth gives the same
/// bits however it is divided among calls, and terms that are zero, wherever they are, change none.
pub fn product(size: Size, factor: Factor, a: Strided, b: Rows, c: Target, add: bool) {
    // SAFETY: the CPU supports the kernel, which is from `MicroKernel::best`; the body checks that everything is inside
    // the slices.
    unsafe { product_by(a.unit.kind(), size, factor, a, b, c, add) }
}

kernel_fn! {
    unsafe fn product_by(kind, size: Size, factor: Factor, a: Strided, b: Rows, c: Target, add: bool) = product_body;
}

/// The pointers of a tile, all inside their slices.
#[derive(Clone, Copy)]
struct Operands {
    a: *const u8,
    a_row_bytes: usize,
    a_column_bytes: usize,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    factors: *const f32,
    /// 1 if each row has its factor, 0 if they share one.
    factor_step: usize,
    /// Whether sums begin with what is in `c`.
    resume: bool,
    /// Whether sums, times their factors, are added to `c`.
    add: bool,
}

#[inline(always)]
unsafe fn product_body<K: Kernel>(size: Size, factor: Factor, a: Strided, b: Rows, c: Target, add: bool) {
    let Size { rows, columns, depth } = size;
    if rows == 0 || columns == 0 {
        return;
    }
    let lanes = K::Vector::COUNT;
    let width = columns.next_multiple_of(lanes);
    assert!(c.start + (rows - 1) * c.stride + width <= c.values.len());
    if depth > 0 {
        assert!((rows - 1) * a.row_bytes + (depth - 1) * a.column_bytes + 4 <= a.bytes.len());
        assert!((depth - 1) * b.stride + width <= b.values.len());
    }
    let (factors, factor_step) = match &factor {
        Factor::All(factor) => (std::slice::from_ref(factor), 0),
        Factor::Rows(factors) => (&factors[..rows], 1),
    };
    let goes_on = add && matches!(factor, Factor::All(1.0));
    let mut first = 0;
    loop {
        let piece = (depth - first).min(DEPTH_BLOCK);
        let is_last = first + piece >= depth;
        // What is added to with a factor cannot go on from what was there: its pieces are summed by themselves.
        let by_itself = add && !goes_on;
        let is_scaled = is_last || by_itself;
        // SAFETY: the checks above: every value read and every vector loaded or stored lies inside its slice.
        unsafe {
            let operands = Operands {
                a: a.bytes.as_ptr().add(if piece > 0 { first * a.column_bytes } else { 0 }),
                a_row_bytes: a.row_bytes,
                a_column_bytes: a.column_bytes,
                b: b.values.as_ptr().add(if piece > 0 { first * b.stride } else { 0 }),
                b_stride: b.stride,
                c: c.values.as_ptr().add(c.start),
                c_stride: c.stride,
                factors: if is_scaled { factors.as_ptr() } else { &1.0 },
                factor_step: if is_scaled { factor_step } else { 0 },
                resume: goes_on || (first > 0 && !by_itself),
                add: by_itself,
            };
            panels::<K>(rows, width / lanes, piece, operands);
        }
        if is_last {
            return;
        }
        first += piece;
    }
}

/// Splits the columns into panels that suit the register file: with 32 registers, 24 sums and a row of `b`.
#[inline(always)]
unsafe fn panels<K: Kernel>(rows: usize, vectors: usize, depth: usize, operands: Operands) {
    let lanes = K::Vector::COUNT;
    let mut done = 0;
    while done < vectors {
        let left = vectors - done;
        // SAFETY: `done` whole vectors further in, `left` are left.
        unsafe {
            let mut panel = operands;
            panel.b = panel.b.add(done * lanes);
            panel.c = panel.c.add(done * lanes);
            if lanes == 16 {
                match left {
                    1 => row_tiles::<K, 8, 4, 1>(rows, depth, panel),
                    2 => row_tiles::<K, 8, 4, 2>(rows, depth, panel),
                    4 => row_tiles::<K, 6, 3, 4>(rows, depth, panel),
                    _ => row_tiles::<K, 8, 4, 3>(rows, depth, panel),
                }
                done += if left == 4 { 4 } else { left.min(3) };
            } else {
                match left {
                    1 => row_tiles::<K, 6, 3, 1>(rows, depth, panel),
                    _ => row_tiles::<K, 6, 3, 2>(rows, depth, panel),
                }
                done += left.min(2);
            }
        }
    }
}

#[inline(always)]
unsafe fn row_tiles<K: Kernel, const R: usize, const HALF: usize, const C: usize>(
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
            tile.a = tile.a.add(done * panel.a_row_bytes);
            tile.c = tile.c.add(done * panel.c_stride);
            tile.factors = tile.factors.add(done * panel.factor_step);
            // The last few rows: a tile with fewer rows wastes less.
            if left <= HALF {
                row_tile::<K, HALF, C>(left, depth, tile);
                done += left;
            } else {
                row_tile::<K, R, C>(left.min(R), depth, tile);
                done += R;
            }
        }
    }
}

/// `R` rows times `C` vectors, of which the first `valid` rows exist; the others repeat the last one.
#[inline(always)]
unsafe fn row_tile<K: Kernel, const R: usize, const C: usize>(valid: usize, depth: usize, tile: Operands) {
    // SAFETY: the caller vouches for `valid` rows, `depth` columns of `a` and rows of `b`, and `C` vectors.
    unsafe {
        let mut a_rows = [tile.a; R];
        for r in 1..R {
            a_rows[r] = tile.a.add(r.min(valid - 1) * tile.a_row_bytes);
        }
        let lanes = K::Vector::COUNT;
        let mut sums = [[K::Vector::splat(0.0); C]; R];
        if tile.resume {
            for r in 0..R {
                for j in 0..C {
                    sums[r][j] = K::Vector::load(tile.c.add(r.min(valid - 1) * tile.c_stride + j * lanes));
                }
            }
        }
        let mut b_row = tile.b;
        let mut offset = 0;
        for _ in 0..depth {
            let mut b = [K::Vector::splat(0.0); C];
            for j in 0..C {
                b[j] = K::Vector::load(b_row.add(j * lanes));
            }
            for r in 0..R {
                let a = K::Vector::splat(a_rows[r].add(offset).cast::<f32>().read_unaligned());
                for j in 0..C {
                    sums[r][j] = K::multiply_add(a, b[j], sums[r][j]);
                }
            }
            offset += tile.a_column_bytes;
            b_row = b_row.wrapping_add(tile.b_stride);
        }
        for r in 0..R {
            if r < valid {
                let factor = K::Vector::splat(*tile.factors.add(r * tile.factor_step));
                let to = tile.c.add(r * tile.c_stride);
                for j in 0..C {
                    let place = to.add(j * lanes);
                    let before = if tile.add { K::Vector::load(place) } else { K::Vector::splat(0.0) };
                    sums[r][j].mul_add(factor, before).store(place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Integers: their products and sums are exact in both kinds of units.
    fn pattern(i: usize) -> f32 {
        ((i * 7919) % 31) as f32 - 15.0
    }

    fn pair(first: f32, second: f32) -> f32 {
        let bits = |value: f32| u32::from(bf16::from_f32(value).to_bits());
        f32::from_bits(bits(first) | bits(second) << 16)
    }

    #[test]
    fn products_of_pairs_agree_with_loops() {
        if !Unit::has_pairs() {
            return;
        }
        for rows in [1, 2, 5, 6, 7, 9, 17, 33] {
            for columns in [1usize, 16, 31, 48, 64, 80, 113] {
                for units in [0, 1, 2, 19, 200] {
                    let (depth, stride) = (2 * units, columns.next_multiple_of(16));
                    let a = |i: usize, d: usize| pattern(i * depth + d);
                    let b = |d: usize, j: usize| pattern(d * stride + j + 5);
                    // Rows at odd offsets, as those of a head may be.
                    let a_stride = depth + 3;
                    let mut a_rows = vec![bf16::NAN; 1 + rows * a_stride];
                    let mut a_transposed = vec![f32::NAN; units * rows];
                    for i in 0..rows {
                        for d in 0..depth {
                            a_rows[1 + i * a_stride + d] = bf16::from_f32(a(i, d));
                            a_transposed[d / 2 * rows + i] = pair(a(i, d & !1), a(i, d | 1));
                        }
                    }
                    let b_pairs: Vec<f32> = (0..units * stride)
                        .map(|at| (at / stride, at % stride))
                        .map(|(u, j)| pair(b(2 * u, j), b(2 * u + 1, j)))
                        .collect();
                    let factors: Vec<f32> = (0..rows).map(|i| i as f32).collect();
                    let lefts = [
                        Strided::pairs_of_rows(&a_rows[1..], a_stride),
                        Rows { values: &a_transposed, stride: rows }.transposed_pairs(),
                    ];
                    for left in lefts {
                        let right = Rows { values: &b_pairs, stride };
                        let size = Size { rows, columns, depth: units };
                        let mut c = vec![2.0; rows * stride];
                        product(size, Factor::All(0.5), left, right, Target::scratch(&mut c, stride), true);
                        let mut scaled = vec![f32::NAN; rows * stride];
                        product(size, Factor::Rows(&factors), left, right, Target::scratch(&mut scaled, stride), false);
                        for i in 0..rows {
                            for j in 0..columns {
                                let sum: f32 = (0..depth).map(|d| a(i, d) * b(d, j)).sum();
                                assert_eq!(c[i * stride + j], 2.0 + 0.5 * sum, "{rows} {columns} {units} at {i} {j}");
                                assert_eq!(scaled[i * stride + j], i as f32 * sum);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_every_edge_agree_with_loops() {
        for rows in [1, 2, 3, 5, 6, 7, 8, 9, 17, 33] {
            for columns in [1usize, 4, 5, 16, 31, 48, 64, 65, 80, 113] {
                for depth in [0, 1, 2, 19, 200] {
                    let stride = columns.next_multiple_of(16) + 16;
                    let a: Vec<f32> = (0..rows * depth).map(pattern).collect();
                    let b: Vec<f32> = (0..depth * stride).map(|i| pattern(i + 5)).collect();
                    for (row_stride, column_stride) in [(depth, 1), (1, rows)] {
                        let left = Rows { values: &a, stride: 0 }.strided(row_stride, column_stride, Unit::Single);
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
