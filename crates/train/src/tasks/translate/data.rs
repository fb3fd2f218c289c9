//! The pairs of a run as tokens, and how they are put into batches.

use vitreous_data::text::{
    Dropped, EncodedPairs, Limits, Pair, PairBatches, PairSplits, SHARED_FILE, SOURCE_FILE, TARGET_FILE, TokeniserKind,
    Tokenisers,
};

use crate::error::TrainError;
use crate::recipe::{TokeniserChoice, TranslationRecipe};

/// The pairs of a run, ready to be learned.
#[derive(Clone, Debug)]
pub struct PairData {
    /// What it is, in words.
    pub kind: String,
    /// By which texts become tokens.
    pub tokenisers: Tokenisers,
    /// What is learned from.
    pub train: EncodedPairs,
    /// What of it was left out.
    pub dropped: Dropped,
    /// How it is put into batches.
    pub batches: PairBatches,
    /// What is tested with, as text.
    pub validation: Vec<Pair>,
}

impl PairData {
    /// Makes pairs ready: with tokenisers that are there already (of a run that is taken up), or with ones that are learned from the
    /// pairs.
    pub fn new(
        recipe: &TranslationRecipe,
        splits: PairSplits,
        kind: String,
        tokenisers: Option<Tokenisers>,
    ) -> Result<PairData, TrainError> {
        if splits.train.is_empty() {
            return Err(TrainError::Data(format!("{kind}: there are no pairs to learn from")));
        }
        let text = &recipe.text;
        let tokenisers = match tokenisers {
            Some(tokenisers) => tokenisers,
            None => {
                let kind = match text.tokeniser {
                    TokeniserChoice::Bpe => TokeniserKind::Bpe,
                    TokeniserChoice::Unigram => TokeniserKind::Unigram,
                };
                Tokenisers::train(kind, &splits.train, text.vocabulary, recipe.model.shared_vocabulary)?
            }
        };
        let limits = Limits { max_tokens: text.max_tokens, max_ratio: text.max_ratio };
        let (train, dropped) = EncodedPairs::new(&splits.train, &tokenisers, &limits)?;
        if train.is_empty() {
            return Err(TrainError::Data(format!("{kind}: no pair is within the limits; {dropped}")));
        }
        let batches = PairBatches::new(&train, recipe.train.tokens, recipe.train.seed)
            .map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(PairData { kind, tokenisers, train, dropped, batches, validation: splits.validation })
    }

    /// The tokenisers as the files that go beside a model.
    pub(crate) fn tokeniser_files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        let Tokenisers { source, target } = &self.tokenisers;
        let file = |name: &str, json: String| (name.to_string(), json.into_bytes());
        Ok(match self.tokenisers.is_shared() {
            true => vec![file(SHARED_FILE, source.to_json()?)],
            false => vec![file(SOURCE_FILE, source.to_json()?), file(TARGET_FILE, target.to_json()?)],
        })
    }
}
