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
    let count = tokens.len();
    let row = |at: usize| &weights[at * count..(at + 1) * count];
    let mean = |sum: f64, of: usize| if of == 0 { 0.0 } else { sum / of as f64 };
    let previous: f64 = (1..count).map(|at| f64::from(row(at)[at - 1])).sum();
    let (mut duplicate, mut induction, mut repeated) = (0.0, 0.0, 0);
    for at in 1..count {
        let copies: Vec<usize> = (0..at).filter(|&before| tokens[before] == tokens[at]).collect();
        repeated += usize::from(!copies.is_empty());
        duplicate += copies.iter().map(|&before| f64::from(row(at)[before])).sum::<f64>();
        // What follows the copy right before a token is that token itself.
        induction +=
            copies.iter().filter(|&&copy| copy + 1 < at).map(|&copy| f64::from(row(at)[copy + 1])).sum::<f64>();
    }
    HeadScores {
        previous_token: mean(previous, count.saturating_sub(1)),
        duplicate_token: mean(duplicate, repeated),
        induction: mean(induction, repeated),
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
