//! Optimizer steps over flat ranges of parameters: one pass over memory per parameter.

use super::super::simd::{Lanes, simd_fn};
use super::{Part, each_vector};

/// One step of AdamW. The settings are f64 because `1 - beta` of an f32 0.999 is off by 1e-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamwStep {
    /// The learning rate.
    pub rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// Decoupled weight decay.
    pub decay: f64,
    /// `1 - beta1^step`, for steps from 1.
    pub bias_correction1: f64,
    /// `1 - beta2^step`, for steps from 1.
    pub bias_correction2: f64,
    /// Factor of the gradients: clipping and averaging.
    pub gradient_factor: f64,
}

/// One step of SGD with momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// The learning rate.
    pub rate: f64,
    /// Momentum; 0 for none.
    pub momentum: f64,
    /// Weight decay, as part of the gradient.
    pub decay: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Whether there is no velocity yet.
    pub first_step: bool,
    /// Factor of the gradients: clipping and averaging.
    pub gradient_factor: f64,
}

simd_fn! {
    /// `torch.optim.AdamW`: `p *= 1 - rate decay`, `m += (1 - beta1) (g - m)`, `v = beta2 v + (1 - beta2) g²`,
    /// `p -= rate / bias_correction1 * m / (√v / √bias_correction2 + eps)`. All slices have equal length.
    pub fn adamw(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: &AdamwStep) = adamw_body;
}

simd_fn! {
    /// `torch.optim.SGD` without dampening: `g += decay p`, `velocity = momentum velocity + g` (g alone in the first
    /// step), `p -= rate velocity`, or `p -= rate (g + momentum velocity)` with Nesterov. Without momentum the
    /// velocity is not touched and may be empty.
    pub fn sgd(p: &mut [f32], g: &[f32], velocity: &mut [f32], step: &SgdStep) = sgd_body;
}

simd_fn! {
    /// `average = decay * average + (1 - decay) * p`, as `average += (1 - decay) (p - average)`.
    pub fn ema(average: &mut [f32], p: &[f32], decay: f64) = ema_body;
}

/// The fields of [`AdamwStep`] in every lane.
#[derive(Clone, Copy)]
struct AdamwLanes<V> {
    gradient_factor: V,
    keep: V,
    new1: V,
    old2: V,
    new2: V,
    stride: V,
    root_factor: V,
    eps: V,
}

impl<V: Lanes> AdamwLanes<V> {
    #[inline(always)]
    unsafe fn new(step: &AdamwStep) -> Self {
        // SAFETY: the caller guarantees the instruction set.
        unsafe {
            AdamwLanes {
                gradient_factor: V::splat(step.gradient_factor as f32),
                keep: V::splat((1.0 - step.rate * step.decay) as f32),
                new1: V::splat((1.0 - step.beta1) as f32),
                old2: V::splat(step.beta2 as f32),
                new2: V::splat((1.0 - step.beta2) as f32),
                stride: V::splat((-step.rate / step.bias_correction1) as f32),
                root_factor: V::splat((1.0 / step.bias_correction2.sqrt()) as f32),
                eps: V::splat(step.eps as f32),
            }
        }
    }

    /// The new (p, m, v).
    #[inline(always)]
    unsafe fn update(&self, p: V, g: V, m: V, v: V) -> (V, V, V) {
        // SAFETY: arithmetic only; the caller guarantees the instruction set.
        unsafe {
            let gradient = g.mul(self.gradient_factor);
            let mean = gradient.sub(m).mul_add(self.new1, m);
            let square = gradient.mul(gradient).mul_add(self.new2, v.mul(self.old2));
            let moved = mean.mul(self.stride).div(square.sqrt().mul_add(self.root_factor, self.eps));
            (p.mul_add(self.keep, moved), mean, square)
        }
    }
}

/// Consecutive vectors read per buffer before the next one: memory prefers longer runs.
const RUN: usize = 4;

