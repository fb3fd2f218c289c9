//! `vitreous transcribe`: recordings in, what is said out.

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use vitreous_data::audio::Spectrogram;
use vitreous_pages::format;
use vitreous_pages::write::{check_new, write_new};
use vitreous_runtime::described;
use vitreous_runtime::speech::{
    Segment, SpeechEvent, SpeechModel, SpeechSettings, SpeechTask, Transcriber, Transcript, TranscriptFormat,
    language_name, transcript_json,
};

use super::{parse_beam, parse_count};
use crate::device_options::ComputeOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use crate::live_input::LiveInput;
use crate::shared_out::{ShareOptions, SharedOut, Task, key_of};

/// Transcribe speech: Whisper models on recordings of any length, or on what comes through a pipe
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous transcribe tiny.en.pt talk.mp3
  vitreous transcribe whisper-small talk.m4a --format srt --out subtitles/
  vitreous transcribe whisper-small interview.flac --language de --task translate
  vitreous transcribe whisper-small talk.wav --word-timestamps --json
  mpirun -n 8 vitreous transcribe whisper-small recordings/*.flac --out texts/
  arecord -f S16_LE -r 16000 -t wav | vitreous transcribe tiny.en.pt -    as it is spoken")]
pub struct Transcribe {
    /// A model directory (Hugging Face), a run directory, or a .pt file of OpenAI's
    model: PathBuf,
    /// Audio files (WAV, AIFF, FLAC, MP3, OGG Vorbis, M4A); `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What to write: what is said in its language, or in English
    #[arg(long, value_enum, default_value = "transcribe", ignore_case = true)]
    task: TaskName,
    /// The language that is spoken, by code or name [default: detected in the first 30 seconds]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<String>,
    /// The format of transcripts
    #[arg(long, value_enum, default_value = "txt", ignore_case = true)]
    format: FormatName,
    /// Write a file for each recording into this directory; existing ones are not overwritten
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object per recording: the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Times of words, too, from where the model listens while it writes them
    #[arg(long)]
    word_timestamps: bool,
    /// Write no timestamps: a window of 30 s is one segment
    #[arg(long, conflicts_with = "word_timestamps")]
    no_timestamps: bool,
    /// Beam width at temperature 0; 1 takes the likeliest token
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_beam)]
    beam: usize,
    /// How long beams are waited for, times their number
    #[arg(long, value_name = "P", default_value = "1")]
    patience: f32,
    /// Texts that are drawn at temperatures above 0, of which the best is taken
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    best_of: usize,
    /// Temperatures that are tried until a window's text is good enough
    #[arg(long, value_name = "T,..", value_delimiter = ',', default_value = "0,0.2,0.4,0.6,0.8,1")]
    temperature: Vec<f32>,
    /// A text whose compression ratio is larger is too repetitive: the next temperature is tried
    #[arg(long, value_name = "R", default_value = "2.4")]
    compression_ratio_threshold: f64,
    /// A text whose mean log-probability is smaller is too unlikely: the next temperature is tried
    #[arg(long, value_name = "L", default_value = "-1", allow_negative_numbers = true)]
    logprob_threshold: f64,
    /// A window whose text is too unlikely and that is silent with a larger probability is left out
    #[arg(long, value_name = "P", default_value = "0.6")]
    no_speech_threshold: f64,
    /// Do not go on from the text of the window before: less consistent, but errors do not spread
    #[arg(long)]
    no_previous_text: bool,
    /// A text that the first window goes on from, such as names that are mentioned
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Windows that are computed at once: of several files, or with --no-previous-text of one that is cut where it is quiet
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    batch: usize,
    /// The seed of what is drawn
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    #[command(flatten)]
    interventions: InterventionOptions,
    #[command(flatten)]
    compute: ComputeOptions,
    #[command(flatten)]
    share: ShareOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TaskName {
    /// What is said, in its language
    Transcribe,
    /// What is said, in English
    Translate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// A line for each segment
    Txt,
    /// Subtitles (SubRip)
    Srt,
    /// Subtitles (WebVTT)
    Vtt,
    /// An object: path, text, language, segments
    Json,
}

impl From<FormatName> for TranscriptFormat {
    fn from(name: FormatName) -> TranscriptFormat {
        match name {
            FormatName::Txt => TranscriptFormat::Txt,
            FormatName::Srt => TranscriptFormat::Srt,
            FormatName::Vtt => TranscriptFormat::Vtt,
            FormatName::Json => TranscriptFormat::Json,
        }
    }
}

impl Transcribe {
    pub fn run(self) -> Result<(), Failure> {
        let format = if self.json { TranscriptFormat::Json } else { self.format.into() };
        let targets = self.targets(format)?;
        let reads_standard_input = self.files.iter().any(|path| path.as_os_str() == "-");
        let task = Task { model: &self.model, files: Vec::new(), out: self.out.as_deref(), reads_standard_input };
        let mut shared = SharedOut::begin(&self.share, &task)?;
        if shared.is_direct() {
            targets.iter().flatten().try_for_each(|target| check_new(target))?;
        }
        let model = self.interventions.apply(SpeechModel::open(&self.model)?)?;
        let device = self.compute.device_of(&shared)?;
        let transcriber = Transcriber::new(&model, self.compute.precision(), &device)?;
        let stop = if reads_standard_input { stop_on_signals()? } else { Arc::default() };
        let settings = self.settings();
        let mut work = Work { command: &self, transcriber, settings, format, stop, heard: 0.0, failed: 0 };
        let start = Instant::now();
        let size = shared.chunk_size(self.batch);
        for (files, targets) in self.files.chunks(size).zip(targets.chunks(size)) {
            let Some(chunk) = shared.next(files.len(), key_of(files)) else { continue };
            if shared.is_direct() {
                work.tell(files, targets)?;
                if work.is_stopped() {
                    break;
                }
                continue;
            }
            targets.iter().flatten().try_for_each(|target| check_new(target))?;
            let failed_before = work.failed;
            let part = work.keep(chunk.first, files)?;
            shared.put(&chunk, &part, work.failed - failed_before)?;
        }
        let (is_stopped, heard, failed) = (work.is_stopped(), work.heard, work.failed);
        let seconds = start.elapsed().as_secs_f64();
        say!(
            "{} of audio in {}, {:.1} times real time, on {}",
            format::duration(Duration::from_secs_f64(heard)),
            format::duration(Duration::from_secs_f64(seconds)),
            heard / seconds.max(1e-9),
            described(&device)
        );
        if is_stopped {
            return Err(Failure::Interrupted);
        }
        if shared.is_direct() {
            return if failed > 0 { Err(Failure::Reported) } else { Ok(()) };
        }
        match shared.finish(|part| deliver(part, &targets))? {
            Some(finished) => finished.clean_up(),
            None => Ok(()),
        }
    }

    fn settings(&self) -> SpeechSettings {
        SpeechSettings {
            task: if self.task == TaskName::Translate { SpeechTask::Translate } else { SpeechTask::Transcribe },
            language: self.language.clone(),
            temperatures: self.temperature.clone(),
            compression_ratio_threshold: Some(self.compression_ratio_threshold),
            log_probability_threshold: Some(self.logprob_threshold),
            no_speech_threshold: Some(self.no_speech_threshold),
            condition_on_previous: !self.no_previous_text,
            prompt: self.prompt.clone(),
            beam: self.beam,
            patience: self.patience,
            best_of: self.best_of,
            timestamps: !self.no_timestamps,
            words: self.word_timestamps,
            batch: self.batch,
            seed: self.seed,
            ..SpeechSettings::default()
        }
    }

    fn open(&self, transcriber: &Transcriber, path: &Path, stop: &Arc<AtomicBool>) -> Result<Spectrogram, Failure> {
        if path.as_os_str() == "-" {
            let bins = transcriber.model().input.bins;
            return Spectrogram::of_stream(LiveInput::new(stop.clone()), bins)
                .map_err(|error| Failure::input(anyhow!("standard input: {error}")));
        }
        Ok(transcriber.open_file(path)?)
    }

    /// The file of each recording's transcript, if files are written.
    fn targets(&self, format: TranscriptFormat) -> Result<Vec<Option<PathBuf>>, Failure> {
        let Some(directory) = &self.out else { return Ok(vec![None; self.files.len()]) };
        std::fs::create_dir_all(directory)
            .map_err(|error| Failure::input(anyhow!("{}: cannot be created: {error}", directory.display())))?;
        let mut targets: Vec<Option<PathBuf>> = Vec::new();
        for path in &self.files {
            let stem = if path.as_os_str() == "-" { Some("stdin".as_ref()) } else { path.file_stem() };
            let stem = stem.ok_or_else(|| Failure::input(anyhow!("{}: this is no file", path.display())))?;
            let mut name = stem.to_os_string();
            name.push(".");
            name.push(format.extension());
            let target = directory.join(name);
            if targets.iter().flatten().any(|other| *other == target) {
                let what = "two recordings have the same name: transcribe them into different directories";
                return Err(Failure::input(anyhow!("{}: {what}", target.display())));
            }
            targets.push(Some(target));
        }
        Ok(targets)
    }
}

/// The model and what was done with it so far.
struct Work<'c> {
    command: &'c Transcribe,
    transcriber: Transcriber<'c>,
    settings: SpeechSettings,
    format: TranscriptFormat,
    /// Set by Ctrl-C while standard input is read.
    stop: Arc<AtomicBool>,
    /// Seconds of audio.
    heard: f64,
    /// Files that cannot be read.
    failed: usize,
}

/// The first Ctrl-C ends standard input, so that what was heard is written; the second ends the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second looks at what the first has set, before it is set again.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone()).map_err(Failure::work)?;
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::work)?;
    }
    Ok(stop)
}

impl Work<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Transcribes recordings and tells or writes what is said.
    fn tell(&mut self, files: &[PathBuf], targets: &[Option<PathBuf>]) -> Result<(), Failure> {
        // Several files at once only if that was asked for: otherwise each is told as it is heard.
        for (files, targets) in files.chunks(self.command.batch).zip(targets.chunks(self.command.batch)) {
            let (output, transcripts) = self.transcribe(files, true)?;
            for (place, transcript) in transcripts {
                output.finish(&files[place], targets[place].as_deref(), &transcript)?;
                self.check_complete(&files[place], &transcript)?;
            }
        }
        Ok(())
    }

    /// Transcribes recordings, the first of which has this number, for a part of a run that is shared out: their numbers and texts.
    fn keep(&mut self, first: usize, files: &[PathBuf]) -> Result<Vec<u8>, Failure> {
        let mut part = Vec::new();
        for (batch, files) in files.chunks(self.command.batch).enumerate() {
            let (output, transcripts) = self.transcribe(files, false)?;
            for (place, transcript) in transcripts {
                let text = match self.command.out.is_some() {
                    true => output.written(&files[place], &transcript),
                    false => output.printed(&files[place], &transcript),
                };
                part.extend(((first + batch * self.command.batch + place) as u64).to_le_bytes());
                part.extend((text.len() as u64).to_le_bytes());
                part.extend(text.as_bytes());
                self.check_complete(&files[place], &transcript)?;
            }
        }
        Ok(part)
    }

    /// Says why a pipe was not read to its end, after what was heard was written.
    fn check_complete(&mut self, path: &Path, transcript: &Transcript) -> Result<(), Failure> {
        let Some(reason) = &transcript.failure else { return Ok(()) };
        let failure = Failure::input(anyhow!("{}: {reason}; what came before is transcribed", shown(path)));
        if self.command.files.len() == 1 {
            return Err(failure);
        }
        complain!("error: {}", failure.text());
        self.failed += 1;
        Ok(())
    }

    /// Transcribes recordings at once: those that can be read, by their place.
    fn transcribe<'f>(
        &mut self,
        files: &'f [PathBuf],
        may_be_live: bool,
    ) -> Result<(Output<'f>, Vec<(usize, Transcript)>), Failure> {
        let (mut recordings, mut opened) = (Vec::new(), Vec::new());
        for (place, path) in files.iter().enumerate() {
            match self.command.open(&self.transcriber, path, &self.stop) {
                Ok(recording) => {
                    recordings.push(recording);
                    opened.push(place);
                }
                Err(failure) if self.command.files.len() == 1 => return Err(failure),
                Err(failure) => {
                    complain!("error: {}", failure.text());
                    self.failed += 1;
                }
            }
        }
        let paths: Vec<&PathBuf> = opened.iter().map(|&place| &files[place]).collect();
        let is_live = may_be_live && paths.len() == 1 && self.command.out.is_none();
        let output = Output::new(self.format, paths, is_live);
        let transcripts = self.transcriber.transcribe_all(recordings, &self.settings, &mut |event| {
            output.take(event).map_err(|error| vitreous_runtime::Error::input(format!("standard output: {error}")))
        });
        output.bar.finish_and_clear();
        let transcripts = match transcripts {
            Ok(transcripts) => transcripts,
            Err(_) if output.closed.take() => return Err(Failure::OutputClosed),
            Err(error) => return Err(named(error, &output.files)),
        };
        for (path, transcript) in output.files.iter().zip(&transcripts) {
            self.heard += transcript.seconds;
            if let Some(damage) = &transcript.damage {
                say!("note: {}: {damage}", shown(path));
            }
        }
        Ok((output, opened.into_iter().zip(transcripts).collect()))
    }
}

/// Prints or writes the transcripts of a part.
fn deliver(mut part: &[u8], targets: &[Option<PathBuf>]) -> Result<(), Failure> {
    let damaged = || Failure::work(anyhow!("a part does not hold what transcribe writes: remove it and run again"));
    let mut out = crate::say::stdout();
    while !part.is_empty() {
        let mut number = || -> Option<usize> {
            let (bytes, rest) = part.split_first_chunk()?;
            part = rest;
            usize::try_from(u64::from_le_bytes(*bytes)).ok()
        };
        let (place, length) = number().zip(number()).ok_or_else(damaged)?;
        let (text, rest) = part.split_at_checked(length).ok_or_else(damaged)?;
        part = rest;
        match targets.get(place).ok_or_else(damaged)? {
            None => out.write_all(text)?,
            // It was written before, and what came after was stopped.
            Some(target) if std::fs::read(target).is_ok_and(|there| there == text) => {}
            Some(target) => {
                write_new(target, text)?;
                say!("{} written", target.display());
            }
        }
    }
    Ok(out.flush()?)
}

/// A path for a message.
fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_string() } else { path.display().to_string() }
}

/// An error with the name of the file, where there is one file.
fn named(error: vitreous_runtime::Error, files: &[&PathBuf]) -> Failure {
    match (error, files) {
        (vitreous_runtime::Error::Audio(error), [path]) => Failure::input(anyhow!("{}: {error}", shown(path))),
        (error, _) => error.into(),
    }
}

/// What is shown while recordings are heard.
struct Output<'f> {
    format: TranscriptFormat,
    files: Vec<&'f PathBuf>,
    /// Whether segments are printed as they come.
    live: bool,
    printed: RefCell<usize>,
    closed: std::cell::Cell<bool>,
    bar: ProgressBar,
    start: Instant,
}

impl<'f> Output<'f> {
    fn new(format: TranscriptFormat, files: Vec<&'f PathBuf>, live: bool) -> Output<'f> {
        let bar = ProgressBar::new(0);
        if crate::say::is_quiet() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:12} {percent:>3} %  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
        let (printed, closed) = (RefCell::new(0), std::cell::Cell::new(false));
        Output { format, files, live, printed, closed, bar, start: Instant::now() }
    }

    fn take(&self, event: SpeechEvent) -> std::io::Result<()> {
        match event {
            SpeechEvent::Language { recording, code } => {
                let name = language_name(code).unwrap_or(code);
                self.bar.set_message(format!("{}: {name}", self.files[recording].display()));
                Ok(())
            }
            SpeechEvent::Segments { segments, .. } if self.live => self.print(segments),
            SpeechEvent::Segments { .. } => Ok(()),
            SpeechEvent::Heard { recording, seconds, of } => {
                let speed = seconds / self.start.elapsed().as_secs_f64().max(1e-9);
                let of_all =
                    of.map_or(String::new(), |of| format!(" of {}", format::duration(Duration::from_secs_f64(of))));
                let heard = format::duration(Duration::from_secs_f64(seconds));
                self.bar.set_length((of.unwrap_or(seconds) * 100.0) as u64);
                self.bar.set_position((seconds * 100.0) as u64);
                let name = self.files[recording].display();
                self.bar.set_message(format!("{heard}{of_all}  {speed:.1} times real time  {name}"));
                Ok(())
            }
        }
    }

    fn print(&self, segments: &[Segment]) -> std::io::Result<()> {
        let write = || -> std::io::Result<()> {
            let mut out = crate::say::stdout();
            let mut printed = self.printed.borrow_mut();
            if *printed == 0 {
                write!(out, "{}", self.format.head())?;
            }
            for segment in segments.iter().filter(|segment| !segment.text.trim().is_empty()) {
                *printed += 1;
                write!(out, "{}", self.format.segment(*printed, segment))?;
            }
            out.flush()
        };
        let result = self.bar.suspend(write);
        if result.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
            self.closed.set(true);
        }
        result
    }

    /// Writes what was not printed as it came.
    fn finish(&self, path: &Path, target: Option<&Path>, transcript: &Transcript) -> Result<(), Failure> {
        if let Some(target) = target {
            write_new(target, self.written(path, transcript).as_bytes())?;
            say!("{} written", target.display());
            return Ok(());
        }
        let mut out = crate::say::stdout();
        if !self.live || self.format == TranscriptFormat::Json {
            write!(out, "{}", self.printed(path, transcript))?;
        }
        Ok(out.flush()?)
    }

    /// A transcript as a file of its own.
    fn written(&self, path: &Path, transcript: &Transcript) -> String {
        self.format.write(&path.to_string_lossy(), &without_empty(transcript))
    }

    /// A transcript on standard output: of recordings that were heard at once with their names, otherwise as it is printed live.
    fn printed(&self, path: &Path, transcript: &Transcript) -> String {
        let (name, kept) = (path.to_string_lossy(), without_empty(transcript));
        match self.format {
            TranscriptFormat::Json => format!("{}\n", transcript_json(&name, &kept)),
            _ if self.files.len() == 1 && kept.segments.is_empty() => String::new(),
            format if self.files.len() == 1 => format.write(&name, &kept),
            format => format!("{name}:\n{}", format.write(&name, &kept)),
        }
    }
}

fn without_empty(transcript: &Transcript) -> Transcript {
    let segments = transcript.segments.iter().filter(|segment| !segment.text.trim().is_empty()).cloned().collect();
    Transcript { segments, ..transcript.clone() }
}
