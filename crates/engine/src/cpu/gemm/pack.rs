//! Packing: copies operands into the order in which the micro-kernels read them.
//!
//! Packed operands consist of 32-bit units. A unit is one f32 or, for the bf16 dot product, two bf16 values adjacent in
//! depth. An odd depth is padded with a zero.

use std::ops::Range;

use half::bf16;

use crate::cpu::simd::Lanes;

/// The most units in one vector.
const MOST_LANES: usize = 16;

/// Read instead of the missing second half of the last pair.
static ZEROS: [u32; MOST_LANES] = [0; MOST_LANES];

/// A storage format.
///
/// # Safety
/// All zero bits must be the value zero.
pub unsafe trait Stored: Copy + 'static {
    /// Whether this is bf16.
    const IS_BF16: bool;
    fn widened(self) -> f32;
    fn rounded(self) -> bf16;
    /// # Safety
    /// As for [`Lanes`].
    unsafe fn load<V: Lanes>(from: *const Self) -> V;
}

// SAFETY: zero bits are 0.0.
unsafe impl Stored for f32 {
    const IS_BF16: bool = false;
    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }
    #[inline(always)]
    fn rounded(self) -> bf16 {
        bf16::from_f32(self)
    }
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const Self) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load(from) }
    }
}

// SAFETY: zero bits are 0.0.
unsafe impl Stored for bf16 {
    const IS_BF16: bool = true;
    #[inline(always)]
    fn widened(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn rounded(self) -> bf16 {
        self
    }
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const Self) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load_bf16(from) }
    }
}

/// Packs units, `COUNT` at a time.
///
/// # Safety
/// Functions may only be called if the CPU supports the instruction set, with pointers valid for what they read and
/// write.
#[allow(clippy::missing_safety_doc)] // the Safety section of the trait applies to each function
pub unsafe trait Packer {
    /// Units packed at once, at most [`MOST_LANES`].
    const COUNT: usize;
    /// Values per unit: 1 or 2.
    const VALUES: usize;
    /// Reads `COUNT * VALUES` values adjacent in depth, writes `COUNT` units.
    unsafe fn along<T: Stored>(from: *const T, to: *mut u32);
    /// Reads `COUNT` lines at one depth (and at the next, for pairs), writes one unit per line.
    unsafe fn across<T: Stored>(first: *const T, second: *const T, to: *mut u32);
    /// Writes the transpose of `COUNT` x `COUNT` contiguous units into lines `stride` apart.
    unsafe fn transpose(from: *const u32, to: *mut u32, stride: usize);
}

/// Units of one f32.
pub struct Singles<V>(std::marker::PhantomData<V>);

// SAFETY: reads and writes `COUNT` lanes where the trait says so.
#[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
unsafe impl<V: Lanes> Packer for Singles<V> {
    const COUNT: usize = V::COUNT;
    const VALUES: usize = 1;

    #[inline(always)]
    unsafe fn along<T: Stored>(from: *const T, to: *mut u32) {
        unsafe { T::load::<V>(from).store(to.cast()) }
    }

