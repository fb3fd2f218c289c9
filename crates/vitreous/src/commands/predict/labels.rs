//! Classes of images that are only named: a model of images and texts compares each image with what the labels say.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use vitreous_files::open::read_text;
use vitreous_models::{OpenOptions, Signature};
use vitreous_runtime::image_text::{LabelSet, ZeroShot};
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::{ImageTextModel, OutputName};

use super::Predict;
use super::images::Printed;
use crate::failure::Failure;
use crate::image_answers::{Answers, ImageQuestion, ask};
use crate::shared_out::{Chunk, SharedOut};

/// A file of labels is a list of names.
const MOST_LABEL_BYTES: u64 = 64 << 20;

/// The labels of classes that are only named.
#[derive(Args, Default)]
pub(super) struct LabelOptions {
    /// Classes to choose from, between commas, for a model of images and texts
    #[arg(long, value_name = "LABELS", conflicts_with_all = ["texts", "files", "question", "features"])]
    labels: Option<String>,
    /// The same from a file, one label per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["labels", "texts", "files", "question", "features"])]
    labels_file: Option<PathBuf>,
    /// The sentence that a label is put into, at its {}; given several times, the mean over all sentences is taken
    #[arg(long = "template", value_name = "SENTENCE")]
    templates: Vec<String>,
}

impl LabelOptions {
    /// The file of labels.
    pub(super) fn file(&self) -> Option<&Path> {
        self.labels_file.as_deref()
    }

    /// The labels, if there are any.
    fn set(&self) -> Result<Option<LabelSet>, Failure> {
        let templates = self.templates.clone();
        Ok(match (&self.labels, &self.labels_file) {
            (Some(list), _) => Some(LabelSet::from_list(list, templates)?),
            (None, Some(file)) => {
                let failed = |error: std::io::Error| Failure::input(anyhow!("{}: {error}", file.display()));
                let text = read_text(file, MOST_LABEL_BYTES).map_err(failed)?;
                Some(LabelSet::from_lines(&text, templates, &file.to_string_lossy())?)
            }
            (None, None) if templates.is_empty() => None,
            (None, None) => {
                return Err(Failure::input(anyhow!(
                    "--template needs labels: add --labels 'a cat,a dog' or --labels-file FILE"
                )));
            }
        })
    }

    /// Refuses labels for a model that has classes of its own, or none.
    pub(super) fn refuse(&self, model: &str, signature: &Signature) -> Result<(), Failure> {
        match self.set()? {
            None => Ok(()),
            Some(_) => Err(unsuitable(model, signature, "model that takes --labels").into()),
        }
    }
}

impl Predict {
    pub(super) fn run_on_labels(&self) -> Result<(), Failure> {
        let name = self.model.to_string_lossy();
        let set = self.label_options.set()?;
        let Some(set) = set.filter(|_| !self.features) else {
            if self.features {
                return self.run_on_images();
            }
            return Err(Failure::input(anyhow!(
                "{name}: this model knows no classes but compares images with texts: say which with --labels 'a cat,a dog' or \
                 --labels-file FILE"
            )));
        };
        let options = OpenOptions::default().with_some("image", self.image).with_some("heads", self.heads);
        let model = ImageTextModel::open(&self.model, &options)?;
        let model = self.interventions.apply(model)?;
        model.images.model.notes.iter().for_each(|note| say!("note: {note}"));
        let mut shared = self.shared_out(&[])?;
        let device = self.compute.device_of(&shared)?;
        let precision = self.compute.precision();
        let mut runner = model.caption_runner(precision, &device)?;
        let zero_shot = ZeroShot::new(&set, &mut runner)?;
        if runner.truncated() > 0 {
            say!(
                "note: {} of the labels' sentences are longer than the {} tokens that the model reads; the rest was not read",
                runner.truncated(),
                model.texts.longest
            );
        }
        let threads = self.compute.threads_of(&shared);
        let question =
            ImageQuestion { output: OutputName::Features, precision, batch: self.batch, threads, device: &device };
        let label = |class: usize| zero_shot.labels[class].clone();
        let scores = |logits: &[f32]| zero_shot.scores(logits);
        let printed = Printed::new(self, &label, &scores, &shared)?;
        let mut compared = Compared { zero_shot: &zero_shot, printed };
        let asked = ask(&model.images, &self.paths, &question, &mut shared, &mut compared);
        compared.printed.finish(asked, shared)
    }
}

/// Turns vectors of images into logits of labels.
struct Compared<'z, 'p> {
    zero_shot: &'z ZeroShot,
    printed: Printed<'p>,
}

impl Answers for Compared<'_, '_> {
    fn answer(&mut self, path: &Path, answer: Result<&[f32], &str>) -> Result<(), Failure> {
        let logits = answer.map(|vector| self.zero_shot.logits(vector));
        self.printed.answer(path, logits.as_deref().map_err(|error| *error))
    }

    fn batch_ends(&mut self) -> Result<(), Failure> {
        self.printed.batch_ends()
    }

    fn chunk_ends(&mut self, shared: &mut SharedOut, chunk: &Chunk, failed: usize) -> Result<(), Failure> {
        self.printed.chunk_ends(shared, chunk, failed)
    }
}
