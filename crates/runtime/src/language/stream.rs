//! Tokens to text while they come: a piece is given when it cannot change any more.

use vitreous_data::text::TextTokenizer;

use crate::error::Error;

/// Tokens before the first new one that decide how it is written: whether with a space.
const BEFORE: usize = 4;

/// Decodes tokens one after the other.
///
/// The text of a token depends on those before it (spaces) and, where a character has several tokens, on those behind it. What is given
/// is the difference between the text with and without the new tokens, once it ends with a whole character.
#[derive(Debug)]
pub struct PieceDecoder {
    tokens: Vec<u32>,
    /// The first token whose text is looked at.
    start: usize,
    /// The text of all tokens before this one was given.
    given: usize,
}

impl PieceDecoder {
    /// Behind a prompt, or at the beginning of a text.
    pub fn after(prompt: &[u32]) -> PieceDecoder {
        let tokens = prompt[prompt.len().saturating_sub(BEFORE)..].to_vec();
        PieceDecoder { start: 0, given: tokens.len(), tokens }
    }

    /// Adds a token; gives the text that is certain now.
    pub fn push(&mut self, tokenizer: &TextTokenizer, token: u32) -> Result<String, Error> {
        self.tokens.push(token);
        self.new_text(tokenizer, false)
    }

    /// The rest of the text, with what is no whole character.
    pub fn finish(&mut self, tokenizer: &TextTokenizer) -> Result<String, Error> {
        self.new_text(tokenizer, true)
    }

    fn new_text(&mut self, tokenizer: &TextTokenizer, is_last: bool) -> Result<String, Error> {
        if self.given == self.tokens.len() {
            return Ok(String::new());
        }
        let before = tokenizer.decode(&self.tokens[self.start..self.given], true)?;
        let with = tokenizer.decode(&self.tokens[self.start..], true)?;
        if with.ends_with('\u{fffd}') && !is_last || with.len() < before.len() {
            return Ok(String::new());
        }
        let piece = with.get(before.len()..).unwrap_or_default().to_string();
        if piece.is_empty() && !is_last {
            return Ok(piece);
        }
        // The tokens of this piece are what the next one is compared with.
        self.start = self.given;
        self.given = self.tokens.len();
        Ok(piece)
    }
}
