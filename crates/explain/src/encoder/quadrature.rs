//! Points and weights for integrals from 0 to 1.
//!
//! Gauss and Legendre's rule: with n points it is exact for polynomials up to degree 2n - 1, so a smooth function needs few. The points are
//! the roots of the Legendre polynomial `P_n`, found by Newton's method; the weight of a root `x` is `2 / ((1 - x²) P_n'(x)²)`. Both are then
//! brought from -1 .. 1 to 0 .. 1.

/// `points` points between 0 and 1, in growing order, each with its weight; the weights sum to 1.
pub fn gauss_legendre(points: usize) -> Vec<(f64, f64)> {
    (1..=points).rev().map(|root| root_and_weight(points, root)).map(|(x, w)| ((1.0 + x) / 2.0, w / 2.0)).collect()
}

/// The `number`th root of `P_n`, the largest first, and its weight.
fn root_and_weight(n: usize, number: usize) -> (f64, f64) {
    let mut x = (std::f64::consts::PI * (number as f64 - 0.25) / (n as f64 + 0.5)).cos();
    loop {
        let (value, slope) = legendre(n, x);
        let step = value / slope;
        x -= step;
        if step.abs() < 1e-15 {
            return (x, 2.0 / ((1.0 - x * x) * slope * slope));
        }
    }
}

/// `P_n(x)` and its derivative, by the recurrence `k P_k = (2k - 1) x P_(k-1) - (k - 1) P_(k-2)`.
fn legendre(n: usize, x: f64) -> (f64, f64) {
    let (mut before, mut here) = (0.0, 1.0);
    for k in 1..=n {
        let k = k as f64;
        (before, here) = (here, ((2.0 * k - 1.0) * x * here - (k - 1.0) * before) / k);
    }
    (here, n as f64 * (x * here - before) / (x * x - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_integrated_exactly() {
        for points in [1, 2, 3, 10, 32, 100, 500] {
            let rule = gauss_legendre(points);
            assert_eq!(rule.len(), points);
            assert!(rule.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for degree in [0, 1, 2 * points - 1] {
                let integral: f64 = rule.iter().map(|(x, weight)| weight * x.powi(degree as i32)).sum();
                let expected = 1.0 / (degree as f64 + 1.0);
                assert!((integral - expected).abs() < 1e-13, "{points} points, degree {degree}: {integral}");
            }
        }
    }
}
