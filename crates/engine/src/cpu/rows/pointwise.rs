//! Elementwise: activations, sums, products.

use super::super::math;
use super::super::simd::{Lanes, simd_fn};
use super::{Part, each_vector};
use crate::ops::activation::Activation;

/// Applies an activation in place.
pub fn activation(kind: Activation, values: &mut [f32]) {
    match kind {
        Activation::Gelu => gelu(values),
        Activation::GeluTanh => gelu_tanh(values),
        Activation::QuickGelu => quick_gelu(values),
        Activation::Relu => relu(values),
        Activation::Silu => silu(values),
        Activation::Tanh => tanh(values),
        Activation::Exp => exp(values),
    }
}

/// Multiplies a gradient by the activation's derivative: `gradient *= f'(input)`.
pub fn activation_gradient(kind: Activation, gradient: &mut [f32], input: &[f32]) {
    match kind {
        Activation::Gelu => gelu_gradient(gradient, input),
        Activation::GeluTanh => gelu_tanh_gradient(gradient, input),
        Activation::QuickGelu => quick_gelu_gradient(gradient, input),
        Activation::Relu => relu_gradient(gradient, input),
        Activation::Silu => silu_gradient(gradient, input),
        Activation::Tanh => tanh_gradient(gradient, input),
        Activation::Exp => exp_gradient(gradient, input),
    }
}

/// Applies an activation and a mask: `values = f(values) · factors`, and `factors` become `f'(values) · factors`.
pub fn dropped_activation(kind: Activation, values: &mut [f32], factors: &mut [f32]) {
    match kind {
        Activation::Gelu => gelu_dropped(values, factors),
        Activation::GeluTanh => gelu_tanh_dropped(values, factors),
        Activation::QuickGelu => quick_gelu_dropped(values, factors),
        Activation::Relu => relu_dropped(values, factors),
        Activation::Silu => silu_dropped(values, factors),
        Activation::Tanh => tanh_dropped(values, factors),
        Activation::Exp => exp_dropped(values, factors),
    }
}

/// One function `values[i] = f(values[i])`, one `gradient[i] *= f'(input[i])`, and both at once with factors.
macro_rules! activation_functions {
    (
        $forward:ident, $forward_body:ident = $value:path;
        $backward:ident, $backward_body:ident = $slope:path;
        $dropped:ident, $dropped_body:ident;
    ) => {
        simd_fn! { fn $forward(values: &mut [f32]) = $forward_body; }
        simd_fn! { fn $backward(gradient: &mut [f32], input: &[f32]) = $backward_body; }
        simd_fn! { fn $dropped(values: &mut [f32], factors: &mut [f32]) = $dropped_body; }

        #[inline(always)]
        unsafe fn $forward_body<V: Lanes>(values: &mut [f32]) {
            let start = values.as_mut_ptr();
            each_vector!(V, values.len(), at, part => {
                // SAFETY: the part lies inside the row.
                unsafe { part.store($value(part.load::<V>(start.add(at))), start.add(at)) };
            });
        }

        #[inline(always)]
        unsafe fn $backward_body<V: Lanes>(gradient: &mut [f32], input: &[f32]) {
            assert_eq!(gradient.len(), input.len());
            let start = gradient.as_mut_ptr();
            each_vector!(V, gradient.len(), at, part => {
                // SAFETY: the part lies inside both rows.
                unsafe {
                    let slope = $slope(part.load::<V>(input.as_ptr().add(at)));
                    part.store(part.load::<V>(start.add(at)).mul(slope), start.add(at));
                }
            });
        }

        #[inline(always)]
        unsafe fn $dropped_body<V: Lanes>(values: &mut [f32], factors: &mut [f32]) {
            assert_eq!(values.len(), factors.len());
            let (start, slopes) = (values.as_mut_ptr(), factors.as_mut_ptr());
            each_vector!(V, values.len(), at, part => {
                // SAFETY: the part lies inside both rows.
                unsafe {
                    let (x, factor) = (part.load::<V>(start.add(at)), part.load::<V>(slopes.add(at)));
                    part.store($value(x).mul(factor), start.add(at));
                    part.store($slope(x).mul(factor), slopes.add(at));
                }
            });
        }
    };
}

