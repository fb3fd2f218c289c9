//! The text of tokens that come one by one.
//!
//! A token may be a part of a character (a byte, or some bytes of byte-level byte pairs), and its text may depend on where it stands (the
//! space at the beginning of a text is left out). Where tokens are bytes, the text is that of all bytes so far, as far as characters are
//! whole. Of other decoders, the new token is decoded together with the one before it.

use serde_json::Value;
use tokenizers::{AddedVocabulary, DecoderWrapper, Model as _, Tokenizer};

use super::TextTokenizer;
use crate::text::TokeniserError;

/// How tokens become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    /// Each letter of a token is a byte.
    ByteLevel,
    /// `▁` is a space and `<0x0A>` a byte; so many spaces at the beginning of a text are left out.
    ByteFallback { left_out: usize },
    /// As the library does it.
    Library,
}

impl Decoding {
    pub(super) fn of(tokenizer: &Tokenizer) -> Decoding {
        match tokenizer.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => Decoding::ByteLevel,
            Some(decoder @ DecoderWrapper::Sequence(_)) => {
                serde_json::to_value(decoder).ok().as_ref().and_then(byte_fallback).unwrap_or(Decoding::Library)
            }
            _ => Decoding::Library,
        }
    }
}

/// The decoder of LLaMA's and Gemma's vocabularies, if a sequence of decoders is that.
fn byte_fallback(decoder: &Value) -> Option<Decoding> {
    let parts = decoder.get("decoders")?.as_array()?;
    let kind = |place: usize| parts.get(place).and_then(|part| part.get("type")).and_then(Value::as_str);
    let is_space = |part: &Value| part["pattern"]["String"] == "▁" && part["content"] == " ";
    let begins = kind(0) == Some("Replace") && is_space(&parts[0]) && kind(1) == Some("ByteFallback");
    if !begins || kind(2) != Some("Fuse") {
        return None;
    }
    match (kind(3), parts.len()) {
        (None, 3) => Some(Decoding::ByteFallback { left_out: 0 }),
        (Some("Strip"), 4) if parts[3]["content"] == " " && parts[3]["stop"] == 0 => {
            Some(Decoding::ByteFallback { left_out: usize::try_from(parts[3]["start"].as_u64()?).ok()? })
        }
        _ => None,
    }
}

/// Turns tokens that come one by one into pieces of text. The pieces, one after the other, are what [`TextTokenizer::decode`] gives for
/// all tokens.
#[derive(Clone, Debug)]
pub struct TextStream {
    skip_special: bool,
    decoding: Decoding,
    /// The bytes of a character that is not whole yet; at most three.
    bytes: Vec<u8>,
    /// How many spaces are still left out at the beginning.
    left_out: usize,
    /// Of [`Decoding::Library`]: the last tokens, and how much of their text has been given.
    last: Vec<u32>,
    given: usize,
}

impl TextStream {
    /// A stream of a tokenizer's tokens. Special tokens are skipped or shown.
    pub fn new(tokenizer: &TextTokenizer, skip_special: bool) -> TextStream {
        let decoding = tokenizer.decoding;
        let left_out = match decoding {
            Decoding::ByteFallback { left_out } => left_out,
            Decoding::ByteLevel | Decoding::Library => 0,
        };
        TextStream { skip_special, decoding, bytes: Vec::new(), left_out, last: Vec::new(), given: 0 }
    }

    /// A stream of the tokens that follow on a prompt, whose text is not given.
    pub fn after(tokenizer: &TextTokenizer, prompt: &[u32], skip_special: bool) -> Result<TextStream, TokeniserError> {
        let mut stream = TextStream::new(tokenizer, skip_special);
        for &id in prompt {
            stream.push(tokenizer, id)?;
        }
        // A character that the prompt leaves unfinished is its own.
        stream.finish();
        Ok(stream)
    }

