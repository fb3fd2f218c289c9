//! Masked-language pre-training: an encoder learns to predict masked tokens of plain text.

mod measure;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::loader::BatchSource;
use vitreous_data::random::Random;
use vitreous_data::text::{
    IGNORED, MaskOptions, MaskedBatches, PackedTexts, PlainTexts, TextTokenizer, TokenKind, VocabularyKind, open_plain,
};
use vitreous_engine::{CrossEntropyOptions, Device, Graph, Value};
use vitreous_models::encode::{EncoderOutput, EncoderRunner, TextTokens};
use vitreous_models::{Architecture, Head, Model, Outputs, Settings};

use crate::error::TrainError;
use crate::finetuning::{Finetuning, open_pretrained};
use crate::fingerprint::Mark;
use crate::ranks::{Parcel, Ranks};
use crate::recipe::{Recipe, RecipeError};
use crate::scores::{Metric, Scores};
use crate::task::{Objective, Task, TaskContext, TaskFacts, Weighting, thousands};
use crate::tasks::text::{
    KEPT_SETTINGS, TextData, TextObjective, TextTask, TextTaskType, TrainedEncoder, finetuning_recipe,
};

pub use measure::MaskedTokensReport;
pub use settings::{MaskSettings, MaskTokensSettings, PretrainInit, PretrainTextSettings, VocabularyChoice};

/// Documents that all threads encode at a time.
const CHUNK: usize = 1 << 12;
/// The most sequences of an evaluation: logits of a whole vocabulary for each masked token take their time.
const MOST_EVALUATED: usize = 1000;
/// Sequences whose logits are computed at a time.
const EVALUATED_AT_ONCE: usize = 100;

/// Masked-language pre-training.
#[derive(Debug)]
pub struct MaskedLanguage;

impl TextTaskType for MaskedLanguage {
    type Settings = MaskTokensSettings;

    const NAME: &'static str = "masked-language";
    const METRICS: &'static [&'static Metric] = &measure::METRICS;
    const NEEDS: &'static str = "masked tokens are predicted by";
    const NO_DATA: &'static str = "name a text file, or a folder of them, with `vitreous train bert --data FILE`";

    fn default_recipe() -> Recipe {
        let mut recipe = finetuning_recipe(&MaskedLanguage, &MaskTokensSettings::default(), 1, 0.01);
        let optimizer = &mut recipe.optimizer;
        (optimizer.lr, optimizer.betas, optimizer.eps) = (5e-4, [0.9, 0.98], 1e-6);
        recipe.schedule.warmup_epochs = 0.05;
        recipe
    }

    fn open_data(recipe: Recipe, path: &Path, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let texts = open_plain(path).map_err(|error| TrainError::Data(error.to_string()))?;
        // A run that is resumed keeps its vocabulary.
        let tokenizer = context.resumed.map(TextTokenizer::open).transpose()?;
        Ok(Box::new(MaskTokensTask::new(recipe, &texts, tokenizer, context.device)?))
    }

    fn scores_of(evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(MaskedTokensReport::read(evaluation)?.map(MaskedTokensReport::into_scores))
    }
}

/// An encoder that is pre-trained.
pub type MaskTokensTask = TextTask<MaskedTokens>;

/// Predicting masked tokens.
pub struct MaskedTokens {
    files: Vec<(String, u64)>,
    train: Arc<PackedTexts>,
    validation: PackedTexts,
    options: MaskOptions,
    batches: Arc<MaskedBatches>,
}

