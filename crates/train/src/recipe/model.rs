//! The `[model]` of a recipe: a family, and settings that the family validates.
//!
//! Families have settings as JSON, recipes as TOML. TOML has no null: a setting without a value is left out.

use serde_json::{Number, Value as Json};
use toml::{Table, Value};
use vitreous_models::{Architecture, FAMILIES, Family, Settings, family};

use super::RecipeError;

/// The key that names the family. A recipe without it is of its task's usual family.
pub(crate) const FAMILY: &str = "family";

/// The family and the settings of a recipe's model.
#[derive(Clone)]
pub(crate) struct ModelSettings {
    pub family: &'static dyn Family,
    pub settings: Settings,
}

impl std::fmt::Debug for ModelSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.family.name(), self.settings)
    }
}

impl ModelSettings {
    /// The settings of a model.
    pub fn of(architecture: &dyn Architecture) -> ModelSettings {
        ModelSettings { family: architecture.family(), settings: architecture.settings() }
    }

    /// A family with all its defaults.
    pub fn defaults(name: &str) -> Result<ModelSettings, RecipeError> {
        let family = family(name).ok_or_else(|| {
            let names = FAMILIES.map(|family| format!("\"{}\"", family.name())).join(", ");
            RecipeError::Model(format!("there is no family \"{name}\"; families are {names}"))
        })?;
        let architecture = family.from_settings(&Settings::new()).map_err(|error| RecipeError::Model(error.0))?;
        Ok(ModelSettings { family, settings: architecture.settings() })
    }

    /// The model.
    pub fn architecture(&self) -> Result<Box<dyn Architecture>, RecipeError> {
        self.family.from_settings(&self.settings).map_err(|error| RecipeError::Model(error.0))
    }

    /// Takes the usual form of the settings, if they are sound.
    pub fn normalise(&mut self) {
        if let Ok(architecture) = self.architecture() {
            self.settings = architecture.settings();
        }
    }

    pub fn to_table(&self) -> Table {
        let family = (FAMILY.to_string(), Value::from(self.family.name()));
        let settings = self.settings.iter().filter_map(|(key, value)| Some((key.clone(), to_toml(value)?)));
        std::iter::once(family).chain(settings).collect()
    }

    /// Reads a table, which is of the usual family if it names none.
    pub fn of_table(mut table: Table, usual: &str) -> Result<ModelSettings, RecipeError> {
        let name = table.remove(FAMILY);
        let name = name.as_ref().map_or(Some(usual), Value::as_str);
        let name = name.ok_or_else(|| RecipeError::Model("`family` must be a name".to_string()))?;
        let mut model = ModelSettings::defaults(name)?;
        model.settings.extend(table.iter().map(|(key, value)| (key.clone(), to_json(value))));
        Ok(model)
    }

    /// The keys of its settings, also of those without a value.
    pub fn keys(&self) -> Vec<String> {
        let own = self.settings.keys().map(|key| format!("model.{key}"));
        own.chain([format!("model.{FAMILY}"), "model.preset".to_string()]).collect()
    }

    /// What is wrong with one setting alone, the others being the family's defaults; `None` if nothing is.
    pub fn fault_of(&self, key: &str, value: &Value) -> Option<String> {
        let settings = Settings::from_iter([(key.to_string(), to_json(value))]);
        self.family.from_settings(&settings).err().map(|error| error.0)
    }
}

fn to_toml(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Float(shortest(number.as_f64()?)),
        },
        Json::String(text) => Value::String(text.clone()),
        Json::Array(values) => Value::Array(values.iter().filter_map(to_toml).collect()),
        Json::Object(object) => {
            Value::Table(object.iter().filter_map(|(key, value)| Some((key.clone(), to_toml(value)?))).collect())
        }
    })
}

/// The shortest number that is the same f32: 0.1 for the f64 of the f32 0.1. Numbers that are no f32 stay as they are.
fn shortest(number: f64) -> f64 {
    let narrow = number as f32;
    match f64::from(narrow) == number {
        true => narrow.to_string().parse().unwrap_or(number),
        false => number,
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.as_str()),
        Value::Integer(integer) => Json::from(*integer),
        Value::Float(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Boolean(value) => Json::from(*value),
        Value::Datetime(time) => Json::from(time.to_string()),
        Value::Array(values) => values.iter().map(to_json).collect(),
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), to_json(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_toml_in_every_family() {
        for family in FAMILIES {
            let model = ModelSettings::defaults(family.name()).expect("defaults");
            let text = toml::to_string(&model.to_table()).expect("TOML");
            let again = ModelSettings::of_table(text.parse().expect("TOML"), "none").expect("settings");
            let (ours, theirs) = (model.architecture().expect("sound"), again.architecture().expect("sound"));
            assert_eq!(ours.settings(), theirs.settings(), "{text}");
            // No digits that only f64 has.
            assert!(text.lines().all(|line| line.len() < 40), "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(shortest(f64::from(0.1f32)), 0.1);
        assert_eq!(shortest(f64::from(1e-5f32)), 1e-5);
        assert_eq!((shortest(0.1), shortest(0.25)), (0.1, 0.25));
    }
}
