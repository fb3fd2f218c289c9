//! Testing a translator: the loss on pairs that it does not learn from, and how its translations of them compare with theirs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vitreous_data::text::{BatchShape, END, EncodedPairs, EpochOrder, Limits, PADDING, Pair, PairBatches, START};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{CrossEntropyOptions, DType, Graph, Mode, Parameter, Plan, State};
use vitreous_models::transformer::{PairShape, transformer};
use vitreous_models::translate::{SearchOptions, SpecialTokens, TranslateOptions, Translator};

use super::PairData;
use crate::error::TrainError;
use crate::recipe::TranslationRecipe;
use crate::translation_scores::{bleu, chrf};

/// Hypotheses that are computed at once.
const SLOTS: usize = 64;
/// The most words of a translation beyond those of its source.
const EXTRA_TOKENS: usize = 50;
/// How many sentences go to the translator at a time, so that progress can be told.
const SENTENCES_AT_ONCE: usize = 512;

/// The special tokens of our tokenisers.
pub const SPECIAL: SpecialTokens = SpecialTokens { padding: PADDING, start: START, end: END };

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
    threads: usize,
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Option<TranslationReport>, TrainError> {
    if data.validation.is_empty() {
        return Ok(None);
    }
    let (loss, tokens) = mean_loss(recipe, data, state, threads)?;
    let count = match recipe.test.sentences {
        0 => data.validation.len(),
        most => most.min(data.validation.len()),
    };
    let translations = translate(recipe, data, state, threads, &data.validation[..count], tell)?;
    let references: Vec<&str> = data.validation[..count].iter().map(|pair| pair.target.as_str()).collect();
    let failed = |error: crate::translation_scores::ScoreError| TrainError::Data(error.to_string());
    let bleu = bleu(&translations, &references).map_err(failed)?;
    let chrf = chrf(&translations, &references).map_err(failed)?;
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

/// The mean loss a token, and over how many.
fn mean_loss(
    recipe: &TranslationRecipe,
    data: &PairData,
    state: &State,
    threads: usize,
) -> Result<(f64, u64), TrainError> {
    let limits = Limits { max_tokens: recipe.text.max_tokens, max_ratio: f64::INFINITY };
    let (pairs, _) = EncodedPairs::new(&data.validation, &data.tokenisers, &limits)?;
    if pairs.is_empty() {
        return Ok((f64::NAN, 0));
    }
    let batches = PairBatches::new(&pairs, recipe.train.tokens, 0)
        .map_err(|error| TrainError::Data(format!("what is tested with: {error}")))?;
    let order = batches.epoch(0);
    let mut by_shape: BTreeMap<BatchShape, Vec<usize>> = BTreeMap::new();
    (0..order.len()).for_each(|index| by_shape.entry(order.shape(index)).or_default().push(index));
    let (mut sum, mut tokens) = (0.0, 0);
    for (shape, indices) in by_shape {
        let (of_shape, count) = loss_of(recipe, state, threads, shape, &order, &indices, &pairs)?;
        sum += of_shape;
        tokens += count;
    }
    Ok((sum / tokens as f64, tokens))
}

/// The sum of the losses of batches of one shape, and their tokens.
fn loss_of(
    recipe: &TranslationRecipe,
    state: &State,
    threads: usize,
    shape: BatchShape,
    order: &EpochOrder,
    indices: &[usize],
    pairs: &EncodedPairs,
) -> Result<(f64, u64), TrainError> {
    let BatchShape { batch, source, target } = shape;
    let mut graph = Graph::new(Mode::Inference, recipe.train.precision.into());
    let logits = transformer(&mut graph, &recipe.model, PairShape { batch, source, target })?.logits;
    let wanted = graph.input("wanted", [batch, target], DType::I32)?;
    let options = CrossEntropyOptions { ignored_index: Some(PADDING as i32), ..CrossEntropyOptions::default() };
    let loss = graph.cross_entropy(logits, wanted, options)?;
    let plan = Plan::for_cpu_with_fixed_weights(&graph, &[loss])?;
    let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(Cow::Borrowed);
    let mut executor = Executor::with_weights(plan, threads, lend)?;
    let (mut sum, mut tokens) = (0.0, 0);
    for &index in indices {
        let batch = order.batch(index, pairs);
        executor.input_i32("source")?.copy_from_slice(&batch.source);
        executor.input_i32("source_lengths")?.copy_from_slice(&batch.source_lengths);
        executor.input_i32("target")?.copy_from_slice(&batch.target);
        executor.input_i32("wanted")?.copy_from_slice(&batch.wanted);
        executor.infer()?;
        sum += f64::from(executor.number(loss)?) * batch.tokens as f64;
        tokens += batch.tokens as u64;
    }
    Ok((sum, tokens))
}

/// The translations of the sources of some pairs.
fn translate(
    recipe: &TranslationRecipe,
    data: &PairData,
    state: &State,
    threads: usize,
    pairs: &[Pair],
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Vec<String>, TrainError> {
    let options = TranslateOptions {
        search: SearchOptions { beam: recipe.test.beam, length_penalty: recipe.test.length_penalty },
        slots: SLOTS.max(recipe.test.beam),
        extra_tokens: EXTRA_TOKENS,
        threads,
        precision: recipe.train.precision.into(),
    };
    let weights = Box::new(|name: &str| state.parameter(name).map(Cow::Borrowed));
    let mut translator = Translator::new(&recipe.model, SPECIAL, options, weights);
    let mut translations = Vec::new();
    for some in pairs.chunks(SENTENCES_AT_ONCE) {
        let sources: Result<Vec<Vec<u32>>, _> =
            some.iter().map(|pair| data.tokenisers.source.encode(&pair.source)).collect();
        for hypotheses in translator.translate(&sources?)? {
            let tokens = hypotheses.first().map_or(&[][..], |best| &best.tokens);
            translations.push(data.tokenisers.target.decode(tokens)?);
        }
        tell(translations.len(), pairs.len());
    }
    Ok(translations)
}
