//! `vitreous eval`: the metrics of a model on a data set. Images are decoded and prepared by threads of their own while it runs.

mod text;
mod translation;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use vitreous_data::dataset::{self, Dataset, OpenDataset, Splits};
use vitreous_data::image::{Preprocess, Scratch};
use vitreous_data::ordered::OrderedMap;
use vitreous_data::text::Languages;
use vitreous_models::OpenOptions;
use vitreous_pages::format;
use vitreous_runtime::classes::{ClassMap, map_classes};
use vitreous_runtime::locate::{architecture, unsuitable};
use vitreous_runtime::{ImageModel, OutputName, Runner};
use vitreous_train::tasks::classify::LabelMetrics;
use vitreous_train::tasks::classify::metrics::{MultiLabel, SingleLabel, named};
use vitreous_train::{Recipe, RunRecord};

use super::{PrecisionName, parse_beam, parse_count, parse_threads};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;

/// Evaluate a model on a data set: accuracy, precision and recall per class, confusion matrix, calibration; BLEU, chrF and perplexity
/// for a translator
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous eval runs/small-1                            on the validation split of the run's own data
  vitreous eval runs/photos-1 --split test              on its test split
  vitreous eval runs/translation-1 --data test.tsv --beam 4 --translations test.out")]
pub struct Eval {
    /// A model directory, a run directory or a checkpoint file
    model: PathBuf,
    /// The data set: images, or a file or folder of sentence pairs [default: the data of the run; for other image models the built-in images]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Which split of the data set [default: validation; for sentence pairs test, if there is one]
    #[arg(long, value_enum, ignore_case = true)]
    split: Option<Split>,
    /// The share that is drawn for validation if the data has no validation split [default: that of the run, or 0.1; 0.02 for pairs]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    validation_share: Option<f64>,
    /// Precision of matrix multiplications
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Threads that compute, or prepare images for a GPU [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
    /// Use only this many images or pairs, spread evenly over the data set
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Batch size [default: as large as keeps the machine busy]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_IMAGES)]
    batch: Option<usize>,
    /// The number of heads, for files that do not tell it
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_IMAGES)]
    heads: Option<usize>,
    /// Show every class, however many there are
    #[arg(long, help_heading = FOR_IMAGES)]
    all: bool,
    /// Source and target language, as in the names of files or keys: en-de
    #[arg(long, value_name = "LANGUAGES", help_heading = FOR_TEXT)]
    languages: Option<Languages>,
    /// Beam size [default: 1, greedy decoding]
    #[arg(long, value_name = "N", value_parser = parse_beam, allow_negative_numbers = true, help_heading = FOR_TEXT)]
    beam: Option<usize>,
    /// Length penalty of beam search; 0 for none [default: 0.6]
    #[arg(long, value_name = "A", allow_negative_numbers = true, help_heading = FOR_TEXT)]
    length_penalty: Option<f32>,
    /// Write the translations, one per line; an existing file is not overwritten
    #[arg(long, value_name = "FILE", help_heading = FOR_TEXT)]
    translations: Option<PathBuf>,
}

const FOR_IMAGES: &str = "For images";
const FOR_TEXT: &str = "For translators";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Split {
    /// The split that chooses the best checkpoint
    Validation,
    /// The training split
    Train,
    /// The held-out test split
    Test,
}

impl From<Split> for dataset::Split {
    fn from(split: Split) -> dataset::Split {
        match split {
            Split::Validation => dataset::Split::Validation,
            Split::Train => dataset::Split::Train,
            Split::Test => dataset::Split::Test,
        }
    }
}

/// An image prepared for the model, or why it could not be.
struct Prepared {
    sample: usize,
    pixels: Result<Vec<f32>, String>,
}

/// A sample that could not be used.
struct Broken {
    name: String,
    error: String,
}

/// Predictions, by how many labels an image can have.
enum Predictions {
    Single(Box<SingleLabel>),
    Multi(MultiLabel),
}

