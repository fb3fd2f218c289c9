//! Translation: sentence pairs through an encoder and a decoder, by teacher forcing.

mod data;
mod evaluate;
mod measure;
pub mod scores;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use toml::Table;
use vitreous_data::text::{self, EpochOrder, PADDING, PairBatch, Tokenisers};
use vitreous_engine::{CrossEntropyOptions, DType, Graph, Group, Parameter, State};
use vitreous_models::TextModel;
use vitreous_models::initial::initialise_transformer;
use vitreous_models::transformer::{PRESET_NAMES, PairShape, TransformerConfig, preset, transformer};

use crate::batch::{Array, Batch, BatchShape, Weighting};
use crate::error::TrainError;
use crate::recipe::{Recipe, RecipeError, ScheduleKind, ScheduleSettings, table_of};
use crate::scores::{Metric, Scores};
use crate::task::{Averaging, Batches, Objective, Task, TaskContext, TaskFacts, TaskType, absolute, thousands};
use crate::tasks::classify::of_saving;

pub use data::PairData;
pub use evaluate::{ShownTranslation, TranslationReport};
pub use measure::{SPECIAL, TranslatorScores, TranslatorTest, longest_side, one_line, translate_options};
pub use settings::{
    DecodingSettings, TextSettings, TokeniserChoice, TranslateDataSettings, TranslateSettings, TranslateTrainSettings,
    pair_options,
};

/// Translation.
#[derive(Debug)]
pub struct Translation;

impl TaskType for Translation {
    fn name(&self) -> &'static str {
        "translation"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &evaluate::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&Translation, &TranslateSettings::default(), &TransformerConfig::default());
        recipe.train.epochs = 20;
        recipe.data.validation_share = 0.02;
        let optimizer = &mut recipe.optimizer;
        (optimizer.betas, optimizer.eps, optimizer.weight_decay, optimizer.clip) = ([0.9, 0.98], 1e-9, 0.0, 0.0);
        recipe.schedule =
            ScheduleSettings { kind: ScheduleKind::InverseSqrt, warmup_epochs: 0.0, warmup_steps: 4000, final_lr: 0.0 };
        recipe
    }

    fn preset(&self, name: &str) -> Option<Table> {
        preset(name).map(|config| table_of(&config))
    }

    fn preset_names(&self) -> Vec<String> {
        PRESET_NAMES.map(str::to_string).to_vec()
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let (own, model): (TranslateSettings, TransformerConfig) = (recipe.own()?, recipe.model()?);
        recipe.set_own(&own);
        recipe.set_model(&model);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let (settings, model): (TranslateSettings, TransformerConfig) = (recipe.own()?, recipe.model()?);
        settings.check(recipe.output.keep, model.max_length)?;
        model.check().map_err(|refusal| RecipeError::Model(refusal.0))
    }

    fn complete_paths(&self, recipe: &mut Recipe) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            let what = "there is no data: name sentence pairs with `vitreous train translation --data DIR`";
            return Err(TrainError::Data(what.to_string()));
        }
        let path = Path::new(&recipe.data.path);
        let splits = text::open(path, &pair_options(&recipe)).map_err(|error| TrainError::Data(error.to_string()))?;
        // A run that is resumed keeps its vocabulary.
        let tokenisers = context.resumed.map(Tokenisers::open).transpose()?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let data = PairData::new(&recipe, splits, name, tokenisers)?;
        Ok(Box::new(TranslateTask::new(recipe, data, context.threads)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TranslationReport::read(evaluation)?.map(TranslationReport::into_scores))
    }
}

/// A translator that is trained.
pub struct TranslateTask {
    recipe: Recipe,
    settings: TranslateSettings,
    model: TransformerConfig,
    facts: TaskFacts,
    data: Arc<PairData>,
    threads: usize,
}

impl TranslateTask {
    /// Trains a recipe's model on these pairs.
    pub fn new(mut recipe: Recipe, data: PairData, threads: usize) -> Result<TranslateTask, TrainError> {
        let settings: TranslateSettings = recipe.own()?;
        let mut model: TransformerConfig = recipe.model()?;
        model.source_vocabulary = data.tokenisers.source.vocabulary_size();
        model.target_vocabulary = data.tokenisers.target.vocabulary_size();
        recipe.set_model(&model);
        recipe.check()?;
        let facts = facts(&settings, &data);
        Ok(TranslateTask { recipe, settings, model, facts, data: Arc::new(data), threads })
    }
}

