//! From what a file stores to red, green and blue, in libjpeg's 16-bit fixed point, a row at a time.

/// What the components of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Grey,
    Rgb,
    /// Luma and two differences of colour (BT.601, as JFIF says).
    Ycc,
    /// Four inks, inverted.
    Cmyk,
    /// Four inks, the first three as luma and differences.
    Ycck,
}

impl Colour {
    /// The channels of what [`convert`] writes.
    pub(super) fn channels(self) -> usize {
        if self == Colour::Grey { 1 } else { 3 }
    }
}

/// Pixels that are converted at once.
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

/// Files hold 255 minus the ink, whoever wrote them: that is Adobe's habit, and Pillow assumes it of all files. With
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
    let (luma, blue, red) = (&luma[..pixels], &blue[..pixels], &red[..pixels]);
    let (luma, last_luma) = luma.as_chunks::<CHUNK>();
    let (blue, last_blue) = blue.as_chunks::<CHUNK>();
    let (red, last_red) = red.as_chunks::<CHUNK>();
    let (out, last_out) = out.split_at_mut(3 * CHUNK * luma.len());
    let (out, _) = out.as_chunks_mut::<{ 3 * CHUNK }>();
    for (((luma, blue), red), out) in luma.iter().zip(blue).zip(red).zip(out) {
        *out = interleaved(chunk_from_ycc(luma, blue, red));
    }
    if !last_out.is_empty() {
        let padded = |row: &[u8]| std::array::from_fn(|index| row.get(index).copied().unwrap_or(0));
        let pixels = interleaved(chunk_from_ycc(&padded(last_luma), &padded(last_blue), &padded(last_red)));
        last_out.copy_from_slice(&pixels[..last_out.len()]);
    }
}

/// ```text
/// red   = y + 1.402 r
/// green = y - 0.344136 b - 0.714136 r
/// blue  = y + 1.772 b
/// ```
/// Each product has 16 fractional bits and is rounded. To stay within 16 bits, whole parts of the factors are added apart.
#[inline(always)]
fn chunk_from_ycc(luma: &[u8; CHUNK], blue: &[u8; CHUNK], red: &[u8; CHUNK]) -> [[u8; CHUNK]; 3] {
    let mut out = [[0; CHUNK]; 3];
    for index in 0..CHUNK {
        let y = i16::from(luma[index]);
        let (b, r) = (i16::from(blue[index]) - 128, i16::from(red[index]) - 128);
        let green = (-22554 * i32::from(b) + 18734 * i32::from(r) + (1 << 15)) >> 16;
        let pixel = [y + r + rounded(r, 26345), y - r + green as i16, y + 2 * b + rounded(b, -14942)];
        for channel in 0..3 {
            out[channel][index] = pixel[channel].clamp(0, 255) as u8;
        }
    }
    out
}

/// `value * factor / 2^16`, rounded: the half of a product's upper 16 bits, which there is an instruction for.
#[inline(always)]
fn rounded(value: i16, factor: i16) -> i16 {
    (((i32::from(2 * value) * i32::from(factor)) >> 16) as i16 + 1) >> 1
}

/// Pixels of three bytes each. Eight bytes are written for two pixels of which the next pixels overwrite two: a store of eight bytes
/// takes no longer than one of a single byte.
#[inline(always)]
fn interleaved([red, green, blue]: [[u8; CHUNK]; 3]) -> [u8; 3 * CHUNK] {
    let mut quads = [0_u32; CHUNK];
    for index in 0..CHUNK {
        quads[index] = u32::from(red[index]) | u32::from(green[index]) << 8 | u32::from(blue[index]) << 16;
    }
    let mut out = [0; 3 * CHUNK];
    for index in 0..CHUNK - 1 {
        out[3 * index..3 * index + 4].copy_from_slice(&quads[index].to_le_bytes());
    }
    out[3 * CHUNK - 3..].copy_from_slice(&quads[CHUNK - 1].to_le_bytes()[..3]);
    out
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
