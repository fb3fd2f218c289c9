//! Answers to questions about a text.

use std::io::Write;

use anyhow::anyhow;
use vitreous_pages::format;
use vitreous_runtime::text::{Question, TextInput, TextModel, TextRunner, answer_all, answers_json};

use super::Predict;
use crate::failure::Failure;
use crate::shared_out::{SharedOut, key_of};
use crate::texts::{AT_ONCE, question_input, take_texts};

impl Predict {
    /// Answers the question of the arguments, or those of files or standard input; gives their number.
    pub(super) fn answer_questions(
        &self,
        model: &TextModel,
        runner: &mut TextRunner,
        mut shared: SharedOut,
    ) -> Result<usize, Failure> {
        let mut out = shared.output(self.out.as_deref(), self.force)?;
        let at_once = shared.chunk_size(AT_ONCE);
        let mut count = 0;
        let mut answer = |asked: &[TextInput]| {
            let Some(chunk) = shared.next(asked.len(), key_of(asked)) else { return Ok(()) };
            count += asked.len();
            shared.answer(&chunk, &mut out, |out| {
                asked.iter().try_for_each(|asked| self.answer_question(model, runner, asked, out))
            })
        };
        if let (Some(question), Some(context)) = (&self.question, &self.context) {
            answer(&[TextInput { text: question.clone(), pair: Some(context.clone()) }])?;
            shared.finish_into(self.out.as_deref(), self.force, out)?;
            return Ok(count);
        }
        if !self.texts.is_empty() {
            let name = self.model.display();
            let usage = format!("vitreous predict {name} --question Q --context C");
            return Err(Failure::input(anyhow!("{name}: this model answers questions about a text: `{usage}`")));
        }
        take_texts(&[], &self.files.files, at_once, question_input, answer)?;
        shared.finish_into(self.out.as_deref(), self.force, out)?;
        Ok(count)
    }

    fn answer_question(
        &self,
        model: &TextModel,
        runner: &mut TextRunner,
        asked: &TextInput,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let TextInput { text: question, pair } = asked;
        let context = pair.as_deref().unwrap_or_default();
        if question.trim().is_empty() || context.trim().is_empty() {
            return Err(Failure::input(anyhow!("the question and the context must not be empty")));
        }
        let answers = answer_all(model, runner, &[Question { question, context }], self.top, false)?.concat();
        if self.json {
            writeln!(out, "{}", answers_json(question, context, &answers))?;
        } else {
            writeln!(out, "{}", format::one_line(question))?;
            for answer in &answers {
                writeln!(out, "  {:5.1} %  {}", 100.0 * answer.score, format::one_line(&answer.text))?;
            }
        }
        Ok(out.flush()?)
    }
}