#[inline(always)]
unsafe fn adamw_body<V: Lanes>(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: &AdamwStep) {
    let length = p.len();
    assert!(length == g.len() && length == m.len() && length == v.len());
    let (p, g, m, v) = (p.as_mut_ptr(), g.as_ptr(), m.as_mut_ptr(), v.as_mut_ptr());
    // SAFETY: every part lies inside the slices, whose lengths were checked.
    unsafe {
        let lanes = AdamwLanes::<V>::new(step);
        let mut at = 0;
        while at + RUN * V::COUNT <= length {
            let (mut ps, mut ms, mut vs) = ([lanes.eps; RUN], [lanes.eps; RUN], [lanes.eps; RUN]);
            let mut gs = [lanes.eps; RUN];
            for i in 0..RUN {
                gs[i] = V::load(g.add(at + i * V::COUNT));
            }
            for i in 0..RUN {
                ms[i] = V::load(m.add(at + i * V::COUNT));
            }
            for i in 0..RUN {
                vs[i] = V::load(v.add(at + i * V::COUNT));
            }
            for i in 0..RUN {
                ps[i] = V::load(p.add(at + i * V::COUNT));
            }
            for i in 0..RUN {
                (ps[i], ms[i], vs[i]) = lanes.update(ps[i], gs[i], ms[i], vs[i]);
            }
            for i in 0..RUN {
                ms[i].store(m.add(at + i * V::COUNT));
            }
            for i in 0..RUN {
                vs[i].store(v.add(at + i * V::COUNT));
            }
            for i in 0..RUN {
                ps[i].store(p.add(at + i * V::COUNT));
            }
            at += RUN * V::COUNT;
        }
        let start = at;
        each_vector!(V, length - start, rest, part => {
            let at = start + rest;
            let (p1, m1, v1) = lanes.update(
                part.load(p.add(at)), part.load(g.add(at)), part.load(m.add(at)), part.load(v.add(at)),
            );
            part.store(m1, m.add(at));
            part.store(v1, v.add(at));
            part.store(p1, p.add(at));
        });
    }
}

#[inline(always)]
unsafe fn sgd_body<V: Lanes>(p: &mut [f32], g: &[f32], velocity: &mut [f32], step: &SgdStep) {
    let length = p.len();
    let has_velocity = step.momentum != 0.0;
    assert!(length == g.len() && (!has_velocity || length == velocity.len()));
    let (p, g, velocity) = (p.as_mut_ptr(), g.as_ptr(), velocity.as_mut_ptr());
    // SAFETY: every part lies inside the slices, whose lengths were checked.
    unsafe {
        let gradient_factor = V::splat(step.gradient_factor as f32);
        let (rate, momentum) = (V::splat(-step.rate as f32), V::splat(step.momentum as f32));
        let decay = V::splat(step.decay as f32);
        each_vector!(V, length, at, part => {
            let value = part.load::<V>(p.add(at));
            let gradient = part.load::<V>(g.add(at)).mul(gradient_factor);
            let gradient = value.mul_add(decay, gradient);
            let mut direction = gradient;
            // The branches are constant for all parameters, so they are predicted or hoisted out of the loop.
            if has_velocity {
                if !step.first_step {
                    direction = part.load::<V>(velocity.add(at)).mul_add(momentum, gradient);
                }
                part.store(direction, velocity.add(at));
                if step.nesterov {
                    direction = direction.mul_add(momentum, gradient);
                }
            }
            part.store(direction.mul_add(rate, value), p.add(at));
        });
    }
}

