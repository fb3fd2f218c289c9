//! Micro-kernels: a register tile of a few rows and a few vectors of columns, accumulated over a block of depth.

#[cfg(target_arch = "x86_64")]
use super::amx::AmxPairs;
use super::pack::{Packer, Singles};
#[cfg(target_arch = "x86_64")]
use super::pack::{Pairs8, Pairs16};
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::{Avx2, Avx512};
use crate::cpu::simd::{Baseline, Isa, Lanes, isa};
use crate::precision::Precision;

/// The most rows and vectors of any kernel's register tile.
const MOST_ROWS: usize = 8;
/// The most accumulators of a kernel of vectors.
const MOST_SUMS: usize = 24;

/// The multiplication of one instruction set.
///
/// # Safety
/// As for [`Lanes`].
#[allow(clippy::missing_safety_doc)] // the Safety section of the trait applies to each function
pub unsafe trait Kernel {
    type Vector: Lanes;
    /// Packs columns of B, one vector at a time.
    type ColumnPacker: Packer;
    /// Packs rows of A, `ROWS` at a time.
    type RowPacker: Packer;
    /// Rows of the register tile.
    const ROWS: usize;
    /// Vectors of columns of the register tile, at most three.
    const VECTORS: usize;
    /// Columns of the register tile.
    const COLUMNS: usize = Self::VECTORS * <Self::Vector as Lanes>::COUNT;
    /// Values per unit of depth.
    const VALUES: usize = <Self::ColumnPacker as Packer>::VALUES;
    /// Whether rows of A are always packed, `ROWS` rows of sixteen units after the other (see
    /// [`Lines::pack_tiles`](super::pack::Lines::pack_tiles)).
    const TILED_ROWS: bool = false;

    /// `sum + a * b`, for each lane's unit.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;

    /// Makes ready for register tiles of this many rows.
    #[inline(always)]
    unsafe fn begin(_rows: usize) {}

    /// Ends what [`Kernel::begin`] began.
    #[inline(always)]
    unsafe fn end() {}

    /// Accumulates `units` units of depth in one register tile.
    ///
    /// `a` has `target.rows` rows of `units` units, `b` has `units` rows of `target.columns` columns rounded up to
    /// whole vectors, and `target` is valid.
    #[inline(always)]
    unsafe fn register_tile(units: usize, a: RowUnits, b: *const f32, target: Target)
    where
        Self: Sized,
    {
        // SAFETY: guaranteed by the caller; the number of vectors is that of the packed rows.
        unsafe {
            match target.columns.div_ceil(Self::Vector::COUNT) {
                1 => sum_rows::<Self, 1>(units, a, b, target),
                2 => sum_rows::<Self, 2>(units, a, b, target),
                _ => sum_rows::<Self, 3>(units, a, b, target),
            }
        }
    }

    /// Adds the square of the vector at `values` to each accumulator of a register tile, as often as there are rounds
    /// (of AMX, in sixteens), and stores the sum of all accumulators there.
    #[inline(always)]
    unsafe fn rounds(rounds: usize, values: *mut f32) {
        const { assert!(Self::ROWS * Self::VECTORS <= MOST_SUMS) };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (a, b) = (Self::Vector::load(values), Self::Vector::load(std::hint::black_box(values)));
            let mut sums = [Self::Vector::splat(0.0); MOST_SUMS];
            for _ in 0..rounds {
                for sum in 0..Self::ROWS * Self::VECTORS {
                    sums[sum] = Self::multiply_add(a, b, sums[sum]);
                }
            }
            // Used, so that none is optimised away.
            let mut total = sums[0];
            for sum in 1..Self::ROWS * Self::VECTORS {
                total = total.add(sums[sum]);
            }
            total.store(values);
        }
    }
}

