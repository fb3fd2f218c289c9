//! `vitreous eval`: how good a model is on a data set. Images are decoded and prepared by threads of their own while it runs.

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
use vitreous_models::Model;
use vitreous_train::evaluation::{LabelReport, LabelScores, Report, Scores, named};

use super::{PrecisionName, parse_beam, parse_count, parse_threads};
use crate::classes::{ClassMap, map_classes};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::runner::{Answer, Runner};
use crate::text_source::TextSource;
use vitreous_pages::format;

/// Measure how good a model is on a data set: accuracy, precision and recall of each class, confusions, calibration; of a
/// translator BLEU, chrF, perplexity
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous eval runs/small-1
  vitreous eval runs/translation-1 --data test.tsv --beam 4 --translations test.out")]
pub struct Eval {
    /// A model directory, a run directory or a checkpoint file
    model: PathBuf,
    /// The data set; for images by default the one inside this program. For a translator a file of pairs, or a folder
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Which part of the data set [default: validation; of pairs test, if there is such a part]
    #[arg(long, value_enum, ignore_case = true)]
    split: Option<Split>,
    /// The share that was drawn for validation, where the data has no such part [default: 0.1; of pairs 0.02]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    validation_share: Option<f64>,
    /// Numbers to compute with
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Threads that compute, or prepare images for a GPU; by default one a core
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
    /// Take so many images or pairs only, spread evenly over the data set
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Images at a time; by default as many as keep the machine busy
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_IMAGES)]
    batch: Option<usize>,
    /// The number of heads, for files that do not tell it
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_IMAGES)]
    heads: Option<usize>,
    /// Show every class, however many there are
    #[arg(long, help_heading = FOR_IMAGES)]
    all: bool,
    /// Source and target language, as the files or keys of the pairs are called: en-de
    #[arg(long, value_name = "LANGUAGES", help_heading = FOR_TEXT)]
    languages: Option<Languages>,
    /// Hypotheses that are followed at once [default: 1, which is greedy]
    #[arg(long, value_name = "N", value_parser = parse_beam, allow_negative_numbers = true, help_heading = FOR_TEXT)]
    beam: Option<usize>,
    /// How much longer hypotheses are preferred, with a beam [default: 0.6]; 0 is not at all
    #[arg(long, value_name = "A", allow_negative_numbers = true, help_heading = FOR_TEXT)]
    length_penalty: Option<f32>,
    /// Write the translations, a line each; a file that is there is not overwritten
    #[arg(long, value_name = "FILE", help_heading = FOR_TEXT)]
    translations: Option<PathBuf>,
}

const FOR_IMAGES: &str = "For images";
const FOR_TEXT: &str = "For translators";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Split {
    /// What to test with
    Validation,
    /// What to learn from
    Train,
    /// What to test with at the end, of pairs
    Test,
}

/// An image made ready for the model, or why it could not be.
struct Prepared {
    sample: usize,
    pixels: Result<Vec<f32>, String>,
}

/// A sample that could not be used.
struct Broken {
    name: String,
    error: String,
}

/// Answers, by how many labels a sample has.
enum Answers {
    One(Box<Scores>),
    Several(LabelScores),
}

/// What is known at the end.
enum Found {
    One(Report),
    Several(LabelReport),
}

