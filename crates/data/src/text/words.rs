//! Tokens grouped into words, for display.

use std::ops::Range;

use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use super::{Tokeniser, TokeniserError};

/// A word, a number or punctuation, as text is split before it is tokenised; or a special token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its text, without the space before it; `␣` for white space alone.
    pub text: String,
    /// The range of its tokens.
    pub tokens: Range<usize>,
    /// Whether it is a special token.
    pub is_special: bool,
}

impl Tokeniser {
    /// Groups tokens into words. Each token belongs to the word in which it begins; a word in which none begins is part of the one before
    /// it.
    pub fn words(&self, tokens: &[u32]) -> Result<Vec<Word>, TokeniserError> {
        let mut words = Vec::new();
        let mut first = 0;
        while first < tokens.len() {
            let rest = tokens[first..].iter();
            let plain = rest.take_while(|&&token| self.bytes(token).is_some()).count();
            if plain == 0 {
                let text = self.piece(tokens[first]);
                words.push(Word { text, tokens: first..first + 1, is_special: true });
            }
            self.words_of_text(tokens, first..first + plain, &mut words)?;
            first += plain.max(1);
        }
        Ok(words)
    }

    /// The words of a range of tokens without special ones.
    fn words_of_text(&self, tokens: &[u32], range: Range<usize>, words: &mut Vec<Word>) -> Result<(), TokeniserError> {
        let pieces: Vec<Vec<u8>> = tokens[range.clone()].iter().filter_map(|&token| self.bytes(token)).collect();
        let bytes = pieces.concat();
        // The position of each byte in the text; bytes that are not valid UTF-8 are where their replacement is.
        let (mut text, mut places) = (String::new(), Vec::with_capacity(bytes.len()));
        for chunk in bytes.utf8_chunks() {
            places.extend((0..chunk.valid().len()).map(|at| text.len() + at));
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                places.extend(chunk.invalid().iter().map(|_| text.len()));
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        let mut starts = Vec::with_capacity(pieces.len());
        let mut at = 0;
        for piece in &pieces {
            starts.push(places.get(at).copied().unwrap_or(text.len()));
            at += piece.len();
        }
        let mut next = 0;
        for end in self.word_ends(&text)? {
            let count = starts[next..].iter().take_while(|&&start| start < end).count();
            if count > 0 {
                words.push(word(&text, &starts, next..next + count, range.start));
                next += count;
            }
        }
        // Tokens without bytes, at the end.
        if next < starts.len() {
            words.push(word(&text, &starts, next..starts.len(), range.start));
        }
        Ok(())
    }

    /// Where the words of a text end, split as for training.
    fn word_ends(&self, text: &str) -> Result<Vec<usize>, TokeniserError> {
        let mut cut = PreTokenizedString::from(text);
        self.cutter().pre_tokenize(&mut cut).map_err(TokeniserError::library)?;
        let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(splits.into_iter().map(|(_, (_, end), _)| end).collect())
    }
}

/// The word of a range of tokens: its text ends where the next token begins.
fn word(text: &str, starts: &[usize], pieces: Range<usize>, offset: usize) -> Word {
    let end = starts.get(pieces.end).copied().unwrap_or(text.len());
    let shown = text.get(starts[pieces.start]..end).unwrap_or_default().trim();
    let shown = if shown.is_empty() { "\u{2423}" } else { shown };
    let visible = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    Word {
        text: shown.chars().map(visible).collect(),
        tokens: pieces.start + offset..pieces.end + offset,
        is_special: false,
    }
}
