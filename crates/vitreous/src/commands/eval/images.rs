//! `vitreous eval` of a classifier. Images are decoded and prepared by threads of their own while it runs.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::{Value, json};
use vitreous_data::dataset::{self, Dataset, OpenDataset, Splits};
use vitreous_data::image::{Preprocess, Scratch};
use vitreous_data::ordered::OrderedMap;
use vitreous_models::OpenOptions;
use vitreous_pages::format;
use vitreous_runtime::classes::{ClassMap, map_classes};
use vitreous_runtime::{ImageModel, OutputName, Runner};
use vitreous_train::tasks::classify::LabelMetrics;
use vitreous_train::tasks::classify::metrics::{MultiLabel, SingleLabel, named};

use super::{Eval, Split, image_report, progress_bar, spread};
use crate::failure::Failure;

/// An image prepared for the model, or why it could not be.
struct Prepared {
    sample: usize,
    pixels: Result<Vec<f32>, String>,
}

/// A sample that could not be used.
struct Unusable {
    name: String,
    error: String,
}

/// Metrics while samples come in, by how many labels a sample has.
enum Counting {
    Single(Box<SingleLabel>),
    Multi(MultiLabel),
}

/// What was asked, for the report.
pub struct About {
    pub model: String,
    pub data: String,
    pub split: &'static str,
    /// Names of the model's classes.
    pub names: Vec<String>,
    pub seconds: f64,
}

