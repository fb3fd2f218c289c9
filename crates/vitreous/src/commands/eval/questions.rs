//! `vitreous eval` of a model that answers questions: exact match and F1, as the evaluation of SQuAD has them.

use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;
use vitreous_data::text::{AnsweredQuestion, open_questions};
use vitreous_engine::Device;
use vitreous_models::encode::EncoderOutput;
use vitreous_runtime::text::{Question, TextModel, TextRunner, answer_all};
use vitreous_train::measures::{squad, squad2};
use vitreous_train::{Direction, Format, Metric, Report, Score, Scores};

use super::Eval;
use crate::failure::Failure;

/// Questions whose windows are computed together.
const AT_ONCE: usize = 64;

static EXACT_MATCH: Metric = Metric {
    key: "exact_match",
    label: "exact match",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: false,
};

static F1: Metric =
    Metric { key: "f1", label: "F1", format: Format::Percent, direction: Direction::HigherIsBetter, decides: true };

/// The report of an evaluation of answers.
#[derive(Debug, Serialize)]
struct AnswerReport {
    /// The number of questions.
    questions: u64,
    /// How many of them the context does not answer.
    without_answer: u64,
    /// The share of answers that are one of the expected ones.
    exact_match: f64,
    /// The mean F1 of the words of answers.
    f1: f64,
}

impl Report for AnswerReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.questions, "questions")
    }
}

impl Eval {
    /// Questions without an answer are those of SQuAD 2.0: then "no answer" is an answer, too, and its rules hold.
    pub(super) fn evaluate_questions(
        &self,
        data: &Path,
        model: &TextModel,
        device: &Device,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Scores, Failure> {
        let splits = open_questions(data).map_err(Failure::input)?;
        let questions: Vec<AnsweredQuestion> = self.texts_of_split([splits.train, splits.validation, splits.test])?;
        let without_answer = questions.iter().filter(|question| question.answers.is_empty()).count();
        let mut runner = TextRunner::new(model, EncoderOutput::Logits, self.compute.precision(), device)?;
        let mut answers = Vec::with_capacity(questions.len());
        for some in questions.chunks(AT_ONCE) {
            let asked: Vec<Question> =
                some.iter().map(|asked| Question { question: &asked.question, context: &asked.context }).collect();
            for found in answer_all(model, &mut runner, &asked, 1, without_answer > 0)? {
                answers.push(found.into_iter().next().map(|answer| answer.text).unwrap_or_default());
            }
            progress(answers.len(), questions.len());
        }
        let expected: Vec<Vec<String>> = questions.into_iter().map(|question| question.answers).collect();
        let (exact_match, f1) = match without_answer {
            0 => squad(&expected, &answers),
            _ => squad2(&expected, &answers),
        };
        let report =
            AnswerReport { questions: answers.len() as u64, without_answer: without_answer as u64, exact_match, f1 };
        let numbers = [(&EXACT_MATCH, exact_match), (&F1, f1)];
        Ok(Scores::new(numbers.into_iter().map(|(metric, value)| Score { metric, value }).collect(), report))
    }
}