activation_functions! {
    gelu, gelu_body = math::gelu; gelu_gradient, gelu_gradient_body = math::gelu_slope; gelu_dropped, gelu_dropped_body;
}
activation_functions! {
    gelu_tanh, gelu_tanh_body = gelu_tanh_of; gelu_tanh_gradient, gelu_tanh_gradient_body = gelu_tanh_slope; gelu_tanh_dropped, gelu_tanh_dropped_body;
}
activation_functions! {
    quick_gelu, quick_gelu_body = quick_gelu_of; quick_gelu_gradient, quick_gelu_gradient_body = quick_gelu_slope; quick_gelu_dropped, quick_gelu_dropped_body;
}
activation_functions! {
    relu, relu_body = relu_of; relu_gradient, relu_gradient_body = relu_slope; relu_dropped, relu_dropped_body;
}
activation_functions! {
    silu, silu_body = silu_of; silu_gradient, silu_gradient_body = silu_slope; silu_dropped, silu_dropped_body;
}
activation_functions! {
    tanh, tanh_body = tanh_of; tanh_gradient, tanh_gradient_body = tanh_slope; tanh_dropped, tanh_dropped_body;
}
// e^x is its own derivative.
activation_functions! {
    exp, exp_body = math::exp; exp_gradient, exp_gradient_body = math::exp; exp_dropped, exp_dropped_body;
}

/// `√(2/π)` twice: `(1 + tanh y) / 2` is `sigmoid(2 y)`.
const TWICE_ROOT_2_OVER_PI: f32 = 1.595_769_2;
const CUBIC: f32 = 0.044_715;

/// `x sigmoid(z)` with `z = 2 √(2/π) (x + 0.044715 x³)`.
#[inline(always)]
unsafe fn gelu_tanh_of<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        let bend = x.mul(x).mul_add(V::splat(-CUBIC * TWICE_ROOT_2_OVER_PI), V::splat(-TWICE_ROOT_2_OVER_PI));
        x.div(V::splat(1.0).add(math::exp(x.mul(bend))))
    }
}

/// `s + x z' s (1 - s)` with s = sigmoid(z), `1 - s = e^-z s`, and `z' = 2 √(2/π) (1 + 3 · 0.044715 x²)`.
#[inline(always)]
unsafe fn gelu_tanh_slope<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        // Beyond ±9.5 the derivative is 0 or 1 to the last digit, and e^-z stays finite. NaN passes both.
        let x = V::splat(9.5).min(V::splat(-9.5).max(x));
        let (one, square) = (V::splat(1.0), x.mul(x));
        let bend = square.mul_add(V::splat(-CUBIC * TWICE_ROOT_2_OVER_PI), V::splat(-TWICE_ROOT_2_OVER_PI));
        let steepness =
            square.mul_add(V::splat(3.0 * CUBIC * TWICE_ROOT_2_OVER_PI), V::splat(TWICE_ROOT_2_OVER_PI)).mul(x);
        let falling = math::exp(x.mul(bend));
        let sigmoid = one.div(one.add(falling));
        steepness.mul(falling.mul(sigmoid)).mul_add(sigmoid, sigmoid)
    }
}

/// The factor in the sigmoid of quick GELU.
const QUICK: f32 = 1.702;

/// `x / (1 + e^-1.702x)`
#[inline(always)]
unsafe fn quick_gelu_of<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe { x.div(V::splat(1.0).add(math::exp(x.mul(V::splat(-QUICK))))) }
}

/// The derivative of SiLU at 1.702x: quick GELU is `silu(1.702x) / 1.702`.
#[inline(always)]
unsafe fn quick_gelu_slope<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe { silu_slope(x.mul(V::splat(QUICK))) }
}

#[inline(always)]
unsafe fn relu_of<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; a NaN in the second operand is returned.
    unsafe { V::splat(0.0).max(x) }
}

#[inline(always)]
unsafe fn relu_slope<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe { V::splat(0.0).select_less(x, V::splat(1.0), V::splat(0.0)) }
}

/// `x / (1 + e^-x)`
#[inline(always)]
unsafe fn silu_of<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe { x.div(V::splat(1.0).add(math::exp(V::splat(0.0).sub(x)))) }
}

/// `s (1 + x (1 - s))` with s = sigmoid(x) and `1 - s = e^-x s`, which loses no digits for large x.
#[inline(always)]
unsafe fn silu_slope<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        // Beyond ±87 the derivative is 0 or 1 to the last digit, and e^-x stays finite. NaN passes both.
        let x = V::splat(87.0).min(V::splat(-87.0).max(x));
        let one = V::splat(1.0);
        let falling = math::exp(V::splat(0.0).sub(x));
        let sigmoid = one.div(one.add(falling));
        x.mul(falling.mul(sigmoid)).mul_add(sigmoid, sigmoid)
    }
}

