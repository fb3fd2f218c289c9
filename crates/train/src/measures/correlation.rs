//! Correlations of predicted values with expected ones.

/// Pearson's correlation: the cosine of both after their means are subtracted. NaN if one of them is constant, or there are fewer than
/// two values.
pub fn pearson(expected: &[f64], predicted: &[f64]) -> f64 {
    assert_eq!(expected.len(), predicted.len(), "as many predictions as examples");
    let is_constant = |values: &[f64]| values.iter().all(|value| *value == values[0]);
    if expected.len() < 2 || is_constant(expected) || is_constant(predicted) {
        return f64::NAN;
    }
    let centred = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| value - mean).collect::<Vec<f64>>()
    };
    // Divided by the largest before they are squared, so that no square is too large or too small for a number.
    let unit = |mut values: Vec<f64>| {
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let norm = largest * values.iter().map(|value| (value / largest).powi(2)).sum::<f64>().sqrt();
        values.iter_mut().for_each(|value| *value /= norm);
        values
    };
    let (expected, predicted) = (unit(centred(expected)), unit(centred(predicted)));
    let dot: f64 = expected.iter().zip(&predicted).map(|(left, right)| left * right).sum();
    dot.clamp(-1.0, 1.0)
}

/// Spearman's correlation: Pearson's of the ranks, where equal values share the mean of their ranks.
pub fn spearman(expected: &[f64], predicted: &[f64]) -> f64 {
    if expected.iter().chain(predicted).any(|value| value.is_nan()) {
        return f64::NAN;
    }
    pearson(&ranks(expected), &ranks(predicted))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&left, &right| values[left] == values[right]) {
        let mean = first as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&place| ranks[place] = mean);
        first += equal.len();
    }
    ranks
}