    /// The text that one more token adds; empty while a character is not whole.
    pub fn push(&mut self, tokenizer: &TextTokenizer, id: u32) -> Result<String, TokeniserError> {
        if self.decoding == Decoding::Library {
            return self.push_library(tokenizer, id);
        }
        let Some(token) = name(tokenizer, id, self.skip_special) else { return Ok(String::new()) };
        let start = self.bytes.len();
        match self.decoding {
            Decoding::ByteLevel => push_byte_level(&token, &mut self.bytes),
            Decoding::ByteFallback { .. } | Decoding::Library => match fallback_byte(&token) {
                Some(byte) => self.bytes.push(byte),
                None => self.bytes.extend_from_slice(token.replace('▁', " ").as_bytes()),
            },
        }
        while self.left_out > 0 && self.bytes.len() > start {
            if self.bytes[start] == b' ' {
                self.bytes.remove(start);
                self.left_out -= 1;
            } else {
                self.left_out = 0;
            }
        }
        Ok(take_text(&mut self.bytes))
    }

    /// The text that is left when no more tokens come: a character that never became whole.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.bytes).into_owned();
        self.bytes.clear();
        rest
    }

    fn push_library(&mut self, tokenizer: &TextTokenizer, id: u32) -> Result<String, TokeniserError> {
        let decode = |ids: &[u32]| tokenizer.inner.decode(ids, self.skip_special).map_err(TokeniserError::library);
        self.last.push(id);
        let text = decode(&self.last)?;
        let piece = text.get(self.given..).unwrap_or_default().to_string();
        self.given = text.len();
        // The last token alone is enough to know what the next one adds, unless it has no text: then the next would look like the first.
        let alone = decode(&[id])?;
        if !alone.is_empty() {
            self.last = vec![id];
            self.given = alone.len();
        } else if piece.is_empty() {
            self.last.pop();
        }
        Ok(piece)
    }
}

/// The text of all tokens.
pub(super) fn decode(tokenizer: &TextTokenizer, ids: &[u32], skip_special: bool) -> Result<String, TokeniserError> {
    if tokenizer.decoding == Decoding::Library {
        return tokenizer.inner.decode(ids, skip_special).map_err(TokeniserError::library);
    }
    let mut stream = TextStream::new(tokenizer, skip_special);
    let mut text = String::new();
    for &id in ids {
        text.push_str(&stream.push(tokenizer, id)?);
    }
    text.push_str(&stream.finish());
    Ok(text)
}

/// A token's name, unless it is to be skipped.
fn name(tokenizer: &TextTokenizer, id: u32, skip_special: bool) -> Option<String> {
    let added: &AddedVocabulary = tokenizer.inner.get_added_vocabulary();
    match added.simple_id_to_token(id) {
        Some(token) if skip_special && added.is_special_token(&token) => None,
        Some(token) => Some(token),
        None => tokenizer.inner.get_model().id_to_token(id),
    }
}

/// The whole characters at the beginning of some bytes, which they are taken from. What is no UTF-8 becomes `\u{fffd}`.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut taken = 0;
    loop {
        match std::str::from_utf8(&bytes[taken..]) {
            Ok(valid) => {
                text.push_str(valid);
                bytes.clear();
                return text;
            }
            Err(error) => {
                let valid = taken + error.valid_up_to();
                text.push_str(std::str::from_utf8(&bytes[taken..valid]).unwrap_or_default());
                match error.error_len() {
                    Some(length) => {
                        text.push('\u{fffd}');
                        taken = valid + length;
                    }
                    None => {
                        bytes.drain(..valid);
                        return text;
                    }
                }
            }
        }
    }
}

/// The byte of a token such as `<0x0A>`.
pub(super) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes that a byte-level token's letters stand for: visible letters of Latin-1 for themselves, and the letters from `Ā` on for the
/// other bytes in order. A token with other letters is written as it is.
pub(super) fn push_byte_level(token: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for letter in token.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(start);
                bytes.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

fn byte_of(letter: char) -> Option<u8> {
    match letter as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}
