//! What logits say: the loss of a class or a label, probabilities, the largest.

/// `-ln softmax(logits)[class]`, in nats.
pub fn cross_entropy(logits: &[f32], class: usize) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    // The difference first: beside a huge logit the logarithm would vanish.
    sum.ln() + (largest - f64::from(logits[class]))
}

/// `-ln sigmoid(logit)` of a label that is there, `-ln sigmoid(-logit)` of one that is not, in nats.
pub fn binary_cross_entropy(logit: f32, is_there: bool) -> f64 {
    let of_truth = if is_there { f64::from(logit) } else { -f64::from(logit) };
    // ln(1 + e^-x), which must not overflow.
    (-of_truth.abs()).exp().ln_1p() - of_truth.min(0.0)
}

/// Probabilities, computed with the largest logit subtracted first, so that nothing overflows.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&logit| f64::from(logit - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The class with the largest logit; of equal ones the first.
pub fn largest(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_huge_logits_are_numbers() {
        assert_eq!(softmax(&[1000.0, 0.0]), [1.0, 0.0]);
        assert_eq!(softmax(&[-1000.0, -1000.0]), [0.5, 0.5]);
        assert_eq!(softmax(&[f32::MAX, f32::MAX, f32::MIN]), [0.5, 0.5, 0.0]);
        assert_eq!((cross_entropy(&[1e30, 0.0], 0), cross_entropy(&[0.0, 1e30], 0)), (0.0, f64::from(1e30_f32)));
        assert_eq!((binary_cross_entropy(1e30, true), binary_cross_entropy(-1e30, false)), (0.0, 0.0));
        assert_eq!(binary_cross_entropy(-200.0, true), 200.0);
    }

    #[test]
    fn losses_are_logarithms_of_probabilities() {
        let logits = [0.5, -1.25, 2.0];
        for (class, probability) in softmax(&logits).into_iter().enumerate() {
            assert!((cross_entropy(&logits, class) + probability.ln()).abs() < 1e-7);
        }
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!((binary_cross_entropy(0.7, true) + sigmoid(f64::from(0.7_f32)).ln()).abs() < 1e-12);
        assert!((binary_cross_entropy(0.7, false) + sigmoid(-f64::from(0.7_f32)).ln()).abs() < 1e-12);
        assert_eq!((largest(&logits), largest(&[1.0, 3.0, 3.0])), (2, 1));
    }
}
