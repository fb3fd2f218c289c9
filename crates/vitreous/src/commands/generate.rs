//! `vitreous generate`: text that goes on from a prompt.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value as Json, json};
use vitreous_engine::Device;
use vitreous_files::printable::one_line;
use vitreous_models::generate::constrain::FormatConstraint;
use vitreous_models::generate::{RequestId, SearchOptions, WrittenToken};
use vitreous_runtime::language::{Continuation, LanguageModel, StopReason, TextGenerator, TextOptions};
use vitreous_runtime::sequences::{SequenceOptions, is_sequence_model};

use super::sequences::{SequenceArguments, SequenceCommand, Style, check_best};
use super::translate::check_length_penalty;
use super::{parse_beam, parse_count};
use crate::failure::Failure;
use crate::format_options::FormatOptions;
use crate::generation_options::{MachineOptions, WritingOptions, tell_speed};
use crate::intervention_options::InterventionOptions;
use crate::shared_out::{Chunk, Output, ShareOptions, SharedOut, Task, key_of};
use crate::texts::{prompt_input, read_standard_input, take_texts};

/// Sequences that are written at once, if nobody asks for another number.
const USUAL_BATCH: usize = 16;
const USUAL_BATCH_OF_GPU: usize = 64;
/// Prompts of a file that are computed together: a text that ends makes room for the next, so there are several times as many as are
/// written at once.
const USUAL_CHUNK: usize = 256;
/// The context grows in steps of this many tokens.
const CONTEXT_STEP: usize = 64;
/// The longest prompt on standard input, in bytes.
const MOST_PROMPT_BYTES: u64 = 1 << 26;

/// Write on from a prompt with a language model, or answer a text with an encoder-decoder (T5, BART ..)
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous generate MODEL 'Once upon a time' --max-tokens 100
  vitreous generate MODEL 'A haiku about rain:' --temperature 0.8 --top-p 0.95 --seed 7 --n 3
  vitreous generate MODEL --file prompts.txt --json > answers.jsonl
  mpirun -n 8 vitreous generate MODEL --file prompts.txt --json --out answers.jsonl
  cat article.txt | vitreous generate MODEL
  vitreous generate MODEL 'A person:' --json-schema person.json
  vitreous generate MODEL 'Born on ' --regex '\\d{4}-\\d{2}-\\d{2}'
  vitreous generate T5 'summarize: The tower is 324 metres tall ..' --beam 4 --no-repeat 3

Without --temperature, --top-k, --top-p, --min-p and --n the likeliest token is taken each time; with one of the latter the
temperature is 1.")]
pub struct Generate {
    /// A model directory
    model: PathBuf,
    /// The prompt; without it, or as `-`, all of standard input is one
    #[arg(conflicts_with = "files")]
    prompt: Option<String>,
    /// Files with one prompt per line, or JSON lines with `prompt`; `-` is standard input
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write this many texts for each prompt
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_texts, allow_negative_numbers = true)]
    n: usize,
    /// Beam search of this width
    #[arg(long, value_name = "N", value_parser = parse_beam, allow_negative_numbers = true)]
    beam: Option<usize>,
    /// Length penalty of beam search: scores are divided by length^A [default: 1]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    length_penalty: Option<f32>,
    #[command(flatten)]
    sequences: SequenceArguments,
    /// With --json: the logarithmic probability of each token, and the K likeliest tokens in its place
    #[arg(long, value_name = "K", requires = "json", conflicts_with = "beam")]
    logprobs: Option<usize>,
    /// Print one JSON object per line: prompt, text, tokens, stop
    #[arg(long)]
    json: bool,
    /// Write the answers to --file to a file, which appears when it is complete
    #[arg(long, value_name = "FILE", requires = "files")]
    out: Option<PathBuf>,
    /// Overwrite the file of --out
    #[arg(long, requires = "out")]
    force: bool,
    /// Write at most this many texts at once [default: 16; on a GPU 64]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    batch: Option<usize>,
    #[command(flatten)]
    writing: WritingOptions,
    #[command(flatten)]
    format: FormatOptions,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    interventions: InterventionOptions,
    #[command(flatten)]
    share: ShareOptions,
}

