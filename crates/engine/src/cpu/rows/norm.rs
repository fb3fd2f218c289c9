//! Layer norm and RMS norm of one row, and their gradients.

use super::super::simd::{Lanes, simd_fn};
use super::{Part, each_vector, each_vector_in_turn, sum_of_parts};

simd_fn! {
    /// `out = (x - mean) * inverse_deviation * gamma + beta`, with `inverse_deviation = 1/√(variance + eps)` and the
    /// biased variance. No gamma is 1, no beta 0. Returns (mean, inverse_deviation).
    pub fn layer_norm(
        x: &[f32], gamma: Option<&[f32]>, beta: Option<&[f32]>, eps: f32, out: &mut [f32],
    ) -> (f32, f32) = layer_norm_body;
}

simd_fn! {
    /// `out = x * inverse_rms * gamma`, with `inverse_rms = 1/√(mean of x² + eps)`, which it returns. No gamma is 1.
    pub fn rms_norm(x: &[f32], gamma: Option<&[f32]>, eps: f32, out: &mut [f32]) -> f32 = rms_norm_body;
}

simd_fn! {
    /// The gradient of [`layer_norm`]. With `n = (x - mean) * inverse_deviation` and `g = d_out * gamma`:
    /// `dx = inverse_deviation * (g - mean of g - n * mean of (g n))`; `d_out * n` is added to d_gamma and d_out to
    /// d_beta, where there are such.
    pub fn layer_norm_gradient(
        x: &[f32], gamma: Option<&[f32]>, mean: f32, inverse_deviation: f32, d_out: &[f32], dx: &mut [f32],
        d_gamma: Option<&mut [f32]>, d_beta: Option<&mut [f32]>,
    ) = layer_norm_gradient_body;
}

simd_fn! {
    /// The gradient of [`rms_norm`]. With `n = x * inverse_rms` and `g = d_out * gamma`:
    /// `dx = inverse_rms * (g - n * mean of (g n))`; `d_out * n` is added to d_gamma, if there is one.
    pub fn rms_norm_gradient(
        x: &[f32], gamma: Option<&[f32]>, inverse_rms: f32, d_out: &[f32], dx: &mut [f32],
        d_gamma: Option<&mut [f32]>,
    ) = rms_norm_gradient_body;
}

/// The pointer to an optional row, after a check of its length; null if there is none.
#[inline(always)]
fn start_of(row: Option<&[f32]>, length: usize) -> *const f32 {
    match row {
        Some(row) => {
            assert_eq!(row.len(), length);
            row.as_ptr()
        }
        None => std::ptr::null(),
    }
}

/// Like [`start_of`], for a row to add to.
#[inline(always)]
fn start_of_mut(row: Option<&mut [f32]>, length: usize) -> *mut f32 {
    match row {
        Some(row) => {
            assert_eq!(row.len(), length);
            row.as_mut_ptr()
        }
        None => std::ptr::null_mut(),
    }
}

#[inline(always)]
unsafe fn layer_norm_body<V: Lanes>(
    x: &[f32],
    gamma: Option<&[f32]>,
    beta: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) -> (f32, f32) {
    let length = x.len();
    assert_eq!(length, out.len());
    let (gamma, beta) = (start_of(gamma, length), start_of(beta, length));
    // SAFETY: every part lies inside the rows, whose lengths were checked.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, length, at, part, turn => {
            sums[turn] = sums[turn].add(part.load(x.as_ptr().add(at)));
        });
        let mean = sum_of_parts(sums) / length as f32;
        let variance = sum_squares_about::<V>(x, mean) / length as f32;
        let inverse_deviation = 1.0 / (variance + eps).sqrt();
        scale_and_shift::<V>(x, mean, inverse_deviation, gamma, beta, out);
        (mean, inverse_deviation)
    }
}

#[inline(always)]
unsafe fn rms_norm_body<V: Lanes>(x: &[f32], gamma: Option<&[f32]>, eps: f32, out: &mut [f32]) -> f32 {
    let length = x.len();
    assert_eq!(length, out.len());
    let gamma = start_of(gamma, length);
    // SAFETY: every part lies inside the rows, whose lengths were checked.
    unsafe {
        let inverse_rms = 1.0 / (sum_squares_about::<V>(x, 0.0) / length as f32 + eps).sqrt();
        scale_and_shift::<V>(x, 0.0, inverse_rms, gamma, std::ptr::null(), out);
        inverse_rms
    }
}

