//! What is trained: a new model, or one that was trained before.

use std::path::Path;

use vitreous_data::dataset::Splits;
use vitreous_data::loader::LoaderOptions;
use vitreous_data::{Channels, Preprocess};
use vitreous_engine::{Graph, State};
use vitreous_models::adapters::{Adapters, is_adapter, merged};
use vitreous_models::archive::ArchiveError;
use vitreous_models::initial::{Initialisation, initialise};
use vitreous_models::{Model, ModelError, OpenOptions, Preprocessing, SaveOptions, Vit, vit};

use crate::error::TrainError;
use crate::groups::is_head;
use crate::image_input::model;
use crate::recipe::{InitChoice, Recipe};

/// A model with how its images are prepared.
pub struct Subject {
    /// What it is, and the values that it starts from.
    pub model: Model,
    /// How images are prepared for testing.
    pub preprocess: Preprocess,
}

/// Builds a recipe's model as it is trained: with adapters, if it has some.
pub(crate) fn build(graph: &mut Graph, recipe: &Recipe, raw: Option<&LoaderOptions>) -> vitreous_engine::Result<Vit> {
    model(graph, &recipe.model, recipe.train.batch, raw, adapters(recipe).as_ref())
}

fn adapters(recipe: &Recipe) -> Option<Adapters> {
    let settings = &recipe.finetune;
    let (rank, alpha) = (settings.lora_rank, settings.lora_alpha as f32);
    (rank > 0).then_some(Adapters { rank, alpha, mlp: false })
}

impl Subject {
    /// The recipe's model with a head for the data's classes. The recipe's model becomes what is trained.
    pub fn new(recipe: &mut Recipe, splits: &Splits) -> Result<Subject, TrainError> {
        recipe.model.classes = splits.classes.len();
        let size = [recipe.model.image.height, recipe.model.image.width];
        let mut model = match recipe.finetune.init.as_str() {
            "" => Model::new(recipe.model.clone(), splits.classes.clone())?,
            init => open(Path::new(init), recipe, splits)?,
        };
        model.config.dropout = recipe.model.dropout;
        model.config.attention_dropout = recipe.model.attention_dropout;
        model.config.stochastic_depth = recipe.model.stochastic_depth;
        recipe.model = model.config.clone();
        recipe.check()?;
        let channels = Channels::from_count(model.config.channels).ok_or_else(|| {
            let count = model.config.channels;
            TrainError::Data(format!("`model.channels` is {count}, but images have one or three"))
        })?;
        let own = model.preprocessing.as_ref().filter(|_| recipe.finetune.own_preprocess);
        let preprocess = match own {
            Some(Preprocessing::HuggingFace(json)) => Preprocess::from_hugging_face(json)?,
            Some(Preprocessing::Timm(json)) => Preprocess::from_timm(json)?,
            None => recipe.preprocess.preprocess(size, channels),
        };
        let preprocess = preprocess.with_channels(channels).with_image_size(size);
        // Said now, and not when the first model is to be saved.
        preprocess.to_hugging_face()?;
        Ok(Subject { model, preprocess })
    }

    /// Puts initial values into a state: those of the model that is taken up, drawn ones for what is new.
    pub fn start(&self, recipe: &Recipe, state: &mut State) -> Result<(), TrainError> {
        let scheme = match recipe.train.init {
            InitChoice::Xavier => Initialisation::Xavier,
            InitChoice::TruncatedNormal => Initialisation::TruncatedNormal,
            InitChoice::Pytorch => Initialisation::PyTorch,
            InitChoice::Jax => Initialisation::Jax,
        };
        let (config, seed) = (&self.model.config, recipe.train.seed);
        if recipe.finetune.init.is_empty() {
            initialise(state, scheme, config, seed, &|_| true)?;
        } else {
            self.model.load(state)?;
            initialise(state, Initialisation::Zeros, config, seed, &is_head)?;
            initialise(state, scheme, config, seed, &is_adapter)?;
        }
        state.start_average();
        Ok(())
    }

    /// The parameters of an ordinary model where adapters must be folded in; `None` where the state's are that.
    pub fn without_adapters(&self, recipe: &Recipe, state: &State) -> Result<Option<State>, TrainError> {
        let Some(adapters) = adapters(recipe) else { return Ok(None) };
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

/// A full disk is told as such.
pub(crate) fn of_saving(error: ModelError) -> TrainError {
    match error {
        ModelError::Io { file, source, .. } | ModelError::Archive(ArchiveError::Io { file, source, .. }) => {
            TrainError::Io { path: file, what: "the model cannot be saved", source }
        }
        other => TrainError::Model(other),
    }
}

fn open(init: &Path, recipe: &Recipe, splits: &Splits) -> Result<Model, TrainError> {
    let options = OpenOptions {
        image: Some(recipe.model.image),
        replace_head: Some(splits.classes.len()),
        ..OpenOptions::default()
    };
    let mut model = Model::open(init, &options)?;
    model.labels = splits.classes.clone();
    Ok(model)
}
