//! Speech to text: recordings of any length, window by window, by the rules of `openai-whisper`.
//!
//! ```no_run
//! use std::path::Path;
//! use vitreous_runtime::speech::{SpeechOptions, SpeechSettings, Transcriber};
//!
//! let mut transcriber = Transcriber::open(Path::new("tiny.en.pt"), &SpeechOptions::default())?;
//! let transcript = transcriber.transcribe_file(Path::new("talk.mp3"), &SpeechSettings::default())?;
//! println!("{}", transcript.text);
//! # Ok::<(), vitreous_runtime::Error>(())
//! ```

mod align;
mod attention;
mod decode;
mod explain;
mod formats;
mod model;
mod rules;
mod segments;
mod stream;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use vitreous_data::audio::{AudioSource, Behind, Spectrogram};
use vitreous_engine::{Device, Precision};
use vitreous_models::generate::{SpeechWriter, TextSlot};

pub use attention::{Heard, Listening};
use decode::{Choosing, WindowPrompt, WindowText, Writing};
pub use explain::{HeardWindow, HeardWord, POSITIONS_PER_SECOND};
pub use formats::{TranscriptFormat, transcript_json};
pub use model::{SpeechModel, is_speech_model};
pub use rules::{TextRules, compression_ratio};
use segments::Window;
pub use segments::{Segment, Word};
use stream::{Recording, RecordingStream};
pub use vitreous_data::audio::{LANGUAGES, SpeechTask, SpeechVocabulary, language_code, language_name};

use crate::device::DeviceChoice;
use crate::error::Error;

/// How a model is made ready.
#[derive(Clone, Copy, Debug)]
pub struct SpeechOptions {
    /// What to compute on.
    pub device: DeviceChoice,
    /// Threads of the CPU; 0: as many as it has cores.
    pub threads: usize,
    /// The precision to compute in.
    pub precision: Precision,
}

impl Default for SpeechOptions {
    fn default() -> Self {
        SpeechOptions { device: DeviceChoice::Auto, threads: 0, precision: Precision::F32 }
    }
}

/// How a recording is transcribed. The defaults are those of `openai-whisper`'s `transcribe`.
#[derive(Clone, Debug)]
pub struct SpeechSettings {
    /// What is written.
    pub task: SpeechTask,
    /// The code of the language that is spoken; `None`: it is detected.
    pub language: Option<String>,
    /// Temperatures that are tried until a window's text is good enough.
    pub temperatures: Vec<f32>,
    /// A text with a larger ratio is too repetitive.
    pub compression_ratio_threshold: Option<f64>,
    /// A text with a smaller mean logarithmic probability is too unlikely.
    pub log_probability_threshold: Option<f64>,
    /// A window that is silent with a larger probability, and whose text is too unlikely, is silent.
    pub no_speech_threshold: Option<f64>,
    /// Whether a window's text goes on from that of the one before.
    pub condition_on_previous: bool,
    /// What the first window's text goes on from, such as names that are mentioned.
    pub prompt: Option<String>,
    /// Beams at temperature 0; 1: the likeliest token.
    pub beam: usize,
    /// Finished beams that are waited for, times their number.
    pub patience: f32,
    /// Texts that are drawn at other temperatures, of which the best is taken.
    pub best_of: usize,
    /// As in `openai-whisper`: scores of several texts are divided by ((5 + length) / 6) to this power; `None`: by their length.
    pub length_penalty: Option<f32>,
    /// Whether segments have times; otherwise a window is one segment.
    pub timestamps: bool,
    /// Whether words have times, too.
    pub words: bool,
    /// The largest time that a window's first segment may begin at, in seconds.
    pub max_initial_timestamp: Option<f32>,
    /// Windows that are computed at once: of several recordings, or, where texts do not go on from each other, of one that is cut where
    /// it is quiet.
    pub batch: usize,
    /// The seed of what is drawn.
    pub seed: u64,
}

impl SpeechSettings {
    /// What may be written.
    pub fn rules(&self, vocabulary: &SpeechVocabulary) -> Result<TextRules, Error> {
        let largest_first = self
            .max_initial_timestamp
            .filter(|&seconds| seconds > 0.0)
            .map(|seconds| (f64::from(seconds) * 50.0).round_ties_even() as u32);
        TextRules::new(vocabulary, self.timestamps, largest_first)
    }
}