impl Generate {
    pub fn run(self) -> Result<(), Failure> {
        // (clap does not ask for --file where there is a prompt, which excludes it.)
        if self.files.is_empty() && self.out.is_some() {
            let what = "--out is for the answers to --file: leave it out, or send the text to a file with `>`";
            return Err(Failure::input(anyhow!(what)));
        }
        if is_sequence_model(&self.model) {
            return self.write_sequences();
        }
        if let Some(option) = self.sequences.given() {
            let what = format!("{option} is for encoder-decoders (T5, BART ..), and this model is none");
            return Err(Failure::input(anyhow!(what)));
        }
        let options = self.text_options()?;
        let format = self.format.format()?;
        if format.is_some() && self.beam.is_some() {
            let what = "beam search cannot follow a format: leave out --beam, or --json-schema and --regex";
            return Err(Failure::input(anyhow!(what)));
        }
        let shared = self.shared_out()?;
        let model = self.interventions.apply(LanguageModel::open(&self.model)?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let constraint = format.map(|format| model.constraint(&format)).transpose()?;
        let device = self.machine.device_of(&shared)?;
        let mut work = Work {
            command: &self,
            model: &model,
            device: &device,
            options,
            constraint,
            generator: None,
            unfinished: 0,
        };
        if self.files.is_empty() {
            let prompt = match &self.prompt {
                Some(prompt) if prompt != "-" => prompt.clone(),
                _ => read_prompt()?,
            };
            work.answer(&[prompt], 0, &mut Output::Printed)?;
        } else {
            work.answer_files(shared)?;
        }
        if work.unfinished > 0 {
            let texts = vitreous_pages::format::count(work.unfinished, "text", "texts");
            say!("note: {texts} ended before all of the format was written; a larger --max-tokens may help");
        }
        if let Some((generator, _)) = &work.generator {
            tell_speed(&generator.tally(), &device);
        }
        Ok(())
    }

    /// Answers texts with an encoder-decoder.
    fn write_sequences(&self) -> Result<(), Failure> {
        let of_format = self.format.format()?.is_some().then_some("--json-schema or --regex");
        let of_language = self.writing.of_language_models().or(self.machine.of_language_models()).or(of_format);
        let others = [("--logprobs", self.logprobs.is_some()), ("--batch", self.batch.is_some())];
        let other = others.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
        if let Some(option) = of_language.or(other) {
            let what = format!("{option} is for language models, but this is an encoder-decoder: leave it out");
            return Err(Failure::input(anyhow!(what)));
        }
        let texts = match (&self.prompt, self.files.is_empty()) {
            (Some(prompt), true) if prompt != "-" => vec![prompt.clone()],
            (_, true) => vec![read_prompt()?],
            _ => Vec::new(),
        };
        let options = SequenceOptions {
            beam: self.beam,
            length_penalty: self.length_penalty,
            max_tokens: self.writing.max_tokens,
            repetition_penalty: self.writing.repetition_penalty(),
            ..self.sequences.options()?
        };
        let shared = self.shared_out()?;
        let command = SequenceCommand {
            interventions: &self.interventions,
            model: &self.model,
            texts: &texts,
            files: &self.files,
            options,
            best: self.n,
            style: Style::Generated,
            json: self.json,
            out: self.out.as_deref(),
            force: self.force,
        };
        let device = self.machine.device_of(&shared)?;
        command.run(shared, self.machine.precision(), &device)
    }

    /// Prompts of files are shared out; a single one is not.
    fn shared_out(&self) -> Result<SharedOut, Failure> {
        if self.files.is_empty() {
            return Ok(SharedOut::alone());
        }
        let task = Task {
            model: &self.model,
            files: self.format.file().into_iter().collect(),
            out: self.out.as_deref(),
            reads_standard_input: read_standard_input(&[], &self.files),
        };
        SharedOut::begin(&self.share, &task)
    }

    fn text_options(&self) -> Result<TextOptions, Failure> {
        let length_penalty = self.length_penalty.unwrap_or(1.0);
        check_length_penalty(length_penalty)?;
        let temperature = if self.writing.asks_for_sampling() || self.n > 1 { 1.0 } else { 0.0 };
        let mut options = self.writing.text_options(temperature)?;
        options.logprobs = self.logprobs;
        if let Some(beam) = self.beam {
            check_best("--n", self.n, beam)?;
            if self.writing.asks_for_sampling() || self.writing.temperature().is_some_and(|given| given > 0.0) {
                let what = "beam search makes no random choices: leave out --temperature, --top-k, --top-p and --min-p";
                return Err(Failure::input(anyhow!(what)));
            }
            options.sampling.temperature = 0.0;
            options.beams = Some(SearchOptions { beam, length_penalty });
        }
        Ok(options)
    }

    /// Sequences of one prompt.
    fn sequences_per_prompt(&self) -> usize {
        if self.beam.is_some() { 1 } else { self.n }
    }
}

/// All of standard input, without its last line break.
fn read_prompt() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(MOST_PROMPT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::input(anyhow!("standard input: {error}")))?;
    if text.len() as u64 > MOST_PROMPT_BYTES {
        return Err(Failure::input(anyhow!(
            "standard input: a prompt of more than {MOST_PROMPT_BYTES} bytes; use --file"
        )));
    }
    let line = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(line.unwrap_or(&text).to_string())
}

