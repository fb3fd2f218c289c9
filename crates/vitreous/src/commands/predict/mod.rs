//! `vitreous predict`: what a model says of images or texts.

mod images;
mod labels;
mod questions;
mod text;

pub(super) use images::write_failure;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use vitreous_models::{OpenOptions, Size};
use vitreous_runtime::architecture;
use vitreous_runtime::locate::open_model;
use vitreous_runtime::text::Aggregation;

use labels::LabelOptions;

use super::{parse_count, parse_size};
use crate::device_options::ComputeOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use crate::shared_out::{ShareOptions, SharedOut, Task};
use crate::texts::{TextFiles, read_standard_input};

/// Run a model on images or texts: classes with their scores, entities, answers to questions
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous predict MODEL photo.jpg photos/ --top 3
  vitreous predict CLIP photos/ --labels 'a cat,a dog' --template 'a photo of {}'
  vitreous predict MODEL --text 'A wonderful film.' 'Two hours of my life.'
  vitreous predict MODEL --file reviews.txt --json
  vitreous predict MODEL --question 'Who wrote it?' --context 'It was written by Ada Lovelace.'
  vitreous predict MODEL --file questions.jsonl
  mpirun -n 8 vitreous predict MODEL photos/ --json --out answers.jsonl

A text model that is given no texts reads them from standard input, one per line. \
For a question answering model, each line of a file is an object such as {\"question\": \"..\", \"context\": \"..\"}.")]
pub struct Predict {
    /// A model directory or a checkpoint file
    model: PathBuf,
    /// Images, folders of images, or patterns such as 'photos/*.jpg'; `-` reads an image, or a list of paths, from standard input
    #[arg(value_name = "PATH", conflicts_with_all = ["texts", "files", "question"])]
    paths: Vec<OsString>,
    /// Texts, for a model that classifies texts or finds entities; `-` reads them from standard input, one per line
    #[arg(long = "text", value_name = "TEXT", num_args = 1.., conflicts_with = "files")]
    texts: Vec<String>,
    /// The second text of a pair, for a model that compares two
    #[arg(long, value_name = "TEXT", requires = "texts")]
    pair: Option<String>,
    #[command(flatten)]
    files: TextFiles,
    /// A question, for a question answering model, which looks for the answer in `--context`
    #[arg(long, value_name = "Q", requires = "context", conflicts_with_all = ["texts", "files"])]
    question: Option<String>,
    /// The text in which the answer to `--question` is looked for
    #[arg(long, value_name = "C", requires = "question")]
    context: Option<String>,
    #[command(flatten)]
    label_options: LabelOptions,
    /// How many classes to show for each image or text, or answers to a question
    #[arg(long, value_name = "K", default_value = "5", value_parser = parse_count, allow_negative_numbers = true)]
    top: usize,
    /// For token classifiers: how tokens are grouped into entities
    #[arg(long, value_enum, default_value = "simple")]
    aggregate: AggregateName,
    /// Print one JSON object per line: path or text, with top and logits, numbers, entities, or answers; error for a file that cannot be read
    #[arg(long)]
    json: bool,
    /// Write the answers to a file, which appears when it is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file of --out
    #[arg(long, requires = "out")]
    force: bool,
    /// Print the pooled features that the head would see, instead of classes
    #[arg(long)]
    features: bool,
    /// Batch size for images [default: as large as keeps the machine busy]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// The image size, if not the model's own: position embeddings are resized
    #[arg(long, value_name = "HxW", value_parser = parse_size, allow_negative_numbers = true)]
    image: Option<Size>,
    /// The number of attention heads, for files that do not contain it
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    heads: Option<usize>,
    #[command(flatten)]
    compute: ComputeOptions,
    #[command(flatten)]
    interventions: InterventionOptions,
    #[command(flatten)]
    share: ShareOptions,
}

/// How tokens become entities, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AggregateName {
    /// Every token by itself
    None,
    /// Neighbouring tokens of one entity are joined
    Simple,
    /// A word has the class of its first token
    First,
    /// A word has the class with the highest mean score of its tokens
    Average,
    /// A word has the class of its token with the highest score
    Max,
}

impl From<AggregateName> for Aggregation {
    fn from(name: AggregateName) -> Aggregation {
        match name {
            AggregateName::None => Aggregation::None,
            AggregateName::Simple => Aggregation::Simple,
            AggregateName::First => Aggregation::First,
            AggregateName::Average => Aggregation::Average,
            AggregateName::Max => Aggregation::Max,
        }
    }
}

impl Predict {
    /// Images of PATH are shared out, or texts and questions.
    fn shared_out(&self, texts: &[String]) -> Result<SharedOut, Failure> {
        let reads_standard_input = match self.paths.is_empty() {
            true => self.question.is_none() && read_standard_input(texts, &self.files.files),
            false => self.paths.iter().any(|path| path == "-"),
        };
        let files = self.label_options.file().into_iter().collect();
        SharedOut::begin(
            &self.share,
            &Task { model: &self.model, files, out: self.out.as_deref(), reads_standard_input },
        )
    }

    pub fn run(self) -> Result<(), Failure> {
        let wants_text = !self.texts.is_empty() || !self.files.files.is_empty() || self.question.is_some();
        if wants_text {
            return self.run_on_texts();
        }
        let name = self.model.to_string_lossy();
        let is_unclear = self.paths.is_empty() || self.paths == ["-"];
        if !self.model.exists() {
            // A preset has no weights.
            open_model(&self.model, &OpenOptions::default())?;
        }
        let (model, _) = architecture(&name, &OpenOptions::default().with_some("heads", self.heads))?;
        let signature = model.signature();
        let compares = signature.images_and_texts().is_some();
        if !compares {
            self.label_options.refuse(&name, &signature)?;
        }
        if is_unclear {
            // A model of texts reads standard input; for images there must be paths.
            if signature.tokens().is_some() {
                return self.run_on_texts();
            }
            if self.paths.is_empty() {
                let what = "name images, or folders of them, as PATH after the model; `-` reads a list";
                return Err(Failure::input(anyhow!(what)));
            }
        }
        if compares { self.run_on_labels() } else { self.run_on_images() }
    }
}
