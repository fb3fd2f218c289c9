//! Which tokens to go on with: greedy and beam search, one sequence at a time, as plain bookkeeping over probabilities.
//!
//! A hypothesis' score is `Σ ln p(token) / ((5 + length) / 6)^penalty` ("Google's Neural Machine Translation System", which the paper
//! follows; the end counts as a token), or, of language models, `Σ ln p(token) / length^penalty`, as `transformers` has it. From each
//! step the `beam` best that have not ended live on. The search ends when `beam` hypotheses have ended and no living one can come to be
//! better than the last of them; a greedy one when its likeliest token is the end. `transformers` supposes there that what a living one
//! is divided by does not grow any more, and so does the search that scores as it does.

use std::cmp::Ordering;

use super::rules::{EarlyStopping, TargetRules};

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// Hypotheses that are followed at once; 1 is greedy.
    pub beam: usize,
    /// How much longer hypotheses are preferred; 0 is not at all. The paper has 0.6.
    pub length_penalty: f32,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions { beam: 1, length_penalty: 0.6 }
    }
}

impl SearchOptions {
    /// How many of the likeliest tokens of each hypothesis a step needs. At most one of them is the end: twice the beam leaves enough
    /// that live on.
    pub(super) fn candidates(&self) -> usize {
        2 * self.beam
    }
}

/// A sequence that was found, as token numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Its tokens, without start and end.
    pub tokens: Vec<u32>,
    /// `Σ ln p(token)`.
    pub log_probability: f64,
    /// By which hypotheses are compared.
    pub score: f64,
    /// Whether it ended by itself, and not at the limit of its length.
    pub ended: bool,
}

/// The likeliest next tokens of a hypothesis, the likeliest first. Numbers below zero are no tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextTokens<'p> {
    pub tokens: &'p [i32],
    pub probabilities: &'p [f32],
}

/// A hypothesis that has not ended.
#[derive(Clone, Debug)]
struct Living {
    tokens: Vec<u32>,
    log_probability: f64,
}

/// A token that a living hypothesis may go on with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The hypothesis, by its place among the living.
    pub parent: usize,
    /// The token.
    pub token: u32,
    /// Of the hypothesis with this token.
    pub log_probability: f64,
}

/// What scores are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Norm {
    /// `((5 + length) / 6)^penalty`.
    OfTranslations,
    /// `length^penalty`.
    Length,
}

/// What a living hypothesis goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// Which of the living ones of the step before it continues.
    pub parent: usize,
    /// Its new token.
    pub token: u32,
}

/// The search for one sequence.
#[derive(Clone, Debug)]
pub(super) struct Search {
    options: SearchOptions,
    norm: Norm,
    ends: Vec<u32>,
    early_stopping: EarlyStopping,
    /// Whether a beam of one ends with its first end.
    is_greedy: bool,
    most_tokens: usize,
    living: Vec<Living>,
    ended: Vec<Hypothesis>,
}

impl Search {
    /// From the start token on, for at most so many tokens.
    pub fn new(options: SearchOptions, end: u32, most_tokens: usize) -> Search {
        Search::starting(options, Norm::OfTranslations, vec![end], most_tokens)
    }

    /// As `transformers` searches with a language model: scores by length, and several tokens that end.
    pub fn by_length(options: SearchOptions, ends: &[u32], most_tokens: usize) -> Search {
        Search::starting(options, Norm::Length, ends.to_vec(), most_tokens)
    }

    /// As `transformers` searches with an encoder-decoder.
    pub fn by_rules(options: SearchOptions, rules: &TargetRules, most_tokens: usize) -> Search {
        let is_greedy = options.beam == 1;
        let early_stopping = rules.early_stopping;
        Search { early_stopping, is_greedy, ..Search::by_length(options, &rules.ends, most_tokens) }
    }

    fn starting(options: SearchOptions, norm: Norm, ends: Vec<u32>, most_tokens: usize) -> Search {
        let living = vec![Living { tokens: Vec::new(), log_probability: 0.0 }];
        let is_greedy = norm == Norm::OfTranslations && options.beam == 1;
        let early_stopping = EarlyStopping::default();
        Search { options, norm, ends, early_stopping, is_greedy, most_tokens, living, ended: Vec::new() }
    }

