//! Conversion between f32 and bf16, a slice at a time.

use half::bf16;

use super::simd::{Lanes, simd_fn};

simd_fn! {
    /// Widens bf16 values to f32. Both slices have equal length.
    pub fn widen(from: &[bf16], to: &mut [f32]) = widen_body;
}

simd_fn! {
    /// Rounds f32 values to the nearest bf16, ties to even. Both slices have equal length.
    pub fn narrow(from: &[f32], to: &mut [bf16]) = narrow_body;
}

simd_fn! {
    /// Rounds f32 values to bf16 precision in place.
    pub fn round(values: &mut [f32]) = round_body;
}

simd_fn! {
    /// Rounds f32 values to bf16 precision in place, and also stores them as bf16. Both slices have equal length.
    pub fn round_and_narrow(values: &mut [f32], to: &mut [bf16]) = round_and_narrow_body;
}

#[inline(always)]
unsafe fn round_and_narrow_body<V: Lanes>(values: &mut [f32], to: &mut [bf16]) {
    assert_eq!(values.len(), to.len());
    let whole = values.len() / V::COUNT * V::COUNT;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + COUNT <= len of both.
        unsafe {
            let place = values.as_mut_ptr().add(i);
            let rounded = V::load(place).round_bf16();
            rounded.store_bf16(to.as_mut_ptr().add(i));
            rounded.store(place);
        }
        i += V::COUNT;
    }
    for (value, to) in values[whole..].iter_mut().zip(&mut to[whole..]) {
        *to = bf16::from_f32(*value);
        *value = to.to_f32();
    }
}

#[inline(always)]
unsafe fn round_body<V: Lanes>(values: &mut [f32]) {
    let whole = values.len() / V::COUNT * V::COUNT;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + COUNT <= len.
        unsafe {
            let place = values.as_mut_ptr().add(i);
            V::load(place).round_bf16().store(place);
        }
        i += V::COUNT;
    }
    for value in &mut values[whole..] {
        *value = bf16::from_f32(*value).to_f32();
    }
}

#[inline(always)]
unsafe fn widen_body<V: Lanes>(from: &[bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    let whole = from.len() / V::COUNT * V::COUNT;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + COUNT <= len of both.
        unsafe { V::load_bf16(from.as_ptr().add(i)).store(to.as_mut_ptr().add(i)) };
        i += V::COUNT;
    }
    for (to, from) in to[whole..].iter_mut().zip(&from[whole..]) {
        *to = from.to_f32();
    }
}

#[inline(always)]
unsafe fn narrow_body<V: Lanes>(from: &[f32], to: &mut [bf16]) {
    assert_eq!(from.len(), to.len());
    let whole = from.len() / V::COUNT * V::COUNT;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + COUNT <= len of both.
        unsafe { V::load(from.as_ptr().add(i)).store_bf16(to.as_mut_ptr().add(i)) };
        i += V::COUNT;
    }
    for (to, from) in to[whole..].iter_mut().zip(&from[whole..]) {
        *to = bf16::from_f32(*from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_agrees_with_half_on_every_kind_of_value() {
        let mut values: Vec<f32> =
            (0..70_000u32).map(|i| f32::from_bits(i.wrapping_mul(61_381).wrapping_add(i << 13))).collect();
        values.extend([f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0e-40, f32::MAX]);
        let mut narrowed = vec![bf16::ZERO; values.len()];
        narrow(&values, &mut narrowed);
        let mut widened = vec![0.0; values.len()];
        widen(&narrowed, &mut widened);
        let mut rounded = values.clone();
        round(&mut rounded);
        assert!(rounded.iter().zip(&widened).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()));
        let (mut both, mut both_narrow) = (values.clone(), vec![bf16::ZERO; values.len()]);
        round_and_narrow(&mut both, &mut both_narrow);
        assert!(bytemuck::cast_slice::<f32, u32>(&both) == bytemuck::cast_slice::<f32, u32>(&rounded));
        assert!(both_narrow.iter().zip(&narrowed).all(|(a, b)| a.to_bits() == b.to_bits()));
        for ((value, narrow), wide) in values.iter().zip(&narrowed).zip(&widened) {
            let expected = bf16::from_f32(*value);
            assert!(narrow.to_bits() == expected.to_bits() || value.is_nan() && narrow.is_nan(), "{value}");
            assert!(wide.to_bits() == narrow.to_f32().to_bits() || value.is_nan() && wide.is_nan());
        }
    }
}