impl Default for SpeechSettings {
    fn default() -> Self {
        SpeechSettings {
            task: SpeechTask::Transcribe,
            language: None,
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            compression_ratio_threshold: Some(2.4),
            log_probability_threshold: Some(-1.0),
            no_speech_threshold: Some(0.6),
            condition_on_previous: true,
            prompt: None,
            beam: 1,
            patience: 1.0,
            best_of: 1,
            length_penalty: None,
            timestamps: true,
            words: false,
            max_initial_timestamp: Some(1.0),
            batch: 1,
            seed: 0,
        }
    }
}

/// What was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// The code of the language.
    pub language: String,
    /// All of it.
    pub text: String,
    /// With times.
    pub segments: Vec<Segment>,
    /// Whether segments have words.
    pub has_words: bool,
    /// What of the recording could not be read, in words.
    pub damage: Option<String>,
    /// Why what came from a pipe was not read to its end, in words.
    pub failure: Option<String>,
    /// Seconds of audio.
    pub seconds: f64,
}

impl Transcript {
    /// All words, if they were asked for.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.segments.iter().flat_map(|segment| &segment.words)
    }
}

/// What happens while recordings are transcribed.
#[derive(Debug)]
pub enum SpeechEvent<'e> {
    /// The language of a recording is known.
    Language {
        /// Which recording.
        recording: usize,
        /// Its code.
        code: &'e str,
    },
    /// New segments.
    Segments {
        /// Of which recording.
        recording: usize,
        /// The segments, empty ones among them.
        segments: &'e [Segment],
    },
    /// How far a recording was transcribed.
    Heard {
        /// Which recording.
        recording: usize,
        /// Seconds of it.
        seconds: f64,
        /// Of so many, if that is known.
        of: Option<f64>,
    },
}

/// Transcribes recordings with a model on a device.
pub struct Transcriber<'m> {
    model: &'m SpeechModel,
    writer: SpeechWriter<'m>,
    listening: Listening<'m>,
    /// What was heard so far, where that is to be explained.
    heard: Option<Vec<HeardWindow>>,
}

impl Transcriber<'static> {
    /// Opens a model that stays in memory until the program ends.
    pub fn open(path: &Path, options: &SpeechOptions) -> Result<Transcriber<'static>, Error> {
        let threads = if options.threads == 0 { crate::threads() } else { options.threads };
        let device = options.device.open(threads)?;
        let model: &'static SpeechModel = Box::leak(Box::new(SpeechModel::open(path)?));
        Transcriber::new(model, options.precision, &device)
    }
}

impl<'m> Transcriber<'m> {
    /// Makes a model ready.
    pub fn new(model: &'m SpeechModel, precision: Precision, device: &Device) -> Result<Transcriber<'m>, Error> {
        let writer = SpeechWriter::new(model.model.architecture.as_ref(), precision, device, Box::new(&model.model))?;
        Ok(Transcriber { model, writer, listening: Listening::new(model, device), heard: None })
    }

    /// The model.
    pub fn model(&self) -> &'m SpeechModel {
        self.model
    }

    /// Transcribes a file.
    pub fn transcribe_file(&mut self, path: &Path, settings: &SpeechSettings) -> Result<Transcript, Error> {
        let spectrogram = self.open_file(path)?;
        self.transcribe(spectrogram, settings)
    }

    /// Transcribes the content of a file.
    pub fn transcribe_bytes(&mut self, bytes: Arc<[u8]>, settings: &SpeechSettings) -> Result<Transcript, Error> {
        let spectrogram = Spectrogram::open(&AudioSource::Bytes(bytes), self.model.input.bins).map_err(Error::Audio)?;
        self.transcribe(spectrogram, settings)
    }

    /// Transcribes samples of one channel, 16,000 per second.
    pub fn transcribe_samples(&mut self, samples: Vec<f32>, settings: &SpeechSettings) -> Result<Transcript, Error> {
        let spectrogram = Spectrogram::of_samples(samples, self.model.input.bins).map_err(Error::Audio)?;
        self.transcribe(spectrogram, settings)
    }

    /// Transcribes a recording.
    pub fn transcribe(&mut self, recording: Spectrogram, settings: &SpeechSettings) -> Result<Transcript, Error> {
        let mut transcripts = self.transcribe_all(vec![recording], settings, &mut |_| Ok(()))?;
        transcripts.pop().ok_or_else(|| Error::input("there is no recording"))
    }