/// `1 - 2 / (1 + e^2x)`; near 0, where that would cancel, the series `x - x³/3 + 2x⁵/15 - 17x⁷/315 + 62x⁹/2835`.
#[inline(always)]
unsafe fn tanh_of<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set. NaN is not less than 0.3, and e^NaN is NaN.
    unsafe {
        let (one, square) = (V::splat(1.0), x.mul(x));
        let series = square.mul_add(V::splat(62.0 / 2835.0), V::splat(-17.0 / 315.0));
        let series = square.mul_add(square.mul_add(series, V::splat(2.0 / 15.0)), V::splat(-1.0 / 3.0));
        let series = square.mul_add(series, one).mul(x);
        let far = one.sub(V::splat(2.0).div(one.add(math::exp(x.add(x)))));
        square.select_less(V::splat(0.09), series, far)
    }
}

/// `1 - tanh² x` as `4 e / (1 + e)²` with `e = e^-2|x|`, which loses no digits for large x.
#[inline(always)]
unsafe fn tanh_slope<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe {
        let zero = V::splat(0.0);
        let falling = math::exp(zero.sub(x.add(x)).min(x.add(x)));
        let root = V::splat(1.0).add(falling);
        V::splat(4.0).mul(falling).div(root.mul(root))
    }
}

simd_fn! {
    /// `values += other`
    pub fn add(values: &mut [f32], other: &[f32]) = add_body;
}

simd_fn! {
    /// `values *= other`
    pub fn multiply(values: &mut [f32], other: &[f32]) = multiply_body;
}

simd_fn! {
    /// `values *= factor`
    pub fn scale(values: &mut [f32], factor: f32) = scale_body;
}

simd_fn! {
    /// `values += factor * other`
    pub fn add_scaled(values: &mut [f32], factor: f32, other: &[f32]) = add_scaled_body;
}

#[inline(always)]
unsafe fn add_body<V: Lanes>(values: &mut [f32], other: &[f32]) {
    assert_eq!(values.len(), other.len());
    let (values, other, length) = (values.as_mut_ptr(), other.as_ptr(), values.len());
    each_vector!(V, length, at, part => {
        // SAFETY: the part lies inside both rows.
        unsafe { part.store(part.load::<V>(values.add(at)).add(part.load(other.add(at))), values.add(at)) };
    });
}

#[inline(always)]
unsafe fn multiply_body<V: Lanes>(values: &mut [f32], other: &[f32]) {
    assert_eq!(values.len(), other.len());
    let (values, other, length) = (values.as_mut_ptr(), other.as_ptr(), values.len());
    each_vector!(V, length, at, part => {
        // SAFETY: the part lies inside both rows.
        unsafe { part.store(part.load::<V>(values.add(at)).mul(part.load(other.add(at))), values.add(at)) };
    });
}

#[inline(always)]
unsafe fn scale_body<V: Lanes>(values: &mut [f32], factor: f32) {
    let (values, length) = (values.as_mut_ptr(), values.len());
    each_vector!(V, length, at, part => {
        // SAFETY: the part lies inside the row.
        unsafe { part.store(part.load::<V>(values.add(at)).mul(V::splat(factor)), values.add(at)) };
    });
}

