//! Texts that must have a format: a match of a regular expression, or JSON of a schema.

use vitreous_models::generate::constrain::{Constrainer, FormatConstraint, OutputFormat, TokenBytes};

use super::model::LanguageModel;
use crate::error::Error;

impl LanguageModel {
    /// What makes constraints for this vocabulary. Whoever needs many keeps it: preparing a vocabulary takes a while.
    pub fn constrainer(&self) -> Result<Constrainer, Error> {
        // Tokens that the model has and the tokenizer has not are never allowed; the end has an index behind all of them.
        let bytes = (0..self.vocabulary).map(|id| self.tokenizer.token_bytes(u32::try_from(id).ok()?));
        Constrainer::new(&TokenBytes::new(bytes)).map_err(|error| Error::input(error.to_string()))
    }

    /// The constraint that what is written has a format. Each text needs one of its own: [`FormatConstraint::again`] makes more.
    pub fn constraint(&self, format: &OutputFormat) -> Result<FormatConstraint, Error> {
        self.constrainer()?.constraint(format).map_err(|error| Error::input(error.to_string()))
    }
}
