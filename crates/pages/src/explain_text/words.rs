//! Source and translation as words, and the attention between them.

use std::ops::Range;

pub use vitreous_data::text::PairSide as Side;
use vitreous_data::text::{END, PairTokenizer, START, TokeniserError, Tokenisers, Word};
use vitreous_explain::text::{Link, TextExplanation, align, by_words};

/// The names of a model's tokens.
pub trait PairPieces {
    /// A token as the vocabulary has it.
    fn piece(&self, side: Side, token: u32) -> String;

    /// A token for a reader.
    fn shown(&self, side: Side, token: u32) -> String {
        self.piece(side, token)
    }

    /// Tokens grouped into words.
    fn words(&self, side: Side, tokens: &[u32]) -> Result<Vec<Word>, TokeniserError>;
}

impl PairPieces for Tokenisers {
    fn piece(&self, side: Side, token: u32) -> String {
        match side {
            Side::Source => self.source.piece(token),
            Side::Target => self.target.piece(token),
        }
    }

    fn shown(&self, side: Side, token: u32) -> String {
        special_name(token).map_or_else(|| self.piece(side, token), str::to_string)
    }

    fn words(&self, side: Side, tokens: &[u32]) -> Result<Vec<Word>, TokeniserError> {
        let words = match side {
            Side::Source => self.source.words(tokens),
            Side::Target => self.target.words(tokens),
        };
        Ok(named(words?, tokens))
    }
}

impl PairPieces for PairTokenizer {
    fn piece(&self, side: Side, token: u32) -> String {
        PairTokenizer::piece(self, side, token)
    }

    fn words(&self, side: Side, tokens: &[u32]) -> Result<Vec<Word>, TokeniserError> {
        Ok(PairTokenizer::words(self, side, tokens))
    }
}

/// The words of source and translation, and the attention between them.
pub struct Words {
    /// The source, the end token last.
    pub source: Vec<Word>,
    /// The decoder's input, the start token first.
    pub read: Vec<Word>,
    /// The decoder's output, the end token last.
    pub written: Vec<Word>,
    /// Cross-attention of each decoder layer, averaged over heads: rows are words of the translation, columns words of the source.
    pub between: Vec<Vec<f32>>,
    /// The word alignment by each layer.
    pub links: Vec<Vec<Link>>,
}

impl Words {
    /// The words of an explanation.
    pub fn of(pieces: &dyn PairPieces, explanation: &TextExplanation) -> Result<Words, TokeniserError> {
        let source = pieces.words(Side::Source, &explanation.source)?;
        let read = pieces.words(Side::Target, &explanation.read)?;
        let written = pieces.words(Side::Target, &explanation.written)?;
        let columns = explanation.source.len();
        let joined = |mean: &Vec<f32>| by_words(mean, columns, &ranges(&written), &ranges(&source));
        let between: Vec<Vec<f32>> = explanation.cross_means.iter().map(joined).collect();
        // The end token is no word, on either side.
        let links =
            between.iter().map(|weights| align(weights, source.len(), written.len() - 1, source.len() - 1)).collect();
        Ok(Words { source, read, written, between, links })
    }
}

/// Which tokens belong to each word.
pub fn ranges(words: &[Word]) -> Vec<Range<usize>> {
    words.iter().map(|word| word.tokens.clone()).collect()
}

/// Names the start and end tokens.
fn named(mut words: Vec<Word>, tokens: &[u32]) -> Vec<Word> {
    for word in words.iter_mut().filter(|word| word.is_special) {
        word.text = special_name(tokens[word.tokens.start]).unwrap_or(&word.text).to_string();
    }
    words
}

/// The name of a token that is no text.
pub fn special_name(token: u32) -> Option<&'static str> {
    match token {
        START => Some("\u{2039}start\u{203a}"),
        END => Some("\u{2039}end\u{203a}"),
        _ => None,
    }
}
