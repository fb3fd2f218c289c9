//! Recipes: everything that decides what a training run computes, as a TOML file.
//!
//! A recipe is read in layers: the defaults of its task, a file, then `key=value` pairs from the command line. The recipe of a run
//! is written into its run directory with every key.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use vitreous_files::open::read_text;
use vitreous_models::{Architecture, Family, Settings};

use crate::error::TrainError;
use crate::run_directory::{MOST_JSON, RECIPE};
use crate::task::TaskType;
use crate::tasks::TASKS;
use model::ModelSettings;

pub(crate) use layers::written_keys;
pub use layers::{Difference, RecipeError, nearest};
pub(crate) use model::FAMILY;
pub use sections::{
    DataSettings, LossKind, LossSettings, OptimizerName, OptimizerSettings, OutputSettings, PrecisionChoice,
    ScheduleKind, ScheduleSettings, ShardChoice, TrainSettings,
};
pub use shipped::{Shipped, shipped};

/// Declares an enum that recipes write as a string in snake case.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }
    };
}
pub(crate) use choice;

mod layers;
mod model;
pub(crate) mod rules;
mod sections;
mod shipped;

/// The key that names the task. A recipe without it is of the first task in [`TASKS`].
pub(crate) const TASK: &str = "task";

/// Everything that decides what a training run computes.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// What is learned.
    pub task: &'static dyn TaskType,
    /// Seed, epochs, accumulation, precision.
    pub train: TrainSettings,
    /// The data.
    pub data: DataSettings,
    /// The optimizer.
    pub optimizer: OptimizerSettings,
    /// The learning rate schedule.
    pub schedule: ScheduleSettings,
    /// Logging, evaluation and checkpoints.
    pub output: OutputSettings,
    /// The sections and keys that only this task has. It reads them with [`Recipe::own`].
    own: Table,
    /// The family and the settings of the model.
    model: ModelSettings,
}

/// Keys that recipes of earlier versions do not have: what they would say follows from how these versions worked.
pub(crate) const LATER_KEYS: [&str; 3] = ["train.shard", "train.wire", "train.bucket"];

/// The sections that all tasks have. A task may add keys to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Common {
    train: TrainSettings,
    data: DataSettings,
    optimizer: OptimizerSettings,
    schedule: ScheduleSettings,
    output: OutputSettings,
}

impl PartialEq for Recipe {
    fn eq(&self, other: &Recipe) -> bool {
        self.task.name() == other.task.name() && self.to_table() == other.to_table()
    }
}

impl Recipe {
    /// A recipe with the common defaults and the usual family of the task, for the task to start its own from.
    ///
    /// # Panics
    /// Panics if the task's usual family is none.
    pub fn new(task: &'static dyn TaskType, own: &impl Serialize) -> Recipe {
        let Common { train, data, optimizer, schedule, output } = Common::default();
        let model = ModelSettings::defaults(task.usual_family()).expect("a family of the list");
        Recipe { task, train, data, optimizer, schedule, output, own: layers::table_of(own), model }
    }

    /// Reads a recipe file (its name and text) with overrides.
    pub fn read(origin: &str, text: &str, overrides: &[String]) -> Result<Recipe, RecipeError> {
        layers::read(origin, text, overrides)
    }

    /// Reads the recipe that a run directory has. A key that did not exist when the run was made has the value that it would have had.
    pub fn read_run(origin: &str, text: &str) -> Result<Recipe, RecipeError> {
        let recipe = Recipe::read(origin, text, &[])?;
        let written = written_keys(text);
        let missing = recipe.task.values_of_old_runs().iter().filter(|(key, _)| !written.contains(*key));
        let overrides: Vec<String> = missing.map(|(key, value)| format!("{key}={value}")).collect();
        if overrides.is_empty() { Ok(recipe) } else { Recipe::read(origin, text, &overrides) }
    }

