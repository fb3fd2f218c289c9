//! A speech model that is trained, with its vocabulary.

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use vitreous_data::audio::{SpeechTargets, SpeechTask, SpeechVocabulary, TranscribedAudio, language_code};
use vitreous_data::text::IGNORED;
use vitreous_engine::{CrossEntropyOptions, DType, Graph, Parameter, Role, State, Value};
use vitreous_models::families::whisper::alignment_heads;
use vitreous_models::{Adapters, AudioInput, Call, Initialisation, Model, SaveOptions, WeightType, initialise};

use super::settings::TranscribeDataSettings;
use crate::error::TrainError;
use crate::finetuning::open_pretrained;
use crate::groups::block_count;
use crate::recipe::Recipe;

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others.
const KEPT_SETTINGS: [&str; 3] = ["dropout", "attention_dropout", "mlp_dropout"];
const GENERATION: &str = "generation_config.json";
const FEATURES: &str = "preprocessor_config.json";
/// The most bytes of a `generation_config.json` that are read.
const MOST_SETTINGS_BYTES: u64 = 1 << 20;

/// A speech model that is trained.
pub(super) struct SpeechModel {
    pub model: Model,
    pub input: AudioInput,
    pub vocabulary: SpeechVocabulary,
    /// What all texts begin with, up to the token that says that there are no timestamps.
    pub prompt: Vec<u32>,
    /// The code of the language that texts are in, of models with languages.
    pub language: Option<&'static str>,
    /// `generation_config.json` and `preprocessor_config.json`.
    settings_files: [(String, Vec<u8>); 2],
    /// Blocks of the model, for layer-wise learning rates.
    pub blocks: usize,
}

impl SpeechModel {
    /// A pretrained model: a directory, or a file of OpenAI's. The recipe's model becomes this one.
    pub fn open(recipe: &mut Recipe, init: &str, data: &TranscribeDataSettings) -> Result<SpeechModel, TrainError> {
        let path = Path::new(init);
        let model = open_pretrained(path, recipe, &KEPT_SETTINGS, |_| None)?;
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let signature = model.architecture.signature();
        let input = signature.audio().ok_or_else(|| {
            TrainError::Data(format!("this is {}, but recordings need a speech recognition model", signature.what()))
        })?;
        let own = generation_settings(&path.join(GENERATION))?;
        let is_multilingual = own.as_ref().and_then(|own| own.get("is_multilingual")?.as_bool());
        let vocabulary = SpeechVocabulary::open(path, input.target.vocabulary, is_multilingual)?;
        let (prompt, language) = prompt_of(&vocabulary, data)?;
        let generation = match own {
            Some(own) => own,
            None => generation_config(&model, &vocabulary, path)?,
        };
        let features = match vitreous_files::open::read_bounded(&path.join(FEATURES), MOST_SETTINGS_BYTES) {
            Ok(features) => features,
            Err(_) => json_bytes(&feature_extractor(&input)),
        };
        let settings_files = [(GENERATION.to_string(), json_bytes(&generation)), (FEATURES.to_string(), features)];
        let blocks = block_count(model.parameters());
        Ok(SpeechModel { model, input, vocabulary, prompt, language, settings_files, blocks })
    }

    /// The tokens of a text with its end; `None` if the model has no room for it.
    fn tokens(&self, text: &str) -> Result<Option<Vec<u32>>, TrainError> {
        let mut tokens = self.vocabulary.encode_text(text, self.language)?;
        tokens.push(self.vocabulary.end);
        // The end is wanted, but not read.
        Ok((self.prompt.len() + tokens.len() <= self.input.target.longest + 1).then_some(tokens))
    }

    /// Whether there is room for a text.
    pub fn has_room_for(&self, text: &str) -> Result<bool, TrainError> {
        Ok(self.tokens(text)?.is_some())
    }

    /// The targets of recordings whose texts it has room for.
    pub fn targets(&self, recordings: &[TranscribedAudio]) -> Result<SpeechTargets, TrainError> {
        let texts = recordings.iter().filter_map(|recording| self.tokens(&recording.text).transpose());
        let texts = texts.collect::<Result<Vec<_>, TrainError>>()?;
        Ok(SpeechTargets { prompt: self.prompt.clone(), texts, padding: self.vocabulary.end })
    }

    /// The mean loss over the wanted tokens of a batch with so many rows of so many tokens.
    pub fn loss(
        &self,
        graph: &mut Graph,
        (rows, target): (usize, usize),
        adapters: Option<&Adapters>,
    ) -> Result<Value, TrainError> {
        let call = Call::whole(rows).target(target).adapters(adapters);
        let logits = self.model.architecture.build(graph, &call)?.need("logits")?;
        let wanted = graph.input("wanted", [rows, target], DType::I32)?;
        let options = CrossEntropyOptions { ignored_index: Some(IGNORED), ..CrossEntropyOptions::default() };
        Ok(graph.cross_entropy(logits, wanted, options)?)
    }

