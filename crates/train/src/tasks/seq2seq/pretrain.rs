//! Pre-training on plain text: spans that are left out (T5), or denoising (BART).

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::loader::BatchSource;
use vitreous_data::text::{
    CorruptedBatches, Corruption, InfillingOptions, PackedTexts, PairSide, PairTokenizer, PlainTexts, SpanOptions,
    TextTokenizer, VocabularyKind, open_plain,
};
use vitreous_engine::{Device, State};
use vitreous_models::Architecture;

use super::evaluate::{CorruptedReport, LOSSES};
use super::model::PairModel;
use super::settings::{CorruptSettings, CorruptTextSettings, CorruptionSettings, PretrainVocabulary};
use super::{Evaluation, PairTask};
use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::{Recipe, RecipeError};
use crate::scores::{Metric, Scores};
use crate::task::{Averaging, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands};
use crate::tasks::text::finetuning_recipe;

/// The most sequences of an evaluation.
const MOST_EVALUATED: usize = 1000;
/// Documents that all threads encode at a time.
const CHUNK: usize = 1 << 12;

/// Pre-training by spans that are left out.
#[derive(Debug)]
pub struct SpanCorruption;

/// Pre-training by denoising.
#[derive(Debug)]
pub struct Denoising;

/// Refuses a model that is no encoder-decoder.
pub(super) fn check_pairs(architecture: &dyn Architecture) -> Result<(), String> {
    let signature = architecture.signature();
    match signature.pairs() {
        Some(_) => Ok(()),
        None => Err(format!("this is {}, but sequences to sequences need an encoder and a decoder", signature.what())),
    }
}

macro_rules! pretraining {
    ($task:ident, $name:literal, $family:literal, $usual:expr) => {
        impl TaskType for $task {
            fn name(&self) -> &'static str {
                $name
            }

            fn metrics(&self) -> &'static [&'static Metric] {
                &LOSSES
            }

            fn defaults(&self) -> Recipe {
                let mut recipe = finetuning_recipe(&$task, &$usual, 1, 0.01);
                recipe.optimizer.lr = 5e-4;
                recipe.schedule.warmup_epochs = 0.05;
                recipe
            }

            fn usual_family(&self) -> &'static str {
                $family
            }

            fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
                check_pairs(architecture)
            }

            fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
                let own: CorruptSettings = recipe.own()?;
                recipe.set_own(&own);
                Ok(())
            }

            fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
                recipe.own::<CorruptSettings>()?.check()
            }

            fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
                complete(recipe)
            }

            fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
                open(recipe, context, $family)
            }

            fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
                Some(CorruptedReport::read(evaluation)?.map(CorruptedReport::into_scores))
            }
        }
    };
}

pretraining!(SpanCorruption, "span-corruption", "t5", CorruptSettings::default());
pretraining!(Denoising, "denoising", "bart", of_denoising());

/// BART's settings.
fn of_denoising() -> CorruptSettings {
    CorruptSettings {
        corrupt: CorruptionSettings { share: 0.3, mean_length: 3.0, random: 0.1, permute: true },
        text: CorruptTextSettings { tokenizer: PretrainVocabulary::Bpe, ..CorruptTextSettings::default() },
        ..CorruptSettings::default()
    }
}

fn complete(recipe: &mut Recipe) -> Result<(), TrainError> {
    if !recipe.data.path.is_empty() {
        recipe.data.path = absolute(&recipe.data.path)?;
    }
    let mut settings: CorruptSettings = recipe.own()?;
    if !settings.finetune.init.is_empty() {
        settings.finetune.init = pretrained(&settings.finetune.init)?;
        recipe.set_own(&settings);
    }
    Ok(())
}

