//! How a recipe is put together: the defaults of its task, a file, `key=value` pairs, each over the ones before; and what can be
//! wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use toml::{Table, Value};

use vitreous_models::{preset, preset_names};

use super::model::{FAMILY, ModelSettings};
use super::{Recipe, TASK, task_of};
use crate::task::TaskType;

/// What is wrong with a recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The text is not TOML.
    #[error("{origin} is not TOML: {what}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line, and what is wrong with it.
        what: String,
    },
    /// Not `key=value`.
    #[error("`{0}` is neither a recipe nor an override; write overrides as key=value, as in optimizer.lr=5e-4")]
    NoPair(String),
    /// A key that the task's recipes do not have.
    #[error("{origin}: there is no key `{key}`{}", nearest_hint(.nearest))]
    Unknown {
        /// File or command line.
        origin: String,
        /// The key.
        key: String,
        /// The key that may be meant.
        nearest: Option<String>,
    },
    /// A value of the wrong type.
    #[error("{origin}: `{key}` cannot be {value}: {what}")]
    Type {
        /// File or command line.
        origin: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What it must be.
        what: String,
    },
    /// A value that makes no sense.
    #[error("`{key}` cannot be {value}: {rule}")]
    Rule {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The sections of the task cannot be read.
    #[error("{0}")]
    Section(String),
    /// The model cannot be built.
    #[error("`model`: {0}")]
    Model(String),
}

fn nearest_hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|key| format!("; did you mean `{key}`?")).unwrap_or_default()
}

/// A key in which two recipes differ. A key that a recipe leaves out has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `section.key`.
    pub key: String,
    /// In the first.
    pub this: Option<String>,
    /// In the other.
    pub other: Option<String>,
}

/// One layer of a recipe: where it comes from, and the keys that it sets.
struct Layer {
    origin: String,
    table: Table,
}

/// Reads a recipe file (its name and text) with overrides.
pub(super) fn read(origin: &str, text: &str, overrides: &[String]) -> Result<Recipe, RecipeError> {
    let table = parse(origin, text)?;
    let task = task_of(origin, &table)?;
    let mut layers = vec![Layer { origin: origin.to_string(), table }];
    for pair in overrides {
        layers.push(Layer { origin: "command line".to_string(), table: parse_pair(pair)? });
    }
    let recipe = assemble(task, &layers)?;
    match recipe.check() {
        Ok(()) => Ok(recipe),
        Err(RecipeError::Model(what)) => Err(RecipeError::Model(with_culprit(what, &recipe, &layers))),
        Err(other) => Err(other),
    }
}

/// The keys of a file.
fn parse(origin: &str, text: &str) -> Result<Table, RecipeError> {
    text.parse().map_err(|error: toml::de::Error| RecipeError::Syntax {
        origin: origin.to_string(),
        what: error.to_string().trim().to_string(),
    })
}

/// Settings as a table. By way of text, so that f32 numbers keep their digits: 0.1 and not 0.10000000149.
pub(super) fn table_of(settings: &impl Serialize) -> Table {
    let text = toml::to_string(settings).expect("settings are plain data");
    text.parse().expect("what was just written")
}

