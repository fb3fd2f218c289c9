//! What a target may be, as `transformers`' `generate` defines it: its length, tokens that are forced or forbidden, and how hypotheses
//! are compared.
//!
//! Rules change the log-probabilities of the next tokens, which are not normalised again: a forbidden token has -∞, and where a token is
//! forced it has 0 and all others -∞. A target counts with its start token, where a rule of `transformers` counts it.

use super::search::{Candidate, NextTokens};

/// When a beam search ends (`early_stopping`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When no living hypothesis would be better if it ended now (`false`).
    #[default]
    WhenUnlikely,
    /// As soon as there are as many hypotheses as beams (`true`).
    WhenFull,
    /// When no living hypothesis can become better (`"never"`).
    Never,
}

/// The rules of targets.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetRules {
    /// The tokens that end a target.
    pub ends: Vec<u32>,
    /// The most tokens of a target, its end included; `None`: by the length of the source.
    pub max_tokens: Option<usize>,
    /// The least tokens of a target, without start and end.
    pub min_tokens: usize,
    /// When a beam search ends.
    pub early_stopping: EarlyStopping,
    /// The first token, if it is given: the language that a model is to write.
    pub forced_first: Option<u32>,
    /// The last token of a target that has become as long as it may.
    pub forced_last: Option<u32>,
    /// No sequence of so many tokens comes twice; 0: any may.
    pub no_repeat: usize,
    /// Sequences of tokens that do not come at all; those of one token are never written.
    pub forbidden: Vec<Vec<u32>>,
    /// Logits of tokens that have come are divided by this if positive, and multiplied otherwise; 1 changes nothing.
    pub repetition_penalty: f32,
}

impl TargetRules {
    /// No rules but these tokens that end a target.
    pub fn ending_with(ends: Vec<u32>) -> TargetRules {
        TargetRules {
            ends,
            max_tokens: None,
            min_tokens: 0,
            early_stopping: EarlyStopping::default(),
            forced_first: None,
            forced_last: None,
            no_repeat: 0,
            forbidden: Vec::new(),
            repetition_penalty: 1.0,
        }
    }

    /// Whether the likeliest tokens do not suffice: seen ones change their order.
    pub(super) fn needs_all(&self) -> bool {
        self.repetition_penalty != 1.0
    }

    /// How many tokens can be forbidden at once, about: as many more of the likeliest are asked for.
    pub(super) fn usual_forbidden(&self) -> usize {
        const OF_REPEATED: usize = 8;
        let of_length = if self.min_tokens > 0 { self.ends.len() } else { 0 };
        self.forbidden.len() + of_length + if self.no_repeat > 0 { OF_REPEATED } else { 0 }
    }

    /// The token that must come next behind so many of at most so many.
    pub(super) fn forced(&self, written: usize, most_tokens: usize) -> Option<u32> {
        match written {
            _ if written + 1 == most_tokens && self.forced_last.is_some() => self.forced_last,
            0 => self.forced_first,
            _ => None,
        }
    }

    /// The tokens that must not come next: `target` begins with the start token.
    fn forbidden_next(&self, target: &[u32]) -> Vec<u32> {
        let mut found = Vec::new();
        if self.no_repeat > 0 && target.len() + 1 > self.no_repeat {
            let beginning = &target[target.len() + 1 - self.no_repeat..];
            let again = target.windows(self.no_repeat).filter(|window| window[..self.no_repeat - 1] == *beginning);
            found.extend(again.map(|window| window[self.no_repeat - 1]));
        }
        for sequence in &self.forbidden {
            if let Some((last, before)) = sequence.split_last().filter(|(_, before)| target.ends_with(before)) {
                // As the peer: not where the words before reach beyond the beginning.
                found.extend((before.len() <= target.len()).then_some(*last));
            }
        }
        if target.len() <= self.min_tokens {
            found.extend(&self.ends);
        }
        found
    }

    /// The best `count` continuations of a hypothesis of the likeliest next tokens; `None` if too many of them are forbidden to know.
    pub(super) fn of_likeliest(
        &self,
        (parent, target, before): (usize, &[u32], f64),
        next: NextTokens,
        count: usize,
        vocabulary: usize,
    ) -> Option<Vec<Candidate>> {
        let forbidden = self.forbidden_next(target);
        let mut found = Vec::new();
        for (&token, &probability) in next.tokens.iter().zip(next.probabilities) {
            // What is impossible is no candidate: its logarithm is none to compare.
            let Some(token) = u32::try_from(token).ok().filter(|_| probability > 0.0) else { continue };
            if found.len() < count && !forbidden.contains(&token) {
                found.push(Candidate { parent, token, log_probability: before + f64::from(probability).ln() });
            }
        }
        let is_known = found.len() == count || forbidden.is_empty() || next.tokens.len() >= vocabulary;
        is_known.then_some(found)
    }

