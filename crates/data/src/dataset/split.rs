//! Splits of a data set: named by folders, files and cells, or drawn from the training part by a hash of each sample's name.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::files::counted;
use super::{Dataset, OpenDataset, Splits, ValidationFrom};
use crate::image::{Channels, Image, ImageError};

/// A part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// What the model is trained on.
    Train,
    /// What is evaluated during training, and chooses the best checkpoint.
    Validation,
    /// What is held out until the end.
    Test,
}

/// How the validation split is drawn from the training part where a data set has no validation part. Both rules depend on the
/// samples' names and classes alone, so the split is the same each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationRule {
    /// The same share of every class, as far as whole images allow; the total is the share of all images. Of each class the
    /// images with the smallest hashes are drawn. Multi-label images are drawn as if all were of one class.
    #[default]
    Stratified,
    /// Each image by its own hash: the number of each class is a matter of chance. So it was before there was a choice.
    ByName,
}

/// Names of the splits, the usual one first.
pub(crate) const TRAIN_NAMES: [&str; 2] = ["train", "training"];
pub(crate) const VALIDATION_NAMES: [&str; 5] = ["val", "valid", "validation", "dev", "eval"];
pub(crate) const TEST_NAMES: [&str; 2] = ["test", "testing"];

impl Split {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        }
    }

    /// The split that a folder, a file or a cell names.
    pub(super) fn named(name: &str) -> Option<Split> {
        let name = name.trim().to_ascii_lowercase();
        let name = name.as_str();
        [(&TRAIN_NAMES[..], Split::Train), (&VALIDATION_NAMES[..], Split::Validation), (&TEST_NAMES[..], Split::Test)]
            .into_iter()
            .find_map(|(names, split)| names.contains(&name).then_some(split))
    }

    /// The split that one of the words in a file's name names: `imagenet-train-0001.tar`.
    pub(super) fn named_within(name: &str) -> Option<Split> {
        name.split(|letter: char| !letter.is_ascii_alphabetic()).find_map(Split::named)
    }
}

/// A hash of a sample's name, uniform in 0..2^53: what decides whether the sample is drawn.
pub(crate) fn name_hash(name: &[u8]) -> u64 {
    // FNV-1a, then SplitMix64's last step, because FNV's upper bits hardly depend on the last letters.
    let mut hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)) >> 11
}

/// Whether a sample of this hash is drawn by its name alone: it stays where it is whatever comes to the data set or leaves it.
pub(crate) fn is_drawn(hash: u64, share: f64) -> bool {
    (hash as f64) < share * (1u64 << 53) as f64
}

/// Which samples are drawn for validation, of samples with these hashes and classes.
pub(super) fn draw(samples: &[(u64, u32)], share: f64, rule: ValidationRule) -> Vec<bool> {
    match rule {
        ValidationRule::ByName => samples.iter().map(|&(hash, _)| is_drawn(hash, share)).collect(),
        ValidationRule::Stratified => draw_stratified(samples, share),
    }
}

/// Which texts are drawn for validation, stratified by class. Texts with the same hash of their content are drawn together, as if all were
/// of the class of the first: what is evaluated was never trained on.
pub(crate) fn draw_texts(texts: &[(u64, u32)], share: f64) -> Vec<bool> {
    let mut known = HashSet::new();
    let distinct: Vec<(u64, u32)> = texts.iter().copied().filter(|&(hash, _)| known.insert(hash)).collect();
    let drawn = draw_stratified(&distinct, share);
    let drawn: HashSet<u64> = distinct.iter().zip(drawn).filter(|(_, drawn)| *drawn).map(|(text, _)| text.0).collect();
    texts.iter().map(|(hash, _)| drawn.contains(hash)).collect()
}

fn draw_stratified(samples: &[(u64, u32)], share: f64) -> Vec<bool> {
    let mut drawn = vec![false; samples.len()];
    if share <= 0.0 || samples.len() < 2 {
        return drawn;
    }
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, &(_, class)) in samples.iter().enumerate() {
        classes.entry(class).or_default().push(index);
    }
    let sizes: Vec<usize> = classes.values().map(Vec::len).collect();
    for (members, count) in classes.values_mut().zip(counts_per_class(&sizes, share)) {
        members.sort_by_key(|&index| (samples[index].0, index));
        members[..count].iter().for_each(|&index| drawn[index] = true);
    }
    drawn
}

