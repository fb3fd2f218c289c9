//! The sentence pairs of a run, tokenised and put into batches.

use std::sync::Arc;

use vitreous_data::text::{
    EncodedPairs, Limits, Pair, PairBatches, PairSplits, SHARED_FILE, SOURCE_FILE, TARGET_FILE, TokeniserKind,
    Tokenisers,
};
use vitreous_models::Takes;

use super::settings::{TokeniserChoice, TranslateSettings};
use crate::error::TrainError;
use crate::recipe::Recipe;

/// The pairs of a run, ready for training.
#[derive(Clone, Debug)]
pub struct PairData {
    /// What the data is called.
    pub name: String,
    /// The tokenisers of source and target.
    pub tokenisers: Tokenisers,
    /// The training pairs.
    pub train: Arc<EncodedPairs>,
    /// What a user should know about the data.
    pub notes: Vec<String>,
    /// How they are put into batches.
    pub batches: Arc<PairBatches>,
    /// The validation pairs, as text.
    pub validation: Vec<Pair>,
}

impl PairData {
    /// Tokenises pairs: with tokenisers that are given (those of a run that is resumed), or with ones that are trained on the pairs.
    pub fn new(
        recipe: &Recipe,
        splits: PairSplits,
        name: String,
        tokenisers: Option<Tokenisers>,
    ) -> Result<PairData, TrainError> {
        if splits.train.is_empty() {
            return Err(TrainError::Data(format!("{name}: there are no training pairs")));
        }
        let TranslateSettings { train, text, .. } = recipe.own()?;
        let tokenisers = match tokenisers {
            Some(tokenisers) => tokenisers,
            None => {
                let kind = match text.tokeniser {
                    TokeniserChoice::Bpe => TokeniserKind::Bpe,
                    TokeniserChoice::Unigram => TokeniserKind::Unigram,
                };
                Tokenisers::train(kind, &splits.train, text.vocabulary, shares_vocabulary(recipe)?)?
            }
        };
        let limits = Limits { max_tokens: text.max_tokens, max_ratio: text.max_ratio };
        let (pairs, dropped) = EncodedPairs::new(&splits.train, &tokenisers, &limits)?;
        if pairs.is_empty() {
            return Err(TrainError::Data(format!("{name}: no pair is within the limits; {dropped}")));
        }
        let pairs = Arc::new(pairs);
        let batches = PairBatches::new(pairs.clone(), train.tokens, recipe.train.seed)
            .map_err(|error| TrainError::Data(error.to_string()))?;
        let batches = Arc::new(batches);
        let mut notes = splits.notes;
        notes.extend((dropped.total() > 0).then(|| dropped.to_string()));
        Ok(PairData { name, tokenisers, train: pairs, notes, batches, validation: splits.validation })
    }

    /// The tokenisers as files of a model directory.
    pub(crate) fn tokeniser_files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        let Tokenisers { source, target } = &self.tokenisers;
        let file = |name: &str, json: String| (name.to_string(), json.into_bytes());
        Ok(match self.tokenisers.is_shared() {
            true => vec![file(SHARED_FILE, source.to_json()?)],
            false => vec![file(SOURCE_FILE, source.to_json()?), file(TARGET_FILE, target.to_json()?)],
        })
    }
}

/// Whether source and target of the recipe's model have one vocabulary.
fn shares_vocabulary(recipe: &Recipe) -> Result<bool, TrainError> {
    Ok(matches!(recipe.architecture()?.signature().takes, Takes::Pairs { shared: true, .. }))
}