fn open(mut recipe: Recipe, context: &TaskContext, recipe_name: &str) -> Result<Box<dyn Task>, TrainError> {
    if recipe.data.path.is_empty() {
        return Err(TrainError::Data(format!(
            "there is no data: name a text file, or a folder of them, with `vitreous train {recipe_name} --data FILE`"
        )));
    }
    let settings: CorruptSettings = recipe.own()?;
    let path = Path::new(&recipe.data.path).to_path_buf();
    let texts = open_plain(&path).map_err(|error| TrainError::Data(error.to_string()))?;
    let model = match settings.finetune.init.as_str() {
        "" => {
            // A run that is resumed keeps its vocabulary.
            let tokenizer = match context.resumed {
                Some(run) => PairTokenizer::open(run, end_of(&recipe)?)?,
                None => learn(&settings, &texts, end_of(&recipe)?)?,
            };
            PairModel::fresh(&mut recipe, tokenizer)?
        }
        init => PairModel::open(&mut recipe, init, context.resumed)?,
    };
    let corruption = corruption(&recipe, &settings, &model)?;
    let (mut train, validation_share) =
        (pack(&texts, &model, &corruption, settings.text.max_tokens)?, recipe.data.validation_share);
    let drawn = (train.len() as f64 * validation_share).round() as usize;
    let validation = train.split_off(drawn);
    if train.len() < settings.train.batch {
        return Err(TrainError::Data(format!(
            "the text has {} sequences of {} tokens, fewer than a batch of {}: take more text, or shorter sequences (text.max_tokens)",
            train.len(),
            train.length(),
            settings.train.batch
        )));
    }
    let of_texts = |texts: &PackedTexts| Mark::of(texts.tokens().iter().map(|token| token.to_le_bytes()));
    let marks =
        vec![("training text".to_string(), of_texts(&train)), ("validation text".to_string(), of_texts(&validation))];
    let special = (model.special.padding, model.special.start);
    let batches =
        CorruptedBatches::new(Arc::new(train), corruption.clone(), special, settings.train.batch, recipe.train.seed);
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let facts = facts(&settings, &model, (name, texts.notes().to_vec()), &batches, validation.len());
    let evaluation = TextEvaluation { validation: Arc::new(validation), corruption, batch: settings.train.batch };
    Ok(Box::new(PairTask {
        recipe,
        model,
        facts,
        batches: Arc::new(batches),
        marks,
        label_smoothing: 0.0,
        finetuning: settings.finetune.parts(),
        evaluation: Box::new(evaluation),
        device: context.device.clone(),
    }))
}

fn facts(
    settings: &CorruptSettings,
    model: &PairModel,
    (name, notes): (String, Vec<String>),
    batches: &CorruptedBatches,
    validation: usize,
) -> TaskFacts {
    let arrays = &batches.groups()[0];
    let width = |name: &str| arrays.iter().find(|array| array.name == name).map_or(1, |array| array.shape[1]);
    let samples = batches.batches_per_epoch() * settings.train.batch;
    TaskFacts {
        summary: format!(
            "{name}: {} training and {} validation sequences of {} tokens; vocabulary size {}; {} batches per epoch",
            thousands(samples),
            thousands(validation),
            width("source"),
            thousands(model.tokenizer.vocabulary_size(PairSide::Source)),
            thousands(batches.batches_per_epoch()),
        ),
        data: name,
        notes,
        samples,
        unit: "tokens",
        units_per_epoch: (samples * width("wanted")) as u64,
        loader_threads: 1,
        weighting: Weighting::ByUnits,
        batch_size: ("train.batch", settings.train.batch),
        row_sizes: vec![1],
        averaging: Averaging::default(),
    }
}

/// The token that ends a text, by the recipe's model.
fn end_of(recipe: &Recipe) -> Result<u32, TrainError> {
    match recipe.architecture()?.signature().takes {
        vitreous_models::Takes::Pairs { special: Some(special), .. } => Ok(special.end),
        _ => Err(TrainError::Data(
            "this model states no special tokens: take a model of the family t5 or bart".to_string(),
        )),
    }
}

/// A vocabulary learnt from the text.
fn learn(settings: &CorruptSettings, texts: &PlainTexts, end: u32) -> Result<PairTokenizer, TrainError> {
    let kind = match settings.text.tokenizer {
        PretrainVocabulary::Bytes => return Ok(PairTokenizer::bytes()),
        PretrainVocabulary::Unigram => VocabularyKind::T5,
        PretrainVocabulary::Bpe => VocabularyKind::Bpe,
    };
    let mut failure = None;
    let mut documents = texts.documents().map_while(|document| document.map_err(|error| failure = Some(error)).ok());
    let tokenizer = TextTokenizer::train(kind, &mut documents, settings.text.vocabulary, settings.text.lower_case);
    drop(documents);
    match failure {
        Some(error) => Err(TrainError::Data(error.to_string())),
        None => Ok(PairTokenizer::of_text(tokenizer?, end)?),
    }
}

