//! A recording, as the page that `vitreous explain` writes or as JSON.

use vitreous_engine::{Device, Precision};
use vitreous_pages::explained::speech::{html, object};
use vitreous_runtime::speech::{SpeechModel, SpeechSettings, Transcriber};

use super::{Explained, Shown};
use crate::models::Recording;
use crate::work::WorkError;

/// Where the model listened in a recording.
pub fn explained(
    model: &SpeechModel,
    device: &Device,
    recording: &Recording,
    shown: &Shown,
) -> Result<Explained, WorkError> {
    let recording = recording.spectrogram(model.input.bins)?;
    let mut transcriber = Transcriber::new(model, Precision::F32, device)?;
    let (transcript, heard) = transcriber.explain(recording, &SpeechSettings::default())?;
    Ok(match shown.as_json {
        true => Explained::Json(object(model, &transcript, &heard)),
        false => Explained::Page(html("recording", &shown.name, model, &transcript, &heard)?),
    })
}