impl Task for TranslateTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    /// The mean loss over the target tokens that count.
    fn build(&self, graph: &mut Graph, shape: &BatchShape) -> Result<Objective, TrainError> {
        let shape = pair_shape(shape);
        let logits = transformer(graph, &self.model, shape)?.logits;
        let wanted = graph.input("wanted", [shape.batch, shape.target], DType::I32)?;
        let label_smoothing = self.settings.loss.label_smoothing;
        let options = CrossEntropyOptions { label_smoothing, ignored_index: Some(PADDING as i32) };
        Ok(Objective { loss: graph.cross_entropy(logits, wanted, options)?, outputs: Vec::new() })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        let optimizer = &self.recipe.optimizer;
        let decays = optimizer.decay_all || parameter.shape.rank() > 1;
        Some(Group { decay: if decays { optimizer.weight_decay } else { 0.0 }, rate_factor: 1.0 })
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        Ok(initialise_transformer(state, self.recipe.train.seed)?)
    }

    fn batches(&self, epoch: u64, batch: usize) -> Box<dyn Batches> {
        let order = self.data.batches.epoch(epoch);
        Box::new(PairsInOrder { data: Arc::clone(&self.data), epochs: self.recipe.train.epochs, epoch, order, batch })
    }

    fn evaluate(
        &mut self,
        state: &State,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        evaluate::evaluate(self, state, progress)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.data.tokeniser_files()?;
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        TextModel::save(directory, &self.model, state, &files).map_err(of_saving)
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        self.data.tokeniser_files()
    }
}

fn facts(settings: &TranslateSettings, data: &PairData) -> TaskFacts {
    let shape = |shape: &text::BatchShape| BatchShape { rows: shape.batch, lengths: vec![shape.source, shape.target] };
    let (_, target_tokens) = data.train.tokens();
    TaskFacts {
        data: data.name.clone(),
        summary: format!(
            "{}: {} training pairs, {} validation pairs; vocabulary size {}; {} batches per epoch, {:.1} % padding",
            data.name,
            thousands(data.train.len()),
            thousands(data.validation.len()),
            thousands(data.tokenisers.target.vocabulary_size()),
            thousands(data.batches.batches_per_epoch()),
            100.0 * data.batches.padding_share()
        ),
        notes: data.notes.clone(),
        samples: data.train.len(),
        batches_per_epoch: data.batches.batches_per_epoch(),
        unit: "tokens",
        // Each target has an end token, too.
        units_per_epoch: (target_tokens + data.train.len()) as u64,
        shapes: data.batches.shapes().iter().map(shape).collect(),
        weighting: Weighting::ByUnits,
        batch_size: ("train.tokens", settings.train.tokens),
        averaging: Averaging { checkpoints: settings.train.average, ..Averaging::default() },
    }
}

/// The lengths of source and target of a batch.
fn pair_shape(shape: &BatchShape) -> PairShape {
    let length = |index: usize| shape.lengths.get(index).copied().unwrap_or(1);
    PairShape { batch: shape.rows, source: length(0), target: length(1) }
}

/// Batches of pairs in the order of each epoch.
struct PairsInOrder {
    data: Arc<PairData>,
    epochs: u64,
    epoch: u64,
    order: EpochOrder,
    /// The next batch of the epoch.
    batch: usize,
}

impl Batches for PairsInOrder {
    fn next(&mut self) -> Result<Option<Batch>, TrainError> {
        if self.batch >= self.order.len() && self.epoch + 1 < self.epochs {
            self.epoch += 1;
            (self.order, self.batch) = (self.data.batches.epoch(self.epoch), 0);
        }
        if self.batch >= self.order.len() || self.epoch >= self.epochs {
            return Ok(None);
        }
        let batch = self.order.batch(self.batch, &self.data.train);
        self.batch += 1;
        Ok(Some(named(batch)))
    }
}

/// A batch of pairs as named arrays.
fn named(batch: PairBatch) -> Batch {
    let PairBatch { shape, source, source_lengths, target, wanted, tokens, .. } = batch;
    Batch {
        shape: BatchShape { rows: shape.batch, lengths: vec![shape.source, shape.target] },
        inputs: vec![
            ("source", Array::I32(source)),
            ("source_lengths", Array::I32(source_lengths)),
            ("target", Array::I32(target)),
            ("wanted", Array::I32(wanted)),
        ],
        units: tokens as u64,
    }
}
