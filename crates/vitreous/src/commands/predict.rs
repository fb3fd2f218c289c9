//! `vitreous predict`: what a model says of images. Images are decoded and prepared by threads of their own while the model runs.

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::json;
use vitreous_data::ordered::{NotYet, OrderedMap};
use vitreous_models::{OpenOptions, Size};
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::scores::{best, softmax};
use vitreous_runtime::{ImageModel, OutputName, Runner, described};

use super::{PrecisionName, parse_count, parse_size, parse_threads};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::images::{Images, ListedImage};
use crate::prepared::{self, Prepared};
use vitreous_pages::format;

/// Run a model on images: classes with their scores, or features
#[derive(Args)]
pub struct Predict {
    /// A model directory or a checkpoint file
    model: PathBuf,
    /// Images, folders of images, or patterns such as 'photos/*.jpg'; `-` reads an image, or a list of paths, from standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// How many classes to show for each image
    #[arg(long, value_name = "K", default_value = "5", value_parser = parse_count, allow_negative_numbers = true)]
    top: usize,
    /// Print one JSON object per line: path, top, logits; or path, error
    #[arg(long)]
    json: bool,
    /// Print the pooled features that the head would see, instead of classes
    #[arg(long)]
    features: bool,
    /// Precision of matrix multiplications
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Batch size [default: as large as keeps the machine busy]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// The image size, if not the model's own: position embeddings are resized
    #[arg(long, value_name = "HxW", value_parser = parse_size, allow_negative_numbers = true)]
    image: Option<Size>,
    /// The number of heads, for files that do not tell it
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    heads: Option<usize>,
    /// Threads that compute, or prepare images for a GPU [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
}

/// How long images that are ready wait for others of their batch, where these are still to be named on standard input.
const PATIENCE: Duration = Duration::from_millis(100);

/// Counts for the last line.
#[derive(Default)]
struct Tally {
    answered: usize,
    failed: usize,
}

impl Predict {
    pub fn run(self) -> Result<(), Failure> {
        let start = Instant::now();
        let options = OpenOptions::default().with_some("image", self.image).with_some("heads", self.heads);
        let model = ImageModel::open(&self.model, &options)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let signature = model.model.architecture.signature();
        let path = self.model.to_string_lossy();
        match (self.features, signature.classes(), signature.vector()) {
            (false, None, _) => {
                return Err(Failure::input(anyhow!(
                    "{path}: this model has no head, so it knows no classes; ask for --features"
                )));
            }
            (true, _, None) => return Err(unsuitable(&path, &signature, "model with features").into()),
            _ => {}
        }
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        let output = if self.features { OutputName::Features } else { OutputName::Logits };
        let device = self.device.open(threads)?;
        let mut runner = Runner::new(&model, output, self.precision.into(), &device, self.batch)?;
        let mut batch = runner.batch();
        let images = Images::new(self.paths.clone());
        let patience = (!images.are_known()).then_some(PATIENCE);
        let images: Box<dyn Iterator<Item = ListedImage> + Send> = if images.are_known() {
            let all: Vec<ListedImage> = images.collect();
            batch = batch.min(all.len()).max(1);
            Box::new(all.into_iter())
        } else {
            Box::new(images)
        };
        let floats = runner.input_floats();
        let (preprocess, channels) = (model.preprocess.clone(), model.input.channels);
        let prepared = OrderedMap::new(images, threads, batch.saturating_mul(2), move || {
            prepared::worker(preprocess.clone(), channels, floats)
        });
        let tally = self.answer_all(prepared, patience, &mut runner, &model)?;
        let seconds = start.elapsed().as_secs_f64();
        let computing = runner.computing.as_secs_f64();
        say!(
            "{} in {seconds:.2} s: {:.1} images/s; the model took {computing:.2} s on {}, {:.1} images/s",
            format::count(tally.answered, "image", "images"),
            tally.answered as f64 / seconds,
            described(runner.device()),
            tally.answered as f64 / computing.max(1e-9),
        );
        if tally.answered + tally.failed == 0 {
            return Err(Failure::input(anyhow!("no image was named: the list on standard input is empty")));
        }
        if tally.failed > 0 {
            say!("{} gave no image", format::count(tally.failed, "path", "paths"));
            return Err(Failure::Reported);
        }
        Ok(())
    }

