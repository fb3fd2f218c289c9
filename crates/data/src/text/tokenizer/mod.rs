//! The tokenizer of any model directory of Hugging Face's: text to the tokens that a model was trained on, and back.
//!
//! [`TextTokenizer::open`] reads a `tokenizer.json`, or what older directories have instead. Padding and truncation that are stored in
//! a file are ignored: the caller says how long an input may be, and pads batches.

mod build;
mod charsmap;
mod encoding;
mod files;
mod json;
mod limits;
mod llama;
mod model;
mod open;
mod pieces;
mod save;
mod sentencepiece;
mod settings;
mod slow;
mod stream;
mod template;
mod token_bytes;
mod train;
mod train_language;
mod vocabulary;
mod word_pieces;

use std::ops::Range;
use std::path::Path;

pub use encoding::Encoding;
use encoding::{Sequence, Spaces};
use files::Files;
pub use pieces::SentencePieces;
use settings::{ROLES, Settings};
use stream::Decoding;
pub use stream::TextStream;
use template::Template;
use tokenizers::{Decoder as _, Model as _, OffsetType, PreTokenizer as _, Tokenizer, TruncationDirection};
pub use train::VocabularyKind;
pub use train_language::LanguageVocabulary;
use vocabulary::ScoreMerges;
pub use vocabulary::{VocabularyData, VocabularySpecial};
use word_pieces::WordPieces;

use super::TokeniserError;

/// The special tokens of a tokenizer; `None` for those it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecialIds {
    /// What fills up the shorter texts of a batch.
    pub padding: Option<u32>,
    /// What stands for a token that is to be predicted.
    pub mask: Option<u32>,
    /// The token before a text: `[CLS]`, `<s>`.
    pub first: Option<u32>,
    /// The token after a text: `[SEP]`, `</s>`.
    pub separator: Option<u32>,
    /// What stands for text that the vocabulary cannot express.
    pub unknown: Option<u32>,
    /// The beginning of a text, of models that generate.
    pub begin: Option<u32>,
    /// The end of a text, of models that generate.
    pub end: Option<u32>,
    /// The end of a turn in a chat, if a file names it.
    pub end_of_turn: Option<u32>,
}

/// Converts text to a model's tokens and back.
#[derive(Clone)]
pub struct TextTokenizer {
    inner: Tokenizer,
    template: Template,
    special: SpecialIds,
    vocabulary_size: usize,
    settings: Settings,
    files: Option<Files>,
    fast: Option<WordPieces>,
    /// Instead of the library's algorithm.
    score_merges: Option<ScoreMerges>,
    decoding: Decoding,
    ends: Vec<u32>,
    notes: Vec<String>,
}

impl std::fmt::Debug for TextTokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TextTokenizer of {} tokens", self.vocabulary_size)
    }
}

impl TextTokenizer {
    /// Opens the tokenizer of a model directory: a `tokenizer.json`; or a `vocab.txt` (BERT); or a `vocab.json` with a `merges.txt`
    /// (RoBERTa, GPT-2, CLIP); or a `spiece.model` or `sentencepiece.bpe.model` (ALBERT, XLM-RoBERTa, CamemBERT, SigLIP); or a
    /// `tokenizer.model` (LLaMA, Mistral). What
    /// `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and `config.json` say is done as `transformers` does it.
    pub fn open(directory: &Path) -> Result<TextTokenizer, TokeniserError> {
        open::open(directory)
    }

    /// The tokenizer of a vocabulary that is stored inside of a model's file. Its tokens are those that llama.cpp gives.
    pub fn from_vocabulary(data: VocabularyData) -> Result<TextTokenizer, TokeniserError> {
        vocabulary::open(data)
    }

    /// The tokens with which a model ends what it writes: the end of a text, and special tokens that are known to end a turn.
    pub fn end_tokens(&self) -> &[u32] {
        &self.ends
    }

    /// The chat templates by name, of which the usual one is called `default`: those of the vocabulary or of `tokenizer_config.json`, or
    /// the one in `chat_template.jinja`.
    pub fn chat_templates(&self) -> Vec<(String, String)> {
        self.settings.chat_templates()
    }

    /// The special tokens that have a role, by its name in templates: `bos_token`, `eos_token`, `pad_token` ..
    pub fn special_names(&self) -> Vec<(&'static str, String)> {
        ROLES.iter().filter_map(|role| Some((*role, self.settings.special_name(role)?))).collect()
    }

    /// What the user should know about how the vocabulary was read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is written before a token that goes on with a word, of vocabularies that mark it: `##`.
    pub fn continuing_prefix(&self) -> Option<&str> {
        match self.inner.get_model() {
            tokenizers::ModelWrapper::WordPiece(model) => Some(model.continuing_subword_prefix.as_str()),
            tokenizers::ModelWrapper::BPE(model) => model.continuing_subword_prefix.as_deref(),
            tokenizers::ModelWrapper::Unigram(_) | tokenizers::ModelWrapper::WordLevel(_) => None,
        }
        .filter(|prefix| !prefix.is_empty())
    }

