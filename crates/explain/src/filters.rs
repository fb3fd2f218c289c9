//! The principal components of the patch embedding's filters (figure 7 of "An Image is Worth 16x16 Words").
//!
//! A filter is a row of the patch embedding's weight, one value per pixel of a patch: the first channel row by row, then the
//! second, and so on.

use crate::explanation::Filter;
use crate::principal;

/// The first components, at most `most`, of filters of `pixels` values. None at all if a weight is not finite.
pub fn components(weights: &[f32], pixels: usize, most: usize) -> Vec<Filter> {
    let filter = |component: principal::Component| Filter {
        pixels: component.direction.iter().map(|&x| x as f32).collect(),
        share: component.share,
    };
    principal::components(weights, pixels, most).into_iter().map(filter).collect()
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