#[inline(always)]
unsafe fn ema_body<V: Lanes>(average: &mut [f32], p: &[f32], decay: f64) {
    assert_eq!(average.len(), p.len());
    let (average, p, length) = (average.as_mut_ptr(), p.as_ptr(), p.len());
    // SAFETY: every part lies inside both slices.
    unsafe {
        let share = V::splat((1.0 - decay) as f32);
        each_vector!(V, length, at, part => {
            let old = part.load::<V>(average.add(at));
            part.store(part.load::<V>(p.add(at)).sub(old).mul_add(share, old), average.add(at));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    // Three steps of PyTorch 2.15 (CPU, f32) from START with GRADIENTS:
    //   AdamW(lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)
    //   SGD(lr=0.1, momentum, nesterov, weight_decay=0.05)
    // printed with 9 digits: parameters, then exp_avg and exp_avg_sq or momentum_buffer.
    const START: [f32; 5] = [0.5, -1.25, 2.0, 0.0, -0.003];
    const GRADIENTS: [[f32; 5]; 3] =
        [[0.1, -0.2, 0.3, 1e-4, -5.0], [0.05, 0.4, -0.6, 0.0, 2.0], [-0.3, 0.1, 0.2, -2e-4, 1.0]];
    const ADAMW: [[f64; 5]; 3] = [
        [0.482543617, -1.24407661, 1.98854446, -0.0132409716, 0.0119627528],
        [-0.0174000002, 0.0298000015, -0.00969999842, -1.18999997e-05, -0.125],
        [0.00507000042, 0.00990500115, 0.0231612511, 2.45124987e-09, 1.36812496],
    ];
    const SGD: [f64; 5] = [0.507662177, -1.26134312, 1.98014903, 1.00997504e-05, 0.193057284];
    const SGD_MOMENTUM: [[f64; 5]; 2] = [
        [0.479649723, -1.24706686, 1.95710897, -6.91024798e-06, 0.863596261],
        [-0.108371884, 0.130605921, 0.170909971, -0.000120397504, -1.19052839],
    ];
    const SGD_NESTEROV: [[f64; 5]; 2] = [
        [0.489714354, -1.25905156, 1.94209039, 4.12318832e-06, 0.962570488],
        [-0.109713733, 0.13119629, 0.169946074, -0.000121200981, -1.15935302],
    ];

    /// The five values repeated, so that every lane of every vector is tested.
    fn repeat(values: &[f32; 5], length: usize) -> Vec<f32> {
        (0..length).map(|i| values[i % 5]).collect()
    }

    fn assert_repeats(values: &[f32], expected: &[f64; 5]) {
        let expected: Vec<f64> = (0..values.len()).map(|i| expected[i % 5]).collect();
        // With steps near 0.01, the result after cancellation is accurate to 1e-9.
        assert_close(values, &expected, 3e-9, 5e-7);
    }

    #[test]
    fn adamw_is_that_of_pytorch() {
        for length in LENGTHS {
            let (mut p, mut m, mut v) = (repeat(&START, length), vec![0.0; length], vec![0.0; length]);
            for (index, gradient) in GRADIENTS.iter().enumerate() {
                let step = AdamwStep {
                    rate: 1e-2,
                    beta1: 0.9,
                    beta2: 0.95,
                    eps: 1e-6,
                    decay: 0.1,
                    bias_correction1: 1.0 - 0.9f64.powi(index as i32 + 1),
                    bias_correction2: 1.0 - 0.95f64.powi(index as i32 + 1),
                    gradient_factor: 0.25,
                };
                let larger: Vec<f32> = repeat(gradient, length).iter().map(|g| g * 4.0).collect();
                adamw(&mut p, &larger, &mut m, &mut v, &step);
            }
            assert_repeats(&p, &ADAMW[0]);
            assert_repeats(&m, &ADAMW[1]);
            assert_repeats(&v, &ADAMW[2]);
        }
    }

    fn three_sgd_steps(length: usize, momentum: f64, nesterov: bool) -> (Vec<f32>, Vec<f32>) {
        let mut p = repeat(&START, length);
        // The first step must not read the velocity.
        let mut velocity = if momentum == 0.0 { Vec::new() } else { vec![f32::NAN; length] };
        for (index, gradient) in GRADIENTS.iter().enumerate() {
            let first_step = index == 0;
            let step = SgdStep { rate: 0.1, momentum, decay: 0.05, nesterov, first_step, gradient_factor: 0.5 };
            let larger: Vec<f32> = repeat(gradient, length).iter().map(|g| g * 2.0).collect();
            sgd(&mut p, &larger, &mut velocity, &step);
        }
        (p, velocity)
    }

    #[test]
    fn sgd_is_that_of_pytorch() {
        for length in LENGTHS {
            assert_repeats(&three_sgd_steps(length, 0.0, false).0, &SGD);
            let (p, velocity) = three_sgd_steps(length, 0.9, false);
            assert_repeats(&p, &SGD_MOMENTUM[0]);
            assert_repeats(&velocity, &SGD_MOMENTUM[1]);
            let (p, velocity) = three_sgd_steps(length, 0.9, true);
            assert_repeats(&p, &SGD_NESTEROV[0]);
            assert_repeats(&velocity, &SGD_NESTEROV[1]);
        }
    }

    #[test]
    fn the_average_follows() {
        for length in LENGTHS {
            let (before, p) = (spread(1, length, 1.0), spread(2, length, 1.0));
            for decay in [0.0, 0.9, 0.9999, 1.0] {
                let mut average = before.clone();
                ema(&mut average, &p, decay);
                let expected: Vec<f64> =
                    wide(&before).iter().zip(wide(&p)).map(|(a, p)| decay * a + (1.0 - decay) * p).collect();
                assert_close(&average, &expected, 1e-7, 1e-7);
            }
        }
    }

    #[test]
    fn extremes_neither_hang_nor_trap() {
        let (mut p, mut m, mut v) = (EXTREMES, EXTREMES, EXTREMES);
        let step = AdamwStep {
            rate: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-6,
            decay: 0.1,
            bias_correction1: 0.1,
            bias_correction2: 0.05,
            gradient_factor: 1.0,
        };
        adamw(&mut p, &EXTREMES, &mut m, &mut v, &step);
        assert!(p[4].is_nan());
    }
}
