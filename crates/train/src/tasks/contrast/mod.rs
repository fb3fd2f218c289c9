//! Models of images and texts from pairs of both (CLIP, SigLIP): each image must find its caption among those of its batch, and each caption
//! its image. A batch may go through the model in chunks, with the same gradients ([`ChunkedLoss`]).

mod evaluate;
mod measure;
mod model;
mod settings;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::dataset::{CaptionSplits, Dataset, OpenCaptions, open_captions};
use vitreous_data::image::augment::Augment;
use vitreous_data::image::{CaptionBatches, CaptionTargets, ImageBatchOptions, ImageForm, ImageTargets, Preparation};
use vitreous_data::loader::{ArraySpec, Batch, BatchSource, BrokenSample};
use vitreous_engine::{CrossEntropyOptions, DType, Graph, Group, Parameter, State, Value};
use vitreous_models::families::clip::scaled_cosines;
use vitreous_models::{Architecture, Call, CaptionToken, Initialisation};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::groups::{TrainedParts, block_count, group_of};
use crate::ranks::Ranks;
use crate::recipe::{Recipe, RecipeError};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Chunked, ChunkedLoss, Correct, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute,
    pretrained, thousands,
};
use crate::tasks::classify::InitChoice;

use evaluate::Evaluator;
use model::{ContrastModel, KEPT_SETTINGS, LARGEST_SCALE};

pub use measure::{ContrastReport, Recall, recalls, zero_shot};
pub use settings::{
    ContrastDataSettings, ContrastEvaluationSettings, ContrastFinetuneSettings, ContrastLossSettings, ContrastSettings,
    ContrastTextSettings, ContrastTrainSettings,
};

/// Models of images and texts.
#[derive(Debug)]
pub struct Contrast;