/// The sum of `(x - center)²`.
#[inline(always)]
unsafe fn sum_squares_about<V: Lanes>(x: &[f32], center: f32) -> f32 {
    // SAFETY: every part lies inside the row.
    unsafe {
        let center = V::splat(center);
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, x.len(), at, part, turn => {
            let away = part.load_or(x.as_ptr().add(at), center).sub(center);
            sums[turn] = away.mul_add(away, sums[turn]);
        });
        sum_of_parts(sums)
    }
}

/// `out = (x - center) * factor * gamma + beta`
///
/// # Safety
/// `gamma` and `beta` are null or as long as the row.
#[inline(always)]
unsafe fn scale_and_shift<V: Lanes>(
    x: &[f32],
    center: f32,
    factor: f32,
    gamma: *const f32,
    beta: *const f32,
    out: &mut [f32],
) {
    // SAFETY: every part lies inside the rows.
    unsafe {
        let (center, factor) = (V::splat(center), V::splat(factor));
        each_vector!(V, x.len(), at, part => {
            let mut value = part.load::<V>(x.as_ptr().add(at)).sub(center).mul(factor);
            // Both branches are constant for the row, so they are predicted or hoisted out of the loop.
            if !gamma.is_null() {
                value = value.mul(part.load(gamma.add(at)));
            }
            if !beta.is_null() {
                value = value.add(part.load(beta.add(at)));
            }
            part.store(value, out.as_mut_ptr().add(at));
        });
    }
}

/// `d_out * gamma` of one part.
#[inline(always)]
unsafe fn weighted<V: Lanes, P: Part>(part: P, d: V, gamma: *const f32, at: usize) -> V {
    // SAFETY: gamma is null or as long as the row the part is of.
    unsafe { if gamma.is_null() { d } else { d.mul(part.load(gamma.add(at))) } }
}

/// Adds `value` to one part of a sum, if there is such a sum.
#[inline(always)]
unsafe fn add_to<V: Lanes, P: Part>(part: P, value: V, sum: *mut f32, at: usize) {
    // SAFETY: the sum is null or as long as the row the part is of.
    unsafe {
        if !sum.is_null() {
            part.store(part.load::<V>(sum.add(at)).add(value), sum.add(at));
        }
    }
}

#[inline(always)]
unsafe fn layer_norm_gradient_body<V: Lanes>(
    x: &[f32],
    gamma: Option<&[f32]>,
    mean: f32,
    inverse_deviation: f32,
    d_out: &[f32],
    dx: &mut [f32],
    d_gamma: Option<&mut [f32]>,
    d_beta: Option<&mut [f32]>,
) {
    let length = x.len();
    assert!(length == d_out.len() && length == dx.len());
    let gamma = start_of(gamma, length);
    let (d_gamma, d_beta) = (start_of_mut(d_gamma, length), start_of_mut(d_beta, length));
    let (x, d_out, dx) = (x.as_ptr(), d_out.as_ptr(), dx.as_mut_ptr());
    // SAFETY: every part lies inside the rows, whose lengths were checked.
    unsafe {
        let (center, factor) = (V::splat(mean), V::splat(inverse_deviation));
        let (mut sums, mut products) = ([V::splat(0.0); 4], [V::splat(0.0); 4]);
        each_vector_in_turn!(V, length, at, part, turn => {
            let normal = part.load::<V>(x.add(at)).sub(center).mul(factor);
            // Beyond the row's end d is 0, and so is everything that is summed.
            let d = part.load::<V>(d_out.add(at));
            let g = weighted(part, d, gamma, at);
            sums[turn] = sums[turn].add(g);
            products[turn] = g.mul_add(normal, products[turn]);
            add_to(part, d.mul(normal), d_gamma, at);
            add_to(part, d, d_beta, at);
        });
        let mean_sum = V::splat(sum_of_parts(sums) / length as f32);
        let mean_product = V::splat(-sum_of_parts(products) / length as f32);
        each_vector!(V, length, at, part => {
            let normal = part.load::<V>(x.add(at)).sub(center).mul(factor);
            let g = weighted(part, part.load::<V>(d_out.add(at)), gamma, at);
            let value = normal.mul_add(mean_product, g.sub(mean_sum)).mul(factor);
            part.store(value, dx.add(at));
        });
    }
}

