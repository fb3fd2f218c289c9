//! How a recipe is put together: defaults, a file, `key=value` pairs, each over the ones before; and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// What is wrong with a recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The text is not TOML.
    #[error("{origin} is not TOML: {what}")]
    Syntax {
        /// The file.
        origin: String,
        /// Line and fault.
        what: String,
    },
    /// Not `key=value`.
    #[error("`{0}` is neither a recipe nor an override; write overrides as key=value, as in optimizer.lr=5e-4")]
    NoPair(String),
    /// A key that no recipe has.
    #[error("{origin}: there is no key `{key}`{}", nearest_hint(.nearest))]
    Unknown {
        /// File or command line.
        origin: String,
        /// The key.
        key: String,
        /// The key that is meant, perhaps.
        nearest: Option<String>,
    },
    /// A value of the wrong type.
    #[error("{origin}: `{key}` cannot be {value}: {what}")]
    Type {
        /// File or command line.
        origin: String,
        /// The key.
        key: String,
        /// What it was set to.
        value: String,
        /// What it must be.
        what: String,
    },
    /// A value that makes no sense.
    #[error("`{key}` cannot be {value}: {rule}")]
    Rule {
        /// The key.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The model cannot be built.
    #[error("`model`: {0}")]
    Model(String),
}

fn nearest_hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|key| format!("; did you mean `{key}`?")).unwrap_or_default()
}

/// A key in which two recipes differ. A key that says "none" by being left out has no value.
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

/// A kind of recipe.
pub(super) trait Layered: Default + Serialize + DeserializeOwned {
    /// One that has every key, also those that are left out where they say "none".
    fn specimen() -> Self;

    /// The settings of the model of a name.
    fn preset(name: &str) -> Option<Table>;

    /// The names of some models.
    fn preset_names() -> Vec<String>;

    /// Refuses values that make no sense.
    fn check(&self) -> Result<(), RecipeError>;
}

/// Reads a recipe file (its name and text) with overrides.
pub(super) fn read<R: Layered>(origin: &str, text: &str, overrides: &[String]) -> Result<R, RecipeError> {
    let mut layers = vec![Layer { origin: origin.to_string(), table: parse(origin, text)? }];
    for pair in overrides {
        layers.push(Layer { origin: "command line".to_string(), table: parse_pair(pair)? });
    }
    let recipe: R = assemble(layers)?;
    recipe.check()?;
    Ok(recipe)
}

/// The keys of a file.
pub(super) fn parse(origin: &str, text: &str) -> Result<Table, RecipeError> {
    text.parse().map_err(|error: toml::de::Error| RecipeError::Syntax {
        origin: origin.to_string(),
        what: error.to_string().trim().to_string(),
    })
}

/// The whole recipe as TOML, with every key.
pub(super) fn to_toml(recipe: &impl Serialize) -> String {
    toml::to_string(recipe).expect("a recipe is plain data")
}