/// How many images are drawn of classes of these sizes (the method of largest remainders): the share of each class, rounded down,
/// and one more of those with the largest remainders until the total is the share of all. A class keeps at least one image.
fn counts_per_class(sizes: &[usize], share: f64) -> Vec<usize> {
    let total = (share * sizes.iter().sum::<usize>() as f64).round().max(1.0) as usize;
    let quotas: Vec<f64> = sizes.iter().map(|&size| share * size as f64).collect();
    let mut counts: Vec<usize> =
        quotas.iter().zip(sizes).map(|(quota, size)| (quota.floor() as usize).min(size.saturating_sub(1))).collect();
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&class| counts[class] + 1 < sizes[class]).collect();
    order.sort_by(|&a, &b| quotas[b].fract().total_cmp(&quotas[a].fract()));
    let missing = total.saturating_sub(counts.iter().sum());
    order.into_iter().take(missing).for_each(|class| counts[class] += 1);
    counts
}

/// Says how the validation split was drawn from this many images.
pub(super) fn drawn_note(drawn: usize, images: usize, share: f64, rule: ValidationRule) -> Option<String> {
    let how = match rule {
        ValidationRule::Stratified => "stratified by class",
        ValidationRule::ByName => "by the hash of their names",
    };
    (share > 0.0).then(|| match drawn {
        0 => format!("there is no validation part, and none was drawn (a share of {share} of {images} images)"),
        drawn => {
            let were = if drawn == 1 { "was" } else { "were" };
            format!(
                "there is no validation part: {drawn} of {images} training images {were} drawn for it, {how} (a share of {share})"
            )
        }
    })
}

/// Said of a data set that can only be evaluated on.
pub(super) const NO_TRAINING_IMAGES: &str = "there are no training images";
/// Accuracy on fewer validation images than this says little.
const FEW_VALIDATION_IMAGES: usize = 100;

/// Warns of a small validation split.
pub(super) fn few_images_note(validation: usize) -> Option<String> {
    (1..FEW_VALIDATION_IMAGES).contains(&validation).then(|| {
        let images = counted(validation, "validation image", "validation images");
        let points = 100.0 / validation as f64;
        format!("only {images}: each is {points:.1} points of accuracy, so small differences mean nothing")
    })
}

/// Some samples of a data set.
struct Subset {
    whole: Arc<dyn Dataset>,
    indices: Vec<u32>,
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        self.whole.image(self.indices[index] as usize, channels)
    }

    fn labels(&self, index: usize) -> &[u32] {
        self.whole.labels(self.indices[index] as usize)
    }

    fn content_mark(&self, index: usize) -> u64 {
        self.whole.content_mark(self.indices[index] as usize)
    }

    fn name(&self, index: usize) -> String {
        self.whole.name(self.indices[index] as usize)
    }

    fn channels(&self) -> Channels {
        self.whole.channels()
    }
}

/// The splits of a data set whose samples are numbered, with a training part, a test part, or both.
pub(super) fn numbered_splits(
    [mut train, mut validation]: [Arc<dyn Dataset>; 2],
    validation_from: ValidationFrom,
    classes: Vec<String>,
    kind: String,
    options: &OpenDataset,
) -> Splits {
    let mut notes = Vec::new();
    if validation_from == ValidationFrom::TrainingPart {
        let (share, rule) = (options.validation_share, options.validation_rule);
        let images = train.len();
        [train, validation] = draw_numbered(&train, share, rule);
        notes.extend(drawn_note(validation.len(), images, share, rule));
    }
    notes.extend(few_images_note(validation.len()));
    if train.is_empty() {
        notes.push(NO_TRAINING_IMAGES.to_string());
    }
    Splits { train, validation, test: None, validation_from, classes, several_labels: false, kind, notes }
}

