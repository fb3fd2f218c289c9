//! What can go wrong with an image or with the configuration that says how to prepare it.

use std::path::PathBuf;

use super::format::FileFormat;

/// Why an image could not be read or prepared. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// There are no bytes.
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
        /// PNG, JPEG ...
        format: &'static str,
        /// What is not supported.
        reason: String,
    },
    /// The image ends early or contradicts itself.
    #[error("the {format} is damaged: {reason}")]
    Damaged {
        /// PNG, JPEG ...
        format: &'static str,
        /// Where it went wrong, in the decoder's words.
        reason: String,
    },
    /// The image would need more memory than is given to one.
    #[error("{what} is too large: {width} x {height}, but at most {limit}")]
    TooLarge {
        /// The image itself, or a step on the way.
        what: &'static str,
        /// Its width.
        width: u64,
        /// Its height.
        height: u64,
        /// The limit in words.
        limit: String,
    },
    /// The pixels do not fill the size, or there is no pixel at all.
    #[error("{width} x {height} pixels of {channels} channels do not go with {bytes} bytes")]
    Shape {
        /// The width that was given.
        width: usize,
        /// The height that was given.
        height: usize,
        /// Grey is 1, colour is 3.
        channels: usize,
        /// The bytes that came.
        bytes: usize,
    },
    /// A grey image was passed where colour is expected, or the other way round.
    #[error("the model takes {expected} channels, but the image has {got}: decode it with the model's channels")]
    Channels {
        /// What the preprocessing says.
        expected: usize,
        /// What the image has.
        got: usize,
    },
    /// The place for the result has another size.
    #[error("the prepared image has {expected} numbers, but room for {got} was passed")]
    Output {
        /// channels * height * width.
        expected: usize,
        /// The length of what was passed.
        got: usize,
    },
}

/// Why a configuration does not say how to prepare an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON, or not an object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A setting has a value that cannot be.
    #[error("`{key}`: {rule}, but it is {got}")]
    Value {
        /// The setting.
        key: String,
        /// What it should be.
        rule: String,
        /// What it is.
        got: String,
    },
    /// The configuration is valid, but asks for what is not done here.
    #[error("{0}")]
    Unsupported(String),
}