/// The keys in which other values differ from these.
pub(super) fn differences(ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Vec<Difference> {
    let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let of =
        |key: &String| Difference { key: key.clone(), this: ours.get(key).cloned(), other: theirs.get(key).cloned() };
    keys.into_iter().map(of).filter(|difference| difference.this != difference.other).collect()
}

/// The keys that a recipe's text sets; none if it is not TOML.
pub(crate) fn written_keys(text: &str) -> BTreeSet<String> {
    let table: Table = text.parse().unwrap_or_default();
    leaves(&table).into_iter().map(|(key, _)| key).collect()
}

/// Reads `optimizer.lr=5e-4`. A value that is not TOML is a string, so that `data.path=photos` needs no quotes.
fn parse_pair(pair: &str) -> Result<Table, RecipeError> {
    let no_pair = || RecipeError::NoPair(pair.to_string());
    let (key, text) = pair.split_once('=').ok_or_else(no_pair)?;
    let (key, text) = (key.trim(), text.trim());
    if key.is_empty() {
        return Err(no_pair());
    }
    let parsed = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    let mut value = parsed.unwrap_or_else(|| Value::String(text.to_string()));
    for part in key.rsplit('.') {
        value = Value::Table(Table::from_iter([(part.to_string(), value)]));
    }
    match value {
        Value::Table(table) => Ok(table),
        _ => Err(no_pair()),
    }
}

fn assemble(task: &'static dyn TaskType, layers: &[Layer]) -> Result<Recipe, RecipeError> {
    let mut defaults = task.defaults().to_table();
    let mut whole = defaults.clone();
    for Layer { origin, table } in layers {
        let mut table = table.clone();
        take_model(task, origin, &mut table, &mut whole)?;
        let model = Recipe::of_table(task, whole.clone())?.model;
        defaults.insert("model".to_string(), Value::Table(ModelSettings::defaults(model.family.name())?.to_table()));
        for (key, value) in leaves(&table) {
            check_leaf(task, origin, (&key, &value), &defaults, &model)?;
            set(&mut whole, &key, value);
        }
    }
    let mut recipe = Recipe::of_table(task, whole)?;
    recipe.model.normalise();
    task.normalise(&mut recipe)?;
    Ok(recipe)
}

/// `model.preset` replaces the whole model by a named one, and another `model.family` by the defaults of that family; other keys of the
/// same layer then change it.
fn take_model(
    task: &'static dyn TaskType,
    origin: &str,
    layer: &mut Table,
    whole: &mut Table,
) -> Result<(), RecipeError> {
    let Some(Value::Table(model)) = layer.get_mut("model") else { return Ok(()) };
    let wrong = |key: &str, value: &Value, what: String| RecipeError::Type {
        origin: origin.to_string(),
        key: format!("model.{key}"),
        value: value.to_string(),
        what,
    };
    if let Some(name) = model.remove("preset") {
        let Some(architecture) = name.as_str().and_then(preset) else {
            let names = preset_names();
            let close = name.as_str().and_then(|name| nearest(name, names.iter().map(String::as_str)));
            let what = match close {
                Some(close) => format!("there is no such preset; did you mean `{close}`?"),
                None => format!("there is no such preset; some are {}", names[..names.len().min(4)].join(", ")),
            };
            return Err(wrong("preset", &name, what));
        };
        task.check_model(architecture.as_ref()).map_err(|what| wrong("preset", &name, what))?;
        whole.insert("model".to_string(), Value::Table(ModelSettings::of(architecture.as_ref()).to_table()));
    }
    if let Some(name) = model.get(FAMILY) {
        let there = whole.get("model").and_then(|model| model.get(FAMILY));
        if there != Some(name) {
            let defaults = ModelSettings::defaults(name.as_str().unwrap_or_default());
            let defaults = defaults.map_err(|error| match error {
                RecipeError::Model(what) => wrong(FAMILY, name, what),
                other => other,
            })?;
            let architecture = defaults.architecture()?;
            task.check_model(architecture.as_ref()).map_err(|what| wrong(FAMILY, name, what))?;
            whole.insert("model".to_string(), Value::Table(defaults.to_table()));
        }
    }
    Ok(())
}

/// What is wrong with a model, and which key has made it so, if one alone has.
fn with_culprit(what: String, recipe: &Recipe, layers: &[Layer]) -> String {
    for Layer { origin, table } in layers.iter().rev() {
        let Some(Value::Table(model)) = table.get("model") else { continue };
        for (key, value) in model {
            if recipe.model.fault_of(key, value).is_some_and(|fault| fault == what) {
                return format!("{what} (model.{key} is {value} in {origin})");
            }
        }
    }
    what
}

/// Refuses a key that the task's recipes do not have, and a value that its key cannot have.
fn check_leaf(
    task: &'static dyn TaskType,
    origin: &str,
    (key, value): (&str, &Value),
    defaults: &Table,
    model: &ModelSettings,
) -> Result<(), RecipeError> {
    let origin = origin.to_string();
    let wrong = |what: String| RecipeError::Type {
        origin: origin.clone(),
        key: key.to_string(),
        value: value.to_string(),
        what: what.lines().next().unwrap_or_default().trim().to_string(),
    };
    if key == TASK && value.as_str() != Some(task.name()) {
        return Err(wrong("the recipe's file decides what its task is".to_string()));
    }
    let names = leaves(defaults).into_iter().map(|(name, _)| name).chain(model.keys()).collect::<Vec<_>>();
    // A setting may be a table itself.
    let is_known = |name: &String| name == key || (name.starts_with("model.") && key.starts_with(&format!("{name}.")));
    if !names.iter().any(is_known) {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
        // A key without its section is most likely what is meant.
        let elsewhere = names.iter().find(|name| last(name) == last(key)).cloned();
        let nearest = elsewhere.or_else(|| nearest(key, names.iter().map(String::as_str)));
        return Err(RecipeError::Unknown { origin, key: key.to_string(), nearest });
    }
    if key.starts_with("model.") {
        // Its family checks all settings together.
        return Ok(());
    }
    // The defaults with this value alone: what is wrong then is this value.
    let mut trial = defaults.clone();
    set(&mut trial, key, value.clone());
    let checked = Recipe::of_table(task, trial).and_then(|mut recipe| task.normalise(&mut recipe));
    checked.map_err(|error| match error {
        RecipeError::Section(what) => wrong(what),
        other => other,
    })
}

/// All values with their full keys.
pub(super) fn leaves(table: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                found.extend(leaves(inner).into_iter().map(|(rest, value)| (format!("{key}.{rest}"), value)));
            }
            value => found.push((key.clone(), value.clone())),
        }
    }
    found
}

fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_string(), value);
        }
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// The word that is closest to this one, if one is close.
pub fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<String> {
    let close = words.map(|other| (distance(word, other), other)).min()?;
    (close.0 <= word.chars().count().div_ceil(3).max(2)).then(|| close.1.to_string())
}