#[inline(always)]
unsafe fn rms_norm_gradient_body<V: Lanes>(
    x: &[f32],
    gamma: Option<&[f32]>,
    inverse_rms: f32,
    d_out: &[f32],
    dx: &mut [f32],
    d_gamma: Option<&mut [f32]>,
) {
    let length = x.len();
    assert!(length == d_out.len() && length == dx.len());
    let (gamma, d_gamma) = (start_of(gamma, length), start_of_mut(d_gamma, length));
    let (x, d_out, dx) = (x.as_ptr(), d_out.as_ptr(), dx.as_mut_ptr());
    // SAFETY: every part lies inside the rows, whose lengths were checked.
    unsafe {
        let factor = V::splat(inverse_rms);
        let mut products = [V::splat(0.0); 4];
        each_vector_in_turn!(V, length, at, part, turn => {
            let normal = part.load::<V>(x.add(at)).mul(factor);
            let d = part.load::<V>(d_out.add(at));
            products[turn] = weighted(part, d, gamma, at).mul_add(normal, products[turn]);
            add_to(part, d.mul(normal), d_gamma, at);
        });
        let mean_product = V::splat(-sum_of_parts(products) / length as f32);
        each_vector!(V, length, at, part => {
            let normal = part.load::<V>(x.add(at)).mul(factor);
            let g = weighted(part, part.load::<V>(d_out.add(at)), gamma, at);
            part.store(normal.mul_add(mean_product, g).mul(factor), dx.add(at));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    const EPS: f32 = 1e-3;

    /// The naive norm in f64, with (center, factor); RMS norm where `centered` is false.
    fn naive(x: &[f64], gamma: &[f64], beta: &[f64], centered: bool) -> (Vec<f64>, f64, f64) {
        let count = x.len() as f64;
        let center = if centered { x.iter().sum::<f64>() / count } else { 0.0 };
        let spread = x.iter().map(|x| (x - center).powi(2)).sum::<f64>() / count;
        let factor = 1.0 / (spread + f64::from(EPS)).sqrt();
        let out = (0..x.len()).map(|i| (x[i] - center) * factor * gamma[i] + beta[i]).collect();
        (out, center, factor)
    }

    /// A row off centre, as real activations are.
    fn row(length: usize) -> Vec<f32> {
        spread(1, length, 2.0).iter().map(|x| x + 0.7).collect()
    }

    fn close(value: f32, expected: f64) -> bool {
        (f64::from(value) - expected).abs() <= 1e-6 * (1.0 + expected.abs())
    }

    #[test]
    fn norms_agree_with_the_formulas() {
        for length in LENGTHS {
            let (x, gamma, beta) = (row(length), spread(2, length, 1.5), spread(3, length, 1.0));
            for (with_gamma, with_beta) in [(false, false), (false, true), (true, false), (true, true)] {
                let gammas = if with_gamma { wide(&gamma) } else { vec![1.0; length] };
                let betas = if with_beta { wide(&beta) } else { vec![0.0; length] };
                let (gamma, beta) = (with_gamma.then_some(&gamma[..]), with_beta.then_some(&beta[..]));
                let mut out = vec![f32::NAN; length];
                let (mean, inverse) = layer_norm(&x, gamma, beta, EPS, &mut out);
                let (expected, center, factor) = naive(&wide(&x), &gammas, &betas, true);
                // A row of one or two values has almost no variance: rounding errors are amplified by the factor.
                assert_close(&out, &expected, 1e-6 * factor.max(1.0), 1e-6);
                assert!(close(mean, center) && close(inverse, factor), "{length}: {mean} {inverse}");

                let mut out = vec![f32::NAN; length];
                let inverse = rms_norm(&x, gamma, EPS, &mut out);
                let (expected, _, factor) = naive(&wide(&x), &gammas, &vec![0.0; length], false);
                assert_close(&out, &expected, 1e-7, 1e-6);
                assert!(close(inverse, factor));
            }
        }
    }

    fn check_gradients(length: usize, with_gamma: bool, centered: bool) {
        let (x, gamma, d_out) = (row(length), spread(2, length, 1.5), spread(4, length, 1.0));
        let gammas = if with_gamma { wide(&gamma) } else { vec![1.0; length] };
        let zeros = vec![0.0; length];
        let (_, center, factor) = naive(&wide(&x), &gammas, &zeros, centered);
        let (d_wide, x_wide) = (wide(&d_out), wide(&x));
        let loss = |x: &[f64], gamma: &[f64], beta: &[f64]| -> f64 {
            naive(x, gamma, beta, centered).0.iter().zip(&d_wide).map(|(out, d)| out * d).sum()
        };
        let gamma = with_gamma.then_some(&gamma[..]);
        let mut dx = vec![f32::NAN; length];
        let (before_gamma, before_beta) = (spread(5, length, 1.0), spread(6, length, 1.0));
        let (mut d_gamma, mut d_beta) = (before_gamma.clone(), before_beta.clone());
        let (mean, inverse) = (center as f32, factor as f32);
        if centered {
            let sums = (Some(&mut d_gamma[..]), Some(&mut d_beta[..]));
            layer_norm_gradient(&x, gamma, mean, inverse, &d_out, &mut dx, sums.0, sums.1);
        } else {
            rms_norm_gradient(&x, gamma, inverse, &d_out, &mut dx, Some(&mut d_gamma));
        }
        // A row of one or two values has almost no variance: rounding errors are amplified by the factor.
        let slack = factor.max(1.0);
        let expected = numeric_gradient(&x_wide, |x| loss(x, &gammas, &zeros));
        assert_close(&dx, &expected, 2e-6 * slack * slack, 2e-6);
        let added = numeric_gradient(&gammas, |gamma| loss(&x_wide, gamma, &zeros));
        let expected: Vec<f64> = added.iter().zip(&before_gamma).map(|(a, &b)| a + f64::from(b)).collect();
        assert_close(&d_gamma, &expected, 1e-6 * slack, 1e-6);
        let share = if centered { 1.0 } else { 0.0 };
        let expected: Vec<f64> = d_wide.iter().zip(&before_beta).map(|(d, &b)| d * share + f64::from(b)).collect();
        assert_close(&d_beta, &expected, 1e-6, 1e-6);

        // dx does not depend on whether the sums are requested.
        let mut alone = vec![f32::NAN; length];
        if centered {
            layer_norm_gradient(&x, gamma, mean, inverse, &d_out, &mut alone, None, None);
        } else {
            rms_norm_gradient(&x, gamma, inverse, &d_out, &mut alone, None);
        }
        assert_eq!(dx, alone);
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        for length in LENGTHS {
            for with_gamma in [false, true] {
                check_gradients(length, with_gamma, true);
                check_gradients(length, with_gamma, false);
            }
        }
    }

    #[test]
    fn a_large_mean_costs_no_precision_and_extremes_do_no_harm() {
        let x: Vec<f32> = spread(1, 768, 1.0).iter().map(|x| x + 1000.0).collect();
        let mut out = vec![f32::NAN; 768];
        layer_norm(&x, None, None, EPS, &mut out);
        let (expected, ..) = naive(&wide(&x), &[1.0; 768], &[0.0; 768], true);
        // The mean of values near 1000 is only accurate to 3e-5; a variance as E[x²] - E[x]² would be off by 0.1.
        assert_close(&out, &expected, 3e-4, 1e-4);
        let mut out = [0.0; 8];
        layer_norm(&EXTREMES, None, None, EPS, &mut out);
        rms_norm(&EXTREMES, None, EPS, &mut out);
        layer_norm_gradient(&EXTREMES, None, 0.0, 1.0, &EXTREMES, &mut out, None, None);
    }
}
