//! The interface of a folder of [`families`](crate::families).
//!
//! A [`Family`] reads checkpoints and knows presets; an [`Architecture`] is one of its models, without weights: it
//! builds graphs. Everything else (parameters, shapes, cost, gradients, tensor names) is derived from the graph.

use std::any::Any;
use std::fmt::Debug;

use serde_json::Value as Json;
use vitreous_engine::{Graph, Parameter, Result, Value};

use crate::call::{Call, Outputs};
use crate::checkpoint::gguf::GgufModel;
use crate::checkpoint::json::{Fault, Object};
use crate::checkpoint::{Dialect, Inventory};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Head, Signature};

/// A model family: a folder of its own, and one line in [`FAMILIES`](crate::families::FAMILIES).
pub trait Family: Sync {
    /// Its name, which is also its folder's: `vit`.
    fn name(&self) -> &'static str;

    /// The `model_type`s of Hugging Face configurations that belong to this family.
    fn model_types(&self) -> &'static [&'static str];

    /// The `general.architecture`s of GGUF files that belong to this family.
    fn gguf_architectures(&self) -> &'static [&'static str] {
        &[]
    }

    /// Names of presets, for listing.
    fn presets(&self) -> Vec<String>;

    /// The model of a preset.
    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>>;

    /// The model with these settings; absent keys have their defaults, unknown ones are an error.
    #[allow(clippy::wrong_self_convention)] // a family is a value, which makes models
    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError>;

    /// The `preprocessor_config.json` of one of its models whose directory has none, if that is not the usual one. `config` is the
    /// model's configuration, if there is a file.
    fn usual_preprocessing(&self, _architecture: &dyn Architecture, _config: Option<Object>) -> Option<Json> {
        None
    }

    /// Identifies a checkpoint; `None` if it does not belong to this family.
    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault>;
}

/// A family's type and its entry in the list, with what all families do alike. The module that it stands in has `presets::names` and
/// `presets::preset`; the configuration has `check`.
macro_rules! family {
    ($type:ident, $name:literal, $config:ty, model_types: $model_types:expr, gguf: $gguf:expr, read: $read:expr) => {
        /// The family.
        pub struct $type;

        /// The entry of the family list.
        pub static FAMILY: $type = $type;

        impl $crate::family::Family for $type {
            fn name(&self) -> &'static str {
                $name
            }

            fn model_types(&self) -> &'static [&'static str] {
                &$model_types
            }

            fn gguf_architectures(&self) -> &'static [&'static str] {
                &$gguf
            }

            fn presets(&self) -> Vec<String> {
                presets::names()
            }

            fn preset(&self, name: &str) -> Option<Box<dyn $crate::family::Architecture>> {
                Some(Box::new(presets::preset(name)?))
            }

            fn from_settings(
                &self,
                settings: &$crate::settings::Settings,
            ) -> std::result::Result<Box<dyn $crate::family::Architecture>, $crate::settings::ConfigError> {
                let config: $config = $crate::family::parse_settings(settings)?;
                config.check()?;
                Ok(Box::new(config))
            }

            fn read(
                &self,
                checkpoint: &$crate::family::Checkpoint,
            ) -> std::result::Result<Option<$crate::family::Reading>, $crate::checkpoint::json::Fault> {
                ($read)(checkpoint)
            }
        }
    };
}
pub(crate) use family;

/// One model of a family, without weights.
pub trait Architecture: Any + Debug + Send + Sync {
    /// Its family.
    fn family(&self) -> &'static dyn Family;

    /// Its complete configuration, as [`Family::from_settings`] takes it.
    fn settings(&self) -> Settings;

    /// Its inputs and outputs.
    fn signature(&self) -> Signature;

    /// Builds a part of it.
    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs>;

    /// The same with a new head in place of its own.
    fn with_head(&self, head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError>;

    /// The model that this one is with interventions; `None` if it has none.
    fn unedited(&self) -> Option<&dyn Architecture> {
        None
    }

    /// A copy of the model.
    fn boxed(&self) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        self.family().from_settings(&self.settings())
    }

    /// How it is written in a format; or why it cannot be.
    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String>;
}

