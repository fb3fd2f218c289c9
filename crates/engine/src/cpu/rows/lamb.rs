//! A LAMB step over flat ranges of a parameter, in two passes: the norm of the whole update must be known before
//! parameters change.

use super::super::simd::{Lanes, simd_fn};
use super::{Part, each_vector, each_vector_in_turn, sum_of_parts};

/// One step of LAMB. The settings are f64 because `1 - beta` of an f32 0.999 is off by 1e-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LambStep {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// Weight decay, as part of the update.
    pub decay: f64,
    /// `1 - beta1^step`, for steps from 1.
    pub bias_correction1: f64,
    /// `1 - beta2^step`, for steps from 1.
    pub bias_correction2: f64,
    /// Factor of the gradients: clipping and averaging.
    pub gradient_factor: f64,
}

simd_fn! {
    /// Updates the moments, `m += (1 - beta1) (g - m)`, `v = beta2 v + (1 - beta2) g²`, and returns the sums of squares
    /// of the parameters and of their updates, always summed in the same order. All slices have equal length.
    pub fn lamb_moments(p: &[f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: &LambStep) -> (f64, f64) =
        lamb_moments_body;
}

simd_fn! {
    /// Updates the parameters: `p -= rate * u`. All slices have equal length.
    pub fn lamb_move(p: &mut [f32], m: &[f32], v: &[f32], step: &LambStep, rate: f64) = lamb_move_body;
}

/// Values whose squares are summed in f32 before the sum goes to f64.
const BLOCK: usize = 1024;

/// The fields of [`LambStep`] that an update needs, in every lane.
#[derive(Clone, Copy)]
struct UpdateLanes<V> {
    mean_factor: V,
    root_factor: V,
    eps: V,
    decay: V,
}

impl<V: Lanes> UpdateLanes<V> {
    #[inline(always)]
    unsafe fn new(step: &LambStep) -> Self {
        // SAFETY: the caller guarantees the instruction set.
        unsafe {
            UpdateLanes {
                mean_factor: V::splat((1.0 / step.bias_correction1) as f32),
                root_factor: V::splat((1.0 / step.bias_correction2.sqrt()) as f32),
                eps: V::splat(step.eps as f32),
                decay: V::splat(step.decay as f32),
            }
        }
    }

    /// `u = m̂ / (√v̂ + eps) + decay p`. Past a row's end, where all are 0, it is 0.
    #[inline(always)]
    unsafe fn update(&self, p: V, m: V, v: V) -> V {
        // SAFETY: arithmetic only; the caller guarantees the instruction set.
        unsafe {
            let adam = m.mul(self.mean_factor).div(v.sqrt().mul_add(self.root_factor, self.eps));
            p.mul_add(self.decay, adam)
        }
    }
}

#[inline(always)]
unsafe fn lamb_moments_body<V: Lanes>(
    p: &[f32],
    g: &[f32],
    m: &mut [f32],
    v: &mut [f32],
    step: &LambStep,
) -> (f64, f64) {
    let length = p.len();
    assert!(length == g.len() && length == m.len() && length == v.len());
    let (mut parameters, mut updates) = (0.0, 0.0);
    let mut start = 0;
    while start < length {
        let block = BLOCK.min(length - start);
        // SAFETY: every part lies inside the block, and the block inside the slices, whose lengths were checked.
        unsafe {
            let (p, g) = (p.as_ptr().add(start), g.as_ptr().add(start));
            let (m, v) = (m.as_mut_ptr().add(start), v.as_mut_ptr().add(start));
            let lanes = UpdateLanes::<V>::new(step);
            let factor = V::splat(step.gradient_factor as f32);
            let new1 = V::splat((1.0 - step.beta1) as f32);
            let (old2, new2) = (V::splat(step.beta2 as f32), V::splat((1.0 - step.beta2) as f32));
            let mut of_parameters = [V::splat(0.0); 4];
            let mut of_updates = [V::splat(0.0); 4];
            each_vector_in_turn!(V, block, at, part, turn => {
                let value = part.load::<V>(p.add(at));
                let gradient = part.load::<V>(g.add(at)).mul(factor);
                let old = part.load::<V>(m.add(at));
                let mean = gradient.sub(old).mul_add(new1, old);
                let square = gradient.mul(gradient).mul_add(new2, part.load::<V>(v.add(at)).mul(old2));
                part.store(mean, m.add(at));
                part.store(square, v.add(at));
                let update = lanes.update(value, mean, square);
                of_parameters[turn] = value.mul_add(value, of_parameters[turn]);
                of_updates[turn] = update.mul_add(update, of_updates[turn]);
            });
            parameters += f64::from(sum_of_parts(of_parameters));
            updates += f64::from(sum_of_parts(of_updates));
        }
        start += block;
    }
    (parameters, updates)
}

#[inline(always)]
unsafe fn lamb_move_body<V: Lanes>(p: &mut [f32], m: &[f32], v: &[f32], step: &LambStep, rate: f64) {
    let length = p.len();
    assert!(length == m.len() && length == v.len());
    let (p, m, v) = (p.as_mut_ptr(), m.as_ptr(), v.as_ptr());
    // SAFETY: every part lies inside the slices, whose lengths were checked.
    unsafe {
        let lanes = UpdateLanes::<V>::new(step);
        let rate = V::splat(-rate as f32);
        each_vector!(V, length, at, part => {
            let value = part.load::<V>(p.add(at));
            let update = lanes.update(value, part.load(m.add(at)), part.load(v.add(at)));
            part.store(update.mul_add(rate, value), p.add(at));
        });
    }
}
