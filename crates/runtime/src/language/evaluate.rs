//! Language models evaluated: the perplexity of texts, and answers chosen by their likelihood.

use vitreous_data::text::ChoiceQuestion;
use vitreous_engine::{Device, Precision};
use vitreous_models::generate::WrittenToken;
use vitreous_models::score::{ScoredTokens, TokenScorer, windows};

use super::model::LanguageModel;
use crate::error::Error;

/// Windows that are scored before progress is told.
const WINDOWS_AT_ONCE: usize = 32;
/// Questions that are scored before progress is told; more of them give batches of more similar lengths.
const QUESTIONS_AT_ONCE: usize = 128;

/// How a long text is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Tokens of a window.
    pub length: usize,
    /// Tokens from the beginning of a window to that of the next.
    pub stride: usize,
    /// The most windows of all texts.
    pub most: usize,
}

/// How well a language model predicts texts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TextLikelihood {
    /// The sum of `-ln p` of the scored tokens.
    pub negative_log_likelihood: f64,
    /// How many tokens were scored.
    pub tokens: u64,
    /// The bytes of the texts, up to the last scored token.
    pub bytes: u64,
}

impl TextLikelihood {
    /// e to the mean `-ln p` of a token.
    pub fn perplexity(&self) -> f64 {
        (self.negative_log_likelihood / self.tokens as f64).exp()
    }

    /// `-log2 p` of all tokens per byte of text, which does not depend on the vocabulary.
    pub fn bits_per_byte(&self) -> f64 {
        self.negative_log_likelihood / std::f64::consts::LN_2 / self.bytes as f64
    }
}

/// The likelihoods of the answers to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerLikelihoods {
    /// ln of the probability of each answer.
    pub log_likelihoods: Vec<f64>,
    /// The same, divided by the characters of the answer.
    pub by_character: Vec<f64>,
}

impl AnswerLikelihoods {
    /// The most probable answer (lm-evaluation-harness' `acc`).
    pub fn best(&self) -> usize {
        largest(&self.log_likelihoods)
    }

    /// The most probable answer for its length (`acc_norm`).
    pub fn best_by_character(&self) -> usize {
        largest(&self.by_character)
    }
}

/// The place of the first largest number.
fn largest(numbers: &[f64]) -> usize {
    let better = |best: usize, next: usize| if numbers[next] > numbers[best] { next } else { best };
    (0..numbers.len()).reduce(better).unwrap_or(0)
}

/// The tokens of an answer behind its context.
struct Continuation {
    ids: Vec<u32>,
    /// Where the answer begins.
    from: usize,
}

/// A language model made ready to say how probable texts are.
pub struct LanguageEvaluator<'m> {
    model: &'m LanguageModel,
    scorer: TokenScorer<'m>,
}

