//! `vitreous translate`: sentences in, translations out, line by line, while lines come in.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use vitreous_models::generate::{Hypothesis, SearchOptions};
use vitreous_pages::format;
use vitreous_runtime::sequences::{SequenceOptions, is_sequence_model};
use vitreous_runtime::{TextTranslator, TranslatorModel, described};
use vitreous_train::tasks::translate::one_line;

use super::sequences::{SequenceArguments, SequenceCommand, Style, check_best};
use super::{parse_beam, parse_count};
use crate::device_options::ComputeOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use crate::shared_out::SharedOut;
use crate::texts::{AT_ONCE, plain, take_texts};

/// Translate sentences from arguments, files or standard input, one per line
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous translate runs/translation-1 'Click the button.'
  vitreous translate runs/translation-1 --file page.txt --beam 4 > page.de.txt
  tail -f log.txt | vitreous translate runs/translation-1        answers come as lines do
  vitreous translate mbart-large-50 --from en --to de 'Click the button.'     a model with languages")]
pub struct Translate {
    /// A run directory or a model directory
    model: PathBuf,
    /// Sentences; without any, and without --file, they are read from standard input
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Files with one sentence per line; `-` is standard input
    #[arg(long = "file", value_name = "FILE", conflicts_with = "texts")]
    files: Vec<PathBuf>,
    /// Beam width; 1 is greedy search [default: 1; of T5, BART and their relatives what their files say]
    #[arg(long, value_name = "N", value_parser = parse_beam, allow_negative_numbers = true)]
    beam: Option<usize>,
    /// Length penalty of beam search: larger prefers longer translations, 0 is none [default: 0.6; of T5, BART .. what their files say]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    length_penalty: Option<f32>,
    /// The most tokens of a translation (T5, BART ..)
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    max_tokens: Option<usize>,
    #[command(flatten)]
    sequences: SequenceArguments,
    /// Print this many translations of each sentence, at most the beam width: line number, tab, score, tab, translation
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    n_best: Option<usize>,
    /// Print one JSON object per line: source, and translations with their scores
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compute: ComputeOptions,
    #[command(flatten)]
    interventions: InterventionOptions,
}

impl Translate {
    pub fn run(self) -> Result<(), Failure> {
        let best = self.n_best.unwrap_or(1);
        if is_sequence_model(&self.model) {
            return self.write_sequences(best);
        }
        if let Some(option) = self.sequences.given().or(self.max_tokens.map(|_| "--max-tokens")) {
            let what =
                format!("{option} is for models such as T5, BART and Marian; this translator has one language pair");
            return Err(Failure::input(anyhow!(what)));
        }
        let (beam, length_penalty) = (self.beam.unwrap_or(1), self.length_penalty.unwrap_or(0.6));
        check_best("--n-best", best, beam)?;
        check_length_penalty(length_penalty)?;
        let model = self.interventions.apply(TranslatorModel::open(&self.model)?)?;
        let device = self.compute.device()?;
        let search = SearchOptions { beam, length_penalty };
        let mut translator = TextTranslator::new(&model, search, self.compute.precision(), &device)?;
        let start = Instant::now();
        let mut count = 0;
        let mut computing = 0.0;
        let mut out = crate::say::stdout();
        let mut answer = |lines: &[String]| -> Result<(), Failure> {
            let before = Instant::now();
            let answers = translator.translate(lines)?;
            computing += before.elapsed().as_secs_f64();
            count += lines.len();
            for (number, (line, hypotheses)) in (count - lines.len() + 1..).zip(lines.iter().zip(answers)) {
                self.write((number, line), &hypotheses[..best.min(hypotheses.len())], &model, &mut out)?;
            }
            // Whoever reads along sees them when they are there.
            Ok(out.flush()?)
        };
        take_texts(&self.texts, &self.files, AT_ONCE, plain, &mut answer)?;
        if translator.truncated() > 0 {
            let truncated = format::count(translator.truncated(), "sentence was", "sentences were");
            let most = model.source.longest - 1;
            say!("note: {truncated} longer than the model can read, {most} tokens, and truncated");
        }
        say!(
            "{} in {:.2} s; the model took {computing:.2} s on {}, {:.1} sentences/s",
            format::count(count, "sentence", "sentences"),
            start.elapsed().as_secs_f64(),
            described(&device),
            count as f64 / computing.max(1e-9)
        );
        Ok(())
    }

    /// Translates with an encoder-decoder that has its own tokenizer.
    fn write_sequences(&self, best: usize) -> Result<(), Failure> {
        let options = SequenceOptions {
            beam: self.beam,
            length_penalty: self.length_penalty,
            max_tokens: self.max_tokens,
            ..self.sequences.options()?
        };
        let command = SequenceCommand {
            interventions: &self.interventions,
            model: &self.model,
            texts: &self.texts,
            files: &self.files,
            options,
            best,
            style: Style::Translated { is_numbered: self.n_best.is_some() },
            json: self.json,
            out: None,
            force: false,
        };
        let device = self.compute.device()?;
        command.run(SharedOut::alone(), self.compute.precision(), &device)
    }

    fn write(
        &self,
        (number, source): (usize, &str),
        hypotheses: &[Hypothesis],
        model: &TranslatorModel,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let text = |hypothesis: &Hypothesis| model.text(&hypothesis.tokens).map_err(Failure::work);
        if self.json {
            let mut translations = Vec::new();
            for hypothesis in hypotheses {
                translations.push(json!({
                    "text": text(hypothesis)?,
                    "score": hypothesis.score,
                    "log_probability": hypothesis.log_probability,
                    "ended": hypothesis.ended,
                }));
            }
            writeln!(out, "{}", json!({ "source": source, "translations": translations }))?;
            return Ok(());
        }
        for hypothesis in hypotheses {
            let line = one_line(&text(hypothesis)?);
            match self.n_best {
                None => writeln!(out, "{line}")?,
                Some(_) => writeln!(out, "{number}\t{:.4}\t{line}", hypothesis.score)?,
            }
        }
        Ok(())
    }
}

/// Refuses penalties that are no numbers, or so large that scores are none.
pub(super) fn check_length_penalty(penalty: f32) -> Result<(), Failure> {
    match (-10.0..=10.0).contains(&penalty) {
        true => Ok(()),
        false => Err(Failure::input(anyhow!("--length-penalty must be between -10 and 10; it is {penalty}"))),
    }
}
