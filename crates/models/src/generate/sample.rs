//! Which token comes next: what the logits are changed to, in the order of `transformers`' logits processors, and the draw.
//!
//! | | |
//! |---|---|
//! | repetition penalty | the logit of each token that was seen, in the prompt or since, is divided by it if above 0, multiplied if below |
//! | constraint | tokens that it forbids are out |
//! | temperature | logits are divided by it; 0 takes the likeliest token |
//! | top-k | those below the k-th largest are out (equal ones stay) |
//! | top-p | of those that are left, from the least likely on, those whose probabilities add up to at most `1 - p` are out; one stays |
//! | min-p | of those that are left, those less likely than `min_p` times the likeliest are out |
//!
//! The draw is a function of (seed, sequence, position) alone. Memory of the vocabulary's size is taken once.

use vitreous_engine::random::Stream;

use super::constraint::{TokenConstraint, TokenMask};

/// How a next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// What logits are divided by; 0 takes the likeliest token.
    pub temperature: f32,
    /// The most tokens to choose from; 0 is no limit.
    pub top_k: usize,
    /// The probability that the tokens to choose from add up to; 1 is all.
    pub top_p: f32,
    /// The least probability of a token, as a part of the likeliest one's; 0 is none.
    pub min_p: f32,
    /// By which tokens that were seen become less likely; 1 is not at all.
    pub repetition_penalty: f32,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for SamplingOptions {
    /// Greedy.
    fn default() -> Self {
        SamplingOptions { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl SamplingOptions {
    /// Whether the likeliest token is taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether the likeliest token by the model's own logits is taken.
    pub fn is_plain(&self) -> bool {
        self.is_greedy() && self.repetition_penalty == 1.0
    }

    /// The rule that a setting breaks, if one does.
    pub fn check(&self) -> Result<(), String> {
        let rules = [
            (self.temperature.is_finite() && self.temperature >= 0.0, "temperature", "at least 0", self.temperature),
            (self.top_p > 0.0 && self.top_p <= 1.0, "top-p", "above 0 and at most 1", self.top_p),
            ((0.0..=1.0).contains(&self.min_p), "min-p", "between 0 and 1", self.min_p),
            (
                self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0,
                "repetition penalty",
                "above 0",
                self.repetition_penalty,
            ),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, what, rule, value)) => Err(format!("the {what} must be {rule}; it is {value}")),
            None => Ok(()),
        }
    }
}

/// The tokens that a sequence has seen, each once.
#[derive(Clone, Debug)]
pub struct SeenTokens {
    tokens: Vec<u32>,
    is_seen: TokenMask,
}

impl SeenTokens {
    /// None yet.
    pub fn new(vocabulary: usize) -> SeenTokens {
        SeenTokens { tokens: Vec::new(), is_seen: TokenMask::new(vocabulary) }
    }

    /// Adds tokens; those outside the vocabulary are none.
    pub fn extend(&mut self, tokens: &[u32]) {
        for &token in tokens {
            if (token as usize) < self.is_seen.vocabulary() && !self.is_seen.allows(token) {
                self.is_seen.allow(token);
                self.tokens.push(token);
            }
        }
    }
}

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: u32,
    /// Its logit, changed and divided by the temperature.
    pub score: f32,
    /// Its probability among those that are left, not yet divided by their sum.
    pub weight: f64,
}

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: u32,
    /// `ln p`.
    pub logprob: f64,
}

/// Chooses tokens, for one sequence after the other.
#[derive(Debug)]
pub struct Sampler {
    scores: Vec<f32>,
    choices: Vec<Choice>,
    mask: TokenMask,
}

/// What a sequence's own state adds to its logits.
pub struct Choosing<'c> {
    /// How.
    pub options: &'c SamplingOptions,
    /// What it has seen; needed for a repetition penalty only.
    pub seen: Option<&'c SeenTokens>,
    /// What it must obey.
    pub constraint: Option<&'c mut dyn TokenConstraint>,
    /// The tokens that end a text, which a constraint decides on together.
    pub ends: &'c [u32],
}

impl Sampler {
    /// For a vocabulary.
    pub fn new(vocabulary: usize) -> Sampler {
        Sampler { scores: Vec::new(), choices: Vec::new(), mask: TokenMask::new(vocabulary) }
    }

