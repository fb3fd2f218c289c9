//! The model of a run: a new one, or a pretrained one with a new head.

use std::path::Path;

use vitreous_data::dataset::Splits;
use vitreous_data::image::{Channels, Preprocess};
use vitreous_engine::{Role, State};
use vitreous_models::{
    Architecture, ConfigError, Head, ImageInput, Initialisation, Model, Preprocessing, SaveOptions, Settings,
    WeightType, initialise,
};

use super::settings::{ClassifySettings, InitChoice};
use crate::error::TrainError;
use crate::finetuning::open_pretrained;
use crate::recipe::Recipe;

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others: the size of the images, for
/// which positions are resized, and what only training uses.
pub(super) const KEPT_SETTINGS: [&str; 4] = ["image", "dropout", "attention_dropout", "stochastic_depth"];

/// A model with its preprocessing.
pub(super) struct Classifier {
    /// The architecture, and the values to start from.
    pub model: Model,
    /// Its images.
    pub images: ImageInput,
    /// Preprocessing for evaluation.
    pub preprocess: Preprocess,
}

impl Classifier {
    /// The recipe's model with a head for the data's classes. The recipe's model becomes the one that is trained.
    pub fn new(recipe: &mut Recipe, settings: &ClassifySettings, splits: &Splits) -> Result<Classifier, TrainError> {
        let model = match settings.finetune.init.as_str() {
            "" => Model::new(
                with_classes(recipe.architecture()?.as_ref(), splits.classes.len())?,
                splits.classes.clone(),
            )?,
            init => {
                let head = Head::Classes(splits.classes.len());
                let mut model = open_pretrained(Path::new(init), recipe, &KEPT_SETTINGS, |_| Some(head))?;
                model.assets.labels.clone_from(&splits.classes);
                model
            }
        };
        recipe.task.check_model(model.architecture.as_ref()).map_err(TrainError::Data)?;
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let images = model.architecture.signature().images().cloned();
        let images = images.ok_or_else(|| TrainError::Data("this model takes no images".to_string()))?;
        let channels = Channels::from_count(images.channels).ok_or_else(|| {
            TrainError::Data(format!("`model.channels` is {}, but images have one or three", images.channels))
        })?;
        let size = [images.size.height, images.size.width];
        let own = model.assets.preprocessing.as_ref().filter(|_| settings.finetune.own_preprocess);
        let preprocess = match own {
            Some(Preprocessing::HuggingFace(json)) => Preprocess::from_hugging_face(json)?,
            Some(Preprocessing::Timm(json)) => Preprocess::from_timm(json)?,
            None => settings.preprocess.preprocess(size, channels),
        };
        let preprocess = preprocess.with_channels(channels).with_image_size(size);
        // An error is reported now, and not when the first model is saved.
        preprocess.to_hugging_face()?;
        Ok(Classifier { model, images, preprocess })
    }

    /// Channels, height and width of a prepared image.
    pub fn shape(&self) -> [usize; 3] {
        [self.images.channels, self.images.size.height, self.images.size.width]
    }

    /// Sets initial values: those of the pretrained model, and random ones for what is new.
    pub fn initialise(&self, settings: &ClassifySettings, seed: u64, state: &mut State) -> Result<(), TrainError> {
        let scheme = match settings.train.init {
            InitChoice::Xavier => Initialisation::Xavier,
            InitChoice::TruncatedNormal => Initialisation::TruncatedNormal,
            InitChoice::Pytorch => Initialisation::PyTorch,
            InitChoice::Jax => Initialisation::Jax,
        };
        if settings.finetune.init.is_empty() {
            initialise(state, scheme, seed, &|_| true)?;
        } else {
            self.model.load(state)?;
            initialise(state, Initialisation::Zeros, seed, &|parameter| parameter.head)?;
            initialise(state, scheme, seed, &|parameter| parameter.role() == Role::Adapter)?;
        }
        state.start_average();
        Ok(())
    }

    /// Writes a model directory.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let preprocessor = self.preprocess.to_hugging_face()?;
        let preprocessor = Some(preprocessor.as_bytes());
        let options =
            SaveOptions { state: Some(state), weights: Some(WeightType::F32), preprocessor, ..SaveOptions::default() };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }
}

/// A new model for this many classes. Where they are a setting, nothing else changes; a new head of a pretrained model may be otherwise.
fn with_classes(architecture: &dyn Architecture, classes: usize) -> Result<Box<dyn Architecture>, ConfigError> {
    match architecture.settings().contains_key("classes") {
        true => architecture.with_settings(&Settings::from_iter([("classes".to_string(), classes.into())])),
        false => architecture.with_head(Head::Classes(classes)),
    }
}