    /// The recipe of a run directory, which another process may use.
    pub fn of_run(path: &Path) -> Result<Recipe, TrainError> {
        let file = path.join(RECIPE);
        let text = read_text(&file, MOST_JSON).map_err(TrainError::io(&file, "cannot be read"))?;
        Ok(Recipe::read_run(&file.display().to_string(), &text)?)
    }

    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), RecipeError> {
        rules::check_common(self)?;
        self.task.check(self)
    }

    /// The keys that only the task has, as the task's type for them.
    pub fn own<T: DeserializeOwned>(&self) -> Result<T, RecipeError> {
        T::deserialize(self.own.clone()).map_err(|error| RecipeError::Section(error.to_string()))
    }

    /// Replaces the keys that only the task has.
    pub fn set_own(&mut self, own: &impl Serialize) {
        self.own = layers::table_of(own);
    }

    /// The family of the model.
    pub fn family(&self) -> &'static dyn Family {
        self.model.family
    }

    /// The model of these settings. Settings that no model can have are refused.
    pub fn architecture(&self) -> Result<Box<dyn Architecture>, RecipeError> {
        self.model.architecture()
    }

    /// Replaces the model.
    pub fn set_architecture(&mut self, architecture: &dyn Architecture) {
        self.model = ModelSettings::of(architecture);
    }

    /// Changes settings of the model.
    pub fn change_model(&mut self, changes: &Settings) -> Result<(), RecipeError> {
        let changed = self.architecture()?.with_settings(changes).map_err(|error| RecipeError::Model(error.0))?;
        self.set_architecture(changed.as_ref());
        Ok(())
    }

    /// A setting of the model.
    pub fn model_setting(&self, key: &str) -> Option<&serde_json::Value> {
        self.model.settings.get(key).filter(|value| !value.is_null())
    }

    /// The whole recipe as TOML, with every key.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.to_table()).expect("a recipe is plain data")
    }

    /// Every value by its full key, as TOML writes it.
    pub fn values(&self) -> BTreeMap<String, String> {
        layers::leaves(&self.to_table()).into_iter().map(|(key, value)| (key, value.to_string())).collect()
    }

    /// The keys in which another recipe differs from this one.
    pub fn differences(&self, other: &Recipe) -> Vec<Difference> {
        layers::differences(&self.values(), &other.values())
    }

    fn common(&self) -> Common {
        let Recipe { train, data, optimizer, schedule, output, .. } = self.clone();
        Common { train, data, optimizer, schedule, output }
    }

    /// All keys, the general ones first, the model last.
    fn to_table(&self) -> Table {
        let mut common = layers::table_of(&self.common());
        let mut whole = Table::from_iter([(TASK.to_string(), Value::from(self.task.name()))]);
        for section in ["train", "data"] {
            whole.extend(common.remove_entry(section));
        }
        for (section, value) in &self.own {
            match (common.get_mut(section), whole.get_mut(section), value) {
                (Some(Value::Table(there)), _, Value::Table(more))
                | (_, Some(Value::Table(there)), Value::Table(more)) => {
                    there.extend(more.clone());
                }
                _ => _ = whole.insert(section.clone(), value.clone()),
            }
        }
        whole.extend(common);
        whole.insert("model".to_string(), Value::Table(self.model.to_table()));
        whole
    }

    /// Takes a table with all keys apart. Values of the task's own keys and of the model's are not looked at.
    fn of_table(task: &'static dyn TaskType, mut whole: Table) -> Result<Recipe, RecipeError> {
        let section = |error: toml::de::Error| RecipeError::Section(error.to_string());
        let Common { train, data, optimizer, schedule, output } =
            Common::deserialize(whole.clone()).map_err(section)?;
        whole.remove(TASK);
        let model = match whole.remove("model") {
            Some(Value::Table(model)) => ModelSettings::of_table(model, task.usual_family())?,
            _ => ModelSettings::defaults(task.usual_family())?,
        };
        for (section, keys) in layers::table_of(&Common::default()) {
            let (Some(Value::Table(there)), Value::Table(keys)) = (whole.get_mut(&section), keys) else { continue };
            keys.keys().for_each(|key| _ = there.remove(key));
            if there.is_empty() {
                whole.remove(&section);
            }
        }
        Ok(Recipe { task, train, data, optimizer, schedule, output, own: whole, model })
    }
}

/// The task that a recipe's table names.
fn task_of(origin: &str, table: &Table) -> Result<&'static dyn TaskType, RecipeError> {
    let Some(name) = table.get(TASK) else { return Ok(TASKS[0]) };
    let found = TASKS.iter().find(|task| name.as_str() == Some(task.name()));
    found.copied().ok_or_else(|| RecipeError::Type {
        origin: origin.to_string(),
        key: TASK.to_string(),
        value: name.to_string(),
        what: format!("tasks are {}", TASKS.map(|task| format!("\"{}\"", task.name())).join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_names_its_task_and_one_that_does_not_is_for_classification() {
        let task = |text: &str| Recipe::read("test.toml", text, &[]).map(|recipe| recipe.task.name());
        assert_eq!(task(""), Ok("classification"));
        assert_eq!(task("task = \"translation\""), Ok("translation"));
        let refusal = task("task = \"segmentation\"").expect_err("no such task").to_string();
        for part in ["test.toml", "`task` cannot be \"segmentation\"", "\"classification\", \"translation\""] {
            assert!(refusal.contains(part), "{refusal}");
        }
        let changed = Recipe::read("test.toml", "", &["task=translation".to_string()]);
        assert!(changed.expect_err("another task").to_string().contains("`task` cannot be"));
    }

    #[test]
    fn a_task_that_adds_keys_to_a_common_section_does_not_change_the_others() {
        for task in TASKS {
            let recipe = task.defaults();
            let again = Recipe::of_table(task, recipe.to_table()).expect("sound");
            assert_eq!(recipe, again);
            assert_eq!(recipe.own, again.own);
            let text = recipe.to_toml();
            assert!(text.starts_with(&format!("task = \"{}\"\n\n[train]\nseed = 1\n", task.name())), "{text}");
        }
    }
}
