//! Training a vocabulary: the most frequent pairs are merged (BPE), or the least useful tokens are pruned (unigram).

use std::collections::{BTreeMap, HashSet};

use rayon::prelude::*;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, ModelWrapper, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer,
};

use super::{SPECIAL_TOKENS, TokeniserError};

/// The smallest vocabulary size: all bytes, the special tokens, and one token more.
pub const SMALLEST_VOCABULARY: usize = 256 + SPECIAL_TOKENS.len() + 1;
/// The largest vocabulary size.
pub const MOST_VOCABULARY: usize = 1 << 20;

/// The kind of a tokeniser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokeniserKind {
    /// Byte pair encoding: the most frequent pair of tokens becomes a token, again and again.
    #[default]
    Bpe,
    /// A unigram language model: the tokens under which the text is most likely.
    Unigram,
}

impl std::str::FromStr for TokeniserKind {
    type Err = String;

    fn from_str(name: &str) -> Result<TokeniserKind, String> {
        match name {
            "bpe" => Ok(TokeniserKind::Bpe),
            "unigram" => Ok(TokeniserKind::Unigram),
            _ => Err(format!("it must be bpe or unigram, not {name:?}")),
        }
    }
}

/// Words and their frequencies, sorted.
pub(super) type WordCounts = BTreeMap<String, u64>;

/// Longer words, in bytes, teach nothing, and learning merges takes time that grows with the square of their length.
const LONGEST_WORD: usize = 4096;

/// Counts the words of texts, normalised and split.
pub(super) fn count_words(
    texts: &[&str],
    normalizer: &NormalizerWrapper,
    pre_tokenizer: &PreTokenizerWrapper,
) -> Result<WordCounts, TokeniserError> {
    const CHUNK: usize = 1 << 12;
    let count = |texts: &[&str]| -> tokenizers::Result<WordCounts> {
        let mut words = WordCounts::new();
        for text in texts {
            let mut text = NormalizedString::from(*text);
            normalizer.normalize(&mut text)?;
            let mut text = PreTokenizedString::from(text);
            pre_tokenizer.pre_tokenize(&mut text)?;
            let splits = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
            let usual = splits.into_iter().filter(|(word, _, _)| word.len() <= LONGEST_WORD);
            usual.for_each(|(word, _, _)| add(&mut words, word, 1));
        }
        Ok(words)
    };
    // Sums of integers do not depend on the order of the threads.
    let both = |mut words: WordCounts, others: WordCounts| {
        others.into_iter().for_each(|(word, count)| add(&mut words, &word, count));
        Ok(words)
    };
    let words =
        texts.par_chunks(CHUNK).map(count).try_reduce(WordCounts::new, both).map_err(TokeniserError::library)?;
    if words.is_empty() { Err(TokeniserError::NoText) } else { Ok(words) }
}

fn add(words: &mut WordCounts, word: &str, count: u64) {
    match words.get_mut(word) {
        Some(before) => *before += count,
        None => _ = words.insert(word.to_string(), count),
    }
}

/// Trains a vocabulary of at most `vocab_size` tokens.
pub(super) fn train(kind: TokeniserKind, words: WordCounts, vocab_size: usize) -> Result<ModelWrapper, TokeniserError> {
    if !(SMALLEST_VOCABULARY..=MOST_VOCABULARY).contains(&vocab_size) {
        return Err(TokeniserError::Size(vocab_size));
    }
    match kind {
        TokeniserKind::Bpe => train_bpe(&words, vocab_size).map(Into::into),
        TokeniserKind::Unigram => train_unigram(words, vocab_size).map(Into::into),
    }
}

fn special_tokens() -> Vec<AddedToken> {
    SPECIAL_TOKENS.iter().map(|name| AddedToken::from(*name, true)).collect()
}

fn bytes() -> HashSet<char> {
    ByteLevel::alphabet().into_iter().collect()
}

/// Counts are integers and ties go to the pair of the smaller indices, so the result depends on nothing but the counts.
fn train_bpe(words: &WordCounts, vocab_size: usize) -> Result<BPE, TokeniserError> {
    // A pair that occurs once says nothing about other texts.
    let trainer = BpeTrainer::builder()
        .vocab_size(vocab_size)
        .min_frequency(2)
        .special_tokens(special_tokens())
        .initial_alphabet(bytes())
        .show_progress(false)
        .build();
    let mut model = BPE::default();
    let counts = words.iter().map(|(word, &count)| (word.as_str().into(), count)).collect();
    trainer.do_train(&counts, &mut model).map_err(TokeniserError::library)?;
    Ok(model)
}

/// Likelihoods are sums of floating-point numbers: words are sorted, and one thread adds, so that the sums are always the same.
fn train_unigram(words: WordCounts, vocab_size: usize) -> Result<Unigram, TokeniserError> {
    let trainer = UnigramTrainer::builder()
        .vocab_size(vocab_size as u32)
        .special_tokens(special_tokens())
        .initial_alphabet(bytes().into_iter().collect())
        .show_progress(false)
        .build()
        .map_err(TokeniserError::library)?;
    let words = words.into_iter().map(|(word, count)| (word, count.min(u64::from(u32::MAX)) as u32)).collect();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(TokeniserError::library)?;
    let mut model = Unigram::default();
    one_thread.install(|| trainer.do_train(words, &mut model)).map_err(TokeniserError::library)?;
    in_order(&model)
}

/// The trainer gives unused bytes its lowest score, and 0.0001 more from one to the next, in an order that changes from run to run. Here
/// all of them have the lowest score, and tokens of equal score are sorted.
///
/// Scores are rounded to six decimals: not every JSON parser gets the last bit of a longer number right, and one bit decides between two
/// equally likely segmentations of a word.
fn in_order(model: &Unigram) -> Result<Unigram, TokeniserError> {
    let mut pieces: Vec<(String, f64)> = model.iter().cloned().collect();
    let learnt = &mut pieces[SPECIAL_TOKENS.len()..];
    let lowest = learnt.iter().map(|piece| piece.1).fold(f64::INFINITY, f64::min);
    let highest_of_unused = lowest + 0.0001 * 257.0;
    for (piece, score) in learnt.iter_mut() {
        if piece.chars().count() == 1 && *score <= highest_of_unused {
            *score = lowest;
        }
        *score = (*score * 1e6).round() / 1e6;
    }
    learnt.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    // There is no unknown token: every byte is in the vocabulary.
    Unigram::from(pieces, None, false).map_err(TokeniserError::library)
}
