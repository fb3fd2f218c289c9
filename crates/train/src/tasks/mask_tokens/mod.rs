//! Masked-language pre-training: an encoder learns to predict masked tokens of plain text.

mod measure;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::loader::{ArraySpec, BatchSource};
use vitreous_data::random::Random;
use vitreous_data::text::{
    IGNORED, MaskOptions, MaskedBatches, PackedTexts, PlainTexts, TextTokenizer, TokenKind, VocabularyKind, open_plain,
};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, State, WeightView};
use vitreous_models::encode::{EncoderOutput, EncoderRunner, TextTokens};
use vitreous_models::{
    Architecture, Call, Head, Initialisation, Model, OpenOptions, SaveOptions, Settings, initialise,
};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::groups::{TrainedParts, block_count, group_of};
use crate::recipe::{Recipe, RecipeError, ScheduleKind};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
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

impl TaskType for MaskedLanguage {
    fn name(&self) -> &'static str {
        "masked-language"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&MaskedLanguage, &MaskTokensSettings::default());
        recipe.train.epochs = 1;
        recipe.data.validation_share = 0.01;
        let optimizer = &mut recipe.optimizer;
        (optimizer.lr, optimizer.betas, optimizer.eps) = (5e-4, [0.9, 0.98], 1e-6);
        (optimizer.weight_decay, optimizer.clip) = (0.01, 1.0);
        recipe.schedule.kind = ScheduleKind::Linear;
        recipe.schedule.warmup_epochs = 0.05;
        recipe
    }

    fn usual_family(&self) -> &'static str {
        "bert"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.tokens() {
            Some(_) => Ok(()),
            None => {
                Err(format!("this is {}, but masked tokens are predicted by an encoder of texts", signature.what()))
            }
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: MaskTokensSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        recipe.own::<MaskTokensSettings>()?.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: MaskTokensSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            let what =
                "there is no data: name a text file, or a folder of them, with `vitreous train bert --data FILE`";
            return Err(TrainError::Data(what.to_string()));
        }
        let texts = open_plain(Path::new(&recipe.data.path)).map_err(|error| TrainError::Data(error.to_string()))?;
        // A run that is resumed keeps its vocabulary.
        let tokenizer = context.resumed.map(TextTokenizer::open).transpose()?;
        Ok(Box::new(MaskTokensTask::new(recipe, &texts, tokenizer, context.device)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(MaskedTokensReport::read(evaluation)?.map(MaskedTokensReport::into_scores))
    }
}

/// An encoder that is pre-trained.
pub struct MaskTokensTask {
    recipe: Recipe,
    facts: TaskFacts,
    model: Model,
    tokenizer: TextTokenizer,
    /// Whether the model has values to start from.
    is_pretrained: bool,
    files: Vec<(String, u64)>,
    train: Arc<PackedTexts>,
    validation: PackedTexts,
    options: MaskOptions,
    batches: Arc<MaskedBatches>,
    blocks: usize,
    device: Device,
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
        let init = settings.finetune.init.clone();
        let tokenizer = match (tokenizer, init.as_str()) {
            (Some(tokenizer), _) => tokenizer,
            (None, "") => learn(&settings.text, texts)?,
            (None, init) => TextTokenizer::open(Path::new(init))?,
        };
        let model = open_model(&mut recipe, &init, tokenizer.vocabulary_size())?;
        let input = model.architecture.signature().tokens();
        let input = input.ok_or_else(|| TrainError::Data("this model takes no single texts".to_string()))?;
        let length = settings.text.max_tokens;
        if length > input.longest {
            let what = format!("text.max_tokens is {length}, but the model reads {} at most: lower it", input.longest);
            return Err(TrainError::Data(what));
        }
        let mut train = pack(texts, &tokenizer, length)?;
        let drawn = (train.len() as f64 * recipe.data.validation_share).round() as usize;
        let validation = train.split_off(drawn);
        let options = mask_options(&settings.mask, &tokenizer, input.vocabulary)?;
        let train = Arc::new(train);
        let batch = settings.train.batch;
        let has_types = input.token_types > 1;
        let seed = recipe.train.seed;
        let batches = Arc::new(MaskedBatches::new(train.clone(), options.clone(), batch, has_types, seed));
        let facts =
            facts(&settings, (&recipe.data.path, texts), &train, &validation, (&options, &batches), &tokenizer)?;
        let (blocks, device) = (block_count(model.parameters()), device.clone());
        let files = texts.files().iter().map(|file| (file.name.clone(), file.bytes)).collect();
        let is_pretrained = !init.is_empty();
        Ok(MaskTokensTask {
            recipe,
            facts,
            model,
            tokenizer,
            is_pretrained,
            files,
            train,
            validation,
            options,
            batches,
            blocks,
            device,
        })
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
    let model = match init {
        "" => {
            let size = Settings::from_iter([("vocabulary".to_string(), vocabulary.into())]);
            recipe.change_model(&size)?;
            let head = recipe.architecture()?.with_head(Head::MaskedTokens);
            Model::new(head.map_err(|error| RecipeError::Model(error.0))?, Vec::new())?
        }
        init => {
            let own = Model::open(Path::new(init), &OpenOptions::default())?;
            recipe.task.check_model(own.architecture.as_ref()).map_err(TrainError::Data)?;
            // A head that is there goes on, too.
            let has_head = own.architecture.signature().masked_tokens().is_some();
            let replace_head = (!has_head).then_some(Head::MaskedTokens);
            Model::open(Path::new(init), &OpenOptions { replace_head, ..OpenOptions::default() })?
        }
    };
    recipe.set_architecture(model.architecture.as_ref());
    recipe.check()?;
    Ok(model)
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

impl Task for MaskTokensTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
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

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    /// The mean loss over the masked tokens; logits are computed for these alone.
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let shape = |name: &str| arrays.iter().find(|array| array.name == name).map_or(&[][..], |array| &array.shape);
        let (&[rows, length], &[masked]) = (shape("tokens"), shape("masked")) else {
            return Err(TrainError::Data("a batch has no masked tokens".to_string()));
        };
        let call = Call::whole(rows).tokens(length).masked(masked);
        let logits = self.model.architecture.build(graph, &call)?.need("logits")?;
        let targets = graph.input("targets", [masked], DType::I32)?;
        let options = CrossEntropyOptions { ignored_index: Some(IGNORED), ..CrossEntropyOptions::default() };
        Ok(Objective { loss: graph.cross_entropy(logits, targets, options)?, outputs: Vec::new() })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        group_of(&self.recipe.optimizer, TrainedParts::default(), self.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        if self.is_pretrained {
            self.model.load(state)?;
        }
        let is_new = |parameter: &Parameter| self.model.is_new(&parameter.name);
        initialise(state, Initialisation::TruncatedNormal, self.recipe.train.seed, &is_new)?;
        state.start_average();
        Ok(())
    }

