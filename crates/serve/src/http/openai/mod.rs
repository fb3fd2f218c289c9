//! OpenAI's API, as its clients use it.

pub mod chat;
pub mod completions;
pub mod embeddings;
mod logprobs;
pub mod models;
mod stream;
mod transcript_formats;
pub mod transcriptions;
mod unsupported;
mod writing;

pub(super) use writing::{WritingFields, finished, parse};

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
