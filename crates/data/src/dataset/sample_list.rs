//! From samples that were found, each said to be of some part or of none, to what to learn from and what to test with.

use std::collections::HashSet;
use std::sync::Arc;

use super::files::{counted, some_of};
use super::kept::{Kept, Room};
use super::samples::{Place, Sample, Samples};
use super::split::{Part, drawn_note};
use super::{Dataset, OpenDataset, Splits};

/// A sample that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub part: Part,
    /// Whether it would be drawn for validation where nothing else is.
    pub drawn: bool,
    pub place: Place,
    pub labels: Box<[u32]>,
}

/// All that was found.
pub(super) struct Gathered {
    pub kind: String,
    pub found: Vec<Found>,
    pub classes: Vec<String>,
    pub several_labels: bool,
    pub notes: Vec<String>,
}

impl Gathered {
    /// The parts: validation if there is such a part, else test, else what was drawn from training.
    pub(super) fn into_splits(self, options: &OpenDataset) -> Splits {
        let Gathered { kind, found, classes, several_labels, mut notes } = self;
        let has = |part| found.iter().any(|found| found.part == part);
        let (has_validation, has_test) = (has(Part::Validation), has(Part::Test));
        let (mut train, mut validation, mut unused) = (Vec::new(), Vec::new(), 0);
        for Found { part, drawn, place, labels } in found {
            let sample = Sample { place, labels };
            match part {
                Part::Train if drawn && !has_validation && !has_test => validation.push(sample),
                Part::Train => train.push(sample),
                Part::Test if has_validation => unused += 1,
                Part::Validation | Part::Test => validation.push(sample),
            }
        }
        if !has_validation && !has_test {
            notes.extend(drawn_note(validation.len(), options.validation_share));
        }
        if unused > 0 {
            let images = counted(unused, "image of a test part was", "images of a test part were");
            notes.push(format!("{images} left alone: there is a validation part"));
        }
        if train.is_empty() {
            notes.push("there is nothing to learn from, only a part to test with".to_string());
        } else {
            notes.extend(unlearnable(&train, &classes));
        }
        if classes.len() == 1 && !several_labels {
            notes.push("there is only one class: nothing can be told apart".to_string());
        }
        let tested: HashSet<&Place> = validation.iter().map(|sample| &sample.place).collect();
        let both = train.iter().filter(|sample| tested.contains(&sample.place)).count();
        if both > 0 {
            notes.push(format!("{} in both parts: what is learnt is tested", counted(both, "image is", "images are")));
        }
        let room = Room::new(options.keep_bytes);
        let kept = |samples| Arc::new(Kept::new(Arc::new(Samples(samples)), room.clone())) as Arc<dyn Dataset>;
        Splits { train: kept(train), validation: kept(validation), classes, several_labels, kind, notes }
    }
}

/// A note on classes of which there is no image to learn from.
fn unlearnable(train: &[Sample], classes: &[String]) -> Option<String> {
    let mut there = vec![false; classes.len()];
    for &label in train.iter().flat_map(|sample| &sample.labels) {
        there[label as usize] = true;
    }
    let missing: Vec<&str> =
        classes.iter().zip(there).filter_map(|(class, there)| (!there).then_some(class.as_str())).collect();
    let names = some_of(missing.iter().copied(), 5);
    let classes = counted(missing.len(), "class has", "classes have");
    (!missing.is_empty()).then(|| format!("{classes} no image to learn from: {names}"))
}