    /// The most tokens of a sequence.
    pub fn most_tokens(&self) -> usize {
        self.most_tokens
    }

    /// Tokens of each living hypothesis and its `Σ ln p(token)`, in their order.
    pub fn living(&self) -> impl Iterator<Item = (&[u32], f64)> {
        self.living.iter().map(|living| (&living.tokens[..], living.log_probability))
    }

    /// How many of the best continuations a step of a language model needs: as many live on if all ends are among them.
    pub fn candidates(&self) -> usize {
        self.options.beam * (1 + self.ends.len()).max(2)
    }

    /// Takes the likeliest next tokens of each living hypothesis, and says how they go on; nothing when the search is over.
    pub fn advance<'p>(&mut self, rows: impl Iterator<Item = NextTokens<'p>>) -> Vec<Next> {
        let mut candidates = Vec::new();
        for (parent, NextTokens { tokens, probabilities }) in rows.take(self.living.len()).enumerate() {
            for (&token, &probability) in tokens.iter().zip(probabilities).take(self.options.candidates()) {
                // What is impossible is no candidate: its logarithm is none to compare.
                let Some(token) = u32::try_from(token).ok().filter(|_| probability > 0.0) else { continue };
                let log_probability = self.living[parent].log_probability + f64::from(probability).ln();
                candidates.push(Candidate { parent, token, log_probability });
            }
        }
        self.go_on_with(candidates)
    }

    /// Takes the best continuations of the living hypotheses, in any order, and says how they go on; nothing when the search is over.
    pub fn go_on_with(&mut self, mut candidates: Vec<Candidate>) -> Vec<Next> {
        // Stable: of equal ones the first hypothesis, and its smaller token.
        candidates.sort_by(|a, b| b.log_probability.partial_cmp(&a.log_probability).unwrap_or(Ordering::Equal));
        let mut next = Vec::new();
        let mut living = Vec::new();
        for (rank, candidate) in candidates.into_iter().enumerate() {
            let mut tokens = self.living[candidate.parent].tokens.clone();
            if self.ends.contains(&candidate.token) {
                // An end behind others that live on is not among the beam.
                if rank < self.options.beam {
                    let length = tokens.len() + 1;
                    self.end_with(tokens, candidate.log_probability, length, true);
                }
                continue;
            }
            // At the limit of the length `transformers` takes the beam, ends included.
            let is_beyond =
                self.norm == Norm::Length && tokens.len() + 1 >= self.most_tokens && rank >= self.options.beam;
            if living.len() < self.options.beam && !is_beyond {
                tokens.push(candidate.token);
                next.push(Next { parent: candidate.parent, token: candidate.token });
                living.push(Living { tokens, log_probability: candidate.log_probability });
            }
        }
        self.living = living;
        if self.living.first().is_some_and(|living| living.tokens.len() >= self.most_tokens) {
            for living in std::mem::take(&mut self.living) {
                let length = living.tokens.len();
                self.end_with(living.tokens, living.log_probability, length, false);
            }
        }
        if self.is_over() {
            self.living.clear();
            next.clear();
        }
        next
    }

    /// The hypotheses, the best first.
    pub fn finish(mut self) -> Vec<Hypothesis> {
        self.ended.truncate(self.options.beam);
        self.ended
    }

    fn end_with(&mut self, tokens: Vec<u32>, log_probability: f64, length: usize, ended: bool) {
        let score = log_probability / self.norm(length);
        let place = self.ended.partition_point(|other| other.score >= score);
        self.ended.insert(place, Hypothesis { tokens, log_probability, score, ended });
    }

    fn norm(&self, length: usize) -> f64 {
        let length = match self.norm {
            Norm::OfTranslations => (5.0 + length as f64) / 6.0,
            Norm::Length => length as f64,
        };
        length.powf(f64::from(self.options.length_penalty))
    }

    /// Whether no living hypothesis can come among the best.
    fn is_over(&self) -> bool {
        let Some(best) = self.living.first() else { return true };
        let Some(last) = self.ended.get(self.options.beam - 1) else { return false };
        if self.is_greedy {
            // The likeliest token was the end.
            return true;
        }
        if self.norm == Norm::Length {
            let length = match self.early_stopping {
                EarlyStopping::WhenFull => return true,
                EarlyStopping::Never if self.options.length_penalty > 0.0 => self.most_tokens,
                EarlyStopping::Never | EarlyStopping::WhenUnlikely => best.tokens.len(),
            };
            return last.score >= best.log_probability / self.norm(length);
        }
        // A sum of logarithms only falls; what it is divided by lies between that of the next and of the last token.
        let norms = [self.norm(best.tokens.len() + 1), self.norm(self.most_tokens)];
        let hope = norms.map(|norm| best.log_probability / norm).into_iter().fold(f64::NEG_INFINITY, f64::max);
        last.score >= hope
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitreous_engine::random::Stream;

    const END: u32 = 0;
    const WORDS: usize = 4;

    /// All tokens of a row and their probabilities, the likeliest first; of equal ones the first.
    fn sorted(row: &[f32]) -> (Vec<i32>, Vec<f32>) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        order.into_iter().map(|token| (token as i32, row[token])).unzip()
    }

    /// A model that has its own opinion behind every beginning.
    fn probabilities(seed: u64, tokens: &[u32]) -> Vec<f32> {
        let place = tokens.iter().fold(17u64, |place, &token| place * 31 + u64::from(token) + 1);
        let words = Stream::new(seed, 0, place).four(0).map(|word| 0.02 + f64::from(word) / f64::from(u32::MAX));
        let sum: f64 = words.iter().map(|word| word.powi(3)).sum();
        words.iter().map(|word| (word.powi(3) / sum) as f32).collect()
    }

    fn search(seed: u64, options: SearchOptions, most_tokens: usize) -> Vec<Hypothesis> {
        counted_search(seed, options, most_tokens).0
    }

    /// The hypotheses, and how many words it took.
    fn counted_search(seed: u64, options: SearchOptions, most_tokens: usize) -> (Vec<Hypothesis>, usize) {
        let mut words = 0;
        let mut search = Search::new(options, END, most_tokens);
        let mut beginnings = vec![Vec::new()];
        loop {
            let rows: Vec<_> = beginnings.iter().map(|tokens| sorted(&probabilities(seed, tokens))).collect();
            let next = search.advance(rows.iter().map(|(tokens, probabilities)| NextTokens { tokens, probabilities }));
            words += 1;
            if next.is_empty() {
                return (search.finish(), words);
            }
            let goes_on = |next: &Next| [&beginnings[next.parent][..], &[next.token]].concat();
            beginnings = next.iter().map(goes_on).collect();
        }
    }

    /// Every translation there is.
    fn all(seed: u64, penalty: f32, most_tokens: usize) -> Vec<Hypothesis> {
        let norm = |length: usize| ((5.0 + length as f64) / 6.0).powf(f64::from(penalty));
        let mut found = Vec::new();
        let mut beginnings = vec![(Vec::new(), 0.0)];
        while let Some((tokens, before)) = beginnings.pop() {
            for (token, probability) in probabilities(seed, &tokens).into_iter().enumerate() {
                let log_probability = before + f64::from(probability).ln();
                let mut longer = tokens.clone();
                if token as u32 == END {
                    let score = log_probability / norm(tokens.len() + 1);
                    found.push(Hypothesis { tokens: longer, log_probability, score, ended: true });
                    continue;
                }
                longer.push(token as u32);
                if longer.len() == most_tokens {
                    let score = log_probability / norm(most_tokens);
                    found.push(Hypothesis { tokens: longer, log_probability, score, ended: false });
                } else {
                    beginnings.push((longer, log_probability));
                }
            }
        }
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found
    }

    #[test]
    fn a_beam_that_holds_everything_finds_what_trying_everything_finds() {
        for seed in 0..20 {
            for penalty in [0.0, 0.6, 1.0, 2.5, -1.0] {
                let options = SearchOptions { beam: WORDS.pow(4), length_penalty: penalty };
                let (got, expected) = (search(seed, options, 4), all(seed, penalty, 4));
                assert_eq!(got.len(), expected.len(), "seed {seed}, penalty {penalty}");
                for (got, expected) in got.iter().zip(&expected) {
                    assert_eq!(got.tokens, expected.tokens, "seed {seed}, penalty {penalty}");
                    assert!((got.score - expected.score).abs() < 1e-12 && got.ended == expected.ended);
                }
            }
        }
    }

    /// The same search without a rule for stopping: the best of all that a beam comes by.
    fn never_stopping(seed: u64, options: SearchOptions, most_tokens: usize) -> Vec<Hypothesis> {
        let norm = |length: usize| ((5.0 + length as f64) / 6.0).powf(options.length_penalty.into());
        let mut found = Vec::new();
        let mut living = vec![(Vec::new(), 0.0f64)];
        for _ in 0..most_tokens {
            let mut longer: Vec<(Vec<u32>, f64)> = Vec::new();
            for (tokens, sum) in &living {
                for (token, probability) in probabilities(seed, tokens).into_iter().enumerate() {
                    longer.push(([&tokens[..], &[token as u32]].concat(), sum + f64::from(probability).ln()));
                }
            }
            longer.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (tokens, sum) in longer.iter().take(options.beam).filter(|(tokens, _)| tokens.ends_with(&[END])) {
                let (score, tokens) = (sum / norm(tokens.len()), tokens[..tokens.len() - 1].to_vec());
                found.push(Hypothesis { tokens, log_probability: *sum, score, ended: true });
            }
            longer.retain(|(tokens, _)| !tokens.ends_with(&[END]));
            longer.truncate(options.beam);
            living = longer;
        }
        for (tokens, sum) in living {
            let score = sum / norm(tokens.len());
            found.push(Hypothesis { tokens, log_probability: sum, score, ended: false });
        }
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(options.beam);
        found
    }

    #[test]
    fn a_search_stops_early_and_misses_nothing_by_it() {
        const MOST: usize = 9;
        let mut early = 0;
        for seed in 0..200 {
            for beam in [2, 3, 4] {
                for length_penalty in [0.0, 0.6, 1.5, -0.5] {
                    let options = SearchOptions { beam, length_penalty };
                    let (found, words) = counted_search(seed, options, MOST);
                    let expected = never_stopping(seed, options, MOST);
                    let tokens = |all: &[Hypothesis]| all.iter().map(|h| h.tokens.clone()).collect::<Vec<_>>();
                    assert_eq!(tokens(&found), tokens(&expected), "seed {seed}, {options:?}");
                    early += usize::from(words < MOST);
                }
            }
        }
        assert!(early > 100, "only {early} searches stopped early");
    }

    #[test]
    fn greedy_takes_the_likeliest_word_each_time() {
        for seed in 0..50 {
            let mut tokens = Vec::new();
            let ended = loop {
                let row = probabilities(seed, &tokens);
                let likeliest = (0..WORDS).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("words") as u32;
                if likeliest == END {
                    break true;
                }
                tokens.push(likeliest);
                if tokens.len() == 7 {
                    break false;
                }
            };
            let found = search(seed, SearchOptions::default(), 7);
            assert_eq!((found.len(), &found[0].tokens, found[0].ended), (1, &tokens, ended), "seed {seed}");
        }
    }

    #[test]
    fn what_is_no_token_or_impossible_is_not_taken() {
        let options = SearchOptions { beam: 2, length_penalty: 0.0 };
        let mut search = Search::new(options, END, 5);
        let row = NextTokens { tokens: &[3, 1, 2, -1], probabilities: &[0.9, 0.1, 0.0, f32::NEG_INFINITY] };
        let next = search.advance([row].into_iter());
        assert_eq!(next.iter().map(|next| next.token).collect::<Vec<_>>(), [3, 1]);
        let none = NextTokens { tokens: &[-1; 4], probabilities: &[f32::NEG_INFINITY; 4] };
        assert!(search.advance([none, none].into_iter()).is_empty());
        assert!(search.finish().is_empty());
    }
}
