//! Vitreous' data: data sets, images and text prepared as a model expects them, and the loader that gives batches of them.
//!
//! - [`image`]: decoding, preprocessing, augmentation.
//! - [`audio`]: decoding, resampling, log-mel spectrograms.
//! - [`text`]: sentence pairs, tokenisers, batches of tokens.
//! - [`dataset`]: labelled images, opened from whatever a path holds; [`download`] fetches well-known ones.
//! - [`loader`]: batches, prepared ahead of the model by threads, in an order that is a function of (seed, epoch).
#![deny(unsafe_code)]

pub mod audio;
pub mod dataset;
pub mod download;
pub mod image;
pub mod loader;
pub mod ordered;
pub mod random;
pub mod text;
