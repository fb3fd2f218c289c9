//! Image preparation, step by step.

use super::Tensor;
use crate::ops::image_draws::{ImageDraws, Mixing};
use crate::ops::prepare_images::PrepareImages;

pub(super) fn prepare_images(op: &PrepareImages, inputs: &[Tensor]) -> Vec<f64> {
    let [pixels, draws, table] = inputs else { unreachable!("three inputs") };
    let PrepareImages { channels, height, width, .. } = *op;
    let words: Vec<i32> = draws.data.iter().map(|&word| word as i32).collect();
    let rows: Vec<ImageDraws> = words.chunks(op.draws_length()).map(|row| ImageDraws::new(row, channels)).collect();
    let stored = pixels.data.chunks(op.pixel_words());
    let pictures: Vec<Vec<f64>> = stored
        .zip(&rows)
        .map(|(words, row)| {
            let bytes: Vec<u8> = words.iter().flat_map(|&word| (word as i32).to_le_bytes()).collect();
            let mut picture = laid(op, &bytes, row, &table.data);
            for index in 0..row.boxes() {
                erase(op, &mut picture, row, index);
            }
            picture
        })
        .collect();
    let mut out = Vec::new();
    for (sample, row) in rows.iter().enumerate() {
        let partner = &pictures[rows.len() - 1 - sample];
        for (i, &x) in pictures[sample].iter().enumerate() {
            out.push(match row.mixing() {
                Mixing::Nothing => x,
                Mixing::Blend { own, partner: share } => f64::from(own) * x + f64::from(share) * partner[i],
                Mixing::Paste(area) if area.contains(i / width % height, i % width) => partner[i],
                Mixing::Paste(_) => x,
            });
        }
    }
    debug_assert_eq!(out.len(), rows.len() * channels * height * width);
    out
}

/// An image placed, flipped and normalised.
fn laid(op: &PrepareImages, bytes: &[u8], row: &ImageDraws, table: &[f64]) -> Vec<f64> {
    let PrepareImages { channels, height, width, .. } = *op;
    let laying = row.laying();
    let mut out = Vec::new();
    for c in 0..channels {
        let mut plane = vec![table[c * 256]; height * width];
        for y in 0..height {
            for x in 0..width {
                let (to_y, to_x) = (y as i64 + i64::from(laying.top), x as i64 + i64::from(laying.left));
                if (0..height as i64).contains(&to_y) && (0..width as i64).contains(&to_x) {
                    let to_y = if laying.upside_down { height - 1 - to_y as usize } else { to_y as usize };
                    let to_x = if laying.mirrored { width - 1 - to_x as usize } else { to_x as usize };
                    plane[to_y * width + to_x] = table[c * 256 + usize::from(bytes[(y * width + x) * channels + c])];
                }
            }
        }
        out.extend(plane);
    }
    out
}

/// Fills one box.
fn erase(op: &PrepareImages, picture: &mut [f64], row: &ImageDraws, index: usize) {
    let (area, stream) = (row.area(index), row.stream());
    let mut word = row.noise_start(index);
    let mut uniform = || {
        let bits = stream.four(word / 4)[(word % 4) as usize];
        word += 1;
        f64::from((bits >> 8) + 1) / f64::from(1u32 << 24)
    };
    for c in 0..op.channels {
        for y in area.top..area.top + area.height {
            let mut second = None;
            for x in area.left..area.left + area.width {
                let number = if !op.noise {
                    f64::from(row.colour(index, c))
                } else if let Some(number) = second.take() {
                    number
                } else {
                    let (u, v) = (uniform(), uniform());
                    let (radius, angle) = ((-2.0 * u.ln()).sqrt(), 2.0 * std::f64::consts::PI * v);
                    second = Some(radius * angle.sin());
                    radius * angle.cos()
                };
                picture[(c * op.height + y as usize) * op.width + x as usize] = number;
            }
        }
    }
}
