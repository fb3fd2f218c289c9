//! The elementwise steps of attention on a block of scores.
//!
//! A block holds one row per key and one lane per query, so that everything a softmax does along the keys (maximum, sum)
//! is done by whole vectors and no lanes are ever added up. Scores are in units of log 2: the product's factor
//! contains log2(e), and the power is one of two.

use super::super::simd::{Lanes, ROUND_MAGIC, simd_fn};
use super::rows::PADDING;

/// Below this, a power of two is 0: one step below the smallest normal number, where the exponent bits are zero.
const POWER_UNDERFLOW: f32 = -127.0;

/// A block's shape: `keys` rows of `lanes` queries (a multiple of [`PADDING`]), without gaps.
#[derive(Clone, Copy)]
pub struct BlockShape {
    pub keys: usize,
    pub lanes: usize,
}

impl BlockShape {
    /// Number of values.
    pub fn floats(self) -> usize {
        self.keys * self.lanes
    }
}

/// The running state of the softmax per query.
pub struct Running<'a> {
    /// The largest score.
    pub maxima: &'a mut [f32],
    /// The sum of `2^(score - maximum)`.
    pub sums: &'a mut [f32],
    /// The factor that the last step applied to earlier sums, because the maximum grew.
    pub rescale: &'a mut [f32],
}

simd_fn! {
    /// Processes another block of scores and turns it into `2^(score - maximum)`.
    pub fn online_step(scores: &mut [f32], shape: BlockShape, running: &mut Running) = online_step_body;
}

simd_fn! {
    /// Turns running maxima and sums into the final values: natural logarithms of the sums (plus infinity for a query
    /// without keys), reciprocal sums in `sums` (0 for such a query), and maxima that can be subtracted.
    pub fn finish(running: &mut Running, log_sums: &mut [f32]) = finish_body;
}

simd_fn! {
    /// `score = 2^(score - maximum) * factor`, with maximum and factor per query.
    pub fn weigh(scores: &mut [f32], shape: BlockShape, maxima: &[f32], factors: &[f32]) = weigh_body;
}

simd_fn! {
    /// The backward step: weights `p = 2^(score - log_sum)`, dropped weights into `scores`, and `p * (dropped d_weight
    /// - delta)` into `d_weights`. `dropped` has the dropout factors, if any.
    pub fn backward_step(
        scores: &mut [f32],
        d_weights: &mut [f32],
        shape: BlockShape,
        log_sums: &[f32],
        deltas: &[f32],
        dropped: Option<&[f32]>,
    ) = backward_step_body;
}

simd_fn! {
    /// Like [`backward_step`], for a block with all keys that its queries attend to: then the deltas are the block's
    /// own sums of weights times dropped gradients.
    pub fn backward_whole(
        scores: &mut [f32],
        d_weights: &mut [f32],
        shape: BlockShape,
        log_sums: &[f32],
        dropped: Option<&[f32]>,
    ) = backward_whole_body;
}

simd_fn! {
    /// `values *= factors`, of one length that is a multiple of [`PADDING`].
    pub fn multiply(values: &mut [f32], factors: &[f32]) = multiply_body;
}

/// `2^x` for x up to 127: a polynomial on [-1/2, 1/2] (relative error below 2e-8 before rounding) times a power.
/// Minus infinity gives exactly 0, NaN stays NaN.
#[inline(always)]
unsafe fn power_of_two<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        // In `max` a NaN in the second operand is returned.
        let x = V::splat(POWER_UNDERFLOW).max(x);
        let magic = V::splat(ROUND_MAGIC);
        let whole = x.add(magic).sub(magic);
        let part = x.sub(whole);
        let p = V::splat(0.000_153_458_12);
        let p = p.mul_add(part, V::splat(0.001_339_993_1));
        let p = p.mul_add(part, V::splat(0.009_618_489));
        let p = p.mul_add(part, V::splat(0.055_503_286));
        let p = p.mul_add(part, V::splat(0.240_226_46));
        let p = p.mul_add(part, V::splat(std::f32::consts::LN_2));
        let p = p.mul_add(part, V::splat(1.0));
        p.mul(whole.pow2_whole())
    }
}

/// A maximum that can be subtracted: 0 instead of minus infinity if there was no key.
#[inline(always)]
unsafe fn subtractable<V: Lanes>(maximum: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe { maximum.select_less(V::splat(f32::MIN), V::splat(0.0), maximum) }
}

