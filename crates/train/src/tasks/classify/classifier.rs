//! The model of a run: a new one, or a pretrained one with a new head.

use std::path::Path;

use vitreous_data::dataset::Splits;
use vitreous_data::{Channels, Preprocess};
use vitreous_engine::{Graph, State};
use vitreous_models::adapters::{Adapters, is_adapter, merged};
use vitreous_models::archive::ArchiveError;
use vitreous_models::initial::{Initialisation, initialise};
use vitreous_models::{Model, ModelError, OpenOptions, Preprocessing, SaveOptions, VitConfig, vit};

use super::settings::{ClassifySettings, FinetuneSettings, InitChoice};
use crate::error::TrainError;
use crate::groups::is_head;
use crate::recipe::Recipe;

/// A model with its preprocessing.
pub struct Classifier {
    /// The architecture, and the values to start from.
    pub model: Model,
    /// Preprocessing for evaluation.
    pub preprocess: Preprocess,
}

/// The adapters of LoRA, if the recipe has some.
pub(super) fn adapters(settings: &FinetuneSettings) -> Option<Adapters> {
    let (rank, alpha) = (settings.lora_rank, settings.lora_alpha as f32);
    (rank > 0).then_some(Adapters { rank, alpha, mlp: false })
}

impl Classifier {
    /// The recipe's model with a head for the data's classes. The recipe's model becomes the one that is trained.
    pub fn new(recipe: &mut Recipe, settings: &ClassifySettings, splits: &Splits) -> Result<Classifier, TrainError> {
        let mut config: VitConfig = recipe.model()?;
        config.classes = splits.classes.len();
        let size = [config.image.height, config.image.width];
        let mut model = match settings.finetune.init.as_str() {
            "" => Model::new(config.clone(), splits.classes.clone())?,
            init => open(Path::new(init), &config, splits)?,
        };
        model.config.dropout = config.dropout;
        model.config.attention_dropout = config.attention_dropout;
        model.config.stochastic_depth = config.stochastic_depth;
        recipe.set_model(&model.config);
        recipe.check()?;
        let channels = Channels::from_count(model.config.channels).ok_or_else(|| {
            let count = model.config.channels;
            TrainError::Data(format!("`model.channels` is {count}, but images have one or three"))
        })?;
        let own = model.preprocessing.as_ref().filter(|_| settings.finetune.own_preprocess);
        let preprocess = match own {
            Some(Preprocessing::HuggingFace(json)) => Preprocess::from_hugging_face(json)?,
            Some(Preprocessing::Timm(json)) => Preprocess::from_timm(json)?,
            None => settings.preprocess.preprocess(size, channels),
        };
        let preprocess = preprocess.with_channels(channels).with_image_size(size);
        // An error is reported now, and not when the first model is saved.
        preprocess.to_hugging_face()?;
        Ok(Classifier { model, preprocess })
    }

    /// Sets initial values: those of the pretrained model, and random ones for what is new.
    pub fn initialise(&self, settings: &ClassifySettings, seed: u64, state: &mut State) -> Result<(), TrainError> {
        let scheme = match settings.train.init {
            InitChoice::Xavier => Initialisation::Xavier,
            InitChoice::TruncatedNormal => Initialisation::TruncatedNormal,
            InitChoice::Pytorch => Initialisation::PyTorch,
            InitChoice::Jax => Initialisation::Jax,
        };
        let config = &self.model.config;
        if settings.finetune.init.is_empty() {
            initialise(state, scheme, config, seed, &|_| true)?;
        } else {
            self.model.load(state)?;
            initialise(state, Initialisation::Zeros, config, seed, &is_head)?;
            initialise(state, scheme, config, seed, &is_adapter)?;
        }
        state.start_average();
        Ok(())
    }

    /// The parameters of an ordinary model, with LoRA's adapters merged; `None` without adapters.
    pub fn without_adapters(&self, settings: &FinetuneSettings, state: &State) -> Result<Option<State>, TrainError> {
        let Some(adapters) = adapters(settings) else { return Ok(None) };
        let mut graph = Graph::for_inference();
        vit(&mut graph, &self.model.config, 1)?;
        let mut plain = State::new(&graph)?;
        let names: Vec<String> = plain.table().iter().map(|parameter| parameter.name.clone()).collect();
        for name in names {
            let values = merged(state, &adapters, &name)?;
            plain.parameter_mut(&name)?.copy_from_slice(&values);
        }
        Ok(Some(plain))
    }

    /// Writes a model directory.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let preprocessor = self.preprocess.to_hugging_face()?;
        let options = SaveOptions { state: Some(state), widen: true, preprocessor: Some(preprocessor.as_bytes()) };
        self.model.save(directory, &options).map(|_| ()).map_err(of_saving)
    }
}

/// Keeps the error of a full disk recognisable.
pub(crate) fn of_saving(error: ModelError) -> TrainError {
    match error {
        ModelError::Io { file, source, .. } | ModelError::Archive(ArchiveError::Io { file, source, .. }) => {
            TrainError::Io { path: file, what: "the model cannot be saved", source }
        }
        other => TrainError::Model(other),
    }
}

fn open(init: &Path, config: &VitConfig, splits: &Splits) -> Result<Model, TrainError> {
    let options =
        OpenOptions { image: Some(config.image), replace_head: Some(splits.classes.len()), ..OpenOptions::default() };
    let mut model = Model::open(init, &options)?;
    model.labels = splits.classes.clone();
    Ok(model)
}
