//! What kind of head a head is, from its attention weights: does it attend to the token before, to earlier copies of its token, or to what
//! followed them (induction; Elhage et al., 2021; Olsson et al., 2022)?

use vitreous_engine::random::{Stream, place_of};

/// Scores of one head, each the mean of a share of attention, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadScores {
    /// Attention to the token before, over all tokens but the first.
    pub previous_token: f64,
    /// Attention to earlier copies of a token, over tokens that have one.
    pub duplicate_token: f64,
    /// Attention to the tokens behind earlier copies of a token, over tokens that have one.
    pub induction: f64,
}

/// The length of a sequence of random tokens that is repeated once to measure heads.
pub const REPEATED_TOKENS: usize = 48;

/// The scores of a head from its weights, `[tokens, tokens]`, on a text.
pub fn head_scores(tokens: &[u32], weights: &[f32]) -> HeadScores {
    let mut sums = HeadSums::default();
    sums.add(tokens, |query, key| weights[query * tokens.len() + key]);
    sums.scores()
}

/// Attention of one head over several texts, added up.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadSums {
    sums: HeadScores,
    /// Tokens that have one before them.
    behind: usize,
    /// Tokens that have an earlier copy.
    repeated: usize,
}

impl HeadSums {
    /// Adds a text, with the weight of a query's token for a key's.
    pub fn add(&mut self, tokens: &[u32], weight: impl Fn(usize, usize) -> f32) {
        for at in 1..tokens.len() {
            let copies: Vec<usize> = (0..at).filter(|&before| tokens[before] == tokens[at]).collect();
            let to = |key: usize| f64::from(weight(at, key));
            self.behind += 1;
            self.repeated += usize::from(!copies.is_empty());
            self.sums.previous_token += to(at - 1);
            self.sums.duplicate_token += copies.iter().map(|&before| to(before)).sum::<f64>();
            // What follows the copy right before a token is that token itself.
            self.sums.induction += copies.iter().filter(|&&copy| copy + 1 < at).map(|&copy| to(copy + 1)).sum::<f64>();
        }
    }

    /// The means over all texts.
    pub fn scores(&self) -> HeadScores {
        let mean = |sum: f64, of: usize| if of == 0 { 0.0 } else { sum / of as f64 };
        HeadScores {
            previous_token: mean(self.sums.previous_token, self.behind),
            duplicate_token: mean(self.sums.duplicate_token, self.repeated),
            induction: mean(self.sums.induction, self.repeated),
        }
    }
}

/// Random tokens, each once, twice in a row: what follows in the second half can be known from the first alone. A model that begins texts with a
/// token gets that first.
pub fn repeated_tokens(first: Option<u32>, vocabulary: usize, longest: usize) -> Vec<u32> {
    let room = longest.saturating_sub(usize::from(first.is_some())) / 2;
    let length = REPEATED_TOKENS.min(room).min(vocabulary);
    let stream = Stream::new(0, 0, place_of("repeated tokens"));
    let mut drawn: Vec<u32> = Vec::with_capacity(length);
    let mut at = 0;
    while drawn.len() < length {
        let token = ((u64::from(stream.four(at)[0]) * vocabulary as u64) >> 32) as u32;
        at += 1;
        // In a small vocabulary the last free tokens would be long in coming.
        if !drawn.contains(&token) || at > 64 * length as u64 {
            drawn.push(token);
        }
    }
    first.into_iter().chain(drawn.iter().copied()).chain(drawn.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_perfect_heads() {
        let tokens = [7, 8, 9, 7, 8, 9];
        let attending = |to: fn(usize) -> usize| {
            let mut weights = vec![0.0; 36];
            (0..6).for_each(|at| weights[at * 6 + to(at)] = 1.0);
            head_scores(&tokens, &weights)
        };
        let previous = attending(|at| at.saturating_sub(1));
        assert_eq!((previous.previous_token, previous.duplicate_token, previous.induction), (1.0, 0.0, 0.0));
        let duplicate = attending(|at| at % 3);
        assert_eq!((duplicate.duplicate_token, duplicate.induction), (1.0, 0.0));
        let induction = attending(|at| if at < 3 { 0 } else { at - 2 });
        assert_eq!((induction.induction, induction.previous_token), (1.0, 0.2));
    }

    #[test]
    fn tokens_are_drawn_once_and_repeated() {
        let tokens = repeated_tokens(Some(1), 1000, 1024);
        assert_eq!((tokens.len(), tokens[0]), (2 * REPEATED_TOKENS + 1, 1));
        assert_eq!(tokens[1..=REPEATED_TOKENS], tokens[REPEATED_TOKENS + 1..]);
        assert_eq!(repeated_tokens(None, 5, 7).len(), 6);
        assert!(repeated_tokens(None, 5, 1).is_empty());
    }
}
