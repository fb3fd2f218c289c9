//! Classes, numbers, entities and answers of texts.

use std::io::Write;

use anyhow::anyhow;
use serde_json::{Value as Json, json};
use vitreous_data::text::Encoding;
use vitreous_models::{Gives, Head, OpenOptions};
use vitreous_pages::format;
use vitreous_runtime::locate::no_head;
use vitreous_runtime::scores::{best, sigmoid, softmax};
use vitreous_runtime::text::{EncoderOutput, Entity, TextInput, TextModel, TextRunner, entities};

use super::Predict;
use crate::failure::Failure;
use crate::texts::{TextTally, take_texts, text_input};

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
        let is_head =
            |gives: &&Gives| !matches!(gives, Gives::Vector(_) | Gives::TokenVectors(_) | Gives::MaskedTokens(_));
        let Some(&(mut head)) = signature.gives.iter().find(is_head) else {
            return Err(
                no_head(&name, &signature, "classification head", &[Head::Classes(1), Head::TokenClasses(1)]).into()
            );
        };
        let device = self.compute.device()?;
        let mut runner = TextRunner::new(&model, EncoderOutput::Logits, self.compute.precision(), &device)?;
        let mut tally = TextTally::new();
        if head == Gives::Span {
            tally.texts = self.answer_questions(&model, &mut runner)?;
            tally.tell(model.longest, runner.computing(), &device);
            return Ok(());
        }
        if self.question.is_some() {
            return Err(no_head(&name, &signature, "head for questions", &[Head::Span]).into());
        }
        if head == Gives::Numbers(1) && !states_problem(&model) {
            head = Gives::Labels(1);
            say!(
                "note: the configuration has no problem_type: the one output is shown as a probability, its sigmoid, as transformers' \
                 pipeline does; --json has it as it is, too, in `logits`"
            );
        }
        let mut out = crate::say::stdout();
        let texts: &[String] = if self.texts == ["-"] { &[] } else { &self.texts };
        take_texts(texts, &self.files.files, text_input, |inputs| {
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
            for ((input, encoding), logits) in inputs.iter().zip(&encoded).zip(&logits) {
                self.write_text(&model, head, input, encoding, logits, &mut out)?;
            }
            // Whoever reads along sees them when they are there.
            Ok(out.flush()?)
        })?;
        tally.tell(model.longest, runner.computing(), &device);
        Ok(())
    }

    fn write_text(
        &self,
        model: &TextModel,
        head: Gives,
        input: &TextInput,
        encoding: &Encoding,
        logits: &[f32],
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let mut object = serde_json::Map::new();
        object.insert("text".to_string(), json!(input.text));
        if let Some(pair) = &input.pair {
            object.insert("text_pair".to_string(), json!(pair));
        }
        if !self.json {
            writeln!(out, "{}", format::one_line(&input.text))?;
        }
        match head {
            Gives::TokenClasses(_) => {
                let label = |class: usize| model.label(class);
                let found = entities(&input.text, encoding, logits, &label, &model.tokenizer, self.aggregate.into())?;
                if !self.json {
                    for entity in &found {
                        let word = format::one_line(&entity.word);
                        writeln!(out, "  {:5.1} %  {}  {word}", 100.0 * entity.score, format::one_line(&entity.class))?;
                    }
                    return Ok(());
                }
                let characters = |byte: usize| input.text[..byte].chars().count();
                let entity = |entity: &Entity| match entity.index {
                    Some(index) => json!({
                        "entity": entity.class, "score": entity.score, "index": index, "word": entity.word,
                        "start": characters(entity.start), "end": characters(entity.end),
                    }),
                    None => json!({
                        "entity_group": entity.class, "score": entity.score, "word": entity.word,
                        "start": characters(entity.start), "end": characters(entity.end),
                    }),
                };
                object.insert("entities".to_string(), found.iter().map(entity).collect());
            }
            Gives::Numbers(_) => {
                if !self.json {
                    for (index, number) in logits.iter().enumerate() {
                        writeln!(out, "  {number:9.4}  {}", format::one_line(&model.label(index)))?;
                    }
                    return Ok(());
                }
                let number = |(index, number): (usize, &f32)| json!({"label": model.label(index), "value": number});
                object.insert("numbers".to_string(), logits.iter().enumerate().map(number).collect());
            }
            _ => {
                let scores = match head {
                    Gives::Labels(_) => logits.iter().map(|&logit| sigmoid(logit)).collect(),
                    _ => softmax(logits),
                };
                let order = best(&scores, self.top);
                if !self.json {
                    for index in order {
                        writeln!(out, "  {:5.1} %  {}", 100.0 * scores[index], format::one_line(&model.label(index)))?;
                    }
                    return Ok(());
                }
                let class =
                    |&index: &usize| json!({"index": index, "label": model.label(index), "score": scores[index]});
                object.insert("top".to_string(), order.iter().map(class).collect());
            }
        }
        if !matches!(head, Gives::TokenClasses(_)) {
            object.insert("logits".to_string(), json!(logits));
        }
        Ok(writeln!(out, "{}", Json::Object(object))?)
    }
}

/// Whether the configuration says what the outputs for a text mean. One that does not may have one output that is a number, or a
/// probability.
fn states_problem(model: &TextModel) -> bool {
    let settings = model.model.architecture.settings();
    settings.get("states_problem").and_then(Json::as_bool).unwrap_or(true)
}
