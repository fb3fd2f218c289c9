//! Parts of matrices that lie row by row.

use std::ops::Range;

/// Some columns of a matrix whose rows have `width` numbers, one row behind the other.
pub(crate) fn copy_columns(matrix: &[f32], width: usize, columns: Range<usize>, to: &mut [f32]) {
    for (row, to) in matrix.chunks_exact(width).zip(to.chunks_exact_mut(columns.len())) {
        to.copy_from_slice(&row[columns.clone()]);
    }
}

/// A matrix whose rows have `width` numbers, with rows for columns.
pub(crate) fn turned<T: Copy + Default>(matrix: &[T], width: usize) -> Vec<T> {
    let rows = matrix.len() / width;
    let mut turned = vec![T::default(); matrix.len()];
    for (row, numbers) in matrix.chunks_exact(width).enumerate() {
        for (column, &number) in numbers.iter().enumerate() {
            turned[column * rows + row] = number;
        }
    }
    turned
}
