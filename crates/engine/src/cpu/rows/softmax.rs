//! Softmax, cross-entropy and their gradients, one row at a time.

use super::super::math::exp;
use super::super::simd::{Lanes, simd_fn};
use super::{Part, each_vector, each_vector_in_turn, sum_of_parts};

simd_fn! {
    /// `e^(x - max) / sum of e^(x - max)`, in place. A row in which every element is minus infinity gives zeros.
    pub fn softmax(values: &mut [f32]) = softmax_body;
}

simd_fn! {
    /// The gradient of [`softmax`]: with the weights w it returned, `dw` becomes `w * (dw - sum of w dw)`.
    pub fn softmax_gradient(weights: &[f32], d_weights_to_dx: &mut [f32]) = softmax_gradient_body;
}

simd_fn! {
    /// `max + ln(sum of e^(x - max))`
    pub fn log_sum_exp(x: &[f32]) -> f32 = log_sum_exp_body;
}

simd_fn! {
    /// Cross-entropy with one class as target, as PyTorch defines its smoothing:
    /// `(1 - smoothing) * -ln p[target] + smoothing * mean over classes of -ln p`. `log_sum` is the row's
    /// [`log_sum_exp`], so that `-ln p = log_sum - logit`.
    pub fn cross_entropy_hard(logits: &[f32], target: usize, smoothing: f32, log_sum: f32) -> f32 =
        cross_entropy_hard_body;
}

simd_fn! {
    /// Cross-entropy with a distribution as target: `sum of t' * -ln p`, `t' = t * (1 - smoothing) + smoothing /
    /// classes`.
    pub fn cross_entropy_soft(logits: &[f32], targets: &[f32], smoothing: f32, log_sum: f32) -> f32 =
        cross_entropy_soft_body;
}

simd_fn! {
    /// The gradient of [`cross_entropy_hard`] times a factor: `out = factor * (p * (1 + z_slope) - t')` with the smoothed one-hot t'.
    /// `z_slope` is the derivative of the z-loss by the log-sum.
    pub fn cross_entropy_hard_gradient(
        logits: &[f32], target: usize, smoothing: f32, log_sum: f32, z_slope: f32, factor: f32, out: &mut [f32],
    ) = cross_entropy_hard_gradient_body;
}

simd_fn! {
    /// The gradient of [`cross_entropy_soft`] times a factor: `out = factor * (p * (sum of t' + z_slope) - t')`.
    pub fn cross_entropy_soft_gradient(
        logits: &[f32], targets: &[f32], smoothing: f32, log_sum: f32, z_slope: f32, factor: f32, out: &mut [f32],
    ) = cross_entropy_soft_gradient_body;
}

/// The largest value of a row. NaN may be lost.
#[inline(always)]
unsafe fn largest<V: Lanes>(x: &[f32]) -> f32 {
    // SAFETY: every part lies inside the row.
    unsafe {
        let lowest = V::splat(f32::NEG_INFINITY);
        let mut parts = [lowest; 4];
        each_vector_in_turn!(V, x.len(), at, part, turn => {
            parts[turn] = parts[turn].max(part.load_or(x.as_ptr().add(at), lowest));
        });
        parts[0].max(parts[2]).max(parts[1].max(parts[3])).max_lane()
    }
}

#[inline(always)]
unsafe fn softmax_body<V: Lanes>(values: &mut [f32]) {
    // SAFETY: every part lies inside the row.
    unsafe {
        let max = largest::<V>(values);
        let (start, length) = (values.as_mut_ptr(), values.len());
        if max == f32::NEG_INFINITY {
            for value in values {
                *value = if value.is_nan() { f32::NAN } else { 0.0 };
            }
            return;
        }
        let (max, lowest) = (V::splat(max), V::splat(f32::NEG_INFINITY));
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, length, at, part, turn => {
            let value = exp(part.load_or(start.add(at), lowest).sub(max));
            sums[turn] = sums[turn].add(value);
            part.store(value, start.add(at));
        });
        let factor = V::splat(1.0 / sum_of_parts(sums));
        each_vector!(V, length, at, part => {
            part.store(part.load::<V>(start.add(at)).mul(factor), start.add(at));
        });
    }
}

#[inline(always)]
unsafe fn softmax_gradient_body<V: Lanes>(weights: &[f32], d_weights_to_dx: &mut [f32]) {
    assert_eq!(weights.len(), d_weights_to_dx.len());
    let (weights, gradient, length) = (weights.as_ptr(), d_weights_to_dx.as_mut_ptr(), weights.len());
    // SAFETY: every part lies inside both rows.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, length, at, part, turn => {
            sums[turn] = part.load::<V>(weights.add(at)).mul_add(part.load(gradient.add(at)), sums[turn]);
        });
        let mean = V::splat(sum_of_parts(sums));
        each_vector!(V, length, at, part => {
            let value = part.load::<V>(gradient.add(at)).sub(mean).mul(part.load(weights.add(at)));
            part.store(value, gradient.add(at));
        });
    }
}

