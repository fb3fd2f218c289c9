//! Runs a model on texts of any length.

use vitreous_data::text::Encoding;
use vitreous_engine::{Device, Precision};
use vitreous_models::encode::{EncoderOutput, EncoderRunner, TextTokens};

use super::model::TextModel;
use crate::error::Error;

/// A model made ready for texts.
pub struct TextRunner<'m> {
    runner: EncoderRunner<'m>,
    mask: Option<u32>,
}

impl<'m> TextRunner<'m> {
    /// Makes a model ready on a device.
    pub fn new(
        model: &'m TextModel,
        output: EncoderOutput,
        precision: Precision,
        device: &Device,
    ) -> Result<TextRunner<'m>, Error> {
        let architecture = model.model.architecture.as_ref();
        let runner = EncoderRunner::new(architecture, output, precision, device, model.weights())?;
        let mask = model.tokenizer.special().mask.filter(|_| output == EncoderOutput::Masked);
        Ok(TextRunner { runner, mask })
    }

    /// Seconds spent computing.
    pub fn computing(&self) -> f64 {
        self.runner.computing.as_secs_f64()
    }

    /// Runs it on texts. `answer` is told the index of a text and its rows, one after the other; texts of similar length are computed
    /// together, so it is not in their order.
    pub fn run(
        &mut self,
        texts: &[Encoding],
        answer: impl FnMut(usize, &[f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let is_mask = |id: &u32| Some(*id) == self.mask;
        let masks = |text: &Encoding| -> Vec<usize> { (0..text.len()).filter(|&at| is_mask(&text.ids[at])).collect() };
        let masks: Vec<Vec<usize>> = texts.iter().map(masks).collect();
        let rows: Vec<TextTokens> = (texts.iter().zip(&masks))
            .map(|(text, masked)| TextTokens { ids: &text.ids, types: &text.token_types, masked })
            .collect();
        self.runner.run(&rows, answer)
    }
}
