//! Multiplication of bf16 pairs with AMX: 16 x 32 values by 32 x 16 in one instruction, about ten times the speed of
//! AVX-512.
//!
//! A tile register holds 16 rows of 64 bytes. A register tile of the output is 2 x 2 of them. Packed B is read as it
//! is: sixteen rows of sixteen pairs each. Rows of A are packed so that each tile is one kilobyte, because rows that
//! are a power of two apart would push each other out of the L1 cache.

use std::arch::asm;

use super::micro::{Kernel, RowUnits, Target};
use super::pack::{Pairs8, Pairs16};
use crate::cpu::simd::{Avx512, Lanes};

/// Rows of a tile register, and units in one of its rows.
pub const TILE: usize = 16;
const TILE_BYTES: usize = TILE * 4;
/// Rows and columns of the register tile.
const SIDE: usize = 2 * TILE;

/// Whether this process may use AMX: CPU and system support it, and the system gave permission, which Linux wants to
/// be asked for because the registers take 8 KiB of every context switch.
pub fn is_available() -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::arch::x86_64::__cpuid_count;
        const TILES: u32 = 1 << 24;
        const BF16: u32 = 1 << 22;
        const REQUEST_PERMISSION: libc::c_long = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        let features = __cpuid_count(7, 0).edx;
        // SAFETY: a system call that takes two numbers and changes what this process may do.
        features & TILES != 0
            && features & BF16 != 0
            && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) } == 0
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// bf16 multiplication with AMX.
pub struct AmxPairs;

// SAFETY: instructions of AMX-BF16 and, for everything else, AVX-512.
unsafe impl Kernel for AmxPairs {
    type Vector = Avx512;
    type ColumnPacker = Pairs16;
    type RowPacker = Pairs8;
    const ROWS: usize = SIDE;
    const VECTORS: usize = 2;
    const TILED_ROWS: bool = true;

    #[inline(always)]
    unsafe fn multiply_add(a: Avx512, b: Avx512, sum: Avx512) -> Avx512 {
        // SAFETY: guaranteed by the caller.
        unsafe { super::micro::Avx512Pairs::multiply_add(a, b, sum) }
    }

    #[inline(always)]
    unsafe fn begin(rows: usize) {
        let mut configuration =
            Configuration { palette: 1, start_row: 0, zeros: [0; 14], bytes: [0; 16], rows: [0; 16] };
        configuration.bytes[..8].fill(TILE_BYTES as u16);
        configuration.rows[..8].fill(TILE as u8);
        // The sums and A, of the upper and of the lower half.
        let (upper, lower) = (rows.min(TILE) as u8, if rows > TILE { rows - TILE } else { TILE } as u8);
        for (registers, rows) in [([0, 1, 4], upper), ([2, 3, 5], lower)] {
            registers.into_iter().for_each(|register| configuration.rows[register] = rows);
        }
        // SAFETY: 64 bytes that describe eight valid registers are read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly)) };
    }