/// A format of model files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own directory, which can store every model of every family.
    Own,
    /// A directory that Hugging Face's `transformers` opens.
    HuggingFace,
    /// Google's `.npz`.
    Npz,
    /// llama.cpp's files.
    Gguf,
}

/// The part of a checkpoint that a family gets to see.
#[derive(Clone, Copy)]
pub struct Checkpoint<'a> {
    /// Its `config.json`, if there is one.
    pub config: Option<Object<'a>>,
    /// What it says of its model, if it is a GGUF file.
    pub gguf: Option<GgufModel<'a>>,
    /// The names and shapes of its tensors; `None` if there is only a configuration.
    pub tensors: Option<&'a Inventory>,
    /// How it is to be opened.
    pub options: &'a OpenOptions,
}

impl Checkpoint<'_> {
    /// `model_type` of the configuration.
    pub fn model_type(&self) -> std::result::Result<Option<&str>, Fault> {
        self.config.map_or(Ok(None), |config| config.text("model_type"))
    }

    /// An error for more layers than there are tensors: a hostile configuration must not make us build them.
    pub fn check_layers(&self, layers: usize) -> std::result::Result<(), Fault> {
        match self.tensors.map(Inventory::len) {
            Some(tensors) if layers > tensors => {
                Err(Fault::whole(format!("the configuration has {layers} layers, but there are {tensors} tensors")))
            }
            _ => Ok(()),
        }
    }
}

/// The result of reading a checkpoint.
#[derive(Debug)]
pub struct Reading {
    /// The model as stored in the file.
    pub architecture: Box<dyn Architecture>,
    /// How the file names and lays out its tensors.
    pub dialect: Dialect,
    /// Class names in order; empty if there are none.
    pub labels: Vec<String>,
    /// Notes for the user about what had to be guessed.
    pub notes: Vec<String>,
}

/// Options for opening a model.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Settings that override the checkpoint's, e.g. `image`: learned positions are resized as the checkpoint's library
    /// does.
    pub settings: Settings,
    /// Replaces the head by a new one, which has no values yet; or removes it.
    pub replace_head: Option<Head>,
}

impl OpenOptions {
    /// Adds a setting.
    pub fn with(mut self, key: &str, value: impl serde::Serialize) -> OpenOptions {
        if let Ok(value) = serde_json::to_value(value) {
            self.settings.insert(key.to_string(), value);
        }
        self
    }

    /// Adds a setting, if there is one.
    pub fn with_some(self, key: &str, value: Option<impl serde::Serialize>) -> OpenOptions {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// A setting converted to a type; `None` if it is absent or of another type.
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

    /// The same with some settings changed.
    pub fn with_settings(&self, changes: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let mut settings = self.settings();
        settings.extend(changes.iter().map(|(key, value)| (key.clone(), value.clone())));
        self.family().from_settings(&settings)
    }

    /// The same without interventions. An edit may be for texts of one length alone: what is asked of any graph of a model, such as the
    /// number of its layers, is asked of this.
    pub fn plain(&self) -> &dyn Architecture {
        self.unedited().map_or(self, |of| of.plain())
    }

    /// Its parameters, taken from its graph. Their number and shapes do not depend on the batch.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let mut graph = Graph::for_inference();
        self.plain().build(&mut graph, &Call::whole(1))?;
        Ok(graph.parameters().to_vec())
    }

    /// Number of scalar parameters; shared parameters count once.
    pub fn parameter_count(&self) -> Result<usize> {
        Ok(self.parameters()?.iter().map(|parameter| parameter.shape.elements()).sum())
    }

    /// Builds it for inference and returns its main result.
    pub fn build_result(&self, graph: &mut Graph, call: &Call) -> Result<Value> {
        self.build(graph, call)?.result()
    }
}

/// Parses settings as a family's configuration type.
pub(crate) fn parse_settings<T: serde::de::DeserializeOwned>(
    settings: &Settings,
) -> std::result::Result<T, ConfigError> {
    serde_json::from_value(Json::Object(settings.clone())).map_err(|error| ConfigError(error.to_string()))
}

/// A family's configuration type as settings.
pub(crate) fn to_settings(config: &impl serde::Serialize) -> Settings {
    match serde_json::to_value(config) {
        Ok(Json::Object(settings)) => settings,
        // A struct with plain fields always serialises to an object.
        _ => Settings::new(),
    }
}
