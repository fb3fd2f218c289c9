//! Models with named values edited in whatever they compute.

use vitreous_engine::{Edit, Intervention};

use crate::error::Error;
use crate::image_model::ImageModel;
use crate::language::LanguageModel;
use crate::sequences::SequenceModel;
use crate::speech::SpeechModel;
use crate::text::TextModel;
use crate::translator::TranslatorModel;

/// A model whose named values can be edited: the output of a head (`blocks.3.attention.heads.5`) or of an MLP (`blocks.3.mlp`), what a layer gives
/// (`blocks.3`), attention weights (`blocks.3.attention.weights`), embeddings (`embedding`), and the result of every op.
///
/// ```no_run
/// use std::path::Path;
/// use vitreous_runtime::{Edit, Intervene, language::LanguageModel};
///
/// let model = LanguageModel::open(Path::new("gpt2"))?.with("blocks.3.attention.heads.5", Edit::Zero)?;
/// # Ok::<(), vitreous_runtime::Error>(())
/// ```
pub trait Intervene: Sized {
    /// The model with interventions, done in this order. A path that it does not have is an error that names those most like it.
    fn with_interventions(self, interventions: Vec<Intervention>) -> Result<Self, Error>;

    /// The model with one value edited.
    fn with(self, path: &str, edit: Edit) -> Result<Self, Error> {
        self.with_interventions(vec![Intervention::new(path, edit)])
    }
}

macro_rules! intervene {
    ($($model:ty),*) => {$(
        impl Intervene for $model {
            fn with_interventions(self, interventions: Vec<Intervention>) -> Result<Self, Error> {
                let model = self.model.with_interventions(interventions)?;
                Ok(Self { model, ..self })
            }
        }
    )*};
}

intervene!(LanguageModel, TextModel, ImageModel, TranslatorModel, SequenceModel, SpeechModel);
