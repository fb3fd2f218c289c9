//! What a MODEL argument names: a model directory, a run directory, a checkpoint file, a built-in model, or a preset.

use std::path::{Path, PathBuf};

use vitreous_models::model::{BUILTIN, BUILTIN_MODELS, USUAL_WEIGHTS, is_there};
use vitreous_models::{
    Architecture, Gives, Head, Model, OpenOptions, Signature, StoredFormat, Takes, preset, preset_names,
};
use vitreous_train::recipe::nearest;

use crate::error::Error;

/// The architecture of a model on disk, for which its `config.json` is enough, or of a preset; with settings changed by the options.
/// Notes tell what had to be guessed.
pub fn architecture(model: &str, options: &OpenOptions) -> Result<(Box<dyn Architecture>, Vec<String>), Error> {
    let path = Path::new(model);
    if is_there(path) {
        let path = model_directory(path);
        let opened = Model::describe(&path, options)?;
        return Ok((opened.architecture, opened.notes));
    }
    let preset = preset(model).ok_or_else(|| unknown(model))?;
    let changed = preset.with_settings(&options.settings);
    Ok((changed.map_err(|refusal| Error::input(refusal.to_string()))?, Vec::new()))
}

/// The formats of the weights of a model on disk; none of a preset, or a directory without weights.
pub fn stored_formats(model: &str, options: &OpenOptions) -> Result<Vec<StoredFormat>, Error> {
    let path = Path::new(model);
    Ok(if is_there(path) { Model::describe(&model_directory(path), options)?.formats() } else { Vec::new() })
}

/// A model on disk, with its weights.
pub fn open_model(path: &Path, options: &OpenOptions) -> Result<Model, Error> {
    if is_there(path) {
        return Ok(Model::open(&model_directory(path), options)?);
    }
    let name = path.to_string_lossy();
    if name.starts_with(BUILTIN) {
        return Err(unknown(&name));
    }
    Err(match preset(&name) {
        Some(preset) => {
            let train = match preset.signature().takes {
                Takes::Pairs { special: None, .. } => "vitreous train translation --data DIR",
                Takes::ImagesAndTexts { .. } => "vitreous train clip --data PAIRS",
                _ => "vitreous train --list",
            };
            Error::input(format!(
                "`{name}` is a preset, which has no weights; give a model directory, or train one: {train}"
            ))
        }
        None => Error::input(format!("{name}: no such file or directory{}", download_hint(&name))),
    })
}

/// The error of a model that a command cannot use: what it is, that it is no `translator`, and the commands that use it.
pub fn unsuitable(model: &str, signature: &Signature, wanted: &str) -> Error {
    let commands: Vec<String> =
        signature.commands().iter().map(|command| format!("`vitreous {}`", command.replace("MODEL", model))).collect();
    Error::input(format!("{model}: this is {}, no {wanted}; use it with {}", signature.what(), commands.join(", ")))
}

/// The error of a model without the head that a command needs: what it has instead, and which commands train one of `heads`.
pub fn no_head(model: &str, signature: &Signature, head: &str, heads: &[Head]) -> Error {
    let commands = unsuitable(model, signature, "").to_string();
    let usable = commands.rsplit_once("; ").map_or("", |(_, usable)| usable);
    // Heads are trained on encoders: a language model keeps its own.
    let takes_heads = !signature.gives.iter().any(|gives| matches!(gives, Gives::NextToken(_)));
    let trained: Vec<String> = heads
        .iter()
        .filter(|_| takes_heads)
        .filter_map(|head| head.trained_by())
        .map(|command| format!("`vitreous {}`", command.replace("MODEL", model)))
        .collect();
    let train = match trained[..] {
        [] => "open a model that has one".to_string(),
        _ => format!("train one with {}", trained.join(" or ")),
    };
    Error::input(format!("{model}: this is {}, which has no {head}; {train}, or {usable}", signature.what()))
}

/// The model directory that is meant: by a run directory its model, by a file of weights the directory around it. Without its
/// `config.json` the same file would silently be another model: other heads, no class names, other preprocessing.
pub fn model_directory(path: &Path) -> PathBuf {
    let path = directory_of_weights(path).unwrap_or(path);
    let model = path.join("model");
    let is_run = path.join("recipe.toml").is_file() && model.join("config.json").is_file();
    if is_run { model } else { path.to_path_buf() }
}

fn directory_of_weights(file: &Path) -> Option<&Path> {
    let name = file.file_name().filter(|_| file.is_file())?;
    let directory = match file.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let preferred = USUAL_WEIGHTS.iter().find(|weights| directory.join(weights).is_file())?;
    let is_described = ["config.json", "open_clip_config.json"].iter().any(|config| directory.join(config).is_file());
    (name == *preferred && is_described).then_some(directory)
}

/// Neither a path nor a preset.
fn unknown(model: &str) -> Error {
    let names = preset_names();
    if model.starts_with(BUILTIN) {
        return Error::input(format!("there is no built-in model `{model}`; there are {}", BUILTIN_MODELS.join(", ")));
    }
    let hint = match nearest(model, names.iter().map(String::as_str)) {
        _ if is_hub_name(model) => {
            return Error::input(format!("{model}: no such file or directory{}", download_hint(model)));
        }
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("presets are, for example, {}; `vitreous summary --list` lists all", names[..4].join(", ")),
    };
    Error::input(format!("`{model}` is neither a file or directory nor a preset; {hint}"))
}

/// Whether this looks like a model of Hugging Face's hub: `owner/name`.
fn is_hub_name(model: &str) -> bool {
    let part = |text: &str| text.starts_with(char::is_alphanumeric) && !text.contains(['/', '\\', ' ']);
    model.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name) && !Path::new(owner).exists())
}

/// How to get a model of the hub, for someone who names one.
pub fn download_hint(model: &str) -> String {
    match is_hub_name(model) {
        true => format!("; nothing is downloaded. hint: `hf download {model} --local-dir DIR`, then give DIR"),
        false => String::new(),
    }
}
