//! The model of a run, with its tokenizer: a new one whose vocabulary is learned from the captions, or a pretrained one.

use std::path::Path;

use rayon::prelude::*;
use vitreous_data::dataset::CaptionedImages;
use vitreous_data::image::{CaptionTokens, Channels, Preprocess};
use vitreous_data::text::{Encoding, TextTokenizer, VocabularyKind};
use vitreous_engine::{Parameter, Role, State};
use vitreous_models::{
    CaptionInput, ImageInput, Initialisation, Model, Preprocessing, SaveOptions, Settings, WeightType, initialise,
};

use super::settings::ContrastSettings;
use crate::error::TrainError;
use crate::finetuning::open_pretrained;
use crate::recipe::Recipe;

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others.
pub(super) const KEPT_SETTINGS: [&str; 2] = ["image", "attention_dropout"];

/// The learned temperature is at most 100 (section 2.5 of CLIP): its logarithm.
pub(super) const LARGEST_SCALE: f32 = 4.605_170_2;

/// A model of images and texts that is trained.
pub(super) struct ContrastModel {
    /// The architecture, and the values to start from.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: TextTokenizer,
    /// Its images.
    pub images: ImageInput,
    /// Its texts.
    pub captions: CaptionInput,
    /// Preprocessing for evaluation.
    pub preprocess: Preprocess,
}

impl ContrastModel {
    /// The model of a recipe, which becomes the one that is trained.
    pub fn new(
        recipe: &mut Recipe,
        settings: &ContrastSettings,
        train: &CaptionedImages,
        resumed: Option<&Path>,
    ) -> Result<ContrastModel, TrainError> {
        let (model, tokenizer) = match settings.finetune.init.as_str() {
            "" => {
                let tokenizer = match resumed {
                    // A run that is resumed keeps its vocabulary.
                    Some(run) => TextTokenizer::open(run)?,
                    None => {
                        let mut captions = train.captions.iter().cloned();
                        TextTokenizer::train(VocabularyKind::Clip, &mut captions, settings.text.vocabulary, true)?
                    }
                };
                let end = tokenizer.special().end;
                let mut changes = Settings::from_iter([("vocabulary".to_string(), tokenizer.vocabulary_size().into())]);
                if let Some(end) = end {
                    changes.insert("end_token".to_string(), end.into());
                    changes.insert("padding_token".to_string(), end.into());
                }
                (Model::new(recipe.architecture()?.with_settings(&changes)?, Vec::new())?, tokenizer)
            }
            init => {
                let path = Path::new(init);
                let model = open_pretrained(path, recipe, &KEPT_SETTINGS, |_| None)?;
                let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
                (model, TextTokenizer::open(resumed.unwrap_or(folder))?)
            }
        };
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let signature = model.architecture.signature();
        let Some((images, captions)) = signature.images_and_texts() else {
            return Err(TrainError::Data(format!(
                "this is {}, but captions need a model of images and texts",
                signature.what()
            )));
        };
        let vocabulary = captions.tokens.vocabulary;
        if tokenizer.vocabulary_size() > vocabulary {
            return Err(TrainError::Data(format!(
                "its tokenizer has {} tokens, but the model's vocabulary has {vocabulary}: they do not belong to one model",
                tokenizer.vocabulary_size()
            )));
        }
        let channels = Channels::from_count(images.channels).ok_or_else(|| {
            TrainError::Data(format!("`model.channels` is {}, but images have one or three", images.channels))
        })?;
        let size = [images.size.height, images.size.width];
        let is_pretrained = !settings.finetune.init.is_empty();
        let own = model.assets.preprocessing.as_ref().filter(|_| is_pretrained && settings.finetune.own_preprocess);
        let preprocess = match own {
            Some(Preprocessing::HuggingFace(json)) => Preprocess::from_hugging_face(json)?,
            Some(Preprocessing::Timm(json)) => Preprocess::from_timm(json)?,
            None => settings.preprocess.preprocess(size, channels),
        };
        let preprocess = preprocess.with_channels(channels).with_image_size(size);
        preprocess.to_hugging_face()?;
        let images = images.clone();
        Ok(ContrastModel { model, tokenizer, images, captions, preprocess })
    }

    /// Channels, height and width of a prepared image.
    pub fn shape(&self) -> [usize; 3] {
        [self.images.channels, self.images.size.height, self.images.size.width]
    }

    /// The tokens of texts, by all threads.
    pub fn encode(&self, texts: &[String]) -> Result<Vec<Encoding>, TrainError> {
        let encode = |text: &String| self.tokenizer.encode(text, None, self.captions.tokens.longest);
        Ok(texts.par_iter().map(encode).collect::<Result<Vec<_>, _>>()?)
    }

    /// Captions as rows of batches.
    pub fn tokens(&self, captions: &[Encoding]) -> CaptionTokens {
        let longest = captions.iter().map(Encoding::len).max().unwrap_or(1);
        CaptionTokens {
            ids: captions.iter().map(|caption| caption.ids.clone()).collect(),
            places: match self.captions.has_pooled() {
                true => captions.iter().map(|caption| self.captions.place(&caption.ids)).collect(),
                false => Vec::new(),
            },
            padding: self.captions.padding(),
            length: self.captions.padded_length(longest),
        }
    }

    /// Sets initial values: those of a pretrained model, or random ones.
    pub fn initialise(&self, scheme: Initialisation, seed: u64, state: &mut State) -> Result<(), TrainError> {
        if self.model.path.is_some() {
            self.model.load(state)?;
        }
        let is_new = |parameter: &Parameter| parameter.role() == Role::Adapter || self.model.is_new(&parameter.name);
        initialise(state, scheme, seed, &is_new)?;
        state.start_average();
        Ok(())
    }

    /// Writes a model directory with tokenizer and preprocessing. The temperature is written as it was used: at most 100.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.tokenizer.files()?;
        let preprocessor = self.preprocess.to_hugging_face()?;
        let mut written = state.parameters_alone()?;
        written.parameter_mut("logit_scale")?.iter_mut().for_each(|scale| *scale = scale.min(LARGEST_SCALE));
        let options = SaveOptions {
            state: Some(&written),
            weights: Some(WeightType::F32),
            files: &files,
            preprocessor: Some(preprocessor.as_bytes()),
            ..SaveOptions::default()
        };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }
}
