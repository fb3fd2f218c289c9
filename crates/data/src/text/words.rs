//! Tokens as words: which pieces of words belong together, for who reads them.

use std::ops::Range;

use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use super::{Tokeniser, TokeniserError};

/// A word, a number or signs, as text is cut before it becomes tokens; or a special token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// What a reader sees, without the space in front of it; `␣` for what is space alone.
    pub text: String,
    /// Which of the tokens are its pieces.
    pub tokens: Range<usize>,
    /// Whether it is a special token, and no text.
    pub is_special: bool,
}

impl Tokeniser {
    /// The words of some tokens. Each token belongs to one word, that in which it begins; a word in which none begins is part of the
    /// one before it.
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

    /// The words of some of the tokens, none of which is special.
    fn words_of_text(&self, tokens: &[u32], range: Range<usize>, words: &mut Vec<Word>) -> Result<(), TokeniserError> {
        let pieces: Vec<Vec<u8>> = tokens[range.clone()].iter().filter_map(|&token| self.bytes(token)).collect();
        let bytes = pieces.concat();
        // Where each byte stands in the text; bytes that are no whole letter stand where their replacement does.
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
        // Tokens without any bytes at the end.
        if next < starts.len() {
            words.push(word(&text, &starts, next..starts.len(), range.start));
        }
        Ok(())
    }

    /// Where the words of a text end, cut as for training.
    fn word_ends(&self, text: &str) -> Result<Vec<usize>, TokeniserError> {
        let mut cut = PreTokenizedString::from(text);
        self.cutter().pre_tokenize(&mut cut).map_err(TokeniserError::library)?;
        let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(splits.into_iter().map(|(_, (_, end), _)| end).collect())
    }
}

/// The word of some pieces: its text goes to where the next piece begins.
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
