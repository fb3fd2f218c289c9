//! What `generate` and `translate` do with an encoder-decoder: texts in, texts out, line by line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use vitreous_engine::{Device, Precision};
use vitreous_models::generate::{EarlyStopping, Hypothesis};
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::language::StopReason;
use vitreous_runtime::sequences::{SequenceModel, SequenceOptions, SequenceWriter};
use vitreous_train::tasks::translate::one_line;

use super::parse_count;
use super::translate::check_length_penalty;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use crate::shared_out::{SharedOut, key_of};
use crate::texts::{AT_ONCE, plain, take_texts};

/// The options of encoder-decoders.
#[derive(Args, Clone, Debug)]
pub struct SequenceArguments {
    /// The language of the texts, of a model that has several: en_XX, or en
    #[arg(long, value_name = "CODE")]
    from: Option<String>,
    /// The language to write, of a model that has several: de_DE, or de
    #[arg(long, value_name = "CODE")]
    to: Option<String>,
    /// No sequence of N tokens comes twice; 0 is off (encoder-decoders)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    no_repeat: Option<usize>,
    /// Write at least this many tokens (encoder-decoders)
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    min_tokens: Option<usize>,
    /// When a beam search ends: when as many hypotheses have ended as there are beams (true), when no other seems better (false), or when
    /// none can become better (never)
    #[arg(long, value_name = "WHEN", value_enum)]
    early_stopping: Option<Stopping>,
    /// Truncate texts that are longer than the model reads, instead of refusing them (encoder-decoders)
    #[arg(long)]
    truncate: bool,
}

/// `early_stopping` of `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stopping {
    True,
    False,
    Never,
}

impl SequenceArguments {
    /// The first of them that was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--no-repeat", self.no_repeat.is_some()),
            ("--min-tokens", self.min_tokens.is_some()),
            ("--early-stopping", self.early_stopping.is_some()),
            ("--truncate", self.truncate),
        ];
        all.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// As the runtime takes them.
    pub fn options(&self) -> Result<SequenceOptions, Failure> {
        const MOST_REPEATED: usize = 1000;
        if self.no_repeat.is_some_and(|tokens| tokens > MOST_REPEATED) {
            return Err(Failure::input(anyhow!("--no-repeat must be at most {MOST_REPEATED}")));
        }
        let early_stopping = self.early_stopping.map(|when| match when {
            Stopping::True => EarlyStopping::WhenFull,
            Stopping::False => EarlyStopping::WhenUnlikely,
            Stopping::Never => EarlyStopping::Never,
        });
        Ok(SequenceOptions {
            early_stopping,
            no_repeat: self.no_repeat,
            min_tokens: self.min_tokens,
            from: self.from.clone(),
            to: self.to.clone(),
            truncate: self.truncate,
            ..SequenceOptions::default()
        })
    }
}

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As `generate` writes those of language models.
    Generated,
    /// As `translate` does; `is_numbered` if each line has the number of its text and its score.
    Translated { is_numbered: bool },
}

/// What is asked of an encoder-decoder.
pub struct SequenceCommand<'a> {
    /// Edits of the model.
    pub interventions: &'a InterventionOptions,
    pub model: &'a Path,
    /// Texts; without any, and without files, they are read from standard input.
    pub texts: &'a [String],
    pub files: &'a [PathBuf],
    pub options: SequenceOptions,
    /// How many texts are written for each.
    pub best: usize,
    pub style: Style,
    pub json: bool,
    /// The file of the answers, if they are not printed, and whether it may be overwritten.
    pub out: Option<&'a Path>,
    pub force: bool,
}