    fn evaluate(
        &mut self,
        state: &State,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        let count = self.validation.len().min(MOST_EVALUATED);
        if count == 0 {
            return Ok(None);
        }
        let weights = Box::new(|name: &str| state.parameter(name).map(WeightView::from));
        let (architecture, precision) = (self.model.architecture.as_ref(), self.recipe.train.precision.into());
        let mut runner = EncoderRunner::new(architecture, EncoderOutput::Masked, precision, &self.device, weights)?;
        let report = predict_masks(&mut runner, &self.options, &self.validation, count, progress)?;
        Ok(Some(report.into_scores()))
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.tokenizer.files()?;
        let options = SaveOptions { state: Some(state), widen: true, files: &files, ..SaveOptions::default() };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(self.tokenizer.files()?)
    }
}

/// Masks the first so many sequences, always in the same way, and measures how they are predicted.
fn predict_masks(
    runner: &mut EncoderRunner,
    options: &MaskOptions,
    texts: &PackedTexts,
    count: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<MaskedTokensReport, TrainError> {
    let mask = |row: usize| options.apply(texts.row(row), &mut Random::new(0, 0, row as u64));
    let types = vec![0; texts.length()];
    let mut measured = measure::Sums::default();
    let places: Vec<usize> = (0..count).collect();
    for chunk in places.chunks(EVALUATED_AT_ONCE) {
        let rows: Vec<_> = chunk.iter().map(|&row| mask(row)).collect();
        let tokens: Vec<TextTokens> =
            rows.iter().map(|(ids, at, _)| TextTokens { ids, types: &types, masked: at }).collect();
        runner.run::<TrainError>(&tokens, |row, logits| {
            measured.add(logits, &rows[row].2);
            Ok(())
        })?;
        progress(chunk[0] + chunk.len(), count);
    }
    Ok(measured.report(count as u64))
}

/// How well a model predicts masked tokens of plain text, in sequences of this length; at most so many of them.
pub fn evaluate_masks(
    runner: &mut EncoderRunner,
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
    predict_masks(runner, &options, &packed, packed.len().min(most), progress)
}

fn facts(
    settings: &MaskTokensSettings,
    (path, texts): (&str, &PlainTexts),
    train: &PackedTexts,
    validation: &PackedTexts,
    (options, batches): (&MaskOptions, &MaskedBatches),
    tokenizer: &TextTokenizer,
) -> Result<TaskFacts, TrainError> {
    let (count, batch) = (batches.batches_per_epoch(), settings.train.batch);
    if count == 0 {
        let what = format!("a batch of {batch} is more than the {} training sequences; lower train.batch", train.len());
        return Err(TrainError::Data(what));
    }
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy()).into_owned();
    Ok(TaskFacts {
        data: name.clone(),
        summary: format!(
            "{name}: {} training sequences and {} validation sequences of {} tokens; vocabulary size {}",
            thousands(train.len()),
            thousands(validation.len()),
            train.length(),
            thousands(tokenizer.vocabulary_size()),
        ),
        notes: texts.notes().to_vec(),
        samples: train.len(),
        unit: "masked tokens",
        units_per_epoch: (count * batch * options.count(train.length())) as u64,
        loader_threads: 1,
        weighting: Weighting::ByUnits,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1],
        averaging: Averaging::default(),
    })
}
