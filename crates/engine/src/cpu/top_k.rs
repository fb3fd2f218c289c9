//! The k largest numbers of each row.

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::team::Team;

/// So many numbers are passed over at once if none of them is large enough, which is seen without a branch for each.
const PIECE: usize = 64;

/// The k largest numbers of each row and their indices, the largest first.
pub(super) fn top_k(kernel: &Kernel, team: &mut Team, k: usize) {
    let x = kernel.input(0);
    let shape = &kernel.input_type(0).shape;
    let (rows, columns) = (shape.rows(), shape.columns());
    let (values, indices) = (kernel.output_raw::<f32>(0), kernel.output_raw::<i32>(1));
    let per_tile = rows_per_tile(rows, columns);
    team.run(rows.div_ceil(per_tile), &|tile, scratch| {
        for row in tile_rows(tile, per_tile, rows) {
            let numbers = x.read(row * columns..(row + 1) * columns, scratch);
            // SAFETY: each row of the results is written by one tile only.
            let (values, indices) =
                unsafe { (values.range(row * k..(row + 1) * k), indices.range(row * k..(row + 1) * k)) };
            largest(numbers, values, indices);
        }
    });
}

/// Fills `values` and `indices` with the largest numbers of a row; of equal ones the first comes first.
fn largest(row: &[f32], values: &mut [f32], indices: &mut [i32]) {
    values.fill(f32::NEG_INFINITY);
    indices.fill(-1);
    let k = values.len();
    let (mut found, mut least) = (0, f32::NEG_INFINITY);
    for (piece, numbers) in row.chunks(PIECE).enumerate() {
        if found == k && !numbers.iter().fold(false, |any, &number| any | (number > least)) {
            continue;
        }
        for (index, &number) in (piece * PIECE..).zip(numbers) {
            // NaN is neither larger than anything nor equal to it.
            if !(number > least || found < k && number >= least) {
                continue;
            }
            let place = values[..found].partition_point(|&other| other >= number);
            found = (found + 1).min(k);
            values.copy_within(place..found - 1, place + 1);
            indices.copy_within(place..found - 1, place + 1);
            (values[place], indices[place]) = (number, index as i32);
            if found == k {
                least = values[k - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::largest;

    fn of(row: &[f32], k: usize) -> (Vec<f32>, Vec<i32>) {
        let (mut values, mut indices) = (vec![f32::NAN; k], vec![7; k]);
        largest(row, &mut values, &mut indices);
        (values, indices)
    }

    #[test]
    fn nan_is_never_taken_and_of_equal_numbers_the_first_comes_first() {
        assert_eq!(of(&[0.1, f32::NAN, 0.7, 0.1, 0.2], 3), (vec![0.7, 0.2, 0.1], vec![2, 4, 0]));
        assert_eq!(of(&[0.5, 0.5, 0.5], 2).1, [0, 1]);
        assert_eq!(of(&[f32::NAN; 3], 2), (vec![f32::NEG_INFINITY; 2], vec![-1, -1]));
        assert_eq!(of(&[f32::NEG_INFINITY, f32::NAN, 0.0], 3).1, [2, 0, -1]);
    }

    #[test]
    fn long_rows_are_searched_to_their_end() {
        let row: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32).collect();
        let (values, indices) = of(&row, 5);
        assert_eq!(values, [999.0, 998.0, 997.0, 996.0, 995.0]);
        assert!(indices.iter().zip(&values).all(|(&index, &value)| row[index as usize] == value));
    }
}