/// Draws from samples that have numbers instead of names: what is left for training, and what is drawn.
fn draw_numbered(whole: &Arc<dyn Dataset>, share: f64, rule: ValidationRule) -> [Arc<dyn Dataset>; 2] {
    let sample = |index: usize| {
        (name_hash(index.to_string().as_bytes()), whole.labels(index).first().copied().unwrap_or_default())
    };
    let samples: Vec<(u64, u32)> = (0..whole.len()).map(sample).collect();
    let drawn = draw(&samples, share, rule);
    let (drawn, left): (Vec<u32>, Vec<u32>) = (0..whole.len() as u32).partition(|&index| drawn[index as usize]);
    [left, drawn].map(|indices| Arc::new(Subset { whole: whole.clone(), indices }) as Arc<dyn Dataset>)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(count: usize) -> Vec<u64> {
        (0..count).map(|index| name_hash(format!("cat/image_{index:05}.jpg").as_bytes())).collect()
    }

    #[test]
    fn the_share_drawn_by_name_is_about_the_share_and_grows_with_it() {
        let hashes = hashes(20_000);
        let drawn = |share: f64| hashes.iter().filter(|hash| is_drawn(**hash, share)).count();
        assert_eq!((drawn(0.0), drawn(1.0)), (0, 20_000));
        for share in [0.1f64, 0.25, 0.5] {
            // Five standard deviations of a binomial distribution.
            let slack = 5.0 * (20_000.0 * share * (1.0 - share)).sqrt();
            assert!((drawn(share) as f64 - 20_000.0 * share).abs() < slack, "{share}: {}", drawn(share));
        }
        let grows = hashes.iter().all(|&hash| !is_drawn(hash, 0.1) || is_drawn(hash, 0.2));
        assert!(grows, "a larger share takes from the training part only");
    }

    #[test]
    fn names_are_drawn_as_they_always_were() {
        // By the rule of version 0.1, computed apart from this code: runs of that time resume with the same split.
        let drawn: Vec<usize> =
            (0..40).filter(|index| is_drawn(name_hash(format!("cat/image_{index:05}.jpg").as_bytes()), 0.2)).collect();
        assert_eq!(drawn, [0, 1, 3, 4, 30, 31, 36]);
    }

    /// The number drawn of each class, of classes of these sizes.
    fn stratified(sizes: &[usize], share: f64) -> Vec<usize> {
        let classes: Vec<u32> =
            sizes.iter().zip(0..).flat_map(|(&size, class)| std::iter::repeat_n(class, size)).collect();
        let samples: Vec<(u64, u32)> = hashes(classes.len()).into_iter().zip(classes).collect();
        let drawn = draw(&samples, share, ValidationRule::Stratified);
        let mut counts = vec![0; sizes.len()];
        samples.iter().zip(drawn).filter(|(_, drawn)| *drawn).for_each(|((_, class), _)| counts[*class as usize] += 1);
        counts
    }

    #[test]
    fn every_class_gives_its_share() {
        assert_eq!(stratified(&[100, 100, 100], 0.1), [10, 10, 10]);
        assert_eq!(stratified(&[1000, 100, 10], 0.1), [100, 10, 1]);
        // 4.5 + 2.5 + 0.5 + 0.5 are 8: the halves go to the first classes.
        assert_eq!(stratified(&[45, 25, 5, 5], 0.1), [5, 3, 0, 0]);
        // As many in all as the share says, though no class has a whole image to give.
        assert_eq!(stratified(&[3; 10], 0.1).iter().sum::<usize>(), 3);
        // A class keeps at least one image for training.
        assert_eq!(stratified(&[1, 1, 9], 0.5), [0, 0, 5]);
        assert_eq!(stratified(&[1, 1], 0.5), [0, 0]);
        assert_eq!(stratified(&[2], 0.01), [1]);
        assert_eq!(stratified(&[50, 50], 0.0), [0, 0]);
        assert_eq!(stratified(&[1], 0.5), [0]);
        assert_eq!(stratified(&[2, 2], 0.99), [1, 1]);
    }

    #[test]
    fn equal_texts_stay_together() {
        let texts: Vec<(u64, u32)> = (0..90).map(|index| (name_hash(&[index % 30]), u32::from(index % 3))).collect();
        let drawn = draw_texts(&texts, 0.2);
        assert_eq!(drawn.iter().filter(|drawn| **drawn).count(), 18);
        assert_eq!(drawn[..30], drawn[30..60]);
        assert_eq!(drawn[..30], drawn[60..]);
    }

    #[test]
    fn splits_are_recognised_by_whole_words() {
        assert_eq!(Split::named("Validation"), Some(Split::Validation));
        assert_eq!(Split::named_within("imagenet-train-000001.tar"), Some(Split::Train));
        assert_eq!(Split::named_within("trained_0001.tar"), None);
        assert_eq!(Split::named_within("my_test_3.tar"), Some(Split::Test));
    }
}
