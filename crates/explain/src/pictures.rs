//! What a model looks like by itself.

use vitreous_engine::machine::check_memory;
use vitreous_models::config::Positions;
use vitreous_models::{Model, positions};

use crate::error::ExplainError;
use crate::explanation::{ModelPictures, PositionPictures};
use crate::filters::components;
use crate::layout::Layout;
use crate::similarity::similarity;

/// Principal components that are shown: as many as the ViT paper has.
const FILTERS: usize = 28;

/// A model's positions, and the principal components of its patch embedding.
pub fn pictures(model: &Model) -> Result<ModelPictures, ExplainError> {
    let config = &model.config;
    let pixels = config.channels * config.patch.height * config.patch.width;
    let filters = components(&model.parameter("patch_embedding.weight")?, pixels, FILTERS);
    Ok(ModelPictures { layout: Layout::of(config), positions: position_pictures(model)?, filters })
}

fn position_pictures(model: &Model) -> Result<Option<PositionPictures>, ExplainError> {
    let config = &model.config;
    let prefix = config.positioned_prefix();
    let rows = prefix + config.patches();
    let table = match config.positions {
        Positions::None => return Ok(None),
        Positions::Learned => model.parameter("positions")?.into_owned(),
        Positions::Sinusoidal => positions::sinusoidal(rows, config.dim),
        Positions::SinCos2d => positions::sin_cos_2d(config.grid(), config.dim),
    };
    let bytes = config.patches().saturating_pow(2).saturating_mul(4);
    check_memory(&format!("comparing {} positions", config.patches()), bytes)?;
    let similarity = similarity(&table[prefix * config.dim..], config.dim);
    let learned = config.positions == Positions::Learned;
    Ok(Some(PositionPictures { table, rows, prefix, learned, similarity }))
}