    /// The size that an embedding must have: the largest index, plus one.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    /// The special tokens.
    pub fn special(&self) -> &SpecialIds {
        &self.special
    }

    /// The longest input in tokens (`model_max_length`), if a file says it.
    pub fn longest(&self) -> Option<usize> {
        self.settings.longest()
    }

    /// The tokens of a text or a pair of texts, with special tokens, truncated to `longest` tokens: of a pair, the longer text is
    /// shortened first, until both are equally long.
    pub fn encode(&self, text: &str, pair: Option<&str>, longest: usize) -> Result<Encoding, TokeniserError> {
        let room = self.room(pair.is_some(), longest)?;
        let Some(pair) = pair else {
            // One token more than fits, to know whether something is left out.
            let sequence = self.sequence(text, room.saturating_add(1))?;
            return Ok(self.cut(&sequence, room));
        };
        let limit = longest.saturating_add(1);
        let (mut first, mut second) = (self.sequence(text, limit)?, self.sequence(pair, limit)?);
        // Where both are cut off, the odd token goes to the longer one, so that it matters which one that is.
        if room % 2 == 1 && first.len() >= limit && second.len() >= limit {
            (first, second) = (self.sequence(text, usize::MAX)?, self.sequence(pair, usize::MAX)?);
        }
        let (first_length, second_length) = pair_lengths(first.len(), second.len(), room);
        let mut encoding = self.template.apply(&[(&first, 0..first_length), (&second, 0..second_length)]);
        encoding.truncated = first_length + second_length < first.len() + second.len();
        Ok(encoding)
    }

    /// The tokens of a question and a context. A context that is too long is cut into windows of as many tokens as fit, each of which
    /// begins with the last `stride` tokens of the one before.
    pub fn encode_windows(
        &self,
        question: &str,
        context: &str,
        longest: usize,
        stride: usize,
    ) -> Result<Vec<Encoding>, TokeniserError> {
        let room = self.room(true, longest)?;
        let question = self.sequence(question, usize::MAX)?;
        let context = self.sequence(context, usize::MAX)?;
        if question.len() + context.len() <= room {
            return Ok(vec![self.template.apply(&[(&question, 0..question.len()), (&context, 0..context.len())])]);
        }
        let length = room.saturating_sub(question.len());
        if length <= stride {
            return Err(TokeniserError::Window { question: question.len(), longest, room: length, stride });
        }
        let mut windows = Vec::new();
        let mut start = 0;
        loop {
            let end = (start + length).min(context.len());
            let mut window = self.template.apply(&[(&question, 0..question.len()), (&context, start..end)]);
            window.truncated = true;
            windows.push(window);
            if end == context.len() {
                return Ok(windows);
            }
            start += length - stride;
        }
    }

    /// The tokens of a text that is split into words, with special tokens, truncated to `longest` tokens. Offsets are in the words.
    pub fn encode_words(&self, words: &[&str], longest: usize) -> Result<Encoding, TokeniserError> {
        let room = self.room(false, longest)?;
        let mut all = Sequence::default();
        for (number, word) in words.iter().enumerate() {
            if all.len() > room {
                break;
            }
            let mut sequence = self.sequence(word, room.saturating_add(1))?;
            let number = u32::try_from(number).map_err(TokeniserError::library)?;
            sequence.words.fill(number);
            all.extend(sequence);
        }
        Ok(self.cut(&all, room))
    }

