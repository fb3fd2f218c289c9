//! Transcripts as files: text, subtitles, JSON.

use serde_json::{Value as Json, json};

use super::segments::Segment;
use super::{Transcript, Word};

/// The formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// A line for each segment.
    #[default]
    Txt,
    /// SubRip's subtitles.
    Srt,
    /// The web's subtitles.
    Vtt,
    /// An object.
    Json,
}

impl TranscriptFormat {
    /// The extension of its files.
    pub fn extension(self) -> &'static str {
        match self {
            TranscriptFormat::Txt => "txt",
            TranscriptFormat::Srt => "srt",
            TranscriptFormat::Vtt => "vtt",
            TranscriptFormat::Json => "json",
        }
    }

    /// What a file begins with.
    pub fn head(self) -> &'static str {
        if self == TranscriptFormat::Vtt { "WEBVTT\n\n" } else { "" }
    }

    /// A segment; `number` counts from 1. Of JSON, nothing: an object is written as a whole.
    pub fn segment(self, number: usize, segment: &Segment) -> String {
        let text = segment.text.trim();
        let subtitle = |hours: bool, mark: char| {
            let times = format!("{} --> {}", time(segment.start, hours, mark), time(segment.end, hours, mark));
            format!("{times}\n{}\n\n", text.replace("-->", "->"))
        };
        match self {
            TranscriptFormat::Txt => format!("{text}\n"),
            TranscriptFormat::Srt => format!("{number}\n{}", subtitle(true, ',')),
            TranscriptFormat::Vtt => subtitle(false, '.'),
            TranscriptFormat::Json => String::new(),
        }
    }

    /// A whole transcript.
    pub fn write(self, path: &str, transcript: &Transcript) -> String {
        if self == TranscriptFormat::Json {
            return format!("{}\n", transcript_json(path, transcript));
        }
        let segments = transcript.segments.iter().enumerate();
        let segments = segments.map(|(index, segment)| self.segment(index + 1, segment));
        std::iter::once(self.head().to_string()).chain(segments).collect()
    }
}

/// `{"path", "text", "language", "segments": [{"start", "end", "text"}]}`; segments have `words` where they were asked for.
pub fn transcript_json(path: &str, transcript: &Transcript) -> Json {
    let rounded = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
    let word = |word: &Word| {
        json!({
            "start": rounded(word.start), "end": rounded(word.end), "word": word.text, "probability": word.probability,
        })
    };
    let segments: Vec<Json> = transcript
        .segments
        .iter()
        .map(|segment| {
            let mut object = json!({
                "start": rounded(segment.start),
                "end": rounded(segment.end),
                "text": segment.text,
                "temperature": segment.temperature,
                "avg_logprob": segment.mean_log_probability,
                "compression_ratio": segment.compression_ratio,
                "no_speech_prob": segment.no_speech,
            });
            if transcript.has_words {
                object["words"] = segment.words.iter().map(word).collect();
            }
            object
        })
        .collect();
    json!({ "path": path, "text": transcript.text, "language": transcript.language, "segments": segments })
}

/// A time of subtitles: `01:02:03,456`.
fn time(seconds: f64, always_hours: bool, mark: char) -> String {
    let all = (seconds.max(0.0) * 1000.0).round_ties_even() as u64;
    let (hours, minutes) = (all / 3_600_000, all / 60_000 % 60);
    let hours = if always_hours || hours > 0 { format!("{hours:02}:") } else { String::new() };
    format!("{hours}{minutes:02}:{:02}{mark}{:03}", all / 1000 % 60, all % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As openai-whisper's `format_timestamp` has them.
    #[test]
    fn times_are_those_of_subtitles() {
        let cases = [
            (0.0, "00:00:00,000", "00:00.000"),
            (1.2345, "00:00:01,234", "00:01.234"),
            (59.9996, "00:01:00,000", "01:00.000"),
            (3599.02, "00:59:59,020", "59:59.020"),
            (3600.0, "01:00:00,000", "01:00:00.000"),
            (360_061.5, "100:01:01,500", "100:01:01.500"),
        ];
        for (seconds, srt, vtt) in cases {
            assert_eq!(
                (time(seconds, true, ',').as_str(), time(seconds, false, '.').as_str()),
                (srt, vtt),
                "{seconds}"
            );
        }
    }
}
