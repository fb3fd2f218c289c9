//! Quantising: floats to blocks. The formats with 32 values are made exactly as ggml's reference makes them, in the same steps of f32.

use half::f16;

use super::BlockFormat;
use super::super_blocks::{quantise_offset, quantise_q6k};

impl BlockFormat {
    /// Some values as blocks: their bytes. Every value must be finite, and below f16's largest number.
    ///
    /// # Panics
    /// Panics if the values are not whole blocks, or if there is not just room for their bytes.
    pub fn quantise(self, values: &[f32], to: &mut [u8]) {
        assert_eq!(Some(to.len()), self.bytes_of(values.len()));
        for (values, to) in values.chunks_exact(self.values()).zip(to.chunks_exact_mut(self.bytes())) {
            match self {
                BlockFormat::Q4_0 | BlockFormat::Q5_0 => symmetric(self, values, to),
                BlockFormat::Q4_1 | BlockFormat::Q5_1 => with_offset(self, values, to),
                BlockFormat::Q8_0 => bytes(values, to),
                BlockFormat::Q4K | BlockFormat::Q5K => quantise_offset(self, values, to),
                BlockFormat::Q6K => quantise_q6k(values, to),
            }
        }
    }
}

/// One over a number, and zero of zero.
pub(super) fn inverse(number: f32) -> f32 {
    if number == 0.0 { 0.0 } else { 1.0 / number }
}

pub(super) fn put_half(number: f32, to: &mut [u8]) {
    to.copy_from_slice(&f16::from_f32(number).to_le_bytes());
}

/// The first of the values that are farthest from zero.
pub(super) fn farthest(values: &[f32]) -> f32 {
    values.iter().copied().fold(0.0, |most: f32, value| if value.abs() > most.abs() { value } else { most })
}

/// `d (q - zero)`: the value farthest from zero becomes the lowest integer, of which there is one more than of the highest.
fn symmetric(format: BlockFormat, values: &[f32], to: &mut [u8]) {
    let zero = f32::from(format.zero());
    let scale = farthest(values) / -zero;
    let inverse = inverse(scale);
    put_half(scale, &mut to[..2]);
    let integer = |value: f32| ((value * inverse + (zero + 0.5)) as i32).min(2 * i32::from(format.zero()) - 1) as u8;
    put_integers(values.iter().map(|&value| integer(value)), &mut to[2..]);
}

/// `d q + m`.
fn with_offset(format: BlockFormat, values: &[f32], to: &mut [u8]) {
    let highest = if format == BlockFormat::Q4_1 { 15 } else { 31 };
    let (least, most) = values
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)));
    let scale = (most - least) / highest as f32;
    let inverse = inverse(scale);
    put_half(scale, &mut to[..2]);
    put_half(least, &mut to[2..4]);
    let integer = |value: f32| (((value - least) * inverse + 0.5) as i32).min(highest) as u8;
    put_integers(values.iter().map(|&value| integer(value)), &mut to[4..]);
}

/// Integers of four bits, in 16 bytes; of five, with the fifth bits in four bytes before them.
fn put_integers(integers: impl Iterator<Item = u8>, to: &mut [u8]) {
    let (fifth, low) = to.split_at_mut(to.len() - 16);
    to_zero(fifth);
    to_zero(low);
    for (index, integer) in integers.enumerate() {
        low[index % 16] |= (integer & 15) << (4 * (index / 16));
        if let Some(byte) = fifth.get_mut(index / 8) {
            *byte |= (integer >> 4) << (index % 8);
        }
    }
}

pub(super) fn to_zero(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = 0);
}

/// `d q` with integers of eight bits.
fn bytes(values: &[f32], to: &mut [u8]) {
    let scale = farthest(values).abs() / 127.0;
    let inverse = inverse(scale);
    put_half(scale, &mut to[..2]);
    to[2..].iter_mut().zip(values).for_each(|(to, value)| *to = (value * inverse).round() as i8 as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normally distributed values (Box and Muller).
    fn values(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 + 0.5) / (1 << 24) as f32
        };
        (0..count).map(|_| (-2.0 * uniform().ln()).sqrt() * (std::f32::consts::TAU * uniform()).cos()).collect()
    }

    fn error(format: BlockFormat, values: &[f32]) -> f64 {
        let mut bytes = vec![0xAA; format.bytes_of(values.len()).expect("whole blocks")];
        format.quantise(values, &mut bytes);
        let mut again = vec![0.0; values.len()];
        format.dequantise(&bytes, &mut again);
        let squares = values.iter().zip(&again).map(|(value, again)| f64::from(value - again).powi(2)).sum::<f64>();
        (squares / values.len() as f64).sqrt()
    }

    /// The limits are what ggml's reference leaves on 262,144 values of the same distribution: `make.py` beside the fixtures of GGUF in
    /// the crate of models prints them.
    #[test]
    fn errors_on_normal_values_are_not_above_ggmls() {
        let values = values(1 << 16, 7);
        for (format, limit) in [(BlockFormat::Q4K, 0.07155), (BlockFormat::Q5K, 0.03622), (BlockFormat::Q6K, 0.01778)] {
            let error = error(format, &values);
            assert!(error < limit, "{}: {error}", format.name());
        }
    }

    #[test]
    fn values_that_a_format_has_are_kept() {
        for format in BlockFormat::ALL {
            let constant = vec![0.0; 2 * format.values()];
            assert_eq!(error(format, &constant), 0.0, "{}", format.name());
            let mut positive = vec![0.5; format.values()];
            positive[3] = 0.0;
            assert!(error(format, &positive) < 5e-3, "{}", format.name());
            let negative: Vec<f32> = positive.iter().map(|value| -value).collect();
            assert!(error(format, &negative) < 5e-3, "{}", format.name());
        }
    }
}