#[inline(always)]
unsafe fn add_scaled_body<V: Lanes>(values: &mut [f32], factor: f32, other: &[f32]) {
    assert_eq!(values.len(), other.len());
    let (values, other, length) = (values.as_mut_ptr(), other.as_ptr(), values.len());
    each_vector!(V, length, at, part => {
        // SAFETY: the part lies inside both rows.
        unsafe {
            let sum = part.load::<V>(other.add(at)).mul_add(V::splat(factor), part.load(values.add(at)));
            part.store(sum, values.add(at));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    const KINDS: [Activation; 7] = [
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::QuickGelu,
        Activation::Relu,
        Activation::Silu,
        Activation::Tanh,
        Activation::Exp,
    ];

    fn naive(kind: Activation, x: f64) -> f64 {
        match kind {
            // The midpoint rule over the density: its error falls off faster than any power of the step.
            Activation::Gelu => {
                let (start, steps) = (-12.0, 4000);
                let step = (x - start) / f64::from(steps);
                let density = |i: i32| (-(start + (f64::from(i) + 0.5) * step).powi(2) / 2.0).exp();
                let area: f64 = (0..steps).map(density).sum::<f64>() * step;
                // The midpoint rule's leading error: -step²/24 times the density's slope at the end.
                x * (area + step * step / 24.0 * -x * (-x * x / 2.0).exp()) / (2.0 * std::f64::consts::PI).sqrt()
            }
            Activation::GeluTanh => {
                x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Activation::QuickGelu => x / (1.0 + (-f64::from(QUICK) * x).exp()),
            Activation::Relu => x.max(0.0),
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Tanh => x.tanh(),
            Activation::Exp => x.exp(),
        }
    }

    #[test]
    fn activations_and_their_gradients_agree_with_the_formulas() {
        for kind in KINDS {
            for length in LENGTHS {
                let input = spread(1, length, 7.0);
                let mut values = input.clone();
                activation(kind, &mut values);
                let expected: Vec<f64> = input.iter().map(|&x| naive(kind, f64::from(x))).collect();
                assert_close(&values, &expected, 3e-7, 3e-7);

                let incoming = spread(2, length, 1.0);
                let mut gradient = incoming.clone();
                activation_gradient(kind, &mut gradient, &input);
                let slopes = wide(&input).into_iter().map(|x| (naive(kind, x + 1e-5) - naive(kind, x - 1e-5)) / 2e-5);
                let expected: Vec<f64> = slopes.zip(&incoming).map(|(slope, &g)| slope * f64::from(g)).collect();
                assert_close(&gradient, &expected, 5e-7, 1e-6);

                // With factors, both at once are bit-identical.
                let (mut dropped, mut slopes) = (input.clone(), incoming.clone());
                dropped_activation(kind, &mut dropped, &mut slopes);
                assert!(slopes == gradient, "{kind:?}, {length}");
                multiply(&mut values, &incoming);
                assert!(dropped == values, "{kind:?}, {length}");
            }
        }
    }

    #[test]
    fn extreme_inputs_give_the_limits() {
        let mut values = EXTREMES;
        tanh(&mut values);
        assert!(values[..4] == [1.0, -1.0, 1.0, -1.0] && values[4].is_nan() && values[5] == 0.0, "{values:?}");
        let mut gradient = [1.0; 8];
        tanh_gradient(&mut gradient, &EXTREMES);
        assert!(gradient[..4].iter().all(|slope| slope.abs() < 1e-20) && gradient[4].is_nan(), "{gradient:?}");
        for kind in KINDS.into_iter().filter(|kind| !matches!(kind, Activation::Tanh | Activation::Exp)) {
            let mut values = EXTREMES;
            activation(kind, &mut values);
            assert!(values[0] == 1e30 && values[1].abs() < 1e-20 && values[2] == f32::INFINITY, "{kind:?} {values:?}");
            assert!(values[4].is_nan() && values[5] == 0.0, "{kind:?} {values:?}");
            let mut gradient = [1.0; 8];
            activation_gradient(kind, &mut gradient, &EXTREMES);
            assert!(gradient[0] == 1.0 && gradient[1].abs() < 1e-20, "{kind:?} {gradient:?}");
            assert!(gradient[2] == 1.0 && gradient[3].abs() < 1e-20, "{kind:?} {gradient:?}");
            assert!(kind == Activation::Relu || gradient[4].is_nan(), "{kind:?} {gradient:?}");
        }
    }

    #[test]
    fn sums_and_products_are_those_of_the_values() {
        for length in LENGTHS {
            let (first, other) = (spread(3, length, 2.0), spread(4, length, 2.0));
            let check = |work: &dyn Fn(&mut [f32]), formula: &dyn Fn(f64, f64) -> f64| {
                let mut values = first.clone();
                work(&mut values);
                let expected: Vec<f64> = wide(&first).iter().zip(wide(&other)).map(|(&a, b)| formula(a, b)).collect();
                assert_close(&values, &expected, 2e-7, 1e-7);
            };
            check(&|values| add(values, &other), &|a, b| a + b);
            check(&|values| multiply(values, &other), &|a, b| a * b);
            check(&|values| scale(values, 0.3), &|a, _| a * f64::from(0.3f32));
            check(&|values| add_scaled(values, 0.3, &other), &|a, b| a + f64::from(0.3f32) * b);
        }
    }
}
