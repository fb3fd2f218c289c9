//! Learns a vocabulary from texts, in the form that BERT, RoBERTa and ALBERT have.
//!
//! The same texts in the same order give the same vocabulary, whatever the number of threads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper};

use super::build::{self, Description};
use super::model::{Bpe, Model};
use super::settings::{Class, Settings};
use super::{TextTokenizer, open, slow};
use crate::text::TokeniserError;
use crate::text::training::{MOST_VOCABULARY, WordCounts, count_words};

/// The kind of a vocabulary that is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VocabularyKind {
    /// BERT's: words are split into the longest tokens that fit.
    #[default]
    WordPiece,
    /// RoBERTa's: pairs of tokens are merged, down to bytes, so that nothing is unknown.
    Bpe,
    /// ALBERT's: the most likely tokens under a unigram language model.
    Unigram,
    /// T5's: the same, with a hundred sentinels at its end.
    T5,
    /// CLIP's: byte pairs of words in small letters, whose last tokens end in `</w>`.
    Clip,
}

/// The sentinels of a vocabulary of T5's.
const SENTINELS: usize = 100;

impl std::str::FromStr for VocabularyKind {
    type Err = String;

    fn from_str(name: &str) -> Result<VocabularyKind, String> {
        match name {
            "wordpiece" => Ok(VocabularyKind::WordPiece),
            "bpe" => Ok(VocabularyKind::Bpe),
            "unigram" => Ok(VocabularyKind::Unigram),
            "t5" => Ok(VocabularyKind::T5),
            "clip" => Ok(VocabularyKind::Clip),
            _ => Err(format!("it must be wordpiece, bpe, unigram, t5 or clip, not {name:?}")),
        }
    }
}

impl VocabularyKind {
    fn class(self) -> Class {
        match self {
            VocabularyKind::WordPiece => Class::Bert,
            VocabularyKind::Bpe => Class::Roberta,
            VocabularyKind::Unigram => Class::Albert,
            VocabularyKind::T5 => Class::T5,
            VocabularyKind::Clip => Class::Clip,
        }
    }

