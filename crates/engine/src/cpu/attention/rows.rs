//! Copies between tensors and scratch memory: rows of one head copied, widened, transposed, scaled and stored.

use std::ops::Range;

use half::bf16;

use super::super::memory::{FloatShared, FloatSlice};
use super::super::simd::{Baseline, Lanes, simd_fn};
use super::small_product::Rows;

#[cfg(target_arch = "x86_64")]
use super::super::simd::{Avx2, Avx512};

/// Scratch rows are padded to a multiple of this many floats: whole vectors on every CPU, and whole cache lines.
pub const PADDING: usize = 16;

/// The next multiple of [`PADDING`].
pub const fn padded(count: usize) -> usize {
    count.next_multiple_of(PADDING)
}

/// Takes `count` floats (padded, so that every part is aligned to a cache line) from the front of the scratch memory.
pub fn take<'s>(scratch: &mut &'s mut [f32], count: usize) -> &'s mut [f32] {
    let (part, rest) = std::mem::take(scratch).split_at_mut(padded(count));
    *scratch = rest;
    part
}

/// Rows inside a tensor: row `i` is the `columns` values from `start + i * stride` on.
#[derive(Clone, Copy)]
pub struct Region {
    pub start: usize,
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
}

impl Region {
    /// From the first to one past the last value.
    pub fn range(self) -> Range<usize> {
        if self.rows == 0 {
            return 0..0;
        }
        self.start..self.start + (self.rows - 1) * self.stride + self.columns
    }
}

simd_fn! {
    /// Copies rows as f32, `to_stride` apart, and pads each row with zeros.
    pub fn copy_rows(from: FloatSlice, region: Region, to: &mut [f32], to_stride: usize) = copy_rows_body;
}

simd_fn! {
    /// Transposes: `to[j * to_stride + i] = from[i][j]`; zero for `i` from `rows` to `padded(rows)`.
    pub fn transpose_rows(from: Rows, rows: usize, columns: usize, to: &mut [f32], to_stride: usize)
        = transpose_rows_body;
}

simd_fn! {
    /// Stores rows times their factors (one per row, or 1) into a tensor. No other tile may use the region.
    pub fn store_rows(from: Rows, factors: Option<&[f32]>, to: &FloatShared, region: Region) = store_rows_body;
}

simd_fn! {
    /// Multiplies each row by its factor.
    pub fn scale_rows(values: &mut [f32], stride: usize, factors: &[f32]) = scale_rows_body;
}

simd_fn! {
    /// Adds `from` to `to`, of equal length.
    pub fn add_to(to: &mut [f32], from: &[f32]) = add_to_body;
}

simd_fn! {
    /// The dot product of each row of `a` with the same row of `b`.
    pub fn row_dots(a: Rows, b: Rows, columns: usize, dots: &mut [f32]) = row_dots_body;
}

/// The rows of a region in place, if they can be used there: f32, and padded if `whole_vectors` requires it.
pub fn view_of(from: FloatSlice, region: Region, whole_vectors: bool) -> Option<Rows> {
    match from {
        FloatSlice::F32(values) if !whole_vectors || region.columns.is_multiple_of(PADDING) => {
            Some(Rows { values: &values[region.range()], stride: region.stride })
        }
        _ => None,
    }
}

/// The rows of a region as f32, padded if `whole_vectors` requires it: in place, or a copy in `buffer`.
pub fn rows_of<'b>(from: FloatSlice<'b>, region: Region, whole_vectors: bool, buffer: &'b mut [f32]) -> Rows<'b> {
    view_of(from, region, whole_vectors).unwrap_or_else(|| {
        let stride = padded(region.columns);
        copy_rows(from, region, buffer, stride);
        Rows { values: buffer, stride }
    })
}

