//! Finds the files of a model.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde_json::Value as Json;

use super::{ModelError, builtin};

/// The files of a model.
pub(super) struct Located {
    /// `None` in a directory without weights.
    pub(super) weights: Option<PathBuf>,
    /// The content of the weights, where they are not on disk.
    pub(super) content: Option<Vec<u8>>,
    pub(super) config_file: Option<PathBuf>,
    pub(super) config_bytes: Option<Vec<u8>>,
    pub(super) preprocessor: Option<Vec<u8>>,
    /// Files of its tokenizer and of sentence-transformers.
    pub(super) assets: Vec<(String, PathBuf)>,
}

/// Files beside the weights that belong to a model and are copied when it is saved elsewhere, as are the folders that `modules.json` names.
pub const ASSET_FILES: [&str; 18] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "source.spm",
    "target.spm",
    "source_tokenizer.json",
    "target_tokenizer.json",
    "generation_config.json",
    MODULES,
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

/// The modules of sentence-transformers: pooling and what comes after it, each in a folder of its own.
const MODULES: &str = "modules.json";

/// The files that such a module may have.
const MODULE_FILES: [&str; 3] = ["config.json", "model.safetensors", "pytorch_model.bin"];

/// The usual names of weight files in a model directory, by preference.
pub const USUAL_WEIGHTS: [&str; 6] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
];

/// The usual names of configurations, by preference.
const CONFIGS: [&str; 2] = ["config.json", "open_clip_config.json"];

/// Extensions of weight files.
const ENDINGS: [&str; 6] = ["safetensors", "npz", "pth", "pt", "bin", "gguf"];

/// A configuration with the names of a hundred thousand classes is a few megabytes.
const LARGEST_JSON: u64 = 64 << 20;

pub(super) fn locate(path: &Path) -> Result<Located, ModelError> {
    if let Some(name) = builtin::builtin_name(path) {
        return builtin::located(name);
    }
    let kind = fs::metadata(path).map_err(failed(path, "open"))?;
    if !kind.is_dir() {
        return Ok(Located {
            weights: Some(path.to_path_buf()),
            content: None,
            config_file: None,
            config_bytes: None,
            preprocessor: None,
            assets: Vec::new(),
        });
    }
    let weights = match USUAL_WEIGHTS.iter().map(|name| path.join(name)).find(|file| file.is_file()) {
        Some(weights) => Some(weights),
        None => only_file(path)?,
    };
    let mut config_file = path.join(CONFIGS[0]);
    let mut config_bytes = read_if_there(&config_file)?;
    if config_bytes.is_none() {
        config_file = path.join(CONFIGS[1]);
        config_bytes = read_if_there(&config_file)?;
    }
    let preprocessor = read_if_there(&path.join("preprocessor_config.json"))?;
    let names = ASSET_FILES.iter().map(|name| name.to_string()).chain(module_files(path)?);
    let assets = names.map(|name| (name.clone(), path.join(name))).filter(|(_, file)| file.is_file()).collect();
    let config_file = config_bytes.is_some().then_some(config_file);
    if weights.is_none() && config_file.is_none() {
        return Err(no_weights(path));
    }
    Ok(Located { weights, content: None, config_file, config_bytes, preprocessor, assets })
}

/// The files of sentence-transformers' modules, as far as `modules.json` names folders inside of the directory. Who uses the modules
/// checks them; what is none names no files here.
fn module_files(path: &Path) -> Result<Vec<String>, ModelError> {
    let modules = read_if_there(&path.join(MODULES))?.unwrap_or_default();
    let modules: Vec<Json> = serde_json::from_slice(&modules).unwrap_or_default();
    let folders = modules.iter().filter_map(|module| module.get("path")?.as_str());
    let is_inside = |folder: &&str| {
        let mut parts = Path::new(folder).components().peekable();
        parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    let folders: BTreeSet<&str> = folders.filter(is_inside).collect();
    Ok(folders.iter().flat_map(|folder| MODULE_FILES.map(|name| format!("{folder}/{name}"))).collect())
}

/// The error of a directory without weights.
pub(super) fn no_weights(path: &Path) -> ModelError {
    let what = format!("no weights are here; looked for {}, *.{}", USUAL_WEIGHTS.join(", "), ENDINGS.join(", *."));
    ModelError::Refused { file: path.to_path_buf(), what }
}

/// The only weight file of a directory in which none has a usual name, if there is one.
fn only_file(path: &Path) -> Result<Option<PathBuf>, ModelError> {
    let entries = fs::read_dir(path).map_err(failed(path, "list"))?;
    let is_weights = |file: &PathBuf| {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        file.is_file() && ENDINGS.contains(&ending)
    };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_weights).collect();
    found.sort();
    let what = match found.len() {
        0 | 1 => return Ok(found.pop()),
        _ => {
            let names: Vec<_> = found.iter().filter_map(|file| file.file_name()?.to_str()).take(8).collect();
            format!("there are {} files of weights, name the one to open: {}", found.len(), names.join(", "))
        }
    };
    Err(ModelError::Refused { file: path.to_path_buf(), what })
}

pub(crate) fn read_if_there(file: &Path) -> Result<Option<Vec<u8>>, ModelError> {
    match fs::metadata(file) {
        Ok(kind) if kind.is_file() => {}
        // "No such file" is not the reason if the directory may not be looked into.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(failed(file, "open")(error)),
        _ => return Ok(None),
    }
    let mut bytes = Vec::new();
    let open = File::open(file).map_err(failed(file, "open"))?;
    open.take(LARGEST_JSON + 1).read_to_end(&mut bytes).map_err(failed(file, "read"))?;
    if bytes.len() as u64 > LARGEST_JSON {
        let what = format!("it has more than {} MiB, which no configuration has", LARGEST_JSON >> 20);
        return Err(ModelError::Refused { file: file.to_path_buf(), what });
    }
    Ok(Some(bytes))
}

/// Adds the file name to an error of the operating system.
pub(crate) fn failed(file: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> ModelError {
    let file = file.to_path_buf();
    move |source| ModelError::Io { file, doing, source }
}