impl MaskTokensTask {
    /// Pre-trains a recipe's model on plain text, with a tokenizer that is given, or that of the model to go on from, or one that is learnt.
    pub fn new(
        mut recipe: Recipe,
        texts: &PlainTexts,
        tokenizer: Option<TextTokenizer>,
        device: &Device,
    ) -> Result<MaskTokensTask, TrainError> {
        let settings: MaskTokensSettings = recipe.own()?;
        let init = settings.finetune.init.as_str();
        let tokenizer = match (tokenizer, init) {
            (Some(tokenizer), _) => tokenizer,
            (None, "") => learn(&settings.text, texts)?,
            (None, init) => TextTokenizer::open(Path::new(init))?,
        };
        let model = open_model(&mut recipe, init, tokenizer.vocabulary_size())?;
        let encoder = TrainedEncoder::new(&mut recipe, model, tokenizer)?;
        let (length, longest) = (settings.text.max_tokens, encoder.input.longest);
        if length > longest {
            let what = format!("text.max_tokens is {length}, but the model reads {longest} at most: lower it");
            return Err(TrainError::Data(what));
        }
        let mut train = pack(texts, &encoder.tokenizer, length)?;
        let drawn = (train.len() as f64 * recipe.data.validation_share).round() as usize;
        let validation = train.split_off(drawn);
        let options = mask_options(&settings.mask, &encoder.tokenizer, encoder.input.vocabulary)?;
        let (train, batch, has_types) = (Arc::new(train), settings.train.batch, encoder.input.token_types > 1);
        let batches = MaskedBatches::new(train.clone(), options.clone(), batch, has_types, recipe.train.seed);
        let path = Path::new(&recipe.data.path);
        let vocabulary = thousands(encoder.tokenizer.vocabulary_size());
        let data = TextData {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            samples: [train.len(), validation.len()],
            unit: "sequences",
            more: format!(" of {length} tokens; vocabulary size {vocabulary}"),
            notes: texts.notes().to_vec(),
            batches: &batches,
            batch,
            texts_per_sample: 1,
        };
        let facts = data.facts()?;
        // What is learnt from is the masked tokens.
        let units_per_epoch = facts.units_per_epoch * options.count(length) as u64;
        let facts = TaskFacts { unit: "masked tokens", units_per_epoch, weighting: Weighting::ByUnits, ..facts };
        let files = texts.files().iter().map(|file| (file.name.clone(), file.bytes)).collect();
        let objective = MaskedTokens { files, train, validation, options, batches: Arc::new(batches) };
        let (finetuning, device) = (Finetuning::default(), device.clone());
        Ok(TextTask { recipe, finetuning, facts, encoder, objective, device })
    }
}

/// A vocabulary learnt from the text.
fn learn(settings: &PretrainTextSettings, texts: &PlainTexts) -> Result<TextTokenizer, TrainError> {
    let kind = match settings.tokenizer {
        VocabularyChoice::WordPiece => VocabularyKind::WordPiece,
        VocabularyChoice::Bpe => VocabularyKind::Bpe,
        VocabularyChoice::Unigram => VocabularyKind::Unigram,
    };
    let mut failure = None;
    let mut documents = texts.documents().map_while(|document| document.map_err(|error| failure = Some(error)).ok());
    let tokenizer = TextTokenizer::train(kind, &mut documents, settings.vocabulary, settings.lower_case);
    drop(documents);
    match failure {
        Some(error) => Err(TrainError::Data(error.to_string())),
        None => Ok(tokenizer?),
    }
}

/// The recipe's model, or one to go on from, with a masked-token head and this vocabulary.
fn open_model(recipe: &mut Recipe, init: &str, vocabulary: usize) -> Result<Model, TrainError> {
    Ok(match init {
        "" => {
            let size = Settings::from_iter([("vocabulary".to_string(), vocabulary.into())]);
            recipe.change_model(&size)?;
            let head = recipe.architecture()?.with_head(Head::MaskedTokens);
            Model::new(head.map_err(|error| RecipeError::Model(error.0))?, Vec::new())?
        }
        init => {
            // A head that is there goes on, too.
            let has_head = |own: &dyn Architecture| own.signature().masked_tokens().is_some();
            let head = |own: &dyn Architecture| (!has_head(own)).then_some(Head::MaskedTokens);
            open_pretrained(Path::new(init), recipe, &KEPT_SETTINGS, head)?
        }
    })
}

/// All documents as sequences of one length.
fn pack(texts: &PlainTexts, tokenizer: &TextTokenizer, length: usize) -> Result<PackedTexts, TrainError> {
    use rayon::prelude::*;
    let special = tokenizer.special();
    let (Some(first), Some(separator)) = (special.first.or(special.begin), special.separator.or(special.end)) else {
        return Err(TrainError::Data(
            "the tokenizer has no tokens for the beginning and the end of a text".to_string(),
        ));
    };
    let mut failure = None;
    let mut documents = texts.documents();
    let encoded = std::iter::from_fn(|| {
        let some: Result<Vec<String>, _> = documents.by_ref().take(CHUNK).collect();
        let some = match some {
            Ok(some) if some.is_empty() => return None,
            Ok(some) => some,
            Err(error) => {
                failure = Some(TrainError::Data(error.to_string()));
                return None;
            }
        };
        let tokens: Result<Vec<Vec<u32>>, _> = some.par_iter().map(|text| tokenizer.encode_plain(text)).collect();
        match tokens {
            Ok(tokens) => Some(tokens),
            Err(error) => {
                failure = Some(error.into());
                None
            }
        }
    });
    let packed = PackedTexts::pack(encoded.flatten(), length, first, separator);
    match failure {
        Some(failure) => Err(failure),
        None => Ok(packed),
    }
}