/// What was evaluated.
struct About {
    model: String,
    data: String,
    split: &'static str,
    /// Names of the model's classes.
    names: Vec<String>,
    seconds: f64,
}

impl Eval {
    pub fn run(self) -> Result<(), Failure> {
        let name = self.model.to_string_lossy().into_owned();
        let options = OpenOptions::default().with_some("heads", self.heads);
        let (model, _) = architecture(&name, &options)?;
        let signature = model.signature();
        match (signature.images(), signature.pairs()) {
            (Some(_), _) => self.run_images(&options),
            (None, Some(_)) => self.run_translation(),
            (None, None) => Err(unsuitable(&name, &signature, "a model that can be evaluated").into()),
        }
    }

    fn run_images(&self, options: &OpenOptions) -> Result<(), Failure> {
        let of_text = [
            ("--beam", self.beam.is_some()),
            ("--languages", self.languages.is_some()),
            ("--length-penalty", self.length_penalty.is_some()),
            ("--translations", self.translations.is_some()),
        ];
        self.refuse(&of_text, "is for translators, but this is a model for images")?;
        let model = ImageModel::open(&self.model, options)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let Some(classes) = model.model.architecture.signature().classes() else {
            let path = self.model.display();
            return Err(Failure::input(anyhow!("{path}: this model has no head, so it knows no classes")));
        };
        let splits = self.open_images()?;
        splits.notes.iter().for_each(|note| say!("note: {note}"));
        let (part, split) = self.part(&splits)?;
        let ClassMap { to_model, note } = map_classes(&splits.classes, &model.model.assets.labels, classes)
            .map_err(|error| Failure::input(anyhow!(error)))?;
        if let Some(note) = note {
            say!("note: {note}");
        }
        let start = Instant::now();
        let predictions = match splits.several_labels {
            false => Predictions::Single(Box::new(SingleLabel::new(classes))),
            true => Predictions::Multi(MultiLabel::new(classes)),
        };
        let (predictions, broken) = self.predict_all(&model, &part, &to_model, predictions)?;
        tell_broken(&broken);
        let metrics = match predictions {
            Predictions::Single(metrics) => LabelMetrics::Single(Box::new(metrics.report())),
            Predictions::Multi(metrics) => LabelMetrics::Multi(metrics.report()),
        };
        if samples(&metrics) == 0 {
            return Err(Failure::work(anyhow!("no image could be read, so there is nothing to report")));
        }
        let about = About {
            model: self.model.display().to_string(),
            data: splits.kind.clone(),
            split,
            names: names_of(&model.model.assets.labels, classes, &splits.classes, &to_model),
            seconds: start.elapsed().as_secs_f64(),
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", json_of(&metrics, &about, &broken))?;
        } else {
            for line in text::lines(&metrics, &about, self.all) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// The images that were named, or those of the run that the model is of, or the built-in ones.
    fn open_images(&self) -> Result<Splits, Failure> {
        let recipe = recipe_of(&self.model);
        let Some(path) = &self.data else {
            let images = recipe.as_ref().and_then(|recipe| recipe.task.images(&self.with_share(recipe)));
            return match images {
                Some(images) => images.map_err(|error| {
                    let run = self.model.display();
                    Failure::input(anyhow!("{run}: the data of this run: {error}; --data PATH names other data"))
                }),
                None => Ok(dataset::builtin()),
            };
        };
        // What a run has left for validation is drawn again as it was.
        if let Some(mut recipe) = recipe {
            recipe.data.path = path.to_string_lossy().into_owned();
            if let Some(images) = recipe.task.images(&self.with_share(&recipe)) {
                return images.map_err(|error| Failure::input(anyhow!(error)));
            }
        }
        let usual = OpenDataset::default();
        let validation_share = self.validation_share.unwrap_or(usual.validation_share);
        // Each image is looked at once.
        let options = OpenDataset { keep_bytes: 0, validation_share, ..usual };
        dataset::open(path, &options).map_err(Failure::input)
    }

    /// A recipe with the validation share that was asked for.
    fn with_share(&self, recipe: &Recipe) -> Recipe {
        let mut recipe = recipe.clone();
        recipe.data.validation_share = self.validation_share.unwrap_or(recipe.data.validation_share);
        recipe
    }

    /// Refuses options that mean nothing to the model, of which some were given.
    fn refuse(&self, options: &[(&str, bool)], why: &str) -> Result<(), Failure> {
        match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::input(anyhow!("{}: {option} {why}", self.model.display()))),
            None => Ok(()),
        }
    }

