//! The inverse DCT of a block, bit for bit that of libjpeg's "slow" integer transform.
//!
//! `out[y][x] = 128 + 1/4 sum over u, v of c(u) c(v) in[v][u] cos((2x + 1) u pi / 16) cos((2y + 1) v pi / 16)`
//!
//! in two passes of eight one-dimensional transforms, columns first, each by Loeffler, Ligtenberg and Moschytz' scheme with
//! 11 multiplications (ICASSP 1989). Constants have 13 fractional bits; between the passes values keep 2 of them in 16
//! bits. Overflows of 16 bits are handled as libjpeg-turbo does on x86: sums wrap, results of a pass are clamped. Only made-up coefficients
//! get there.

/// Fractional bits of the constants.
const CONSTANT_BITS: i32 = 13;
/// Fractional bits between the passes.
const BETWEEN_BITS: i32 = 2;
const FIRST_SHIFT: i32 = CONSTANT_BITS - BETWEEN_BITS;
/// The second pass also divides by 8: the one-dimensional transform here is the orthonormal one times the square root of 8.
const SECOND_SHIFT: i32 = CONSTANT_BITS + BETWEEN_BITS + 3;

/// Pairs of factors, `sqrt(2) * cos(k pi / 16)` and their sums, as they are applied to pairs of inputs.
mod factors {
    /// For inputs 2 and 6.
    pub(super) const EVEN: [[i16; 2]; 2] = [[4433 + 6270, 4433], [4433, 4433 - 15137]];
    /// For the sums 7 + 3 and 5 + 1.
    pub(super) const SUMS: [[i16; 2]; 2] = [[9633 - 16069, 9633], [9633, 9633 - 3196]];
    /// For inputs 7 and 1.
    pub(super) const OUTER: [[i16; 2]; 2] = [[2446 - 7373, -7373], [-7373, 12299 - 7373]];
    /// For inputs 5 and 3.
    pub(super) const INNER: [[i16; 2]; 2] = [[16819 - 20995, -20995], [-20995, 25172 - 20995]];
}

/// Eight rows of eight samples. Coefficients and quantisation are in rows, too, not in zigzag order.
#[inline]
pub(super) fn inverse(coefficients: &[i16; 64], quantisation: &[i16; 64]) -> [[u8; 8]; 8] {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: the instructions that the function is compiled with are part of every x86-64.
    return unsafe { sse2::inverse(coefficients, quantisation) };
    #[cfg(not(target_arch = "x86_64"))]
    return portable::inverse(coefficients, quantisation);
}

/// The value of all samples of a block that has only a DC coefficient.
pub(super) fn inverse_of_mean(coefficient: i16, quantisation: i16) -> u8 {
    let between = coefficient.wrapping_mul(quantisation) << BETWEEN_BITS;
    let rounding = 1 << (BETWEEN_BITS + 2);
    (((i32::from(between) + rounding) >> (BETWEEN_BITS + 3)).clamp(-128, 127) + 128) as u8
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::*;

    pub(super) fn inverse(coefficients: &[i16; 64], quantisation: &[i16; 64]) -> [[u8; 8]; 8] {
        let mut between = [[0; 8]; 8];
        for column in 0..8 {
            let values =
                std::array::from_fn(|row| coefficients[8 * row + column].wrapping_mul(quantisation[8 * row + column]));
            let values = pass::<FIRST_SHIFT>(values);
            for row in 0..8 {
                between[row][column] = values[row];
            }
        }
        between.map(|row| pass::<SECOND_SHIFT>(row).map(|value| (value.clamp(-128, 127) + 128) as u8))
    }

    fn pass<const SHIFT: i32>(x: [i16; 8]) -> [i16; 8] {
        let both = |factors: [[i16; 2]; 2], a: i16, b: i16| {
            factors.map(|[f, g]| i32::from(f) * i32::from(a) + i32::from(g) * i32::from(b))
        };
        let scaled = |value: i16| i32::from(value) << CONSTANT_BITS;
        let [plus, minus] = [scaled(x[0].wrapping_add(x[4])), scaled(x[0].wrapping_sub(x[4]))];
        let [even_3, even_2] = both(factors::EVEN, x[2], x[6]);
        let even = [plus + even_3, minus + even_2, minus - even_2, plus - even_3];
        let [sum_3, sum_4] = both(factors::SUMS, x[7].wrapping_add(x[3]), x[5].wrapping_add(x[1]));
        let [outer_0, outer_3] = both(factors::OUTER, x[7], x[1]);
        let [inner_1, inner_2] = both(factors::INNER, x[5], x[3]);
        let odd = [outer_3 + sum_4, inner_2 + sum_3, inner_1 + sum_4, outer_0 + sum_3];
        std::array::from_fn(|index| {
            let value = if index < 4 {
                even[index].wrapping_add(odd[index])
            } else {
                even[7 - index].wrapping_sub(odd[7 - index])
            };
            let rounded = value.wrapping_add(1 << (SHIFT - 1)) >> SHIFT;
            rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16
        })
    }
}

