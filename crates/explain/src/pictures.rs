//! What a model looks like by itself.

use vitreous_engine::machine::check_memory;
use vitreous_engine::{Graph, Role};
use vitreous_models::{Call, Model};

use crate::error::ExplainError;
use crate::explanation::{ModelPictures, PositionPictures};
use crate::filters::components;
use crate::similarity::similarity;
use crate::token_grid::TokenGrid;

/// Principal components that are shown: as many as the ViT paper has.
const FILTERS: usize = 28;

/// A model's positions, and the principal components of its patch embedding.
pub fn pictures(model: &Model) -> Result<ModelPictures, ExplainError> {
    let signature = model.architecture.signature();
    let layout = TokenGrid::of(signature.images().ok_or(ExplainError::NoImages { what: signature.what() })?);
    let embedding = model.parameters().iter().find(|parameter| parameter.role() == Role::Embedding);
    let filters = match embedding {
        Some(embedding) => components(&model.parameter(&embedding.name)?, embedding.shape.columns(), FILTERS),
        None => Vec::new(),
    };
    Ok(ModelPictures { layout, positions: position_pictures(model, &layout)?, filters })
}

/// The table of positions: a parameter, or a constant of the graph.
fn position_pictures(model: &Model, layout: &TokenGrid) -> Result<Option<PositionPictures>, ExplainError> {
    let learned = model.parameters().iter().find(|parameter| parameter.role() == Role::Position);
    let mut graph = Graph::for_inference();
    let (table, rows) = match learned {
        Some(parameter) => (model.parameter(&parameter.name)?.into_owned(), parameter.shape.rows()),
        None => {
            model.architecture.plain().build(&mut graph, &Call::whole(1))?;
            let Some((shape, values)) = graph.constant_values("positions") else { return Ok(None) };
            (values.to_vec(), shape.rows())
        }
    };
    let patches = layout.patches();
    let (prefix, dim) = (rows.saturating_sub(patches), table.len() / rows);
    check_memory(&format!("comparing {patches} positions"), patches.saturating_pow(2).saturating_mul(4))?;
    let similarity = similarity(&table[prefix * dim..], dim);
    Ok(Some(PositionPictures { table, rows, prefix, learned: learned.is_some(), similarity }))
}