    #[inline(always)]
    unsafe fn across<T: Stored>(first: *const T, _second: *const T, to: *mut u32) {
        unsafe { T::load::<V>(first).store(to.cast()) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const u32, to: *mut u32, stride: usize) {
        #[cfg(target_arch = "x86_64")]
        if V::COUNT == 16 {
            return unsafe { x86::transpose_16(from, to, stride) };
        }
        for row in 0..V::COUNT {
            for column in 0..V::COUNT {
                unsafe { *to.add(row * stride + column) = *from.add(column * V::COUNT + row) };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Pairs8, Pairs16};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Packer, Stored};
    use std::arch::x86_64::*;

    /// Transposes 16 x 16 units in registers.
    #[inline(always)]
    pub unsafe fn transpose_16(from: *const u32, to: *mut u32, stride: usize) {
        // SAFETY: 256 units are read and 16 lines of 16 units written, as the caller promised.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); 16];
            for i in 0..16 {
                rows[i] = _mm512_loadu_si512(from.add(16 * i).cast());
            }
            let mut pairs = rows;
            for i in 0..8 {
                pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
            }
            // quads[4 * i + c], 128-bit lane l: column 4 * l + c of the rows 4 * i .. 4 * i + 4
            let mut quads = pairs;
            for i in 0..4 {
                quads[4 * i] = _mm512_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
                quads[4 * i + 1] = _mm512_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
                quads[4 * i + 2] = _mm512_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
                quads[4 * i + 3] = _mm512_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
            }
            for c in 0..4 {
                let low_01 = _mm512_shuffle_i32x4::<0x44>(quads[c], quads[4 + c]);
                let high_01 = _mm512_shuffle_i32x4::<0xee>(quads[c], quads[4 + c]);
                let low_23 = _mm512_shuffle_i32x4::<0x44>(quads[8 + c], quads[12 + c]);
                let high_23 = _mm512_shuffle_i32x4::<0xee>(quads[8 + c], quads[12 + c]);
                _mm512_storeu_si512(to.add(c * stride).cast(), _mm512_shuffle_i32x4::<0x88>(low_01, low_23));
                _mm512_storeu_si512(to.add((4 + c) * stride).cast(), _mm512_shuffle_i32x4::<0xdd>(low_01, low_23));
                _mm512_storeu_si512(to.add((8 + c) * stride).cast(), _mm512_shuffle_i32x4::<0x88>(high_01, high_23));
                _mm512_storeu_si512(to.add((12 + c) * stride).cast(), _mm512_shuffle_i32x4::<0xdd>(high_01, high_23));
            }
        }
    }

    /// Sixteen units of two bf16 values.
    pub struct Pairs16;

    /// Eight units of two bf16 values.
    pub struct Pairs8;

    /// 0, 16, 1, 17, ...: interleaves two runs of sixteen values into sixteen pairs.
    static INTERLEAVE_16: [u16; 32] = [
        0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
        15, 31,
    ];

    static INTERLEAVE_8: [u16; 16] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];

    /// Both runs rounded to bf16, `low` first.
    #[inline(always)]
    unsafe fn round_32(low: *const f32, high: *const f32) -> __m512i {
        // SAFETY: sixteen values are read from each, as the caller promised; both types are 512 plain bits.
        unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low))) }
    }

    #[inline(always)]
    unsafe fn round_16(low: *const f32, high: *const f32) -> __m256i {
        // SAFETY: eight values are read from each, as the caller promised; both types are 256 plain bits.
        unsafe { std::mem::transmute(_mm256_cvtne2ps_pbh(_mm256_loadu_ps(high), _mm256_loadu_ps(low))) }
    }

    // SAFETY: reads and writes as many values as the trait says.
    #[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
    unsafe impl Packer for Pairs16 {
        const COUNT: usize = 16;
        const VALUES: usize = 2;

        #[inline(always)]
        unsafe fn along<T: Stored>(from: *const T, to: *mut u32) {
            unsafe {
                let units = if T::IS_BF16 {
                    _mm512_loadu_si512(from.cast())
                } else {
                    round_32(from.cast(), from.add(16).cast())
                };
                _mm512_storeu_si512(to.cast(), units);
            }
        }

        #[inline(always)]
        unsafe fn across<T: Stored>(first: *const T, second: *const T, to: *mut u32) {
            unsafe {
                let runs = if T::IS_BF16 {
                    let first = _mm512_castsi256_si512(_mm256_loadu_si256(first.cast()));
                    _mm512_inserti64x4::<1>(first, _mm256_loadu_si256(second.cast()))
                } else {
                    round_32(first.cast(), second.cast())
                };
                let order = _mm512_loadu_si512(INTERLEAVE_16.as_ptr().cast());
                _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi16(order, runs));
            }
        }

        #[inline(always)]
        unsafe fn transpose(from: *const u32, to: *mut u32, stride: usize) {
            unsafe { transpose_16(from, to, stride) }
        }
    }

    // SAFETY: reads and writes as many values as the trait says.
    #[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
    unsafe impl Packer for Pairs8 {
        const COUNT: usize = 8;
        const VALUES: usize = 2;

        #[inline(always)]
        unsafe fn along<T: Stored>(from: *const T, to: *mut u32) {
            unsafe {
                let units = if T::IS_BF16 {
                    _mm256_loadu_si256(from.cast())
                } else {
                    round_16(from.cast(), from.add(8).cast())
                };
                _mm256_storeu_si256(to.cast(), units);
            }
        }

        #[inline(always)]
        unsafe fn across<T: Stored>(first: *const T, second: *const T, to: *mut u32) {
            unsafe {
                let runs = if T::IS_BF16 {
                    let first = _mm256_castsi128_si256(_mm_loadu_si128(first.cast()));
                    _mm256_inserti128_si256::<1>(first, _mm_loadu_si128(second.cast()))
                } else {
                    round_16(first.cast(), second.cast())
                };
                let order = _mm256_loadu_si256(INTERLEAVE_8.as_ptr().cast());
                _mm256_storeu_si256(to.cast(), _mm256_permutexvar_epi16(order, runs));
            }
        }

        #[inline(always)]
        unsafe fn transpose(from: *const u32, to: *mut u32, stride: usize) {
            for row in 0..8 {
                for column in 0..8 {
                    unsafe { *to.add(row * stride + column) = *from.add(column * 8 + row) };
                }
            }
        }
    }
}