    /// The split that was asked for, and its name.
    fn part(&self, splits: &Splits) -> Result<(Arc<dyn Dataset>, &'static str), Failure> {
        const SPLITS: [(Split, &str); 3] =
            [(Split::Validation, "validation"), (Split::Train, "train"), (Split::Test, "test")];
        let split = self.split.unwrap_or(Split::Validation);
        let name = SPLITS.iter().find(|(known, _)| *known == split).map_or("", |(_, name)| name);
        if let Some(part) = splits.get(split.into()) {
            return Ok((part.clone(), name));
        }
        let others = SPLITS.iter().filter(|(other, _)| splits.get((*other).into()).is_some());
        let others: Vec<&str> = others.map(|(_, name)| *name).collect();
        let hint = match others.is_empty() {
            true => String::new(),
            false => format!("; hint: --split {}", others.join(" or --split ")),
        };
        Err(Failure::input(anyhow!("this data set ({}) has no images in its {name} part{hint}", splits.kind)))
    }

    fn predict_all(
        &self,
        model: &ImageModel,
        part: &Arc<dyn Dataset>,
        to_model: &[u32],
        mut predictions: Predictions,
    ) -> Result<(Predictions, Vec<Broken>), Failure> {
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        let device = self.device.open(threads)?;
        let mut runner = Runner::new(model, OutputName::Logits, self.precision.into(), &device, self.batch)?;
        let preprocess = model.preprocess.clone();
        let samples = spread(part.len(), self.limit);
        let batch = runner.batch().min(samples.len()).max(1);
        let progress = progress_bar(samples.len(), "images");
        let floats = runner.input_floats();
        let prepared = OrderedMap::new(samples.into_iter(), threads, batch.saturating_mul(2), || {
            worker(part.clone(), preprocess.clone(), floats)
        });
        let mut broken = Vec::new();
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for Prepared { sample, pixels } in prepared {
            progress.inc(1);
            match pixels.and_then(|pixels| Ok((pixels, labels_of(part.as_ref(), sample, to_model, &predictions)?))) {
                Ok((pixels, own)) => {
                    images.push(pixels);
                    labels.push(own);
                }
                Err(error) => broken.push(Broken { name: part.name(sample), error }),
            }
            if images.len() >= runner.batch() {
                predict_batch(&mut runner, &mut images, &mut labels, &mut predictions)?;
            }
        }
        predict_batch(&mut runner, &mut images, &mut labels, &mut predictions)?;
        progress.finish_and_clear();
        Ok((predictions, broken))
    }
}

/// The recipe of the run that a model is, or is in.
fn recipe_of(model: &Path) -> Option<Recipe> {
    let directory = [Some(model), model.parent()].into_iter().flatten().find(|path| RunRecord::is_run(path))?;
    RunRecord::read(directory).ok()?.recipe.ok()
}

fn samples(metrics: &LabelMetrics) -> u64 {
    match metrics {
        LabelMetrics::Single(report) => report.samples,
        LabelMetrics::Multi(report) => report.samples,
    }
}

/// All samples, or this many, evenly spread, because data sets are often sorted by class.
fn spread(samples: usize, limit: Option<usize>) -> Vec<usize> {
    let count = limit.unwrap_or(samples).min(samples);
    (0..count).map(|index| (index as u128 * samples as u128 / count as u128) as usize).collect()
}

