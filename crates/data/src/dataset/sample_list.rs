//! From a list of samples, each of some split, to the splits of a data set.

use std::collections::HashSet;
use std::sync::Arc;

use super::cached::{CachedImages, MemoryBudget};
use super::files::{counted, some_of};
use super::samples::{ImageLocation, Sample, Samples};
use super::split::{NO_TRAINING_IMAGES, Split, draw, drawn_note, few_images_note};
use super::{Dataset, OpenDataset, Splits, ValidationFrom};

/// A sample as it is listed.
#[derive(Debug)]
pub(super) struct ListedSample {
    pub split: Split,
    /// [`name_hash`](super::split::name_hash) of its name.
    pub hash: u64,
    pub location: ImageLocation,
    pub labels: Box<[u32]>,
}

/// All samples of a data set.
pub(super) struct SampleList {
    pub kind: String,
    pub samples: Vec<ListedSample>,
    pub classes: Vec<String>,
    pub several_labels: bool,
    pub notes: Vec<String>,
}

impl SampleList {
    /// The splits. Validation is the validation part; without one it is the test part; without that it is drawn from the training
    /// part.
    pub(super) fn into_splits(mut self, options: &OpenDataset) -> Splits {
        let has = |split: Split| self.samples.iter().any(|sample| sample.split == split);
        let validation_from = match (has(Split::Validation), has(Split::Test)) {
            (true, _) => ValidationFrom::ValidationPart,
            (false, true) => ValidationFrom::TestPart,
            (false, false) => ValidationFrom::TrainingPart,
        };
        match validation_from {
            ValidationFrom::ValidationPart => {}
            ValidationFrom::TestPart => {
                self.samples.iter_mut().filter(|sample| sample.split == Split::Test).for_each(|sample| {
                    sample.split = Split::Validation;
                });
                self.notes.push("there is no validation part: the test part chooses the best checkpoint".to_string());
            }
            ValidationFrom::TrainingPart => self.draw(options),
        }
        let SampleList { kind, samples, classes, several_labels, mut notes } = self;
        let (mut train, mut validation, mut test) = (Vec::new(), Vec::new(), Vec::new());
        for ListedSample { split, location, labels, .. } in samples {
            let part = match split {
                Split::Train => &mut train,
                Split::Validation => &mut validation,
                Split::Test => &mut test,
            };
            part.push(Sample { location, labels });
        }
        notes.extend(few_images_note(validation.len()));
        match train.is_empty() {
            true => notes.push(NO_TRAINING_IMAGES.to_string()),
            false => notes.extend(classes_without_images(&train, &classes)),
        }
        if classes.len() == 1 && !several_labels {
            notes.push("there is only one class: a classifier needs at least two".to_string());
        }
        notes.extend(overlap_note(&train, &validation, Split::Validation));
        notes.extend(overlap_note(&train, &test, Split::Test));
        let budget = MemoryBudget::new(options.keep_bytes);
        let cached =
            |samples| Arc::new(CachedImages::new(Arc::new(Samples(samples)), budget.clone())) as Arc<dyn Dataset>;
        let test = (!test.is_empty()).then(|| cached(test));
        let (train, validation) = (cached(train), cached(validation));
        Splits { train, validation, test, validation_from, classes, several_labels, kind, notes }
    }

    /// Draws the validation split from the training part.
    fn draw(&mut self, options: &OpenDataset) {
        let OpenDataset { validation_share: share, validation_rule: rule, .. } = *options;
        // An image of several classes is of no class that could be given its share.
        let class = |sample: &ListedSample| match self.several_labels {
            true => 0,
            false => sample.labels.first().copied().unwrap_or_default(),
        };
        let samples: Vec<(u64, u32)> = self.samples.iter().map(|sample| (sample.hash, class(sample))).collect();
        let drawn = draw(&samples, share, rule);
        let count = drawn.iter().filter(|drawn| **drawn).count();
        for (sample, _) in self.samples.iter_mut().zip(drawn).filter(|(_, drawn)| *drawn) {
            sample.split = Split::Validation;
        }
        self.notes.extend(drawn_note(count, samples.len(), share, rule));
    }
}

/// A note on classes without training images.
fn classes_without_images(train: &[Sample], classes: &[String]) -> Option<String> {
    let mut present = vec![false; classes.len()];
    for &label in train.iter().flat_map(|sample| &sample.labels) {
        present[label as usize] = true;
    }
    let missing: Vec<&str> =
        classes.iter().zip(present).filter_map(|(class, present)| (!present).then_some(class.as_str())).collect();
    let names = some_of(missing.iter().copied(), 5);
    let classes = counted(missing.len(), "class has", "classes have");
    (!missing.is_empty()).then(|| format!("{classes} no training images: {names}"))
}

/// A note on images that are both trained on and evaluated.
fn overlap_note(train: &[Sample], other: &[Sample], split: Split) -> Option<String> {
    let locations: HashSet<&ImageLocation> = other.iter().map(|sample| &sample.location).collect();
    let both = train.iter().filter(|sample| locations.contains(&sample.location)).count();
    (both > 0).then(|| {
        let images = counted(both, "image is", "images are");
        format!("{images} in both the training and the {} part: scores will be too good", split.name())
    })
}
