//! What a masked language model would put in the place of masks.

use vitreous_engine::{Device, Precision};
use vitreous_models::Head;
use vitreous_models::encode::EncoderOutput;

use super::model::{TextInput, TextModel};
use super::runner::TextRunner;
use crate::error::Error;
use crate::locate::no_head;
use crate::scores::{best, softmax};

/// A token that would fill a mask.
#[derive(Clone, Debug, PartialEq)]
pub struct Filling {
    /// The token's index in the vocabulary.
    pub id: u32,
    /// The token as text.
    pub token: String,
    /// Its probability.
    pub score: f64,
}

/// A masked language model.
pub struct Filler<'m> {
    model: &'m TextModel,
    runner: TextRunner<'m>,
    mask: (u32, String),
    /// How many texts there were.
    seen: usize,
    truncated: usize,
}

impl<'m> Filler<'m> {
    /// Makes a model ready on a device. `name` is what it is called in errors.
    pub fn new(model: &'m TextModel, name: &str, precision: Precision, device: &Device) -> Result<Filler<'m>, Error> {
        let signature = model.model.architecture.signature();
        if signature.masked_tokens().is_none() {
            return Err(no_head(name, &signature, "masked-token head", &[Head::MaskedTokens]));
        }
        let Some(mask) = model.mask() else {
            return Err(Error::input(format!("{name}: its tokenizer has no mask token that the model knows")));
        };
        let runner = TextRunner::new(model, EncoderOutput::Masked, precision, device)?;
        Ok(Filler { model, runner, mask, seen: 0, truncated: 0 })
    }

    /// What runs the model.
    pub fn runner(&self) -> &TextRunner<'m> {
        &self.runner
    }

    /// How many texts had more tokens than the model reads, and were truncated.
    pub fn truncated(&self) -> usize {
        self.truncated
    }

    /// How a mask is written for this model: `[MASK]` or `<mask>`.
    pub fn mask(&self) -> &str {
        &self.mask.1
    }

    /// A text with its masks as this model writes them: see [`TextModel::with_own_mask`].
    pub fn with_own_mask(&self, text: &str) -> String {
        self.model.with_own_mask(text)
    }

    /// For each text, for each of its masks, the most probable tokens.
    pub fn fill(&mut self, texts: &[TextInput], count: usize) -> Result<Vec<Vec<Vec<Filling>>>, Error> {
        let own: Vec<TextInput> =
            texts.iter().map(|input| TextInput { text: self.with_own_mask(&input.text), ..input.clone() }).collect();
        let encoded = self.model.encode_all(&own)?;
        let tokenizer = &self.model.tokenizer;
        for (input, encoding) in own.iter().zip(&encoded) {
            self.seen += 1;
            self.truncated += usize::from(encoding.truncated);
            if !encoding.ids.contains(&self.mask.0) {
                let short: String = input.text.chars().take(60).collect();
                let why = if encoding.truncated { " in the part that the model reads" } else { "" };
                return Err(Error::input(format!(
                    "text {}, {short:?}, has no {}{why}: write it where a word is missing",
                    self.seen, self.mask.1
                )));
            }
        }
        let mut filled = vec![Vec::new(); texts.len()];
        let vocabulary = self.model.input.vocabulary;
        self.runner.run(&encoded, |text, rows| {
            for logits in rows.chunks_exact(vocabulary) {
                let scores = softmax(logits);
                let mut top = Vec::new();
                for id in best(&scores, count) {
                    let token = tokenizer.decode(&[id as u32], false)?;
                    top.push(Filling { id: id as u32, token, score: scores[id] });
                }
                filled[text].push(top);
            }
            Ok(())
        })?;
        Ok(filled)
    }
}
