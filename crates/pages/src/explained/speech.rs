//! A recording as a speech model hears it: its spectrogram, and where the decoder listened for each word.

use serde_json::{Value as Json, json};
use vitreous_runtime::speech::{HeardWindow, HeardWord, POSITIONS_PER_SECOND, SpeechModel, Transcript, language_name};

use super::ExplainedError;
use crate::explain_speech::{SpeechPage, SpokenWord, WindowShown, page};

/// The most windows of a recording that are drawn: ten minutes.
const MOST_WINDOWS: usize = 20;

/// The page of a recording.
pub fn html(
    recording: &str,
    name: &str,
    model: &SpeechModel,
    transcript: &Transcript,
    heard: &[HeardWindow],
) -> Result<String, ExplainedError> {
    let windows: Vec<WindowShown> = heard.iter().take(MOST_WINDOWS).map(window).collect();
    page(&SpeechPage {
        path: recording,
        model: name,
        language: language_name(&transcript.language).unwrap_or(&transcript.language),
        seconds: transcript.seconds,
        heads: &model.alignment_heads,
        bins: model.input.bins,
        windows: &windows,
        window_count: heard.len(),
    })
    .map_err(ExplainedError::work)
}

fn window(heard: &HeardWindow) -> WindowShown {
    let word = |word: &HeardWord| SpokenWord {
        text: word.word.text.clone(),
        start: word.word.start,
        end: word.word.end,
        probability: word.word.probability,
        attention: word.attention.clone(),
    };
    WindowShown { start: heard.start, mel: heard.mel.clone(), words: heard.words.iter().map(word).collect() }
}

/// The explanation as JSON; see the guide for its fields.
pub fn object(model: &SpeechModel, transcript: &Transcript, heard: &[HeardWindow]) -> Json {
    let window = |window: &HeardWindow| {
        let words: Vec<Json> = window
            .words
            .iter()
            .map(|heard| {
                let word = &heard.word;
                json!({
                    "word": word.text, "start": word.start, "end": word.end, "probability": word.probability,
                    "attention": heard.attention
                })
            })
            .collect();
        json!({"start": window.start, "frames": window.mel.len() / model.input.bins, "words": words})
    };
    json!({
        "text": transcript.text.trim(),
        "language": transcript.language,
        "seconds": transcript.seconds,
        "heads": model.alignment_heads,
        "positions_per_second": POSITIONS_PER_SECOND,
        "windows": heard.iter().map(window).collect::<Vec<_>>(),
    })
}