#[inline(always)]
unsafe fn copy_rows_body<V: Lanes>(from: FloatSlice, region: Region, to: &mut [f32], to_stride: usize) {
    let columns = region.columns;
    let whole = columns / V::COUNT * V::COUNT;
    let range = region.range();
    assert!(columns <= to_stride && region.rows * to_stride <= to.len() && range.end <= from.len());
    for row in 0..region.rows {
        let to = &mut to[row * to_stride..(row + 1) * to_stride];
        let start = region.start + row * region.stride;
        // SAFETY: the row's `columns` values lie inside `from` and `to` by the checks above.
        unsafe {
            match from {
                FloatSlice::F32(values) => {
                    let from = values.as_ptr().add(start);
                    let mut i = 0;
                    while i < whole {
                        V::load(from.add(i)).store(to.as_mut_ptr().add(i));
                        i += V::COUNT;
                    }
                    for i in whole..columns {
                        *to.get_unchecked_mut(i) = *from.add(i);
                    }
                }
                FloatSlice::Bf16(values) => {
                    let from = values.as_ptr().add(start);
                    let mut i = 0;
                    while i < whole {
                        V::load_bf16(from.add(i)).store(to.as_mut_ptr().add(i));
                        i += V::COUNT;
                    }
                    for i in whole..columns {
                        *to.get_unchecked_mut(i) = (*from.add(i)).to_f32();
                    }
                }
            }
        }
        to[columns..].fill(0.0);
    }
}

#[inline(always)]
unsafe fn transpose_rows_body<V: TransposeFour>(
    from: Rows,
    rows: usize,
    columns: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let width = padded(rows);
    assert!((rows - 1) * from.stride + columns <= from.values.len());
    assert!(width <= to_stride && (columns - 1) * to_stride + width <= to.len());
    let (whole_rows, whole_columns) = (rows / V::COUNT * V::COUNT, columns / 4 * 4);
    let (source, target) = (from.values.as_ptr(), to.as_mut_ptr());
    // SAFETY: the checks above; blocks of COUNT rows and four columns end at `whole_rows` and `whole_columns`.
    unsafe {
        let mut row = 0;
        while row < whole_rows {
            let mut column = 0;
            while column < whole_columns {
                let block = source.add(row * from.stride + column);
                V::transpose_four(block, from.stride, target.add(column * to_stride + row), to_stride);
                column += 4;
            }
            row += V::COUNT;
        }
        for column in 0..columns {
            let first = if column < whole_columns { whole_rows } else { 0 };
            for row in first..rows {
                *target.add(column * to_stride + row) = *source.add(row * from.stride + column);
            }
            for row in rows..width {
                *target.add(column * to_stride + row) = 0.0;
            }
        }
    }
}