    /// The special tokens, which come first in the vocabulary, with the indices that the classes of `transformers` expect.
    fn special(self) -> &'static [&'static str] {
        match self {
            VocabularyKind::WordPiece => &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            VocabularyKind::Bpe => &["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
            VocabularyKind::Unigram => &["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
            VocabularyKind::T5 => &["<pad>", "</s>", "<unk>"],
            VocabularyKind::Clip => &["<|startoftext|>", "<|endoftext|>"],
        }
    }

    /// The smallest vocabulary size: all bytes, or some letters, and the special tokens.
    pub fn smallest(self) -> usize {
        match self {
            VocabularyKind::Bpe => 256 + self.special().len() + 1,
            VocabularyKind::WordPiece | VocabularyKind::Unigram => 64,
            VocabularyKind::T5 => 64 + SENTINELS,
            // Every byte inside of a word, and at its end.
            VocabularyKind::Clip => 2 * 256 + self.special().len(),
        }
    }
}

/// A tokenizer without its vocabulary.
struct Parts {
    settings: Settings,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
}

pub(super) fn train(
    kind: VocabularyKind,
    texts: &mut dyn Iterator<Item = String>,
    size: usize,
    lower_case: bool,
) -> Result<TextTokenizer, TokeniserError> {
    if !(kind.smallest()..=MOST_VOCABULARY).contains(&size) {
        return Err(TokeniserError::Vocabulary { size, smallest: kind.smallest(), most: MOST_VOCABULARY });
    }
    let parts = parts(kind, lower_case);
    let normalizer = build::part(&parts.normalizer, "normalizer").map_err(TokeniserError::library)?;
    let pre_tokenizer = build::part(&parts.pre_tokenizer, "pre_tokenizer").map_err(TokeniserError::library)?;
    let (Some(normalizer), Some(pre_tokenizer)) = (normalizer, pre_tokenizer) else {
        return Err(TokeniserError::library("a part is missing"));
    };
    let words = count(texts, &normalizer, &pre_tokenizer)?;
    let model = match kind {
        VocabularyKind::WordPiece => train_word_pieces(words, size)?,
        VocabularyKind::Bpe => train_byte_pairs(&words, kind.special(), size)?,
        VocabularyKind::Clip => train_clip(&words, kind.special(), size)?,
        VocabularyKind::Unigram | VocabularyKind::T5 => train_unigram(words, kind, size)?,
    };
    // A normalizer that does nothing is not written.
    let is_empty = parts.normalizer["normalizers"].as_array().is_some_and(Vec::is_empty);
    let description = Description {
        model,
        added: added_tokens(kind),
        normalizer: if is_empty { Value::Null } else { parts.normalizer },
        pre_tokenizer: parts.pre_tokenizer,
        post_processor: parts.post_processor,
        decoder: parts.decoder,
    };
    open::finish(description, parts.settings, None).map_err(TokeniserError::library)
}

/// The tokens that are matched in a text before it is split.
fn added_tokens(kind: VocabularyKind) -> Vec<AddedToken> {
    let sentinels = if kind == VocabularyKind::T5 { SENTINELS } else { 0 };
    let sentinels = (0..sentinels).map(|which| AddedToken::from(format!("<extra_id_{which}>"), true));
    special_tokens(kind.special()).into_iter().chain(sentinels).collect()
}

fn parts(kind: VocabularyKind, lower_case: bool) -> Parts {
    let special = kind.special();
    let token = |name: &'static str| (name, special.iter().position(|token| *token == name).unwrap_or(0) as u32);
    match kind {
        VocabularyKind::WordPiece => Parts {
            settings: Settings::of_class(kind.class(), &[("do_lower_case", lower_case.into())]),
            normalizer: json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                "lowercase": lower_case
            }),
            pre_tokenizer: json!({"type": "BertPreTokenizer"}),
            post_processor: slow::bert_template(token("[CLS]"), token("[SEP]")),
            decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        },
        VocabularyKind::Bpe => {
            let normalizers: &[Value] = if lower_case { &[json!({"type": "Lowercase"})] } else { &[] };
            // RoBERTa's class has no option for lower case: it would build a tokenizer without the normalizer.
            let settings = match lower_case {
                true => Settings::of_class(kind.class(), &[("tokenizer_class", "PreTrainedTokenizerFast".into())]),
                false => Settings::of_class(kind.class(), &[]),
            };
            let byte_level = |space: bool| json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true});
            Parts {
                settings,
                normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
                pre_tokenizer: byte_level(false),
                post_processor: slow::roberta_processing(token("<s>"), token("</s>"), true, false),
                decoder: byte_level(true),
            }
        }
        VocabularyKind::T5 => {
            let normalizers: &[Value] = if lower_case { &[json!({"type": "Lowercase"})] } else { &[] };
            let space = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
            let (text, end) =
                (json!({"Sequence": {"id": "A", "type_id": 0}}), json!({"SpecialToken": {"id": "</s>", "type_id": 0}}));
            let second = json!({"Sequence": {"id": "B", "type_id": 0}});
            // The class builds its own normaliser, which knows no lower case.
            let options = match lower_case {
                true => vec![("tokenizer_class", "PreTrainedTokenizerFast".into())],
                false => Vec::new(),
            };
            Parts {
                settings: Settings::of_class(kind.class(), &options),
                normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
                pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}),
                post_processor: json!({
                    "type": "TemplateProcessing", "single": [text, end], "pair": [text, end, second, end],
                    "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}
                }),
                decoder: space,
            }
        }
        VocabularyKind::Clip => {
            let Description { normalizer, pre_tokenizer, post_processor, decoder, .. } =
                slow::clip_parts(token(special[0]), token(special[1]));
            Parts {
                settings: Settings::of_class(kind.class(), &[]),
                normalizer,
                pre_tokenizer,
                post_processor,
                decoder,
            }
        }
        VocabularyKind::Unigram => {
            let replace = |text: &str| json!({"type": "Replace", "pattern": {"String": text}, "content": "\""});
            let mut normalizers = vec![replace("``"), replace("''")];
            if lower_case {
                normalizers.extend(["NFKD", "StripAccents", "Lowercase"].map(|name| json!({"type": name})));
            }
            let options = [("do_lower_case", lower_case.into()), ("keep_accents", (!lower_case).into())];
            let space = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
            Parts {
                settings: Settings::of_class(kind.class(), &options),
                normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
                pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}),
                post_processor: slow::bert_template(token("[CLS]"), token("[SEP]")),
                decoder: space,
            }
        }
    }
}

/// Counts words, a few megabytes of text at a time.
pub(super) fn count(
    texts: &mut dyn Iterator<Item = String>,
    normalizer: &NormalizerWrapper,
    pre_tokenizer: &PreTokenizerWrapper,
) -> Result<WordCounts, TokeniserError> {
    const MOST_BYTES: usize = 16 << 20;
    let mut words = WordCounts::new();
    loop {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < MOST_BYTES {
            let Some(text) = texts.next() else { break };
            bytes += text.len() + 64;
            batch.push(text);
        }
        if batch.is_empty() {
            break;
        }
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        match count_words(&batch, normalizer, pre_tokenizer) {
            Ok(counts) => counts.into_iter().for_each(|(word, count)| *words.entry(word).or_insert(0) += count),
            Err(TokeniserError::NoText) => {}
            Err(error) => return Err(error),
        }
    }
    if words.is_empty() { Err(TokeniserError::NoText) } else { Ok(words) }
}