impl TaskType for Contrast {
    fn name(&self) -> &'static str {
        "image-text"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        Recipe::new(&Contrast, &ContrastSettings::default())
    }

    fn usual_family(&self) -> &'static str {
        "clip"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.images_and_texts() {
            Some(_) => Ok(()),
            None => Err(format!("this is {}, but captions need a model of images and texts", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: ContrastSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let settings: ContrastSettings = recipe.own()?;
        settings.check()?;
        match settings.finetune.init.is_empty() {
            true => recipe.architecture().map(|_| ()),
            false => Ok(()),
        }
    }

    fn complete(&self, recipe: &mut Recipe, overrides: &[String]) -> Result<(), TrainError> {
        if recipe.data.path.is_empty() {
            let what = "name pairs of images and captions with `vitreous train clip --data PAIRS`";
            return Err(TrainError::Data(what.to_string()));
        }
        recipe.data.path = absolute(&recipe.data.path)?;
        let mut settings: ContrastSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            let mut keys = overrides.iter().filter_map(|pair| pair.split_once('=')?.0.trim().strip_prefix("model."));
            if let Some(key) = keys.find(|key| !KEPT_SETTINGS.contains(key)) {
                return Err(TrainError::Data(format!(
                    "`model.{key}` is a setting of the pretrained model; with --init only {} can be set",
                    KEPT_SETTINGS.map(|key| format!("model.{key}")).join(", ")
                )));
            }
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let settings: ContrastSettings = recipe.own()?;
        let options = OpenCaptions {
            validation_share: recipe.data.validation_share,
            keep_bytes: settings.data.keep_mib.saturating_mul(1 << 20),
        };
        let splits = open_captions(Path::new(&recipe.data.path), &options)
            .map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(ContrastTask::new(recipe, splits, context)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(ContrastReport::read(evaluation)?.map(ContrastReport::into_scores))
    }
}

/// A model of images and texts that is trained.
pub struct ContrastTask {
    recipe: Recipe,
    settings: ContrastSettings,
    facts: TaskFacts,
    splits: CaptionSplits,
    model: ContrastModel,
    batches: Arc<CaptionBatches>,
    evaluator: Evaluator,
    /// Tokens of a caption, with padding.
    length: usize,
    /// Blocks of the model, for layer-wise learning rates.
    blocks: usize,
}

impl ContrastTask {
    /// Trains a recipe's model on these pairs.
    pub fn new(mut recipe: Recipe, splits: CaptionSplits, context: &TaskContext) -> Result<ContrastTask, TrainError> {
        let settings: ContrastSettings = recipe.own()?;
        let model = ContrastModel::new(&mut recipe, &settings, &splits.train, context.resumed)?;
        let encoded = model.encode(&splits.train.captions)?;
        let truncated = encoded.iter().filter(|caption| caption.truncated).count();
        let tokens = model.tokens(&encoded);
        let length = tokens.length;
        let options = ImageBatchOptions {
            dataset: splits.train.images.clone(),
            preparation: Preparation::Augmented(Box::new(Augment::new(&settings.augment, &model.preprocess)?)),
            form: ImageForm::Prepared,
            mixer: None,
            shape: model.shape(),
            classes: splits.classes.len().max(1),
            targets: ImageTargets::Class,
            batch: settings.train.batch,
            seed: recipe.train.seed,
            shuffle: true,
        };
        let targets = match (settings.loss.same_captions, model.captions.pooled) {
            (false, _) => CaptionTargets::Own,
            (true, CaptionToken::End(_) | CaptionToken::Largest) => CaptionTargets::SharedBySame,
            (true, CaptionToken::Last { .. }) => CaptionTargets::AllOfSame,
        };
        let facts = facts(&settings, &splits, options.batches_per_epoch(), (truncated, length))?;
        let batches = Arc::new(CaptionBatches::new(options, tokens, targets));
        let evaluator = Evaluator::new(&settings, recipe.train.precision.into(), &splits, &model, context.device)?;
        let blocks = block_count(model.model.parameters());
        Ok(ContrastTask { recipe, settings, facts, splits, model, batches, evaluator, length, blocks })
    }

    fn is_sigmoid(&self) -> bool {
        matches!(self.model.captions.pooled, CaptionToken::Last { .. })
    }

    /// The vectors of some pairs, and the numbers that the loss needs.
    fn vectors(&self, graph: &mut Graph, rows: usize) -> Result<Chunked, TrainError> {
        let call = Call::whole(rows).tokens(self.length);
        let outputs = self.model.model.architecture.build(graph, &call)?;
        let vectors = vec![outputs.need("image_embeddings")?, outputs.need("text_embeddings")?];
        let mut numbers = vec![graph.find("logit_scale")?];
        if self.is_sigmoid() {
            numbers.push(graph.find("logit_bias")?);
        }
        Ok(Chunked { vectors, numbers })
    }

    /// Cross-entropy of images over captions and of captions over images; or binary cross-entropy of every pair.
    fn loss(&self, graph: &mut Graph, vectors: &[Value], numbers: &[Value]) -> Result<Objective, TrainError> {
        let (images, texts) = (vectors[0], vectors[1]);
        let rows = graph.shape_of(images).rows();
        let scale = at_most(graph, numbers[0], LARGEST_SCALE)?;
        let bias = numbers.get(1).copied();
        let logits = scaled_cosines(graph, images, texts, scale, bias)?;
        let targets = match self.settings.loss.same_captions {
            true => graph.input("targets", [rows, rows], DType::F32)?,
            false => {
                let own = (0..rows * rows).map(|at| if at % (rows + 1) == 0 { 1.0 } else { 0.0 }).collect();
                graph.constant("own", [rows, rows], own)?
            }
        };
        let loss = match self.is_sigmoid() {
            true => graph.binary_cross_entropy(logits, targets, true)?,
            false => {
                // Which captions are the same does not depend on the direction: the targets are symmetric.
                let by_text = scaled_cosines(graph, texts, images, scale, bias)?;
                let options = CrossEntropyOptions::default();
                let of_images = graph.cross_entropy(logits, targets, options)?;
                let of_texts = graph.cross_entropy(by_text, targets, options)?;
                let both = graph.add(of_images, of_texts)?;
                graph.scale(both, 0.5)?
            }
        };
        Ok(Objective { loss, outputs: vec![logits] })
    }
}

/// `min(x, most)`, as `most - relu(most - x)`: where x is larger, it gets no gradient.
fn at_most(graph: &mut Graph, x: Value, most: f32) -> vitreous_engine::Result<Value> {
    let limit = graph.constant("limit", [1], vec![most])?;
    let negative = graph.scale(x, -1.0)?;
    let left = graph.add(negative, limit)?;
    let left = graph.relu(left)?;
    let left = graph.scale(left, -1.0)?;
    graph.add(left, limit)
}

impl ChunkedLoss for ContrastTask {
    fn chunk_rows(&self) -> usize {
        self.settings.train.chunk
    }

    fn build_chunk(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Chunked, TrainError> {
        self.vectors(graph, rows_of(arrays))
    }

    fn build_loss(&self, graph: &mut Graph, vectors: &[Value], numbers: &[Value]) -> Result<Objective, TrainError> {
        self.loss(graph, vectors, numbers)
    }
}

fn rows_of(arrays: &[ArraySpec]) -> usize {
    arrays.first().and_then(|array| array.shape.first()).copied().unwrap_or(0)
}

impl Task for ContrastTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let names =
            |images: &Arc<dyn Dataset>| Mark::of((0..images.len()).map(|index| images.content_mark(index).to_string()));
        vec![
            ("training captions".to_string(), Mark::of(&self.splits.train.captions)),
            ("validation captions".to_string(), Mark::of(&self.splits.validation.captions)),
            ("training images".to_string(), names(&self.splits.train.images)),
            ("validation images".to_string(), names(&self.splits.validation.images)),
        ]
    }

    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let Chunked { vectors, numbers } = self.vectors(graph, rows_of(arrays))?;
        self.loss(graph, &vectors, &numbers)
    }

    fn chunked(&self) -> Option<&dyn ChunkedLoss> {
        let chunk = self.settings.train.chunk;
        if chunk > 0 && chunk < self.settings.train.batch { Some(self) } else { None }
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        group_of(&self.recipe.optimizer, TrainedParts::default(), self.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        let scheme = match self.settings.train.init {
            InitChoice::Xavier => Initialisation::Xavier,
            InitChoice::TruncatedNormal => Initialisation::TruncatedNormal,
            InitChoice::Pytorch => Initialisation::PyTorch,
            InitChoice::Jax => Initialisation::Jax,
        };
        self.model.initialise(scheme, self.recipe.train.seed, state)
    }

    /// An image is right where its caption, or one with the same words, has the largest logit.
    fn correct(&self, batch: &Batch, outputs: &[&[f32]]) -> Option<Correct> {
        let logits = outputs.first()?;
        let rows = batch.samples.len();
        let caption = |row: usize| &self.splits.train.captions[batch.samples[row]];
        let is_right = |&row: &usize| {
            let own = &logits[row * rows..][..rows];
            let best = (0..rows).max_by(|&a, &b| own[a].total_cmp(&own[b])).unwrap_or(row);
            best == row || (self.settings.loss.same_captions && caption(best) == caption(row))
        };
        Some(Correct { right: (0..rows).filter(is_right).count() as u64, total: rows as u64 })
    }

    fn evaluate(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        self.evaluator.run(state, ranks, progress)
    }

    fn shares_evaluation(&self) -> bool {
        true
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.model.save(directory, state)
    }

    /// The tokenizer, which a run that is resumed goes on with.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(self.model.tokenizer.files()?)
    }

    fn unreadable(&self) -> Vec<BrokenSample> {
        self.evaluator.unreadable().to_vec()
    }
}