impl Eval {
    pub(super) fn evaluate_images(&self) -> Result<(), Failure> {
        let of_text = [
            ("--beam", self.beam.is_some()),
            ("--languages", self.languages.is_some()),
            ("--length-penalty", self.length_penalty.is_some()),
            ("--translations", self.translations.is_some()),
        ];
        self.refuse(&of_text, "is for translators, but this is a model for images")?;
        let model = self
            .interventions
            .apply(ImageModel::open(&self.model, &OpenOptions::default().with_some("heads", self.heads))?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let Some(classes) = model.model.architecture.signature().classes() else {
            let path = self.model.display();
            return Err(Failure::input(anyhow!("{path}: this model has no head, so it knows no classes")));
        };
        let splits = self.image_data()?;
        splits.notes.iter().for_each(|note| say!("note: {note}"));
        let (part, split) = self.part(&splits)?;
        let labels = &model.model.assets.labels;
        let ClassMap { to_model, note } =
            map_classes(&splits.classes, labels, classes).map_err(|error| Failure::input(anyhow!(error)))?;
        if let Some(note) = note {
            say!("note: {note}");
        }
        let start = Instant::now();
        let counting = match splits.several_labels {
            false => Counting::Single(Box::new(SingleLabel::new(classes))),
            true => Counting::Multi(MultiLabel::new(classes)),
        };
        let (counting, unusable) = self.run_all(&model, &part, &to_model, counting)?;
        tell_unusable(&unusable);
        let metrics = match counting {
            Counting::Single(scores) => LabelMetrics::Single(Box::new(scores.report())),
            Counting::Multi(scores) => LabelMetrics::Multi(scores.report()),
        };
        if samples(&metrics) == 0 {
            return Err(Failure::work(anyhow!("no image could be read, so there is nothing to report")));
        }
        let about = About {
            model: self.model.display().to_string(),
            data: splits.kind.clone(),
            split,
            names: names_of(labels, classes, &splits.classes, &to_model),
            seconds: start.elapsed().as_secs_f64(),
        };
        let mut out = crate::say::stdout();
        if self.json {
            writeln!(out, "{}", json_of(&metrics, &about, &unusable))?;
        } else {
            for line in image_report::lines(&metrics, &about, self.all) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// The data set that was named, or that of the run, or the built-in one. A run's validation split is drawn again as it was.
    fn image_data(&self) -> Result<Splits, Failure> {
        if let Some(mut recipe) = self.recipe_of_run()? {
            if let Some(path) = &self.data {
                recipe.data.path = path.to_string_lossy().into_owned();
            }
            recipe.data.validation_share = self.validation_share.unwrap_or(recipe.data.validation_share);
            match recipe.task.images(&recipe) {
                Some(Ok(splits)) => return Ok(splits),
                Some(Err(error)) if self.data.is_some() => return Err(Failure::input(anyhow!(error))),
                Some(Err(error)) => {
                    return Err(Failure::input(anyhow!("the run's data: {error}; --data PATH names other data")));
                }
                None => {}
            }
        }
        let Some(path) = &self.data else { return Ok(dataset::builtin()) };
        let usual = OpenDataset::default();
        let validation_share = self.validation_share.unwrap_or(usual.validation_share);
        // Each image is looked at once.
        let options = OpenDataset { keep_bytes: 0, validation_share, ..usual };
        dataset::open(path, &options).map_err(Failure::input)
    }

    /// The split that was asked for, and its name.
    fn part(&self, splits: &Splits) -> Result<(Arc<dyn Dataset>, &'static str), Failure> {
        const SPLITS: [(Split, dataset::Split, &str); 3] = [
            (Split::Validation, dataset::Split::Validation, "validation"),
            (Split::Train, dataset::Split::Train, "train"),
            (Split::Test, dataset::Split::Test, "test"),
        ];
        let asked = self.split.unwrap_or(Split::Validation);
        let mut there = Vec::new();
        for (split, of_data, name) in SPLITS {
            match splits.get(of_data) {
                Some(part) if split == asked => return Ok((part.clone(), name)),
                Some(_) => there.push(name),
                None => {}
            }
        }
        let name = SPLITS.iter().find(|(split, ..)| *split == asked).map_or("", |(_, _, name)| name);
        let hint =
            if there.is_empty() { String::new() } else { format!("; hint: --split {}", there.join(", or --split ")) };
        Err(Failure::input(anyhow!("this data set ({}) has no images in its {name} part{hint}", splits.kind)))
    }

    fn run_all(
        &self,
        model: &ImageModel,
        part: &Arc<dyn Dataset>,
        to_model: &[u32],
        mut counting: Counting,
    ) -> Result<(Counting, Vec<Unusable>), Failure> {
        let threads = self.compute.threads();
        let device = self.compute.device()?;
        let mut runner = Runner::new(model, OutputName::Logits, self.compute.precision(), &device, self.batch)?;
        let samples = spread(part.len(), self.limit);
        let batch = runner.batch().min(samples.len()).max(1);
        let progress = progress_bar(samples.len(), "images");
        let floats = runner.input_floats();
        let prepared = OrderedMap::new(samples.into_iter(), threads, batch.saturating_mul(2), || {
            worker(part.clone(), model.preprocess.clone(), floats)
        });
        let mut unusable = Vec::new();
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for Prepared { sample, pixels } in prepared {
            progress.inc(1);
            match pixels.and_then(|pixels| Ok((pixels, labels_of(part.as_ref(), sample, to_model, &counting)?))) {
                Ok((pixels, own)) => {
                    images.push(pixels);
                    labels.push(own);
                }
                Err(error) => unusable.push(Unusable { name: part.name(sample), error }),
            }
            if images.len() >= runner.batch() {
                run_batch(&mut runner, &mut images, &mut labels, &mut counting)?;
            }
        }
        run_batch(&mut runner, &mut images, &mut labels, &mut counting)?;
        progress.finish_and_clear();
        Ok((counting, unusable))
    }
}

pub(super) fn samples(metrics: &LabelMetrics) -> u64 {
    match metrics {
        LabelMetrics::Single(report) => report.samples,
        LabelMetrics::Multi(report) => report.samples,
    }
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
fn labels_of(part: &dyn Dataset, sample: usize, to_model: &[u32], counting: &Counting) -> Result<Vec<u32>, String> {
    let labels = part.labels(sample);
    if matches!(counting, Counting::Single(_)) && labels.len() != 1 {
        return Err(format!("it has {} labels instead of one", labels.len()));
    }
    let of_model = |&label: &u32| to_model.get(label as usize).copied().ok_or(format!("there is no class {label}"));
    labels.iter().map(of_model).collect()
}

/// Runs the model on a batch and counts its answers.
fn run_batch(
    runner: &mut Runner<&ImageModel>,
    images: &mut Vec<Vec<f32>>,
    labels: &mut Vec<Vec<u32>>,
    counting: &mut Counting,
) -> Result<(), Failure> {
    if images.is_empty() {
        return Ok(());
    }
    let classes = runner.output_floats();
    let logits = runner.run(images)?;
    for (logits, labels) in logits.chunks_exact(classes).zip(labels.iter()) {
        match counting {
            Counting::Single(scores) => {
                scores.add(logits, labels[0]);
            }
            Counting::Multi(scores) => scores.add(logits, labels),
        }
    }
    images.clear();
    labels.clear();
    Ok(())
}

/// Names what could not be used.
fn tell_unusable(unusable: &[Unusable]) {
    const SHOWN: usize = 20;
    if unusable.is_empty() {
        return;
    }
    complain!("{} could not be used:", format::count(unusable.len(), "image", "images"));
    for Unusable { name, error } in unusable.iter().take(SHOWN) {
        complain!("  {}: {error}", format::one_line(name));
    }
    if unusable.len() > SHOWN {
        complain!("  and {} more; --json names them all", format::thousands((unusable.len() - SHOWN) as u128));
    }
}

/// What to call the model's classes: as it does itself, or as the data does.
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

fn json_of(metrics: &LabelMetrics, about: &About, unusable: &[Unusable]) -> Value {
    let report = match metrics {
        LabelMetrics::Single(report) => named(report, &about.names),
        LabelMetrics::Multi(report) => named(report, &about.names),
    };
    let unusable = unusable.iter().map(|Unusable { name, error }| json!({"name": name, "error": error}));
    let mut object = json!({
        "model": about.model,
        "data": about.data,
        "split": about.split,
        "seconds": about.seconds,
        "images_per_second": samples(metrics) as f64 / about.seconds,
        "broken": unusable.collect::<Vec<_>>(),
    });
    if let (Value::Object(object), Value::Object(report)) = (&mut object, report) {
        object.extend(report);
    }
    object
}