/// Leaves out words with rare letters, so that letters fill at most a quarter of the vocabulary, and words that are too long to teach
/// anything.
fn usual_words(words: WordCounts, size: usize) -> Result<WordCounts, TokeniserError> {
    const LONGEST: usize = 100;
    const MOST_LETTERS: usize = 2000;
    let mut letters: BTreeMap<char, u64> = BTreeMap::new();
    for (word, count) in &words {
        word.chars().for_each(|letter| *letters.entry(letter).or_insert(0) += count);
    }
    let mut by_count: Vec<(char, u64)> = letters.into_iter().collect();
    by_count.sort_by_key(|&(letter, count)| (std::cmp::Reverse(count), letter));
    let kept: BTreeSet<char> =
        by_count.into_iter().take(MOST_LETTERS.min(size / 4)).map(|(letter, _)| letter).collect();
    let is_usual = |word: &str| word.chars().count() <= LONGEST && word.chars().all(|letter| kept.contains(&letter));
    let words: WordCounts = words.into_iter().filter(|(word, _)| is_usual(word)).collect();
    if words.is_empty() { Err(TokeniserError::NoText) } else { Ok(words) }
}

pub(super) fn special_tokens(names: &[&'static str]) -> Vec<AddedToken> {
    names.iter().map(|name| AddedToken::from(*name, true)).collect()
}

/// Merges pairs of tokens, down to the letters of the words and those that are given.
fn merge_pairs(
    words: impl Iterator<Item = (String, u64)>,
    special: &[&'static str],
    size: usize,
    letters: std::collections::HashSet<char>,
) -> Result<BPE, TokeniserError> {
    let trainer = BpeTrainer::builder()
        .vocab_size(size)
        .min_frequency(2)
        .special_tokens(special_tokens(special))
        .initial_alphabet(letters)
        .show_progress(false)
        .build();
    let mut model = BPE::default();
    let words = words.map(|(word, count)| (word.as_str().into(), count)).collect();
    trainer.do_train(&words, &mut model).map_err(TokeniserError::library)?;
    Ok(model)
}

/// As BERT's vocabulary was learnt: pairs are merged, and tokens inside of words are written with `##`.
///
/// The library numbers letters inside of words in an order that changes from run to run. Here they are letters of their own, in order:
/// those of a private area of Unicode.
fn train_word_pieces(words: WordCounts, size: usize) -> Result<Model, TokeniserError> {
    const PRIVATE: u32 = 0xf_0000;
    let words = usual_words(words, size)?;
    let inner: BTreeSet<char> = words.keys().flat_map(|word| word.chars().skip(1)).collect();
    let inner: Vec<char> = inner.into_iter().collect();
    let private = |letter: char| match inner.binary_search(&letter) {
        Ok(place) => char::from_u32(PRIVATE + place as u32).unwrap_or(letter),
        Err(_) => letter,
    };
    let disguised = |(word, count): (String, u64)| {
        let letters = word.chars().enumerate().map(|(n, letter)| if n == 0 { letter } else { private(letter) });
        (letters.collect(), count)
    };
    // Also those that begin no word here: another text may have one that they begin.
    let letters = words.keys().flat_map(|word| word.chars()).collect();
    let model = merge_pairs(words.into_iter().map(disguised), VocabularyKind::WordPiece.special(), size, letters)?;
    let public = |letter: char| match u32::from(letter).checked_sub(PRIVATE) {
        Some(place) => inner.get(place as usize).copied().unwrap_or(letter),
        None => letter,
    };
    let is_inner = |token: &str| token.chars().next().is_some_and(|letter| u32::from(letter) >= PRIVATE);
    let name = |token: String| match is_inner(&token) {
        true => format!("##{}", token.chars().map(public).collect::<String>()),
        false => token.chars().map(public).collect(),
    };
    let vocab: Vocab = model.get_vocab().into_iter().map(|(token, id)| (name(token), id)).collect();
    Ok(Model::WordPiece { vocab, unknown: "[UNK]".to_string(), prefix: "##".to_string(), longest_word: 100 })
}

/// Byte-level byte pairs, behind special tokens.
pub(super) fn train_byte_pairs(
    words: &WordCounts,
    special: &[&'static str],
    size: usize,
) -> Result<Model, TokeniserError> {
    let bytes = ByteLevel::alphabet().into_iter().collect();
    let words = words.iter().map(|(word, &count)| (word.clone(), count));
    let model = merge_pairs(words, special, size, bytes)?;
    // The model gives its merges only in the form of a file.
    let json = serde_json::to_value(&model).map_err(TokeniserError::library)?;
    let merges = serde_json::from_value(json["merges"].clone()).map_err(TokeniserError::library)?;
    let vocab = model.get_vocab().into_iter().collect();
    let none = || Some(String::new());
    Ok(Model::Bpe(Bpe { vocab, merges, prefix: none(), suffix: none(), ..Bpe::default() }))
}

/// CLIP's byte pairs: every byte may also end a word.
fn train_clip(words: &WordCounts, special: &[&'static str], size: usize) -> Result<Model, TokeniserError> {
    const END: &str = "</w>";
    let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    letters.sort_unstable();
    let trainer = BpeTrainer::builder()
        .vocab_size(size - letters.len())
        .min_frequency(2)
        .special_tokens(special_tokens(special))
        .initial_alphabet(letters.iter().copied().collect())
        .end_of_word_suffix(END.to_string())
        .show_progress(false)
        .build();
    let mut model = BPE::default();
    let words = words.iter().map(|(word, &count)| (word.as_str().into(), count)).collect();
    trainer.do_train(&words, &mut model).map_err(TokeniserError::library)?;
    let json = serde_json::to_value(&model).map_err(TokeniserError::library)?;
    let merges = serde_json::from_value(json["merges"].clone()).map_err(TokeniserError::library)?;
    // The library numbers the last letters of words in an order that changes from run to run, and leaves out those that it did not see.
    let learnt: BTreeMap<u32, String> = model.get_vocab().into_iter().map(|(token, id)| (id, token)).collect();
    let is_last = |token: &str| token.strip_suffix(END).is_some_and(|letter| letter.chars().count() == 1);
    let kept = learnt.into_values().filter(|token| !is_last(token));
    let tokens = kept.chain(letters.iter().map(|letter| format!("{letter}{END}")));
    let vocab: Vocab = tokens.zip(0..).collect();
    let (prefix, suffix) = (Some(String::new()), Some(END.to_string()));
    Ok(Model::Bpe(Bpe { vocab, merges, unknown: Some(special[1].to_string()), prefix, suffix, ..Bpe::default() }))
}

/// Likelihoods are sums of floating-point numbers: words are sorted, and one thread adds, so that the sums are always the same.
fn train_unigram(words: WordCounts, kind: VocabularyKind, size: usize) -> Result<Model, TokeniserError> {
    let sentinels = if kind == VocabularyKind::T5 { SENTINELS } else { 0 };
    let size = size - sentinels;
    let words = usual_words(words, size)?;
    let letters = words.keys().flat_map(|word| word.chars()).collect::<BTreeSet<char>>().len();
    let trainer = UnigramTrainer::builder()
        .vocab_size(size as u32)
        .special_tokens(special_tokens(kind.special()))
        .unk_token(Some("<unk>".to_string()))
        .show_progress(false)
        .build()
        .map_err(TokeniserError::library)?;
    // The library adds the counts up in 32 bits.
    let total: u64 = words.values().sum();
    let divisor = total.div_ceil(u64::from(u32::MAX) / 2).max(1);
    let words = words.into_iter().map(|(word, count)| (word, count.div_ceil(divisor) as u32)).collect();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(TokeniserError::library)?;
    let mut model = Unigram::default();
    one_thread.install(|| trainer.do_train(words, &mut model)).map_err(TokeniserError::library)?;
    let pieces: Vec<(String, f64)> = model.iter().cloned().collect();
    let mut pieces = in_order(pieces, kind.special().len(), letters);
    // The first sentinel is the last token.
    pieces.extend((0..sentinels).rev().map(|which| (format!("<extra_id_{which}>"), 0.0)));
    let unknown = kind.special().iter().position(|name| *name == "<unk>");
    Ok(Model::Unigram { pieces, unknown, byte_fallback: false })
}

/// The trainer gives letters that no token was learnt for its lowest score, and 0.0001 more from one to the next, in an order that
/// changes from run to run. Here all of them have the lowest score, and tokens of equal score are sorted. Scores are rounded: not every
/// JSON parser gets the last bit of a longer number right.
fn in_order(mut pieces: Vec<(String, f64)>, special: usize, letters: usize) -> Vec<(String, f64)> {
    let learnt = &mut pieces[special..];
    let lowest = learnt.iter().map(|piece| piece.1).fold(f64::INFINITY, f64::min);
    let highest_of_unused = lowest + 0.0001 * (letters + 1) as f64;
    for (piece, score) in learnt.iter_mut() {
        if piece.chars().count() == 1 && *score <= highest_of_unused {
            *score = lowest;
        }
        *score = (*score * 1e6).round() / 1e6;
    }
    learnt.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    pieces
}
