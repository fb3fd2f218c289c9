//! A few samples of a data set, to be looked at.

use vitreous_data::dataset::{Dataset, Splits};

/// What images are shown from, and what to call it: test images where there are some.
pub fn shown_part(data: &Splits) -> (&dyn Dataset, &'static str) {
    match data.validation.is_empty() {
        true => (data.train.as_ref(), "train"),
        false => (data.validation.as_ref(), "test"),
    }
}

/// Samples of as many different classes as there is room for, spread over all classes: the first of each, then the second of
/// each, and so on.
pub fn spread(part: &dyn Dataset, classes: usize, count: usize) -> Vec<usize> {
    let shown = classes.min(count);
    let wanted: Vec<u32> = (0..shown).map(|place| (place * classes / shown) as u32).collect();
    let of_each = count.div_ceil(shown.max(1));
    let mut found = vec![Vec::new(); shown];
    for sample in 0..part.len() {
        for (class, samples) in wanted.iter().zip(&mut found) {
            if samples.len() < of_each && part.labels(sample).first() == Some(class) {
                samples.push(sample);
            }
        }
        if found.iter().all(|samples| samples.len() == of_each) {
            break;
        }
    }
    (0..of_each)
        .flat_map(|round| found.iter().filter_map(move |samples| samples.get(round).copied()))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitreous_data::dataset::builtin;

    #[test]
    fn samples_are_of_different_classes() {
        let data = builtin();
        let (part, name) = shown_part(&data);
        assert_eq!(name, "test");
        let classes = |count: usize| -> Vec<u32> {
            spread(part, data.classes.len(), count).iter().map(|&sample| part.labels(sample)[0]).collect()
        };
        assert_eq!(classes(6), [0, 1, 3, 5, 6, 8]);
        assert_eq!(classes(12), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        assert!(classes(0).is_empty());
        let mut samples = spread(part, data.classes.len(), 40);
        samples.sort_unstable();
        samples.dedup();
        assert_eq!(samples.len(), 40, "each once");
    }
}
