//! Which part a sample belongs to: said by a name, or drawn by a hash of the sample's own name.

use std::sync::Arc;

use super::Dataset;
use super::files::counted;
use crate::image::ImageError;
use crate::image::{Channels, Image};

/// The parts of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Train,
    Validation,
    Test,
}

/// Names of the parts, the usual one first.
pub(crate) const TRAIN_NAMES: [&str; 2] = ["train", "training"];
pub(crate) const VALIDATION_NAMES: [&str; 5] = ["val", "valid", "validation", "dev", "eval"];
pub(crate) const TEST_NAMES: [&str; 2] = ["test", "testing"];

impl Part {
    /// The part that a folder, a file or a cell names.
    pub(super) fn named(name: &str) -> Option<Part> {
        let name = name.trim().to_ascii_lowercase();
        let name = name.as_str();
        [(&TRAIN_NAMES[..], Part::Train), (&VALIDATION_NAMES[..], Part::Validation), (&TEST_NAMES[..], Part::Test)]
            .into_iter()
            .find_map(|(names, part)| names.contains(&name).then_some(part))
    }

    /// The part that one of the words in a file's name tells: `imagenet-train-0001.tar`.
    pub(super) fn named_within(name: &str) -> Option<Part> {
        name.split(|letter: char| !letter.is_ascii_alphabetic()).find_map(Part::named)
    }
}

/// Whether a sample is drawn for validation: a function of its own name and the share alone, so that it stays where it is whatever
/// comes to the data set or leaves it.
pub(crate) fn is_drawn(name: &[u8], share: f64) -> bool {
    // FNV-1a, then SplitMix64's last step, because FNV's upper bits hardly see the last letters.
    let mut hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    ((hash >> 11) as f64) < share * (1u64 << 53) as f64
}

/// How a split by hash is told.
pub(super) fn drawn_note(drawn: usize, share: f64) -> Option<String> {
    (share > 0.0).then(|| match drawn {
        0 => format!("there is no validation part, and a share of {share} drawn by names gave none"),
        drawn => {
            let images = counted(drawn, "image was", "images were");
            format!("there is no validation part: {images} drawn for it by name (a share of {share})")
        }
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

    fn name(&self, index: usize) -> String {
        self.whole.name(self.indices[index] as usize)
    }

    fn channels(&self) -> Channels {
        self.whole.channels()
    }
}

/// Splits a set of numbered samples: the number is the name.
pub(super) fn draw_numbered(whole: Arc<dyn Dataset>, share: f64) -> [Arc<dyn Dataset>; 2] {
    let all = 0..whole.len() as u32;
    let (drawn, left): (Vec<u32>, Vec<u32>) = all.partition(|index| is_drawn(index.to_string().as_bytes(), share));
    [left, drawn].map(|indices| Arc::new(Subset { whole: whole.clone(), indices }) as Arc<dyn Dataset>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawn_share_is_about_the_share_and_grows_with_it() {
        let names: Vec<String> = (0..20_000).map(|index| format!("cat/image_{index:05}.jpg")).collect();
        let drawn = |share: f64| names.iter().filter(|name| is_drawn(name.as_bytes(), share)).count();
        assert_eq!((drawn(0.0), drawn(1.0)), (0, 20_000));
        for share in [0.1f64, 0.25, 0.5] {
            // Five deviations of a binomial distribution.
            let slack = 5.0 * (20_000.0 * share * (1.0 - share)).sqrt();
            assert!((drawn(share) as f64 - 20_000.0 * share).abs() < slack, "{share}: {}", drawn(share));
        }
        let grows = names.iter().all(|name| !is_drawn(name.as_bytes(), 0.1) || is_drawn(name.as_bytes(), 0.2));
        assert!(grows, "a larger share takes from the training part only");
    }

    #[test]
    fn parts_are_told_by_whole_words() {
        assert_eq!(Part::named("Validation"), Some(Part::Validation));
        assert_eq!(Part::named_within("imagenet-train-000001.tar"), Some(Part::Train));
        assert_eq!(Part::named_within("trained_0001.tar"), None);
        assert_eq!(Part::named_within("my_test_3.tar"), Some(Part::Test));
    }
}