/// An operand for packing: lines (rows of A, columns of B) of `depth` values each.
#[derive(Clone, Copy)]
pub struct Lines<T> {
    pub start: *const T,
    pub stride: usize,
    pub depth_stride: usize,
    pub depth: usize,
}

impl<T: Stored> Lines<T> {
    #[inline(always)]
    unsafe fn at(&self, line: usize, depth: usize) -> *const T {
        // SAFETY: the caller names a line and a depth inside the operand.
        unsafe { self.start.add(line * self.stride + depth * self.depth_stride) }
    }

    /// One unit, for any strides.
    #[inline(always)]
    unsafe fn unit<P: Packer>(&self, line: usize, unit: usize) -> u32 {
        // SAFETY: the caller names a line and a unit inside the operand; the second value is checked.
        unsafe {
            let depth = unit * P::VALUES;
            let first = *self.at(line, depth);
            if P::VALUES == 1 {
                return first.widened().to_bits();
            }
            let second = if depth + 1 < self.depth { (*self.at(line, depth + 1)).rounded() } else { bf16::ZERO };
            u32::from(first.rounded().to_bits()) | u32::from(second.to_bits()) << 16
        }
    }

    /// Packs the units `first_unit .. first_unit + units` of one line contiguously.
    ///
    /// # Safety
    /// The line and its units lie inside the operand, `to` is valid for `units` units, and the CPU supports `P`.
    #[inline(always)]
    pub unsafe fn pack_line<P: Packer>(&self, line: usize, first_unit: usize, units: usize, to: *mut u32) {
        let mut done = 0;
        if self.depth_stride == 1 {
            let whole = units.min(self.depth / P::VALUES - (first_unit).min(self.depth / P::VALUES));
            while done + P::COUNT <= whole {
                // SAFETY: `whole` units from here on have all their values inside the line.
                unsafe { P::along(self.at(line, (first_unit + done) * P::VALUES), to.add(done)) };
                done += P::COUNT;
            }
        }
        while done < units {
            // SAFETY: inside as the caller guarantees.
            unsafe { *to.add(done) = self.unit::<P>(line, first_unit + done) };
            done += 1;
        }
    }

    /// Packs the units `first_unit .. first_unit + units` of the lines `first .. first + count`, unit by unit: `width`
    /// units of one depth are adjacent, with zeros after the last line. `width` is a multiple of `COUNT`.
    ///
    /// # Safety
    /// As for [`Lines::pack_line`], with `to` valid for `units * width` units.
    #[inline(always)]
    pub unsafe fn pack_panel<P: Packer>(
        &self,
        first: usize,
        count: usize,
        width: usize,
        first_unit: usize,
        units: usize,
        to: *mut u32,
    ) {
        let mut column = 0;
        if self.stride == 1 {
            column = count / P::COUNT * P::COUNT;
            // SAFETY: whole vectors of lines, inside as the caller guarantees.
            unsafe { self.pack_across::<P>(first, column, width, first_unit, units, to) };
        }
        while column < width {
            let lines = count.saturating_sub(column).min(P::COUNT);
            // SAFETY: lines and units are inside as the caller guarantees, `column + COUNT <= width`.
            unsafe {
                let to = to.add(column);
                if self.depth_stride == 1 {
                    self.pack_transposed::<P>(first + column, lines, width, first_unit, units, to);
                } else {
                    for unit in 0..units {
                        for line in 0..P::COUNT {
                            let inside = line < lines;
                            *to.add(unit * width + line) =
                                if inside { self.unit::<P>(first + column + line, first_unit + unit) } else { 0 };
                        }
                    }
                }
            }
            column += P::COUNT;
        }
    }

