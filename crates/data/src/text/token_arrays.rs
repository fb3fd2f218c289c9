//! The arrays of a batch that an encoder of texts reads: `tokens` i32 `[rows, length]`, `lengths` i32 `[rows]` and, for models that tell
//! token types apart, `token_types` i32 `[rows, length]`.

use crate::loader::{ArraySpec, ArrayValues, NamedArray};

/// How texts of different lengths become rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRows {
    /// The most tokens of a text.
    pub longest: usize,
    /// Whether there is an array of token types.
    pub has_types: bool,
    /// The token that fills up the shorter texts.
    pub padding: u32,
}

/// A text as it is written into a row: its tokens and their types.
pub(super) type Row<'t> = (&'t [u32], &'t [u32]);

/// The arrays of a batch with so many rows of this length.
pub(super) fn token_arrays(rows: usize, length: usize, has_types: bool) -> Vec<ArraySpec> {
    let mut arrays = vec![ArraySpec::i32("tokens", [rows, length]), ArraySpec::i32("lengths", [rows])];
    if has_types {
        arrays.push(ArraySpec::i32("token_types", [rows, length]));
    }
    arrays
}

/// Fills one of these arrays; whether it was one of them.
pub(super) fn fill_token_array<'t>(
    NamedArray { name, shape, values }: &mut NamedArray,
    padding: u32,
    rows: impl Iterator<Item = Row<'t>>,
) -> bool {
    let ArrayValues::I32(values) = values else { return false };
    let width = shape.get(1).copied().unwrap_or(1);
    match *name {
        "tokens" => write_rows(values, width, padding as i32, rows.map(|(ids, _)| as_i32(ids))),
        "token_types" => write_rows(values, width, 0, rows.map(|(_, types)| as_i32(types))),
        "lengths" => values.iter_mut().zip(rows).for_each(|(value, (ids, _))| *value = ids.len() as i32),
        _ => return false,
    }
    true
}

fn as_i32(numbers: &[u32]) -> impl Iterator<Item = i32> {
    numbers.iter().map(|&number| number as i32)
}

/// Writes rows of numbers, filled up with another.
pub(super) fn write_rows<R: Iterator<Item = i32>>(
    matrix: &mut [i32],
    width: usize,
    filler: i32,
    rows: impl Iterator<Item = R>,
) {
    matrix.fill(filler);
    for (place, row) in matrix.chunks_exact_mut(width).zip(rows) {
        place.iter_mut().zip(row).for_each(|(place, number)| *place = number);
    }
}
