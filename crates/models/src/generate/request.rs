//! What a language model is asked to write, and what comes of it.

use std::sync::Arc;

use super::constraint::TokenConstraint;
use super::sample::{SamplingOptions, TokenLogprob};
use super::search::{Hypothesis, SearchOptions};

/// A text to go on with.
pub struct Request {
    /// Its tokens, at least one.
    pub prompt: Vec<u32>,
    /// The most tokens to write.
    pub max_tokens: usize,
    /// The tokens that end a text, and are not part of it.
    pub ends: Arc<[u32]>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// The number of this sequence among those with the same seed, so that each has random numbers of its own.
    pub sequence: u64,
    /// Instead of choosing token by token: the best of several hypotheses. Of the sampling options only the repetition penalty counts.
    pub beams: Option<SearchOptions>,
    /// With each token its logarithmic probability, and those of so many of the likeliest tokens, by the model's own distribution.
    pub logprobs: Option<usize>,
    /// What the text must obey; not with beams.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// When the context is full: drop the oldest tokens behind the first so many, and go on. `None`: stop.
    pub shift: Option<usize>,
}

impl Request {
    /// To go on greedily with a prompt.
    pub fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Request {
        Request {
            prompt,
            max_tokens,
            ends: Arc::from([]),
            sampling: SamplingOptions::default(),
            sequence: 0,
            beams: None,
            logprobs: None,
            constraint: None,
            shift: None,
        }
    }

    /// Slots that it takes.
    pub(super) fn slots(&self) -> usize {
        self.beams.map_or(1, |beams| beams.beam.max(1))
    }

    /// Whether it needs all logits, and not only the likeliest token.
    pub(super) fn needs_logits(&self) -> bool {
        !self.sampling.is_plain() || self.beams.is_some() || self.logprobs.is_some() || self.constraint.is_some()
    }
}

/// By which a request's tokens are told from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

/// A token that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenToken {
    /// The token.
    pub token: u32,
    /// The logarithm of its probability by the model's own distribution, if it was asked for.
    pub logprob: Option<f64>,
    /// The likeliest tokens, if they were asked for.
    pub top: Vec<TokenLogprob>,
}

/// What happened to a request in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Whose.
    pub id: RequestId,
    /// Its new token. Of beams none comes before the end.
    pub token: Option<WrittenToken>,
    /// Whether it is over.
    pub ended: Option<Ended>,
}

/// How a sequence ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Why.
    pub stop: Stop,
    /// Of beams the hypotheses, the best first.
    pub hypotheses: Vec<Hypothesis>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model wrote a token that ends a text, or a constraint was fulfilled.
    End,
    /// The most tokens were written.
    Length,
    /// The context is full.
    Context,
    /// A constraint allows no token, and is not fulfilled.
    Constraint,
}

/// What generating took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Tokens of prompts that were read.
    pub prompt_tokens: usize,
    /// Tokens of prompts whose keys and values were there already.
    pub reused_tokens: usize,
    /// Tokens that were written.
    pub written_tokens: usize,
    /// Those of them that steps gave; the first token of a text comes of reading its prompt.
    pub stepped_tokens: usize,
    /// How often a text was paused, because others needed its memory; it was then read again.
    pub paused: usize,
    /// Seconds of reading prompts, without making plans ready and taking weights in.
    pub reading: f64,
    /// Seconds of writing, counted likewise.
    pub writing: f64,
}
