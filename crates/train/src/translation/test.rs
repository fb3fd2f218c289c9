//! The test of a translator that learns: with pairs that it does not learn from.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use vitreous_engine::{Device, State};
use vitreous_models::generate::SearchOptions;

use super::PairData;
use super::measure::{TranslatorScores, TranslatorTest, longest_side};
use crate::error::TrainError;
use crate::recipe::TranslationRecipe;

/// All that a test of a translator found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranslationReport {
    /// How many pairs there were.
    pub pairs: u64,
    /// How many tokens the loss is the mean over.
    pub tokens: u64,
    /// Mean cross-entropy a token, in nats, without smoothing.
    #[serde(deserialize_with = "crate::evaluation::number")]
    pub loss: f64,
    /// `e^loss`: among how many words the model is undecided.
    #[serde(deserialize_with = "crate::evaluation::number")]
    pub perplexity: f64,
    /// BLEU, from 0 to 100.
    pub bleu: f64,
    /// How it was computed.
    pub bleu_signature: String,
    /// The shares of words, pairs, threes and fours of words that are right, in percent.
    pub precisions: [f64; 4],
    /// What BLEU is multiplied by because translations are short.
    pub brevity_penalty: f64,
    /// chrF, from 0 to 100.
    pub chrf: f64,
    /// How it was computed.
    pub chrf_signature: String,
    /// Some translations.
    pub shown: Vec<ShownTranslation>,
}

/// A sentence, how it should be translated, and how it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownTranslation {
    /// The sentence.
    pub source: String,
    /// As the data has it.
    pub reference: String,
    /// As the model has it.
    pub translation: String,
}

/// Tests with the state's parameters; `None` if there are no pairs.
pub(super) fn test(
    recipe: &TranslationRecipe,
    data: &PairData,
    state: &State,
    device: &Device,
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Option<TranslationReport>, TrainError> {
    if data.validation.is_empty() {
        return Ok(None);
    }
    let test = TranslatorTest {
        model: &recipe.model,
        tokenisers: &data.tokenisers,
        weights: &|name| state.parameter(name).map(Cow::Borrowed),
        search: SearchOptions { beam: recipe.test.beam, length_penalty: recipe.test.length_penalty },
        tokens: recipe.train.tokens,
        max_tokens: longest_side(&recipe.model),
        device,
        precision: recipe.train.precision.into(),
    };
    let sentences = match recipe.test.sentences {
        0 => usize::MAX,
        most => most,
    };
    let scores = test.run(&data.validation, sentences, tell)?;
    let TranslatorScores { loss, tokens, translations, bleu, chrf, .. } = scores;
    let count = translations.len();
    // Spread over the data, the same ones after every epoch.
    let shown = recipe.test.shown.min(count);
    let shown = (0..shown).map(|place| place * count / shown).map(|place| ShownTranslation {
        source: data.validation[place].source.clone(),
        reference: data.validation[place].target.clone(),
        translation: translations[place].clone(),
    });
    Ok(Some(TranslationReport {
        pairs: count as u64,
        tokens,
        loss,
        perplexity: loss.exp(),
        bleu: bleu.score,
        bleu_signature: bleu.signature(),
        precisions: bleu.precisions,
        brevity_penalty: bleu.brevity_penalty,
        chrf: chrf.score,
        chrf_signature: chrf.signature(),
        shown: shown.collect(),
    }))
}