/// The edit distance: how many letters must be changed, removed or inserted to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (above + 1).min(row[j] + 1).min(corner + usize::from(letter != *other));
            corner = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::OptimizerSettings;

    fn read(text: &str, overrides: &[&str]) -> Result<Recipe, String> {
        let overrides: Vec<String> = overrides.iter().map(|pair| pair.to_string()).collect();
        Recipe::read("test.toml", text, &overrides).map_err(|error| error.to_string())
    }

    fn value(recipe: &Recipe, key: &str) -> String {
        recipe.values().get(key).cloned().unwrap_or_default()
    }

    #[test]
    fn only_differing_keys_are_reported() {
        let plain = read("", &[]).expect("sound");
        assert_eq!(plain.differences(&plain), []);
        let changed = read("", &["optimizer.lr=0.5", "model.layer_scale=0.25"]).expect("sound");
        let difference = |key: &str, this: Option<&str>, other: &str| Difference {
            key: key.to_string(),
            this: this.map(str::to_string),
            other: Some(other.to_string()),
        };
        let expected =
            [difference("model.layer_scale", None, "0.25"), difference("optimizer.lr", Some("0.001"), "0.5")];
        assert_eq!(plain.differences(&changed), expected);
        // f32 numbers, too, as they were written.
        let smooth = read("", &["loss.label_smoothing=0.2", "preprocess.mean=[0.1, 0.2, 0.3]"]).expect("sound");
        let smooth = smooth.values();
        assert_eq!((&*smooth["loss.label_smoothing"], &*smooth["preprocess.mean"]), ("0.2", "[0.1, 0.2, 0.3]"));
        let keys: BTreeSet<String> = smooth.into_keys().collect();
        assert_eq!(written_keys(&plain.to_toml()), keys);
    }

    #[test]
    fn later_layers_go_over_earlier_ones() {
        let recipe = read("[optimizer]\nlr = 0.5\n[model]\npatch = 8", &["model.patch=4", "data.path=photos"]).unwrap();
        assert_eq!(recipe.optimizer.lr, 0.5);
        assert_eq!(value(&recipe, "model.patch"), "4");
        assert_eq!(recipe.data.path, "photos");
        assert_eq!(recipe.optimizer.betas, OptimizerSettings::default().betas);
        // Integers are fine where floats are meant.
        assert_eq!(read("", &["optimizer.lr=1", "model.layer_scale=1"]).unwrap().optimizer.lr, 1.0);
        assert_eq!(value(&read("", &["model.patch=[4,8]"]).unwrap(), "model.patch"), "[4, 8]");
    }

    #[test]
    fn a_preset_is_the_base_of_what_its_layer_and_later_ones_change() {
        let text = "[model]\ndepth = 3\npreset = \"vit_cifar\"\n";
        let numbers = |recipe: &Recipe| ["dim", "depth", "heads"].map(|key| value(recipe, &format!("model.{key}")));
        assert_eq!(numbers(&read(text, &["model.heads=8"]).unwrap()), ["128", "3", "8"]);
        let recipe = read(text, &["model.preset=vit_tiny_patch16_224"]).unwrap();
        assert_eq!(numbers(&recipe)[..2], ["192", "12"]);
        assert!(read("", &["model.preset=vit_cifer"]).unwrap_err().contains("`vit_cifar`"));
    }

    #[test]
    fn mistakes_are_named_with_the_nearest_key() {
        let says = |overrides: &[&str], parts: &[&str]| {
            let error = read("", overrides).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "`{part}` is not in: {error}");
            }
        };
        says(&["optimizer.lrr=1"], &["command line", "no key `optimizer.lrr`", "did you mean `optimizer.lr`?"]);
        says(&["lr=1"], &["did you mean `optimizer.lr`?"]);
        says(&["epochs=1"], &["did you mean `train.epochs`?"]);
        says(&["optimizer.lr=fast"], &["`optimizer.lr` cannot be \"fast\"", "f64"]);
        says(&["optimizer.name=adam"], &["`optimizer.name`", "adamw"]);
        says(&["train.batch=-1"], &["`train.batch` cannot be -1"]);
        says(&["train.batch=0"], &["`train.batch` cannot be 0: it must be above 0"]);
        says(&["optimizer=3"], &["no key `optimizer`"]);
        says(&["fast"], &["key=value"]);
        says(&["model.heads=5"], &["`model`", "heads"]);
        assert!(read("[optimizer]\nlr = = 3", &[]).unwrap_err().contains("line 2"));
        assert!(read("[optimiser]\nlr = 3", &[]).unwrap_err().contains("did you mean `optimizer.lr`?"));
        // A key of another task is none of this one.
        says(&["train.tokens=3"], &["no key `train.tokens`"]);
        says(&["text.vocabulary=300"], &["no key `text.vocabulary`"]);
    }

    #[test]
    fn a_recipe_survives_being_written() {
        let recipe = read("[model]\nlayer_scale = 1e-5\nimage = [224, 192]\n", &["optimizer.lr=0.1"]).unwrap();
        assert_eq!(read(&recipe.to_toml(), &[]).unwrap(), recipe);
    }
}
