//! What pages say about a model that is not in its results.

use vitreous_explain::{ExplainError, Structure};
use vitreous_models::{Architecture, Model};

use crate::explain::ImageModel;
use crate::flow::FlowNotes;
use crate::format;

/// Longer names of classes are cut: a page could not show them, and files are named after them.
const LONGEST_LABEL: usize = 100;

/// A model of images.
pub fn image_model(model: &Model) -> Result<ImageModel, ExplainError> {
    let structure = Structure::of(model.architecture.as_ref())?;
    let signature = model.architecture.signature();
    Ok(ImageModel {
        path: model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        labels: model.assets.labels.iter().map(|label| format::shortened(label, LONGEST_LABEL)).collect(),
        layers: structure.layers,
        heads: structure.heads,
        prefix: signature.images().map(|images| images.prefix.clone()).unwrap_or_default(),
    })
}

/// What the drawing of its data flow cannot read off the graph.
pub fn flow_notes(model: &dyn Architecture) -> FlowNotes<'static> {
    let signature = model.signature();
    let names = signature.images().map(|images| images.prefix.clone()).unwrap_or_default();
    let (registers, mut prefix): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name.starts_with("register"));
    if !registers.is_empty() {
        prefix.push(format::count(registers.len(), "register", "registers"));
    }
    let settings = model.settings();
    let positions = match settings.get("positions").and_then(|positions| positions.as_str()) {
        Some("sinusoidal") => "sinusoidal",
        Some("sin_cos2d") => "2-D sin-cos",
        _ => "fixed",
    };
    FlowNotes {
        output: if signature.classes().is_some() { "logits" } else { "features" },
        prefix,
        constants: vec![("positions", positions)],
    }
}
