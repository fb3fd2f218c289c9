//! The largest eigenvalues of a symmetric matrix, and their vectors.
//!
//! In two steps, both exact but for rounding:
//!
//! 1. Householder: `A = Q T Qᵀ` with `T` tridiagonal. Step `k` reflects by `H = I - β v vᵀ` so that row `k` has nothing right of
//!    its second diagonal; on the rest of the matrix that is `A ← A - v wᵀ - w vᵀ`, with `p = β A v`, `w = p - (β/2)(pᵀv) v`.
//! 2. Implicit QL with Wilkinson's shift: rotations of neighbouring rows and columns until `T` is diagonal.
//!
//! Usually the rotations are applied to all of `Q`, which is most of the work. Here they are noted, and applied to the few vectors
//! that are wanted: those then cost `size²` steps each, and only the first step costs `size³`.

/// The largest eigenvalues and their vectors.
#[derive(Clone, Debug)]
pub struct Spectrum {
    /// All eigenvalues, the largest first.
    pub values: Vec<f64>,
    /// The vectors of the first ones, each of length 1.
    pub vectors: Vec<Vec<f64>>,
}

/// Rotations that one eigenvalue may take before it is given up: two are usual.
const MOST_SWEEPS: usize = 100;

/// A tridiagonal matrix, and the reflections that lead to it.
struct Tridiagonal {
    diagonal: Vec<f64>,
    /// Beside the diagonal; one less.
    beside: Vec<f64>,
    /// Of each step the vector `v`, without the zeros that it begins with, and `β`.
    reflections: Vec<(Vec<f64>, f64)>,
}

/// A rotation of rows `first` and `first + 1`.
struct Rotation {
    first: usize,
    cosine: f64,
    sine: f64,
}

/// All eigenvalues of a symmetric matrix `[size, size]`, and the vectors of the `count` largest. `None` if it holds what is no
/// number.
///
/// # Panics
/// Panics if the matrix has not `size²` numbers.
pub fn largest(matrix: Vec<f64>, size: usize, count: usize) -> Option<Spectrum> {
    assert_eq!(matrix.len(), size * size, "a square matrix of this size");
    if !matrix.iter().all(|number| number.is_finite()) {
        return None;
    }
    let Tridiagonal { mut diagonal, beside, reflections } = tridiagonal(matrix, size);
    let rotations = diagonalise(&mut diagonal, beside)?;
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));

    // A column for each wanted vector, so that a rotation is of two rows.
    let count = count.min(size);
    let mut columns = vec![0.0; size * count];
    for (column, &index) in order[..count].iter().enumerate() {
        columns[index * count + column] = 1.0;
    }
    for rotation in rotations.iter().rev() {
        rotate(&mut columns, count, rotation);
    }
    for (vector, beta) in reflections.iter().rev() {
        let from = size - vector.len();
        reflect(&mut columns[from * count..], count, vector, *beta);
    }
    let vectors = (0..count).map(|column| unit(columns.iter().skip(column).step_by(count))).collect();
    Some(Spectrum { values: order.iter().map(|&index| diagonal[index]).collect(), vectors })
}

fn unit<'v>(numbers: impl Iterator<Item = &'v f64>) -> Vec<f64> {
    let mut vector: Vec<f64> = numbers.copied().collect();
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|x| *x /= length);
    vector
}

