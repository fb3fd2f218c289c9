//! Sixteen outputs at once on x86-64.

use std::arch::x86_64::*;

use super::lanes::PanelLanes;

/// AVX-512 with dot products of bytes (VNNI).
pub(super) struct Vnni;

// SAFETY: instructions of AVX-512 F, BW and VNNI.
unsafe impl PanelLanes for Vnni {
    const MOST_ROWS: usize = 12;
    type Bytes = __m512i;
    type Ints = __m512i;
    type Floats = __m512;

    #[inline(always)]
    fn prefetch(from: *const u8) {
        // SAFETY: every CPU of this architecture has the instruction, and it faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn low(bytes: __m512i) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_and_si512(bytes, _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    unsafe fn high(bytes: __m512i) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    unsafe fn with_fifth(bytes: __m512i, bits: u64) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_or_si512(bytes, _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(16))) }
    }

    #[inline(always)]
    unsafe fn with_two<const WHICH: u32>(bytes: __m512i, pairs: __m512i) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let moved = match WHICH {
                0 => _mm512_slli_epi16::<4>(pairs),
                1 => _mm512_slli_epi16::<2>(pairs),
                2 => pairs,
                _ => _mm512_srli_epi16::<2>(pairs),
            };
            _mm512_or_si512(bytes, _mm512_and_si512(moved, _mm512_set1_epi8(0x30)))
        }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sums: __m512i, weights: __m512i, activations: *const i8) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let activations = _mm512_set1_epi32(activations.cast::<i32>().read_unaligned());
            _mm512_dpbusd_epi32(sums, weights, activations)
        }
    }

    #[inline(always)]
    unsafe fn to_floats(ints: __m512i) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_cvtepi32_ps(ints) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn store(values: __m512, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_storeu_ps(to, values) }
    }
}

/// AVX2 with FMA and F16C: outputs 0 to 7, then 8 to 15.
pub(super) struct Avx2;

impl Avx2 {
    #[inline(always)]
    unsafe fn and(bytes: [__m256i; 2], mask: i8) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mask = _mm256_set1_epi8(mask);
            [_mm256_and_si256(bytes[0], mask), _mm256_and_si256(bytes[1], mask)]
        }
    }

    /// `sums + factor * (weights · activations)`, of weights of at most seven bits, so that two products fit 16 bits.
    #[inline(always)]
    unsafe fn add_dot(sums: __m256i, weights: __m256i, activations: __m256i, factor: i16) -> __m256i {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let pairs = _mm256_maddubs_epi16(weights, activations);
            _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor)))
        }
    }

    /// Each bit of 32 as a byte, all ones or zero.
    #[inline(always)]
    unsafe fn spread(bits: u32) -> __m256i {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let copies = _mm256_setr_epi8(
                0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
            );
            let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), copies);
            let each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            _mm256_cmpeq_epi8(_mm256_and_si256(bytes, each), each)
        }
    }
}

// SAFETY: instructions of AVX2, FMA and F16C.
unsafe impl PanelLanes for Avx2 {
    const MOST_ROWS: usize = 2;
    type Bytes = [__m256i; 2];
    type Ints = [__m256i; 2];
    type Floats = [__m256; 2];

    #[inline(always)]
    fn prefetch(from: *const u8) {
        // SAFETY: every CPU of this architecture has the instruction, and it faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
    }

    #[inline(always)]
    unsafe fn low(bytes: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { Avx2::and(bytes, 15) }
    }

    #[inline(always)]
    unsafe fn high(bytes: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { Avx2::and([_mm256_srli_epi16::<4>(bytes[0]), _mm256_srli_epi16::<4>(bytes[1])], 15) }
    }

    #[inline(always)]
    unsafe fn with_fifth(bytes: [__m256i; 2], bits: u64) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let fifth = Avx2::and([Avx2::spread(bits as u32), Avx2::spread((bits >> 32) as u32)], 16);
            [_mm256_or_si256(bytes[0], fifth[0]), _mm256_or_si256(bytes[1], fifth[1])]
        }
    }

    #[inline(always)]
    unsafe fn with_two<const WHICH: u32>(bytes: [__m256i; 2], pairs: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let moved = match WHICH {
                0 => [_mm256_slli_epi16::<4>(pairs[0]), _mm256_slli_epi16::<4>(pairs[1])],
                1 => [_mm256_slli_epi16::<2>(pairs[0]), _mm256_slli_epi16::<2>(pairs[1])],
                2 => pairs,
                _ => [_mm256_srli_epi16::<2>(pairs[0]), _mm256_srli_epi16::<2>(pairs[1])],
            };
            let two = Avx2::and(moved, 0x30);
            [_mm256_or_si256(bytes[0], two[0]), _mm256_or_si256(bytes[1], two[1])]
        }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sums: [__m256i; 2], weights: [__m256i; 2], activations: *const i8) -> [__m256i; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let a = _mm256_set1_epi32(activations.cast::<i32>().read_unaligned());
            if !WIDE {
                return [Avx2::add_dot(sums[0], weights[0], a, 1), Avx2::add_dot(sums[1], weights[1], a, 1)];
            }
            // The eighth bit by itself, halved and counted twice.
            let low = Avx2::and(weights, 127);
            let high = Avx2::and([_mm256_srli_epi16::<1>(weights[0]), _mm256_srli_epi16::<1>(weights[1])], 64);
            let sums = [Avx2::add_dot(sums[0], low[0], a, 1), Avx2::add_dot(sums[1], low[1], a, 1)];
            [Avx2::add_dot(sums[0], high[0], a, 2), Avx2::add_dot(sums[1], high[1], a, 2)]
        }
    }

    #[inline(always)]
    unsafe fn to_floats(ints: [__m256i; 2]) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [_mm256_cvtepi32_ps(ints[0]), _mm256_cvtepi32_ps(ints[1])] }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (first, second) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast()));
            [_mm256_cvtph_ps(first), _mm256_cvtph_ps(second)]
        }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let first = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let second = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            [_mm256_cvtepi32_ps(first), _mm256_cvtepi32_ps(second)]
        }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let first = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()));
            let second = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            [_mm256_cvtepi32_ps(first), _mm256_cvtepi32_ps(second)]
        }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    unsafe fn mul(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul_add(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    unsafe fn store(values: [__m256; 2], to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            _mm256_storeu_ps(to, values[0]);
            _mm256_storeu_ps(to.add(8), values[1]);
        }
    }
}