/// What each decoding thread does with a sample.
fn worker(
    part: Arc<dyn Dataset>,
    preprocess: Preprocess,
    floats: usize,
) -> impl FnMut(usize) -> Prepared + Send + 'static {
    let mut scratch = Scratch::default();
    move |sample| {
        let mut pixels = vec![0.0; floats];
        let prepared = part
            .image(sample, preprocess.channels)
            .and_then(|image| preprocess.apply(&image, &mut scratch, &mut pixels))
            .map_err(|error| error.to_string());
        Prepared { sample, pixels: prepared.map(|()| pixels) }
    }
}

/// A sample's labels as the model numbers its classes.
fn labels_of(part: &dyn Dataset, sample: usize, to_model: &[u32], predictions: &Predictions) -> Result<Vec<u32>, String> {
    let labels = part.labels(sample);
    if matches!(predictions, Predictions::Single(_)) && labels.len() != 1 {
        return Err(format!("it has {} labels instead of one", labels.len()));
    }
    let of_model = |&label: &u32| to_model.get(label as usize).copied().ok_or(format!("there is no class {label}"));
    labels.iter().map(of_model).collect()
}

/// Runs the model on a batch and adds its predictions.
fn predict_batch(
    runner: &mut Runner<&ImageModel>,
    images: &mut Vec<Vec<f32>>,
    labels: &mut Vec<Vec<u32>>,
    predictions: &mut Predictions,
) -> Result<(), Failure> {
    if images.is_empty() {
        return Ok(());
    }
    let classes = runner.output_floats();
    let logits = runner.run(images)?;
    for (logits, labels) in logits.chunks_exact(classes).zip(labels.iter()) {
        match predictions {
            Predictions::Single(metrics) => _ = metrics.add(logits, labels[0]),
            Predictions::Multi(metrics) => metrics.add(logits, labels),
        }
    }
    images.clear();
    labels.clear();
    Ok(())
}

/// Shown only where stderr is a terminal.
fn progress_bar(samples: usize, of: &str) -> ProgressBar {
    if crate::say::is_quiet() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(samples as u64);
    let style = ProgressStyle::with_template(&format!("{{wide_bar}} {{pos}}/{{len}} {of}, {{per_sec}}, {{eta}} left"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Names what could not be used.
fn tell_broken(broken: &[Broken]) {
    const SHOWN: usize = 20;
    if broken.is_empty() {
        return;
    }
    say!("{} could not be used:", format::count(broken.len(), "image", "images"));
    for Broken { name, error } in broken.iter().take(SHOWN) {
        say!("  {}: {error}", format::one_line(name));
    }
    if broken.len() > SHOWN {
        say!("  and {} more; --json names them all", format::thousands((broken.len() - SHOWN) as u128));
    }
}

/// The names of the model's classes: its own, or those of the data.
fn names_of(labels: &[String], classes: usize, data: &[String], to_model: &[u32]) -> Vec<String> {
    let mut names: Vec<String> = (0..classes).map(|class| format!("class {class}")).collect();
    for (name, &class) in data.iter().zip(to_model) {
        names[class as usize].clone_from(name);
    }
    for (name, own) in names.iter_mut().zip(labels) {
        name.clone_from(own);
    }
    names
}

fn json_of(metrics: &LabelMetrics, about: &About, broken: &[Broken]) -> Value {
    let report = match metrics {
        LabelMetrics::Single(report) => named(report, &about.names),
        LabelMetrics::Multi(report) => named(report, &about.names),
    };
    let mut object = json!({
        "model": about.model,
        "data": about.data,
        "split": about.split,
        "seconds": about.seconds,
        "images_per_second": samples(metrics) as f64 / about.seconds,
        "broken": broken.iter().map(|Broken { name, error }| json!({"name": name, "error": error})).collect::<Vec<_>>(),
    });
    if let (Value::Object(object), Value::Object(report)) = (&mut object, report) {
        object.extend(report);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_spreads_over_all_samples() {
        assert_eq!(spread(5, None), [0, 1, 2, 3, 4]);
        assert_eq!(spread(10, Some(4)), [0, 2, 5, 7]);
        assert_eq!(spread(3, Some(9)), [0, 1, 2]);
        assert_eq!(spread(0, None), [0usize; 0]);
    }
}