    /// The next token; `None` if there is none: all are forbidden, or the logits are no numbers. `draw` is a number from 0 to 1.
    pub fn choose(&mut self, logits: &[f32], choosing: Choosing, draw: f64) -> Option<u32> {
        if choosing.options.is_plain() && choosing.constraint.is_none() {
            return largest(logits);
        }
        if choosing.options.is_greedy() {
            self.process(logits, choosing);
            return largest(&self.scores).filter(|&token| self.scores[token as usize] > f32::NEG_INFINITY);
        }
        let choices = self.choices(logits, choosing);
        let total: f64 = choices.iter().map(|choice| choice.weight).sum();
        let mut left = draw * total;
        for choice in choices {
            left -= choice.weight;
            if left < 0.0 {
                return Some(choice.token);
            }
        }
        // The draw was so close to 1 that rounding went past the end.
        choices.iter().rfind(|choice| choice.weight > 0.0).map(|choice| choice.token)
    }

    /// The tokens that a draw is made from, in an order that the logits and settings determine.
    pub fn choices(&mut self, logits: &[f32], choosing: Choosing) -> &[Choice] {
        let options = *choosing.options;
        self.process(logits, choosing);
        if options.temperature != 1.0 && options.temperature > 0.0 {
            // Relative to the largest, which the softmax does not see, so that no temperature makes infinity of it.
            let most = largest(&self.scores).map_or(0.0, |token| self.scores[token as usize]);
            let most = if most.is_finite() { most } else { 0.0 };
            self.scores.iter_mut().for_each(|score| *score = (*score - most) / options.temperature);
        }
        let least = match options.top_k {
            0 => f32::NEG_INFINITY,
            k => kth_largest(&self.scores, k, &mut self.choices),
        };
        self.choices.clear();
        let Some(best) = largest(&self.scores).map(|token| self.scores[token as usize]) else { return &[] };
        if best == f32::NEG_INFINITY {
            return &[];
        }
        for (token, &score) in (0u32..).zip(&self.scores) {
            // NaN is not at least anything.
            if score >= least && score > f32::NEG_INFINITY {
                self.choices.push(Choice { token, score, weight: f64::from((score - best).exp()) });
            }
        }
        if options.top_p < 1.0 {
            self.keep_top_p(options.top_p.into());
        }
        if options.min_p > 0.0 {
            // The likeliest has weight 1.
            let least = f64::from(options.min_p);
            self.choices.retain(|choice| choice.weight >= least);
        }
        &self.choices
    }

    /// The logits after repetition penalty and constraint, in `scores`.
    fn process(&mut self, logits: &[f32], choosing: Choosing) {
        self.scores.clear();
        self.scores.extend_from_slice(logits);
        penalise(&mut self.scores, choosing.options.repetition_penalty, choosing.seen);
        if let Some(constraint) = choosing.constraint {
            constrain(&mut self.scores, &mut self.mask, constraint, choosing.ends);
        }
    }

    /// Removes the least likely choices whose probabilities add up to at most `1 - p`.
    fn keep_top_p(&mut self, p: f64) {
        let total: f64 = self.choices.iter().map(|choice| choice.weight).sum();
        let removed = (1.0 - p) * total;
        // All that are rarer than this add up to less than what is removed in any case: they need not be sorted.
        let rare = removed / self.choices.len() as f64;
        let mut sum: f64 = self.choices.iter().map(|choice| choice.weight).filter(|&weight| weight < rare).sum();
        self.choices.retain(|choice| choice.weight >= rare);
        self.choices.sort_by(|a, b| a.score.total_cmp(&b.score));
        let most = self.choices.len().saturating_sub(1);
        let mut out = 0;
        while out < most {
            sum += self.choices[out].weight;
            if sum > removed {
                break;
            }
            out += 1;
        }
        self.choices.drain(..out);
    }
}

