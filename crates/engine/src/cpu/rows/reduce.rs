//! Sums and maxima over many values or rows.

use super::super::simd::{Lanes, simd_fn};
use super::{Part, Rest, Whole, each_vector_in_turn, sum_of_parts};

/// Values summed in f32 before the sum goes to f64: a lane adds at most 64 squares.
const BLOCK: usize = 1024;

simd_fn! {
    /// The sum of squares, always in the same order. Blocks are summed in f32 and their sums in f64, so that the
    /// precision does not depend on the number of values.
    pub fn sum_squares(values: &[f32]) -> f64 = sum_squares_body;
}

simd_fn! {
    /// Adds consecutive rows, each as long as the accumulator, to the accumulator.
    pub fn add_rows(accumulator: &mut [f32], rows: &[f32]) = add_rows_body;
}

simd_fn! {
    /// The running maximum over consecutive rows, each as long as `values`, and the row it came from, where the first
    /// row is number `first_row`. The earlier row wins a tie, and the first NaN wins over everything, as in PyTorch.
    /// Start with minus infinity and winner 0.
    pub fn max_rows(values: &mut [f32], winners: &mut [i32], rows: &[f32], first_row: i32) = max_rows_body;
}

#[inline(always)]
unsafe fn sum_squares_body<V: Lanes>(values: &[f32]) -> f64 {
    let mut total = 0.0;
    let mut start = 0;
    while start < values.len() {
        let length = BLOCK.min(values.len() - start);
        // SAFETY: every part lies inside the block, the block inside the values.
        unsafe {
            let block = values.as_ptr().add(start);
            let mut sums = [V::splat(0.0); 4];
            each_vector_in_turn!(V, length, at, part, turn => {
                let value = part.load::<V>(block.add(at));
                sums[turn] = value.mul_add(value, sums[turn]);
            });
            total += f64::from(sum_of_parts(sums));
        }
        start += length;
    }
    total
}

/// Rows added in registers before they go to the accumulator: this many parallel streams from memory, and
/// correspondingly less traffic for the accumulator.
const ROWS_AT_ONCE: usize = 8;

#[inline(always)]
unsafe fn add_rows_body<V: Lanes>(accumulator: &mut [f32], rows: &[f32]) {
    let width = accumulator.len();
    if width == 0 {
        return;
    }
    assert_eq!(rows.len() % width, 0);
    let count = rows.len() / width;
    let mut row = 0;
    while row < count {
        let at_once = ROWS_AT_ONCE.min(count - row);
        // SAFETY: rows `row..row + at_once` lie inside, every part inside a row.
        unsafe {
            let first = rows.as_ptr().add(row * width);
            let mut at = 0;
            while at + V::COUNT <= width {
                add_columns::<V, Whole>(Whole, accumulator.as_mut_ptr().add(at), first.add(at), width, at_once);
                at += V::COUNT;
            }
            if at < width {
                let rest = Rest(width - at);
                add_columns::<V, Rest>(rest, accumulator.as_mut_ptr().add(at), first.add(at), width, at_once);
            }
        }
        row += at_once;
    }
}

/// Adds one vector of columns of `count` rows to the accumulator.
///
/// # Safety
/// The part must lie inside the accumulator and, starting at `first` in steps of `width`, inside each row.
#[inline(always)]
unsafe fn add_columns<V: Lanes, P: Part>(part: P, sum: *mut f32, first: *const f32, width: usize, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut total = part.load::<V>(first);
        if count == ROWS_AT_ONCE {
            // Added in pairs, so that no addition depends on more than two others.
            let low = total.add(part.load(first.add(width)));
            let low = low.add(part.load::<V>(first.add(2 * width)).add(part.load(first.add(3 * width))));
            let high = part.load::<V>(first.add(4 * width)).add(part.load(first.add(5 * width)));
            let high = high.add(part.load::<V>(first.add(6 * width)).add(part.load(first.add(7 * width))));
            total = low.add(high);
        } else {
            let mut row = 1;
            while row < count {
                total = total.add(part.load(first.add(row * width)));
                row += 1;
            }
        }
        part.store(part.load::<V>(sum).add(total), sum);
    }
}

// The vectors of `Lanes` are f32 only, so this body is left to the compiler's auto-vectoriser, which handles such a
// plain loop well; `V` serves to compile it once per instruction set.
#[inline(always)]
unsafe fn max_rows_body<V: Lanes>(values: &mut [f32], winners: &mut [i32], rows: &[f32], first_row: i32) {
    assert_eq!(values.len(), winners.len());
    if values.is_empty() {
        return;
    }
    assert_eq!(rows.len() % values.len(), 0);
    for (number, row) in (first_row..).zip(rows.chunks_exact(values.len())) {
        for ((best, winner), &value) in values.iter_mut().zip(winners.iter_mut()).zip(row) {
            let wins = (value > *best) | (value.is_nan() & !best.is_nan());
            *best = if wins { value } else { *best };
            *winner = if wins { number } else { *winner };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn sums_of_squares_keep_their_precision() {
        for length in LENGTHS.into_iter().chain([0, 1023, 1024, 1025, 100_003]) {
            let values = spread(1, length, 3.0);
            let expected: f64 = wide(&values).iter().map(|x| x * x).sum();
            assert!((sum_squares(&values) - expected).abs() <= 1e-6 * expected, "{length}");
        }
        let many = vec![0.1f32; 20_000_000];
        let expected = 2e7 * f64::from(0.1f32).powi(2);
        assert!((sum_squares(&many) - expected).abs() < 1e-6 * expected);
        assert!(sum_squares(&EXTREMES).is_nan());
    }

    #[test]
    fn rows_add_up() {
        for width in LENGTHS {
            for count in [0, 1, 2, 7, 8, 9, 40] {
                let (before, rows) = (spread(1, width, 1.0), spread(2, width * count, 1.0));
                let mut sums = before.clone();
                add_rows(&mut sums, &rows);
                let mut expected = wide(&before);
                for row in rows.chunks_exact(width) {
                    expected.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
                }
                assert_close(&sums, &expected, 2e-6, 1e-6);
            }
        }
    }

    #[test]
    fn maxima_name_the_first_row_that_has_them() {
        for width in LENGTHS {
            // Few different values, so that there are ties.
            let rows: Vec<f32> = spread(3, width * 12, 3.0).iter().map(|x| x.round()).collect();
            let mut values = vec![f32::NEG_INFINITY; width];
            let mut winners = vec![0; width];
            max_rows(&mut values, &mut winners, &rows[..5 * width], 0);
            max_rows(&mut values, &mut winners, &rows[5 * width..], 5);
            for column in 0..width {
                let of_column = || rows[column..].iter().step_by(width);
                let max = of_column().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(values[column], max);
                assert_eq!(winners[column] as usize, of_column().position(|&x| x == max).unwrap());
            }
        }
        let mut values = [f32::NEG_INFINITY; 1];
        let mut winners = [0];
        max_rows(&mut values, &mut winners, &[1.0, f32::NAN, 2.0, f32::NAN], 0);
        assert!(values[0].is_nan() && winners[0] == 1);
    }
}
