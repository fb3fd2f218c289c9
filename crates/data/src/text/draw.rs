//! Draws a validation part from texts: by their content, and the same share of every class.

use std::collections::{BTreeMap, HashMap, HashSet};

/// Which texts are drawn, of texts with these [hashes](crate::dataset::name_hash) and classes.
///
/// Texts with the same hash are drawn together: what is evaluated was never trained on. Of each class those with the smallest hashes are
/// drawn, so that a text mostly stays where it is when others are added. Every class keeps one text at least.
pub(super) fn draw(texts: &[(u64, u32)], share: f64) -> Vec<bool> {
    let mut class_of: HashMap<u64, u32> = HashMap::new();
    for &(hash, class) in texts {
        class_of.entry(hash).or_insert(class);
    }
    if share <= 0.0 || class_of.len() < 2 {
        return vec![false; texts.len()];
    }
    let mut classes: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (&hash, &class) in &class_of {
        classes.entry(class).or_default().push(hash);
    }
    let sizes: Vec<usize> = classes.values().map(Vec::len).collect();
    let mut drawn: HashSet<u64> = HashSet::new();
    for (hashes, count) in classes.values_mut().zip(counts(&sizes, share)) {
        hashes.sort_unstable();
        drawn.extend(&hashes[..count]);
    }
    texts.iter().map(|(hash, _)| drawn.contains(hash)).collect()
}

/// How many are drawn of classes of these sizes, by largest remainders: the share of each, rounded down, and one more of those with the
/// largest remainders until the total is the share of all.
fn counts(sizes: &[usize], share: f64) -> Vec<usize> {
    let total = (share * sizes.iter().sum::<usize>() as f64).round().max(1.0) as usize;
    let quotas: Vec<f64> = sizes.iter().map(|&size| share * size as f64).collect();
    let mut counts: Vec<usize> =
        quotas.iter().zip(sizes).map(|(quota, size)| (quota.floor() as usize).min(size.saturating_sub(1))).collect();
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&class| counts[class] + 1 < sizes[class]).collect();
    order.sort_by(|&one, &other| quotas[other].fract().total_cmp(&quotas[one].fract()));
    let missing = total.saturating_sub(counts.iter().sum());
    order.into_iter().take(missing).for_each(|class| counts[class] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::name_hash;

    /// The number drawn of each class, of classes of these sizes.
    fn drawn(sizes: &[usize], share: f64) -> Vec<usize> {
        let classes = sizes.iter().zip(0..).flat_map(|(&size, class)| std::iter::repeat_n(class, size));
        let texts: Vec<(u64, u32)> =
            classes.enumerate().map(|(index, class)| (name_hash(format!("text {index}").as_bytes()), class)).collect();
        let mut counts = vec![0; sizes.len()];
        let drawn = draw(&texts, share);
        texts.iter().zip(drawn).filter(|(_, drawn)| *drawn).for_each(|((_, class), _)| counts[*class as usize] += 1);
        counts
    }

    #[test]
    fn every_class_gives_its_share_and_keeps_one() {
        assert_eq!(drawn(&[1000, 100, 10], 0.1), [100, 10, 1]);
        assert_eq!(drawn(&[45, 25, 5, 5], 0.1), [5, 3, 0, 0]);
        assert_eq!(drawn(&[1, 1, 9], 0.5), [0, 0, 5]);
        assert_eq!(drawn(&[50, 50], 0.0), [0, 0]);
        assert_eq!(drawn(&[1], 0.5), [0]);
        assert_eq!(drawn(&[2, 2], 0.99), [1, 1]);
    }

    #[test]
    fn equal_texts_stay_together() {
        let texts: Vec<(u64, u32)> = (0..90).map(|index| (name_hash(&[index % 30]), u32::from(index % 3))).collect();
        let drawn = draw(&texts, 0.2);
        assert_eq!(drawn.iter().filter(|drawn| **drawn).count(), 18);
        assert_eq!(drawn[..30], drawn[30..60]);
        assert_eq!(drawn[..30], drawn[60..]);
    }
}
