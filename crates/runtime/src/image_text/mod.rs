//! Models of images and texts: both as vectors of one space, and classes that are only named.

mod zero_shot;

use std::path::Path;

use vitreous_engine::{Device, Intervention, Precision};
use vitreous_models::encode::EncoderOutput;
use vitreous_models::families::clip::Towers;
use vitreous_models::{CaptionInput, OpenOptions};

use crate::error::Error;
use crate::image_model::ImageModel;
use crate::interventions::Intervene;
use crate::locate::{open_model, unsuitable};
use crate::text::{TextInput, TextModel, TextRunner};

pub use zero_shot::{ImageScores, LabelSet, ZeroShot};

/// A model of images and texts. Its two towers are models like any other, whose vectors have length 1.
#[derive(Debug)]
pub struct ImageTextModel {
    /// The image tower.
    pub images: ImageModel,
    /// The text tower, with the tokenizer.
    pub texts: TextModel,
    /// What the text tower takes.
    pub captions: CaptionInput,
    /// How cosines become scores.
    pub scores: ImageScores,
}

impl ImageTextModel {
    /// Opens a model directory, a run directory or a checkpoint file. The file is mapped, so that its parts are in memory once.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<ImageTextModel, Error> {
        let whole = open_model(path, options)?;
        let signature = whole.architecture.signature();
        let Some((_, captions)) = signature.images_and_texts() else {
            return Err(unsuitable(&path.to_string_lossy(), &signature, "model of images and texts"));
        };
        let number = |name: &str| Ok::<_, Error>(whole.parameter(name)?.first().copied().unwrap_or(0.0));
        let is_sigmoid = whole.parameters().iter().any(|parameter| parameter.name == "logit_bias");
        let scores = ImageScores {
            scale: number("logit_scale")?.exp(),
            bias: if is_sigmoid { Some(number("logit_bias")?) } else { None },
        };
        let images = ImageModel::open(path, &options.clone().with("towers", Towers::Image))?;
        let texts = TextModel::open(path, &options.clone().with("towers", Towers::Text))?;
        Ok(ImageTextModel { images, texts, captions, scores })
    }

    /// Makes the text tower ready on a device.
    pub fn caption_runner(&self, precision: Precision, device: &Device) -> Result<CaptionRunner<'_>, Error> {
        let runner = TextRunner::new(&self.texts, EncoderOutput::Caption(self.captions), precision, device)?;
        let signature = self.texts.model.architecture.signature();
        let width = signature.vector().ok_or_else(|| Error::input("this model gives no vectors".to_string()))?;
        Ok(CaptionRunner { model: self, runner, width, truncated: 0 })
    }
}

/// Values of the towers are named as in the whole model: `image.blocks.3.mlp` and `text.blocks.3.mlp`, `image_projection` and
/// `text_projection`.
impl Intervene for ImageTextModel {
    fn with_interventions(self, interventions: Vec<Intervention>) -> Result<ImageTextModel, Error> {
        let (texts, images) = interventions.into_iter().partition(|edit| is_of_text_tower(&edit.path));
        let (images, texts) = (self.images.with_interventions(images)?, self.texts.with_interventions(texts)?);
        Ok(ImageTextModel { images, texts, ..self })
    }
}

/// Whether a path would be one of the text tower.
pub fn is_of_text_tower(path: &str) -> bool {
    path.starts_with("text")
}

/// The text tower, made ready.
pub struct CaptionRunner<'m> {
    model: &'m ImageTextModel,
    runner: TextRunner<'m>,
    width: usize,
    truncated: usize,
}

impl CaptionRunner<'_> {
    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many texts had more tokens than the model reads, and were truncated.
    pub fn truncated(&self) -> usize {
        self.truncated
    }

    /// Seconds spent computing.
    pub fn computing(&self) -> f64 {
        self.runner.computing()
    }

    /// The vectors of texts, one after the other.
    pub fn embed(&mut self, texts: &[TextInput]) -> Result<Vec<f32>, Error> {
        let encoded = self.model.texts.encode_all(texts)?;
        self.truncated += encoded.iter().filter(|text| text.truncated).count();
        let width = self.width;
        let mut vectors = vec![0.0; texts.len() * width];
        self.runner.run(&encoded, |text, vector| {
            vectors[text * width..][..width].copy_from_slice(vector);
            Ok(())
        })?;
        Ok(vectors)
    }
}
