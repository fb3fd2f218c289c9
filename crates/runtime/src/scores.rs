//! Logits as probabilities and names of classes.

/// The name of a class; its number where there are no names.
pub fn label(labels: &[String], index: usize) -> String {
    labels.get(index).cloned().unwrap_or_else(|| format!("class {index}"))
}

/// Probabilities, computed with the largest logit subtracted first, so that nothing overflows.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&logit| f64::from(logit - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The probability of a label that stands by itself.
pub fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// The indices of the largest scores, the largest first; of equal ones, the class with the smaller number.
pub fn best(scores: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.truncate(count);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_huge_logits_are_numbers() {
        assert_eq!(softmax(&[1000.0, 0.0]), [1.0, 0.0]);
        assert_eq!(softmax(&[-1000.0, -1000.0]), [0.5, 0.5]);
        assert_eq!(softmax(&[f32::MAX, f32::MAX, f32::MIN]), [0.5, 0.5, 0.0]);
    }

    #[test]
    fn equal_scores_are_in_the_order_of_classes() {
        assert_eq!(best(&[0.1, 0.4, 0.1, 0.4], 9), [1, 3, 0, 2]);
        assert_eq!(best(&[0.25; 40], 3), [0, 1, 2]);
    }
}