    /// The best `count` continuations of a hypothesis by its logits. A greedy search compares logits, one of beams log-probabilities.
    pub(super) fn of_logits(
        &self,
        (parent, target, before): (usize, &[u32], f64),
        logits: &[f32],
        count: usize,
        is_greedy: bool,
    ) -> Vec<Candidate> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if !largest.is_finite() {
            return Vec::new();
        }
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
        let log_sum = sum.ln() + f64::from(largest);
        let mut scores: Vec<f32> = match is_greedy {
            true => logits.to_vec(),
            false => logits.iter().map(|&logit| (f64::from(logit) - log_sum) as f32).collect(),
        };
        if self.repetition_penalty != 1.0 {
            let mut seen = target.to_vec();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                if let Some(score) = scores.get_mut(token as usize) {
                    let penalty = self.repetition_penalty;
                    *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
                }
            }
        }
        for token in self.forbidden_next(target) {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = f32::NEG_INFINITY;
            }
        }
        // A greedy search goes on with the first, whatever the sums are.
        let count = if is_greedy { 1 } else { count };
        let mut order: Vec<usize> = (0..scores.len()).filter(|&token| scores[token] > f32::NEG_INFINITY).collect();
        let by_score = |&a: &usize, &b: &usize| scores[b].total_cmp(&scores[a]).then(a.cmp(&b));
        if order.len() > count {
            order.select_nth_unstable_by(count - 1, by_score);
            order.truncate(count);
        }
        order.sort_by(by_score);
        let candidate = |token: usize| {
            // Of a greedy search the sum is for information only.
            let own = if is_greedy { f64::from(logits[token]) - log_sum } else { f64::from(scores[token]) };
            Candidate { parent, token: token as u32, log_probability: before + own }
        };
        order.into_iter().map(candidate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_come_is_found() {
        let rules = TargetRules {
            no_repeat: 2,
            min_tokens: 2,
            forbidden: vec![vec![9], vec![3, 8], vec![1, 2, 3, 4, 5, 6]],
            ..TargetRules::ending_with(vec![1])
        };
        // Behind the start token 0.
        assert_eq!(rules.forbidden_next(&[0]), [9, 1]);
        assert_eq!(rules.forbidden_next(&[0, 3]), [9, 8, 1]);
        assert_eq!(rules.forbidden_next(&[0, 4, 5, 4]), [5, 9]);
        assert_eq!(rules.forbidden_next(&[0, 4, 5, 4, 7, 4]), [5, 7, 9]);
        let once = TargetRules { no_repeat: 1, ..TargetRules::ending_with(vec![1]) };
        assert_eq!(once.forbidden_next(&[0, 4, 5]), [0, 4, 5]);
    }

    #[test]
    fn a_forced_last_token_wins() {
        let rules = TargetRules { forced_first: Some(7), forced_last: Some(1), ..TargetRules::ending_with(vec![1]) };
        assert_eq!((rules.forced(0, 9), rules.forced(1, 9), rules.forced(8, 9)), (Some(7), None, Some(1)));
        assert_eq!(rules.forced(0, 1), Some(1));
    }

    #[test]
    fn too_many_forbidden_of_the_likeliest_ask_for_all() {
        let rules = TargetRules { forbidden: vec![vec![4], vec![2]], ..TargetRules::ending_with(vec![1]) };
        let next = NextTokens { tokens: &[4, 2, 3], probabilities: &[0.5, 0.3, 0.1] };
        assert!(rules.of_likeliest((0, &[0], 0.0), next, 2, 10).is_none());
        let found = rules.of_likeliest((0, &[0], 0.0), next, 1, 10).expect("one is left");
        assert_eq!(found.iter().map(|candidate| candidate.token).collect::<Vec<_>>(), [3]);
        let logits = [0.0, 0.1, 9.0, 2.0, 9.5, 1.0];
        let of_all = rules.of_logits((0, &[0], 0.0), &logits, 2, false);
        assert_eq!(of_all.iter().map(|candidate| candidate.token).collect::<Vec<_>>(), [3, 5]);
    }
}