#[inline(always)]
unsafe fn store_rows_body<V: Lanes>(from: Rows, factors: Option<&[f32]>, to: &FloatShared, region: Region) {
    let columns = region.columns;
    let whole = columns / V::COUNT * V::COUNT;
    if region.rows == 0 {
        return;
    }
    assert!((region.rows - 1) * from.stride + columns <= from.values.len() && region.range().end <= to.len());
    for row in 0..region.rows {
        let factor = factors.map_or(1.0, |factors| factors[row]);
        let start = region.start + row * region.stride;
        // SAFETY: the row lies inside both by the checks above, and no other tile uses it by this function's contract.
        unsafe {
            let from = from.values.as_ptr().add(row * from.stride);
            let scale = V::splat(factor);
            match to {
                FloatShared::F32(values) => {
                    let to = values.as_ptr().add(start);
                    let mut i = 0;
                    while i < whole {
                        V::load(from.add(i)).mul(scale).store(to.add(i));
                        i += V::COUNT;
                    }
                    for i in whole..columns {
                        *to.add(i) = *from.add(i) * factor;
                    }
                }
                FloatShared::Bf16(values) => {
                    let to = values.as_ptr().add(start);
                    let mut i = 0;
                    while i < whole {
                        V::load(from.add(i)).mul(scale).store_bf16(to.add(i));
                        i += V::COUNT;
                    }
                    for i in whole..columns {
                        *to.add(i) = bf16::from_f32(*from.add(i) * factor);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn scale_rows_body<V: Lanes>(values: &mut [f32], stride: usize, factors: &[f32]) {
    assert!(stride.is_multiple_of(PADDING) && factors.len() * stride <= values.len());
    for (row, factor) in values.chunks_exact_mut(stride).zip(factors) {
        let mut i = 0;
        while i < stride {
            // SAFETY: a row is a whole number of vectors.
            unsafe { V::load(row.as_ptr().add(i)).mul(V::splat(*factor)).store(row.as_mut_ptr().add(i)) };
            i += V::COUNT;
        }
    }
}

#[inline(always)]
unsafe fn add_to_body<V: Lanes>(to: &mut [f32], from: &[f32]) {
    assert_eq!(to.len(), from.len());
    let whole = to.len() / V::COUNT * V::COUNT;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + COUNT <= len of both.
        unsafe { V::load(to.as_ptr().add(i)).add(V::load(from.as_ptr().add(i))).store(to.as_mut_ptr().add(i)) };
        i += V::COUNT;
    }
    for (to, from) in to[whole..].iter_mut().zip(&from[whole..]) {
        *to += from;
    }
}

#[inline(always)]
unsafe fn row_dots_body<V: Lanes>(a: Rows, b: Rows, columns: usize, dots: &mut [f32]) {
    if dots.is_empty() {
        return;
    }
    let whole = columns / V::COUNT * V::COUNT;
    assert!((dots.len() - 1) * a.stride + columns <= a.values.len());
    assert!((dots.len() - 1) * b.stride + columns <= b.values.len());
    for (row, dot) in dots.iter_mut().enumerate() {
        // SAFETY: the row's `columns` values lie inside both by the checks above.
        unsafe {
            let a = a.values.as_ptr().add(row * a.stride);
            let b = b.values.as_ptr().add(row * b.stride);
            let mut sum = V::splat(0.0);
            let mut i = 0;
            while i < whole {
                sum = V::load(a.add(i)).mul_add(V::load(b.add(i)), sum);
                i += V::COUNT;
            }
            if whole < columns {
                let left = columns - whole;
                sum = V::load_partial(a.add(whole), left).mul_add(V::load_partial(b.add(whole), left), sum);
            }
            *dot = sum.sum();
        }
    }
}

/// The building block of transposition.
trait TransposeFour: Lanes {
    /// Four columns of `COUNT` rows become four rows of one vector each.
    ///
    /// # Safety
    /// As for [`Lanes`]: the CPU supports the instruction set, and both pointers are valid.
    unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);
}

impl TransposeFour for Baseline {
    #[inline(always)]
    unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for column in 0..4 {
            for row in 0..4 {
                // SAFETY: guaranteed by the caller.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * from_stride + column) };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl TransposeFour for Avx2 {
    #[inline(always)]
    unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        use std::arch::x86_64::*;
        // SAFETY: guaranteed by the caller. Each 128-bit lane holds four columns of one row; within a lane, four vectors
        // are transposed as a 4 x 4 matrix.
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 4];
            for r in 0..4 {
                let low = _mm256_castps128_ps256(_mm_loadu_ps(from.add(r * from_stride)));
                rows[r] = _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(from.add((r + 4) * from_stride)));
            }
            let low = [_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpacklo_ps(rows[2], rows[3])];
            let high = [_mm256_unpackhi_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[2], rows[3])];
            _mm256_storeu_ps(to, _mm256_shuffle_ps::<0x44>(low[0], low[1]));
            _mm256_storeu_ps(to.add(to_stride), _mm256_shuffle_ps::<0xee>(low[0], low[1]));
            _mm256_storeu_ps(to.add(2 * to_stride), _mm256_shuffle_ps::<0x44>(high[0], high[1]));
            _mm256_storeu_ps(to.add(3 * to_stride), _mm256_shuffle_ps::<0xee>(high[0], high[1]));
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl TransposeFour for Avx512 {
    #[inline(always)]
    unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        use std::arch::x86_64::*;
        // SAFETY: guaranteed by the caller. As for AVX2, with four lanes.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 4];
            for r in 0..4 {
                let first = _mm512_castps128_ps512(_mm_loadu_ps(from.add(r * from_stride)));
                let second = _mm512_insertf32x4::<1>(first, _mm_loadu_ps(from.add((r + 4) * from_stride)));
                let third = _mm512_insertf32x4::<2>(second, _mm_loadu_ps(from.add((r + 8) * from_stride)));
                rows[r] = _mm512_insertf32x4::<3>(third, _mm_loadu_ps(from.add((r + 12) * from_stride)));
            }
            let low = [_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpacklo_ps(rows[2], rows[3])];
            let high = [_mm512_unpackhi_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[2], rows[3])];
            _mm512_storeu_ps(to, _mm512_shuffle_ps::<0x44>(low[0], low[1]));
            _mm512_storeu_ps(to.add(to_stride), _mm512_shuffle_ps::<0xee>(low[0], low[1]));
            _mm512_storeu_ps(to.add(2 * to_stride), _mm512_shuffle_ps::<0x44>(high[0], high[1]));
            _mm512_storeu_ps(to.add(3 * to_stride), _mm512_shuffle_ps::<0xee>(high[0], high[1]));
        }
    }
}
