//! Classes, numbers, entities and answers of texts.

use std::io::Write;

use anyhow::anyhow;
use serde_json::Value as Json;
use vitreous_data::text::Encoding;
use vitreous_models::{Gives, Head, OpenOptions};
use vitreous_pages::format;
use vitreous_runtime::locate::no_head;
use vitreous_runtime::scores::best;
use vitreous_runtime::text::{EncoderOutput, TextInput, TextModel, TextRunner, entities};

use super::Predict;
use crate::failure::Failure;
use crate::shared_out::key_of;
use crate::texts::{AT_ONCE, TextTally, take_texts, text_input};

impl Predict {
    pub(super) fn run_on_texts(&self) -> Result<(), Failure> {
        if self.features {
            let model = self.model.display();
            return Err(Failure::input(anyhow!(
                "--features is for images; `vitreous embed {model} TEXT` gives the vectors of texts"
            )));
        }
        let model = self.interventions.apply(TextModel::open(&self.model, &OpenOptions::default())?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let name = self.model.to_string_lossy();
        let signature = model.model.architecture.signature();
        let Some(head) = model.head() else {
            return Err(
                no_head(&name, &signature, "classification head", &[Head::Classes(1), Head::TokenClasses(1)]).into()
            );
        };
        let texts: &[String] = if self.texts == ["-"] { &[] } else { &self.texts };
        let mut shared = self.shared_out(texts)?;
        let device = self.compute.device_of(&shared)?;
        let mut runner = TextRunner::new(&model, EncoderOutput::Logits, self.compute.precision(), &device)?;
        let mut tally = TextTally::new();
        if head == Gives::Span {
            let answered = self.answer_questions(&model, &mut runner, shared)?;
            tally.texts = answered;
            tally.tell(model.longest, runner.computing(), &device);
            return Ok(());
        }
        if self.question.is_some() {
            return Err(no_head(&name, &signature, "head for questions", &[Head::Span]).into());
        }
        if head == Gives::Labels(1) && signature.numbers() == Some(1) {
            say!(
                "note: the configuration has no problem_type: the one output is shown as a probability, its sigmoid, as transformers' \
                 pipeline does; --json has it as it is, too, in `logits`"
            );
        }
        let mut out = shared.output(self.out.as_deref(), self.force)?;
        let at_once = shared.chunk_size(AT_ONCE);
        take_texts(texts, &self.files.files, at_once, text_input, |inputs| {
            let Some(chunk) = shared.next(inputs.len(), key_of(inputs)) else { return Ok(()) };
            let inputs: Vec<TextInput> = match &self.pair {
                Some(pair) => inputs.iter().map(|i| TextInput { pair: Some(pair.clone()), ..i.clone() }).collect(),
                None => inputs.to_vec(),
            };
            let encoded = model.encode_all(&inputs)?;
            let mut logits = vec![Vec::new(); inputs.len()];
            runner.run(&encoded, |text, rows| {
                logits[text] = rows.to_vec();
                Ok(())
            })?;
            tally.texts += inputs.len();
            tally.truncated += encoded.iter().filter(|text| text.truncated).count();
            shared.answer(&chunk, &mut out, |out| {
                for ((input, encoding), logits) in inputs.iter().zip(&encoded).zip(&logits) {
                    self.write_text(&model, head, input, encoding, logits, out)?;
                }
                // Whoever reads along sees them when they are there.
                Ok(out.flush()?)
            })
        })?;
        tally.tell(model.longest, runner.computing(), &device);
        shared.finish_into(self.out.as_deref(), self.force, out)
    }

    fn write_text(
        &self,
        model: &TextModel,
        head: Gives,
        input: &TextInput,
        encoding: &Encoding,
        logits: &[f32],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if self.json {
            let aggregation = self.aggregate.into();
            let object = model.answer_json(head, input, encoding, logits, self.top, aggregation)?;
            return Ok(writeln!(out, "{}", Json::Object(object))?);
        }
        writeln!(out, "{}", format::one_line(&input.text))?;
        match head {
            Gives::TokenClasses(_) => {
                let label = |class: usize| model.label(class);
                let found = entities(&input.text, encoding, logits, &label, &model.tokenizer, self.aggregate.into())?;
                for entity in &found {
                    let word = format::one_line(&entity.word);
                    writeln!(out, "  {:5.1} %  {}  {word}", 100.0 * entity.score, format::one_line(&entity.class))?;
                }
            }
            Gives::Numbers(_) => {
                for (index, number) in logits.iter().enumerate() {
                    writeln!(out, "  {number:9.4}  {}", format::one_line(&model.label(index)))?;
                }
            }
            _ => {
                let scores = TextModel::class_scores(head, logits);
                for index in best(&scores, self.top) {
                    writeln!(out, "  {:5.1} %  {}", 100.0 * scores[index], format::one_line(&model.label(index)))?;
                }
            }
        }
        Ok(())
    }
}
