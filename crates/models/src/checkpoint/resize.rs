//! Resizes learned positions to another grid of patches, with the interpolation of the checkpoint's library, so that
//! the same weights give the same results at another image size as there.

use crate::settings::Size;

/// The interpolation filter. Coordinates are those of PyTorch's `align_corners=False`: pixel centres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Cubic convolution with a = -0.75 over four neighbours, clamped at the edge (Hugging Face).
    Bicubic,
    /// Cubic convolution with a = -0.5, widened by the scale when shrinking (timm; `antialias=True`).
    BicubicAntialiased,
    /// Linear between two neighbours (timm, for Google's files).
    Bilinear,
}

/// Resizes a table of `prefix` rows, which are copied, and one row per patch.
pub fn resize(table: &[f32], dim: usize, prefix: usize, from: Size, to: Size, filter: Filter) -> Vec<f32> {
    let (kept, grid) = table.split_at(prefix * dim);
    let mut resized = kept.to_vec();
    if from == to {
        resized.extend_from_slice(grid);
        return resized;
    }
    let across: Vec<Taps> = (0..to.width).map(|place| taps(place, from.width, to.width, filter)).collect();
    let down: Vec<Taps> = (0..to.height).map(|place| taps(place, from.height, to.height, filter)).collect();

    // Along rows first, then along columns. In f64: the tables are small, and the order of summation then does not
    // matter.
    let mut wide = vec![0f64; from.height * to.width * dim];
    for (row, out) in wide.chunks_exact_mut(to.width * dim).enumerate() {
        for (cell, taps) in out.chunks_exact_mut(dim).zip(&across) {
            for (column, weight) in taps {
                let source = &grid[(row * from.width + column) * dim..][..dim];
                cell.iter_mut().zip(source).for_each(|(sum, &x)| *sum += weight * f64::from(x));
            }
        }
    }
    let mut cell = vec![0f64; dim];
    for taps in &down {
        for column in 0..to.width {
            cell.fill(0.0);
            for (row, weight) in taps {
                let source = &wide[(row * to.width + column) * dim..][..dim];
                cell.iter_mut().zip(source).for_each(|(sum, x)| *sum += weight * x);
            }
            resized.extend(cell.iter().map(|&x| x as f32));
        }
    }
    resized
}

/// Source indices and their weights.
type Taps = Vec<(usize, f64)>;

/// The sources of an index of the new axis.
fn taps(place: usize, from: usize, to: usize, filter: Filter) -> Taps {
    let scale = from as f64 / to as f64;
    let centre = (place as f64 + 0.5) * scale;
    let last = from as isize - 1;
    match filter {
        Filter::Bicubic => {
            let at = centre - 0.5;
            let first = at.floor() as isize - 1;
            let tap = |index: isize| (index.clamp(0, last) as usize, cubic(at - index as f64, -0.75));
            (first..first + 4).map(tap).collect()
        }
        Filter::Bilinear => {
            let at = (centre - 0.5).max(0.0);
            let first = (at.floor() as isize).min(last);
            let part = at - first as f64;
            vec![(first as usize, 1.0 - part), ((first + 1).min(last) as usize, part)]
        }
        Filter::BicubicAntialiased => {
            let stretch = scale.max(1.0);
            let support = 2.0 * stretch;
            let first = ((centre - support + 0.5) as isize).max(0);
            let end = ((centre + support + 0.5) as isize).min(from as isize);
            let weight = |index: isize| cubic((index as f64 - centre + 0.5) / stretch, -0.5);
            let total: f64 = (first..end).map(weight).sum();
            (first..end).map(|index| (index as usize, weight(index) / total)).collect()
        }
    }
}

/// Keys' cubic convolution kernel.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_and_prefix_rows_stay() {
        for filter in [Filter::Bicubic, Filter::BicubicAntialiased, Filter::Bilinear] {
            for (from, to) in [(1, 5), (7, 3), (14, 24), (24, 14), (3, 3), (16, 1)] {
                for place in 0..to {
                    let sum: f64 = taps(place, from, to, filter).iter().map(|(_, weight)| weight).sum();
                    assert!((sum - 1.0).abs() < 1e-12, "{filter:?} {from} {to} {place}: {sum}");
                }
            }
        }
        let table: Vec<f32> = (0..5 * 2).map(|x| x as f32).collect();
        let out = resize(&table, 2, 1, Size::square(2), Size { height: 3, width: 1 }, Filter::Bilinear);
        assert_eq!(out[..2], [0.0, 1.0]);
        // The middle of a linear table is its mean.
        assert_eq!(out[4..6], [5.0, 6.0]);
    }
}
