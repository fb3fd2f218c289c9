//! Colour conversion to RGB in libjpeg's 16-bit fixed point, row by row.

/// The colour space of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Grey,
    Rgb,
    /// YCbCr (BT.601, as in JFIF).
    Ycc,
    /// CMYK, inverted.
    Cmyk,
    /// CMYK, of which the first three are stored as YCbCr.
    Ycck,
}

impl Colour {
    /// The channels of what [`convert`] writes.
    pub(super) fn channels(self) -> usize {
        if self == Colour::Grey { 1 } else { 3 }
    }
}

/// Pixels per step of the conversion.
const CHUNK: usize = 16;

/// Rows of the components, each at least as long as the row of pixels that is written.
pub(super) fn convert(colour: Colour, rows: &[&[u8]], out: &mut [u8]) {
    match (colour, rows) {
        (Colour::Grey, [grey]) => out.copy_from_slice(&grey[..out.len()]),
        (Colour::Rgb, &[red, green, blue]) => {
            for (index, pixel) in out.chunks_exact_mut(3).enumerate() {
                pixel.copy_from_slice(&[red[index], green[index], blue[index]]);
            }
        }
        (Colour::Ycc, &[luma, blue, red]) => from_ycc(luma, blue, red, out),
        (Colour::Cmyk, &[cyan, magenta, yellow, black]) => {
            for (index, pixel) in out.chunks_exact_mut(3).enumerate() {
                pixel.copy_from_slice(&from_inks([cyan[index], magenta[index], yellow[index]], black[index]));
            }
        }
        (Colour::Ycck, &[luma, blue, red, black]) => {
            from_ycc(luma, blue, red, out);
            for (index, pixel) in out.chunks_exact_mut(3).enumerate() {
                // libjpeg gives the inks as 255 minus what RGB would be.
                let inks = [255 - pixel[0], 255 - pixel[1], 255 - pixel[2]];
                pixel.copy_from_slice(&from_inks(inks, black[index]));
            }
        }
        _ => unreachable!("as many rows as the colour has components"),
    }
}

/// Files hold 255 minus the ink: Adobe writes them so, and Pillow assumes it of all files. With
/// `k = 255 - black`: `red = k - cyan * k / 255`.
fn from_inks(inverted: [u8; 3], inverted_black: u8) -> [u8; 3] {
    let light = u32::from(inverted_black);
    inverted.map(|value| {
        // Divided by 255 with rounding; exact for products of two bytes.
        let product = (255 - u32::from(value)) * light + 128;
        (light - (((product >> 8) + product) >> 8)) as u8
    })
}

fn from_ycc(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    let pixels = out.len() / 3;
    let (luma, last_luma) = luma[..pixels].as_chunks::<CHUNK>();
    let (blue, last_blue) = blue[..pixels].as_chunks::<CHUNK>();
    let (red, last_red) = red[..pixels].as_chunks::<CHUNK>();
    let (out, last_out) = out.as_chunks_mut::<{ 3 * CHUNK }>();
    for (((luma, blue), red), out) in luma.iter().zip(blue).zip(red).zip(out) {
        chunk_from_ycc(luma, blue, red, out);
    }
    if !last_out.is_empty() {
        let padded = |row: &[u8]| std::array::from_fn(|index| row.get(index).copied().unwrap_or(0));
        let mut pixels = [0; 3 * CHUNK];
        chunk_from_ycc(&padded(last_luma), &padded(last_blue), &padded(last_red), &mut pixels);
        last_out.copy_from_slice(&pixels[..last_out.len()]);
    }
}

type Samples = [u8; CHUNK];
type Pixels = [u8; 3 * CHUNK];

/// ```text
/// red   = y + 1.402 r
/// green = y - 0.344136 b - 0.714136 r
/// blue  = y + 1.772 b
/// ```
/// Each product has 16 fractional bits and is rounded. To stay within 16 bits, the integer parts of the factors are added separately.
#[inline(always)]
fn chunk_from_ycc(luma: &Samples, blue: &Samples, red: &Samples, out: &mut Pixels) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: the instructions that the function is compiled with are part of every x86-64.
    unsafe {
        sse2::chunk_from_ycc(luma, blue, red, out);
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable::chunk_from_ycc(luma, blue, red, out);
}

/// Factors with 16 fractional bits, less their integer part.
const RED: i16 = 26345; // 1.402 - 1
const GREEN: [i16; 2] = [-22554, 18734]; // -0.344136, and 1 - 0.714136
const BLUE: i16 = -14942; // 1.772 - 2

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::*;

    pub(super) fn chunk_from_ycc(luma: &Samples, blue: &Samples, red: &Samples, out: &mut Pixels) {
        let rounded = |product: i32| (product + (1 << 15)) >> 16;
        for (index, pixel) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let y = i32::from(luma[index]);
            let (b, r) = (i32::from(blue[index]) - 128, i32::from(red[index]) - 128);
            let colours = [
                y + r + rounded(r * i32::from(RED)),
                y - r + rounded(b * i32::from(GREEN[0]) + r * i32::from(GREEN[1])),
                y + 2 * b + rounded(b * i32::from(BLUE)),
            ];
            *pixel = colours.map(|value| value.clamp(0, 255) as u8);
        }
    }
}

