//! `vitreous eval`: how good a model is on a data set. What is measured follows from what the model takes and gives.

mod image_report;
mod images;
mod language;
mod pairs;
mod questions;
mod sequences;
mod speech;
mod texts;

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_data::text::Languages;
use vitreous_engine::collective::Launch;
use vitreous_models::{OpenOptions, Takes};
use vitreous_runtime::locate::model_directory;
use vitreous_train::{Recipe, RunRecord};

use super::{parse_beam, parse_count};
use crate::device_options::ComputeOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;

/// Evaluate a model on a data set: accuracy, precision and recall per class, confusions and calibration; for a translator BLEU, chrF
/// and perplexity; for texts accuracy, F1, correlations, entities, answers to questions or the perplexity of masked tokens; for language models
/// perplexity, bits per byte and the accuracy of chosen answers
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous eval runs/small-1                       the run's own validation data
  vitreous eval MODEL --data photos/ --split test  a folder with train, val and test
  vitreous eval runs/translation-1 --data test.tsv --beam 4 --translations test.out
  vitreous eval runs/classify-text-1 --data test.jsonl
  vitreous eval MODEL --data dev-v1.1.json         questions, as in SQuAD
  vitreous eval MODEL --data wiki.txt --stride 512 perplexity of a language model
  vitreous eval MODEL --data piqa.jsonl            multiple choice, by likelihood")]
pub struct Eval {
    /// A model directory, a run directory or a checkpoint file
    model: PathBuf,
    /// The data set: images, sentence pairs, labelled or tagged texts, questions, plain text, multiple choice [default: a run's own data; otherwise, for images, the built-in data set]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Which split of the data set [default: validation; for pairs test, if there is such a split]
    #[arg(long, value_enum, ignore_case = true)]
    split: Option<Split>,
    /// The fraction that is drawn for validation, where the data has no such split [default: a run's own; 0.1; for pairs 0.02]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    validation_share: Option<f64>,
    #[command(flatten)]
    compute: ComputeOptions,
    /// Evaluate only this many images, pairs or questions, spread evenly over the data set; of a text, the first so many windows
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Batch size [default: as large as keeps the machine busy]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_IMAGES)]
    batch: Option<usize>,
    /// The number of attention heads, for files that do not contain it
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_IMAGES)]
    heads: Option<usize>,
    /// Show all classes, however many there are
    #[arg(long, help_heading = FOR_IMAGES)]
    all: bool,
    /// Source and target language, as the files or keys of the pairs are called: en-de
    #[arg(long, value_name = "LANGUAGES", help_heading = FOR_TEXT)]
    languages: Option<Languages>,
    /// Beam width [default: 1, greedy search]
    #[arg(long, value_name = "N", value_parser = parse_beam, allow_negative_numbers = true, help_heading = FOR_TEXT)]
    beam: Option<usize>,
    /// Length penalty of beam search [default: 0.6]; 0 is none
    #[arg(long, value_name = "A", allow_negative_numbers = true, help_heading = FOR_TEXT)]
    length_penalty: Option<f32>,
    /// The language of the sources, of a model that has several (mBART, Marian): en_XX, or en
    #[arg(long, value_name = "CODE", help_heading = FOR_TEXT)]
    from: Option<String>,
    /// The language to write: de_DE, or de
    #[arg(long, value_name = "CODE", help_heading = FOR_TEXT)]
    to: Option<String>,
    /// Write the translations, one per line; an existing file is not overwritten
    #[arg(long, value_name = "FILE", help_heading = FOR_TEXT)]
    translations: Option<PathBuf>,
    /// Tokens from the beginning of a window to that of the next; each window scores what those before it did not [default: half the context length]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = FOR_LANGUAGE)]
    stride: Option<usize>,
    #[command(flatten)]
    interventions: InterventionOptions,
}

const FOR_IMAGES: &str = "For images";
const FOR_TEXT: &str = "For translators";
const FOR_LANGUAGE: &str = "For language models";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Split {
    /// The validation split, which chooses the best checkpoint
    Validation,
    /// The training split
    Train,
    /// A held-out test split
    Test,
}

