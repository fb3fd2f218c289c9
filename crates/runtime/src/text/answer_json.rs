//! What models say of texts, as JSON: the objects that `predict --json` and `fill --json` print and a server answers.

use serde_json::{Map, Value as Json, json};
use vitreous_data::text::Encoding;
use vitreous_models::Gives;

use super::answers::FoundAnswer;
use super::entities::{Aggregation, Entity, entities};
use super::fill::Filling;
use super::model::{TextInput, TextModel};
use crate::error::Error;
use crate::scores::{sigmoid, softmax, top_json};

/// What the head of a model says of a text.
impl TextModel {
    /// Its head for texts, if it has one: what its logits mean. One output without a `problem_type` is a probability, as in `transformers`'
    /// pipeline.
    pub fn head(&self) -> Option<Gives> {
        let is_head =
            |gives: &&Gives| !matches!(gives, Gives::Vector(_) | Gives::TokenVectors(_) | Gives::MaskedTokens(_));
        let head = *self.model.architecture.signature().gives.iter().find(is_head)?;
        Some(if head == Gives::Numbers(1) && !self.states_problem() { Gives::Labels(1) } else { head })
    }

    /// Whether the configuration says what the outputs for a text mean. One that does not may have one output that is a number, or a
    /// probability.
    pub fn states_problem(&self) -> bool {
        let settings = self.model.architecture.settings();
        settings.get("states_problem").and_then(Json::as_bool).unwrap_or(true)
    }

    /// The scores of classes or labels, by the logits of a head.
    pub fn class_scores(head: Gives, logits: &[f32]) -> Vec<f64> {
        match head {
            Gives::Labels(_) => logits.iter().map(|&logit| sigmoid(logit)).collect(),
            _ => softmax(logits),
        }
    }

    /// The answer of a head to a text: `top`, `numbers` or `entities`, and `logits`.
    pub fn answer_json(
        &self,
        head: Gives,
        input: &TextInput,
        encoding: &Encoding,
        logits: &[f32],
        top: usize,
        aggregation: Aggregation,
    ) -> Result<Map<String, Json>, Error> {
        let mut object = Map::new();
        object.insert("text".to_string(), json!(input.text));
        if let Some(pair) = &input.pair {
            object.insert("text_pair".to_string(), json!(pair));
        }
        match head {
            Gives::TokenClasses(_) => {
                let label = |class: usize| self.label(class);
                let found = entities(&input.text, encoding, logits, &label, &self.tokenizer, aggregation)?;
                object.insert("entities".to_string(), found.iter().map(|one| entity(&input.text, one)).collect());
                return Ok(object);
            }
            Gives::Numbers(_) => {
                let number = |(index, number): (usize, &f32)| json!({"label": self.label(index), "value": number});
                object.insert("numbers".to_string(), logits.iter().enumerate().map(number).collect());
            }
            _ => {
                let scores = TextModel::class_scores(head, logits);
                object.insert("top".to_string(), top_json(&scores, top, |class| self.label(class)));
            }
        }
        object.insert("logits".to_string(), json!(logits));
        Ok(object)
    }
}

/// Places are in characters, as in Python.
fn entity(text: &str, entity: &Entity) -> Json {
    let characters = |byte: usize| text[..byte].chars().count();
    let (start, end) = (characters(entity.start), characters(entity.end));
    match entity.index {
        Some(index) => json!({
            "entity": entity.class, "score": entity.score, "index": index, "word": entity.word, "start": start, "end": end,
        }),
        None => json!({
            "entity_group": entity.class, "score": entity.score, "word": entity.word, "start": start, "end": end,
        }),
    }
}

/// A question with its answers.
pub fn answers_json(question: &str, context: &str, answers: &[FoundAnswer]) -> Json {
    let characters = |byte: usize| context[..byte].chars().count();
    let answer = |answer: &FoundAnswer| {
        let (start, end) = (characters(answer.start), characters(answer.end));
        json!({"answer": answer.text, "score": answer.score, "start": start, "end": end})
    };
    json!({"question": question, "answers": answers.iter().map(answer).collect::<Vec<Json>>()})
}

/// A text with what would fill its masks.
pub fn fillings_json(text: &str, masks: &[Vec<Filling>]) -> Json {
    let filling = |filling: &Filling| json!({"token": filling.token, "id": filling.id, "score": filling.score});
    let mask = |top: &Vec<Filling>| json!({"top": top.iter().map(filling).collect::<Vec<Json>>()});
    json!({"text": text, "masks": masks.iter().map(mask).collect::<Vec<Json>>()})
}
