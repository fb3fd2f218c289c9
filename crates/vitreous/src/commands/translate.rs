//! `vitreous translate`: sentences in, translations out, line by line, while lines come in.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use vitreous_data::text::MOST_LINE_BYTES;
use vitreous_models::translate::{Hypothesis, SearchOptions};

use super::{PrecisionName, parse_count, parse_threads};
use crate::failure::Failure;
use crate::format;
use crate::source;
use crate::text_source::{Sentences, TextSource, translate_options};

/// The most sentences that are translated together: enough to keep every slot busy, few enough that answers come soon.
const AT_ONCE: usize = 1024;

/// Translate sentences: from arguments, files or standard input, a line each
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous translate runs/translation-1 'Click the button.'
  vitreous translate runs/translation-1 --file page.txt --beam 4 > page.de.txt
  tail -f log.txt | vitreous translate runs/translation-1        answers come as lines do")]
pub struct Translate {
    /// A run directory or a model directory
    model: PathBuf,
    /// Sentences; without any, and without --file, they are read from standard input
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Files with a sentence a line
    #[arg(long = "file", value_name = "FILE", conflicts_with = "texts")]
    files: Vec<PathBuf>,
    /// Hypotheses that are followed at once; 1 is greedy
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count, allow_negative_numbers = true)]
    beam: usize,
    /// How much longer hypotheses are preferred, with a beam; 0 is not at all
    #[arg(long, value_name = "A", default_value = "0.6", allow_negative_numbers = true)]
    length_penalty: f32,
    /// Give so many translations of each sentence, each behind its score and a tab; at most the beam
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    n_best: Option<usize>,
    /// Print one JSON object a line: source, and translations with their scores
    #[arg(long)]
    json: bool,
    /// Numbers to compute with
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Threads to compute with; by default one a core
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
}

impl Translate {
    pub fn run(self) -> Result<(), Failure> {
        let best = self.n_best.unwrap_or(1);
        if best > self.beam {
            let what = format!("--n-best {best} needs a --beam of at least {best}; it is {}", self.beam);
            return Err(Failure::input(anyhow!(what)));
        }
        if !self.length_penalty.is_finite() {
            return Err(Failure::input(anyhow!("--length-penalty must be a number")));
        }
        let model = TextSource::open(&self.model)?;
        let threads = self.threads.unwrap_or_else(source::threads);
        let search = SearchOptions { beam: self.beam, length_penalty: self.length_penalty };
        let options = translate_options(search, threads, self.precision.into());
        let mut sentences = Sentences::new(&model, options);
        let start = Instant::now();
        let mut count = 0;
        let mut computing = 0.0;
        let mut out = std::io::stdout().lock();
        let mut answer = |lines: &[String]| -> Result<(), Failure> {
            let before = Instant::now();
            let answers = sentences.translate(lines).map_err(Failure::work)?;
            computing += before.elapsed().as_secs_f64();
            count += lines.len();
            for (line, hypotheses) in lines.iter().zip(answers) {
                self.write(line, &hypotheses[..best.min(hypotheses.len())], &model, &mut out)?;
            }
            // Whoever reads along sees them when they are there.
            Ok(out.flush()?)
        };
        match (&self.texts[..], &self.files[..]) {
            ([], []) => {
                let lines = read_aside(Box::new(std::io::stdin()), "standard input".to_string());
                take_lines(&lines, lines.try_iter(), &mut answer)?;
            }
            ([], files) => {
                for path in files {
                    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
                    let lines = read_aside(Box::new(file), path.display().to_string());
                    // Nobody waits for the first lines of a file, and many at once are translated faster.
                    take_lines(&lines, lines.iter(), &mut answer)?;
                }
            }
            (texts, _) => texts.chunks(AT_ONCE).try_for_each(&mut answer)?,
        }
        say!(
            "{} in {:.2} s; the model took {computing:.2} s, {:.1} sentences/s",
            format::count(count, "sentence", "sentences"),
            start.elapsed().as_secs_f64(),
            count as f64 / computing.max(1e-9)
        );
        Ok(())
    }

    fn write(
        &self,
        source: &str,
        hypotheses: &[Hypothesis],
        model: &TextSource,
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
            let line = format::one_line(&text(hypothesis)?);
            match self.n_best {
                None => writeln!(out, "{line}")?,
                Some(_) => writeln!(out, "{:.4}\t{line}", hypothesis.score)?,
            }
        }
        Ok(())
    }
}

type Line = Result<String, String>;

/// Reads lines on a thread of its own, so that those which have come can be translated while others are awaited.
fn read_aside(from: Box<dyn Read + Send>, name: String) -> Receiver<Line> {
    let (sender, receiver) = sync_channel(2 * AT_ONCE);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        for number in 1.. {
            let mut bytes = Vec::new();
            let read = from.by_ref().take(MOST_LINE_BYTES as u64 + 1).read_until(b'\n', &mut bytes);
            let line = match read {
                Ok(0) => return,
                Ok(length) if length > MOST_LINE_BYTES => {
                    Err(format!("{name}, line {number}: it is longer than 1 MiB"))
                }
                Ok(_) => {
                    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                        bytes.pop();
                    }
                    String::from_utf8(bytes).map_err(|error| {
                        let byte = error.utf8_error().valid_up_to() + 1;
                        format!("{name}, line {number}: byte {byte} is not UTF-8")
                    })
                }
                Err(error) => Err(format!("{name}, line {number}: {error}")),
            };
            let failed = line.is_err();
            if sender.send(line).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// Gives lines on, until there is no more: as soon as there is one, with it what `further` has.
fn take_lines(
    lines: &Receiver<Line>,
    mut further: impl Iterator<Item = Line>,
    answer: &mut impl FnMut(&[String]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while let Ok(first) = lines.recv() {
        let mut some = vec![first];
        some.extend(further.by_ref().take(AT_ONCE - 1));
        let failure = some.iter().position(Result::is_err).map(|place| some.split_off(place).swap_remove(0));
        let texts: Vec<String> = some.into_iter().flatten().collect();
        answer(&texts)?;
        if let Some(Err(what)) = failure {
            return Err(Failure::input(anyhow!(what)));
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(anyhow!("{}: {error}", path.display()))
}
