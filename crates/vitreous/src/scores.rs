//! Logits as people read them.

use vitreous_models::Model;

pub use vitreous_pages::scores::{best, softmax};

/// The name of a class; its number where the model has no names.
pub fn label(model: &Model, index: usize) -> String {
    vitreous_pages::scores::label(&model.labels, index)
}
