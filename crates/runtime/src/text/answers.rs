//! Answers to questions from the start and end logits of tokens, as `transformers`' question-answering pipeline finds them.

use std::collections::HashMap;

use vitreous_data::text::{Encoding, TokeniserError};

use super::model::TextModel;
use super::runner::TextRunner;
use crate::error::Error;

/// The most tokens of a window, and by how many windows overlap at most.
const USUAL_WINDOW: (usize, usize) = (384, 128);
/// The most tokens of an answer.
const LONGEST_ANSWER: usize = 15;

/// A part of the context that answers a question.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundAnswer {
    /// The answer.
    pub text: String,
    /// The probability of its start times that of its end.
    pub score: f64,
    /// Where it begins in the context, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// The best answers to a question, the best first. A long context is read in windows that overlap.
pub fn answer(
    model: &TextModel,
    runner: &mut TextRunner,
    question: &str,
    context: &str,
    count: usize,
) -> Result<Vec<FoundAnswer>, Error> {
    let windows = windows(model, question, context)?;
    windows.iter().try_for_each(|window| model.check(window))?;
    let mut found = vec![Vec::new(); windows.len()];
    runner.run(&windows, |index, logits| {
        found[index] = spans(&windows[index], logits, candidates(count));
        Ok(())
    })?;
    Ok(merged(&windows, found, context, count))
}

/// The best answers in one window, from its logits.
pub fn answers_in(window: &Encoding, context: &str, logits: &[f32], count: usize) -> Vec<FoundAnswer> {
    let spans = spans(window, logits, candidates(count));
    merged(std::slice::from_ref(window), vec![spans], context, count)
}

/// More than are asked for: some become the same answer.
fn candidates(count: usize) -> usize {
    count.saturating_mul(2).saturating_add(10)
}

/// The spans of windows as answers, the best first. The same words, of one window or of several, are one answer.
fn merged(windows: &[Encoding], found: Vec<Vec<Span>>, context: &str, count: usize) -> Vec<FoundAnswer> {
    let mut answers: Vec<FoundAnswer> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (window, spans) in windows.iter().zip(found) {
        for (start, end, score) in spans {
            let (start, end) = aligned_to_words(window, start, end);
            let text = context[start..end].to_string();
            let place = *places.entry(text.to_lowercase()).or_insert(answers.len());
            match answers.get_mut(place) {
                Some(answer) => answer.score += score,
                None => answers.push(FoundAnswer { text, score, start, end }),
            }
        }
    }
    answers.sort_by(|a, b| b.score.total_cmp(&a.score));
    answers.truncate(count);
    answers
}

/// The first and last token of an answer, and its probability.
type Span = (usize, usize, f64);

/// The most probable start and end tokens of an answer in a window, with their probability; `None` where the window has no context.
pub fn best_span(window: &Encoding, logits: &[f32]) -> Option<Span> {
    spans(window, logits, 1).first().copied()
}

/// The question with all of the context, in as many parts as it takes.
fn windows(model: &TextModel, question: &str, context: &str) -> Result<Vec<Encoding>, Error> {
    let longest = model.longest.min(USUAL_WINDOW.0);
    let stride = (longest / 2).min(USUAL_WINDOW.1);
    match model.tokenizer.encode_windows(question, context, longest, stride) {
        // A long question leaves less room than the usual overlap, where the pipeline gives up.
        Err(TokeniserError::Window { room, .. }) if room > 1 => {
            Ok(model.tokenizer.encode_windows(question, context, longest, room / 2)?)
        }
        windows => Ok(windows?),
    }
}

/// The most probable pairs of start and end tokens of a window, the most probable first.
fn spans(window: &Encoding, logits: &[f32], count: usize) -> Vec<Span> {
    // Tokens of the context, and the first token, which stands for "no answer".
    let counts: Vec<bool> = window.sequence.iter().enumerate().map(|(i, s)| i == 0 || *s == Some(1)).collect();
    let probabilities = |which: usize| {
        let logit = |index: usize| if counts[index] { f64::from(logits[2 * index + which]) } else { -10_000.0 };
        let all: Vec<f64> = (0..counts.len()).map(logit).collect();
        let largest = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = all.iter().map(|logit| (logit - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let mut scores: Vec<f64> = powers.into_iter().map(|power| power / sum).collect();
        // It is no part of an answer.
        if let Some(first) = scores.first_mut() {
            *first = 0.0;
        }
        scores
    };
    let (starts, ends) = (probabilities(0), probabilities(1));
    let mut found = Vec::new();
    for start in (1..counts.len()).filter(|&start| counts[start]) {
        for end in (start..counts.len().min(start + LONGEST_ANSWER)).filter(|&end| counts[end]) {
            found.push((start, end, starts[start] * ends[end]));
        }
    }
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    found.truncate(count);
    found
}

/// The bytes from the beginning of the first token's word to the end of the last one's, as far as they are in the window.
fn aligned_to_words(window: &Encoding, start: usize, end: usize) -> (usize, usize) {
    let of_word = |index: usize| {
        let word = window.words[index];
        (0..window.len()).filter(move |&other| {
            other == index || (word.is_some() && window.words[other] == word && window.sequence[other] == Some(1))
        })
    };
    let from = of_word(start).map(|index| window.offsets[index].0).min();
    let to = of_word(end).map(|index| window.offsets[index].1).max();
    (from.unwrap_or(window.offsets[start].0), to.unwrap_or(window.offsets[end].1))
}
