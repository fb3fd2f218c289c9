//! `vitreous eval` of a language model: perplexity and bits per byte of texts, or answers chosen by their likelihood.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::{Value as Json, json};
use vitreous_data::text::{ChoiceQuestion, ChoiceQuestions, open_choices, open_plain};
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::language::{AnswerLikelihoods, LanguageEvaluator, LanguageModel, Stride, TextLikelihood};

use super::{Eval, progress_bar, spread};
use crate::failure::Failure;

/// The largest file of text: it is tokenized in one piece.
const MOST_BYTES: u64 = 256 << 20;

impl Eval {
    pub(super) fn evaluate_language(&self) -> Result<(), Failure> {
        let of_splits = [("--split", self.split.is_some()), ("--validation-share", self.validation_share.is_some())];
        self.refuse(&[&self.of_images_and_pairs()[..], &of_splits].concat(), "does not apply to a language model")?;
        let data = self.text_data()?;
        let choices = open_choices(&data).map_err(Failure::input)?;
        if choices.is_some() {
            let why = "is for texts, but this file has multiple-choice questions";
            self.refuse(&[("--stride", self.stride.is_some())], why)?;
        }
        let model = self.interventions.apply(LanguageModel::open(&self.model)?)?;
        let device = self.compute.device()?;
        let mut evaluator = LanguageEvaluator::new(&model, self.compute.precision(), &device)?;
        let start = Instant::now();
        let about = match choices {
            Some(choices) => self.evaluate_choices(&mut evaluator, choices)?,
            None => self.evaluate_perplexity(&mut evaluator, &data, model.longest)?,
        };
        say!("{about} of {} in {:.2} s on {}", data.display(), start.elapsed().as_secs_f64(), described(&device));
        Ok(())
    }

    fn evaluate_perplexity(
        &self,
        evaluator: &mut LanguageEvaluator,
        data: &Path,
        longest: usize,
    ) -> Result<String, Failure> {
        let stride = match self.stride {
            Some(stride) if stride > longest => {
                let what = format!("--stride {stride} is more than the {longest} tokens that the model reads");
                return Err(Failure::input(anyhow!("{what}: some tokens would not be scored")));
            }
            Some(stride) => stride,
            None => longest.div_ceil(2),
        };
        let texts = texts(data)?;
        let bar = progress_bar(0, "windows");
        let windows = Stride { length: longest, stride, most: self.limit.unwrap_or(usize::MAX) };
        let found = evaluator.likelihood(&texts, windows, &mut |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
        if found.tokens == 0 {
            let what = "there is nothing to predict: a text needs two tokens";
            return Err(Failure::input(anyhow!("{}: {what}", data.display())));
        }
        self.write_perplexity(&found)?;
        Ok(format::count(found.tokens as usize, "token", "tokens"))
    }

    fn write_perplexity(&self, found: &TextLikelihood) -> Result<(), Failure> {
        let mut out = crate::say::stdout();
        if self.json {
            let report = json!({
                "perplexity": finite(found.perplexity()),
                "bits_per_byte": finite(found.bits_per_byte()),
                "tokens": found.tokens,
            });
            writeln!(out, "{report}")?;
        } else {
            writeln!(out, "{:<28}{:.4}", "perplexity", found.perplexity())?;
            writeln!(out, "{:<28}{:.4}", "bits per byte", found.bits_per_byte())?;
            writeln!(out, "{:<28}{}", "tokens", format::thousands(found.tokens))?;
        }
        Ok(out.flush()?)
    }

    fn evaluate_choices(&self, evaluator: &mut LanguageEvaluator, choices: ChoiceQuestions) -> Result<String, Failure> {
        let ChoiceQuestions { format: kind, questions } = choices;
        let questions: Vec<ChoiceQuestion> =
            spread(questions.len(), self.limit).into_iter().map(|place| questions[place].clone()).collect();
        let bar = progress_bar(questions.len(), "questions");
        let found = evaluator.answers(&questions, &mut |done, _| bar.set_position(done as u64))?;
        bar.finish_and_clear();
        let unanswered = questions.iter().filter(|question| question.answer.is_none()).count();
        if unanswered > 0 {
            let count = format::count(unanswered, "question has", "questions have");
            say!("note: {count} no right answer in the file; accuracy is over the others");
        }
        let acc = accuracy(&questions, &found, AnswerLikelihoods::best);
        let acc_norm = accuracy(&questions, &found, AnswerLikelihoods::best_by_character);
        let mut out = crate::say::stdout();
        if self.json {
            let report = json!({
                "format": kind.name(),
                "questions": questions.len(),
                "acc": acc,
                "acc_norm": acc_norm,
                "choices": found.iter().map(AnswerLikelihoods::best).collect::<Vec<_>>(),
                "choices_norm": found.iter().map(AnswerLikelihoods::best_by_character).collect::<Vec<_>>(),
                "log_likelihoods": found.iter().map(|answers| &answers.log_likelihoods).collect::<Vec<_>>(),
            });
            writeln!(out, "{report}")?;
        } else {
            let percent = |share: Option<f64>| share.map_or("-".to_string(), format::percent);
            writeln!(out, "{:<28}{}", "accuracy", percent(acc))?;
            writeln!(out, "{:<28}{}", "accuracy by length", percent(acc_norm))?;
        }
        out.flush()?;
        Ok(format!("{} ({})", format::count(questions.len(), "question", "questions"), kind.name()))
    }
}

/// The share of questions with a known answer for which it is chosen; `None` if there are none.
fn accuracy(
    questions: &[ChoiceQuestion],
    found: &[AnswerLikelihoods],
    best: impl Fn(&AnswerLikelihoods) -> usize,
) -> Option<f64> {
    let known = questions.iter().zip(found).filter_map(|(question, found)| Some((question.answer?, found)));
    let (mut right, mut all) = (0u64, 0u64);
    for (answer, found) in known {
        right += u64::from(best(found) == answer);
        all += 1;
    }
    (all > 0).then(|| right as f64 / all as f64)
}

/// A file of text as a whole, or each `text` of JSON lines.
fn texts(data: &Path) -> Result<Vec<String>, Failure> {
    if data.is_dir() {
        return Err(Failure::input(anyhow!("{}: this is a folder; name a file of text", data.display())));
    }
    if data.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson") {
        return open_plain(data).map_err(Failure::input)?.documents().collect::<Result<_, _>>().map_err(Failure::input);
    }
    let text = vitreous_files::open::read_text(data, MOST_BYTES);
    Ok(vec![text.map_err(|error| Failure::input(anyhow!("{}: {error}", data.display())))?])
}

fn finite(number: f64) -> Json {
    if number.is_finite() { json!(number) } else { Json::Null }
}
