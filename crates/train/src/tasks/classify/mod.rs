//! Image classification: images in, one class or several out.

mod classifier;
mod evaluate;
mod inputs;
pub mod metrics;
mod report;
mod settings;

use std::path::Path;

use serde_json::Value as Json;
use toml::Table;
use vitreous_data::augment::{Augment, Mixer};
use vitreous_data::dataset::{self, DatasetError, OpenDataset, Splits};
use vitreous_data::download::KNOWN_NAMES;
use vitreous_data::loader::{Broken, Form, Loader, LoaderOptions, Preparation, TargetKind};
use vitreous_data::{Channels, Preprocess};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, State, Value};
use vitreous_models::{VitConfig, preset, presets};

use crate::batch::{Batch, BatchShape, Weighting};
use crate::error::TrainError;
use crate::groups::group_of;
use crate::recipe::{LossKind, Recipe, RecipeError, table_of};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Batches, Correct, Objective, Task, TaskContext, TaskFacts, TaskType, absolute, thousands,
};

pub(crate) use classifier::of_saving;
use classifier::{Classifier, adapters};
use evaluate::Evaluator;
use inputs::{form_for, memory_of, model, named};
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

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&Classification, &ClassifySettings::default(), &VitConfig::default());
        recipe.data.path = BUILTIN.to_string();
        recipe
    }

    fn optional_keys(&self) -> &'static [&'static str] {
        &["model.layer_scale", "model.pre_logits"]
    }

    fn preset(&self, name: &str) -> Option<Table> {
        preset(name).map(|config| table_of(&config))
    }

    fn preset_names(&self) -> Vec<String> {
        presets::names()
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let (own, model): (ClassifySettings, VitConfig) = (recipe.own()?, recipe.model()?);
        recipe.set_own(&own);
        recipe.set_model(&model);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let settings: ClassifySettings = recipe.own()?;
        settings.check()?;
        // A pretrained model replaces this one, and is checked when it is opened.
        match settings.finetune.init.is_empty() {
            true => recipe.model::<VitConfig>()?.check().map_err(|refusal| RecipeError::Model(refusal.0)),
            false => Ok(()),
        }
    }

    fn complete_paths(&self, recipe: &mut Recipe) -> Result<(), TrainError> {
        if recipe.data.path != BUILTIN {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: ClassifySettings = recipe.own()?;
        let init = &mut settings.finetune.init;
        if !init.is_empty() {
            *init = absolute(init)?;
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

/// The images that a recipe names.
fn open_images(recipe: &Recipe) -> Result<Splits, DatasetError> {
    if recipe.data.path == BUILTIN {
        return Ok(dataset::builtin());
    }
    let ClassifySettings { data, .. } = recipe.own().unwrap_or_default();
    let options = OpenDataset {
        validation_share: recipe.data.validation_share,
        labels: Some(data.labels).filter(|labels| !labels.is_empty()),
        keep_bytes: data.keep_mib.saturating_mul(1 << 20),
    };
    dataset::open(Path::new(&recipe.data.path), &options)
}

/// The augmentation and the mixing of a recipe, for images of its model's size.
pub fn augmentation(recipe: &Recipe) -> Result<(Augment, Option<Mixer>), TrainError> {
    let (settings, config): (ClassifySettings, VitConfig) = (recipe.own()?, recipe.model()?);
    let channels = Channels::from_count(config.channels).unwrap_or(Channels::Rgb);
    let preprocess = settings.preprocess.preprocess([config.image.height, config.image.width], channels);
    Ok((Augment::new(&settings.augment, &preprocess)?, Mixer::new(&settings.augment)?))
}

/// A classifier that is trained.
pub struct ClassifyTask {
    recipe: Recipe,
    settings: ClassifySettings,
    facts: TaskFacts,
    splits: Splits,
    classifier: Classifier,
    training: LoaderOptions,
    evaluator: Evaluator,
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
        let evaluator = Evaluator::new(&settings, precision, &splits, &classifier, device);
        Ok(ClassifyTask { recipe, settings, facts, splits, classifier, training, evaluator })
    }

    /// Takes training batches in this form, whatever suits the device.
    pub fn in_form(mut self, form: Form) -> ClassifyTask {
        self.training.form = form;
        self
    }

    fn loss(&self, graph: &mut Graph, logits: Value, batch: usize) -> vitreous_engine::Result<Value> {
        let classes = self.training.classes;
        match self.training.targets {
            TargetKind::Class => {
                let targets = graph.input("targets", [batch], DType::I32)?;
                let label_smoothing = self.settings.loss.label_smoothing;
                let options = CrossEntropyOptions { label_smoothing, ..CrossEntropyOptions::default() };
                graph.cross_entropy(logits, targets, options)
            }
            // The loader has smoothed these.
            TargetKind::Shares { .. } => {
                let targets = graph.input("targets", [batch, classes], DType::F32)?;
                graph.cross_entropy(logits, targets, CrossEntropyOptions::default())
            }
            TargetKind::Each { .. } => {
                let targets = graph.input("targets", [batch, classes], DType::F32)?;
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

    fn build(&self, graph: &mut Graph, shape: &BatchShape) -> Result<Objective, TrainError> {
        let adapters = adapters(&self.settings.finetune);
        let config = &self.classifier.model.config;
        let built = model(graph, config, &self.training, shape.rows, adapters.as_ref())?;
        let logits = built.logits.ok_or_else(|| TrainError::Data("the data has no classes".to_string()))?;
        let loss = self.loss(graph, logits, shape.rows)?;
        Ok(Objective { loss, outputs: vec![logits] })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        let depth = self.classifier.model.config.depth;
        group_of(&self.recipe.optimizer, &self.settings.finetune, depth, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        self.classifier.initialise(&self.settings, self.recipe.train.seed, state)
    }

    fn batches(&self, epoch: u64, batch: usize) -> Box<dyn Batches> {
        let options = self.training.clone();
        let loader = Loader::start(options.clone(), epoch, batch, self.recipe.train.epochs);
        Box::new(ImageBatches { loader, options })
    }

    /// An answer is right where the class of an image has a greater logit than all others. Mixed images and images with several labels
    /// have no right class.
    fn correct(&self, batch: &Batch, outputs: &[&[f32]]) -> Option<Correct> {
        let (labels, logits) = (batch.i32("targets")?, outputs.first()?);
        let rows = logits.chunks_exact(logits.len() / labels.len());
        let right = rows.zip(labels).filter(|(row, label)| is_first(row, **label)).count() as u64;
        Some(Correct { right, total: labels.len() as u64 })
    }

    fn evaluation_bytes(&self, shape: &BatchShape, _device: &Device) -> Result<usize, TrainError> {
        self.evaluator.bytes(shape.rows)
    }

    fn evaluate(
        &mut self,
        state: &State,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        self.evaluator.run(state, progress)
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.classifier.without_adapters(&self.settings.finetune, state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.classifier.save(directory, state)
    }

    fn unreadable(&self) -> Vec<Broken> {
        self.evaluator.unreadable().to_vec()
    }

    fn images(&self) -> Option<&Splits> {
        Some(&self.splits)
    }
}

struct ImageBatches {
    loader: Loader,
    options: LoaderOptions,
}

impl Batches for ImageBatches {
    fn next(&mut self) -> Result<Option<Batch>, TrainError> {
        let batch = self.loader.next().transpose()?;
        Ok(batch.map(|batch| named(batch, &self.options)))
    }

    fn recycle(&mut self, batch: Batch) {
        self.loader.give_back(memory_of(batch));
    }

    fn unreadable(&self) -> Vec<Broken> {
        self.loader.broken()
    }
}

/// How training images are loaded.
fn training_options(
    recipe: &Recipe,
    settings: &ClassifySettings,
    splits: &Splits,
    Classifier { model, preprocess }: &Classifier,
    several: bool,
    form: Form,
) -> Result<LoaderOptions, TrainError> {
    let mixer = Mixer::new(&settings.augment)?;
    let smoothing = settings.loss.label_smoothing;
    let targets = match () {
        () if several => TargetKind::Each { smoothing },
        () if mixer.is_some() => TargetKind::Shares { smoothing },
        () => TargetKind::Class,
    };
    let preprocess: &Preprocess = preprocess;
    Ok(LoaderOptions {
        dataset: splits.train.clone(),
        preparation: Preparation::Augmented(Box::new(Augment::new(&settings.augment, preprocess)?)),
        form,
        mixer,
        shape: [model.config.channels, model.config.image.height, model.config.image.width],
        classes: splits.classes.len(),
        targets,
        batch: settings.train.batch,
        seed: recipe.train.seed,
        shuffle: true,
        threads: settings.loader_threads(),
    })
}

fn facts(settings: &ClassifySettings, splits: &Splits, training: &LoaderOptions) -> Result<TaskFacts, TrainError> {
    let (batches, batch, samples) = (training.batches(), settings.train.batch, splits.train.len());
    if batches == 0 {
        let what = format!("a batch of {batch} is more than the {samples} training images; lower train.batch");
        return Err(TrainError::Data(what));
    }
    let mut notes = splits.notes.clone();
    let unseen = samples - batches * batch;
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
        batches_per_epoch: batches,
        unit: "images",
        units_per_epoch: (batches * batch) as u64,
        shapes: vec![BatchShape::of_rows(batch)],
        weighting: Weighting::Equal,
        batch_size: ("train.batch", batch),
        averaging: Averaging { ema: settings.train.ema, ema_warmup: settings.train.ema_warmup, checkpoints: 1 },
    })
}

/// Whether the label's logit is greater than all others.
fn is_first(logits: &[f32], label: i32) -> bool {
    let own = logits[label as usize];
    logits.iter().enumerate().all(|(class, &other)| other < own || class == label as usize)
}