    #[inline(always)]
    unsafe fn end() {
        // SAFETY: the tile registers are not in use; without it every context switch would save them.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    #[inline(always)]
    unsafe fn register_tile(units: usize, a: RowUnits, b: *const f32, target: Target) {
        let wide = target.columns > TILE;
        let whole_vectors = target.columns.is_multiple_of(TILE);
        let b_stride = if wide { 2 * TILE_BYTES } else { TILE_BYTES };
        let mut aside = [[0.0f32; SIDE]; SIDE];
        // Tiles are stored as a whole: what is not as wide goes through memory of its own.
        let (to, stride, mut accumulate) = match whole_vectors {
            true => (target.start, target.stride * 4, target.accumulate),
            false => (aside.as_mut_ptr().cast(), SIDE * 4, false),
        };
        let (whole, rest) = (units / TILE, units % TILE);
        // SAFETY: guaranteed by the caller: A has its rows in tiles with zeros behind its depth, B `units` rows; the
        // registers were configured for `target.rows`. Behind B's last row zeros are read from memory of our own.
        unsafe {
            let mut step = Steps { count: whole, a: a.start, b: b.cast(), b_stride, to, stride, accumulate };
            if whole > 0 || rest == 0 {
                step.run(target.rows > TILE, wide);
                accumulate = true;
            }
            if rest > 0 {
                let mut padded = [0u8; TILE * 2 * TILE_BYTES];
                let from = b.cast::<u8>().add(whole * TILE * b_stride);
                std::ptr::copy_nonoverlapping(from, padded.as_mut_ptr(), rest * b_stride);
                let a = a.start.add(whole * SIDE * TILE_BYTES);
                step = Steps { count: 1, a, b: padded.as_ptr(), accumulate, ..step };
                step.run(target.rows > TILE, wide);
            }
            if !whole_vectors {
                store_narrow(&aside, target);
            }
        }
    }

    #[inline(always)]
    unsafe fn rounds(rounds: usize, values: *mut f32) {
        // SAFETY: the caller vouches for the instruction set and for a vector of values, which fills a tile's rows.
        unsafe {
            let line = Avx512::load(values);
            let mut ones = [0.0f32; TILE * TILE];
            (0..TILE).for_each(|row| line.store(ones.as_mut_ptr().add(row * TILE)));
            let mut sums = [[0.0f32; SIDE]; SIDE];
            Self::begin(SIDE);
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "tileloadd tmm4, [{ones} + {stride}]", "tileloadd tmm6, [{ones} + {stride}]",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm4, tmm6", "tdpbf16ps tmm3, tmm4, tmm6",
                "sub {count}, 1", "jnz 2b",
                "tilestored [{to} + 2 * {stride}], tmm0", "tilestored [{to} + 2 * {stride} + 64], tmm1",
                "tilestored [{lower} + 2 * {stride}], tmm2", "tilestored [{lower} + 2 * {stride} + 64], tmm3",
                ones = in(reg) ones.as_ptr(), stride = in(reg) TILE_BYTES, to = in(reg) sums.as_mut_ptr(),
                lower = in(reg) sums[TILE..].as_mut_ptr(), count = inout(reg) (rounds / TILE).max(1) => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm6") _,
                options(nostack),
            );
            Self::end();
            let mut total = Avx512::splat(0.0);
            for row in &sums {
                total = total.add(Avx512::load(row.as_ptr())).add(Avx512::load(row.as_ptr().add(TILE)));
            }
            total.store(values);
        }
    }
}

/// The sizes of the tile registers, as `ldtilecfg` reads them.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    zeros: [u8; 14],
    /// Bytes of a row of each register.
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// Some steps of sixteen units of depth.
struct Steps {
    count: usize,
    a: *const u8,
    b: *const u8,
    b_stride: usize,
    to: *mut f32,
    /// Bytes from one row of `to` to the next.
    stride: usize,
    /// Whether to begin with what is in `to`.
    accumulate: bool,
}