/// How sequences are made worse.
fn corruption(recipe: &Recipe, settings: &CorruptSettings, model: &PairModel) -> Result<Corruption, TrainError> {
    let CorruptionSettings { share, mean_length, random, permute } = settings.corrupt;
    let tokenizer = &model.tokenizer;
    if recipe.task.name() == SpanCorruption.name() {
        let sentinels: Arc<[u32]> = tokenizer.sentinels().into();
        if sentinels.is_empty() {
            let what = "the tokenizer has no sentinels (<extra_id_0> ..), which stand for spans: take one of T5";
            return Err(TrainError::Data(what.to_string()));
        }
        return Ok(Corruption::Spans(SpanOptions { share, mean_length, sentinels, end: model.special.end }));
    }
    let Some(mask) = tokenizer.mask() else {
        let what = "the tokenizer has no mask token, which denoising needs: take one of BART (text.tokenizer=\"bpe\")";
        return Err(TrainError::Data(what.to_string()));
    };
    let ends = |id: u32| tokenizer.piece(PairSide::Source, id).ends_with(['.', '!', '?', '。']);
    let ends_sentence = (0..tokenizer.vocabulary_size(PairSide::Source) as u32).map(ends).collect();
    let first_word =
        1 + [model.special.padding, model.special.end, mask].into_iter().filter(|id| *id < 10).max().unwrap_or(0);
    Ok(Corruption::Infilling(InfillingOptions {
        share,
        mean_length,
        random,
        permutes: permute,
        mask,
        ends_sentence,
        first_word,
    }))
}

/// All documents as sequences of one length, such that sources have at most so many tokens.
fn pack(
    texts: &PlainTexts,
    model: &PairModel,
    corruption: &Corruption,
    most: usize,
) -> Result<PackedTexts, TrainError> {
    use rayon::prelude::*;
    let longest = model.longest.0.min(model.longest.1);
    if most > longest {
        let what = format!("text.max_tokens is {most}, but the model reads {longest} at most: lower it");
        return Err(TrainError::Data(what));
    }
    let mut failure = None;
    let mut documents = texts.documents();
    let encoded = std::iter::from_fn(|| {
        let some: Result<Vec<String>, _> = documents.by_ref().take(CHUNK).collect();
        match some {
            Ok(some) if some.is_empty() => None,
            Ok(some) => {
                let tokens: Result<Vec<Vec<u32>>, _> =
                    some.par_iter().map(|text| model.tokenizer.encode_plain(text)).collect();
                tokens.map_err(|error| failure = Some(TrainError::from(error))).ok()
            }
            Err(error) => {
                failure = Some(TrainError::Data(error.to_string()));
                None
            }
        }
    });
    let packed = match corruption {
        Corruption::Spans(_) => {
            // As many tokens as become a source of the wanted length.
            let length =
                (most / 2..2 * most).rev().find(|&length| corruption.lengths(length).0 <= most).unwrap_or(most);
            PackedTexts::concatenate(encoded.flatten(), length, model.special.end)
        }
        Corruption::Infilling(_) => {
            let first = model.tokenizer.id("<s>").unwrap_or(model.special.end);
            PackedTexts::pack(encoded.flatten(), most, first, model.special.end)
        }
    };
    match failure {
        Some(failure) => Err(failure),
        None => Ok(packed),
    }
}

/// Text to evaluate on.
struct TextEvaluation {
    validation: Arc<PackedTexts>,
    corruption: Corruption,
    batch: usize,
}

impl Evaluation for TextEvaluation {
    fn scores(
        &self,
        model: &PairModel,
        state: &State,
        recipe: &Recipe,
        (device, ranks): (&Device, &Ranks),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        if self.validation.is_empty() {
            return Ok(None);
        }
        let mut texts = self.validation.as_ref().clone();
        let most = texts.len().min(MOST_EVALUATED);
        texts.split_off(texts.len() - most);
        // Whole batches, of as many sequences as divide them, so that all are seen.
        let batch = (1..=self.batch.min(most)).rev().find(|batch| most.is_multiple_of(*batch)).unwrap_or(1);
        let special = (model.special.padding, model.special.start);
        let batches = CorruptedBatches::new(texts, self.corruption.clone(), special, batch, 0);
        let on = (device, ranks, recipe.train.precision.into());
        let (loss, tokens) = model.mean_loss(&batches, state, on, progress)?;
        let report = CorruptedReport { corrupted_sequences: most as u64, tokens, loss, perplexity: loss.exp() };
        Ok(Some(report.into_scores()))
    }
}
