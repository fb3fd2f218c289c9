//! What is trained: a new model, or one that was trained before.

use std::path::Path;

use vitreous_data::dataset::Splits;
use vitreous_data::{Channels, Preprocess};
use vitreous_engine::State;
use vitreous_models::{Model, OpenOptions, Preprocessing, SaveOptions};

use crate::error::TrainError;
use crate::recipe::Recipe;

/// A model with how its images are prepared.
pub struct Subject {
    /// What it is, and the values that it starts from.
    pub model: Model,
    /// How images are prepared for testing.
    pub preprocess: Preprocess,
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
        Ok(Subject { model, preprocess })
    }

    /// Puts initial values into a state: those of the model that is taken up, drawn ones for what is new.
    pub fn start(&self, recipe: &Recipe, state: &mut State) -> Result<(), TrainError> {
        let _ = recipe;
        let table: Vec<_> = state.table().iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
        for (name, shape) in table {
            let values = state.parameter_mut(&name)?;
            match *shape.axes() {
                [to, from] => {
                    let limit = (6.0 / (from + to) as f32).sqrt();
                    let mut random = vitreous_data::random::Random::new(1, 0, vitreous_engine::random::place_of(&name));
                    for value in values.iter_mut() {
                        *value = limit * (2.0 * random.uniform() as f32 - 1.0);
                    }
                }
                _ if name.contains("norm") && name.ends_with("weight") => values.fill(1.0),
                _ => values.fill(0.0),
            }
        }
        state.start_average();
        Ok(())
    }

    /// Writes a model directory.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let preprocessor = self.preprocess.to_hugging_face()?;
        let options = SaveOptions { state: Some(state), widen: true, preprocessor: Some(preprocessor.as_bytes()) };
        self.model.save(directory, &options)?;
        Ok(())
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
