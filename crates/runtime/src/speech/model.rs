//! A speech model with its vocabulary and the heads that follow the audio.

use std::path::Path;

use serde_json::Value as Json;
use vitreous_data::audio::SpeechVocabulary;
use vitreous_models::families::whisper;
use vitreous_models::{AudioInput, Model, OpenOptions};

use crate::error::Error;
use crate::locate::{model_directory, open_model, unsuitable};

/// The most bytes of a `generation_config.json` that are read.
const MOST_SETTINGS_BYTES: u64 = 1 << 20;

/// A model that writes what is said.
#[derive(Debug)]
pub struct SpeechModel {
    /// The model.
    pub model: Model,
    /// Its tokens.
    pub vocabulary: SpeechVocabulary,
    /// What it takes.
    pub input: AudioInput,
    /// Layer and head of the decoder's attention to the audio that words are timed by.
    pub alignment_heads: Vec<(usize, usize)>,
}

/// Whether a path holds a speech model.
pub fn is_speech_model(path: &Path) -> bool {
    let directory = model_directory(path);
    let described = directory.exists().then(|| Model::describe(&directory, &OpenOptions::default()).ok()).flatten();
    described.is_some_and(|model| model.architecture.signature().audio().is_some())
}

impl SpeechModel {
    /// Opens a model directory, a run directory, or a file of OpenAI's.
    pub fn open(path: &Path) -> Result<SpeechModel, Error> {
        let model = open_model(path, &OpenOptions::default())?;
        let signature = model.architecture.signature();
        let Some(input) = signature.audio() else {
            return Err(unsuitable(&path.to_string_lossy(), &signature, "speech recognition model"));
        };
        let directory = model_directory(path);
        let config = match directory.is_dir() {
            true => generation_config(&directory.join("generation_config.json"))?,
            false => Json::Null,
        };
        let is_multilingual = config.get("is_multilingual").and_then(Json::as_bool);
        let vocabulary = SpeechVocabulary::open(&directory, input.target.vocabulary, is_multilingual)?;
        let settings = model.architecture.settings();
        let number = |key: &str| settings.get(key).and_then(Json::as_u64).unwrap_or(0) as usize;
        let (layers, heads) = (number("decoder_layers"), number("decoder_heads"));
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let named = heads_of(&config).or_else(|| whisper::alignment_heads(stem).map(<[(usize, usize)]>::to_vec));
        let named = named.filter(|named| named.iter().all(|&(layer, head)| layer < layers && head < heads));
        // Where nothing is known, the upper half of all layers, as OpenAI does.
        let usual = || (layers / 2..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))).collect();
        let alignment_heads = named.unwrap_or_else(usual);
        Ok(SpeechModel { model, vocabulary, input, alignment_heads })
    }
}

fn generation_config(path: &Path) -> Result<Json, Error> {
    if !path.is_file() {
        return Ok(Json::Null);
    }
    let bytes = vitreous_files::open::read_bounded(path, MOST_SETTINGS_BYTES)
        .map_err(|error| Error::input(format!("{}: {error}", path.display())))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::input(format!("{}: this is not JSON: {error}", path.display())))
}

/// `alignment_heads` of a `generation_config.json`.
fn heads_of(config: &Json) -> Option<Vec<(usize, usize)>> {
    let listed: Vec<(usize, usize)> = serde_json::from_value(config.get("alignment_heads")?.clone()).ok()?;
    (!listed.is_empty()).then_some(listed)
}
