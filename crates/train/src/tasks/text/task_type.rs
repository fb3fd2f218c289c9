//! The part of a [`TaskType`] that all tasks of texts have in common.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use vitreous_models::Architecture;

use crate::error::TrainError;
use crate::recipe::rules::Checked;
use crate::recipe::{Recipe, RecipeError, ScheduleKind};
use crate::scores::{Metric, Scores};
use crate::task::{Task, TaskContext, TaskType, absolute, pretrained};

/// A task of texts before it has data. [`TaskType`] follows from it.
pub trait TextTaskType: fmt::Debug + Sync {
    /// The keys that only this task has.
    type Settings: TextTaskSettings;

    /// What recipes call it.
    const NAME: &'static str;
    /// All numbers that its evaluations can have.
    const METRICS: &'static [&'static Metric];
    /// What it does with an encoder of texts, in the message for another model: "classification of texts needs".
    const NEEDS: &'static str;
    /// What to do without data: "name labelled texts with `vitreous train ..`".
    const NO_DATA: &'static str;

    /// A recipe with the default of every key.
    fn default_recipe() -> Recipe;

    /// Opens the data at a path, and the model.
    fn open_data(recipe: Recipe, path: &Path, context: &TaskContext) -> Result<Box<dyn Task>, TrainError>;

    /// Reads what `evaluation.json` says of an evaluation; `None` if it is not one of this task.
    fn scores_of(evaluation: &Json) -> Option<Result<Scores, String>>;
}

/// The keys of a recipe that only one task of texts has, by section.
pub trait TextTaskSettings: Default + Serialize + DeserializeOwned {
    /// Refuses values that make no sense.
    fn check(&self) -> Result<(), RecipeError>;

    /// The directory of the pretrained model.
    fn init(&mut self) -> &mut String;
}

/// A recipe for fine-tuning, with what BERT's paper and `transformers` take.
pub(crate) fn finetuning_recipe(
    task: &'static dyn TaskType,
    own: &impl Serialize,
    epochs: u64,
    validation_share: f64,
) -> Recipe {
    let mut recipe = Recipe::new(task, own);
    recipe.train.epochs = epochs;
    recipe.data.validation_share = validation_share;
    (recipe.optimizer.lr, recipe.optimizer.weight_decay, recipe.optimizer.clip) = (5e-5, 0.01, 1.0);
    recipe.schedule.kind = ScheduleKind::Linear;
    recipe.schedule.warmup_epochs = 0.1;
    recipe
}

impl<T: TextTaskType> TaskType for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        T::METRICS
    }

    fn defaults(&self) -> Recipe {
        T::default_recipe()
    }

    fn usual_family(&self) -> &'static str {
        "bert"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.tokens() {
            Some(_) => Ok(()),
            None => Err(format!("this is {}, but {} an encoder of texts", signature.what(), T::NEEDS)),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Checked {
        let own: T::Settings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Checked {
        recipe.own::<T::Settings>()?.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: T::Settings = recipe.own()?;
        let init = settings.init();
        if !init.is_empty() {
            *init = pretrained(init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            return Err(TrainError::Data(format!("there is no data: {}", T::NO_DATA)));
        }
        let path = recipe.data.path.clone();
        T::open_data(recipe, Path::new(&path), context)
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        T::scores_of(evaluation)
    }
}