#[inline(always)]
unsafe fn log_sum_exp_body<V: Lanes>(x: &[f32]) -> f32 {
    // SAFETY: every part lies inside the row.
    unsafe {
        let max = largest::<V>(x);
        if max == f32::NEG_INFINITY {
            // All minus infinity, except for NaN, which `largest` may lose: the sum restores it.
            return x.iter().fold(f32::NEG_INFINITY, |sum, value| sum + value);
        }
        let (base, lowest) = (V::splat(max), V::splat(f32::NEG_INFINITY));
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, x.len(), at, part, turn => {
            sums[turn] = sums[turn].add(exp(part.load_or(x.as_ptr().add(at), lowest).sub(base)));
        });
        max + sum_of_parts(sums).ln()
    }
}

#[inline(always)]
unsafe fn cross_entropy_hard_body<V: Lanes>(logits: &[f32], target: usize, smoothing: f32, log_sum: f32) -> f32 {
    let surprise = log_sum - logits[target];
    if smoothing == 0.0 {
        // A class with logit minus infinity must not turn the loss into infinity times zero.
        return surprise;
    }
    // SAFETY: every part lies inside the row.
    let total = unsafe {
        let base = V::splat(log_sum);
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, logits.len(), at, part, turn => {
            sums[turn] = sums[turn].add(base.sub(part.load_or(logits.as_ptr().add(at), base)));
        });
        sum_of_parts(sums)
    };
    (1.0 - smoothing) * surprise + smoothing * (total / logits.len() as f32)
}

#[inline(always)]
unsafe fn cross_entropy_soft_body<V: Lanes>(logits: &[f32], targets: &[f32], smoothing: f32, log_sum: f32) -> f32 {
    assert_eq!(logits.len(), targets.len());
    // SAFETY: every part lies inside both rows.
    unsafe {
        let (keep, share) = (V::splat(1.0 - smoothing), V::splat(smoothing / logits.len() as f32));
        let base = V::splat(log_sum);
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, logits.len(), at, part, turn => {
            // Beyond the row's end the term is 0, and so is what is summed.
            let surprise = base.sub(part.load_or(logits.as_ptr().add(at), base));
            let target = part.load::<V>(targets.as_ptr().add(at)).mul_add(keep, share);
            sums[turn] = target.mul_add(surprise, sums[turn]);
        });
        sum_of_parts(sums)
    }
}

#[inline(always)]
unsafe fn cross_entropy_hard_gradient_body<V: Lanes>(
    logits: &[f32],
    target: usize,
    smoothing: f32,
    log_sum: f32,
    z_slope: f32,
    factor: f32,
    out: &mut [f32],
) {
    assert_eq!(logits.len(), out.len());
    let share = smoothing / logits.len() as f32;
    // SAFETY: every part lies inside both rows.
    unsafe {
        let (base, by, share) = (V::splat(log_sum), V::splat(factor), V::splat(share));
        let total = V::splat(1.0 + z_slope);
        each_vector!(V, logits.len(), at, part => {
            let p = exp(part.load::<V>(logits.as_ptr().add(at)).sub(base));
            part.store(p.mul(total).sub(share).mul(by), out.as_mut_ptr().add(at));
        });
    }
    // Recomputed as `(p - share) - (1 - smoothing)`: the target's value is a difference of numbers near 1.
    let p = (logits[target] - log_sum).exp();
    out[target] = factor * ((p - 1.0) + p * z_slope + smoothing - share);
}

