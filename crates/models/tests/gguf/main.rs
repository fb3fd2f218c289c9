//! GGUF files through the public door. The fixtures were written by llama.cpp's Python package and quantised by ggml (`make.py` beside
//! them); logits are those of `transformers` on the dequantised weights.

mod hostile;
mod models;
mod reading;
mod tensors;

use std::path::PathBuf;

use vitreous_models::archive::Archive;
use vitreous_models::{Model, OpenOptions};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)
}

fn archive(name: &str) -> Archive {
    Archive::open(&fixture(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn open(path: &std::path::Path) -> Model {
    Model::open(path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}
