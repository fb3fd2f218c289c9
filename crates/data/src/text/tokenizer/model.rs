//! The vocabulary of a tokenizer, checked before the `tokenizers` library gets it: the library panics where a file contradicts itself.

use tokenizers::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;

/// Indices are smaller than this: no model has an embedding of so many tokens.
pub(super) const MOST_TOKENS: u32 = 1 << 24;
/// Words of more characters are one unknown token. The time that a word takes grows with the cube of its length.
const LONGEST_WORD: usize = 1000;

/// What turns a word into tokens.
pub(super) enum Model {
    /// The longest token that fits, from the left.
    WordPiece { vocab: Vocab, unknown: String, prefix: String, longest_word: usize },
    /// Pairs of tokens are merged, in the order in which they were learnt.
    Bpe(Bpe),
    /// The most likely tokens; a token's index is its place.
    Unigram { pieces: Vec<(String, f64)>, unknown: Option<usize>, byte_fallback: bool },
    /// Words are tokens.
    WordLevel { vocab: Vocab, unknown: String },
}

#[derive(Default)]
pub(super) struct Bpe {
    pub(super) vocab: Vocab,
    pub(super) merges: Vec<(String, String)>,
    pub(super) unknown: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) suffix: Option<String>,
    pub(super) fuse_unknown: bool,
    pub(super) byte_fallback: bool,
    pub(super) ignore_merges: bool,
}

impl Model {
    /// The library's model and its largest index, or what is wrong.
    pub(super) fn build(self) -> Result<(ModelWrapper, u32), String> {
        let failed = |error: tokenizers::Error| error.to_string();
        match self {
            Model::WordPiece { vocab, unknown, prefix, longest_word } => {
                let largest = largest(&vocab)?;
                if !vocab.contains_key(&unknown) {
                    return Err(format!("its vocabulary has no token {unknown:?} for unknown words"));
                }
                if longest_word > LONGEST_WORD {
                    return Err(format!(
                        "its max_input_chars_per_word is {longest_word}, but can be at most {LONGEST_WORD}"
                    ));
                }
                let model = WordPiece::builder()
                    .vocab(vocab)
                    .unk_token(unknown)
                    .continuing_subword_prefix(prefix)
                    .max_input_chars_per_word(longest_word);
                Ok((model.build().map_err(failed)?.into(), largest))
            }
            Model::Bpe(model) => model.build(),
            Model::Unigram { pieces, unknown, byte_fallback } => {
                if pieces.is_empty() || pieces.len() > MOST_TOKENS as usize {
                    return Err(format!("its vocabulary has {} tokens", pieces.len()));
                }
                if let Some((piece, score)) = pieces.iter().find(|piece| piece.0.is_empty() || !piece.1.is_finite()) {
                    return Err(format!("its token {piece:?} with the score {score} is empty or has no finite score"));
                }
                if let Some(unknown) = unknown.filter(|&unknown| unknown >= pieces.len()) {
                    let size = pieces.len();
                    return Err(format!(
                        "its unknown token has the index {unknown}, but the vocabulary size is {size}"
                    ));
                }
                let largest = pieces.len() as u32 - 1;
                Ok((Unigram::from(pieces, unknown, byte_fallback).map_err(failed)?.into(), largest))
            }
            Model::WordLevel { vocab, unknown } => {
                let largest = largest(&vocab)?;
                let model = WordLevel::builder().vocab(vocab).unk_token(unknown).build().map_err(failed)?;
                Ok((model.into(), largest))
            }
        }
    }
}

impl Bpe {
    fn build(self) -> Result<(ModelWrapper, u32), String> {
        let largest = largest(&self.vocab)?;
        let prefix = self.prefix.as_deref().unwrap_or_default();
        let mut merged = String::new();
        for (left, right) in &self.merges {
            // The library cuts as many bytes as the prefix has from the right part, whatever they are.
            let rest = right.get(prefix.len()..);
            merged.clear();
            merged.push_str(left);
            merged.push_str(rest.unwrap_or_default());
            let is_known = [left, right, &merged].into_iter().all(|token| self.vocab.contains_key(token.as_str()));
            if rest.is_none() || !is_known {
                return Err(format!(
                    "it merges {left:?} and {right:?}, but one of them or the result is not in the vocabulary"
                ));
            }
        }
        if let Some(unknown) = self.unknown.as_ref().filter(|unknown| !self.vocab.contains_key(unknown.as_str())) {
            return Err(format!("its vocabulary has no token {unknown:?}, which its unk_token names"));
        }
        let mut builder = BPE::builder()
            .vocab_and_merges(self.vocab, self.merges)
            .fuse_unk(self.fuse_unknown)
            .byte_fallback(self.byte_fallback)
            .ignore_merges(self.ignore_merges);
        if let Some(unknown) = self.unknown {
            builder = builder.unk_token(unknown);
        }
        if let Some(prefix) = self.prefix {
            builder = builder.continuing_subword_prefix(prefix);
        }
        if let Some(suffix) = self.suffix {
            builder = builder.end_of_word_suffix(suffix);
        }
        Ok((builder.build().map_err(|error| error.to_string())?.into(), largest))
    }
}

/// The largest index of a vocabulary. It may have holes.
fn largest(vocab: &Vocab) -> Result<u32, String> {
    let (token, &largest) = vocab.iter().max_by_key(|(_, id)| **id).ok_or("its vocabulary is empty")?;
    match largest < MOST_TOKENS {
        true => Ok(largest),
        false => Err(format!("its token {token:?} has the index {largest}, but {} is the largest", MOST_TOKENS - 1)),
    }
}