/// Makes tokens that were seen less likely.
pub(super) fn penalise(scores: &mut [f32], penalty: f32, seen: Option<&SeenTokens>) {
    let Some(seen) = seen.filter(|_| penalty != 1.0) else { return };
    for &token in &seen.tokens {
        if let Some(score) = scores.get_mut(token as usize) {
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}

/// Takes out what a constraint forbids.
pub(super) fn constrain(scores: &mut [f32], mask: &mut TokenMask, constraint: &mut dyn TokenConstraint, ends: &[u32]) {
    mask.clear();
    constraint.allowed(mask);
    let may_end = constraint.may_end();
    ends.iter().for_each(|&end| if may_end { mask.allow(end) } else { mask.forbid(end) });
    for (token, score) in (0u32..).zip(scores.iter_mut()) {
        if !mask.allows(token) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// The uniform number from 0 to 1 of a place in a sequence.
pub fn draw_at(seed: u64, sequence: u64, position: usize) -> f64 {
    let [high, low, ..] = Stream::new(seed, sequence, position as u64).four(0);
    // 53 bits: every such number is an f64, below 1.
    let bits = (u64::from(high) << 21) | u64::from(low >> 11);
    bits as f64 / (1u64 << 53) as f64
}

/// The index of the largest number, of equal ones the first; `None` if there is no number.
pub fn largest(row: &[f32]) -> Option<u32> {
    const LANES: usize = 16;
    let mut best = [f32::NEG_INFINITY; LANES];
    let (pieces, rest) = row.as_chunks::<LANES>();
    for piece in pieces {
        for (best, &number) in best.iter_mut().zip(piece) {
            *best = if number > *best { number } else { *best };
        }
    }
    let most =
        best.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &number| if number > most { number } else { most });
    row.iter().position(|&number| number == most).map(|index| index as u32)
}

/// The k-th largest number of a row, which may have fewer. `spare` is overwritten.
fn kth_largest(row: &[f32], k: usize, spare: &mut Vec<Choice>) -> f32 {
    if k >= row.len() {
        return f32::NEG_INFINITY;
    }
    let mut best = std::mem::take(spare);
    best.clear();
    largest_choices(row, k, &mut best);
    let least = best.last().map_or(f32::NEG_INFINITY, |choice| choice.score);
    *spare = best;
    least
}

/// Up to so many numbers are kept in order while a row is read; more are found by selection.
const MOST_INSERTED: usize = 256;

/// The k largest numbers of a row, the largest first; of equal ones the first.
fn largest_choices(row: &[f32], k: usize, best: &mut Vec<Choice>) {
    const PIECE: usize = 64;
    if k > MOST_INSERTED {
        let all = (0u32..).zip(row).filter(|(_, score)| !score.is_nan());
        best.extend(all.map(|(token, &score)| Choice { token, score, weight: 0.0 }));
        let order = |a: &Choice, b: &Choice| b.score.total_cmp(&a.score).then(a.token.cmp(&b.token));
        if k < best.len() {
            best.select_nth_unstable_by(k - 1, order);
            best.truncate(k);
        }
        return best.sort_unstable_by(order);
    }
    let mut least = f32::NEG_INFINITY;
    for (piece, numbers) in row.chunks(PIECE).enumerate() {
        // Passed over at once if none is large enough, which is seen without a branch for each.
        if best.len() == k && !numbers.iter().fold(false, |any, &number| any | (number > least)) {
            continue;
        }
        for (token, &score) in ((piece * PIECE) as u32..).zip(numbers) {
            if score.is_nan() || best.len() == k && score <= least {
                continue;
            }
            let place = best.partition_point(|other| other.score >= score);
            if best.len() == k {
                best.pop();
            }
            best.insert(place, Choice { token, score, weight: 0.0 });
            if best.len() == k {
                least = best[k - 1].score;
            }
        }
    }
}

/// `ln Σ e^x`.
pub(super) fn log_sum(logits: &[f32]) -> f64 {
    let Some(best) = largest(logits).map(|index| f64::from(logits[index as usize])) else { return f64::NAN };
    let sum: f64 = logits.iter().map(|&logit| f64::from((logit - best as f32).exp())).sum();
    best + sum.ln()
}

/// The logarithm of a token's probability by the model's own distribution, and the `count` likeliest tokens.
pub(super) fn logprobs(logits: &[f32], token: u32, count: usize) -> (f64, Vec<TokenLogprob>) {
    let sum = log_sum(logits);
    let logprob = logits.get(token as usize).map_or(f64::NAN, |&logit| f64::from(logit) - sum);
    (logprob, likeliest(logits, sum, count))
}

/// The `count` likeliest tokens; `log_sum` is log Σ e^logit.
pub(crate) fn likeliest(logits: &[f32], log_sum: f64, count: usize) -> Vec<TokenLogprob> {
    let mut best = Vec::new();
    largest_choices(logits, count.min(logits.len()), &mut best);
    let of = |choice: &Choice| TokenLogprob { token: choice.token, logprob: f64::from(choice.score) - log_sum };
    best.iter().map(of).collect()
}