#[inline(always)]
unsafe fn online_step_body<V: Lanes>(scores: &mut [f32], shape: BlockShape, running: &mut Running) {
    let lanes = shape.lanes;
    assert!(lanes.is_multiple_of(PADDING) && shape.floats() <= scores.len());
    assert!(lanes <= running.maxima.len() && lanes <= running.sums.len() && lanes <= running.rescale.len());
    let mut lane = 0;
    while lane < lanes {
        // SAFETY: whole vectors inside the slices by the checks above.
        unsafe {
            if lanes - lane >= 4 * V::COUNT {
                online_columns::<V, 4>(scores.as_mut_ptr(), shape, lane, running);
                lane += 4 * V::COUNT;
            } else {
                online_columns::<V, 1>(scores.as_mut_ptr(), shape, lane, running);
                lane += V::COUNT;
            }
        }
    }
}

#[inline(always)]
unsafe fn online_columns<V: Lanes, const N: usize>(
    scores: *mut f32,
    shape: BlockShape,
    lane: usize,
    running: &mut Running,
) {
    // SAFETY: the caller vouches for N vectors from `lane` on in each row and in each of `running`.
    unsafe {
        let (maxima, sums) = (running.maxima.as_mut_ptr().add(lane), running.sums.as_mut_ptr().add(lane));
        let rescale = running.rescale.as_mut_ptr().add(lane);
        let mut maximum = [V::splat(0.0); N];
        for n in 0..N {
            maximum[n] = V::load(maxima.add(n * V::COUNT));
        }
        let mut row = scores.add(lane);
        for _ in 0..shape.keys {
            for n in 0..N {
                maximum[n] = maximum[n].max(V::load(row.add(n * V::COUNT)));
            }
            row = row.wrapping_add(shape.lanes);
        }
        let mut shift = [V::splat(0.0); N];
        let mut sum = [V::splat(0.0); N];
        for n in 0..N {
            shift[n] = subtractable(maximum[n]);
            let grown = power_of_two(V::load(maxima.add(n * V::COUNT)).sub(shift[n]));
            grown.store(rescale.add(n * V::COUNT));
            sum[n] = V::load(sums.add(n * V::COUNT)).mul(grown);
            maximum[n].store(maxima.add(n * V::COUNT));
        }
        let mut row = scores.add(lane);
        for _ in 0..shape.keys {
            for n in 0..N {
                let power = power_of_two(V::load(row.add(n * V::COUNT)).sub(shift[n]));
                power.store(row.add(n * V::COUNT));
                sum[n] = sum[n].add(power);
            }
            row = row.wrapping_add(shape.lanes);
        }
        for n in 0..N {
            sum[n].store(sums.add(n * V::COUNT));
        }
    }
}