/// One assembly block: the sums are begun, accumulated and stored without the compiler in between, which does not know
/// the registers.
macro_rules! tiles {
    ($steps:expr, load [$($load:literal),*], zero [$($zero:literal),*], step [$($step:literal),*], store [$($store:literal),*]) => {{
        let Steps { count, a, b, b_stride, to, stride, accumulate } = *$steps;
        asm!(
            "test {accumulate:e}, {accumulate:e}", "jz 3f", $($load,)* "jmp 4f",
            "3:", $($zero,)*
            "4:", "test {count}, {count}", "jz 5f",
            "2:", $($step,)*
            "add {a}, 2048", "add {b}, {b_step}", "sub {count}, 1", "jnz 2b",
            "5:", $($store,)*
            accumulate = in(reg) u32::from(accumulate), count = inout(reg) count => _,
            a = inout(reg) a => _, a_stride = in(reg) TILE_BYTES,
            b = inout(reg) b => _, b_stride = in(reg) b_stride, b_step = in(reg) TILE * b_stride,
            to = in(reg) to, lower = in(reg) to.cast::<u8>().wrapping_add(TILE * stride), stride = in(reg) stride,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    }};
}

impl Steps {
    /// # Safety
    /// `a` has `count` steps of 32 rows of 16 units, `b` as many of 16 rows with the stride, the registers are
    /// configured, and `to` is valid for the rows and for 16 columns, or 32 if it is `wide`.
    #[inline(always)]
    unsafe fn run(&self, tall: bool, wide: bool) {
        // SAFETY: guaranteed by the caller. (An unused operand of a smaller form is a number only.)
        unsafe {
            match (tall, wide) {
                (true, true) => tiles!(self,
                    load ["tileloadd tmm0, [{to} + {stride}]", "tileloadd tmm1, [{to} + {stride} + 64]",
                        "tileloadd tmm2, [{lower} + {stride}]", "tileloadd tmm3, [{lower} + {stride} + 64]"],
                    zero ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
                    step ["tileloadd tmm4, [{a} + {a_stride}]", "tileloadd tmm6, [{b} + {b_stride}]",
                        "tileloadd tmm7, [{b} + {b_stride} + 64]", "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm5, [{a} + {a_stride} + 1024]", "tdpbf16ps tmm1, tmm4, tmm7",
                        "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7"],
                    store ["tilestored [{to} + {stride}], tmm0", "tilestored [{to} + {stride} + 64], tmm1",
                        "tilestored [{lower} + {stride}], tmm2", "tilestored [{lower} + {stride} + 64], tmm3"]),
                (true, false) => tiles!(self,
                    load ["tileloadd tmm0, [{to} + {stride}]", "tileloadd tmm2, [{lower} + {stride}]"],
                    zero ["tilezero tmm0", "tilezero tmm2"],
                    step ["tileloadd tmm4, [{a} + {a_stride}]", "tileloadd tmm6, [{b} + {b_stride}]",
                        "tileloadd tmm5, [{a} + {a_stride} + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm2, tmm5, tmm6"],
                    store ["tilestored [{to} + {stride}], tmm0", "tilestored [{lower} + {stride}], tmm2"]),
                (false, true) => tiles!(self,
                    load ["tileloadd tmm0, [{to} + {stride}]", "tileloadd tmm1, [{to} + {stride} + 64] /* {lower} */"],
                    zero ["tilezero tmm0", "tilezero tmm1"],
                    step ["tileloadd tmm4, [{a} + {a_stride}]", "tileloadd tmm6, [{b} + {b_stride}]",
                        "tileloadd tmm7, [{b} + {b_stride} + 64]",
                        "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7"],
                    store ["tilestored [{to} + {stride}], tmm0", "tilestored [{to} + {stride} + 64], tmm1"]),
                (false, false) => tiles!(self,
                    load ["tileloadd tmm0, [{to} + {stride}] /* {lower} */"],
                    zero ["tilezero tmm0"],
                    step ["tileloadd tmm4, [{a} + {a_stride}]", "tileloadd tmm6, [{b} + {b_stride}]",
                        "tdpbf16ps tmm0, tmm4, tmm6"],
                    store ["tilestored [{to} + {stride}], tmm0"]),
            }
        }
    }
}

/// Stores sums of which some columns do not fill a vector.
///
/// # Safety
/// `target` is valid, and has at most 32 rows and columns.
#[inline(always)]
unsafe fn store_narrow(sums: &[[f32; SIDE]; SIDE], target: Target) {
    for row in 0..target.rows {
        let mut column = 0;
        while column < target.columns {
            let count = (target.columns - column).min(TILE);
            // SAFETY: guaranteed by the caller; `count` columns from `column` on are inside.
            unsafe {
                let to = target.start.add(row * target.stride + column);
                let mut value = Avx512::load(sums.as_ptr().cast::<f32>().add(row * SIDE + column));
                if target.accumulate {
                    value = value.add(Avx512::load_partial(to, count));
                }
                value.store_partial(to, count);
            }
            column += TILE;
        }
    }
}
