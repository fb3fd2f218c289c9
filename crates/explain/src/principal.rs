//! Principal components of the rows of a matrix.
//!
//! With the mean row taken off, `X [rows, columns]`, the components are the eigenvectors of `Xᵀ X`, and the share of the variance
//! that one explains is its eigenvalue's share of their sum. Where there are fewer rows than columns, the components are `Xᵀ u`
//! for the eigenvectors `u` of the smaller `X Xᵀ`.

use crate::eigen::{Spectrum, largest};
use crate::matrix::turned;

/// One principal component.
#[derive(Clone, Debug)]
pub struct Component {
    /// Its direction: a vector of length 1 whose largest value by magnitude is positive.
    pub direction: Vec<f64>,
    /// The share of the variance along it, from 0 to 1.
    pub share: f64,
}

/// The first components of rows of `columns` values, at most `most`. None at all if a value is not finite.
pub fn components(rows: &[f32], columns: usize, most: usize) -> Vec<Component> {
    let count = rows.len().checked_div(columns).unwrap_or(0);
    let centred = centred(rows, columns);
    let by_column = columns <= count;
    let size = if by_column { columns } else { count };
    let matrix = if by_column { centred.clone() } else { turned(&centred, columns) };
    let Some(Spectrum { values, vectors }) = largest(inner_products(&matrix, size), size, most) else {
        return Vec::new();
    };
    let total: f64 = values.iter().sum();
    // What rounding leaves of eigenvalues that are 0.
    let nothing = values.first().map_or(0.0, |first| first * f64::EPSILON * count.max(columns) as f64);
    let real = values.iter().zip(vectors).filter(|(value, _)| **value > nothing);
    real.map(|(value, vector)| {
        let direction = if by_column { vector } else { combined(&centred, columns, &vector) };
        Component { direction: with_positive_peak(direction), share: value / total }
    })
    .collect()
}

/// The rows without their mean.
pub(crate) fn centred(rows: &[f32], columns: usize) -> Vec<f64> {
    let count = rows.len().checked_div(columns).unwrap_or(0);
    let mut mean = vec![0.0; columns];
    for row in rows.chunks_exact(columns.max(1)) {
        mean.iter_mut().zip(row).for_each(|(mean, &value)| *mean += f64::from(value) / count as f64);
    }
    rows.iter().zip(mean.iter().cycle()).map(|(&value, mean)| f64::from(value) - mean).collect()
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

/// The sum of the rows, each times its factor, scaled to length 1.
fn combined(rows: &[f64], columns: usize, factors: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; columns];
    for (row, factor) in rows.chunks_exact(columns).zip(factors) {
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += factor * value);
    }
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    sum.iter_mut().for_each(|x| *x /= length);
    sum
}

/// The sign of a component is arbitrary: its largest value by magnitude (the first of equals) is made positive.
fn with_positive_peak(direction: Vec<f64>) -> Vec<f64> {
    let largest = direction.iter().copied().fold(0f64, |largest, x| if x.abs() > largest.abs() { x } else { largest });
    if largest < 0.0 { direction.into_iter().map(|x| -x).collect() } else { direction }
}
