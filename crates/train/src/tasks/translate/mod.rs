//! Translation: sentence pairs through an encoder and a decoder, by teacher forcing.

mod data;
mod evaluate;
mod measure;
pub mod scores;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::loader::{ArraySpec, BatchSource};
use vitreous_data::text::{self, PADDING, Tokenisers};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, State};
use vitreous_models::{Architecture, Call, Initialisation, Model, SaveOptions, Settings, WeightType, initialise};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::groups::{TrainedParts, block_count, group_of};
use crate::ranks::Ranks;
use crate::recipe::{Recipe, RecipeError, ScheduleKind, ScheduleSettings};
use crate::scores::{Metric, Scores};
use crate::task::{Averaging, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, thousands};

pub use data::PairData;
pub(crate) use evaluate::{BLEU, CHRF};
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
        let mut recipe = Recipe::new(&Translation, &TranslateSettings::default());
        recipe.train.epochs = 20;
        recipe.data.validation_share = 0.02;
        let optimizer = &mut recipe.optimizer;
        (optimizer.betas, optimizer.eps, optimizer.weight_decay, optimizer.clip) = ([0.9, 0.98], 1e-9, 0.0, 0.0);
        recipe.schedule =
            ScheduleSettings { kind: ScheduleKind::InverseSqrt, warmup_epochs: 0.0, warmup_steps: 4000, final_lr: 0.0 };
        recipe
    }

    fn usual_family(&self) -> &'static str {
        "transformer"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.pairs() {
            Some(_) => Ok(()),
            None => Err(format!("this is {}, but translation needs an encoder and a decoder", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: TranslateSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let settings: TranslateSettings = recipe.own()?;
        let signature = recipe.architecture()?.signature();
        let longest = signature.pairs().map_or(usize::MAX, |(source, target)| source.longest.min(target.longest));
        settings.check(recipe.output.keep, longest)
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
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
        Ok(Box::new(TranslateTask::new(recipe, data, context.device)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TranslationReport::read(evaluation)?.map(TranslationReport::into_scores))
    }
}

/// A translator that is trained.
pub struct TranslateTask {
    recipe: Recipe,
    settings: TranslateSettings,
    model: Model,
    facts: TaskFacts,
    data: PairData,
    /// What it is evaluated on.
    device: Device,
    /// Blocks of the model, for layer-wise learning rates.
    blocks: usize,
}

impl TranslateTask {
    /// Trains a recipe's model on these pairs.
    pub fn new(mut recipe: Recipe, data: PairData, device: &Device) -> Result<TranslateTask, TrainError> {
        let settings: TranslateSettings = recipe.own()?;
        let sizes = [
            ("source_vocabulary", data.tokenisers.source.vocabulary_size()),
            ("target_vocabulary", data.tokenisers.target.vocabulary_size()),
        ];
        let sizes = Settings::from_iter(sizes.map(|(key, size)| (key.to_string(), size.into())));
        recipe.change_model(&sizes)?;
        recipe.check()?;
        let model = Model::new(recipe.architecture()?, Vec::new())?;
        let (facts, blocks) = (facts(&settings, &data), block_count(model.parameters()));
        Ok(TranslateTask { recipe, settings, model, facts, data, device: device.clone(), blocks })
    }
}

impl Task for TranslateTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let PairData { train, validation, .. } = &self.data;
        let tokens = (0..train.len()).flat_map(|index| [train.source(index), train.target(index)]);
        let training =
            Mark::of(tokens.map(|tokens| tokens.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()));
        let validation = Mark::of(validation.iter().flat_map(|pair| [&pair.source, &pair.target]));
        vec![("training pairs".to_string(), training), ("validation pairs".to_string(), validation)]
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.data.batches.clone()
    }

    /// The mean loss over the target tokens that count.
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let axis = |name: &str, axis: usize| {
            let array = arrays.iter().find(|array| array.name == name);
            array.and_then(|array| array.shape.get(axis)).copied().unwrap_or(0)
        };
        let (rows, source, target) = (axis("source", 0), axis("source", 1), axis("wanted", 1));
        let call = Call::whole(rows).tokens(source).target(target);
        let logits = self.model.architecture.build(graph, &call)?.need("logits")?;
        let wanted = graph.input("wanted", [rows, target], DType::I32)?;
        let label_smoothing = self.settings.loss.label_smoothing;
        let options =
            CrossEntropyOptions { label_smoothing, ignored_index: Some(PADDING as i32), ..Default::default() };
        Ok(Objective { loss: graph.cross_entropy(logits, wanted, options)?, outputs: Vec::new() })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        group_of(&self.recipe.optimizer, TrainedParts::default(), self.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        Ok(initialise(state, Initialisation::Xavier, self.recipe.train.seed, &|_| true)?)
    }

    fn evaluation_bytes(&self, _rows: usize) -> Result<usize, TrainError> {
        match self.device.is_gpu() && !self.data.validation.is_empty() {
            true => evaluate::gpu_bytes(self),
            false => Ok(0),
        }
    }

    fn evaluate(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        evaluate::evaluate(self, state, ranks, progress)
    }

    fn shares_evaluation(&self) -> bool {
        true
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.data.tokeniser_files()?;
        let options =
            SaveOptions { state: Some(state), weights: Some(WeightType::F32), files: &files, ..SaveOptions::default() };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        self.data.tokeniser_files()
    }
}

fn facts(settings: &TranslateSettings, data: &PairData) -> TaskFacts {
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
        unit: "tokens",
        // Each target has an end token, too.
        units_per_epoch: (target_tokens + data.train.len()) as u64,
        // Tokens are quickly put into batches.
        loader_threads: 1,
        weighting: Weighting::ByUnits,
        batch_size: ("train.tokens", settings.train.tokens),
        row_sizes: data.batches.shapes().iter().map(|shape| shape.source.max(shape.target)).collect(),
        averaging: Averaging { checkpoints: settings.train.average, ..Averaging::default() },
    }
}