fn facts(
    settings: &ContrastSettings,
    splits: &CaptionSplits,
    batches: usize,
    (truncated, length): (usize, usize),
) -> Result<TaskFacts, TrainError> {
    let (batch, samples) = (settings.train.batch, splits.train.captions.len());
    if batches == 0 {
        let what = format!("a batch of {batch} is more than the {samples} training pairs; lower train.batch");
        return Err(TrainError::Data(what));
    }
    let mut notes = splits.notes.clone();
    if truncated > 0 {
        notes.push(format!(
            "{truncated} captions are longer than the {length} tokens that the model reads; the rest is not read"
        ));
    }
    let different = splits.train.captions.iter().collect::<BTreeSet<_>>().len();
    let classes = match splits.classes.len() {
        0 => String::new(),
        classes => format!(", {classes} classes to name"),
    };
    Ok(TaskFacts {
        data: "images with captions".to_string(),
        summary: format!(
            "images with captions: {} training pairs with {} different captions, {} validation pairs{classes}",
            thousands(samples),
            thousands(different),
            thousands(splits.validation.captions.len()),
        ),
        notes,
        samples,
        unit: "pairs",
        units_per_epoch: (batches * batch) as u64,
        loader_threads: settings.loader_threads(),
        weighting: Weighting::Equal,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1],
        averaging: Averaging { ema: settings.train.ema, ema_warmup: settings.train.ema_warmup, checkpoints: 1 },
    })
}
