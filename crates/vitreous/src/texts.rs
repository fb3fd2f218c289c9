//! Texts that a command is given: as arguments, in files, or on standard input, one per line, while lines come in.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use serde_json::Value as Json;
use vitreous_data::text::Lines;
use vitreous_engine::Device;
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::text::TextInput;

use crate::failure::Failure;

/// The most texts that are computed together: enough to keep a machine busy, few enough that answers come soon.
pub const AT_ONCE: usize = 1024;
/// The most bytes of texts that are computed together, as long as one of them has fewer.
const MOST_BYTES: usize = 1 << 24;
/// Lines that are read ahead.
const AHEAD: usize = 64;

/// `--file` of commands that take texts.
#[derive(Args, Clone, Debug)]
pub struct TextFiles {
    /// Files with one text per line, or JSON lines with `text` (and `text_pair`); `-` is standard input
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Counts for the last lines of a command.
pub struct TextTally {
    start: Instant,
    pub texts: usize,
    /// Texts that are longer than the model reads.
    pub truncated: usize,
}

impl TextTally {
    /// Begins to count, and to measure time.
    pub fn new() -> TextTally {
        TextTally { start: Instant::now(), texts: 0, truncated: 0 }
    }

    /// Says how it went: the model took so many seconds, and reads at most `longest` tokens.
    pub fn tell(&self, longest: usize, computing: f64, device: &Device) {
        if self.truncated > 0 {
            let texts = format::count(self.truncated, "text was", "texts were");
            say!("note: {texts} longer than the model reads, {longest} tokens, and truncated");
        }
        let seconds = self.start.elapsed().as_secs_f64();
        say!(
            "{} in {seconds:.2} s: {:.1} texts/s; the model took {computing:.2} s on {}",
            format::count(self.texts, "text", "texts"),
            self.texts as f64 / seconds.max(1e-9),
            described(device),
        );
    }
}

/// Whether texts come through standard input.
pub fn read_standard_input(texts: &[String], files: &[PathBuf]) -> bool {
    texts.is_empty() && (files.is_empty() || files.iter().any(|file| file.as_os_str() == "-"))
}

/// Gives texts on, in chunks of at most `at_once`: those of arguments, or of files, or lines as they come in on standard input.
pub fn take_texts<T: Send + 'static>(
    texts: &[String],
    files: &[PathBuf],
    at_once: usize,
    parse: fn(&mut Source, &str) -> Result<T, String>,
    mut answer: impl FnMut(&[T]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match (texts, files) {
        ([], []) => {
            if std::io::stdin().is_terminal() {
                say!("reading texts from the terminal, one per line; Ctrl-D ends the input");
            }
            let lines = read_aside(Source::standard_input(), parse);
            give_on(&lines, lines.try_iter(), at_once, &mut answer)
        }
        ([], files) => {
            // All are opened before work begins.
            for source in files.iter().map(|path| Source::open(path)).collect::<Result<Vec<_>, _>>()? {
                let lines = read_aside(source, parse);
                // Nobody waits for the first lines of a file, and many at once are computed faster.
                give_on(&lines, lines.iter(), at_once, &mut answer)?;
            }
            Ok(())
        }
        (texts, _) => {
            let mut source = Source::arguments();
            let all: Result<Vec<T>, String> = texts.iter().map(|text| parse(&mut source, text)).collect();
            let all = all.map_err(|reason| Failure::input(anyhow!(reason)))?;
            all.chunks(at_once).try_for_each(answer)
        }
    }
}

/// Where lines come from.
pub struct Source {
    name: PathBuf,
    lines: Option<Lines>,
    /// Whether each line is a JSON object; `None` until the first line tells.
    is_json: Option<bool>,
}

impl Source {
    fn arguments() -> Source {
        Source { name: PathBuf::new(), lines: None, is_json: Some(false) }
    }

    fn standard_input() -> Source {
        let name = PathBuf::from("standard input");
        let lines = Lines::of(Box::new(std::io::stdin()), &name);
        Source { name, lines: Some(lines), is_json: None }
    }

    /// A file; `-` is standard input.
    fn open(path: &Path) -> Result<Source, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Source::standard_input());
        }
        if path.is_dir() {
            return Err(Failure::input(anyhow!("{}: this is a directory; name a file", path.display())));
        }
        let is_json = matches!(path.extension().and_then(OsStr::to_str), Some("jsonl" | "ndjson"));
        let lines = Lines::open(path).map_err(Failure::input)?;
        Ok(Source { name: path.to_path_buf(), lines: Some(lines), is_json: Some(is_json) })
    }
}