    /// The tokens of a text, without special tokens, all of them.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokeniserError> {
        Ok(self.sequence(text, usize::MAX)?.ids)
    }

    /// The tokens of a text, without special tokens, each with where it is in the text, as a range of bytes.
    pub fn encode_with_ranges(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>, TokeniserError> {
        let Sequence { ids, offsets, .. } = self.sequence(text, usize::MAX)?;
        Ok(ids.into_iter().zip(offsets.into_iter().map(|(start, end)| start..end)).collect())
    }

    /// The special tokens that are written before a text.
    pub fn before_text(&self) -> Result<Vec<u32>, TokeniserError> {
        let Encoding { ids, special, .. } = self.encode("a", None, usize::MAX)?;
        Ok(ids.into_iter().zip(special).take_while(|(_, special)| *special).map(|(id, _)| id).collect())
    }

    /// A token's name.
    pub fn token(&self, id: u32) -> Option<String> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id);
        added.map(|token| token.content.clone()).or_else(|| self.inner.get_model().id_to_token(id))
    }

    /// The index of a token's name.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The text of tokens. Indices that are not in the vocabulary are skipped, and special tokens if wanted. Bytes that are no UTF-8
    /// become `\u{fffd}`.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokeniserError> {
        stream::decode(self, ids, skip_special)
    }

    /// Its files by name, as [`TextTokenizer::save`] writes them.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TokeniserError> {
        save::files(self)
    }

    /// The name and the bytes of the file that tells `transformers` which tokens begin and end what a model writes.
    pub fn generation_config(&self) -> Result<(String, Vec<u8>), TokeniserError> {
        save::generation_config(self)
    }

    /// The text of tokens that are given by name, as `transformers`' `convert_tokens_to_string` has it.
    pub fn join(&self, tokens: Vec<String>) -> Result<String, TokeniserError> {
        match self.inner.get_decoder() {
            Some(decoder) => decoder.decode(tokens).map_err(TokeniserError::library),
            None => Ok(tokens.join(" ")),
        }
    }

    /// Writes a `tokenizer.json`, a `tokenizer_config.json` and a `special_tokens_map.json` that `transformers` opens. Files that the
    /// tokenizer was read from are written as they were.
    pub fn save(&self, directory: &Path) -> Result<(), TokeniserError> {
        save::save(self, directory)
    }

    /// Learns a vocabulary of at most `size` tokens from texts, with the special tokens and the template of the model that uses such
    /// vocabularies. The same texts give the same vocabulary.
    pub fn train(
        kind: VocabularyKind,
        texts: &mut dyn Iterator<Item = String>,
        size: usize,
        lower_case: bool,
    ) -> Result<TextTokenizer, TokeniserError> {
        train::train(kind, texts, size, lower_case)
    }

    /// Learns the vocabulary of a language model from texts: at most `size` byte pairs, or all characters or bytes.
    pub fn train_language(
        kind: LanguageVocabulary,
        texts: &mut dyn Iterator<Item = String>,
        size: usize,
    ) -> Result<TextTokenizer, TokeniserError> {
        train_language::train(kind, texts, size)
    }

    /// The same tokenizer with another chat template.
    pub fn with_chat_template(mut self, template: &str) -> TextTokenizer {
        self.settings.set_chat_template(template);
        if let Some(files) = &mut self.files {
            files.put("chat_template.jinja", template.as_bytes());
        }
        self
    }

    /// How many tokens of texts fit beside the special tokens.
    fn room(&self, is_pair: bool, longest: usize) -> Result<usize, TokeniserError> {
        let special = self.template.special_tokens(is_pair);
        longest.checked_sub(special).ok_or(TokeniserError::Longest { longest, special })
    }

    /// The first tokens of one text with special tokens.
    fn cut(&self, sequence: &Sequence, room: usize) -> Encoding {
        let mut encoding = self.template.apply(&[(sequence, 0..sequence.len().min(room))]);
        encoding.truncated = sequence.len() > room;
        encoding
    }

    /// The tokens of a text, at least the first `limit` of them.
    fn sequence(&self, text: &str, limit: usize) -> Result<Sequence, TokeniserError> {
        if let Some(merges) = &self.score_merges {
            return Ok(merges.sequence(&self.inner, text));
        }
        match self.fast.as_ref().filter(|fast| fast.fits(text)) {
            Some(fast) => fast.sequence(text, limit, |part| self.library_sequence(part, usize::MAX)),
            None => self.library_sequence(text, limit),
        }
    }

    /// As [`TextTokenizer::sequence`], of any tokenizer.
    fn library_sequence(&self, text: &str, limit: usize) -> Result<Sequence, TokeniserError> {
        let failed = |error: tokenizers::Error| TokeniserError::library(error);
        let added = self.inner.get_added_vocabulary();
        let mut split = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut split).map_err(failed)?;
        }
        let truncation = (limit < usize::MAX).then_some((limit, TruncationDirection::Right));
        self.inner.get_model().tokenize_in_pretokenized(&mut split, truncation).map_err(failed)?;
        let found = split.into_encoding(None, 0, OffsetType::Byte).map_err(failed)?;
        let boundary = |place: usize| floor_boundary(text, place);
        let offsets: Vec<_> =
            found.get_offsets().iter().map(|&(start, end)| (boundary(start), boundary(end))).collect();
        let spaces = match self.template.trim {
            Some(_) => {
                found.get_tokens().iter().zip(&offsets).map(|(token, &range)| Spaces::of(token, text, range)).collect()
            }
            None => Vec::new(),
        };
        let words = found.get_word_ids().iter().map(|word| word.unwrap_or(0)).collect();
        Ok(Sequence { ids: found.get_ids().to_vec(), offsets, words, spaces })
    }
}

/// The place between characters at or before a place in a text.
fn floor_boundary(text: &str, place: usize) -> usize {
    let mut place = place.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

/// How many tokens of two texts are kept if there is room for so many: the longer one is shortened until both are equal.
fn pair_lengths(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let shorter = first.min(second);
    let (short, long) =
        if shorter.saturating_mul(2) <= room { (shorter, room - shorter) } else { (room / 2, room - room / 2) };
    if first > second { (long, short) } else { (short, long) }
}
