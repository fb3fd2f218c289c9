//! A picture and captions as a model of images and texts sees them: where the picture supports each caption and each of its words.

use std::ops::Range;

use serde_json::{Value as Json, json};
use vitreous_data::text::Encoding;
use vitreous_engine::{Device, Precision};
use vitreous_explain::image_text::ImageTextExplainer;
use vitreous_models::Size;
use vitreous_runtime::image_text::CaptionRunner;
use vitreous_runtime::text::{TextInput, cosine};
use vitreous_runtime::{ImageModel, ImageTextModel, OutputName, Runner};

use super::ExplainedError;
use crate::explain_image_text::{CaptionShown, WordShown};

/// A caption with what does not depend on pictures.
pub struct Caption {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub encoding: Encoding,
    vector: Vec<f32>,
    /// Each word, and the vector of the caption without it.
    words: Vec<(String, Vec<f32>)>,
}

/// Compares pictures with captions.
pub struct PicturesAndCaptions<'m> {
    model: &'m ImageTextModel,
    captions: Vec<Caption>,
    pictures: Runner<&'m ImageModel>,
    explainer: ImageTextExplainer<'m>,
}

impl<'m> PicturesAndCaptions<'m> {
    /// With these captions, each of which has words.
    pub fn new(
        model: &'m ImageTextModel,
        captions: &[String],
        threads: usize,
        device: &Device,
    ) -> Result<PicturesAndCaptions<'m>, ExplainedError> {
        let mut runner = model.caption_runner(Precision::F32, device)?;
        let captions = captions.iter().map(|text| read(model, &mut runner, text)).collect::<Result<_, _>>()?;
        let towers = (&model.images.model, &model.texts.model);
        let explainer = ImageTextExplainer::new(towers.0, towers.1, model.captions, threads, device)?;
        let pictures = Runner::new(&model.images, OutputName::Features, Precision::F32, device, Some(1))?;
        Ok(PicturesAndCaptions { model, captions, pictures, explainer })
    }

    /// The captions, in their order.
    pub fn captions(&self) -> &[Caption] {
        &self.captions
    }

    /// Rows and columns of a picture's patches.
    pub fn grid(&self) -> Size {
        self.explainer.layout().grid
    }

    /// The vector of a prepared picture.
    pub fn vector(&mut self, numbers: &Vec<f32>) -> Result<Vec<f32>, ExplainedError> {
        Ok(self.pictures.run(std::slice::from_ref(numbers))?.to_vec())
    }

    /// The cosine of a picture's vector with each caption.
    pub fn cosines(&self, vector: &[f32]) -> Vec<f64> {
        self.captions.iter().map(|caption| cosine(vector, &caption.vector)).collect()
    }

    /// What of a prepared picture and of each caption belongs together. `vector` is the picture's.
    pub fn explain(&mut self, numbers: &[f32], vector: &[f32]) -> Result<Vec<CaptionShown>, ExplainedError> {
        let cosines = self.cosines(vector);
        let logits: Vec<f32> = cosines.iter().map(|&cosine| self.model.scores.logit(cosine)).collect();
        let scores = self.model.scores.of(&logits);
        let (explainer, tokenizer) = (&mut self.explainer, &self.model.texts.tokenizer);
        let mut shown = Vec::new();
        for ((caption, cosine_with), score) in self.captions.iter().zip(cosines).zip(scores) {
            let patches = explainer.patches(numbers, &caption.vector)?;
            let relevance = explainer.tokens(&caption.encoding.ids, vector)?;
            let tokens = caption.encoding.ids.iter().zip(&relevance).zip(&caption.encoding.special);
            let tokens = tokens.filter(|(_, special)| !**special).map(|((&id, &relevance), _)| {
                let token = tokenizer.token(id).unwrap_or_default();
                (token.trim_end_matches("</w>").trim_start_matches('\u{2581}').to_string(), relevance)
            });
            let tokens = tokens.collect();
            let mut words = Vec::new();
            for (word, without) in &caption.words {
                let difference: Vec<f32> =
                    caption.vector.iter().zip(without).map(|(with, without)| with - without).collect();
                let effect = cosine_with - cosine(vector, without);
                words.push(WordShown { word: word.clone(), effect, patches: explainer.patches(numbers, &difference)? });
            }
            shown.push(CaptionShown { text: caption.text.clone(), cosine: cosine_with, score, patches, tokens, words });
        }
        Ok(shown)
    }
}

fn read(model: &ImageTextModel, runner: &mut CaptionRunner, text: &str) -> Result<Caption, ExplainedError> {
    if text.trim().is_empty() {
        return Err(ExplainedError::input("a caption has no words"));
    }
    let mut embed = |text: &str| runner.embed(&[TextInput { text: text.to_string(), pair: None }]);
    let encoding = model.texts.encode(&TextInput { text: text.to_string(), pair: None })?;
    let vector = embed(text)?;
    let mut words = Vec::new();
    for range in words_of(&encoding) {
        let without = format!("{}{}", &text[..range.start], text[range.end..].trim_start());
        words.push((text[range].to_string(), embed(&without)?));
    }
    Ok(Caption { text: text.to_string(), encoding, vector, words })
}

/// The bytes of each word of a text: tokens that touch are one word.
fn words_of(encoding: &Encoding) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let tokens = encoding.offsets.iter().zip(&encoding.special).filter(|(_, special)| !**special);
    for (&(start, end), _) in tokens.filter(|((start, end), _)| end > start) {
        match words.last_mut() {
            Some(word) if word.end == start => word.end = end,
            _ => words.push(start..end),
        }
    }
    words
}

/// One picture's captions as JSON; see the guide for its fields.
pub fn object(path: &str, captions: &[CaptionShown]) -> Json {
    let caption = |caption: &CaptionShown| {
        let tokens: Vec<Json> =
            caption.tokens.iter().map(|(token, relevance)| json!({"token": token, "relevance": relevance})).collect();
        let words: Vec<Json> = caption
            .words
            .iter()
            .map(|word| json!({"word": word.word, "effect": word.effect, "patches": word.patches}))
            .collect();
        json!({
            "text": caption.text, "cosine": caption.cosine, "score": caption.score, "patches": caption.patches,
            "tokens": tokens, "words": words
        })
    };
    json!({"path": path, "captions": captions.iter().map(caption).collect::<Vec<_>>()})
}
