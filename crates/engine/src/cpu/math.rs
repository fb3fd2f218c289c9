//! The transcendental functions of the kernels, lane by lane. Coefficients are minimax fits (Lawson's reweighted
//! least squares against 30-digit values), rounded to f32.

use super::simd::{Lanes, ROUND_MAGIC};

/// Below this, e^x is less than the smallest normal f32: the result is 0, to avoid slow denormals later.
const EXP_UNDERFLOW: f32 = -87.336_54;
/// Slightly above the logarithm of the largest f32: from here on the result is infinite.
const EXP_CERTAIN_OVERFLOW: f32 = 89.0;

/// `(e^r - 1 - r) / r²` for |r| <= ln 2 / 2, to 3e-9.
const EXP_SERIES: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_718, 0.001_381_459_9];

/// `c[0] + c[1] x + c[2] x² ..`, by Horner's rule.
#[inline(always)]
unsafe fn polynomial<V: Lanes, const TERMS: usize>(x: V, coefficients: &[f32; TERMS]) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        let mut value = V::splat(coefficients[TERMS - 1]);
        let mut term = TERMS - 1;
        while term > 0 {
            term -= 1;
            value = value.mul_add(x, V::splat(coefficients[term]));
        }
        value
    }
}

/// e^x: `x = n ln 2 + r` with |r| <= ln 2 / 2, then `2^n * p(r)` with a polynomial of degree 6.
/// Minus infinity gives exactly 0, infinity gives infinity, NaN stays NaN; within 1.5e-7 of the true value.
#[inline(always)]
pub unsafe fn exp<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        // If the second operand of `min` is NaN, NaN is returned. Far below the range, the computed value is
        // meaningless and not selected.
        let clamped = V::splat(EXP_CERTAIN_OVERFLOW).min(x);
        let magic = V::splat(ROUND_MAGIC);
        let n = clamped.mul_add(V::splat(std::f32::consts::LOG2_E), magic).sub(magic);
        // ln 2 in two parts, the first with trailing zeros, so that n times it is exact.
        let r = n.mul_add(V::splat(-0.693_359_4), clamped);
        let r = n.mul_add(V::splat(2.121_944_4e-4), r);
        let one = V::splat(1.0);
        let p = polynomial(r, &EXP_SERIES).mul_add(r, one).mul_add(r, one);
        x.select_less(V::splat(EXP_UNDERFLOW), V::splat(0.0), p.times_pow2(n))
    }
}

// GELU. The tail of the normal distribution Q(t) = Φ(-t), and the tail of the derivative below, fall from 1/2 to zero
// over t = 0..6. Their fourth roots are so smooth that one polynomial covers that range, and raising it to the fourth
// power gives the small values of the tail without an e^x and without cancellation: a third fewer operations than
// `e^(-t²/2)` times a polynomial. Everything past 6 is 0, as the polynomials are fitted with a zero there.

/// From here on the tails are 0: 6 Q(6) is 6e-9.
const TAIL_END: f32 = 6.0;

/// `Q(t)^(1/4)` in powers of `u = t/3 - 1`, with t Q(t) to 2.4e-8.
const TAIL_ROOT: [f32; 12] = [
    0.191_679_42,
    -0.471_972_1,
    0.380_669_56,
    0.009_677_455,
    -0.189_984_08,
    0.073_558_28,
    0.045_343_105,
    -0.033_102_416,
    -0.001_113_366_7,
    0.004_273_473_3,
    -0.006_146_445,
    -0.002_882_900_2,
];

/// The zero of GELU's derivative: the t with `Q(t) = t φ(t)`.
const SLOPE_ZERO: f32 = 0.751_791_5;

/// `((Q(t) - t φ(t)) / (SLOPE_ZERO - t))^(1/4)` in powers of `u = t/3 - 1`, with the numerator to 1.4e-7.
const SLOPE_ROOT: [f32; 12] = [
    0.269_987_02,
    -0.615_930_14,
    0.404_507_25,
    0.142_329_4,
    -0.297_521_26,
    0.062_000_01,
    0.092_321_91,
    -0.038_912_024,
    -0.006_367_732_3,
    0.004_705_992,
    -0.011_395_551,
    -0.005_724_851,
];

/// |x|, at most [`TAIL_END`], and the fourth power of a polynomial in it.
#[inline(always)]
unsafe fn size_and_tail<V: Lanes>(x: V, root: &[f32; 12]) -> (V, V) {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        // If the second operand of `min` is NaN, NaN is returned.
        let size = V::splat(TAIL_END).min(x.abs());
        let u = size.mul_add(V::splat(2.0 / TAIL_END), V::splat(-1.0));
        let root = polynomial(u, root);
        let square = root.mul(root);
        (size, square.mul(square))
    }
}

/// GELU, `x Φ(x) = max(x, 0) - |x| Q(|x|)`, to 1.5e-7 absolute. Minus infinity gives 0, infinity infinity.
#[inline(always)]
pub unsafe fn gelu<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        let (size, tail) = size_and_tail(x, &TAIL_ROOT);
        V::splat(0.0).max(x).sub(size.mul(tail))
    }
}