    /// Packs units of the lines `first .. first + count` as tiles: `COUNT` units of the first line, then of the next, up to
    /// `height` lines; then their next `COUNT` units. Behind the depth are zeros; lines that are missing are not written.
    ///
    /// # Safety
    /// As for [`Lines::pack_line`], with `to` valid for `height` lines of the units, rounded up to whole tiles.
    #[inline(always)]
    pub unsafe fn pack_tiles<P: Packer>(
        &self,
        first: usize,
        count: usize,
        height: usize,
        units: &Range<usize>,
        to: *mut u32,
    ) {
        let mut done = 0;
        while done < units.len() {
            let some = (units.len() - done).min(P::COUNT);
            // SAFETY: guaranteed by the caller; a tile is `height * COUNT` units.
            let to = unsafe { to.add(done * height) };
            let mut line = 0;
            while line < count {
                // SAFETY: as above; `lines` lines of at most `COUNT` units.
                unsafe {
                    let to = to.add(line * P::COUNT);
                    if self.depth_stride == 1 {
                        self.pack_line::<P>(first + line, units.start + done, some, to);
                        to.add(some).write_bytes(0, P::COUNT - some);
                        line += 1;
                    } else {
                        let mut block = [0u32; MOST_LANES * MOST_LANES];
                        let lines = (count - line).min(P::COUNT);
                        self.pack_panel::<P>(
                            first + line,
                            lines,
                            P::COUNT,
                            units.start + done,
                            some,
                            block.as_mut_ptr(),
                        );
                        P::transpose(block.as_ptr(), to, P::COUNT);
                        line += P::COUNT;
                    }
                }
            }
            done += some;
        }
    }

    /// The first `lines` lines (whole vectors) of a panel whose lines are adjacent in memory.
    #[inline(always)]
    unsafe fn pack_across<P: Packer>(
        &self,
        first: usize,
        lines: usize,
        width: usize,
        first_unit: usize,
        units: usize,
        to: *mut u32,
    ) {
        for unit in 0..units {
            let depth = (first_unit + unit) * P::VALUES;
            // SAFETY: guaranteed by the caller; a missing second half is read from `ZEROS`, which is as wide.
            unsafe {
                let here = self.at(first, depth);
                let paired = P::VALUES == 2 && depth + 1 < self.depth;
                let next = if paired { self.at(first, depth + 1) } else { ZEROS.as_ptr().cast() };
                let mut line = 0;
                while line < lines {
                    P::across(here.add(line), if paired { next.add(line) } else { next }, to.add(unit * width + line));
                    line += P::COUNT;
                }
            }
        }
    }

    /// One vector's width of a panel whose lines are contiguous in memory.
    #[inline(always)]
    unsafe fn pack_transposed<P: Packer>(
        &self,
        first: usize,
        lines: usize,
        width: usize,
        first_unit: usize,
        units: usize,
        to: *mut u32,
    ) {
        let mut block = [0u32; MOST_LANES * MOST_LANES];
        let mut turned = [0u32; MOST_LANES * MOST_LANES];
        let mut done = 0;
        while done < units {
            let some = (units - done).min(P::COUNT);
            for line in 0..lines {
                // SAFETY: guaranteed by the caller; `line < COUNT` and `some <= COUNT`.
                unsafe {
                    self.pack_line::<P>(first + line, first_unit + done, some, block.as_mut_ptr().add(line * P::COUNT));
                }
            }
            // SAFETY: a whole block is written directly, a partial one through `turned`.
            unsafe {
                if some == P::COUNT {
                    P::transpose(block.as_ptr(), to.add(done * width), width);
                } else {
                    P::transpose(block.as_ptr(), turned.as_mut_ptr(), P::COUNT);
                    for unit in 0..some {
                        let from = turned.as_ptr().add(unit * P::COUNT);
                        std::ptr::copy_nonoverlapping(from, to.add((done + unit) * width), P::COUNT);
                    }
                }
            }
            done += some;
        }
    }
}
