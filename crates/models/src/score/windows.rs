//! A long text as windows of a model's context length: each token is scored once, with as many tokens before it as a window has.

use std::ops::Range;

/// A window of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The tokens that the model sees.
    pub seen: Range<usize>,
    /// Those of them that are scored; the windows before scored what comes before.
    pub scored: Range<usize>,
}

/// Windows of `length` tokens, each `stride` tokens after the one before, as in the perplexity guide of `transformers`. Every window
/// scores the tokens that none before it saw. The first token of the text has nothing before it and is not scored; with a stride of
/// `length`, neither is the first of any window.
pub fn windows(tokens: usize, length: usize, stride: usize) -> Vec<Window> {
    let (length, stride) = (length.max(1), stride.clamp(1, length.max(1)));
    let mut windows = Vec::new();
    let mut before = 0;
    let mut begin = 0usize;
    while before < tokens {
        let end = begin.saturating_add(length).min(tokens);
        let scored = before.max(begin + 1)..end;
        if !scored.is_empty() {
            windows.push(Window { seen: begin..end, scored });
        }
        (before, begin) = (end, begin + stride);
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_but_the_first_is_scored_once() {
        for (tokens, length, stride) in [(100, 16, 5), (16, 16, 16), (17, 16, 8), (5, 16, 8), (2, 2, 1), (33, 8, 7)] {
            let windows = windows(tokens, length, stride);
            let scored: Vec<usize> = windows.iter().flat_map(|window| window.scored.clone()).collect();
            let expected: Vec<usize> = (1..tokens).filter(|token| stride < length || token % length != 0).collect();
            assert_eq!(scored, expected, "{tokens} {length} {stride}");
            assert!(
                windows.iter().all(|window| window.seen.len() <= length && window.scored.start > window.seen.start)
            );
            // A token of a later window has at least `length - stride` tokens before it.
            assert!(windows.iter().skip(1).all(|w| w.scored.start - w.seen.start >= (length - stride).max(1)));
        }
        assert_eq!(windows(40, 16, 16).iter().map(|window| window.scored.len()).sum::<usize>(), 37);
        assert!(windows(1, 16, 8).is_empty() && windows(0, 16, 8).is_empty());
    }
}
