//! Vectors of f32 for the kernels, one implementation per instruction set.
//!
//! A kernel is written once, generic over [`Lanes`], as an `#[inline(always)]` body; [`simd_fn!`] compiles it once per
//! instruction set and selects one at run time. The wrappers carry `#[target_feature]`, so the body is compiled with
//! 512-bit, 256-bit or baseline vectors.
//!
//! Two rules for bodies: no closures in the inner loops (a closure is a function of its own, without the wrapper's
//! target features), and no indexing with bounds checks (they prevent vectorisation).

use std::sync::atomic::{AtomicU8, Ordering};

use half::bf16;

/// The instruction sets that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// The baseline of the target: SSE2 on x86-64, NEON on aarch64.
    Baseline = 1,
    /// AVX2 and FMA.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
    /// AVX-512 with the bf16 dot product.
    Avx512Bf16 = 4,
    /// The same, and AMX with bf16.
    Amx = 5,
}

/// The instruction set of the kernels, by its marketing name.
pub fn instruction_set() -> &'static str {
    match isa() {
        Isa::Baseline if cfg!(target_arch = "x86_64") => "SSE2",
        Isa::Baseline if cfg!(target_arch = "aarch64") => "NEON",
        Isa::Baseline => "baseline",
        Isa::Avx2 => "AVX2",
        Isa::Avx512 => "AVX-512",
        Isa::Avx512Bf16 => "AVX-512 with bf16",
        Isa::Amx => "AVX-512 with bf16, AMX",
    }
}

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The best instruction set of this CPU, detected once. `VITREOUS_ISA` (`baseline`, `avx2`, `avx512`, `avx512-bf16`)
/// lowers it, so that every path can be tested on one machine.
#[inline]
pub fn isa() -> Isa {
    match CHOSEN.load(Ordering::Relaxed) {
        1 => Isa::Baseline,
        2 => Isa::Avx2,
        3 => Isa::Avx512,
        4 => Isa::Avx512Bf16,
        5 => Isa::Amx,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Isa {
    let best = best_isa();
    let wanted = match std::env::var("VITREOUS_ISA").as_deref() {
        Ok("baseline") => Isa::Baseline,
        Ok("avx2") => Isa::Avx2,
        Ok("avx512") => Isa::Avx512,
        Ok("avx512-bf16") => Isa::Avx512Bf16,
        _ => best,
    };
    let chosen = wanted.min(best);
    CHOSEN.store(chosen as u8, Ordering::Relaxed);
    chosen
}

#[cfg(target_arch = "x86_64")]
fn best_isa() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx512, avx2) {
        (true, _) if is_x86_feature_detected!("avx512bf16") && super::gemm::amx::is_available() => Isa::Amx,
        (true, _) if is_x86_feature_detected!("avx512bf16") => Isa::Avx512Bf16,
        (true, _) => Isa::Avx512,
        (false, true) => Isa::Avx2,
        _ => Isa::Baseline,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best_isa() -> Isa {
    Isa::Baseline
}

/// A vector of `COUNT` f32 values and its operations.
///
/// # Safety
/// Every function may only be called if the CPU supports the instruction set, and pointers must be valid for the lanes
/// read or written. The `simd_fn!` wrapper and the kernel body are responsible for that.
#[allow(clippy::missing_safety_doc)] // the Safety section of the trait applies to each function
pub unsafe trait Lanes: Copy {
    /// Number of f32 values in one vector.
    const COUNT: usize;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Reads `count < COUNT` values; the other lanes are zero.
    unsafe fn load_partial(from: *const f32, count: usize) -> Self;
    /// Reads `count < COUNT` values; the other lanes are those of `filler`.
    unsafe fn load_partial_or(from: *const f32, count: usize, filler: Self) -> Self;
    unsafe fn store_partial(self, to: *mut f32, count: usize);
    unsafe fn load_bf16(from: *const bf16) -> Self;
    /// Rounds to nearest even.
    unsafe fn store_bf16(self, to: *mut bf16);
    /// Rounds to bf16 precision: to nearest, ties to even, NaN stays NaN.
    unsafe fn round_bf16(self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self * factor + addend`
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn sqrt(self) -> Self;
    unsafe fn abs(self) -> Self;
    /// Lane by lane `if self < other { yes } else { no }`.
    unsafe fn select_less(self, other: Self, yes: Self, no: Self) -> Self;
    /// `2^self` for lanes with integers between -126 and 127.
    unsafe fn pow2_whole(self) -> Self;
    /// `self * 2^exponent` for lanes of `exponent` with integers between -252 and 254: unlike in [`Lanes::pow2_whole`],
    /// the power itself need not be representable.
    #[inline(always)]
    unsafe fn times_pow2(self, exponent: Self) -> Self {
        // SAFETY: arithmetic only; the caller guarantees the instruction set.
        unsafe {
            let magic = Self::splat(ROUND_MAGIC);
            let half = exponent.mul_add(Self::splat(0.5), magic).sub(magic);
            self.mul(half.pow2_whole()).mul(exponent.sub(half).pow2_whole())
        }
    }
    /// The sum of all lanes, always in the same order.
    unsafe fn sum(self) -> f32;
    unsafe fn max_lane(self) -> f32;
}

/// Rounds to the nearest integer by adding and subtracting 1.5 * 2^23: exact for |x| < 2^22, and four times faster than
/// a call of `round`.
pub const ROUND_MAGIC: f32 = 12_582_912.0;

/// Vectors for machines without AVX2: LLVM turns the four-lane loops into SSE2 or NEON.
#[derive(Clone, Copy)]
pub struct Baseline([f32; 4]);

macro_rules! lanewise {
    ($self:ident, $other:ident, $lane:ident => $value:expr) => {{
        let mut out = [0.0f32; 4];
        let mut $lane = 0;
        while $lane < 4 {
            out[$lane] = $value;
            $lane += 1;
        }
        let _ = (&$self, &$other);
        Baseline(out)
    }};
}

// SAFETY: plain arithmetic on arrays; pointers are read and written for four lanes as the trait says.
#[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
unsafe impl Lanes for Baseline {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Baseline([value; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Baseline(from.cast::<[f32; 4]>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, count: usize) -> Self {
        let mut out = [0.0; 4];
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), count) };
        Baseline(out)
    }
    #[inline(always)]
    unsafe fn load_partial_or(from: *const f32, count: usize, filler: Self) -> Self {
        let mut out = filler.0;
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), count) };
        Baseline(out)
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, count: usize) {
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), to, count) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        let bits = unsafe { from.cast::<[u16; 4]>().read_unaligned() };
        lanewise!(bits, bits, i => f32::from_bits(u32::from(bits[i]) << 16))
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        unsafe {
            to.cast::<[u16; 4]>().write_unaligned(self.round_bf16().0.map(|value| (value.to_bits() >> 16) as u16))
        }
    }
    #[inline(always)]
    unsafe fn round_bf16(self) -> Self {
        lanewise!(self, self, i => {
            let bits = self.0[i].to_bits();
            // NaN must stay NaN: the rounding carry could run into the sign.
            let rounded =
                if self.0[i].is_nan() { bits | 0x0040_0000 } else { bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) };
            f32::from_bits(rounded & 0xffff_0000)
        })
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        lanewise!(self, other, i => self.0[i] + other.0[i])
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        lanewise!(self, other, i => self.0[i] - other.0[i])
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        lanewise!(self, other, i => self.0[i] * other.0[i])
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        lanewise!(self, other, i => self.0[i] / other.0[i])
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // On x86-64 without FMA, `f32::mul_add` is a slow library call.
        #[cfg(target_arch = "aarch64")]
        return lanewise!(self, factor, i => self.0[i].mul_add(factor.0[i], addend.0[i]));
        #[cfg(not(target_arch = "aarch64"))]
        return lanewise!(self, factor, i => self.0[i] * factor.0[i] + addend.0[i]);
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        lanewise!(self, other, i => if self.0[i] > other.0[i] { self.0[i] } else { other.0[i] })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        lanewise!(self, other, i => if self.0[i] < other.0[i] { self.0[i] } else { other.0[i] })
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        lanewise!(self, self, i => self.0[i].sqrt())
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        lanewise!(self, self, i => self.0[i].abs())
    }
    #[inline(always)]
    unsafe fn select_less(self, other: Self, yes: Self, no: Self) -> Self {
        lanewise!(self, other, i => if self.0[i] < other.0[i] { yes.0[i] } else { no.0[i] })
    }
    #[inline(always)]
    unsafe fn pow2_whole(self) -> Self {
        lanewise!(self, self, i => f32::from_bits(((self.0[i] + ROUND_MAGIC + 127.0).to_bits()) << 23))
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        (self.0[0] + self.0[2]) + (self.0[1] + self.0[3])
    }
    #[inline(always)]
    unsafe fn max_lane(self) -> f32 {
        self.0[0].max(self.0[1]).max(self.0[2].max(self.0[3]))
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, ROUND_MAGIC, bf16};
    use std::arch::x86_64::*;

    /// Eight lanes, AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub struct Avx2(pub __m256);

    /// Sixteen lanes, AVX-512.
    #[derive(Clone, Copy)]
    pub struct Avx512(pub __m512);

    /// `TAIL_MASKS[8 - n..][..8]` selects the first n lanes.
    static TAIL_MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[inline(always)]
    unsafe fn tail_mask(count: usize) -> __m256i {
        // SAFETY: count <= 8, so eight values from 8 - count on lie inside the table.
        unsafe { _mm256_loadu_si256(TAIL_MASKS.as_ptr().add(8 - count).cast()) }
    }

    // SAFETY: each function is one or a few AVX2 intrinsics on values or on the pointers it was given.
    #[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
    unsafe impl Lanes for Avx2 {
        const COUNT: usize = 8;

        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            unsafe { Avx2(_mm256_set1_ps(value)) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Avx2(_mm256_loadu_ps(from)) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm256_storeu_ps(to, self.0) }
        }
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Self {
            unsafe { Avx2(_mm256_maskload_ps(from, tail_mask(count))) }
        }
        #[inline(always)]
        unsafe fn load_partial_or(from: *const f32, count: usize, filler: Self) -> Self {
            unsafe {
                let mask = tail_mask(count);
                Avx2(_mm256_blendv_ps(filler.0, _mm256_maskload_ps(from, mask), _mm256_castsi256_ps(mask)))
            }
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, count: usize) {
            unsafe { _mm256_maskstore_ps(to, tail_mask(count), self.0) }
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const bf16) -> Self {
            unsafe {
                let halves = _mm_loadu_si128(from.cast());
                Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))))
            }
        }
        #[inline(always)]
        unsafe fn store_bf16(self, to: *mut bf16) {
            unsafe {
                let high = _mm256_srli_epi32::<16>(_mm256_castps_si256(self.round_bf16().0));
                let packed = _mm256_packus_epi32(high, high);
                let ordered = _mm256_permute4x64_epi64::<0b1000>(packed);
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(ordered));
            }
        }
        #[inline(always)]
        unsafe fn round_bf16(self) -> Self {
            unsafe {
                let bits = _mm256_castps_si256(self.0);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
                let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
                let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
                let whole = _mm256_blendv_epi8(rounded, quiet, is_nan);
                Avx2(_mm256_castsi256_ps(_mm256_and_si256(whole, _mm256_set1_epi32(0xffff_0000u32 as i32))))
            }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Avx2(_mm256_add_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { Avx2(_mm256_sub_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Avx2(_mm256_mul_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            unsafe { Avx2(_mm256_div_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
            unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, addend.0)) }
        }
        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            unsafe { Avx2(_mm256_max_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn min(self, other: Self) -> Self {
            unsafe { Avx2(_mm256_min_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn sqrt(self) -> Self {
            unsafe { Avx2(_mm256_sqrt_ps(self.0)) }
        }
        #[inline(always)]
        unsafe fn abs(self) -> Self {
            unsafe { Avx2(_mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0)) }
        }
        #[inline(always)]
        unsafe fn select_less(self, other: Self, yes: Self, no: Self) -> Self {
            unsafe { Avx2(_mm256_blendv_ps(no.0, yes.0, _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0))) }
        }
        #[inline(always)]
        unsafe fn pow2_whole(self) -> Self {
            unsafe {
                let shifted = _mm256_add_ps(self.0, _mm256_set1_ps(ROUND_MAGIC + 127.0));
                Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(shifted))))
            }
        }
        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let half = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
                _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps::<1>(quarter, quarter)))
            }
        }
        #[inline(always)]
        unsafe fn max_lane(self) -> f32 {
            unsafe {
                let half = _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let quarter = _mm_max_ps(half, _mm_movehl_ps(half, half));
                _mm_cvtss_f32(_mm_max_ss(quarter, _mm_shuffle_ps::<1>(quarter, quarter)))
            }
        }
    }

    // SAFETY: each function is one or a few AVX-512 intrinsics on values or on the pointers it was given.
    #[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
    unsafe impl Lanes for Avx512 {
        const COUNT: usize = 16;

        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            unsafe { Avx512(_mm512_set1_ps(value)) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Avx512(_mm512_loadu_ps(from)) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Self {
            unsafe { Avx512(_mm512_maskz_loadu_ps(((1u32 << count) - 1) as __mmask16, from)) }
        }
        #[inline(always)]
        unsafe fn load_partial_or(from: *const f32, count: usize, filler: Self) -> Self {
            unsafe { Avx512(_mm512_mask_loadu_ps(filler.0, ((1u32 << count) - 1) as __mmask16, from)) }
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, count: usize) {
            unsafe { _mm512_mask_storeu_ps(to, ((1u32 << count) - 1) as __mmask16, self.0) }
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const bf16) -> Self {
            unsafe {
                let halves = _mm256_loadu_si256(from.cast());
                Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))))
            }
        }
        #[inline(always)]
        unsafe fn store_bf16(self, to: *mut bf16) {
            unsafe {
                let high = _mm512_srli_epi32::<16>(_mm512_castps_si512(self.round_bf16().0));
                _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(high));
            }
        }
        #[inline(always)]
        unsafe fn round_bf16(self) -> Self {
            unsafe {
                let bits = _mm512_castps_si512(self.0);
                let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
                let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
                let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
                let whole = _mm512_mask_blend_epi32(is_nan, rounded, quiet);
                Avx512(_mm512_castsi512_ps(_mm512_and_si512(whole, _mm512_set1_epi32(0xffff_0000u32 as i32))))
            }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_add_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_sub_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_mul_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_div_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
            unsafe { Avx512(_mm512_fmadd_ps(self.0, factor.0, addend.0)) }
        }
        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_max_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn min(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_min_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn sqrt(self) -> Self {
            unsafe { Avx512(_mm512_sqrt_ps(self.0)) }
        }
        #[inline(always)]
        unsafe fn abs(self) -> Self {
            unsafe { Avx512(_mm512_abs_ps(self.0)) }
        }
        #[inline(always)]
        unsafe fn select_less(self, other: Self, yes: Self, no: Self) -> Self {
            unsafe {
                let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0);
                Avx512(_mm512_mask_blend_ps(less, no.0, yes.0))
            }
        }
        #[inline(always)]
        unsafe fn pow2_whole(self) -> Self {
            unsafe {
                let shifted = _mm512_add_ps(self.0, _mm512_set1_ps(ROUND_MAGIC + 127.0));
                Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(shifted))))
            }
        }
        #[inline(always)]
        unsafe fn times_pow2(self, exponent: Self) -> Self {
            unsafe { Avx512(_mm512_scalef_ps(self.0, exponent.0)) }
        }
        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let high = _mm512_extractf32x8_ps::<1>(self.0);
                Avx2(_mm256_add_ps(_mm512_castps512_ps256(self.0), high)).sum()
            }
        }
        #[inline(always)]
        unsafe fn max_lane(self) -> f32 {
            unsafe {
                let high = _mm512_extractf32x8_ps::<1>(self.0);
                Avx2(_mm256_max_ps(_mm512_castps512_ps256(self.0), high)).max_lane()
            }
        }
    }
}

/// Makes a safe function from an `#[inline(always)] unsafe fn body<V: Lanes>(..)`: one copy per instruction set,
/// selected at run time.
///
/// ```text
/// simd_fn! {
///     /// Adds `b` to `a`.
///     pub fn add_assign(a: &mut [f32], b: &[f32]) = add_assign_body;
/// }
/// ```
macro_rules! simd_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident;) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function's own caller vouches for AVX-512.
                unsafe { $body::<$crate::cpu::simd::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function's own caller vouches for AVX2 and FMA.
                unsafe { $body::<$crate::cpu::simd::Avx2>($($arg),*) }
            }
            // SAFETY: `isa()` returns only what the CPU was detected to support.
            unsafe {
                match $crate::cpu::simd::isa() {
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::simd::Isa::Amx
                    | $crate::cpu::simd::Isa::Avx512Bf16
                    | $crate::cpu::simd::Isa::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::simd::Isa::Avx2 => avx2($($arg),*),
                    _ => $body::<$crate::cpu::simd::Baseline>($($arg),*),
                }
            }
        }
    };
}
pub(crate) use simd_fn;
