//! Images of one size, decoded in memory.

use std::sync::Arc;

use super::{Dataset, name_hash};
use crate::image::ImageError;
use crate::image::{Channels, Image};

/// Images of one size, stored one after the other, with one label each.
pub(super) struct InMemory {
    /// The prefix of the samples' names.
    pub name: String,
    pub size: [usize; 2],
    pub channels: Channels,
    pub pixels: Arc<[u8]>,
    pub labels: Vec<u32>,
}

impl Dataset for InMemory {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        let [height, width] = self.size;
        let bytes = height * width * self.channels.count();
        let pixels = self.pixels[index * bytes..][..bytes].to_vec();
        Ok(Image::new(width, height, self.channels, pixels)?.with_channels(channels))
    }

    fn labels(&self, index: usize) -> &[u32] {
        &self.labels[index..=index]
    }

    fn content_mark(&self, index: usize) -> u64 {
        let bytes = self.size[0] * self.size[1] * self.channels.count();
        name_hash(&self.pixels[index * bytes..][..bytes])
    }

    fn name(&self, index: usize) -> String {
        format!("{} #{index}", self.name)
    }

    fn channels(&self) -> Channels {
        self.channels
    }
}