/// How tokens are masked: which are special, and which go on with a word, follows from how they are written.
fn mask_options(
    settings: &MaskSettings,
    tokenizer: &TextTokenizer,
    vocabulary: usize,
) -> Result<MaskOptions, TrainError> {
    let special = tokenizer.special();
    let Some(mask) = special.mask else {
        return Err(TrainError::Data(
            "the tokenizer has no mask token: take one of a masked language model".to_string(),
        ));
    };
    let all =
        [special.padding, special.mask, special.first, special.separator, special.unknown, special.begin, special.end];
    let prefix = tokenizer.continuing_prefix();
    let kind = |id: u32| match tokenizer.token(id) {
        None => TokenKind::Special,
        Some(_) if all.contains(&Some(id)) => TokenKind::Special,
        Some(token) => {
            // WordPiece marks what goes on, the others mark what begins: a space as Ġ or ▁.
            let begins = match prefix {
                Some(prefix) => !token.starts_with(prefix),
                None => token.starts_with(['Ġ', '▁']),
            };
            if begins { TokenKind::Begins } else { TokenKind::Continues }
        }
    };
    let tokens = (0..vocabulary as u32).map(kind).collect();
    let MaskSettings { share, random, kept, whole_words } = *settings;
    Ok(MaskOptions { share, random, kept, whole_words, mask, tokens })
}

impl TextObjective for MaskedTokens {
    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let names = self.files.iter().flat_map(|(name, size)| [name.clone().into_bytes(), size.to_le_bytes().to_vec()]);
        let tokens = |texts: &PackedTexts| Mark::of(texts.tokens().iter().map(|token| token.to_le_bytes()));
        vec![
            ("names and sizes of text files".to_string(), Mark::of(names)),
            ("training text".to_string(), tokens(&self.train)),
            ("validation text".to_string(), tokens(&self.validation)),
        ]
    }

    /// The mean loss over the masked tokens; logits are computed for these alone.
    fn loss(&self, graph: &mut Graph, given: &Outputs, targets: Value) -> vitreous_engine::Result<Objective> {
        let options = CrossEntropyOptions { ignored_index: Some(IGNORED), ..CrossEntropyOptions::default() };
        Ok(Objective { loss: graph.cross_entropy(given.need("logits")?, targets, options)?, outputs: Vec::new() })
    }

    fn validation_samples(&self) -> usize {
        self.validation.len().min(MOST_EVALUATED)
    }

    fn evaluated_output(&self) -> EncoderOutput {
        EncoderOutput::Masked
    }

    fn evaluate(
        &self,
        runner: &mut EncoderRunner,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Scores, TrainError> {
        let report =
            predict_masks(runner, ranks, &self.options, &self.validation, self.validation_samples(), progress)?;
        Ok(report.into_scores())
    }

    /// The vocabulary, which a run that is resumed goes on with.
    fn files(&self, encoder: &TrainedEncoder) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(encoder.tokenizer.files()?)
    }
}

/// Masks the first so many sequences, always in the same way, and measures how they are predicted.
fn predict_masks(
    runner: &mut EncoderRunner,
    ranks: &Ranks,
    options: &MaskOptions,
    texts: &PackedTexts,
    count: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<MaskedTokensReport, TrainError> {
    let mask = |row: usize| options.apply(texts.row(row), &mut Random::new(0, 0, row as u64));
    let types = vec![0; texts.length()];
    let mut measured = measure::Sums::default();
    let places: Vec<usize> = (0..count).collect();
    let chunks: Vec<&[usize]> = places.chunks(EVALUATED_AT_ONCE).collect();
    let work = |index: usize| {
        let chunk = chunks[index];
        let rows: Vec<_> = chunk.iter().map(|&row| mask(row)).collect();
        let tokens: Vec<TextTokens> =
            rows.iter().map(|(ids, at, _)| TextTokens { ids, types: &types, masked: at }).collect();
        let mut sums = measure::Sums::default();
        runner.run::<TrainError>(&tokens, |row, logits| {
            sums.add(logits, &rows[row].2);
            Ok(())
        })?;
        Ok(sums.to_parcel())
    };
    let take = |index: usize, parcel: &Parcel| {
        measured.take(parcel);
        progress(chunks[index][0] + chunks[index].len(), count);
        Ok(())
    };
    ranks.share_out(chunks.len(), work, take)?;
    Ok(measured.report(count as u64))
}

/// How well a model predicts masked tokens of plain text, in sequences of this length; at most so many of them.
pub fn evaluate_masks(
    runner: &mut EncoderRunner,
    ranks: &Ranks,
    tokenizer: &TextTokenizer,
    vocabulary: usize,
    texts: &PlainTexts,
    (length, most): (usize, usize),
    progress: &mut dyn FnMut(usize, usize),
) -> Result<MaskedTokensReport, TrainError> {
    let packed = pack(texts, tokenizer, length)?;
    if packed.is_empty() {
        return Err(TrainError::Data(format!("the text has fewer than the {length} tokens of a sequence")));
    }
    let options = mask_options(&MaskSettings::default(), tokenizer, vocabulary)?;
    predict_masks(runner, ranks, &options, &packed, packed.len().min(most), progress)
}
