//! What a MODEL argument names: a directory, a checkpoint file, or a preset.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use vitreous_data::image::{Channels, Preprocess};
use vitreous_models::model::USUAL_WEIGHTS;
use vitreous_models::transformer::{self, TransformerConfig};
use vitreous_models::{Model, OpenOptions, Preprocessing, Size, TextModel, VitConfig, preset, presets};

use vitreous_train::recipe::nearest;

use crate::failure::Failure;
use crate::text_source::TextSource;

/// The configuration of a model on disk or of a preset, at another image size or with other heads if they are given.
pub fn configuration(model: &str, image: Option<Size>, heads: Option<usize>) -> Result<VitConfig, Failure> {
    refuse_translator(model)?;
    if Path::new(model).exists() {
        let model = open_with(Path::new(model), &OpenOptions { image, heads, ..OpenOptions::default() })?;
        tell_guesses(&model);
        return Ok(model.config);
    }
    let mut config = preset(model).ok_or_else(|| unknown(model))?;
    if let Some(image) = image {
        config.image = image;
    }
    config.heads = heads.unwrap_or(config.heads);
    config.check().map_err(Failure::input)?;
    Ok(config)
}

/// The configuration of a translator on disk or of a preset; none of what is for images or not there.
pub fn translator_configuration(model: &str) -> Result<Option<TransformerConfig>, Failure> {
    let path = Path::new(model);
    match path.exists() {
        true if TextSource::is_at(path) => {
            Ok(Some(TextModel::open(&TextSource::directory(path)).map_err(Failure::input)?.config))
        }
        true => Ok(None),
        false => Ok(transformer::preset(model)),
    }
}

/// Refuses what is no model for images, with what to use instead.
fn refuse_translator(model: &str) -> Result<(), Failure> {
    let path = Path::new(model);
    if path.exists() && TextSource::is_at(path) {
        return Err(Failure::input(anyhow!(
            "{model}: this is a translator, which takes sentences, not images; `vitreous translate {model} TEXT` runs it, \
             `vitreous eval {model} --data FILE` measures it, `vitreous summary {model}` describes it"
        )));
    }
    if !path.exists() && transformer::preset(model).is_some() {
        return Err(Failure::input(anyhow!(
            "`{model}` is a preset of translators, but this is for images; `vitreous summary {model}` describes it, \
             `vitreous train translation --data DIR` trains one"
        )));
    }
    Ok(())
}

/// A model on disk with how its images are prepared, at a size that both agree on: the one that is given, or else the one that
/// images are brought to. (DINOv2 was trained at 518 and is used at 224: positions are resized.)
pub fn open(path: &Path, image: Option<Size>, heads: Option<usize>) -> Result<(Model, Preprocess), Failure> {
    let open_at = |image| open_with(path, &OpenOptions { image, heads, ..OpenOptions::default() });
    let model = open_at(image)?;
    tell_guesses(&model);
    let preprocess = preprocessing(&model)?;
    match (image, preprocess.output_size()) {
        (None, Some([height, width])) if [height, width] != [model.config.image.height, model.config.image.width] => {
            Ok((open_at(Some(Size { height, width }))?, preprocess))
        }
        (None, Some(_)) => Ok((model, preprocess)),
        _ => {
            let preprocess = preprocessing_at_model_size(&model)?;
            Ok((model, preprocess))
        }
    }
}

/// A model on disk.
pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Model, Failure> {
    refuse_translator(&path.to_string_lossy())?;
    if !path.exists() {
        let name = path.to_string_lossy();
        return Err(match preset(&name) {
            Some(_) => Failure::input(anyhow!("`{name}` is a preset, which has no weights; give a model directory")),
            None => Failure::input(anyhow!("{name}: no such file or directory{}", download_hint(&name))),
        });
    }
    let path = of_run(path);
    Model::open(directory_of(&path).unwrap_or(&path), options).map_err(Failure::input)
}

/// Of a run directory the model is meant.
pub fn of_run(path: &Path) -> PathBuf {
    let model = path.join("model");
    let is_run = path.join("recipe.toml").is_file() && model.join("config.json").is_file();
    if is_run { model } else { path.to_path_buf() }
}

/// The model directory whose weights this file is. Without its `config.json` the same file would silently be another model:
/// other heads, no names of classes, other preprocessing.
pub fn directory_of(file: &Path) -> Option<&Path> {
    let name = file.file_name().filter(|_| file.is_file())?;
    let directory = match file.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let preferred = USUAL_WEIGHTS.iter().find(|weights| directory.join(weights).is_file())?;
    (name == *preferred && directory.join("config.json").is_file()).then_some(directory)
}

/// Says what had to be guessed of a model: other numbers would give other results, and no error.
pub fn tell_guesses(model: &Model) {
    if model.guessed_heads {
        let heads = model.config.heads;
        say!(
            "note: the file does not tell the number of heads; {heads} is taken from its width; --heads (of `explain`: --head-count) says otherwise"
        );
    }
}

/// How a model's images are prepared, at the size at which it was opened.
pub fn preprocessing_at_model_size(model: &Model) -> Result<Preprocess, Failure> {
    Ok(preprocessing(model)?.with_image_size([model.config.image.height, model.config.image.width]))
}

/// How a model's images are prepared: as it says itself, or as is usual.
fn preprocessing(model: &Model) -> Result<Preprocess, Failure> {
    let count = model.config.channels;
    let channels = Channels::from_count(count)
        .ok_or_else(|| anyhow!("this model takes {count} channels; images have one or three"))
        .map_err(Failure::input)?;
    let read = match &model.preprocessing {
        Some(Preprocessing::HuggingFace(json)) => {
            Preprocess::from_hugging_face(json).context("preprocessor_config.json")
        }
        Some(Preprocessing::Timm(json)) => Preprocess::from_timm(json).context("config.json"),
        None => Ok(Preprocess::default_for([model.config.image.height, model.config.image.width], channels)),
    };
    Ok(read.map_err(Failure::Input)?.with_channels(channels))
}

/// Neither a path nor a preset.
fn unknown(model: &str) -> Failure {
    let mut names = presets::names();
    names.extend(transformer::PRESET_NAMES.map(str::to_string));
    let close = nearest(model, names.iter().map(String::as_str));
    let hint = match close {
        _ if is_hub_name(model) => {
            return Failure::input(anyhow!("{model}: no such file or directory{}", download_hint(model)));
        }
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("presets are, for example, {}", names[..4].join(", ")),
    };
    Failure::input(anyhow!("`{model}` is neither a file or directory nor a preset; {hint}"))
}

/// Whether this looks like a model of Hugging Face's hub: `owner/name`.
fn is_hub_name(model: &str) -> bool {
    let part = |text: &str| text.starts_with(char::is_alphanumeric) && !text.contains(['/', '\\', ' ']);
    model.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name) && !Path::new(owner).exists())
}

/// How to get a model of the hub, for who names one.
fn download_hint(model: &str) -> String {
    match is_hub_name(model) {
        true => format!("; nothing is downloaded. hint: `hf download {model} --local-dir DIR`, then give DIR"),
        false => String::new(),
    }
}

/// As many threads as the machine has cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