fn tridiagonal(mut matrix: Vec<f64>, size: usize) -> Tridiagonal {
    let mut reflections = Vec::new();
    let mut beside = Vec::with_capacity(size.saturating_sub(1));
    let (mut product, mut w) = (vec![0.0; size], vec![0.0; size]);
    for step in 0..size.saturating_sub(1) {
        let below = step + 1;
        let mut v = matrix[step * size + below..(step + 1) * size].to_vec();
        // Scaled, so that squares neither overflow nor vanish.
        let scale = v.iter().fold(0f64, |most, x| most.max(x.abs()));
        if v[1..].iter().all(|&x| x == 0.0) {
            beside.push(v[0]);
            continue;
        }
        v.iter_mut().for_each(|x| *x /= scale);
        let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        let reflected = if v[0] > 0.0 { -length } else { length };
        v[0] -= reflected;
        let beta = 2.0 / v.iter().map(|x| x * x).sum::<f64>();
        beside.push(reflected * scale);

        let (product, w) = (&mut product[below..], &mut w[below..]);
        product.fill(0.0);
        // The matrix is symmetric: its rows, each times a number, add up to what its columns do.
        for (row, &x) in matrix[below * size..].chunks_exact(size).zip(&v) {
            product.iter_mut().zip(&row[below..]).for_each(|(product, a)| *product += x * a);
        }
        let overlap: f64 = product.iter().zip(&v).map(|(p, v)| p * v).sum();
        for ((w, p), v) in w.iter_mut().zip(product.iter()).zip(&v) {
            *w = beta * (p - 0.5 * beta * overlap * v);
        }
        for (row, (&v_row, &w_row)) in matrix[below * size..].chunks_exact_mut(size).zip(v.iter().zip(w.iter())) {
            for ((a, v), w) in row[below..].iter_mut().zip(&v).zip(w.iter()) {
                *a -= v_row * w + w_row * v;
            }
        }
        reflections.push((v, beta));
    }
    let diagonal = (0..size).map(|index| matrix[index * size + index]).collect();
    Tridiagonal { diagonal, beside, reflections }
}

/// Makes the diagonal the eigenvalues, in some order; `None` if it does not come to an end.
fn diagonalise(diagonal: &mut [f64], mut beside: Vec<f64>) -> Option<Vec<Rotation>> {
    let size = diagonal.len();
    let mut rotations = Vec::new();
    for first in 0..size {
        let mut sweeps = 0;
        loop {
            // The block that begins here ends where the next number beside the diagonal is as good as nothing.
            let apart = |&index: &usize| {
                let near = diagonal[index].abs() + diagonal[index + 1].abs();
                beside[index].abs() <= f64::EPSILON * near
            };
            let last = (first..size - 1).find(apart).unwrap_or(size - 1);
            if last == first {
                break;
            }
            sweeps += 1;
            if sweeps > MOST_SWEEPS {
                return None;
            }
            sweep(diagonal, &mut beside, first, last, &mut rotations);
        }
    }
    Some(rotations)
}

/// One sweep over the block from `first` to `last`: a rotation that takes a shift off is made at its end, and what that puts out of
/// place is driven up to its beginning.
fn sweep(diagonal: &mut [f64], beside: &mut [f64], first: usize, last: usize, rotations: &mut Vec<Rotation>) {
    // Of the two eigenvalues of the first two rows, the one nearer to the first.
    let half_gap = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first]);
    let root = half_gap.hypot(1.0);
    let shift = diagonal[first] - beside[first] / (half_gap + if half_gap < 0.0 { -root } else { root });

    let (mut cosine, mut sine, mut taken) = (1.0, 1.0, 0.0);
    let mut ahead = diagonal[last] - shift;
    for index in (first..last).rev() {
        let (out_of_place, next) = (sine * beside[index], cosine * beside[index]);
        let length = out_of_place.hypot(ahead);
        if index + 1 < last {
            beside[index + 1] = length;
        }
        if length == 0.0 {
            // The block falls apart here: the next sweep finds it so.
            diagonal[index + 1] -= taken;
            return;
        }
        (sine, cosine) = (out_of_place / length, ahead / length);
        let rest = diagonal[index + 1] - taken;
        let turned = (diagonal[index] - rest) * sine + 2.0 * cosine * next;
        taken = sine * turned;
        diagonal[index + 1] = rest + taken;
        ahead = cosine * turned - next;
        rotations.push(Rotation { first: index, cosine, sine });
    }
    diagonal[first] -= taken;
    beside[first] = ahead;
}

/// Rotates two rows of a matrix with `width` columns.
fn rotate(matrix: &mut [f64], width: usize, rotation: &Rotation) {
    let (first, second) = matrix[rotation.first * width..].split_at_mut(width);
    for (a, b) in first.iter_mut().zip(second) {
        (*a, *b) = (rotation.cosine * *a + rotation.sine * *b, rotation.cosine * *b - rotation.sine * *a);
    }
}

