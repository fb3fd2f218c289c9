//! Sentence pairs, tokenisers and batches of tokens.

mod batches;
mod pairs;
mod tokenisers;