impl Eval {
    pub fn run(self) -> Result<(), Failure> {
        if Launch::from_environment().map_err(Failure::input)?.is_some_and(|launch| launch.rank > 0) {
            // Started by `mpirun`: one process evaluates, and says what it has found.
            return Ok(());
        }
        let model = self.model.to_string_lossy();
        let described = vitreous_runtime::architecture(&model, &OpenOptions::default());
        if !model_directory(&self.model).join("config.json").is_file() {
            // A GGUF file says all of itself; a file of an image model's weights alone tells what it is when it is opened.
            return match described {
                Ok((architecture, _)) if architecture.signature().next_token().is_some() => self.evaluate_language(),
                Ok((architecture, _)) if architecture.signature().audio().is_some() => self.evaluate_speech(),
                _ => self.evaluate_images(),
            };
        }
        let (architecture, _) = described?;
        let signature = architecture.signature();
        let is_language = signature.next_token().is_some();
        if !is_language {
            self.refuse(&[("--stride", self.stride.is_some())], "is for language models")?;
        }
        match &signature.takes {
            Takes::Tokens(_) if is_language => self.evaluate_language(),
            Takes::Images(_) => self.evaluate_images(),
            Takes::ImagesAndTexts { .. } => {
                let what = "model that `eval` has a score for: `predict --labels` classifies images, and training scores pairs";
                Err(vitreous_runtime::locate::unsuitable(&model, &signature, what).into())
            }
            Takes::Pairs { special: Some(_), .. } => self.evaluate_sequences(),
            Takes::Pairs { special: None, .. } => {
                let languages = [("--from", self.from.is_some()), ("--to", self.to.is_some())];
                self.refuse(&languages, "is for models with several languages")?;
                self.evaluate_pairs()
            }
            Takes::Tokens(_) => self.evaluate_texts(),
            Takes::Audio(_) => self.evaluate_speech(),
        }
    }

    /// Refuses options that mean nothing to the model, of which some were given.
    fn refuse(&self, options: &[(&str, bool)], why: &str) -> Result<(), Failure> {
        match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::input(anyhow!("{}: {option} {why}", self.model.display()))),
            None => Ok(()),
        }
    }

    /// The options that only models of images and translators have, and whether they are given.
    fn of_images_and_pairs(&self) -> [(&'static str, bool); 6] {
        [
            ("--batch", self.batch.is_some()),
            ("--heads", self.heads.is_some()),
            ("--all", self.all),
            ("--beam", self.beam.is_some()),
            ("--languages", self.languages.is_some()),
            ("--translations", self.translations.is_some()),
        ]
    }

    /// The recipe of the run that the model belongs to, if it is one: its own data is what it is evaluated on.
    fn recipe_of_run(&self) -> Result<Option<Recipe>, Failure> {
        let Some(directory) = run_of(&self.model) else { return Ok(None) };
        let run = RunRecord::read(&directory).map_err(Failure::input)?;
        match run.recipe {
            Ok(recipe) => Ok(Some(recipe)),
            Err(error) => {
                Err(Failure::input(anyhow!("{}/recipe.toml: {error}; name the data: --data PATH", directory.display())))
            }
        }
    }
}

/// The run directory that a path names, or lies in: `runs/small-1`, `runs/small-1/model`.
pub fn run_of(model: &Path) -> Option<PathBuf> {
    let parent = model.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    [Some(model), parent].into_iter().flatten().find(|path| RunRecord::is_run(path)).map(Path::to_path_buf)
}

/// All samples, or this many, evenly spread: data sets often lie sorted by class.
fn spread(samples: usize, limit: Option<usize>) -> Vec<usize> {
    let count = limit.unwrap_or(samples).min(samples);
    (0..count).map(|index| (index as u128 * samples as u128 / count as u128) as usize).collect()
}

/// Shown only where stderr is a terminal, and not with `-q`.
fn progress_bar(samples: usize, of: &str) -> ProgressBar {
    let bar = ProgressBar::new(samples as u64);
    if crate::say::is_quiet() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(&format!("{{wide_bar}} {{pos}}/{{len}} {of}, {{per_sec}}, {{eta}} left"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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
