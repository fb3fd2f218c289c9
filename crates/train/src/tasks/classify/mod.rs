//! Image classification: images in, one class or several out.

mod classifier;
mod evaluate;
mod inputs;
pub mod metrics;
mod report;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::dataset::{self, DatasetError, OpenDataset, Splits};
use vitreous_data::download::KNOWN_NAMES;
use vitreous_data::image::augment::{Augment, Mixer};
use vitreous_data::image::{Channels, ImageBatchOptions, ImageBatches, ImageForm, ImageTargets, Preparation};
use vitreous_data::loader::{ArraySpec, Batch, BatchSource, BrokenSample};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, State, Value};
use vitreous_models::Architecture;

use crate::error::TrainError;
use crate::fingerprint::{Mark, of_images};
use crate::groups::block_count;
use crate::ranks::Ranks;
use crate::recipe::{LossKind, Recipe, RecipeError};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Correct, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
};

use classifier::{Classifier, KEPT_SETTINGS};
use evaluate::Evaluator;
use inputs::{form_for, logits};
pub use report::{ClassifyReport, LabelMetrics};
pub use settings::{
    ClassifyDataSettings, ClassifySettings, ClassifyTrainSettings, Filter, FinetuneSettings, Fit, InitChoice,
    PreprocessSettings,
};

/// The value of `data.path` for the images inside the program.
pub const BUILTIN: &str = "builtin";

/// Image classification.
#[derive(Debug)]
pub struct Classification;

