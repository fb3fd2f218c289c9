//! How far, and how widely, a head looks.
//!
//! Both are means over the queries of patches; the tokens in front of them have no place in the image.
//!
//! *Distance* (as figure 7 of "An Image is Worth 16x16 Words"): with `d(i, j)` the distance between the centres of two patches, in
//! pixels of the model's input, and the weights `a` of a query among patches alone, made to sum to 1,
//!
//! ```text
//! distance = mean over i of  Σ_j a_ij d(i, j) / Σ_j a_ij        j: patches
//! ```
//!
//! Queries that give patches no weight at all are left out of the mean; if all do, it is 0.
//!
//! *Entropy*, in nats, over all tokens, the ones in front of the patches too:
//!
//! ```text
//! entropy = mean over i of  -Σ_j a_ij ln a_ij                    j: tokens; 0 ln 0 = 0
//! ```
//!
//! It is 0 for a head that looks at one token, and `ln tokens` for one that looks at all alike.

use crate::token_grid::TokenGrid;

/// The distance between the centres of patches that are so many rows and columns apart, `[grid height, grid width]`.
fn distances(layout: &TokenGrid) -> Vec<f64> {
    let mut table = Vec::with_capacity(layout.patches());
    for row in 0..layout.grid.height {
        for column in 0..layout.grid.width {
            let (y, x) = (row * layout.patch.height, column * layout.patch.width);
            table.push((y as f64).hypot(x as f64));
        }
    }
    table
}

/// How far one head looks, in pixels, from its weights `[tokens, tokens]`.
pub fn distance(layout: &TokenGrid, weights: &[f32]) -> f64 {
    let table = distances(layout);
    let width = layout.grid.width;
    let (mut sum, mut queries) = (0.0, 0usize);
    for (query, row) in patch_rows(layout, weights).enumerate() {
        let (query_row, query_column) = (query / width, query % width);
        let (mut far, mut total) = (0.0, 0.0);
        for (key_row, keys) in row[layout.prefix..].chunks_exact(width).enumerate() {
            let apart = &table[key_row.abs_diff(query_row) * width..][..width];
            for (key_column, &weight) in keys.iter().enumerate() {
                far += f64::from(weight) * apart[key_column.abs_diff(query_column)];
                total += f64::from(weight);
            }
        }
        if total != 0.0 {
            sum += far / total;
            queries += 1;
        }
    }
    if queries == 0 { 0.0 } else { sum / queries as f64 }
}

/// How widely one head looks, in nats, from its weights `[tokens, tokens]`.
pub fn entropy(layout: &TokenGrid, weights: &[f32]) -> f64 {
    let of_row = |row: &[f32]| -> f64 {
        row.iter().map(|&weight| if weight == 0.0 { 0.0 } else { -f64::from(weight * weight.ln()) }).sum()
    };
    patch_rows(layout, weights).map(of_row).sum::<f64>() / layout.patches() as f64
}

/// The rows of the patches' queries.
fn patch_rows<'w>(layout: &TokenGrid, weights: &'w [f32]) -> impl Iterator<Item = &'w [f32]> {
    weights.chunks_exact(layout.tokens()).skip(layout.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_grid::Reader;
    use vitreous_models::Size;

    /// Two rows of three patches, each 4 high and 8 wide, behind one token.
    fn layout() -> TokenGrid {
        TokenGrid {
            image: Size { height: 8, width: 24 },
            patch: Size { height: 4, width: 8 },
            grid: Size { height: 2, width: 3 },
            prefix: 1,
            reader: Reader::ClassToken,
        }
    }

    #[test]
    fn a_head_that_looks_at_one_patch_looks_as_far_as_that_is() {
        let layout = layout();
        let mut weights = vec![0.0; 49];
        for query in 0..7 {
            // Half on the class token, which has no place; half on the last patch: row 1, column 2.
            (weights[query * 7], weights[query * 7 + 6]) = (0.5, 0.5);
        }
        let apart = |row: f64, column: f64| (4.0 * row).hypot(8.0 * column);
        let expected = [(1., 2.), (1., 1.), (1., 0.), (0., 2.), (0., 1.), (0., 0.)].map(|(r, c)| apart(r, c));
        let expected = expected.iter().sum::<f64>() / 6.0;
        assert!((distance(&layout, &weights) - expected).abs() < 1e-12);
        assert!((entropy(&layout, &weights) - 2f64.ln()).abs() < 1e-7);
    }

    #[test]
    fn queries_that_see_no_patch_are_left_out() {
        let layout = layout();
        let mut weights = vec![0.0; 49];
        for query in 0..7 {
            weights[query * 7] = 1.0;
        }
        assert_eq!((distance(&layout, &weights), entropy(&layout, &weights)), (0.0, 0.0));
        // The first patch looks at the second; the others still see none.
        (weights[7], weights[7 + 2]) = (0.75, 0.25);
        assert_eq!(distance(&layout, &weights), 8.0);
    }

    #[test]
    fn no_number_stays_none() {
        let weights = vec![f32::NAN; 49];
        assert!(distance(&layout(), &weights).is_nan() && entropy(&layout(), &weights).is_nan());
    }
}