/// The model and what was done with it so far.
struct Work<'m> {
    command: &'m Generate,
    model: &'m LanguageModel,
    device: &'m Device,
    options: TextOptions,
    /// What every text must be, from its beginning.
    constraint: Option<FormatConstraint>,
    /// With the sequences and the context that were wanted of it.
    generator: Option<(TextGenerator<'m>, [usize; 2])>,
    /// Texts with a format that ended before they had it.
    unfinished: usize,
}

impl Work<'_> {
    /// Answers the prompts of files, chunk by chunk.
    fn answer_files(&mut self, mut shared: SharedOut) -> Result<(), Failure> {
        let command = self.command;
        let mut out = shared.output(command.out.as_deref(), command.force)?;
        let (mut count, at_once) = (0, shared.chunk_size(USUAL_CHUNK));
        take_texts(&[], &command.files, at_once, prompt_input, |prompts: &[String]| {
            count += prompts.len();
            let Some(chunk) = shared.next(prompts.len(), key_of(prompts)) else { return Ok(()) };
            let Chunk { first, .. } = chunk;
            shared.answer(&chunk, &mut out, |out| self.answer(prompts, first, out))
        })?;
        if count == 0 {
            say!("note: there are no prompts in what --file names; it has one prompt per line");
        }
        shared.finish_into(command.out.as_deref(), command.force, out)
    }

    /// Answers prompts, in their order; so many came before them.
    fn answer(&mut self, prompts: &[String], before: usize, out: &mut dyn Write) -> Result<(), Failure> {
        let mut encoded = Vec::new();
        for prompt in prompts {
            encoded.push(self.model.encode(prompt)?);
        }
        self.prepare(&encoded)?;
        let Some((generator, _)) = &mut self.generator else { return Ok(()) };
        let per_prompt = self.command.sequences_per_prompt();
        let mut places: HashMap<RequestId, (usize, usize)> = HashMap::new();
        // Each sequence has random numbers of its own, by its place among all.
        let mut asked = (before * per_prompt) as u64;
        for (which, tokens) in encoded.iter().enumerate() {
            for copy in 0..per_prompt {
                let constraint = self.constraint.as_ref().map(|first| Box::new(first.again()) as _);
                let id = generator.add(tokens.clone(), &self.options, asked, constraint)?;
                places.insert(id, (which, copy));
                asked += 1;
            }
        }
        let is_streamed = self.command.files.is_empty() && !self.command.json && self.command.n == 1;
        let mut answers: Vec<Vec<Option<Vec<Continuation>>>> = vec![vec![None; per_prompt]; prompts.len()];
        let mut told = 0;
        while !generator.is_idle() {
            for update in generator.advance()? {
                if is_streamed && !update.piece.is_empty() {
                    write!(out, "{}", update.piece)?;
                    out.flush()?;
                }
                if let (Some(&(which, copy)), Some(found)) = (places.get(&update.id), update.finished) {
                    let is_unfinished = |text: &&Continuation| text.stop != StopReason::End;
                    self.unfinished += found.iter().filter(is_unfinished).filter(|_| self.constraint.is_some()).count();
                    answers[which][copy] = Some(found);
                }
            }
            while !is_streamed && told < prompts.len() && answers[told].iter().all(Option::is_some) {
                let found: Vec<Continuation> = answers[told].iter_mut().filter_map(Option::take).flatten().collect();
                self.command.write(&prompts[told], &found[..found.len().min(self.command.n)], out)?;
                out.flush()?;
                told += 1;
            }
        }
        if is_streamed {
            writeln!(out)?;
        }
        Ok(out.flush()?)
    }

    /// Makes a generator with room for prompts, unless there is one. What it can do depends on these prompts alone, and it forgets those
    /// before, so that texts are the same bits whatever a rank has written earlier.
    fn prepare(&mut self, prompts: &[Vec<u32>]) -> Result<(), Failure> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(1);
        let needed = longest.saturating_add(self.options.max_tokens).min(self.model.longest);
        let needed = match self.command.files.is_empty() {
            true => needed.checked_next_multiple_of(CONTEXT_STEP),
            // Chunks of a file mostly have the same power of two, and go on with the same generator.
            false => needed.max(CONTEXT_STEP).checked_next_power_of_two(),
        }
        .unwrap_or(needed);
        let context = self.command.machine.context.unwrap_or(needed).min(self.model.longest);
        let beam = self.command.beam.unwrap_or(1);
        let usual = if self.device.is_gpu() { USUAL_BATCH_OF_GPU } else { USUAL_BATCH };
        let sequences = prompts.len() * self.command.sequences_per_prompt();
        let wanted = self.command.batch.unwrap_or(usual).min(sequences).max(1) * beam;
        if let Some((generator, made_for)) = &mut self.generator
            && *made_for == [wanted, context]
        {
            generator.forget_prompts();
            return Ok(());
        }
        // The old one's memory goes before the new one's comes.
        self.generator = None;
        let mut options = self.command.machine.generate_options(wanted, context);
        if self.command.batch.is_none() {
            // With less memory it takes longer, but fits.
            options = TextGenerator::fitting(self.model, &options, beam, self.device)?;
        }
        self.generator = Some((TextGenerator::new(self.model, options, self.device)?, [wanted, context]));
        Ok(())
    }
}