    /// The spectrogram of a file, as the model takes it. An error names the file.
    pub fn open_file(&self, path: &Path) -> Result<Spectrogram, Error> {
        Spectrogram::open(&AudioSource::File(path.to_path_buf()), self.model.input.bins)
            .map_err(|error| Error::input(format!("{}: {error}", path.display())))
    }

    /// Transcribes recordings, several at once if the settings say so. An event's error stops it.
    pub fn transcribe_all(
        &mut self,
        recordings: Vec<Spectrogram>,
        settings: &SpeechSettings,
        event: &mut dyn FnMut(SpeechEvent) -> Result<(), Error>,
    ) -> Result<Vec<Transcript>, Error> {
        let plan = Plan::new(self.model, settings)?;
        let mut recordings: Vec<Recording> = recordings.into_iter().map(Recording::new).collect();
        for (index, recording) in recordings.iter_mut().enumerate() {
            recording.language = match &plan.language {
                Some(code) => code.clone(),
                None => self.detect_language(&mut recording.spectrogram)?,
            };
            event(SpeechEvent::Language { recording: index, code: &recording.language })?;
        }
        let mut active: Vec<RecordingStream> = Vec::new();
        loop {
            for (index, recording) in recordings.iter_mut().enumerate() {
                let cuts = settings.batch > 1 && !settings.condition_on_previous;
                while active.len() < settings.batch.max(1)
                    && let Some(stream) = recording.next_stream(index, cuts, self.model.input.frames, &plan.prompt)?
                {
                    active.push(stream);
                }
            }
            if active.is_empty() {
                break;
            }
            self.advance(&mut recordings, &mut active, settings, &plan, event)?;
        }
        recordings.into_iter().map(|recording| recording.finish(&self.model.vocabulary, settings.words)).collect()
    }

    /// One window of each stream; those that are over leave.
    fn advance(
        &mut self,
        recordings: &mut [Recording],
        active: &mut Vec<RecordingStream>,
        settings: &SpeechSettings,
        plan: &Plan,
        event: &mut dyn FnMut(SpeechEvent) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let input = self.model.input;
        let mut heard = Vec::new();
        for stream in active.iter_mut() {
            let recording = &mut recordings[stream.recording];
            if let Some(window) = stream.window(recording, input.frames)? {
                let mut mel = vec![0.0; input.frames * input.bins];
                let end = window.seek + window.frames;
                recording.spectrogram.window(window.seek, end, Behind::Zero, &mut mel).map_err(Error::Audio)?;
                heard.push((window, mel));
            }
        }
        let windows: Vec<&[f32]> = heard.iter().map(|(_, mel)| mel.as_slice()).collect();
        active.retain(|stream| !stream.is_over());
        if windows.is_empty() {
            return Ok(());
        }
        let mut prompts = Vec::new();
        for stream in active.iter() {
            prompts.push(self.prompt(stream, &recordings[stream.recording].language, plan, settings)?);
        }
        self.writer.listen(&windows, plan.slots)?;
        let texts = self.write(&prompts, settings, plan)?;
        for ((stream, (window, mel)), text) in active.iter_mut().zip(&heard).zip(texts) {
            let recording = &mut recordings[stream.recording];
            let mut found = stream.take(*window, &text, &self.model.vocabulary, settings)?;
            if settings.words && !found.segments.is_empty() {
                self.time_words(&mut found, stream, recording, *window, mel, settings)?;
            }
            let segments = stream.keep(found, &text, settings);
            event(SpeechEvent::Segments { recording: stream.recording, segments: &segments })?;
            let place = recording.add(stream, segments);
            let of = recording.spectrogram.stated_seconds();
            event(SpeechEvent::Heard { recording: stream.recording, seconds: place, of })?;
        }
        for (index, recording) in recordings.iter_mut().enumerate() {
            let first = active.iter().filter(|stream| stream.recording == index).map(RecordingStream::seek).min();
            recording.forget_before(first);
        }
        Ok(())
    }

