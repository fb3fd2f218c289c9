//! Answers to questions from the start and end logits of tokens, as `transformers`' question-answering pipeline finds them.

use std::collections::HashMap;

use rayon::prelude::*;
use vitreous_data::text::{Encoding, TokeniserError};

use super::model::TextModel;
use super::runner::TextRunner;
use crate::error::Error;
use crate::scores::softmax;

/// The most tokens of a window, and by how many windows overlap at most.
const USUAL_WINDOW: (usize, usize) = (384, 128);
/// The most tokens of an answer.
const LONGEST_ANSWER: usize = 15;

/// A question about a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'q> {
    /// The question.
    pub question: &'q str,
    /// The text that may answer it.
    pub context: &'q str,
}

/// A part of the context that answers a question.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundAnswer {
    /// The answer; empty where the context has none.
    pub text: String,
    /// The probability of its start times that of its end.
    pub score: f64,
    /// Where it begins in the context, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// The best answers to each question, the best first. A long context is read in windows that overlap. With `may_lack_one`, that there is
/// no answer is one of the answers, with the smallest score that a window gives it.
pub fn answer_all(
    model: &TextModel,
    runner: &mut TextRunner,
    questions: &[Question],
    count: usize,
    may_lack_one: bool,
) -> Result<Vec<Vec<FoundAnswer>>, Error> {
    let windows: Vec<Vec<Encoding>> =
        questions.par_iter().map(|question| windows(model, question)).collect::<Result<_, _>>()?;
    let owner: Vec<usize> =
        windows.iter().enumerate().flat_map(|(question, own)| std::iter::repeat_n(question, own.len())).collect();
    let windows = windows.concat();
    windows.iter().try_for_each(|window| model.check(window))?;
    let mut found = vec![Spans::default(); windows.len()];
    runner.run(&windows, |index, logits| {
        found[index] = Spans::of(&windows[index], logits, candidates(count));
        Ok(())
    })?;
    let mut all: Vec<Answers> = questions.iter().map(|_| Answers::default()).collect();
    for ((window, spans), &question) in windows.iter().zip(found).zip(&owner) {
        all[question].add(questions[question].context, window, spans);
    }
    Ok(all.into_iter().map(|answers| answers.best(count, may_lack_one)).collect())
}

/// The best answers in one window, from its logits.
pub fn answers_in(window: &Encoding, context: &str, logits: &[f32], count: usize) -> Vec<FoundAnswer> {
    let mut answers = Answers::default();
    answers.add(context, window, Spans::of(window, logits, candidates(count)));
    answers.best(count, false)
}

/// The most probable start and end tokens of an answer in a window, with their probability; `None` where the window has no context.
pub fn best_span(window: &Encoding, logits: &[f32]) -> Option<Span> {
    Spans::of(window, logits, 1).best.first().copied()
}

/// More than are asked for: some become the same answer.
fn candidates(count: usize) -> usize {
    count.saturating_mul(2).saturating_add(10)
}

/// The first and last token of an answer, and its probability.
type Span = (usize, usize, f64);

/// The answers to a question that were found so far.
#[derive(Default)]
struct Answers {
    answers: Vec<FoundAnswer>,
    /// The place of each by its words.
    places: HashMap<String, usize>,
    /// The smallest score of "no answer" among the windows.
    none: Option<f64>,
}

impl Answers {
    fn add(&mut self, context: &str, window: &Encoding, spans: Spans) {
        self.none = Some(self.none.map_or(spans.none, |none| none.min(spans.none)));
        for (start, end, score) in spans.best {
            let (start, end) = aligned_to_words(window, start, end);
            let text = context[start..end].to_string();
            // The same words, of this window or another one, are one answer.
            let place = *self.places.entry(text.to_lowercase()).or_insert(self.answers.len());
            match self.answers.get_mut(place) {
                Some(answer) => answer.score += score,
                None => self.answers.push(FoundAnswer { text, score, start, end }),
            }
        }
    }

    fn best(self, count: usize, may_lack_one: bool) -> Vec<FoundAnswer> {
        let none = self.none.filter(|_| may_lack_one);
        let mut answers = self.answers;
        answers.extend(none.map(|score| FoundAnswer { text: String::new(), score, start: 0, end: 0 }));
        answers.sort_by(|a, b| b.score.total_cmp(&a.score));
        answers.truncate(count);
        answers
    }
}

/// The question with all of the context, in as many parts as it takes.
fn windows(model: &TextModel, &Question { question, context }: &Question) -> Result<Vec<Encoding>, Error> {
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

/// What a window says.
#[derive(Clone, Debug, Default)]
struct Spans {
    /// The most probable pairs of start and end tokens, the most probable first.
    best: Vec<Span>,
    /// The score of the first token, which stands for "no answer".
    none: f64,
}

impl Spans {
    fn of(window: &Encoding, logits: &[f32], count: usize) -> Spans {
        // Tokens of the context, and the first token.
        let counts: Vec<bool> = window.sequence.iter().enumerate().map(|(i, s)| i == 0 || *s == Some(1)).collect();
        let probabilities = |which: usize| {
            let logit = |index: usize| if counts[index] { logits[2 * index + which] } else { -10_000.0 };
            softmax(&(0..counts.len()).map(logit).collect::<Vec<f32>>())
        };
        let (starts, ends) = (probabilities(0), probabilities(1));
        let mut best = Vec::new();
        for start in (1..counts.len()).filter(|&start| counts[start]) {
            for end in (start..counts.len().min(start + LONGEST_ANSWER)).filter(|&end| counts[end]) {
                best.push((start, end, starts[start] * ends[end]));
            }
        }
        best.sort_by(|a, b| b.2.total_cmp(&a.2));
        best.truncate(count);
        let none = starts.first().zip(ends.first()).map_or(0.0, |(start, end)| start * end);
        Spans { best, none }
    }
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
