//! GGUF, the files of llama.cpp: metadata that describes a model with its tokenizer, and tensors that may be quantised in blocks.
//!
//! Versions 2 and 3 are read. Nothing of a file is executed, and every count, length and offset is checked against the file.

mod metadata;
mod read;
mod types;
mod write;

pub use metadata::{MetaValue, Metadata};
pub(super) use read::{is_it, read};
pub use write::write_gguf;

const MAGIC: &[u8] = b"GGUF";
/// Where a file does not say otherwise, tensors begin at multiples of this.
const DEFAULT_ALIGNMENT: usize = 32;