macro_rules! f32_kernel {
    ($(#[$meta:meta])* $name:ident, $vector:ty, $row_vector:ty, $rows:literal x $vectors:literal) => {
        $(#[$meta])*
        pub struct $name;

        // SAFETY: one `Lanes` operation.
        unsafe impl Kernel for $name {
            type Vector = $vector;
            type ColumnPacker = Singles<$vector>;
            type RowPacker = Singles<$row_vector>;
            const ROWS: usize = $rows;
            const VECTORS: usize = $vectors;

            #[inline(always)]
            unsafe fn multiply_add(a: $vector, b: $vector, sum: $vector) -> $vector {
                // SAFETY: guaranteed by the caller.
                unsafe { a.mul_add(b, sum) }
            }
        }
    };
}

f32_kernel!(/// f32 multiplication with baseline instructions.
    BaselineF32, Baseline, Baseline, 4 x 2);
#[cfg(target_arch = "x86_64")]
f32_kernel!(/// f32 multiplication with AVX2 and FMA.
    Avx2F32, Avx2, Baseline, 4 x 3);
#[cfg(target_arch = "x86_64")]
f32_kernel!(/// f32 multiplication with AVX-512.
    Avx512F32, Avx512, Avx2, 8 x 3);

/// Multiplication of bf16 pairs with AVX-512.
#[cfg(target_arch = "x86_64")]
pub struct Avx512Pairs;

#[cfg(target_arch = "x86_64")]
// SAFETY: one instruction of AVX512-BF16.
unsafe impl Kernel for Avx512Pairs {
    type Vector = Avx512;
    type ColumnPacker = Pairs16;
    type RowPacker = Pairs8;
    const ROWS: usize = 8;
    const VECTORS: usize = 3;

    #[inline(always)]
    unsafe fn multiply_add(a: Avx512, b: Avx512, sum: Avx512) -> Avx512 {
        use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};
        // SAFETY: guaranteed by the caller; the types are 512 plain bits each.
        unsafe {
            let a = std::mem::transmute::<__m512, __m512bh>(a.0);
            let b = std::mem::transmute::<__m512, __m512bh>(b.0);
            Avx512(_mm512_dpbf16_ps(sum.0, a, b))
        }
    }
}

/// The micro-kernel of a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicroKernel {
    Baseline,
    Avx2,
    Avx512,
    Avx512Pairs,
    AmxPairs,
}

/// The tile sizes of a micro-kernel.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub rows: usize,
    pub columns: usize,
    pub lanes: usize,
    pub values: usize,
}

impl MicroKernel {
    /// The best kernel of this CPU for a precision.
    pub fn best(precision: Precision) -> Self {
        match (isa(), precision) {
            (Isa::Amx, Precision::Bf16) => MicroKernel::AmxPairs,
            _ => MicroKernel::best_of_vectors(precision),
        }
    }

    /// The best kernel of this CPU that multiplies vector by vector, for products of a few rows.
    pub fn best_of_vectors(precision: Precision) -> Self {
        match (isa(), precision) {
            (Isa::Amx | Isa::Avx512Bf16, Precision::Bf16) => MicroKernel::Avx512Pairs,
            (Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512, _) => MicroKernel::Avx512,
            (Isa::Avx2, _) => MicroKernel::Avx2,
            (Isa::Baseline, _) => MicroKernel::Baseline,
        }
    }

    /// Whether operands are rounded to bf16.
    pub fn rounds(self) -> bool {
        matches!(self, MicroKernel::Avx512Pairs | MicroKernel::AmxPairs)
    }

    pub fn sizes(self) -> Sizes {
        fn of<K: Kernel>() -> Sizes {
            const { assert!(K::TILED_ROWS || K::ROWS <= MOST_ROWS && K::RowPacker::COUNT == K::ROWS) };
            Sizes { rows: K::ROWS, columns: K::COLUMNS, lanes: K::Vector::COUNT, values: K::VALUES }
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            MicroKernel::Avx2 => of::<Avx2F32>(),
            #[cfg(target_arch = "x86_64")]
            MicroKernel::Avx512 => of::<Avx512F32>(),
            #[cfg(target_arch = "x86_64")]
            MicroKernel::Avx512Pairs => of::<Avx512Pairs>(),
            #[cfg(target_arch = "x86_64")]
            MicroKernel::AmxPairs => of::<AmxPairs>(),
            _ => of::<BaselineF32>(),
        }
    }
}

