//! The tokenizer of a language model: that of its directory, or the one inside or beside its file.

use std::path::Path;

use vitreous_data::text::{TextTokenizer, VocabularyData};
use vitreous_models::Model;
use vitreous_train::TrainError;
use vitreous_train::tasks::language;

use super::write_vocabulary::vocabulary_of_directory;
use crate::error::Error;
use crate::locate::model_directory;

pub use language::vocabulary_of;

/// The tokenizer of a model that was opened from a model directory, a run directory or a file.
pub fn tokenizer_of(model: &Model, path: &Path) -> Result<TextTokenizer, Error> {
    let path = if path.is_file() { path.to_path_buf() } else { model_directory(path) };
    language::tokenizer_of(model, &path).map_err(of_training)
}

fn of_training(error: TrainError) -> Error {
    match error {
        TrainError::Tokeniser(error) => Error::Tokenizer(error),
        other => Error::input(other.to_string()),
    }
}

/// The vocabulary that a GGUF file of this model is to have, if it is not one already: that of its directory, or of llama2.c's
/// `tokenizer.bin` beside its file; `None` if there is neither.
pub fn vocabulary_to_write(model: &Model, path: &Path) -> Result<Option<VocabularyData>, Error> {
    let vocabulary = model.architecture.signature().next_token().unwrap_or_default();
    match path.is_file() && model.assets.metadata.is_some() {
        true => language::vocabulary_beside(path).map_err(of_training),
        false => vocabulary_of_directory(&model_directory(path), vocabulary),
    }
}