/// The same in vectors of eight 16-bit numbers.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;

    use bytemuck::must_cast;

    use super::*;

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn chunk_from_ycc(luma: &Samples, blue: &Samples, red: &Samples, out: &mut Pixels) {
        let zero = _mm_setzero_si128();
        let [luma, blue, red] = [*luma, *blue, *red].map(|samples| {
            let samples = must_cast(samples);
            [_mm_unpacklo_epi8(samples, zero), _mm_unpackhi_epi8(samples, zero)]
        });
        let [low, high] = [0, 1].map(|half| colours(luma[half], blue[half], red[half]));
        let [red, green, blue] = [0, 1, 2].map(|channel| _mm_packus_epi16(low[channel], high[channel]));
        // Four bytes per pixel, of which the last is zero.
        let low = [_mm_unpacklo_epi8(red, green), _mm_unpacklo_epi8(blue, zero)];
        let high = [_mm_unpackhi_epi8(red, green), _mm_unpackhi_epi8(blue, zero)];
        let quads = [
            _mm_unpacklo_epi16(low[0], low[1]),
            _mm_unpackhi_epi16(low[0], low[1]),
            _mm_unpacklo_epi16(high[0], high[1]),
            _mm_unpackhi_epi16(high[0], high[1]),
        ];
        // Two pixels in the lower six of eight bytes.
        let first = _mm_set1_epi64x(0xFF_FFFF);
        let pairs: [u64; 8] =
            must_cast(quads.map(|quad| {
                _mm_or_si128(_mm_and_si128(quad, first), _mm_andnot_si128(first, _mm_srli_epi64::<8>(quad)))
            }));
        // Eight bytes are stored as fast as six; the next pair overwrites the two extra ones.
        for pair in 0..7 {
            out[6 * pair..6 * pair + 8].copy_from_slice(&pairs[pair].to_le_bytes());
        }
        out[40..].copy_from_slice(&(pairs[6] >> 32 | pairs[7] << 16).to_le_bytes());
    }

    /// Red, green and blue, not yet clamped.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn colours(luma: __m128i, blue: __m128i, red: __m128i) -> [__m128i; 3] {
        let level = _mm_set1_epi16(128);
        let (blue, red) = (_mm_sub_epi16(blue, level), _mm_sub_epi16(red, level));
        let (two_blue, two_red) = (_mm_add_epi16(blue, blue), _mm_add_epi16(red, red));
        let factors = _mm_set1_epi32(must_cast(GREEN));
        let half = _mm_set1_epi32(1 << 15);
        let [low, high] = [_mm_unpacklo_epi16(blue, red), _mm_unpackhi_epi16(blue, red)]
            .map(|pairs| _mm_srai_epi32::<16>(_mm_add_epi32(_mm_madd_epi16(pairs, factors), half)));
        [
            _mm_add_epi16(_mm_add_epi16(luma, red), rounded(two_red, RED)),
            _mm_add_epi16(_mm_sub_epi16(luma, red), _mm_packs_epi32(low, high)),
            _mm_add_epi16(_mm_add_epi16(luma, two_blue), rounded(two_blue, BLUE)),
        ]
    }

    /// Half the product, with 16 fractional bits rounded away: from its upper 16 bits.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn rounded(doubled: __m128i, factor: i16) -> __m128i {
        let upper = _mm_mulhi_epi16(doubled, _mm_set1_epi16(factor));
        _mm_srai_epi16::<1>(_mm_add_epi16(upper, _mm_set1_epi16(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libjpeg's tables, by its formulas.
    fn libjpeg([y, b, r]: [u8; 3]) -> [u8; 3] {
        let (y, b, r) = (i64::from(y), i64::from(b) - 128, i64::from(r) - 128);
        let fixed = |factor: f64| (factor * 65536.0 + 0.5) as i64;
        let half = 1 << 15;
        [
            y + ((fixed(1.402) * r + half) >> 16),
            y + ((-fixed(0.34414) * b - fixed(0.71414) * r + half) >> 16),
            y + ((fixed(1.772) * b + half) >> 16),
        ]
        .map(|value| value.clamp(0, 255) as u8)
    }

    #[test]
    fn every_colour_is_converted_as_libjpeg_does() {
        let rows = [0, 1, 2].map(|shift| (0..256 * 256).map(|index| (index >> (4 * shift)) as u8).collect::<Vec<_>>());
        for luma in [0, 1, 77, 128, 200, 255] {
            let [_, blue, red] = &rows;
            // One pixel fewer than a whole number of chunks.
            let luma = vec![luma; blue.len() - 1];
            let mut out = vec![0; 3 * luma.len()];
            convert(Colour::Ycc, &[&luma, blue, red], &mut out);
            for (index, pixel) in out.chunks_exact(3).enumerate() {
                assert_eq!(pixel, libjpeg([luma[index], blue[index], red[index]]));
            }
            let chunk = |row: &[u8], at: usize| *row[at..].first_chunk::<CHUNK>().unwrap();
            for at in (0..luma.len() - CHUNK).step_by(CHUNK) {
                let mut pixels = [0; 3 * CHUNK];
                portable::chunk_from_ycc(&chunk(&luma, at), &chunk(blue, at), &chunk(red, at), &mut pixels);
                assert_eq!(pixels, out[3 * at..][..3 * CHUNK]);
            }
        }
        let colours: std::collections::HashSet<_> = rows[1].iter().zip(&rows[2]).collect();
        assert_eq!(colours.len(), 65536 / 16);
    }

    #[test]
    fn a_product_of_inks_is_divided_by_255_and_rounded() {
        for ink in 0..=255_u8 {
            for light in 0..=255_u8 {
                let exact = f64::from(light) - (f64::from(255 - ink) * f64::from(light) / 255.0).round();
                assert_eq!(f64::from(from_inks([ink; 3], light)[0]), exact);
            }
        }
    }
}
