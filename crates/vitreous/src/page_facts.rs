//! What pages say about a model that is not in its results.

use vitreous_models::config::Positions;
use vitreous_models::{Model, VitConfig};
use vitreous_pages::explain::ImageModel;
use vitreous_pages::flow::FlowNotes;
use vitreous_pages::format;

/// A model for images.
pub fn image_model(model: &Model) -> ImageModel {
    let config = &model.config;
    let mut prefix = special_tokens(config);
    prefix.extend((0..config.registers).map(|register| format!("register {register}")));
    ImageModel {
        path: model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        labels: model.labels.clone(),
        layers: config.depth,
        heads: config.heads,
        prefix,
    }
}

/// What the drawing of its data flow cannot read off the graph.
pub fn flow_notes(config: &VitConfig) -> FlowNotes<'static> {
    let mut prefix = special_tokens(config);
    if config.registers > 0 {
        prefix.push(format::count(config.registers, "register", "registers"));
    }
    let positions = match config.positions {
        Positions::Sinusoidal => "sinusoidal",
        Positions::SinCos2d => "2-D sin-cos",
        Positions::Learned | Positions::None => "fixed",
    };
    FlowNotes {
        output: if config.classes > 0 { "logits" } else { "features" },
        prefix,
        constants: vec![("positions", positions)],
    }
}

fn special_tokens(config: &VitConfig) -> Vec<String> {
    let special = [("class token", config.class_token), ("distillation token", config.distillation_token)];
    special.into_iter().filter(|(_, there)| *there).map(|(name, _)| name.to_string()).collect()
}
