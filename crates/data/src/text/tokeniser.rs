//! A tokeniser: text to tokens and back, stored as a `tokenizer.json` that Hugging Face's `tokenizers` reads.
//!
//! Text is normalised to Unicode's composed form (NFC), prefixed with a space, so that its first word is like any other, and split
//! into words, numbers and punctuation. Words are then byte-level, and the vocabulary has all 256 bytes: nothing is unknown, and
//! decoding gives back the composed text exactly.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::normalizers::{NFC, NormalizerWrapper, Prepend, Sequence as Normalizers};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, ModelWrapper, SplitDelimiterBehavior, Tokenizer};

use super::training::{self, TokeniserKind};
use super::{SPECIAL_TOKENS, TokeniserError, file};

/// How text is split: letters with their marks, digits, other characters, each with the space before it; other white space by itself. It
/// has no look-ahead, so that no line takes long and all regex engines agree.
const WORDS: &str = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s";

/// The maximum size of a tokeniser's file: a vocabulary of a million takes less.
const MOST_FILE_BYTES: u64 = 256 << 20;

/// Converts text to tokens and back.
#[derive(Clone)]
pub struct Tokeniser {
    inner: Tokenizer,
}

impl std::fmt::Debug for Tokeniser {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Tokeniser of {} tokens", self.vocabulary_size())
    }
}

impl Tokeniser {
    /// Trains a vocabulary of at most `vocab_size` tokens on texts. The same texts give the same bytes, whatever the number of
    /// threads and the order of the texts.
    pub fn train<'a>(
        kind: TokeniserKind,
        texts: impl IntoIterator<Item = &'a str>,
        vocab_size: usize,
    ) -> Result<Tokeniser, TokeniserError> {
        let (normalizer, pre_tokenizer) = (normalizer(), pre_tokenizer()?);
        let texts: Vec<&str> = texts.into_iter().collect();
        let words = training::count_words(&texts, &normalizer, &pre_tokenizer)?;
        let model = training::train(kind, words, vocab_size)?;
        Tokeniser::around(model, normalizer, pre_tokenizer)
    }

    fn around(
        model: ModelWrapper,
        normalizer: NormalizerWrapper,
        pre_tokenizer: PreTokenizerWrapper,
    ) -> Result<Tokeniser, TokeniserError> {
        let mut inner = Tokenizer::new(model);
        inner.with_normalizer(Some(normalizer)).map_err(TokeniserError::library)?;
        inner.with_pre_tokenizer(Some(pre_tokenizer)).with_decoder(Some(decoder()));
        let special = SPECIAL_TOKENS.map(|name| AddedToken::from(name, true));
        inner.add_special_tokens(special).map_err(TokeniserError::library)?;
        // Special tokens are not recognised in text: nobody ends a sentence by writing `</s>`.
        inner.set_encode_special_tokens(true);
        Ok(Tokeniser { inner })
    }

    /// The tokens of a text, without special tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokeniserError> {
        let encoding = self.inner.encode_fast(text, false).map_err(TokeniserError::library)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens. Special tokens and indices outside of the vocabulary are skipped; bytes that are not valid UTF-8 become
    /// `�`.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokeniserError> {
        self.inner.decode(tokens, true).map_err(TokeniserError::library)
    }

    /// A token for display: `▁` is a space; bytes that are not valid UTF-8 are shown in hexadecimal.
    pub fn piece(&self, token: u32) -> String {
        let Some(name) = self.inner.id_to_token(token) else {
            return format!("<{token}>");
        };
        if SPECIAL_TOKENS.get(token as usize).is_some() {
            return name;
        }
        let Some(bytes) = self.bytes(token) else {
            return name;
        };
        let show = |chunk: std::str::Utf8Chunk| {
            let valid = chunk.valid().chars().map(|letter| match letter {
                ' ' => "▁".to_string(),
                letter if letter.is_control() => letter.escape_default().to_string(),
                letter => letter.to_string(),
            });
            let invalid = chunk.invalid().iter().map(|byte| format!("<{byte:02X}>"));
            valid.chain(invalid).collect::<String>()
        };
        bytes.utf8_chunks().map(show).collect()
    }

    /// The bytes of a token; `None` for special tokens and indices outside of the vocabulary.
    pub(super) fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        let is_special = SPECIAL_TOKENS.get(token as usize).is_some();
        let name = self.inner.id_to_token(token).filter(|_| !is_special)?;
        name.chars().map(byte_of).collect()
    }

    /// What splits text into words.
    pub(super) fn cutter(&self) -> &PreTokenizerWrapper {
        // Every tokeniser is built with one.
        self.inner.get_pre_tokenizer().expect("made with it")
    }

    /// The vocabulary size, special tokens included.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The content of a `tokenizer.json`.
    pub fn to_json(&self) -> Result<String, TokeniserError> {
        self.inner.to_string(true).map_err(TokeniserError::library)
    }

    /// Writes a `tokenizer.json`.
    pub fn save(&self, path: &Path) -> Result<(), TokeniserError> {
        std::fs::write(path, self.to_json()?).map_err(|error| TokeniserError::Io { path: path.to_path_buf(), error })
    }

    /// Opens a `tokenizer.json` that [`Tokeniser::save`] wrote.
    pub fn open(path: &Path) -> Result<Tokeniser, TokeniserError> {
        let failed = |error| TokeniserError::Io { path: path.to_path_buf(), error };
        let damaged = |reason: String| TokeniserError::Damaged { path: path.to_path_buf(), reason };
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
        if bytes.len() as u64 > MOST_FILE_BYTES {
            return Err(damaged(format!("it is longer than {MOST_FILE_BYTES} bytes, more than any tokeniser has")));
        }
        let model = file::model(&bytes).map_err(damaged)?;
        let tokeniser = Tokeniser::around(model, normalizer(), pre_tokenizer()?)?;
        let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).map_err(TokeniserError::library);
        if parsed(&bytes)? != parsed(tokeniser.to_json()?.as_bytes())? {
            let reason = "its settings are not those of a tokeniser trained by Vitreous, and no others are supported";
            return Err(damaged(reason.to_string()));
        }
        Ok(tokeniser)
    }
}

fn normalizer() -> NormalizerWrapper {
    Normalizers::new(vec![NFC.into(), Prepend::new(" ".to_string()).into()]).into()
}

fn pre_tokenizer() -> Result<PreTokenizerWrapper, TokeniserError> {
    let words = Split::new(SplitPattern::Regex(WORDS.to_string()), SplitDelimiterBehavior::Isolated, false)
        .map_err(TokeniserError::library)?;
    Ok(PreTokenizers::new(vec![words.into(), ByteLevel::new(false, false, false).into()]).into())
}

/// Bytes to text, then without the space that was prefixed.
fn decoder() -> DecoderWrapper {
    Decoders::new(vec![ByteLevel::default().into(), Strip::new(' ', 1, 0).into()]).into()
}

/// The byte that a character of a token stands for: GPT-2 maps bytes that are printable in Latin-1 to themselves, and the others, in
/// order, to the characters from U+0100 on.
fn byte_of(letter: char) -> Option<u8> {
    let is_seen = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(letter) {
        number @ 0..=255 => u8::try_from(number).ok().filter(is_seen),
        number => (0..=255u8).filter(|byte| !is_seen(byte)).nth(number as usize - 256),
    }
}
