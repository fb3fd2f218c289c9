//! A recording, as the page that `vitreous explain` writes or as JSON.

use std::sync::Arc;

use vitreous_data::audio::{AudioSource, Spectrogram};
use vitreous_engine::{Device, Precision};
use vitreous_pages::explained::speech::{html, object};
use vitreous_runtime::speech::{SpeechModel, SpeechSettings, Transcriber};

use super::{Explained, Shown};
use crate::work::WorkError;

/// Where the model listened in a recording of at most so many seconds.
pub fn explained(
    model: &SpeechModel,
    device: &Device,
    file: &[u8],
    most_seconds: f64,
    shown: &Shown,
) -> Result<Explained, WorkError> {
    let refused = |error| WorkError::Input(format!("the recording: {error}"));
    let recording = Spectrogram::open(&AudioSource::Bytes(Arc::from(file)), model.input.bins).map_err(refused)?;
    let too_long = || WorkError::Input(format!("the recording is longer than {most_seconds} s"));
    if recording.stated_seconds().is_some_and(|seconds| seconds > most_seconds) {
        return Err(too_long());
    }
    let mut transcriber = Transcriber::new(model, Precision::F32, device)?;
    let (transcript, heard) = transcriber.explain(recording, &SpeechSettings::default())?;
    Ok(match shown.as_json {
        true => Explained::Json(object(model, &transcript, &heard)),
        false => Explained::Page(html("recording", &shown.name, model, &transcript, &heard)?),
    })
}