    /// What the text of a stream's next window goes on from.
    fn prompt(
        &self,
        stream: &RecordingStream,
        language: &str,
        plan: &Plan,
        settings: &SpeechSettings,
    ) -> Result<WindowPrompt, Error> {
        let vocabulary = &self.model.vocabulary;
        let most = (self.model.input.target.longest / 2).saturating_sub(1);
        let earlier = stream.prompt();
        let earlier = &earlier[earlier.len().saturating_sub(most)..];
        let mut tokens = Vec::new();
        if !earlier.is_empty() {
            tokens.push(vocabulary.previous);
            tokens.extend(earlier);
        }
        let start = tokens.len();
        tokens.extend(vocabulary.beginning(Some(language), plan.task)?);
        if !settings.timestamps {
            tokens.push(vocabulary.no_timestamps);
        }
        Ok(WindowPrompt { tokens, start })
    }

    /// The texts of windows that were listened to. A text that is not good enough is written again at the next temperature.
    fn write(
        &mut self,
        prompts: &[WindowPrompt],
        settings: &SpeechSettings,
        plan: &Plan,
    ) -> Result<Vec<WindowText>, Error> {
        let mut texts: Vec<WindowText> = Vec::new();
        for (index, &temperature) in plan.temperatures.iter().enumerate() {
            let choosing = Choosing {
                temperature,
                texts: if temperature > 0.0 { settings.best_of } else { settings.beam }.max(1),
                patience: settings.patience,
                length_penalty: settings.length_penalty,
                seed: settings.seed,
            };
            let mut writing = Writing {
                writer: &mut self.writer,
                vocabulary: &self.model.vocabulary,
                rules: &plan.rules,
                most_tokens: self.model.input.target.longest / 2,
            };
            if index == 0 {
                texts = writing.write(0, plan.slots, prompts, choosing)?;
                continue;
            }
            for (place, text) in texts.iter_mut().enumerate() {
                if is_poor(text, settings) {
                    let again = writing.write(place * plan.slots, plan.slots, &prompts[place..=place], choosing)?;
                    if let Some(again) = again.into_iter().next() {
                        *text = again;
                    }
                }
            }
        }
        Ok(texts)
    }

    /// The code of the language that the first window of a recording is in.
    pub fn detect_language(&mut self, recording: &mut Spectrogram) -> Result<String, Error> {
        let probabilities = self.language_probabilities(recording)?;
        let best = probabilities.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Ok(best.map_or("en", |(code, _)| code).to_string())
    }