impl<'m> LanguageEvaluator<'m> {
    /// Makes a model ready on a device.
    pub fn new(
        model: &'m LanguageModel,
        precision: Precision,
        device: &Device,
    ) -> Result<LanguageEvaluator<'m>, Error> {
        let scorer = TokenScorer::new(model.model.architecture.as_ref(), precision, device, model.weights())?;
        Ok(LanguageEvaluator { model, scorer })
    }

    /// Scores texts, each by itself, in windows. `progress` is told how many windows are done, of how many.
    pub fn likelihood(
        &mut self,
        texts: &[String],
        stride: Stride,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<TextLikelihood, Error> {
        let mut encoded = Vec::with_capacity(texts.len());
        for text in texts {
            let mut encoding = self.model.tokenizer.encode(text, None, usize::MAX)?;
            encoding.ids = self.model.checked(encoding.ids)?;
            encoded.push(encoding);
        }
        let mut found = TextLikelihood::default();
        let mut all = Vec::new();
        for (encoding, text) in encoded.iter().zip(texts) {
            let windows = windows(encoding.len(), stride.length, stride.stride);
            let kept = windows.len().min(stride.most - all.len());
            found.bytes += match kept == windows.len() {
                true => text.len() as u64,
                false => windows[..kept].last().map_or(0, |last| encoding.offsets[last.seen.end - 1].1 as u64),
            };
            let scored = windows[..kept].iter().map(|window| ScoredTokens {
                ids: &encoding.ids[window.seen.clone()],
                from: window.scored.start - window.seen.start,
            });
            all.extend(scored);
        }
        for (number, some) in all.chunks(WINDOWS_AT_ONCE).enumerate() {
            self.scorer.run(some, |_, scores| {
                found.negative_log_likelihood -= scores.iter().map(|score| score.logprob).sum::<f64>();
                found.tokens += scores.len() as u64;
                Ok::<(), Error>(())
            })?;
            progress(number * WINDOWS_AT_ONCE + some.len(), all.len());
        }
        Ok(found)
    }

    /// How probable the answers to questions are. `progress` is told how many questions are done, of how many.
    pub fn answers(
        &mut self,
        questions: &[ChoiceQuestion],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<AnswerLikelihoods>, Error> {
        let mut all = Vec::with_capacity(questions.len());
        for some in questions.chunks(QUESTIONS_AT_ONCE) {
            let mut continuations = Vec::new();
            for question in some {
                let context = self.leading_tokens(&question.context)?;
                for choice in &question.choices {
                    continuations.push(self.continuation(&context, &question.context, choice)?);
                }
            }
            let scored: Vec<ScoredTokens> =
                continuations.iter().map(|Continuation { ids, from }| ScoredTokens { ids, from: *from }).collect();
            let mut sums = vec![0.0; scored.len()];
            self.scorer.run(&scored, |index, scores| {
                sums[index] = scores.iter().map(|score| score.logprob).sum();
                Ok::<(), Error>(())
            })?;
            let mut sums = sums.into_iter();
            for question in some {
                let log_likelihoods: Vec<f64> = sums.by_ref().take(question.choices.len()).collect();
                let by_character = (log_likelihoods.iter().zip(&question.choices))
                    .map(|(sum, choice)| sum / choice.chars().count() as f64)
                    .collect();
                all.push(AnswerLikelihoods { log_likelihoods, by_character });
            }
            progress(all.len(), questions.len());
        }
        Ok(all)
    }

    /// How probable each token of a prompt is behind those before it, with the `top` likeliest in its place. Nothing is before the first.
    pub fn prompt(&mut self, ids: &[u32], top: usize) -> Result<Vec<WrittenToken>, Error> {
        let mut told: Vec<WrittenToken> =
            ids.iter().map(|&token| WrittenToken { token, logprob: None, top: Vec::new() }).collect();
        if ids.len() > 1 {
            self.scorer.tell_top(top);
            self.scorer.run(&[ScoredTokens { ids, from: 1 }], |_, scores| {
                for (token, score) in told[1..].iter_mut().zip(scores) {
                    token.logprob = Some(score.logprob);
                    token.top = score.top.clone();
                }
                Ok::<(), Error>(())
            })?;
        }
        Ok(told)
    }

    /// The tokens of a text, with the special tokens that the tokenizer writes before it, and none behind it.
    fn leading_tokens(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self.model.tokenizer.encode(text, None, usize::MAX)?;
        let behind = encoding.special.iter().rev().take_while(|special| **special).count();
        let mut ids = self.model.checked(encoding.ids)?;
        // Of a text without tokens, all are before it.
        ids.truncate(if behind == ids.len() { behind } else { ids.len() - behind });
        Ok(ids)
    }

    /// An answer behind a space and its context: what the tokens of the whole have beyond those of the context, as in
    /// lm-evaluation-harness. What is longer than the model reads loses its beginning.
    fn continuation(&self, context: &[u32], before: &str, answer: &str) -> Result<Continuation, Error> {
        let mut ids = self.leading_tokens(&format!("{before} {answer}"))?;
        let mut from = context.len();
        if from == 0 {
            let special = self.model.tokenizer.special();
            let first = special.begin.or(special.end).ok_or_else(|| {
                Error::input("a question without words needs a token before its answers, but the tokenizer has none")
            })?;
            ids.insert(0, first);
            from = 1;
        }
        let most = self.scorer.longest().saturating_add(1);
        let cut = ids.len().saturating_sub(most);
        ids.drain(..cut);
        // At least one token is scored, though tokens of the answer may join those of the context.
        let from = from.saturating_sub(cut).clamp(1, ids.len().saturating_sub(1).max(1));
        Ok(Continuation { ids, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_as_they_are_and_by_length() {
        let found = AnswerLikelihoods { log_likelihoods: vec![-3.0, -2.0, -2.0], by_character: vec![-0.1, -0.5, -0.5] };
        assert_eq!((found.best(), found.best_by_character()), (1, 0));
        assert_eq!(largest(&[f64::NAN, 1.0]), 0);
    }

    #[test]
    fn perplexity_and_bits_are_of_the_mean() {
        // Every token has probability 1/8, which is 3 bits; a token has 2 bytes.
        let found = TextLikelihood { negative_log_likelihood: 8f64.ln() * 10.0, tokens: 10, bytes: 20 };
        assert!((found.perplexity() - 8.0).abs() < 1e-12 && (found.bits_per_byte() - 1.5).abs() < 1e-12);
    }
}
