//! How alike positions are: the cosine of the angle between every two rows of their table (as figure 7 of "An Image is Worth 16x16
//! Words" shows it).
//!
//! ```text
//! similarity_ij = p_i · p_j / (|p_i| |p_j|)         0 where a row is nothing but zeros
//! ```

/// Numbers that are summed side by side.
const LANES: usize = 16;

/// The cosines between all rows of a table with `dim` columns, `[rows, rows]`.
pub fn similarity(table: &[f32], dim: usize) -> Vec<f32> {
    let units: Vec<f32> = table.chunks_exact(dim).flat_map(unit).collect();
    let count = table.len() / dim;
    let mut cosines = vec![0.0; count * count];
    for row in 0..count {
        for column in 0..=row {
            let cosine = dot(&units[row * dim..][..dim], &units[column * dim..][..dim]);
            (cosines[row * count + column], cosines[column * count + row]) = (cosine, cosine);
        }
    }
    cosines
}

fn unit(row: &[f32]) -> impl Iterator<Item = f32> {
    let length = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    row.iter().map(move |&x| if length == 0.0 { 0.0 } else { (f64::from(x) / length) as f32 })
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; LANES];
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::similarity;

    #[test]
    fn rows_along_across_and_of_nothing() {
        let table = [3.0, 4.0, -6.0, -8.0, 4.0, -3.0, 0.0, 0.0];
        let expected = [1.0, -1.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        for (got, expected) in similarity(&table, 2).iter().zip(expected) {
            assert!((got - expected).abs() < 1e-6f32, "{got} {expected}");
        }
    }
}
