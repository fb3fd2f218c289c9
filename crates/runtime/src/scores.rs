//! Logits as probabilities and names of classes.

pub use vitreous_train::measures::softmax;

/// The name of a class; its number where there are no names.
pub fn label(labels: &[String], index: usize) -> String {
    labels.get(index).cloned().unwrap_or_else(|| format!("class {index}"))
}

/// The probability of a label that stands by itself.
pub fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// The indices of the largest scores, the largest first; of equal ones, the class with the smaller number.
pub fn best(scores: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let by_score = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
    // A few of a whole vocabulary are found without sorting it.
    if (1..order.len()).contains(&count) {
        order.select_nth_unstable_by(count - 1, by_score);
    }
    order.truncate(count);
    order.sort_by(by_score);
    order
}

/// The best classes with their names, as JSON.
pub fn top_json(scores: &[f64], count: usize, label: impl Fn(usize) -> String) -> serde_json::Value {
    let class = |index: usize| serde_json::json!({"index": index, "label": label(index), "score": scores[index]});
    best(scores, count).into_iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_are_in_the_order_of_classes() {
        assert_eq!(best(&[0.1, 0.4, 0.1, 0.4], 9), [1, 3, 0, 2]);
        assert_eq!(best(&[0.25; 40], 3), [0, 1, 2]);
        assert_eq!(best(&[0.1, 0.5, 0.1, 0.3], 3), [1, 3, 0]);
        assert_eq!(best(&[0.1, 0.5], 9), [1, 0]);
        assert_eq!(best(&[0.1, 0.5], 0), [0usize; 0]);
    }
}
