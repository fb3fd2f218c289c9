//! From the tokens of a window to segments with times, and where the next window begins: OpenAI's rules.

use vitreous_data::audio::SpeechVocabulary;

use super::decode::WindowText;
use crate::error::Error;

/// Seconds of a frame, and of a timestamp.
const FRAME: f64 = 0.01;
/// Frames of a timestamp.
const FRAMES_PER_TIMESTAMP: usize = 2;

/// A piece of a transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// What is said, with the space before it.
    pub text: String,
    /// Its tokens, timestamps among them.
    pub tokens: Vec<u32>,
    /// The temperature that its window was written with.
    pub temperature: f32,
    /// The mean logarithmic probability of its window's tokens.
    pub mean_log_probability: f64,
    /// The compression ratio of its window's text.
    pub compression_ratio: f64,
    /// How likely its window is silent.
    pub no_speech: f64,
    /// Its words, if they were asked for.
    pub words: Vec<Word>,
}

/// A word of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// The word, with the space before it.
    pub text: String,
    /// The mean probability of its tokens.
    pub probability: f64,
    /// Number of its tokens.
    pub tokens: usize,
}

/// A window of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Its first frame.
    pub seek: usize,
    /// Its frames, without padding.
    pub frames: usize,
}

impl Window {
    /// Where it begins, in seconds.
    pub fn start(&self) -> f64 {
        self.seek as f64 * FRAME
    }
}

/// What comes of a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WindowSegments {
    pub segments: Vec<Segment>,
    /// The frame that the next window begins with.
    pub next: usize,
    /// Whether nothing is said behind the last timestamp, which ends the window.
    pub ends_with_one_timestamp: bool,
}

/// Cuts the text of a window into segments.
pub(super) fn cut(window: Window, text: &WindowText, vocabulary: &SpeechVocabulary) -> Result<WindowSegments, Error> {
    let tokens = &text.tokens;
    let offset = window.start();
    let is_time = |token: &u32| vocabulary.is_timestamp(*token);
    let position = |token: u32| token.saturating_sub(vocabulary.first_timestamp) as usize;
    let seconds = |token: u32| offset + position(token) as f64 * FRAME * FRAMES_PER_TIMESTAMP as f64;
    let segment = |start: f64, end: f64, tokens: &[u32]| {
        Ok::<_, Error>(Segment {
            start,
            end,
            text: vocabulary.decode(tokens)?,
            tokens: tokens.to_vec(),
            temperature: text.temperature,
            mean_log_probability: text.mean_log_probability,
            compression_ratio: text.compression_ratio,
            no_speech: text.no_speech,
            words: Vec::new(),
        })
    };
    let ends_with_one_timestamp = matches!(tokens[..], [.., before, last] if !is_time(&before) && is_time(&last));
    let mut places: Vec<usize> = tokens
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair.iter().all(is_time))
        .map(|(place, _)| place + 1)
        .collect();
    let mut segments = Vec::new();
    let mut next = window.seek + window.frames;
    if places.is_empty() {
        let last = tokens.iter().rev().copied().find(|token| is_time(token));
        let end = match last {
            Some(last) if last != vocabulary.first_timestamp => seconds(last),
            _ => offset + window.frames as f64 * FRAME,
        };
        segments.push(segment(offset, end, tokens)?);
    } else {
        if ends_with_one_timestamp {
            places.push(tokens.len());
        }
        let mut from = 0;
        for &to in &places {
            let part = &tokens[from..to];
            segments.push(segment(seconds(part[0]), seconds(part[part.len() - 1]), part)?);
            from = to;
        }
        if !ends_with_one_timestamp {
            // What is unfinished is heard again.
            next = window.seek + position(tokens[from - 1]) * FRAMES_PER_TIMESTAMP;
        }
    }
    Ok(WindowSegments { segments, next, ends_with_one_timestamp })
}

/// Empties segments that take no time or have no text.
pub(super) fn clear_empty(segments: &mut [Segment]) {
    for segment in segments {
        if segment.start == segment.end || segment.text.trim().is_empty() {
            segment.text.clear();
            segment.tokens.clear();
            segment.words.clear();
        }
    }
}

/// Where the last word ends; without words, where the last segment does.
pub(super) fn last_end(segments: &[Segment]) -> Option<f64> {
    let words = segments.iter().rev().flat_map(|segment| segment.words.iter().rev());
    words.map(|word| word.end).next().or(segments.last().map(|segment| segment.end))
}
