//! Errors of images and of preprocessor configurations.

use std::path::PathBuf;

use super::format::FileFormat;

/// Why an image could not be decoded or prepared. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file could not be written.
    #[error("cannot be written: {0}")]
    Unwritten(std::io::Error),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The content is in no format that is known.
    #[error("this is not an image of a supported format (JPEG, PNG, WebP, GIF, BMP, TIFF)")]
    NotAnImage,
    /// The content is in a known format that cannot be decoded.
    #[error("{} is not supported; convert it first, e.g. {}", .format.name(), .format.conversion(.file.as_deref()))]
    Format {
        /// The format.
        format: FileFormat,
        /// The file, if that is where the content comes from.
        file: Option<PathBuf>,
    },
    /// The format is supported, but not this variant of it.
    #[error("this variant of {format} is not supported: {reason}")]
    Unsupported {
        /// The format's name.
        format: &'static str,
        /// What is not supported.
        reason: String,
    },
    /// The content ends early or is inconsistent.
    #[error("the {format} is damaged: {reason}")]
    Damaged {
        /// The format's name.
        format: &'static str,
        /// The decoder's error.
        reason: String,
    },
    /// The image would need more memory than is allowed for one.
    #[error("{what} is too large: {width} x {height}, but at most {limit}")]
    TooLarge {
        /// The image itself, or an intermediate step.
        what: &'static str,
        /// Its width.
        width: u64,
        /// Its height.
        height: u64,
        /// The limit, as text.
        limit: String,
    },
    /// The number of bytes does not match the size, or there are no pixels.
    #[error("{width} x {height} pixels of {channels} channels do not match {bytes} bytes")]
    Shape {
        /// The given width.
        width: usize,
        /// The given height.
        height: usize,
        /// Number of channels.
        channels: usize,
        /// The given number of bytes.
        bytes: usize,
    },
    /// A greyscale image where colour is expected, or the other way round.
    #[error("the model takes {expected} channels, but the image has {got}: decode it with the model's channels")]
    Channels {
        /// The channels of the model.
        expected: usize,
        /// The channels of the image.
        got: usize,
    },
    /// The output has another length.
    #[error("the prepared image has {expected} elements, but the output has {got}")]
    Output {
        /// channels * height * width.
        expected: usize,
        /// The length of the output.
        got: usize,
    },
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A setting has an invalid value.
    #[error("`{key}`: {rule}, but it is {got}")]
    Value {
        /// The setting.
        key: String,
        /// What is valid.
        rule: String,
        /// What it is.
        got: String,
    },
    /// The configuration is valid, but not supported.
    #[error("{0}")]
    Unsupported(String),
}
