//! Models that write down what is said in a recording. [`Transcribe`] is what the endpoint needs of one.

use std::sync::Arc;

use crate::work::WorkError;

/// A recording, in a file's bytes.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file.
    pub bytes: bytes::Bytes,
    /// The most seconds that are taken.
    pub most_seconds: f64,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscribeOptions {
    /// The language that is spoken, as in `en`; `None`: what the model hears.
    pub language: Option<String>,
    /// What was said before, or how words are to be written.
    pub prompt: Option<String>,
    /// The temperature of sampling; 0 takes the likeliest token.
    pub temperature: f32,
    /// Whether the answer is in English, whatever is spoken.
    pub translate: bool,
    /// Whether each word has its time.
    pub words: bool,
}

/// What was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// All of it.
    pub text: String,
    /// The language, as in `english` or `en`.
    pub language: String,
    /// Seconds of the recording.
    pub duration: f64,
    /// Its parts, in their order.
    pub segments: Vec<Segment>,
    /// Its words, if they were asked for.
    pub words: Vec<Word>,
}

/// A part of what was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// What was said.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// The temperature at which it was written.
    pub temperature: f32,
    /// The mean logarithm of its tokens' probabilities.
    pub avg_logprob: f64,
    /// How much its text can be compressed: a text that repeats itself can be much.
    pub compression_ratio: f64,
    /// The probability that nothing was said.
    pub no_speech_prob: f64,
}

/// A word and its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    /// The word.
    pub word: String,
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
}

/// A model that writes down what is said. It is called by threads that may wait; calls at the same time are allowed, and may wait for each
/// other.
pub trait Transcribe: Send + Sync {
    /// What is said in a recording.
    fn transcribe(&self, recording: &Recording, options: &TranscribeOptions) -> Result<Transcript, WorkError>;
}

/// A model of speech.
#[derive(Clone)]
pub struct Speech(pub Arc<dyn Transcribe>);

impl Speech {
    /// What is said in a recording.
    pub async fn transcribe(&self, recording: Recording, options: TranscribeOptions) -> Result<Transcript, WorkError> {
        let model = self.0.clone();
        let done = tokio::task::spawn_blocking(move || model.transcribe(&recording, &options));
        done.await.map_err(|error| WorkError::Failed(error.to_string()))?
    }
}
