//! What patches the embedding tells apart: the principal components of its filters (as figure 7 of "An Image is Worth 16x16 Words").
//!
//! A filter is a row of the patch embedding's weight, a number for each pixel of a patch: all of the first channel row by row, then
//! the second .. With the mean over filters taken off, `X [filters, pixels]`, the components are the eigenvectors of `Xᵀ X`, and each
//! one's share of the variance is its eigenvalue's share of their sum. Where there are fewer filters than pixels, those are
//! `Xᵀ u` of the eigenvectors `u` of the smaller `X Xᵀ`.

use crate::eigen::{Spectrum, largest};
use crate::explanation::Filter;
use crate::matrix::turned;

/// The first components, at most so many, of filters of so many pixels. None at all if some weight is no number.
pub fn components(weights: &[f32], pixels: usize, most: usize) -> Vec<Filter> {
    let filters = weights.len().checked_div(pixels).unwrap_or(0);
    let centred = centred(weights, pixels, filters);
    let by_pixel = pixels <= filters;
    let (rows, columns) = if by_pixel { (filters, pixels) } else { (pixels, filters) };
    let matrix = if by_pixel { centred.clone() } else { turned(&centred, pixels) };
    let Some(Spectrum { values, vectors }) = largest(inner_products(&matrix, columns), columns, most) else {
        return Vec::new();
    };
    let total: f64 = values.iter().sum();
    // What rounding leaves of eigenvalues that are 0.
    let nothing = values.first().map_or(0.0, |first| first * f64::EPSILON * rows.max(columns) as f64);
    let real = values.iter().zip(vectors).filter(|(value, _)| **value > nothing);
    real.map(|(value, vector)| {
        let component = if by_pixel { vector } else { combined(&centred, pixels, &vector) };
        Filter { pixels: upright(component), share: value / total }
    })
    .collect()
}

/// The filters without their mean.
fn centred(weights: &[f32], pixels: usize, filters: usize) -> Vec<f64> {
    let mut mean = vec![0.0; pixels];
    for filter in weights.chunks_exact(pixels.max(1)) {
        mean.iter_mut().zip(filter).for_each(|(mean, &weight)| *mean += f64::from(weight) / filters as f64);
    }
    weights.iter().zip(mean.iter().cycle()).map(|(&weight, mean)| f64::from(weight) - mean).collect()
}

/// The products of all columns with each other: `Mᵀ M`.
fn inner_products(matrix: &[f64], columns: usize) -> Vec<f64> {
    let mut products = vec![0.0; columns * columns];
    let mut add = |rows: [&[f64]; 4]| {
        for (i, products) in products.chunks_exact_mut(columns.max(1)).enumerate() {
            let own = rows.map(|row| row[i]);
            let [a, b, c, d] = rows.map(|row| &row[i..columns]);
            for ((((product, a), b), c), d) in products[i..].iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *product += own[0] * a + own[1] * b + own[2] * c + own[3] * d;
            }
        }
    };
    let zeros = vec![0.0; columns];
    // Four rows at once: the products go through memory a quarter as often.
    for block in matrix.chunks(4 * columns.max(1)) {
        let mut rows = block.chunks_exact(columns.max(1));
        add([0, 1, 2, 3].map(|_| rows.next().unwrap_or(&zeros)));
    }
    for row in 0..columns {
        for column in 0..row {
            products[row * columns + column] = products[column * columns + row];
        }
    }
    products
}

/// The sum of filters, each times a number, made of length 1.
fn combined(filters: &[f64], pixels: usize, shares: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; pixels];
    for (filter, share) in filters.chunks_exact(pixels).zip(shares) {
        sum.iter_mut().zip(filter).for_each(|(sum, weight)| *sum += share * weight);
    }
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    sum.iter_mut().for_each(|x| *x /= length);
    sum
}

/// Which way round a component is does not follow from the filters: its largest number by size, the first of them, is made positive.
fn upright(component: Vec<f64>) -> Vec<f32> {
    let largest = component.iter().copied().fold(0f64, |largest, x| if x.abs() > largest.abs() { x } else { largest });
    component.into_iter().map(|x| if largest < 0.0 { -x as f32 } else { x as f32 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_along_one_line_have_one_component() {
        // A mean of [1, 1], and twice as much of [3, -4] / 5 one way as the other.
        let weights = [1.0 + 1.2, 1.0 - 1.6, 1.0 - 0.6, 1.0 + 0.8, 1.0 - 0.6, 1.0 + 0.8];
        for most in [1, 5] {
            let filters = components(&weights, 2, most);
            assert_eq!(filters.len(), 1);
            assert!((filters[0].share - 1.0).abs() < 1e-6);
            let [x, y] = filters[0].pixels[..] else { panic!("two pixels") };
            assert!((x + 0.6).abs() < 1e-6 && (y - 0.8).abs() < 1e-6, "{x} {y}");
        }
    }

    #[test]
    fn no_number_and_no_variance_give_nothing() {
        assert!(components(&[1.0, f32::NAN, 2.0, 3.0], 2, 3).is_empty());
        assert!(components(&[1.0, f32::INFINITY, 2.0, 3.0], 2, 3).is_empty());
        assert!(components(&[0.5; 12], 3, 3).is_empty());
        assert!(components(&[0.5; 12], 12, 3).is_empty());
        assert!(components(&[], 0, 3).is_empty());
    }
}