impl Generate {
    fn write(&self, prompt: &str, found: &[Continuation], out: &mut dyn Write) -> Result<(), Failure> {
        for continuation in found {
            match self.json {
                true => writeln!(out, "{}", self.json(prompt, continuation))?,
                false => writeln!(out, "{}", one_line(&continuation.text))?,
            }
        }
        Ok(())
    }

    fn json(&self, prompt: &str, continuation: &Continuation) -> Json {
        let tokens: Vec<u32> = continuation.tokens.iter().map(|written| written.token).collect();
        let stop = continuation.stop.name();
        let mut object = json!({"prompt": prompt, "text": continuation.text, "tokens": tokens, "stop": stop});
        if let Some(score) = continuation.score {
            object["score"] = json!(score);
        }
        if self.logprobs.is_some() {
            object["logprobs"] = continuation.tokens.iter().map(logprob).collect();
        }
        object
    }
}

/// The probability of a token, and the likeliest in its place.
fn logprob(written: &WrittenToken) -> Json {
    let top = written.top.iter().map(|top| json!({"token": top.token, "logprob": top.logprob}));
    json!({"token": written.token, "logprob": written.logprob, "top": top.collect::<Vec<Json>>()})
}

/// Reads a number of texts for each prompt.
fn parse_texts(text: &str) -> Result<usize, String> {
    const MOST_TEXTS: usize = 10_000;
    match parse_count(text)? {
        count if count <= MOST_TEXTS => Ok(count),
        _ => Err(format!("at most {MOST_TEXTS} texts are written for a prompt")),
    }
}