/// Every value by its whole key, as TOML writes it.
pub(super) fn values(recipe: &impl Serialize) -> BTreeMap<String, String> {
    // Of the text: a table made from the settings would write numbers of 32 bits with the digits of 64.
    let table: Table = to_toml(recipe).parse().expect("what was just written");
    leaves(&table).into_iter().map(|(key, value)| (key, value.to_string())).collect()
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

/// Reads `optimizer.lr=5e-4`. What is not TOML is a string, so that `data.path=photos` needs no quotes.
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

fn assemble<R: Layered>(layers: Vec<Layer>) -> Result<R, RecipeError> {
    let mut whole = to_table(&R::default());
    let known = leaves(&to_table(&R::specimen()));
    for Layer { origin, mut table } in layers {
        take_preset::<R>(&origin, &mut table, &mut whole)?;
        for (key, value) in leaves(&table) {
            check_leaf::<R>(&origin, &key, &value, &known)?;
            set(&mut whole, &key, value);
        }
    }
    let recipe = R::deserialize(whole);
    recipe.map_err(|error| RecipeError::Model(error.to_string()))
}

/// `model.preset` replaces the whole model by one that has a name; other keys of the same layer then change it.
fn take_preset<R: Layered>(origin: &str, layer: &mut Table, whole: &mut Table) -> Result<(), RecipeError> {
    let Some(Value::Table(model)) = layer.get_mut("model") else { return Ok(()) };
    let Some(name) = model.remove("preset") else { return Ok(()) };
    let Some(config) = name.as_str().and_then(R::preset) else {
        let names = R::preset_names();
        let close = name.as_str().and_then(|name| nearest(name, names.iter().map(String::as_str)));
        let what = match close {
            Some(close) => format!("there is no such preset; did you mean `{close}`?"),
            None => format!("there is no such preset; some are {}", names[..names.len().min(4)].join(", ")),
        };
        return Err(RecipeError::Type {
            origin: origin.to_string(),
            key: "model.preset".to_string(),
            value: name.to_string(),
            what,
        });
    };
    whole.insert("model".to_string(), Value::Table(config));
    Ok(())
}

/// Refuses a key that no recipe has, and a value that its key cannot have.
fn check_leaf<R: Layered>(
    origin: &str,
    key: &str,
    value: &Value,
    known: &[(String, Value)],
) -> Result<(), RecipeError> {
    let origin = origin.to_string();
    if !known.iter().any(|(name, _)| name == key) {
        let names = || known.iter().map(|(name, _)| name.as_str()).chain(["model.preset"]);
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
        // A key without its section is most likely what is meant.
        let elsewhere = names().find(|name| last(name) == last(key)).map(str::to_string);
        let nearest = elsewhere.or_else(|| nearest(key, names()));
        return Err(RecipeError::Unknown { origin, key: key.to_string(), nearest });
    }
    // A whole recipe that is sound but for this value tells what is wrong with it.
    let mut trial = to_table(&R::default());
    set(&mut trial, key, value.clone());
    R::deserialize(trial).map(|_| ()).map_err(|error| {
        let text = error.to_string();
        let what = text.lines().next().unwrap_or_default().trim().to_string();
        RecipeError::Type { origin, key: key.to_string(), value: value.to_string(), what }
    })
}

pub(super) fn to_table(value: &impl Serialize) -> Table {
    Table::try_from(value).expect("settings are plain data")
}

/// All values with their full keys.
fn leaves(table: &Table) -> Vec<(String, Value)> {
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

/// How many letters must be changed, left out or put in to get from one word to the other.
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
    use crate::recipe::{OptimizerSettings, Recipe};

    fn read(text: &str, overrides: &[&str]) -> Result<Recipe, String> {
        let overrides: Vec<String> = overrides.iter().map(|pair| pair.to_string()).collect();
        Recipe::read("test.toml", text, &overrides).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sentence_must_fit_the_model_as_batches_round_it() {
        let read = |tokens: usize| {
            let overrides = [format!("text.max_tokens={tokens}"), "model.max_length=102".to_string()];
            crate::TranslationRecipe::read("test", "task = \"translation\"", &overrides)
        };
        assert!(read(99).is_ok());
        for tokens in [100, 101, 102, usize::MAX >> 1] {
            let refusal = read(tokens).expect_err("too long").to_string();
            assert!(refusal.contains("text.max_tokens") && refusal.contains("rounded up"), "{refusal}");
        }
    }

    #[test]
    fn only_what_differs_is_told() {
        let plain = read("", &[]).expect("sound");
        assert_eq!(differences(&values(&plain), &values(&plain)), []);
        let changed = read("", &["optimizer.lr=0.5", "model.layer_scale=0.25"]).expect("sound");
        let told = |key: &str, this: Option<&str>, other: &str| Difference {
            key: key.to_string(),
            this: this.map(str::to_string),
            other: Some(other.to_string()),
        };
        let expected = [told("model.layer_scale", None, "0.25"), told("optimizer.lr", Some("0.001"), "0.5")];
        assert_eq!(differences(&values(&plain), &values(&changed)), expected);
        // Numbers of 32 bits, too, as they were written.
        let smooth = read("", &["loss.label_smoothing=0.2", "preprocess.mean=[0.1, 0.2, 0.3]"]).expect("sound");
        let smooth = values(&smooth);
        assert_eq!((&*smooth["loss.label_smoothing"], &*smooth["preprocess.mean"]), ("0.2", "[0.1, 0.2, 0.3]"));
        let keys: BTreeSet<String> = smooth.into_keys().collect();
        assert_eq!(written_keys(&plain.to_toml()), keys);
    }

    #[test]
    fn layers_go_over_each_other() {
        let recipe = read("[optimizer]\nlr = 0.5\n[model]\npatch = 8", &["model.patch=4", "data.path=photos"]).unwrap();
        assert_eq!(recipe.optimizer.lr, 0.5);
        assert_eq!(recipe.model.patch, vitreous_models::Size::square(4));
        assert_eq!(recipe.data.path, "photos");
        assert_eq!(recipe.optimizer.betas, OptimizerSettings::default().betas);
        // Numbers that TOML reads as whole are fine where fractions are meant.
        assert_eq!(read("", &["optimizer.lr=1", "model.layer_scale=1"]).unwrap().optimizer.lr, 1.0);
        assert_eq!(read("", &["model.patch=[4,8]"]).unwrap().model.patch.width, 8);
    }

    #[test]
    fn a_preset_is_the_base_of_what_its_layer_and_later_ones_change() {
        let text = "[model]\ndepth = 3\npreset = \"vit_cifar\"\n";
        let recipe = read(text, &["model.heads=8"]).unwrap();
        assert_eq!((recipe.model.dim, recipe.model.depth, recipe.model.heads), (128, 3, 8));
        let recipe = read(text, &["model.preset=vit_tiny_patch16_224"]).unwrap();
        assert_eq!((recipe.model.dim, recipe.model.depth), (192, 12));
        assert!(read("", &["model.preset=vit_cifer"]).unwrap_err().contains("`vit_cifar`"));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_nearest_key() {
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
    }

    #[test]
    fn what_a_model_that_is_taken_up_replaces_is_not_checked() {
        assert!(read("", &["model.image=56"]).unwrap_err().contains("patches"));
        assert!(read("", &["model.image=56", "finetune.init=MODEL"]).is_ok());
    }

    #[test]
    fn a_recipe_survives_being_written() {
        let recipe = read("[model]\nlayer_scale = 1e-5\nimage = [224, 192]\n", &["optimizer.lr=0.1"]).unwrap();
        assert_eq!(read(&recipe.to_toml(), &[]).unwrap(), recipe);
    }
}