impl SequenceCommand<'_> {
    pub fn run(&self, mut shared: SharedOut, precision: Precision, device: &Device) -> Result<(), Failure> {
        if let Some(penalty) = self.options.length_penalty {
            check_length_penalty(penalty)?;
        }
        let model = self.interventions.apply(SequenceModel::open(self.model)?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let mut writer = SequenceWriter::new(&model, &self.options, precision, device)?;
        let option = if self.style == Style::Generated { "--n" } else { "--n-best" };
        check_best(option, self.best, writer.beam())?;
        let (start, mut computing, mut count, mut tokens) = (Instant::now(), 0.0, 0, 0);
        let is_search = writer.beam() > 1;
        let mut out = shared.output(self.out, self.force)?;
        let at_once = shared.chunk_size(AT_ONCE);
        take_texts(self.texts, self.files, at_once, plain, |lines: &[String]| {
            let Some(chunk) = shared.next(lines.len(), key_of(lines)) else { return Ok(()) };
            let before = Instant::now();
            if !shared.is_direct() {
                // Whichever rank computes a chunk gives the same bits. Otherwise lines that come one by one share what was made ready.
                writer.forget_texts();
            }
            let answers = writer.write(lines)?;
            computing += before.elapsed().as_secs_f64();
            count += lines.len();
            shared.answer(&chunk, &mut out, |out| {
                for (number, (line, hypotheses)) in (chunk.first + 1..).zip(lines.iter().zip(&answers)) {
                    tokens += hypotheses.first().map_or(0, |best| best.tokens.len());
                    let best = &hypotheses[..self.best.min(hypotheses.len())];
                    self.write((number, line), best, is_search, &model, out)?;
                }
                // Whoever reads along sees them when they are there.
                Ok(out.flush()?)
            })
        })?;
        if writer.truncated() > 0 {
            let truncated = format::count(writer.truncated(), "text was", "texts were");
            say!("note: {truncated} longer than the model can read, {} tokens, and truncated", model.source.longest);
        }
        say!(
            "{} in {:.2} s; the model took {computing:.2} s on {}, {:.1} texts/s, {:.0} tokens/s",
            format::count(count, "text", "texts"),
            start.elapsed().as_secs_f64(),
            described(device),
            count as f64 / f64::max(computing, 1e-9),
            tokens as f64 / f64::max(computing, 1e-9),
        );
        shared.finish_into(self.out, self.force, out)
    }

    fn write(
        &self,
        (number, source): (usize, &str),
        hypotheses: &[Hypothesis],
        is_search: bool,
        model: &SequenceModel,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let text = |hypothesis: &Hypothesis| model.text(&hypothesis.tokens).map_err(Failure::work);
        if self.json && self.style == Style::Generated {
            for hypothesis in hypotheses {
                let stop = if hypothesis.ended { StopReason::End } else { StopReason::Length };
                let (text, tokens) = (text(hypothesis)?, &hypothesis.tokens);
                let mut line = json!({ "prompt": source, "text": text, "tokens": tokens, "stop": stop.name() });
                if is_search {
                    line["score"] = json!(hypothesis.score);
                }
                writeln!(out, "{line}")?;
            }
            return Ok(());
        }
        if self.json {
            let mut texts = Vec::new();
            for hypothesis in hypotheses {
                texts.push(json!({
                    "text": text(hypothesis)?,
                    "tokens": hypothesis.tokens,
                    "score": hypothesis.score,
                    "log_probability": hypothesis.log_probability,
                    "ended": hypothesis.ended,
                }));
            }
            writeln!(out, "{}", json!({ "source": source, "texts": texts }))?;
            return Ok(());
        }
        for hypothesis in hypotheses {
            let line = one_line(&text(hypothesis)?);
            match self.style {
                Style::Translated { is_numbered: true } => writeln!(out, "{number}\t{:.4}\t{line}", hypothesis.score)?,
                _ => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }
}

/// Refuses more texts than a search has beams.
pub(super) fn check_best(option: &str, best: usize, beam: usize) -> Result<(), Failure> {
    match best > beam {
        true => Err(Failure::input(anyhow!("{option} {best} needs a --beam of at least {best}; it is {beam}"))),
        false => Ok(()),
    }
}