/// Like `simd_fn!`, for bodies that are generic over [`Kernel`]; the first argument selects the kernel. It must come
/// from [`MicroKernel::best`], which returns only kernels that the CPU supports.
macro_rules! kernel_fn {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident(kind $(, $arg:ident: $ty:ty)* $(,)?) = $body:ident;) => {
        $(#[$meta])*
        $vis unsafe fn $name(kind: $crate::cpu::gemm::micro::MicroKernel $(, $arg: $ty)*) {
            use $crate::cpu::gemm::micro::BaselineF32;
            #[cfg(target_arch = "x86_64")]
            use $crate::cpu::gemm::{amx::AmxPairs, micro::{Avx2F32, Avx512F32, Avx512Pairs, MicroKernel}};
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
            unsafe fn amx_pairs($($arg: $ty),*) {
                // SAFETY: this function's own caller vouches for AMX-BF16 and for the arguments.
                unsafe { $body::<AmxPairs>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
            unsafe fn avx512_pairs($($arg: $ty),*) {
                // SAFETY: this function's own caller vouches for AVX512-BF16 and for the arguments.
                unsafe { $body::<Avx512Pairs>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: this function's own caller vouches for AVX-512 and for the arguments.
                unsafe { $body::<Avx512F32>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: this function's own caller vouches for AVX2 and FMA, and for the arguments.
                unsafe { $body::<Avx2F32>($($arg),*) }
            }
            // SAFETY: `MicroKernel::best` names only what the machine has; the caller vouches for the arguments.
            unsafe {
                match kind {
                    #[cfg(target_arch = "x86_64")]
                    MicroKernel::AmxPairs => amx_pairs($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    MicroKernel::Avx512Pairs => avx512_pairs($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    MicroKernel::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    MicroKernel::Avx2 => avx2($($arg),*),
                    _ => $body::<BaselineF32>($($arg),*),
                }
            }
        }
    };
}
pub(in crate::cpu) use kernel_fn;

/// Rows of A for one register tile: unit u of row r is at `start + r * row_bytes + u * unit_bytes`, at any alignment.
#[derive(Clone, Copy)]
pub struct RowUnits {
    pub start: *const u8,
    pub row_bytes: usize,
    pub unit_bytes: usize,
}

/// The destination of a register tile's sums.
#[derive(Clone, Copy)]
pub struct Target {
    pub start: *mut f32,
    pub stride: usize,
    /// Rows to store, at most `ROWS`.
    pub rows: usize,
    /// Columns to store; they determine the number of vectors per packed row of B.
    pub columns: usize,
    /// Whether to accumulate into the destination.
    pub accumulate: bool,
}

/// A body per row of a register tile, unrolled by hand: the compiler keeps all sums in registers only if their row
/// indices are constants.
macro_rules! each_row {
    ($row:ident => $body:block) => {
        each_row!($row => $body, 0 1 2 3 4 5 6 7)
    };
    ($row:ident => $body:block, $($number:literal)*) => {
        $({
            const $row: usize = $number;
            $body
        })*
    };
}

/// With as many rows of sums as there are, or a few more: a decoder's one row is multiplied as fast as memory gives B.
#[inline(always)]
unsafe fn sum_rows<K: Kernel, const VECTORS: usize>(units: usize, a: RowUnits, b: *const f32, target: Target) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match target.rows {
            1 => sum::<K, VECTORS, 1>(units, a, b, target),
            2 => sum::<K, VECTORS, 2>(units, a, b, target),
            3 | 4 => sum::<K, VECTORS, 4>(units, a, b, target),
            _ => sum::<K, VECTORS, MOST_ROWS>(units, a, b, target),
        }
    }
}

/// Of `ROWS` rows, or as many as the kernel has.
#[inline(always)]
unsafe fn sum<K: Kernel, const VECTORS: usize, const ROWS: usize>(
    units: usize,
    a: RowUnits,
    mut b: *const f32,
    target: Target,
) {
    let lanes = K::Vector::COUNT;
    let row_count = if ROWS < K::ROWS { ROWS } else { K::ROWS };
    // SAFETY: the caller of `Kernel::register_tile` guarantees all that is read and written. Rows beyond the last one read the
    // last one again, and are not stored.
    unsafe {
        let mut sums = [[K::Vector::splat(0.0); VECTORS]; MOST_ROWS];
        let mut rows = [a.start; MOST_ROWS];
        for row in 0..row_count {
            rows[row] = a.start.add(row.min(target.rows - 1) * a.row_bytes);
        }
        let mut at = 0;
        for _ in 0..units {
            let mut columns = [K::Vector::splat(0.0); VECTORS];
            for vector in 0..VECTORS {
                columns[vector] = K::Vector::load(b.add(vector * lanes));
            }
            for row in 0..row_count {
                let value = K::Vector::splat(rows[row].add(at).cast::<f32>().read_unaligned());
                for vector in 0..VECTORS {
                    sums[row][vector] = K::multiply_add(value, columns[vector], sums[row][vector]);
                }
            }
            at += a.unit_bytes;
            b = b.add(VECTORS * lanes);
        }
        let last = target.columns - (VECTORS - 1) * lanes;
        each_row!(ROW => {
            if ROW < row_count && ROW < target.rows {
                store_row::<K, VECTORS>(sums[ROW], target.start.add(ROW * target.stride), last, target.accumulate);
            }
        });
    }
}

/// Stores a row of sums; only `last` lanes of its last vector are valid.
#[inline(always)]
unsafe fn store_row<K: Kernel, const VECTORS: usize>(
    sums: [K::Vector; VECTORS],
    to: *mut f32,
    last: usize,
    accumulate: bool,
) {
    // SAFETY: guaranteed by the caller: VECTORS vectors, the last one `last` lanes long.
    unsafe {
        for vector in 0..VECTORS {
            let to = to.add(vector * K::Vector::COUNT);
            let partial = vector + 1 == VECTORS && last < K::Vector::COUNT;
            let mut value = sums[vector];
            if accumulate {
                let before = if partial { K::Vector::load_partial(to, last) } else { K::Vector::load(to) };
                value = value.add(before);
            }
            if partial { value.store_partial(to, last) } else { value.store(to) }
        }
    }
}
