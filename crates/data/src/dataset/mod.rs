//! Data sets of labelled images.
//!
//! [`open`] detects what a path holds. Data sets of small images (IDX, CIFAR) are read into memory; of all others only a list is
//! made, and images are decoded when they are asked for, and cached up to a limit.

mod archive;
mod builtin;
mod cached;
mod captions;
mod cifar;
mod error;
mod files;
mod folder;
mod idx;
mod inspect;
mod labels;
mod manifest;
mod memory;
mod mnist;
mod open;
mod sample_list;
mod samples;
mod shards;
mod split;

use std::sync::Arc;

use crate::image::ImageError;
use crate::image::{Channels, Image};

pub(crate) use builtin::FASHION;
pub use builtin::builtin;
pub use cached::{CachedImages, MemoryBudget};
pub use captions::{CaptionSplits, CaptionedImages, OpenCaptions, open_captions};
pub use error::DatasetError;
pub(crate) use files::{counted, extension, list, some_of};
pub use inspect::{Inspection, Sizes, count_labels, inspect};
pub use open::{OpenDataset, open};
pub use split::{Split, ValidationRule};
pub(crate) use split::{TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, draw_texts, is_drawn, name_hash};

/// Images with labels.
pub trait Dataset: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The image of a sample, decoded, with these channels. Called by several threads at once.
    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError>;

    /// The class indices of a sample: one, or any number where [`Splits::several_labels`].
    fn labels(&self, index: usize) -> &[u32];

    /// The name of a sample, for messages: its path, or its file and number.
    fn name(&self, index: usize) -> String;

    /// A number that changes when the sample's image is replaced by another, without decoding it: the size of its file, or a checksum
    /// of what is in memory.
    fn content_mark(&self, _index: usize) -> u64 {
        0
    }

    /// The channels of the stored images, as far as they are known without decoding all of them.
    fn channels(&self) -> Channels {
        Channels::Rgb
    }
}

/// A data set, split for training and evaluation.
#[derive(Clone)]
pub struct Splits {
    /// What a model is trained on; empty where there is only a test part.
    pub train: Arc<dyn Dataset>,
    /// What is evaluated during training, and chooses the best checkpoint; may be empty.
    pub validation: Arc<dyn Dataset>,
    /// A held-out test part, where there is one besides the validation part.
    pub test: Option<Arc<dyn Dataset>>,
    /// Where `validation` comes from.
    pub validation_from: ValidationFrom,
    /// Names of the classes, in order.
    pub classes: Vec<String>,
    /// Whether images are multi-label: of several classes, or of none.
    pub several_labels: bool,
    /// What the data set was recognised as: "CIFAR-10 binary", "image folder".
    pub kind: String,
    /// What a user should know about how it was read: what was skipped, how it was split.
    pub notes: Vec<String>,
}

/// Where the validation split comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValidationFrom {
    /// The data set has a validation part.
    ValidationPart,
    /// It has a training and a test part only, as MNIST and CIFAR do: the test part is used.
    TestPart,
    /// It has a training part only, from which a share was drawn.
    TrainingPart,
}

impl Splits {
    /// The samples of a split. Where the test part serves as validation, it is the test split, too. `None` if there is no such part.
    pub fn get(&self, split: Split) -> Option<&Arc<dyn Dataset>> {
        let part = match split {
            Split::Train => Some(&self.train),
            Split::Validation => Some(&self.validation),
            Split::Test if self.validation_from == ValidationFrom::TestPart => Some(&self.validation),
            Split::Test => self.test.as_ref(),
        };
        part.filter(|part| !part.is_empty())
    }
}