/// Reflects the columns of a matrix with `width` columns: `X - β v (vᵀ X)`.
fn reflect(matrix: &mut [f64], width: usize, v: &[f64], beta: f64) {
    let mut along = vec![0.0; width];
    for (row, &v) in matrix.chunks_exact(width).zip(v) {
        along.iter_mut().zip(row).for_each(|(along, x)| *along += v * x);
    }
    for (row, &v) in matrix.chunks_exact_mut(width).zip(v) {
        row.iter_mut().zip(&along).for_each(|(x, along)| *x -= beta * v * along);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symmetric, and otherwise of no order.
    fn noise(size: usize) -> Vec<f64> {
        let mut matrix = vec![0.0; size * size];
        let mut state = 1u64;
        for row in 0..size {
            for column in 0..=row {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let number = (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5;
                (matrix[row * size + column], matrix[column * size + row]) = (number, number);
            }
        }
        matrix
    }

    fn check(matrix: &[f64], size: usize) {
        let spectrum = largest(matrix.to_vec(), size, size).expect("has eigenvalues");
        assert!(spectrum.values.is_sorted_by(|a, b| a >= b));
        let scale = matrix.iter().fold(1e-300f64, |most, x| most.max(x.abs())) * size as f64;
        for (index, (value, vector)) in spectrum.values.iter().zip(&spectrum.vectors).enumerate() {
            for (row, &x) in matrix.chunks_exact(size).zip(vector) {
                let product: f64 = row.iter().zip(vector).map(|(a, v)| a * v).sum();
                assert!((product - value * x).abs() <= 1e-13 * scale, "A v is not λ v: {product} and {}", value * x);
            }
            for other in &spectrum.vectors[..=index] {
                let overlap: f64 = other.iter().zip(vector).map(|(a, b)| a * b).sum();
                let expected = if std::ptr::eq(other, vector) { 1.0 } else { 0.0 };
                assert!((overlap - expected).abs() < 1e-12 * size as f64, "{overlap}");
            }
        }
        let trace: f64 = (0..size).map(|index| matrix[index * size + index]).sum();
        assert!((spectrum.values.iter().sum::<f64>() - trace).abs() <= 1e-13 * scale * size as f64);
    }

    #[test]
    fn vectors_are_eigenvectors_and_stand_at_right_angles() {
        for size in [1, 2, 3, 7, 40] {
            check(&noise(size), size);
        }
        let tiny: Vec<f64> = noise(12).iter().map(|x| x * 1e-200).collect();
        check(&tiny, 12);
    }

    #[test]
    fn matrices_that_are_diagonal_or_in_blocks_or_of_low_rank() {
        check(&[3.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 3.0], 3);
        check(&[0.0; 16], 4);
        check(&[2.0, 1.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 1.0, 5.0], 4);
        check(&[1.0; 36], 6);
    }

    #[test]
    fn known_eigenvalues() {
        // 2 on the diagonal and -1 beside it: 2 - 2 cos(k π / 6).
        let mut matrix = vec![0.0; 25];
        for i in 0..5 {
            matrix[i * 5 + i] = 2.0;
            if i > 0 {
                (matrix[i * 5 + i - 1], matrix[(i - 1) * 5 + i]) = (-1.0, -1.0);
            }
        }
        let spectrum = largest(matrix, 5, 2).expect("has eigenvalues");
        assert_eq!(spectrum.vectors.len(), 2);
        for (k, value) in (1..=5).rev().zip(spectrum.values) {
            assert!((value - (2.0 - 2.0 * (f64::from(k) * std::f64::consts::PI / 6.0).cos())).abs() < 1e-14);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert!(largest(vec![1.0, f64::NAN, f64::NAN, 1.0], 2, 1).is_none());
        assert!(largest(Vec::new(), 0, 3).is_some_and(|spectrum| spectrum.values.is_empty()));
    }
}
