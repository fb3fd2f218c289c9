//! The transcendental functions of the kernels, lane by lane, accurate to about two units in the last place.

use super::simd::{Lanes, ROUND_MAGIC};

/// Below this, e^x is less than the smallest normal f32: the result is 0.
const EXP_UNDERFLOW: f32 = -87.336_54;
/// Above this, e^x is more than the largest f32: the result is infinite.
const EXP_OVERFLOW: f32 = 88.722_83;

/// e^x: `x = n ln 2 + r` with |r| <= ln 2 / 2, then `2^n * p(r)` with a polynomial of degree 6.
/// Minus infinity gives exactly 0, NaN stays NaN.
#[inline(always)]
pub unsafe fn exp<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the instruction set is the caller's promise.
    unsafe {
        // In `max` and `min` a NaN in the second operand is what comes out.
        let clamped = V::splat(EXP_OVERFLOW).min(V::splat(EXP_UNDERFLOW).max(x));
        let magic = V::splat(ROUND_MAGIC);
        let n = clamped.mul_add(V::splat(std::f32::consts::LOG2_E), magic).sub(magic);
        // n reaches 128 near the overflow; two factors keep each power of two representable.
        let half = n.mul_add(V::splat(0.5), magic).sub(magic);
        let rest = n.sub(half);
        // ln 2 in two parts, the first with trailing zeros, so that n times it is exact.
        let r = n.mul_add(V::splat(-0.693_359_4), clamped);
        let r = n.mul_add(V::splat(2.121_944_4e-4), r);
        let p = V::splat(1.0 / 720.0);
        let p = p.mul_add(r, V::splat(1.0 / 120.0));
        let p = p.mul_add(r, V::splat(1.0 / 24.0));
        let p = p.mul_add(r, V::splat(1.0 / 6.0));
        let p = p.mul_add(r, V::splat(0.5));
        let p = p.mul_add(r, V::splat(1.0));
        let p = p.mul_add(r, V::splat(1.0));
        let result = p.mul(half.pow2_whole()).mul(rest.pow2_whole());
        let result = x.select_less(V::splat(EXP_UNDERFLOW), V::splat(0.0), result);
        V::splat(EXP_OVERFLOW).select_less(x, V::splat(f32::INFINITY), result)
    }
}