/// A line as it is.
pub fn plain(_: &mut Source, line: &str) -> Result<String, String> {
    Ok(line.to_string())
}

/// A line as a text, or as a JSON object with a text.
pub fn text_input(source: &mut Source, line: &str) -> Result<TextInput, String> {
    let is_object = |line: &str| {
        line.trim_start().starts_with('{')
            && serde_json::from_str::<Json>(line).is_ok_and(|json| json.get("text").is_some())
    };
    let is_json = *source.is_json.get_or_insert_with(|| is_object(line));
    if !is_json {
        return Ok(TextInput { text: line.to_string(), pair: None });
    }
    let json = object(line)?;
    let text = field(&json, "text")?.ok_or("`text` is missing: each line is an object such as {\"text\": \"..\"}")?;
    Ok(TextInput { text, pair: field(&json, "text_pair")? })
}

/// A line as a prompt, or as a JSON object with a prompt.
pub fn prompt_input(source: &mut Source, line: &str) -> Result<String, String> {
    let is_object = |line: &str| {
        line.trim_start().starts_with('{')
            && serde_json::from_str::<Json>(line).is_ok_and(|json| json.get("prompt").is_some())
    };
    if !*source.is_json.get_or_insert_with(|| is_object(line)) {
        return Ok(line.to_string());
    }
    let missing = "`prompt` is missing: each line is an object such as {\"prompt\": \"..\"}";
    field(&object(line)?, "prompt")?.ok_or_else(|| missing.to_string())
}

/// A line as a question and its context.
pub fn question_input(_: &mut Source, line: &str) -> Result<TextInput, String> {
    let missing = "each line must be an object such as {\"question\": \"..\", \"context\": \"..\"}";
    let json = object(line).map_err(|error| format!("{missing}; {error}"))?;
    match (field(&json, "question")?, field(&json, "context")?) {
        (Some(question), Some(context)) => Ok(TextInput { text: question, pair: Some(context) }),
        _ => Err(missing.to_string()),
    }
}

fn object(line: &str) -> Result<Json, String> {
    serde_json::from_str(line).map_err(|error| format!("this is not JSON: {error}"))
}

fn field(object: &Json, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` must be a string")),
    }
}

/// A parsed line with its length in bytes.
type Line<T> = Result<(T, usize), anyhow::Error>;

/// Reads lines on a thread of its own, so that those which have come can be answered while others are awaited.
fn read_aside<T: Send + 'static>(
    mut source: Source,
    parse: fn(&mut Source, &str) -> Result<T, String>,
) -> Receiver<Line<T>> {
    let (sender, receiver) = sync_channel(AHEAD);
    std::thread::spawn(move || {
        let Some(mut lines) = source.lines.take() else { return };
        loop {
            let line = match lines.next_line() {
                Ok(None) => return,
                Ok(Some(line)) => parse(&mut source, line)
                    .map(|parsed| (parsed, line.len()))
                    .map_err(|reason| (reason, lines.number()))
                    .map_err(|(reason, number)| anyhow!("{}, line {number}: {reason}", source.name.display())),
                Err(error) => Err(error.into()),
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
fn give_on<T>(
    lines: &Receiver<Line<T>>,
    mut further: impl Iterator<Item = Line<T>>,
    at_once: usize,
    answer: &mut impl FnMut(&[T]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while let Ok(first) = lines.recv() {
        let mut bytes = 0;
        let mut some = Vec::new();
        let mut next = Some(first);
        while let Some(line) = next {
            bytes += line.as_ref().map_or(0, |(_, bytes)| *bytes);
            some.push(line);
            next = if some.len() < at_once && bytes < MOST_BYTES { further.next() } else { None };
        }
        let failure = some.iter().position(Result::is_err).map(|place| some.split_off(place).swap_remove(0));
        let texts: Vec<T> = some.into_iter().flatten().map(|(text, _)| text).collect();
        if !texts.is_empty() {
            answer(&texts)?;
        }
        if let Some(Err(error)) = failure {
            return Err(Failure::input(error));
        }
    }
    Ok(())
}
