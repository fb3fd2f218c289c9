//! How far recordings were transcribed: a recording is one stream of windows, or several that are cut where it is quiet.

use vitreous_data::audio::{FRAMES_PER_SECOND, Spectrogram, SpeechVocabulary};

use super::decode::WindowText;
use super::segments::{self, Segment, Window, WindowSegments};
use super::{SpeechSettings, Transcript};
use crate::error::Error;

/// The share of a window in which a quiet place is looked for, from its end.
const SEARCHED: usize = 3;

/// A recording.
pub(super) struct Recording {
    pub spectrogram: Spectrogram,
    pub language: String,
    /// The frame that the next stream begins with; `None` if all began.
    next: Option<usize>,
    /// Segments by the frame that their stream begins with.
    segments: Vec<(usize, Segment)>,
    /// Frames of streams that are over, and of those that are not.
    heard: usize,
}

/// A part of a recording that is transcribed window by window.
pub(super) struct RecordingStream {
    pub recording: usize,
    start: usize,
    /// The frame that it ends before; `usize::MAX`: with the recording.
    end: usize,
    seek: usize,
    over: bool,
    /// All tokens so far, behind those of the user's prompt.
    tokens: Vec<u32>,
    /// From where on they are a prompt.
    reset_since: usize,
    pub last_speech: f64,
}

impl Recording {
    pub fn new(spectrogram: Spectrogram) -> Recording {
        Recording { spectrogram, language: String::new(), next: Some(0), segments: Vec::new(), heard: 0 }
    }

    /// The next stream, if there is one: all of the recording, or what comes before the next quiet place.
    pub fn next_stream(
        &mut self,
        index: usize,
        cuts: bool,
        frames: usize,
        prompt: &[u32],
    ) -> Result<Option<RecordingStream>, Error> {
        let Some(start) = self.next else { return Ok(None) };
        let known = self.spectrogram.read_to(start + frames).map_err(Error::Audio)?;
        if known <= start && start > 0 {
            self.next = None;
            return Ok(None);
        }
        let end = match cuts && known >= start + frames {
            true => self.spectrogram.quietest(start + frames - frames / SEARCHED, start + frames),
            false => usize::MAX,
        };
        self.next = (end != usize::MAX).then_some(end);
        Ok(Some(RecordingStream {
            recording: index,
            start,
            end,
            seek: start,
            over: false,
            tokens: prompt.to_vec(),
            reset_since: 0,
            last_speech: start as f64 / FRAMES_PER_SECOND as f64,
        }))
    }

    /// Adds a stream's segments; gives how many seconds were heard.
    pub fn add(&mut self, stream: &RecordingStream, segments: Vec<Segment>) -> f64 {
        self.segments.extend(segments.into_iter().map(|segment| (stream.start, segment)));
        let length = self.spectrogram.length().unwrap_or(usize::MAX);
        self.heard = self.heard.max(stream.seek.min(length));
        self.heard as f64 / FRAMES_PER_SECOND as f64
    }

    /// Forgets frames that no stream needs; `first` is the first that a stream needs.
    pub fn forget_before(&mut self, first: Option<usize>) {
        let needed = first.into_iter().chain(self.next).min().unwrap_or(usize::MAX);
        self.spectrogram.forget_before(needed);
    }

    pub fn finish(mut self, vocabulary: &SpeechVocabulary, has_words: bool) -> Result<Transcript, Error> {
        // Streams beside each other end in any order.
        self.segments.sort_by_key(|(start, _)| *start);
        let segments: Vec<Segment> = self.segments.into_iter().map(|(_, segment)| segment).collect();
        let tokens: Vec<u32> = segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
        Ok(Transcript {
            text: vocabulary.decode(&tokens)?,
            language: self.language,
            segments,
            has_words,
            damage: self.spectrogram.damage().map(str::to_string),
            failure: self.spectrogram.failure().map(ToString::to_string),
            seconds: self.spectrogram.stated_seconds().unwrap_or(0.0),
        })
    }
}

impl RecordingStream {
    /// The frame that the next window begins with.
    pub fn seek(&self) -> usize {
        self.seek
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Tokens that the next window's text goes on from.
    pub fn prompt(&self) -> &[u32] {
        &self.tokens[self.reset_since..]
    }

    /// The next window; `None` if it is over.
    pub fn window(&mut self, recording: &mut Recording, frames: usize) -> Result<Option<Window>, Error> {
        let known = recording.spectrogram.read_to(self.seek + frames).map_err(Error::Audio)?;
        let end = known.min(self.end);
        self.over = self.seek >= end;
        Ok((!self.over).then(|| Window { seek: self.seek, frames: frames.min(end - self.seek) }))
    }

    /// What comes of a window's text: nothing if it is silent.
    pub fn take(
        &self,
        window: Window,
        text: &WindowText,
        vocabulary: &SpeechVocabulary,
        settings: &SpeechSettings,
    ) -> Result<WindowSegments, Error> {
        let is_likely = settings.log_probability_threshold.is_some_and(|least| text.mean_log_probability > least);
        let is_silent = settings.no_speech_threshold.is_some_and(|most| text.no_speech > most) && !is_likely;
        if is_silent {
            let next = window.seek + window.frames;
            return Ok(WindowSegments { segments: Vec::new(), next, ends_with_one_timestamp: true });
        }
        segments::cut(window, text, vocabulary)
    }

    /// Goes on behind a window; gives its segments.
    pub fn keep(&mut self, found: WindowSegments, text: &WindowText, settings: &SpeechSettings) -> Vec<Segment> {
        let WindowSegments { mut segments, next, .. } = found;
        // A window without any progress would be heard forever.
        self.seek = next.max(self.seek + 1);
        let is_silent = segments.is_empty();
        segments::clear_empty(&mut segments);
        self.tokens.extend(segments.iter().flat_map(|segment| &segment.tokens));
        // Text that was drawn from far away is nothing to go on from.
        if !is_silent && (!settings.condition_on_previous || text.temperature > 0.5) {
            self.reset_since = self.tokens.len();
        }
        segments
    }
}
