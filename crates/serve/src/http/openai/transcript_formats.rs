//! Transcripts as text, subtitles and JSON.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use crate::models::{Segment, TranscribeOptions, Transcript, Word};

/// How a transcript is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// `{"text": ..}`
    #[default]
    Json,
    /// The text alone.
    Text,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    Vtt,
    /// JSON with segments, and words if they were asked for.
    VerboseJson,
}

impl TranscriptFormat {
    /// By the name in OpenAI's API.
    pub fn parse(name: &str) -> Option<TranscriptFormat> {
        Some(match name {
            "json" => TranscriptFormat::Json,
            "text" => TranscriptFormat::Text,
            "srt" => TranscriptFormat::Srt,
            "vtt" => TranscriptFormat::Vtt,
            "verbose_json" => TranscriptFormat::VerboseJson,
            _ => return None,
        })
    }

    /// A transcript in this format, and its content type.
    pub fn write(self, transcript: &Transcript, options: &TranscribeOptions) -> (&'static str, String) {
        match self {
            TranscriptFormat::Json => ("application/json", json!({"text": transcript.text}).to_string()),
            TranscriptFormat::Text => ("text/plain; charset=utf-8", format!("{}\n", transcript.text)),
            TranscriptFormat::Srt => ("application/x-subrip; charset=utf-8", srt(&transcript.segments)),
            TranscriptFormat::Vtt => ("text/vtt; charset=utf-8", vtt(&transcript.segments)),
            TranscriptFormat::VerboseJson => ("application/json", verbose(transcript, options).to_string()),
        }
    }
}

/// `HH:MM:SS,mmm`, with `mark` before the milliseconds.
fn time(seconds: f64, mark: char) -> String {
    let milliseconds = (seconds.max(0.0) * 1e3).round() as u64;
    let (hours, minutes, rest) = (milliseconds / 3_600_000, milliseconds / 60_000 % 60, milliseconds % 60_000);
    format!("{hours:02}:{minutes:02}:{:02}{mark}{:03}", rest / 1000, rest % 1000)
}

/// Subtitles have an arrow between their times, which must not be in their text, and no empty lines.
fn line(text: &str) -> String {
    let lines = text.trim().lines().filter(|line| !line.trim().is_empty());
    lines.collect::<Vec<_>>().join("\n").replace("-->", "->")
}

fn srt(segments: &[Segment]) -> String {
    let mut text = String::new();
    for (number, segment) in segments.iter().enumerate() {
        let (start, end) = (time(segment.start, ','), time(segment.end, ','));
        let _ = write!(text, "{}\n{start} --> {end}\n{}\n\n", number + 1, line(&segment.text));
    }
    text
}

fn vtt(segments: &[Segment]) -> String {
    let mut text = "WEBVTT\n\n".to_string();
    for segment in segments {
        let (start, end) = (time(segment.start, '.'), time(segment.end, '.'));
        let _ = write!(text, "{start} --> {end}\n{}\n\n", line(&segment.text));
    }
    text
}

fn verbose(transcript: &Transcript, options: &TranscribeOptions) -> Json {
    let segment = |(id, segment): (usize, &Segment)| {
        json!({
            "id": id, "seek": 0, "start": segment.start, "end": segment.end, "text": segment.text,
            "tokens": segment.tokens, "temperature": segment.temperature, "avg_logprob": segment.avg_logprob,
            "compression_ratio": segment.compression_ratio, "no_speech_prob": segment.no_speech_prob,
        })
    };
    let mut object = json!({
        "task": if options.translate { "translate" } else { "transcribe" },
        "language": transcript.language, "duration": transcript.duration, "text": transcript.text,
        "segments": transcript.segments.iter().enumerate().map(segment).collect::<Vec<Json>>(),
    });
    if options.words {
        let word = |word: &Word| json!({"word": word.word, "start": word.start, "end": word.end});
        object["words"] = transcript.words.iter().map(word).collect();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_subtitles() {
        assert_eq!(time(0.0, ','), "00:00:00,000");
        assert_eq!(time(3661.5, '.'), "01:01:01.500");
        // A second that rounding makes whole.
        assert_eq!(time(59.9996, ','), "00:01:00,000");
    }

    #[test]
    fn a_subtitle_has_no_arrow_and_no_empty_line() {
        let segment = Segment { start: 0.0, end: 1.0, text: " a --> b\n\nc ".to_string(), ..Segment::default() };
        assert_eq!(srt(std::slice::from_ref(&segment)), "1\n00:00:00,000 --> 00:00:01,000\na -> b\nc\n\n");
        assert_eq!(vtt(&[segment]), "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na -> b\nc\n\n");
    }
}
