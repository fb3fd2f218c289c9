//! The rows of a batch of texts: how much of each is text, which tokens are of one document, and what is to be predicted.

use std::ops::Range;

use vitreous_data::loader::Batch;

/// Rows of tokens, with what other arrays of the batch say of them.
pub(super) struct TextRows<'b> {
    tokens: &'b [i32],
    length: usize,
    batch: &'b Batch,
}

impl<'b> TextRows<'b> {
    /// The texts of a batch, if it has any.
    pub fn of(batch: &'b Batch) -> Option<TextRows<'b>> {
        let shape = &batch.arrays.iter().find(|array| array.name == "tokens")?.shape;
        let &[_, length] = &shape[..] else { return None };
        (length > 0).then_some(TextRows { tokens: batch.i32("tokens")?, length, batch })
    }

    /// Tokens in a row, with padding.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many tokens of a row are text: padding is behind them. Captions have, in place of lengths, the place of their last token.
    pub fn real(&self, row: usize) -> usize {
        let number =
            |name: &str| self.batch.i32(name).and_then(|numbers| numbers.get(row)).map(|&number| number as usize);
        let last = || number("pooled").map(|place| place + 1 - row * self.length);
        number("lengths").or_else(last).unwrap_or(self.length).min(self.length)
    }

    /// Tokens of a row.
    pub fn tokens(&self, row: usize, range: Range<usize>) -> Vec<u32> {
        let begin = row * self.length;
        self.tokens[begin + range.start..begin + range.end].iter().map(|&token| token as u32).collect()
    }

    /// The parts of a row that attention keeps apart: the whole text, unless it has several documents.
    pub fn documents(&self, row: usize) -> Vec<Range<usize>> {
        let real = self.real(row);
        let begin = row * self.length;
        let Some(numbers) = self.batch.i32("documents").and_then(|numbers| numbers.get(begin..begin + real)) else {
            return std::iter::once(0..real).collect();
        };
        let mut end = 0;
        let ranges = numbers.chunk_by(|one, other| one == other).map(|document| {
            end += document.len();
            end - document.len()..end
        });
        ranges.collect()
    }

    /// Whether the batch says which token each is to predict.
    pub fn has_targets(&self) -> bool {
        self.batch.i32("targets").is_some_and(|targets| targets.len() == self.tokens.len())
    }

    /// The token that a token is to predict; `None` if it predicts nothing that is learned.
    pub fn target(&self, row: usize, place: usize) -> Option<usize> {
        let targets = self.batch.i32("targets").filter(|_| self.has_targets())?;
        usize::try_from(*targets.get(row * self.length + place)?).ok()
    }
}
