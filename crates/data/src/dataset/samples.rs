//! Images in files or archives, each decoded when it is asked for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use super::Dataset;
use crate::image::{self, Channels, Image, ImageError};

/// Where the bytes of an image are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ImageLocation {
    /// In a file of their own.
    File(PathBuf),
    /// In an uncompressed archive. The archive is opened for each image: that takes microseconds, needs no lock, and a thousand
    /// archives do not need a thousand open files.
    Within { archive: Arc<PathBuf>, name: String, offset: u64, bytes: u64 },
}

/// An image with its labels.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub location: ImageLocation,
    pub labels: Box<[u32]>,
}

/// Images of any sizes.
pub(super) struct Samples(pub Vec<Sample>);

impl Dataset for Samples {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        match &self.0[index].location {
            ImageLocation::File(path) => image::open(path, channels),
            ImageLocation::Within { archive, offset, bytes, .. } => {
                let mut file = File::open(archive.as_path())?;
                file.seek(SeekFrom::Start(*offset))?;
                let mut content = Vec::new();
                file.take(*bytes).read_to_end(&mut content)?;
                if content.len() as u64 != *bytes {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive became shorter").into());
                }
                image::decode(&content, channels)
            }
        }
    }

    fn labels(&self, index: usize) -> &[u32] {
        &self.0[index].labels
    }

    fn content_mark(&self, index: usize) -> u64 {
        match &self.0[index].location {
            ImageLocation::File(path) => path.metadata().map_or(0, |metadata| metadata.len()),
            ImageLocation::Within { bytes, .. } => *bytes,
        }
    }

    fn name(&self, index: usize) -> String {
        match &self.0[index].location {
            ImageLocation::File(path) => path.display().to_string(),
            ImageLocation::Within { archive, name, .. } => format!("{}: {name}", archive.display()),
        }
    }
}