    fn answer_all(
        &self,
        mut prepared: OrderedMap<Prepared>,
        patience: Option<Duration>,
        runner: &mut Runner<&ImageModel>,
        model: &ImageModel,
    ) -> Result<Tally, Failure> {
        let mut out = BufWriter::new(crate::say::stdout());
        let mut tally = Tally::default();
        // In the order of the arguments: failures wait for their turn, too.
        let mut waiting: Vec<Prepared> = Vec::new();
        let mut good = 0;
        loop {
            let next = match patience.filter(|_| !waiting.is_empty()) {
                Some(patience) => prepared.next_within(patience),
                None => Ok(prepared.next()),
            };
            let enough = match next {
                Ok(Some(image)) => {
                    good += usize::from(image.pixels.is_ok());
                    waiting.push(image);
                    good >= runner.batch()
                }
                Ok(None) => break,
                Err(NotYet) => true,
            };
            if enough {
                self.answer_batch(std::mem::take(&mut waiting), runner, model, &mut tally, &mut out)?;
                good = 0;
            }
        }
        self.answer_batch(waiting, runner, model, &mut tally, &mut out)?;
        out.flush()?;
        Ok(tally)
    }

    fn answer_batch(
        &self,
        waiting: Vec<Prepared>,
        runner: &mut Runner<&ImageModel>,
        model: &ImageModel,
        tally: &mut Tally,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let mut images = Vec::new();
        let mut failures = Vec::new();
        let mut paths = Vec::new();
        for prepared in waiting {
            paths.push(prepared.path);
            match prepared.pixels {
                Ok(pixels) => {
                    images.push(pixels.numbers);
                    failures.push(None);
                }
                Err(error) => failures.push(Some(error)),
            }
        }
        let floats = runner.output_floats();
        let answers = if images.is_empty() { &[] } else { runner.run(&images)? };
        let mut answers = answers.chunks_exact(floats.max(1));
        for (path, failure) in paths.iter().zip(failures) {
            match (failure, answers.len()) {
                (Some(error), _) => {
                    tally.failed += 1;
                    self.write_failure(path, &error, out)?;
                }
                (None, _) => {
                    tally.answered += 1;
                    let answer = answers.next().context("an answer for each image").map_err(Failure::work)?;
                    self.write_answer(path, answer, model, out)?;
                }
            }
        }
        // Whoever reads along sees each batch when it is done.
        Ok(out.flush()?)
    }

    fn write_failure(&self, path: &Path, error: &str, out: &mut impl Write) -> Result<(), Failure> {
        if self.json {
            writeln!(out, "{}", json!({"path": path.to_string_lossy(), "error": error}))?;
        } else {
            // In the place where its answer would stand.
            out.flush()?;
            complain!("error: {}: {error}", format::one_line(&path.to_string_lossy()));
        }
        Ok(())
    }

    fn write_answer(
        &self,
        path: &Path,
        answer: &[f32],
        model: &ImageModel,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let path = path.to_string_lossy();
        if self.features {
            if self.json {
                writeln!(out, "{}", json!({"path": path, "features": answer}))?;
            } else {
                let numbers: Vec<String> = answer.iter().map(f32::to_string).collect();
                writeln!(out, "{}\t{}", format::one_line(&path), numbers.join(" "))?;
            }
            return Ok(());
        }
        let scores = softmax(answer);
        let order = best(&scores, self.top);
        if self.json {
            let class = |&index: &usize| json!({"index": index, "label": model.label(index), "score": scores[index]});
            let top: Vec<_> = order.iter().map(class).collect();
            writeln!(out, "{}", json!({"path": path, "top": top, "logits": answer}))?;
            return Ok(());
        }
        writeln!(out, "{}", format::one_line(&path))?;
        for index in order {
            writeln!(out, "  {:5.1} %  {}", 100.0 * scores[index], format::one_line(&model.label(index)))?;
        }
        Ok(())
    }
}
