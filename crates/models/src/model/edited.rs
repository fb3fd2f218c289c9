//! A model with interventions: the same architecture, whose graphs are built with edits of named values.

use vitreous_engine::{Edit, Error, Graph, Intervention, Result};

use super::{Model, ModelError};
use crate::call::{Call, Outputs, Part};
use crate::checkpoint::Dialect;
use crate::family::{Architecture, Family, Format};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Head, Signature};

/// An architecture with interventions in every graph that it builds.
#[derive(Debug)]
struct Edited {
    of: Box<dyn Architecture>,
    interventions: Vec<Intervention>,
}

impl Architecture for Edited {
    fn family(&self) -> &'static dyn Family {
        self.of.family()
    }

    fn settings(&self) -> Settings {
        self.of.settings()
    }

    fn signature(&self) -> Signature {
        self.of.signature()
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        if call.part == Part::Whole {
            return graph.with_interventions(&self.interventions, |graph| self.of.build(graph, call));
        }
        if let Some(limited) = self.interventions.iter().find(|intervention| intervention.tokens.is_some()) {
            let rule = "an edit of single tokens is not possible while tokens are generated one by one".to_string();
            return Err(Error::Intervention { path: limited.path.clone(), rule });
        }
        // A step has no encoder, and an encoder no decoder: the whole model was asked whether it has every path.
        let built = graph.with_some_interventions(&self.interventions, |graph| self.of.build(graph, call));
        built.map(|(outputs, _)| outputs)
    }

    fn with_head(&self, head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        self.of.with_head(head)
    }

    fn unedited(&self) -> Option<&dyn Architecture> {
        Some(self.of.as_ref())
    }

    fn boxed(&self) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Ok(Box::new(Edited { of: self.of.boxed()?, interventions: self.interventions.clone() }))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        self.of.dialect(format)
    }
}

impl Model {
    /// The model with a named value edited in whatever it computes from now on: `model.with("blocks.3.attention.heads.5", Edit::Zero)`. A
    /// path that it does not have is an error that names those most like it.
    pub fn with(self, path: &str, edit: Edit) -> std::result::Result<Model, ModelError> {
        self.with_interventions(vec![Intervention::new(path, edit)])
    }

    /// The model with interventions, done in this order.
    pub fn with_interventions(self, interventions: Vec<Intervention>) -> std::result::Result<Model, ModelError> {
        if interventions.is_empty() {
            return Ok(self);
        }
        let mut graph = Graph::for_inference();
        self.architecture.plain().build(&mut graph, &Call::whole(1))?;
        let known = graph.editable_paths();
        // Whether an edit fits a text, which has more than this one token, is seen when there is a text.
        let unknown = interventions.iter().find(|asked| known.binary_search(&asked.path).is_err());
        if let Some(Intervention { path, .. }) = unknown {
            return Err(graph.unknown_path(path.clone()).into());
        }
        let architecture = Box::new(Edited { of: self.architecture, interventions });
        Ok(Model { architecture, ..self })
    }
}
