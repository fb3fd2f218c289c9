//! Sentence pairs, tokenisers and batches of tokens.

mod batches;
mod hostile_tokenizers;
mod model_directories;
mod pairs;
mod tokenisers;