/// log2 of a positive normal number, accurate to about 1e-7: the exponent, and a series in (m - 1) / (m + 1) for the
/// mantissa m between 0.7 and 1.4. Written for single values; the loop that calls it is vectorised.
#[inline(always)]
fn log2(x: f32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
    let exponent = (x.to_bits().wrapping_sub(SQRT_HALF_BITS) as i32) >> 23;
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub((exponent as u32) << 23));
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = 1.0 + square * (1.0 / 3.0 + square * (0.2 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    exponent as f32 + t * series * (2.0 * std::f32::consts::LOG2_E)
}

#[inline(always)]
unsafe fn finish_body<V: Lanes>(running: &mut Running, log_sums: &mut [f32]) {
    let count = log_sums.len();
    let (maxima, sums) = (&mut running.maxima[..count], &mut running.sums[..count]);
    for i in 0..count {
        let (maximum, sum) = (maxima[i], sums[i]);
        let empty = sum == 0.0;
        // A sum that is infinite or not a number stays what it is.
        let log = if sum < f32::MAX { (maximum + log2(sum)) * std::f32::consts::LN_2 } else { sum };
        log_sums[i] = if empty { f32::INFINITY } else { log };
        sums[i] = if empty { 0.0 } else { 1.0 / sum };
        maxima[i] = if maximum < f32::MIN { 0.0 } else { maximum };
    }
}

#[inline(always)]
unsafe fn weigh_body<V: Lanes>(scores: &mut [f32], shape: BlockShape, maxima: &[f32], factors: &[f32]) {
    let lanes = shape.lanes;
    assert!(lanes.is_multiple_of(PADDING) && lanes <= maxima.len() && lanes <= factors.len());
    for row in scores[..shape.floats()].chunks_exact_mut(lanes) {
        let mut lane = 0;
        while lane < lanes {
            // SAFETY: `lanes` is a whole number of vectors, inside all three.
            unsafe {
                let place = row.as_mut_ptr().add(lane);
                let power = power_of_two(V::load(place).sub(V::load(maxima.as_ptr().add(lane))));
                power.mul(V::load(factors.as_ptr().add(lane))).store(place);
            }
            lane += V::COUNT;
        }
    }
}

#[inline(always)]
unsafe fn backward_step_body<V: Lanes>(
    scores: &mut [f32],
    d_weights: &mut [f32],
    shape: BlockShape,
    log_sums: &[f32],
    deltas: &[f32],
    dropped: Option<&[f32]>,
) {
    let (lanes, floats) = (shape.lanes, shape.floats());
    assert!(lanes.is_multiple_of(PADDING) && lanes <= log_sums.len() && lanes <= deltas.len());
    assert!(floats <= scores.len() && floats <= d_weights.len());
    assert!(dropped.is_none_or(|dropped| floats <= dropped.len()));
    let (scores, d_weights) = (scores.as_mut_ptr(), d_weights.as_mut_ptr());
    let mut lane = 0;
    while lane < lanes {
        // SAFETY: whole vectors from `lane` on, inside all slices by the checks above.
        unsafe {
            let log_sum = V::load(log_sums.as_ptr().add(lane));
            let delta = V::load(deltas.as_ptr().add(lane));
            let mut at = lane;
            while at < floats {
                let power = power_of_two(V::load(scores.add(at)).sub(log_sum));
                let d_weight = V::load(d_weights.add(at));
                if let Some(dropped) = dropped {
                    let factor = V::load(dropped.as_ptr().add(at));
                    power.mul(factor).store(scores.add(at));
                    power.mul(factor.mul(d_weight).sub(delta)).store(d_weights.add(at));
                } else {
                    power.store(scores.add(at));
                    power.mul(d_weight.sub(delta)).store(d_weights.add(at));
                }
                at += lanes;
            }
        }
        lane += V::COUNT;
    }
}

#[inline(always)]
unsafe fn backward_whole_body<V: Lanes>(
    scores: &mut [f32],
    d_weights: &mut [f32],
    shape: BlockShape,
    log_sums: &[f32],
    dropped: Option<&[f32]>,
) {
    let (lanes, floats) = (shape.lanes, shape.floats());
    assert!(lanes.is_multiple_of(PADDING) && lanes <= log_sums.len());
    assert!(floats <= scores.len() && floats <= d_weights.len());
    if let Some(dropped) = dropped {
        // The dropped gradients replace the gradients first, and the dropped weights replace the weights last.
        multiply(&mut d_weights[..floats], &dropped[..floats]);
    }
    let (weights, gradients) = (scores.as_mut_ptr(), d_weights.as_mut_ptr());
    let mut lane = 0;
    while lane < lanes {
        // SAFETY: whole vectors from `lane` on, inside all slices by the checks above.
        unsafe {
            let log_sum = V::load(log_sums.as_ptr().add(lane));
            let mut delta = V::splat(0.0);
            let mut at = lane;
            while at < floats {
                let power = power_of_two(V::load(weights.add(at)).sub(log_sum));
                delta = power.mul_add(V::load(gradients.add(at)), delta);
                power.store(weights.add(at));
                at += lanes;
            }
            let mut at = lane;
            while at < floats {
                let difference = V::load(gradients.add(at)).sub(delta);
                V::load(weights.add(at)).mul(difference).store(gradients.add(at));
                at += lanes;
            }
        }
        lane += V::COUNT;
    }
    if let Some(dropped) = dropped {
        multiply(&mut scores[..floats], &dropped[..floats]);
    }
}

#[inline(always)]
unsafe fn multiply_body<V: Lanes>(values: &mut [f32], factors: &[f32]) {
    assert!(values.len() == factors.len() && values.len().is_multiple_of(PADDING));
    let mut i = 0;
    while i < values.len() {
        // SAFETY: both are the same whole number of vectors long.
        unsafe {
            let place = values.as_mut_ptr().add(i);
            V::load(place).mul(V::load(factors.as_ptr().add(i))).store(place);
        }
        i += V::COUNT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_and_logarithms_are_accurate() {
        let mut scores: Vec<f32> = (0..16_000).map(|i| -(i as f32) * 0.0079).collect();
        scores[..4].copy_from_slice(&[0.0, f32::NEG_INFINITY, -1.0, -1000.0]);
        let before = scores.clone();
        let shape = BlockShape { keys: 1000, lanes: 16 };
        weigh(&mut scores, shape, &[0.0; 16], &[1.0; 16]);
        for (score, power) in before.iter().zip(&scores) {
            let expected = f64::from(*score).exp2();
            // Below the smallest normal number the result is 0.
            assert!(
                (f64::from(*power) - expected).abs() <= 2e-7 * expected + 1.2e-38,
                "{score}: {power}, not {expected}"
            );
        }
        for i in 1..2000 {
            let x = i as f32 * 0.37;
            assert!((f64::from(log2(x)) - f64::from(x).log2()).abs() < 1e-6, "{x}");
        }
    }
}