impl TaskType for Classification {
    fn name(&self) -> &'static str {
        "classification"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &report::METRICS
    }

    /// Version 0.1 drew validation images by their names alone.
    fn values_of_old_runs(&self) -> &'static [(&'static str, &'static str)] {
        &[("data.validation_rule", "by_name")]
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&Classification, &ClassifySettings::default());
        recipe.data.path = BUILTIN.to_string();
        recipe
    }

    fn usual_family(&self) -> &'static str {
        "vit"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.images() {
            Some(_) => Ok(()),
            None => Err(format!("this is {}, but classification of images needs a model for images", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: ClassifySettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let settings: ClassifySettings = recipe.own()?;
        settings.check()?;
        // A pretrained model replaces this one, and is checked when it is opened.
        match settings.finetune.init.is_empty() {
            true => recipe.architecture().map(|_| ()),
            false => Ok(()),
        }
    }

    fn complete(&self, recipe: &mut Recipe, overrides: &[String]) -> Result<(), TrainError> {
        if recipe.data.path != BUILTIN {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: ClassifySettings = recipe.own()?;
        let init = &mut settings.finetune.init;
        if !init.is_empty() {
            refuse_replaced(overrides)?;
            *init = pretrained(init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let splits = open_images(&recipe).map_err(|error| {
            let name = Path::new(&recipe.data.path).file_name().unwrap_or_default();
            let hint = match KNOWN_NAMES.iter().find(|known| name == **known) {
                Some(name) => format!("; `vitreous data get {name}` downloads it, --data PATH names other data"),
                None => "; --data PATH names the data".to_string(),
            };
            TrainError::Data(format!("{error}{hint}"))
        })?;
        Ok(Box::new(ClassifyTask::new(recipe, splits, context.device)?))
    }

    fn images(&self, recipe: &Recipe) -> Option<Result<Splits, String>> {
        Some(open_images(recipe).map_err(|error| error.to_string()))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(ClassifyReport::read(evaluation)?.map(ClassifyReport::into_scores))
    }
}

/// Refuses overrides of settings that a pretrained model replaces: they would have no effect.
fn refuse_replaced(overrides: &[String]) -> Result<(), TrainError> {
    let mut keys = overrides.iter().filter_map(|pair| pair.split_once('=')?.0.trim().strip_prefix("model."));
    match keys.find(|key| !KEPT_SETTINGS.contains(key)) {
        None => Ok(()),
        Some(key) => Err(TrainError::Data(format!(
            "`model.{key}` is a setting of the pretrained model; with --init only {} can be set",
            KEPT_SETTINGS.map(|key| format!("model.{key}")).join(", ")
        ))),
    }
}

/// The images that a recipe names.
fn open_images(recipe: &Recipe) -> Result<Splits, DatasetError> {
    if recipe.data.path == BUILTIN {
        return Ok(dataset::builtin());
    }
    let ClassifySettings { data, .. } = recipe.own().unwrap_or_default();
    let options = OpenDataset {
        validation_share: recipe.data.validation_share,
        validation_rule: data.validation_rule,
        labels: Some(data.labels).filter(|labels| !labels.is_empty()),
        keep_bytes: data.keep_mib.saturating_mul(1 << 20),
    };
    dataset::open(Path::new(&recipe.data.path), &options)
}

/// The augmentation and the mixing of a recipe, for images of its model's size; `None` if its task is another.
pub fn augmentation(recipe: &Recipe) -> Option<Result<(Augment, Option<Mixer>), TrainError>> {
    (recipe.task.name() == Classification.name()).then(|| {
        let settings: ClassifySettings = recipe.own()?;
        let images = recipe.architecture()?.signature().images().cloned();
        let images = images.ok_or_else(|| TrainError::Data("this model takes no images".to_string()))?;
        let channels = Channels::from_count(images.channels).unwrap_or(Channels::Rgb);
        let preprocess = settings.preprocess.preprocess([images.size.height, images.size.width], channels);
        Ok((Augment::new(&settings.augment, &preprocess)?, Mixer::new(&settings.augment)?))
    })
}

/// A classifier that is trained.
pub struct ClassifyTask {
    recipe: Recipe,
    settings: ClassifySettings,
    facts: TaskFacts,
    splits: Splits,
    classifier: Classifier,
    training: ImageBatchOptions,
    evaluator: Evaluator,
    /// Blocks of the model, for layer-wise learning rates.
    blocks: usize,
}

impl ClassifyTask {
    /// Trains a recipe's model on these images.
    pub fn new(mut recipe: Recipe, splits: Splits, device: &Device) -> Result<ClassifyTask, TrainError> {
        let settings: ClassifySettings = recipe.own()?;
        let classifier = Classifier::new(&mut recipe, &settings, &splits)?;
        let several = match settings.loss.kind {
            LossKind::Auto => splits.several_labels,
            kind => kind == LossKind::BinaryCrossEntropy,
        };
        if splits.several_labels && !several {
            let what = "images have several labels here: `loss.kind` must be \"binary_cross_entropy\"";
            return Err(TrainError::Data(what.to_string()));
        }
        let training = training_options(&recipe, &settings, &splits, &classifier, several, form_for(device))?;
        let facts = facts(&settings, &splits, &training)?;
        let precision = recipe.train.precision.into();
        let evaluator = Evaluator::new(&settings, precision, &splits, &classifier, device)?;
        let blocks = block_count(classifier.model.parameters());
        Ok(ClassifyTask { recipe, settings, facts, splits, classifier, training, evaluator, blocks })
    }

    /// Takes training batches in this form, whatever suits the device.
    pub fn in_form(mut self, form: ImageForm) -> ClassifyTask {
        self.training.form = form;
        self
    }

    fn loss(&self, graph: &mut Graph, logits: Value, rows: usize) -> vitreous_engine::Result<Value> {
        let classes = self.training.classes;
        match self.training.targets {
            ImageTargets::Class => {
                let targets = graph.input("targets", [rows], DType::I32)?;
                let label_smoothing = self.settings.loss.label_smoothing;
                let options = CrossEntropyOptions { label_smoothing, ..CrossEntropyOptions::default() };
                graph.cross_entropy(logits, targets, options)
            }
            // The loader has smoothed these.
            ImageTargets::Probabilities { .. } => {
                let targets = graph.input("targets", [rows, classes], DType::F32)?;
                graph.cross_entropy(logits, targets, CrossEntropyOptions::default())
            }
            ImageTargets::MultiLabel { .. } => {
                let targets = graph.input("targets", [rows, classes], DType::F32)?;
                graph.binary_cross_entropy(logits, targets, false)
            }
        }
    }
}

impl Task for ClassifyTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let mut marks = vec![("class names".to_string(), Mark::of(&self.splits.classes))];
        for (which, images) in [("training", &self.splits.train), ("validation", &self.splits.validation)] {
            marks.extend(of_images(which, images.as_ref()));
        }
        marks
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        Arc::new(ImageBatches::new(self.training.clone()))
    }

    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let rows = arrays.first().and_then(|array| array.shape.first()).copied().unwrap_or(0);
        let adapters = self.settings.finetune.parts().adapters();
        let architecture = self.classifier.model.architecture.as_ref();
        let logits = logits(graph, architecture, &self.training, rows, adapters.as_ref())?;
        Ok(Objective { loss: self.loss(graph, logits, rows)?, outputs: vec![logits] })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        self.settings.finetune.parts().group(&self.recipe.optimizer, self.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        self.classifier.initialise(&self.settings, self.recipe.train.seed, state)
    }

    /// Mixed images and images with several labels have no right class.
    fn correct(&self, batch: &Batch, outputs: &[&[f32]]) -> Option<Correct> {
        Correct::by_largest_logits(batch.i32("targets")?, outputs.first()?)
    }

    fn evaluation_bytes(&self, rows: usize) -> Result<usize, TrainError> {
        self.evaluator.bytes(rows)
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

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.settings.finetune.parts().merged(self.classifier.model.architecture.as_ref(), state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.classifier.save(directory, state)
    }

    fn unreadable(&self) -> Vec<BrokenSample> {
        self.evaluator.unreadable().to_vec()
    }

    fn images(&self) -> Option<&Splits> {
        Some(&self.splits)
    }
}

/// How training images are loaded.
fn training_options(
    recipe: &Recipe,
    settings: &ClassifySettings,
    splits: &Splits,
    classifier: &Classifier,
    several: bool,
    form: ImageForm,
) -> Result<ImageBatchOptions, TrainError> {
    let mixer = Mixer::new(&settings.augment)?;
    let smoothing = settings.loss.label_smoothing;
    let targets = match () {
        () if several => ImageTargets::MultiLabel { smoothing },
        () if mixer.is_some() => ImageTargets::Probabilities { smoothing },
        () => ImageTargets::Class,
    };
    Ok(ImageBatchOptions {
        dataset: splits.train.clone(),
        preparation: Preparation::Augmented(Box::new(Augment::new(&settings.augment, &classifier.preprocess)?)),
        form,
        mixer,
        shape: classifier.shape(),
        classes: splits.classes.len(),
        targets,
        batch: settings.train.batch,
        seed: recipe.train.seed,
        shuffle: true,
    })
}

fn facts(settings: &ClassifySettings, splits: &Splits, training: &ImageBatchOptions) -> Result<TaskFacts, TrainError> {
    let (batches, batch, samples) = (training.batches_per_epoch(), settings.train.batch, splits.train.len());
    if batches == 0 {
        let what = format!("a batch of {batch} is more than the {samples} training images; lower train.batch");
        return Err(TrainError::Data(what));
    }
    let mut notes = splits.notes.clone();
    let unseen = training.unseen_per_epoch();
    if unseen > 0 {
        notes.push(format!(
            "{unseen} of {samples} training images are not seen in each epoch, others each time, because train.batch={batch} does not \
             divide {samples}: an epoch has whole batches only"
        ));
    }
    Ok(TaskFacts {
        data: splits.kind.clone(),
        summary: format!(
            "{}: {} training images, {} validation images, {} classes",
            splits.kind,
            thousands(samples),
            thousands(splits.validation.len()),
            splits.classes.len()
        ),
        notes,
        samples,
        unit: "images",
        units_per_epoch: (batches * batch) as u64,
        loader_threads: settings.loader_threads(),
        weighting: Weighting::Equal,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1],
        averaging: Averaging { ema: settings.train.ema, ema_warmup: settings.train.ema_warmup, checkpoints: 1 },
    })
}