    /// How likely the first window of a recording is in each language; none of English models.
    pub fn language_probabilities(&mut self, recording: &mut Spectrogram) -> Result<Vec<(&'static str, f64)>, Error> {
        let model = self.model;
        if !model.vocabulary.is_multilingual() {
            return Ok(Vec::new());
        }
        let mut mel = vec![0.0; model.input.frames * model.input.bins];
        recording.window(0, usize::MAX, Behind::Silence, &mut mel).map_err(Error::Audio)?;
        self.writer.listen(&[&mel], 1)?;
        let logits = self.writer.read(0, &[TextSlot { tokens: &[model.vocabulary.start], place: 0 }])?;
        let known: Vec<f32> = model.vocabulary.languages.iter().map(|(_, token)| logits[*token as usize]).collect();
        let all = rules::log_sum_exp(&known);
        let share = |(&(code, _), &logit): (&(&'static str, u32), &f32)| (code, (f64::from(logit) - all).exp());
        Ok(model.vocabulary.languages.iter().zip(&known).map(share).collect())
    }

    /// Gives words to the segments of a window.
    fn time_words(
        &mut self,
        found: &mut segments::WindowSegments,
        stream: &mut RecordingStream,
        recording: &Recording,
        window: Window,
        mel: &[f32],
        settings: &SpeechSettings,
    ) -> Result<(), Error> {
        let vocabulary = &self.model.vocabulary;
        let text: Vec<u32> = found
            .segments
            .iter()
            .flat_map(|segment| segment.tokens.iter().copied().filter(|&token| token < vocabulary.end))
            .collect();
        let language = vocabulary.is_multilingual().then_some(recording.language.as_str());
        // Of what is explained: the attention of each head while the text's tokens are written.
        let mut attention: Vec<Vec<f32>> = Vec::new();
        let words = if text.is_empty() {
            Vec::new()
        } else {
            let beginning = vocabulary.beginning(language, settings.task)?;
            let tokens: Vec<u32> = beginning
                .iter()
                .copied()
                .chain([vocabulary.no_timestamps])
                .chain(text.iter().copied())
                .chain([vocabulary.end])
                .collect();
            let heard = self.listening.hear(mel, &tokens)?;
            let positions = window.frames / 2;
            let mut heads: Vec<Vec<f32>> =
                self.model.alignment_heads.iter().map(|&head| heard.head(head, positions)).collect();
            if self.heard.is_some() {
                let of_text = beginning.len() * positions..(beginning.len() + text.len()) * positions;
                attention = heads.iter().map(|head| head[of_text.clone()].to_vec()).collect();
            }
            let matrix = align::relative_attention(&mut heads, tokens.len(), positions);
            let rows = &matrix[beginning.len() * positions..(tokens.len() - 1) * positions];
            let size = vocabulary.size();
            let probability = |(place, &token): (usize, &u32)| {
                let logits = &heard.logits[(beginning.len() + place) * size..][..vocabulary.end as usize];
                (f64::from(logits[token as usize]) - rules::log_sum_exp(logits)).exp()
            };
            let probabilities: Vec<f64> = text.iter().enumerate().map(probability).collect();
            align::align(vocabulary, language, &text, rows, positions, &probabilities)
        };
        align::add_words(&mut found.segments, words, window.start(), vocabulary.end, stream.last_speech);
        if let Some(heard) = &mut self.heard {
            let mel = &mel[..window.frames * self.model.input.bins];
            heard.push(explain::heard_window(window, mel, &found.segments, &attention, window.frames / 2));
        }
        let end = segments::last_end(&found.segments);
        if let Some(end) = end.filter(|&end| !found.ends_with_one_timestamp && end > window.start()) {
            found.next = (end * 100.0).round_ties_even() as usize;
        }
        if let Some(end) = end {
            stream.last_speech = end;
        }
        Ok(())
    }
}

/// What settings mean for a model.
struct Plan {
    rules: TextRules,
    task: SpeechTask,
    /// `None`: it is detected.
    language: Option<String>,
    temperatures: Vec<f32>,
    prompt: Vec<u32>,
    /// Texts of a window at once.
    slots: usize,
}

impl Plan {
    fn new(model: &SpeechModel, settings: &SpeechSettings) -> Result<Plan, Error> {
        let vocabulary = &model.vocabulary;
        let language = match &settings.language {
            Some(given) => {
                let code = language_code(given).ok_or_else(|| {
                    Error::input(format!(
                        "{given:?} is no language that is known: give a code such as en or a name such as english"
                    ))
                })?;
                if !vocabulary.is_multilingual() && code != "en" {
                    return Err(Error::input(format!("this model understands English only, and not {given}")));
                }
                vocabulary.beginning(Some(code), settings.task)?;
                Some(code.to_string())
            }
            None => (!vocabulary.is_multilingual()).then(|| "en".to_string()),
        };
        if settings.task == SpeechTask::Translate && !vocabulary.is_multilingual() {
            return Err(Error::input("this model understands English only: there is nothing to translate"));
        }
        let temperatures = if settings.temperatures.is_empty() { vec![0.0] } else { settings.temperatures.clone() };
        if let Some(wrong) = temperatures.iter().find(|temperature| !(0.0..=100.0).contains(*temperature)) {
            return Err(Error::input(format!("a temperature is from 0 to 100, and not {wrong}")));
        }
        if settings.beam > 64 || settings.best_of > 64 {
            return Err(Error::input("at most 64 texts of a window are written at once"));
        }
        let rules = settings.rules(vocabulary)?;
        let prompt = match &settings.prompt {
            Some(prompt) if !prompt.trim().is_empty() => vocabulary.encode(&format!(" {}", prompt.trim()))?,
            _ => Vec::new(),
        };
        let draws = temperatures.iter().any(|&temperature| temperature > 0.0);
        let slots = settings.beam.max(if draws { settings.best_of } else { 1 }).max(1);
        Ok(Plan { rules, task: settings.task, language, temperatures, prompt, slots })
    }
}

/// Whether a text is written again at a higher temperature: it is too repetitive or too unlikely, and there is no silence.
fn is_poor(text: &WindowText, settings: &SpeechSettings) -> bool {
    let is_unlikely = settings.log_probability_threshold.is_some_and(|least| text.mean_log_probability < least);
    let is_repetitive = settings.compression_ratio_threshold.is_some_and(|most| text.compression_ratio > most);
    let is_silent = settings.no_speech_threshold.is_some_and(|most| text.no_speech > most) && is_unlikely;
    (is_unlikely || is_repetitive) && !is_silent
}
