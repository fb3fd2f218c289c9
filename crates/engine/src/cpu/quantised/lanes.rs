//! Sixteen outputs at once: 64 bytes of weights, sixteen sums, one implementation per instruction set.

use half::f16;

use super::layout::PANEL;

/// Vectors for a panel of sixteen outputs, each with four inputs.
///
/// # Safety
/// Every function may only be called if the CPU has the instructions, and pointers must be valid for what is read or written: 64
/// bytes, or sixteen numbers.
#[allow(clippy::missing_safety_doc)] // the Safety section of the trait applies to each function
pub(super) unsafe trait PanelLanes {
    /// Rows whose sums, with the weights of a slice, fit the registers.
    const MOST_ROWS: usize;
    /// 64 bytes.
    type Bytes: Copy;
    /// Sixteen whole numbers.
    type Ints: Copy;
    /// Sixteen floats.
    type Floats: Copy;

    /// Has a cache line fetched that will be read soon; it may lie anywhere.
    fn prefetch(from: *const u8);
    unsafe fn load(from: *const u8) -> Self::Bytes;
    /// The lower half of each byte.
    unsafe fn low(bytes: Self::Bytes) -> Self::Bytes;
    /// The upper half of each byte.
    unsafe fn high(bytes: Self::Bytes) -> Self::Bytes;
    /// Adds 16 to the bytes whose bit is set.
    unsafe fn with_fifth(bytes: Self::Bytes, bits: u64) -> Self::Bytes;
    /// Adds 16 times two bits of each byte of `pairs`: the lowest if `which` is 0, the highest if it is 3.
    unsafe fn with_two<const WHICH: u32>(bytes: Self::Bytes, pairs: Self::Bytes) -> Self::Bytes;
    unsafe fn splat_int(value: i32) -> Self::Ints;
    /// `sums + weights · activations`, the same four activations for every output. `WIDE`: weights may have all eight bits.
    unsafe fn dot<const WIDE: bool>(sums: Self::Ints, weights: Self::Bytes, activations: *const i8) -> Self::Ints;
    unsafe fn to_floats(ints: Self::Ints) -> Self::Floats;
    unsafe fn load_f16(from: *const u8) -> Self::Floats;
    unsafe fn load_u8(from: *const u8) -> Self::Floats;
    unsafe fn load_i8(from: *const u8) -> Self::Floats;
    unsafe fn splat(value: f32) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    unsafe fn store(values: Self::Floats, to: *mut f32);
}

/// Plain Rust, for every CPU.
pub(super) struct Portable;

// SAFETY: no special instructions.
unsafe impl PanelLanes for Portable {
    const MOST_ROWS: usize = 1;
    type Bytes = [u8; 64];
    type Ints = [i32; PANEL];
    type Floats = [f32; PANEL];

    #[inline(always)]
    fn prefetch(_from: *const u8) {}

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u8; 64] {
        // SAFETY: guaranteed by the caller.
        unsafe { from.cast::<[u8; 64]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn low(bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| byte & 15)
    }

    #[inline(always)]
    unsafe fn high(bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| byte >> 4)
    }

    #[inline(always)]
    unsafe fn with_fifth(bytes: [u8; 64], bits: u64) -> [u8; 64] {
        std::array::from_fn(|index| bytes[index] | ((bits >> index & 1) as u8) << 4)
    }

    #[inline(always)]
    unsafe fn with_two<const WHICH: u32>(bytes: [u8; 64], pairs: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|index| bytes[index] | (pairs[index] >> (2 * WHICH) & 3) << 4)
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> [i32; PANEL] {
        [value; PANEL]
    }

    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sums: [i32; PANEL], weights: [u8; 64], activations: *const i8) -> [i32; PANEL] {
        // SAFETY: guaranteed by the caller.
        let activations = unsafe { activations.cast::<[i8; 4]>().read_unaligned() };
        let mut sums = sums;
        for lane in 0..PANEL {
            for input in 0..4 {
                sums[lane] += i32::from(weights[4 * lane + input]) * i32::from(activations[input]);
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn to_floats(ints: [i32; PANEL]) -> [f32; PANEL] {
        ints.map(|int| int as f32)
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> [f32; PANEL] {
        // SAFETY: guaranteed by the caller.
        let bits = unsafe { from.cast::<[u16; PANEL]>().read_unaligned() };
        bits.map(|bits| f16::from_bits(u16::from_le(bits)).to_f32())
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> [f32; PANEL] {
        // SAFETY: guaranteed by the caller.
        unsafe { from.cast::<[u8; PANEL]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> [f32; PANEL] {
        // SAFETY: guaranteed by the caller.
        unsafe { from.cast::<[i8; PANEL]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; PANEL] {
        [value; PANEL]
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; PANEL], b: [f32; PANEL]) -> [f32; PANEL] {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; PANEL], b: [f32; PANEL], c: [f32; PANEL]) -> [f32; PANEL] {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    unsafe fn store(values: [f32; PANEL], to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { to.cast::<[f32; PANEL]>().write_unaligned(values) }
    }
}
