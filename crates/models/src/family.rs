//! Families: what one folder of [`families`](crate::families) offers to everything else.
//!
//! A [`Family`] reads checkpoints and knows presets; an [`Architecture`] is one model of it, without weights: it builds graphs.
//! Everything else (parameters, shapes, cost, gradients, names of tensors) is derived from the graph.

use std::any::Any;
use std::fmt::Debug;

use serde_json::Value as Json;
use vitreous_engine::{Graph, Parameter, Result, Value};

use crate::call::{Call, Outputs};
use crate::checkpoint::json::{Fault, Object};
use crate::checkpoint::{Dialect, Inventory};
use crate::settings::{ConfigError, Settings};
use crate::signature::Signature;

/// A kind of model: a folder of its own, and one line in [`FAMILIES`](crate::families::FAMILIES).
pub trait Family: Sync {
    /// Its name, which is its folder's: `vit`.
    fn name(&self) -> &'static str;

    /// The `model_type`s of Hugging Face's configurations that are of this family.
    fn model_types(&self) -> &'static [&'static str];

    /// Names of presets to show to someone who asks which there are.
    fn presets(&self) -> Vec<String>;

    /// The model of a preset's name.
    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>>;

    /// The model of these settings; keys that are absent have their defaults, unknown ones are refused.
    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError>;

    /// What a checkpoint is; `None` if it is not of this family.
    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault>;
}

/// One model of a family, without weights.
pub trait Architecture: Any + Debug + Send + Sync {
    /// Its family.
    fn family(&self) -> &'static dyn Family;

    /// All that it is, as [`Family::from_settings`] takes it.
    fn settings(&self) -> Settings;

    /// What it takes and gives.
    fn signature(&self) -> Signature;

    /// Builds a part of it.
    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs>;

    /// The same with a new classification head for so many classes; 0 for none.
    fn with_head(&self, classes: usize) -> std::result::Result<Box<dyn Architecture>, ConfigError>;

    /// How it is written in a format; or why it cannot be.
    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String>;
}

/// A format of model files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own directory, which can hold every model of every family.
    Own,
    /// A directory that Hugging Face's `transformers` opens.
    HuggingFace,
    /// Google's `.npz`.
    Npz,
}

/// What a family is shown of a checkpoint.
#[derive(Clone, Copy)]
pub struct Checkpoint<'a> {
    /// Its `config.json`, if there is one.
    pub config: Option<Object<'a>>,
    /// The names and shapes of its tensors; `None` where only the configuration is there.
    pub tensors: Option<&'a Inventory>,
    /// How it is to be opened.
    pub options: &'a OpenOptions,
}

impl Checkpoint<'_> {
    /// `model_type` of the configuration.
    pub fn model_type(&self) -> std::result::Result<Option<&str>, Fault> {
        self.config.map_or(Ok(None), |config| config.text("model_type"))
    }

    /// Refuses more layers than there are tensors: what a hostile configuration asks for must not be built.
    pub fn check_layers(&self, layers: usize) -> std::result::Result<(), Fault> {
        match self.tensors.map(Inventory::len) {
            Some(tensors) if layers > tensors => {
                Err(Fault::whole(format!("the configuration has {layers} layers, but there are {tensors} tensors")))
            }
            _ => Ok(()),
        }
    }
}

/// What a checkpoint was found to be.
#[derive(Debug)]
pub struct Reading {
    /// The model as the file has it.
    pub architecture: Box<dyn Architecture>,
    /// How the file names and lays out its tensors.
    pub dialect: Dialect,
    /// Names of its classes in order; empty where they have none.
    pub labels: Vec<String>,
    /// What had to be guessed, to be told to the user.
    pub notes: Vec<String>,
}

/// How to open a model.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Settings in place of the checkpoint's, e.g. `image`: learned positions are resized as the checkpoint's library does.
    pub settings: Settings,
    /// A new head of so many classes in place of the checkpoint's; it has no values yet. 0 for no head.
    pub replace_head: Option<usize>,
}

impl OpenOptions {
    /// With another setting.
    pub fn with(mut self, key: &str, value: impl serde::Serialize) -> OpenOptions {
        if let Ok(value) = serde_json::to_value(value) {
            self.settings.insert(key.to_string(), value);
        }
        self
    }

    /// With another setting, if one is given.
    pub fn with_some(self, key: &str, value: Option<impl serde::Serialize>) -> OpenOptions {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// A setting as a type of its own; `None` if it was not given or is of another type.
    pub fn get<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.settings.get(key).and_then(|value| serde_json::from_value(value.clone()).ok())
    }
}

impl dyn Architecture {
    /// The configuration as its family's own type.
    pub fn downcast_ref<T: Architecture>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }

    /// The same model again.
    pub fn boxed(&self) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        self.with_settings(&Settings::new())
    }

    /// The same with some settings changed.
    pub fn with_settings(&self, changes: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let mut settings = self.settings();
        settings.extend(changes.iter().map(|(key, value)| (key.clone(), value.clone())));
        self.family().from_settings(&settings)
    }

    /// Its parameters, read off its graph. Their number and shapes are the same for every batch.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let mut graph = Graph::for_inference();
        self.build(&mut graph, &Call::whole(1))?;
        Ok(graph.parameters().to_vec())
    }

    /// How many numbers it has; parameters that are used more than once count once.
    pub fn parameter_count(&self) -> Result<usize> {
        Ok(self.parameters()?.iter().map(|parameter| parameter.shape.elements()).sum())
    }

    /// Builds it for inference and gives the result that it is for.
    pub fn build_result(&self, graph: &mut Graph, call: &Call) -> Result<Value> {
        self.build(graph, call)?.result()
    }
}

/// Reads settings as a configuration type of a family.
pub(crate) fn parse_settings<T: serde::de::DeserializeOwned>(
    settings: &Settings,
) -> std::result::Result<T, ConfigError> {
    serde_json::from_value(Json::Object(settings.clone())).map_err(|error| ConfigError(error.to_string()))
}

/// A configuration type of a family as settings.
pub(crate) fn to_settings(config: &impl serde::Serialize) -> Settings {
    match serde_json::to_value(config) {
        Ok(Json::Object(settings)) => settings,
        // A struct of plain fields is an object.
        _ => Settings::new(),
    }
}
