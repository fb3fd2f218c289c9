//! Transcripts as text, subtitles and JSON.

use serde_json::{Value as Json, json};
use vitreous_runtime::speech::{self, Segment, Transcript, Word, language_name};

use crate::models::TranscribeOptions;

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
            TranscriptFormat::Json => ("application/json", json!({"text": transcript.text.trim()}).to_string()),
            TranscriptFormat::Text => ("text/plain; charset=utf-8", format!("{}\n", transcript.text.trim())),
            TranscriptFormat::Srt => {
                ("application/x-subrip; charset=utf-8", subtitles(speech::TranscriptFormat::Srt, transcript))
            }
            TranscriptFormat::Vtt => ("text/vtt; charset=utf-8", subtitles(speech::TranscriptFormat::Vtt, transcript)),
            TranscriptFormat::VerboseJson => ("application/json", verbose(transcript, options).to_string()),
        }
    }
}

fn subtitles(format: speech::TranscriptFormat, transcript: &Transcript) -> String {
    format.write("", transcript)
}

/// The name of a language in OpenAI's answers: `english`.
fn language(code: &str) -> &str {
    language_name(code).unwrap_or(code)
}

fn verbose(transcript: &Transcript, options: &TranscribeOptions) -> Json {
    let segment = |(id, segment): (usize, &Segment)| {
        json!({
            "id": id, "seek": 0, "start": segment.start, "end": segment.end, "text": segment.text,
            "tokens": segment.tokens, "temperature": segment.temperature, "avg_logprob": segment.mean_log_probability,
            "compression_ratio": segment.compression_ratio, "no_speech_prob": segment.no_speech,
        })
    };
    let mut object = json!({
        "task": if options.translate { "translate" } else { "transcribe" },
        "language": language(&transcript.language), "duration": transcript.seconds, "text": transcript.text.trim(),
        "segments": transcript.segments.iter().enumerate().map(segment).collect::<Vec<Json>>(),
    });
    if options.words {
        let word = |word: &Word| json!({"word": word.text.trim(), "start": word.start, "end": word.end});
        object["words"] = transcript.words().map(word).collect();
    }
    object
}