    /// Sets initial values: those of the pretrained model, and random ones for adapters.
    pub fn initialise(&self, seed: u64, state: &mut State) -> Result<(), TrainError> {
        self.model.load(state)?;
        let is_new = |parameter: &Parameter| parameter.role() == Role::Adapter || self.model.is_new(&parameter.name);
        initialise(state, Initialisation::TruncatedNormal, seed, &is_new)?;
        state.start_average();
        Ok(())
    }

    /// Writes a model directory with all that `transformers` needs to transcribe.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let mut files = self.vocabulary.tokenizer().files()?;
        files.retain(|(name, _)| self.settings_files.iter().all(|(own, _)| own != name));
        let [generation, (_, features)] = &self.settings_files;
        files.push(generation.clone());
        let options = SaveOptions {
            state: Some(state),
            weights: Some(WeightType::F32),
            files: &files,
            preprocessor: Some(features),
            ..SaveOptions::default()
        };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }
}

fn prompt_of(
    vocabulary: &SpeechVocabulary,
    data: &TranscribeDataSettings,
) -> Result<(Vec<u32>, Option<&'static str>), TrainError> {
    let spoken = language_code(&data.language);
    let task = SpeechTask::from(data.task);
    if !vocabulary.is_multilingual() {
        let refused = match () {
            () if task == SpeechTask::Translate => Some("there is nothing to translate: data.task=transcribe"),
            () if spoken.is_some_and(|code| code != "en") => Some("data.language must be en, or empty"),
            () => None,
        };
        if let Some(what) = refused {
            return Err(TrainError::Data(format!("this model understands English only: {what}")));
        }
    } else if spoken.is_none() {
        let what = "this model has several languages: name the one that is spoken with data.language=CODE, as in data.language=de";
        return Err(TrainError::Data(what.to_string()));
    }
    let mut prompt = vocabulary.beginning(spoken, task)?;
    prompt.push(vocabulary.no_timestamps);
    let written = if task == SpeechTask::Translate { Some("en") } else { spoken };
    Ok((prompt, written.filter(|_| vocabulary.is_multilingual())))
}

fn json_bytes(value: &Json) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain data");
    bytes.push(b'\n');
    bytes
}

fn generation_settings(path: &Path) -> Result<Option<Json>, TrainError> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = vitreous_files::open::read_bounded(path, MOST_SETTINGS_BYTES)
        .map_err(TrainError::io(path, "cannot be read"))?;
    let settings = serde_json::from_slice(&bytes)
        .map_err(|error| TrainError::Data(format!("{}: this is not JSON: {error}", path.display())))?;
    Ok(Some(settings))
}

/// What a `generation_config.json` says of a model of OpenAI's, whose files have none.
fn generation_config(model: &Model, vocabulary: &SpeechVocabulary, path: &Path) -> Result<Json, TrainError> {
    let settings = model.architecture.settings();
    let number = |key: &str| settings.get(key).cloned().unwrap_or(Json::Null);
    let mut config = json!({
        "bos_token_id": vocabulary.end,
        "eos_token_id": vocabulary.end,
        "pad_token_id": vocabulary.end,
        "decoder_start_token_id": vocabulary.start,
        "no_timestamps_token_id": vocabulary.no_timestamps,
        "prev_sot_token_id": vocabulary.previous,
        "max_initial_timestamp_index": 50,
        "max_length": number("target_positions"),
        "is_multilingual": vocabulary.is_multilingual(),
        "return_timestamps": false,
        "begin_suppress_tokens": vocabulary.blank()?,
        "suppress_tokens": vocabulary.suppressed()?,
    });
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if let Some(heads) = alignment_heads(stem) {
        config["alignment_heads"] = json!(heads);
    }
    if vocabulary.is_multilingual() {
        let languages = vocabulary.languages.iter().map(|(code, token)| (format!("<|{code}|>"), json!(token)));
        config["lang_to_id"] = Json::Object(languages.collect::<Map<_, _>>());
        config["task_to_id"] = Json::Object(
            vocabulary.tasks().map(|(name, token)| (name.to_string(), json!(token))).into_iter().collect(),
        );
    }
    Ok(config)
}

/// The `preprocessor_config.json` of `transformers`' `WhisperFeatureExtractor`.
fn feature_extractor(input: &AudioInput) -> Json {
    const HOP: usize = vitreous_data::audio::HOP;
    json!({
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": input.bins,
        "sampling_rate": vitreous_data::audio::SAMPLE_RATE,
        "hop_length": HOP,
        "n_fft": vitreous_data::audio::FRAME_SAMPLES,
        "chunk_length": input.frames * HOP / vitreous_data::audio::SAMPLE_RATE as usize,
        "n_samples": input.frames * HOP,
        "nb_max_frames": input.frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": false,
    })
}