/// The same in vectors of eight 16-bit numbers, which every x86-64 has. All columns, then all rows, at once.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;

    use bytemuck::{must_cast, must_cast_ref};

    use super::*;

    type Rows = [__m128i; 8];
    /// 32-bit numbers: the first four, and the others.
    type Wide = [__m128i; 2];

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn inverse(coefficients: &[i16; 64], quantisation: &[i16; 64]) -> [[u8; 8]; 8] {
        let coefficients: &[[i16; 8]; 8] = must_cast_ref(coefficients);
        let quantisation: &[[i16; 8]; 8] = must_cast_ref(quantisation);
        let rows =
            std::array::from_fn(|row| _mm_mullo_epi16(must_cast(coefficients[row]), must_cast(quantisation[row])));
        let rows = pass::<SECOND_SHIFT>(pass::<FIRST_SHIFT>(rows));
        let level = _mm_set1_epi8(-128);
        let bytes: [__m128i; 4] =
            std::array::from_fn(|pair| _mm_xor_si128(_mm_packs_epi16(rows[2 * pair], rows[2 * pair + 1]), level));
        must_cast(bytes)
    }

    /// Transforms columns, and transposes.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn pass<const SHIFT: i32>(x: Rows) -> Rows {
        let plus = scaled(_mm_add_epi16(x[0], x[4]));
        let minus = scaled(_mm_sub_epi16(x[0], x[4]));
        let [even_3, even_2] = both(factors::EVEN, x[2], x[6]);
        let even = [add(plus, even_3), add(minus, even_2), subtract(minus, even_2), subtract(plus, even_3)];
        let [sum_3, sum_4] = both(factors::SUMS, _mm_add_epi16(x[7], x[3]), _mm_add_epi16(x[5], x[1]));
        let [outer_0, outer_3] = both(factors::OUTER, x[7], x[1]);
        let [inner_1, inner_2] = both(factors::INNER, x[5], x[3]);
        let odd = [add(outer_3, sum_4), add(inner_2, sum_3), add(inner_1, sum_4), add(outer_0, sum_3)];
        let mut out = x;
        for index in 0..4 {
            out[index] = rounded::<SHIFT>(add(even[index], odd[index]));
            out[7 - index] = rounded::<SHIFT>(subtract(even[index], odd[index]));
        }
        // Interleaving row `i` with row `i + 4` three times turns rows into columns: each time the number of an element, three
        // bits for its row and three for its column, is rotated by one bit.
        for _ in 0..3 {
            out = std::array::from_fn(|index| {
                let (a, b) = (out[index / 2], out[index / 2 + 4]);
                if index % 2 == 0 { _mm_unpacklo_epi16(a, b) } else { _mm_unpackhi_epi16(a, b) }
            });
        }
        out
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn scaled(values: __m128i) -> Wide {
        // In the upper half of 32 bits a number is multiplied by 2^16.
        let zero = _mm_setzero_si128();
        [_mm_unpacklo_epi16(zero, values), _mm_unpackhi_epi16(zero, values)]
            .map(|upper| _mm_srai_epi32::<{ 16 - CONSTANT_BITS }>(upper))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn both(factors: [[i16; 2]; 2], a: __m128i, b: __m128i) -> [Wide; 2] {
        let pairs = [_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)];
        factors.map(|factors| {
            let factors = _mm_set1_epi32(must_cast(factors));
            pairs.map(|pair| _mm_madd_epi16(pair, factors))
        })
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn add(a: Wide, b: Wide) -> Wide {
        [_mm_add_epi32(a[0], b[0]), _mm_add_epi32(a[1], b[1])]
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn subtract(a: Wide, b: Wide) -> Wide {
        [_mm_sub_epi32(a[0], b[0]), _mm_sub_epi32(a[1], b[1])]
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn rounded<const SHIFT: i32>(values: Wide) -> __m128i {
        let half = _mm_set1_epi32(1 << (SHIFT - 1));
        let [low, high] = values.map(|values| _mm_srai_epi32::<SHIFT>(_mm_add_epi32(values, half)));
        _mm_packs_epi32(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> impl FnMut(i32) -> i32 {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as i32 % below
        }
    }

    fn naive(block: &[f64; 64]) -> [f64; 64] {
        let scale = |index: usize| if index == 0 { 0.5_f64.sqrt() } else { 1.0 };
        let cosine = |at: usize, wave: usize| ((2 * at + 1) as f64 * wave as f64 * std::f64::consts::PI / 16.0).cos();
        std::array::from_fn(|place| {
            let (y, x) = (place / 8, place % 8);
            let terms = (0..64).map(|at| {
                let (v, u) = (at / 8, at % 8);
                scale(u) * scale(v) * block[at] * cosine(x, u) * cosine(y, v)
            });
            128.0 + terms.sum::<f64>() / 4.0
        })
    }

    /// IEEE 1180's bounds for an inverse transform: no sample off by more than 1, and in the mean by little.
    #[test]
    fn it_is_the_cosine_transform() {
        let mut random = random();
        let (mut squares, mut sum) = ([0.0; 64], [0.0; 64]);
        const BLOCKS: usize = 2000;
        for _ in 0..BLOCKS {
            let quantisation: [i16; 64] = std::array::from_fn(|_| 1 + random(4) as i16);
            let block: [i16; 64] = std::array::from_fn(|_| (random(61) - 30) as i16);
            let exact = naive(&std::array::from_fn(|at| f64::from(block[at]) * f64::from(quantisation[at])));
            for (at, &ours) in inverse(&block, &quantisation).as_flattened().iter().enumerate() {
                let difference = f64::from(ours) - exact[at].clamp(0.0, 255.0).round();
                assert!(difference.abs() <= 1.0, "{ours} for {}", exact[at]);
                squares[at] += difference * difference;
                sum[at] += difference;
            }
        }
        for at in 0..64 {
            assert!(squares[at] / (BLOCKS as f64) < 0.06, "sample {at}: {}", squares[at] / BLOCKS as f64);
            assert!(sum[at].abs() / (BLOCKS as f64) < 0.015, "sample {at}: {}", sum[at] / BLOCKS as f64);
        }
    }

    #[test]
    fn vectors_give_what_single_numbers_give() {
        let mut random = random();
        for round in 0..4000 {
            let range = [3, 200, 3000, 65535][round % 4];
            let mut block = [0; 64];
            for _ in 0..1 + round % 64 {
                block[random(64) as usize] = (random(range) - range / 2) as i16;
            }
            let quantisation = std::array::from_fn(|_| random(if round % 8 < 4 { 256 } else { 65536 }) as u16 as i16);
            assert_eq!(inverse(&block, &quantisation), portable::inverse(&block, &quantisation));
        }
    }

    #[test]
    fn a_mean_alone_gives_its_value_everywhere() {
        for quantisation in [1, 3, 16, 255] {
            for mean in -8192 / quantisation..=8191 / quantisation {
                let mut block = [0; 64];
                block[0] = mean;
                let expected = inverse(&block, &[quantisation; 64]);
                assert_eq!([[inverse_of_mean(mean, quantisation); 8]; 8], expected, "{mean} times {quantisation}");
            }
        }
    }
}