/// The derivative of GELU, `Φ(x) + x φ(x)`: `k = Q(t) - t φ(t)` at `x = -t`, `1 - k` at `x = t`; to 3.5e-7 absolute.
#[inline(always)]
pub unsafe fn gelu_slope<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        let (size, tail) = size_and_tail(x, &SLOPE_ROOT);
        let k = V::splat(SLOPE_ZERO).sub(size).mul(tail);
        x.select_less(V::splat(0.0), k, V::splat(1.0).sub(k))
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::simd_fn;
    use super::*;

    macro_rules! over_slice {
        ($name:ident, $body:ident, $function:path) => {
            simd_fn! { fn $name(values: &mut [f32]) = $body; }
            #[inline(always)]
            unsafe fn $body<V: Lanes>(values: &mut [f32]) {
                for chunk in values.chunks_exact_mut(V::COUNT) {
                    // SAFETY: a chunk is one vector long.
                    unsafe { $function(V::load(chunk.as_ptr())).store(chunk.as_mut_ptr()) };
                }
            }
        };
    }
    over_slice!(exp_all, exp_body, exp);
    over_slice!(gelu_all, gelu_body, gelu);
    over_slice!(gelu_slope_all, gelu_slope_body, gelu_slope);

    /// Largest |function - truth| / (absolute + relative |truth|) over `from..to`.
    fn worst(all: fn(&mut [f32]), truth: fn(f64) -> f64, range: (f32, f32), absolute: f64, relative: f64) -> f64 {
        let count = 1 << 18;
        let inputs: Vec<f32> =
            (0..count).map(|i| range.0 + (range.1 - range.0) * (i as f32 / (count - 1) as f32)).collect();
        let mut values = inputs.clone();
        all(&mut values);
        inputs.iter().zip(&values).fold(0.0, |worst, (&input, &value)| {
            let truth = truth(f64::from(input));
            let error = (f64::from(value) - truth).abs() / (absolute + relative * truth.abs());
            assert!(!error.is_nan(), "{input}: {value}");
            worst.max(error)
        })
    }

    /// Q(t) for any t: the series of erf near 0, the continued fraction of the tail beyond.
    pub fn normal_cdf(x: f64) -> f64 {
        let t = x.abs();
        let density = (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let tail = if t < 3.0 {
            // Φ(t) - 1/2 = φ(t) (t + t³/3 + t⁵/(3·5) + ..)
            let (mut term, mut sum) = (t, t);
            for n in 1..80 {
                term *= t * t / f64::from(2 * n + 1);
                sum += term;
            }
            0.5 - density * sum
        } else {
            // Q(t) = φ(t) / (t + 1/(t + 2/(t + 3/(t + ..))))
            density / (1..120).rev().fold(t, |rest, n| t + f64::from(n) / rest)
        };
        if x < 0.0 { tail } else { 1.0 - tail }
    }

    fn normal_density(x: f64) -> f64 {
        (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
    }

    #[test]
    fn exp_is_within_two_units_of_the_last_place() {
        assert!(worst(exp_all, f64::exp, (-87.3, 88.7), 0.0, 2.4e-7) < 1.0);
        assert!(worst(exp_all, f64::exp, (-0.5, 0.5), 0.0, 1.5e-7) < 1.0);
    }

    #[test]
    fn gelu_and_its_slope_are_exact_and_their_tails_vanish() {
        let slope = |x: f64| normal_cdf(x) + x * normal_density(x);
        for range in [(-12.0, 12.0), (-1.0, 1.0), (-3.0, 0.0)] {
            assert!(worst(gelu_all, |x| x * normal_cdf(x), range, 2e-7, 1e-7) < 1.0);
            assert!(worst(gelu_slope_all, slope, range, 3e-7, 2e-7) < 1.0);
        }
        // Near 0, the relative error counts.
        assert!(worst(gelu_all, |x| x * normal_cdf(x), (-0.01, 0.01), 1e-20, 6e-7) < 1.0);
        assert!(worst(gelu_all, |x| x * normal_cdf(x), (-100.0, -6.0), 1e-8, 0.0) < 1.0);
    }

    #[test]
    fn special_values_give_what_the_formulas_say() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let inputs = [-inf, inf, nan, -1e30, 1e30, 0.0, -0.0, 88.8, -90.0, 1e-40, -1e-40, 1.0, -7.0, 7.0, 20.0, -20.0];
        let run = |all: fn(&mut [f32])| {
            let mut values = inputs;
            all(&mut values);
            values
        };
        let expected = |values: [f32; 16], wanted: [f32; 9]| {
            for (i, (value, wanted)) in values.iter().zip(wanted).enumerate() {
                assert!(*value == wanted || value.is_nan() && wanted.is_nan(), "{}: {value}", inputs[i]);
            }
        };
        expected(run(exp_all), [0.0, inf, nan, 0.0, inf, 1.0, 1.0, inf, 0.0]);
        let gelu = run(gelu_all);
        assert!(gelu[0].abs() < 1e-20 && gelu[1] == inf && gelu[2].is_nan());
        assert!(gelu[3].abs() < 1e-20 && gelu[4] == 1e30 && gelu[8].abs() < 1e-20 && gelu[12].abs() < 1e-9);
        let slope = run(gelu_slope_all);
        assert!(slope[0].abs() < 1e-20 && slope[1] == 1.0 && slope[2].is_nan() && slope[3].abs() < 1e-20);
    }
}
