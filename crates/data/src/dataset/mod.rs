//! Data sets: samples that are images with labels, wherever they lie.
//!
//! [`open`] finds out what a path holds. Sets of one size that fit into memory (IDX, CIFAR) are read whole; of all others only a list
//! is made, images are decoded when they are asked for, and kept while there is room.

mod archive;
mod builtin;
mod cifar;
mod error;
mod files;
mod folder;
mod gather;
mod idx;
mod inspect;
mod kept;
mod labels;
mod manifest;
mod memory;
mod mnist;
mod open;
mod samples;
mod shards;
mod split;

use std::sync::Arc;

use crate::image::ImageError;
use crate::image::{Channels, Image};

pub(crate) use builtin::FASHION;
pub use builtin::builtin;
pub use error::DatasetError;
pub(crate) use files::{counted, extension, list, some_of};
pub use inspect::{Broken, Inspection, Sizes, count_labels, inspect};
pub use kept::{Kept, Room};
pub use open::{OpenDataset, open};
pub(crate) use split::{Part, TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, is_drawn};

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

    /// The classes that a sample is of: one, or any number where [`Splits::several_labels`].
    fn labels(&self, index: usize) -> &[u32];

    /// What to call a sample when it is broken: its path, or file and number.
    fn name(&self, index: usize) -> String;

    /// The channels that the images have by themselves, as far as that is known without looking at all of them.
    fn channels(&self) -> Channels {
        Channels::Rgb
    }
}

/// What to learn from and what to test with.
#[derive(Clone)]
pub struct Splits {
    /// What to learn from; may be empty where only a test part is there.
    pub train: Arc<dyn Dataset>,
    /// What to test with; may be empty.
    pub validation: Arc<dyn Dataset>,
    /// Names of the classes, in order.
    pub classes: Vec<String>,
    /// Whether a sample can be of several classes, or of none.
    pub several_labels: bool,
    /// What it was found to be, in words: "CIFAR-10 binary", "image folder".
    pub kind: String,
    /// What a user should know of how it was read: what was passed over, how it was split.
    pub notes: Vec<String>,
}