/// What was asked, for the report.
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
        if TextSource::is_at(&self.model) {
            return self.run_translation();
        }
        let of_text = [
            ("--beam", self.beam.is_some()),
            ("--languages", self.languages.is_some()),
            ("--length-penalty", self.length_penalty.is_some()),
            ("--translations", self.translations.is_some()),
        ];
        self.refuse(&of_text, "is for translators, but this is a model for images")?;
        if self.split == Some(Split::Test) {
            return Err(Failure::input(anyhow!("--split test is for pairs; of images there are validation and train")));
        }
        let (model, preprocess) = source::open(&self.model, None, self.heads)?;
        let classes = model.config.classes;
        if classes == 0 {
            let path = self.model.display();
            return Err(Failure::input(anyhow!("{path}: this model has no head, so it knows no classes")));
        }
        let splits = open_data(self.data.as_deref(), self.validation_share)?;
        for note in &splits.notes {
            say!("note: {note}");
        }
        let (part, split) = self.part(&splits)?;
        let ClassMap { to_model, note } =
            map_classes(&splits.classes, &model.labels, classes).map_err(|error| Failure::input(anyhow!(error)))?;
        if let Some(note) = note {
            say!("note: {note}");
        }
        let start = Instant::now();
        let answers = match splits.several_labels {
            false => Answers::One(Box::new(Scores::new(classes))),
            true => Answers::Several(LabelScores::new(classes)),
        };
        let (answers, broken) = self.answer_all(&model, preprocess, &part, &to_model, answers)?;
        tell_broken(&broken);
        let found = match answers {
            Answers::One(scores) => Found::One(scores.report()),
            Answers::Several(scores) => Found::Several(scores.report()),
        };
        if found.samples() == 0 {
            return Err(Failure::work(anyhow!("no image could be read, so there is nothing to report")));
        }
        let about = About {
            model: self.model.display().to_string(),
            data: splits.kind.clone(),
            split,
            names: names_of(&model, &splits.classes, &to_model),
            seconds: start.elapsed().as_secs_f64(),
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", json_of(&found, &about, &broken))?;
        } else {
            for line in text::lines(&found, &about, self.all) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// Refuses options that mean nothing to the model, of which some were given.
    fn refuse(&self, options: &[(&str, bool)], why: &str) -> Result<(), Failure> {
        match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::input(anyhow!("{}: {option} {why}", self.model.display()))),
            None => Ok(()),
        }
    }

    /// The part that was asked for, and what it is called.
    fn part(&self, splits: &Splits) -> Result<(Arc<dyn Dataset>, &'static str), Failure> {
        let (part, name, other, hint) = match self.split {
            Some(Split::Train) => (&splits.train, "train", &splits.validation, "validation"),
            _ => (&splits.validation, "validation", &splits.train, "train"),
        };
        if !part.is_empty() {
            return Ok((part.clone(), name));
        }
        let hint = if other.is_empty() { String::new() } else { format!("; hint: --split {hint}") };
        Err(Failure::input(anyhow!("this data set ({}) has no images in its {name} part{hint}", splits.kind)))
    }

    fn answer_all(
        &self,
        model: &Model,
        preprocess: Preprocess,
        part: &Arc<dyn Dataset>,
        to_model: &[u32],
        mut answers: Answers,
    ) -> Result<(Answers, Vec<Broken>), Failure> {
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        let device = self.device.open(threads)?;
        let mut runner =
            Runner::new(model, Answer::Logits, self.precision.into(), &device, self.batch).map_err(Failure::input)?;
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
            match pixels.and_then(|pixels| Ok((pixels, labels_of(part.as_ref(), sample, to_model, &answers)?))) {
                Ok((pixels, own)) => {
                    images.push(pixels);
                    labels.push(own);
                }
                Err(error) => broken.push(Broken { name: part.name(sample), error }),
            }
            if images.len() >= runner.batch() {
                answer_batch(&mut runner, &mut images, &mut labels, &mut answers)?;
            }
        }
        answer_batch(&mut runner, &mut images, &mut labels, &mut answers)?;
        progress.finish_and_clear();
        Ok((answers, broken))
    }
}

impl Found {
    fn samples(&self) -> u64 {
        match self {
            Found::One(report) => report.samples,
            Found::Several(report) => report.samples,
        }
    }
}

/// The data set that was named, or the one inside this program.
fn open_data(path: Option<&Path>, validation_share: Option<f64>) -> Result<Splits, Failure> {
    let Some(path) = path else { return Ok(dataset::builtin()) };
    let usual = OpenDataset::default();
    let validation_share = validation_share.unwrap_or(usual.validation_share);
    // Each image is looked at once.
    let options = OpenDataset { keep_bytes: 0, validation_share, ..usual };
    dataset::open(path, &options).map_err(Failure::input)
}

/// All samples, or so many, evenly spread: data sets often lie sorted by class.
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
fn labels_of(part: &dyn Dataset, sample: usize, to_model: &[u32], answers: &Answers) -> Result<Vec<u32>, String> {
    let labels = part.labels(sample);
    if matches!(answers, Answers::One(_)) && labels.len() != 1 {
        return Err(format!("it has {} labels instead of one", labels.len()));
    }
    let of_model = |&label: &u32| to_model.get(label as usize).copied().ok_or(format!("there is no class {label}"));
    labels.iter().map(of_model).collect()
}

/// Runs the model on a batch and takes its answers down.
fn answer_batch(
    runner: &mut Runner,
    images: &mut Vec<Vec<f32>>,
    labels: &mut Vec<Vec<u32>>,
    answers: &mut Answers,
) -> Result<(), Failure> {
    if images.is_empty() {
        return Ok(());
    }
    let classes = runner.output_floats();
    let logits = runner.run(images).map_err(Failure::work)?;
    for (logits, labels) in logits.chunks_exact(classes).zip(labels.iter()) {
        match answers {
            Answers::One(scores) => {
                scores.add(logits, labels[0]);
            }
            Answers::Several(scores) => scores.add(logits, labels),
        }
    }
    images.clear();
    labels.clear();
    Ok(())
}

/// Shown only where stderr is a terminal.
fn progress_bar(samples: usize, of: &str) -> ProgressBar {
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

/// What to call the model's classes: as it does itself, or as the data does.
fn names_of(model: &Model, data: &[String], to_model: &[u32]) -> Vec<String> {
    let mut names: Vec<String> = (0..model.config.classes).map(|class| format!("class {class}")).collect();
    for (name, &class) in data.iter().zip(to_model) {
        names[class as usize].clone_from(name);
    }
    for (name, own) in names.iter_mut().zip(&model.labels) {
        name.clone_from(own);
    }
    names
}

fn json_of(found: &Found, about: &About, broken: &[Broken]) -> Value {
    let report = match found {
        Found::One(report) => named(report, &about.names),
        Found::Several(report) => named(report, &about.names),
    };
    let mut object = json!({
        "model": about.model,
        "data": about.data,
        "split": about.split,
        "seconds": about.seconds,
        "images_per_second": found.samples() as f64 / about.seconds,
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