#[inline(always)]
unsafe fn cross_entropy_soft_gradient_body<V: Lanes>(
    logits: &[f32],
    targets: &[f32],
    smoothing: f32,
    log_sum: f32,
    z_slope: f32,
    factor: f32,
    out: &mut [f32],
) {
    let length = logits.len();
    assert!(length == targets.len() && length == out.len());
    let (logits, targets, out) = (logits.as_ptr(), targets.as_ptr(), out.as_mut_ptr());
    // SAFETY: every part lies inside the rows.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        each_vector_in_turn!(V, length, at, part, turn => {
            sums[turn] = sums[turn].add(part.load(targets.add(at)));
        });
        let total = V::splat(sum_of_parts(sums) * (1.0 - smoothing) + smoothing + z_slope);
        let (keep, share) = (V::splat(1.0 - smoothing), V::splat(smoothing / length as f32));
        let (base, by) = (V::splat(log_sum), V::splat(factor));
        each_vector!(V, length, at, part => {
            let p = exp(part.load::<V>(logits.add(at)).sub(base));
            let target = part.load::<V>(targets.add(at)).mul_add(keep, share);
            part.store(p.mul(total).sub(target).mul(by), out.add(at));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    const SMOOTHINGS: [f32; 3] = [0.0, 0.1, 1.0];

    fn naive_log_sum(x: &[f64]) -> f64 {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
    }

    fn naive_softmax(x: &[f64]) -> Vec<f64> {
        let log_sum = naive_log_sum(x);
        x.iter().map(|x| (x - log_sum).exp()).collect()
    }

    fn smoothed(targets: &[f64], smoothing: f32) -> Vec<f64> {
        let smoothing = f64::from(smoothing);
        targets.iter().map(|t| t * (1.0 - smoothing) + smoothing / targets.len() as f64).collect()
    }

    fn naive_cross_entropy(x: &[f64], targets: &[f64], smoothing: f32) -> f64 {
        let log_sum = naive_log_sum(x);
        smoothed(targets, smoothing).iter().zip(x).map(|(t, x)| t * (log_sum - x)).sum()
    }

    #[test]
    fn softmax_and_its_gradient_agree_with_the_formulas() {
        for length in LENGTHS {
            for size in [1.0, 30.0] {
                let x = spread(1, length, size);
                let mut weights = x.clone();
                softmax(&mut weights);
                assert_close(&weights, &naive_softmax(&wide(&x)), 1e-37, 4e-6);
                let d = spread(2, length, 1.0);
                let mut dx = d.clone();
                softmax_gradient(&weights, &mut dx);
                let loss = |x: &[f64]| naive_softmax(x).iter().zip(wide(&d)).map(|(w, d)| w * d).sum::<f64>();
                assert_close(&dx, &numeric_gradient(&wide(&x), loss), 1e-6, 1e-6);
                let log_sum = naive_log_sum(&wide(&x));
                assert_close(&[log_sum_exp(&x)], &[log_sum], 1e-6, 3e-7);
            }
        }
    }

    #[test]
    fn masked_and_extreme_rows() {
        let low = f32::NEG_INFINITY;
        for length in LENGTHS {
            let mut row = vec![low; length];
            softmax(&mut row);
            assert_eq!(row, vec![0.0; length]);
            assert_eq!(log_sum_exp(&vec![low; length]), low);
            let mut row = vec![low; length];
            row[length / 2] = -1e30;
            assert_eq!(log_sum_exp(&row), -1e30);
            softmax(&mut row);
            assert!(row.iter().enumerate().all(|(i, &w)| w == if i == length / 2 { 1.0 } else { 0.0 }));
            row[length / 2] = f32::NAN;
            assert!(log_sum_exp(&row).is_nan());
            softmax(&mut row);
            assert!(row[length / 2].is_nan());
        }
        let mut row = [1e30, -1e30, 1e30, 0.0];
        softmax(&mut row);
        assert_eq!(row, [0.5, 0.0, 0.5, 0.0]);
        let mut row = EXTREMES;
        softmax(&mut row);
        assert!(row.iter().any(|w| w.is_nan()));
        softmax_gradient(&EXTREMES, &mut row);
        cross_entropy_soft_gradient(&EXTREMES, &EXTREMES, 0.1, 0.0, 0.0, 1.0, &mut row);
    }

    #[test]
    fn cross_entropy_of_a_class_agrees_with_the_formulas() {
        for length in LENGTHS {
            for smoothing in SMOOTHINGS {
                let x = spread(1, length, 6.0);
                let target = length * 2 / 3;
                let mut targets = vec![0.0; length];
                targets[target] = 1.0;
                let log_sum = log_sum_exp(&x);
                let loss = cross_entropy_hard(&x, target, smoothing, log_sum);
                assert_close(&[loss], &[naive_cross_entropy(&wide(&x), &targets, smoothing)], 1e-6, 1e-6);
                let mut out = vec![f32::NAN; length];
                cross_entropy_hard_gradient(&x, target, smoothing, log_sum, 0.2 * log_sum, 0.5, &mut out);
                let z_loss = |x: &[f64]| 0.1 * naive_log_sum(x).powi(2);
                let half = |x: &[f64]| 0.5 * (naive_cross_entropy(x, &targets, smoothing) + z_loss(x));
                assert_close(&out, &numeric_gradient(&wide(&x), half), 1e-6, 1e-6);
            }
        }
        assert_eq!(cross_entropy_hard(&[1.0, f32::NEG_INFINITY], 0, 0.0, 1.0), 0.0);
    }

    #[test]
    fn cross_entropy_of_shares_agrees_with_the_formulas() {
        for length in LENGTHS {
            for smoothing in SMOOTHINGS {
                let x = spread(1, length, 6.0);
                // Weights that do not sum to 1.
                let targets: Vec<f32> = spread(2, length, 1.0).iter().map(|t| t.abs() / length as f32 * 3.0).collect();
                let log_sum = log_sum_exp(&x);
                let loss = cross_entropy_soft(&x, &targets, smoothing, log_sum);
                assert_close(&[loss], &[naive_cross_entropy(&wide(&x), &wide(&targets), smoothing)], 1e-6, 1e-6);
                let mut out = vec![f32::NAN; length];
                cross_entropy_soft_gradient(&x, &targets, smoothing, log_sum, 0.2 * log_sum, 2.0, &mut out);
                let z_loss = |x: &[f64]| 0.1 * naive_log_sum(x).powi(2);
                let twice = |x: &[f64]| 2.0 * (naive_cross_entropy(x, &wide(&targets), smoothing) + z_loss(x));
                assert_close(&out, &numeric_gradient(&wide(&x), twice), 2e-6, 1e-6);
            }
        }
    }
}
