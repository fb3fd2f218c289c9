//! An encoder's configuration as an [`Architecture`]: what is the same in every family of encoders.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use vitreous_engine::{Graph, Result};

use super::Encoder;
use crate::call::{Call, Outputs};
use crate::checkpoint::Dialect;
use crate::family::{Architecture, Family, Format, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Head, Signature};

/// The configuration of a family of encoders.
pub(crate) trait EncoderConfig: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its family.
    fn own_family() -> &'static dyn Family;

    /// What its graph needs.
    fn to_encoder(&self) -> Encoder;

    /// An error for settings that no model can have.
    fn check_settings(&self) -> std::result::Result<(), ConfigError>;

    /// The same with another head, with or without the pooler.
    fn with_parts(&self, head: Head, pooler: bool) -> Self;

    /// Builds the whole model.
    fn build_graph(&self, graph: &mut Graph, call: &Call) -> Result<Outputs>;

    /// How `transformers` names its tensors, and its `config.json`.
    fn hugging_face(&self) -> std::result::Result<Dialect, String>;
}

/// The model with these settings, if they are sound.
fn sound<C: EncoderConfig>(config: C) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
    config.check_settings()?;
    Ok(Box::new(config))
}

impl<C: EncoderConfig> Architecture for C {
    fn family(&self) -> &'static dyn Family {
        C::own_family()
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        self.to_encoder().signature()
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        self.build_graph(graph, call)
    }

    fn with_head(&self, head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        sound(self.with_parts(head, self.to_encoder().pooler_with(head)))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => self.hugging_face(),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
            Format::Gguf => Err("GGUF is for language models; save to a directory instead".to_string()),
        }
    }
}
