//! Opens a model: identifies its family, reads its configuration, and checks its tensors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::locate::{self, Located};
use super::{Assets, Model, ModelError, Preprocessing, Source};
use crate::archive::Archive;
use crate::checkpoint::gguf::{self, GgufModel};
use crate::checkpoint::json::{Fault, Object};
use crate::checkpoint::{Inventory, Problem, problems};
use crate::families::FAMILIES;
use crate::family::{Architecture, Checkpoint, Family, Format, OpenOptions, Reading};
use crate::settings::Settings;

/// Prefix of `model_type` in our own configurations; the family's name follows.
pub(super) const OWN_PREFIX: &str = "vitreous_";

impl Model {
    /// Opens a model directory, or a weight file alone. No tensor is read: the file is memory-mapped, and its names and
    /// shapes are compared with those of the model's graph.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Model, ModelError> {
        let mut located = locate::locate(path)?;
        let weights = located.weights.clone().ok_or_else(|| locate::no_weights(path))?;
        let archive = match located.content.take() {
            Some(bytes) => Archive::from_bytes(bytes)?,
            None => Archive::open(&weights)?,
        };
        let tensors: Inventory =
            archive.tensors().map(|tensor| (tensor.name().to_string(), tensor.shape.to_vec())).collect();
        let reading = read(&located, Some((&archive, &tensors)), options, path)?;
        let parameters = reading.architecture.parameters()?;
        let rules = |what: String| ModelError::Refused { file: weights.clone(), what };
        let entries = reading.dialect.entries(&parameters, Some(&tensors)).map_err(rules)?;
        let found = problems(&entries, &tensors, |name| reading.dialect.concerns(name));
        // Of one that is there but cannot be read, the reason is told.
        let unreadable = found.iter().find_map(|problem| match problem {
            Problem::Missing { name, .. } if archive.is_refused(name) => archive.tensor(name).err(),
            _ => None,
        });
        if let Some(error) = unreadable {
            return Err(error.into());
        }
        if !found.is_empty() {
            return Err(ModelError::Tensors { file: weights, problems: found });
        }
        let Opened { architecture, mut assets, notes } = opened(&reading, located, options)?;
        assets.metadata = archive.gguf().cloned();
        let mut atoms = HashMap::new();
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| tensors.contains_key(&entry.name)) {
            for (part, atom) in entry.atoms.iter().enumerate() {
                atoms.insert(atom.clone(), (index, part));
            }
        }
        let source = Source {
            archive,
            dialect: reading.dialect,
            entries,
            atoms,
            grid: architecture.signature().image_input().map(|images| images.grid),
            head_replaced: options.replace_head.is_some(),
        };
        let parameters = architecture.parameters()?;
        let path = Some(path.to_path_buf());
        Ok(Model { architecture, assets, path, notes, parameters, source: Some(source) })
    }

    /// Describes a model directory without reading its weights: a `config.json` is enough.
    pub fn describe(path: &Path, options: &OpenOptions) -> Result<Model, ModelError> {
        let located = locate::locate(path)?;
        if located.weights.is_some() {
            return Model::open(path, options);
        }
        let reading = read(&located, None, options, path)?;
        let Opened { architecture, assets, notes } = opened(&reading, located, options)?;
        let parameters = architecture.parameters()?;
        Ok(Model { architecture, assets, path: Some(path.to_path_buf()), notes, parameters, source: None })
    }
}

struct Opened {
    architecture: Box<dyn Architecture>,
    assets: Assets,
    notes: Vec<String>,
}

/// The requested model with its assets.
fn opened(reading: &Reading, located: Located, options: &OpenOptions) -> Result<Opened, ModelError> {
    let file: &dyn Architecture = reading.architecture.as_ref();
    let mut architecture = file.with_settings(&options.settings)?;
    let mut labels = reading.labels.clone();
    if let Some(head) = options.replace_head {
        architecture = architecture.with_head(head)?;
        labels.clear();
    }
    let timm = reading.dialect.library == "timm";
    let config = located.config_bytes.as_deref().and_then(|bytes| parse(bytes).ok());
    let usual = file.family().usual_preprocessing(file, config.as_ref().map(Object::new));
    let preprocessing = located
        .preprocessor
        .map(Preprocessing::HuggingFace)
        .or_else(|| located.config_bytes.filter(|_| timm).map(Preprocessing::Timm))
        .or_else(|| Some(Preprocessing::HuggingFace(format!("{:#}\n", usual?).into_bytes())));
    let assets = Assets { labels, preprocessing, files: located.assets, metadata: None };
    Ok(Opened { architecture, assets, notes: reading.notes.clone() })
}

/// Reads configuration and tensors with the first family that recognises them.
fn read(
    located: &Located,
    weights_read: Option<(&Archive, &Inventory)>,
    options: &OpenOptions,
    path: &Path,
) -> Result<Reading, ModelError> {
    let tensors = weights_read.map(|(_, tensors)| tensors);
    let weights = located.weights.clone().unwrap_or_else(|| path.to_path_buf());
    let config_file: PathBuf = located.config_file.clone().unwrap_or_else(|| weights.clone());
    let in_config = |fault| ModelError::Config { file: config_file.clone(), fault };
    let config: Option<Settings> = located.config_bytes.as_deref().map(parse).transpose().map_err(in_config)?;
    let in_weights = |fault| ModelError::Config { file: weights.clone(), fault };
    let gguf = weights_read.and_then(|(archive, _)| Some((archive, archive.gguf()?)));
    let described = gguf.map(|(_, metadata)| gguf::settings_of(metadata)).transpose().map_err(in_weights)?;
    let gguf = match (gguf, &described) {
        (Some((archive, _)), Some((architecture, settings))) => Some(GgufModel::new(architecture, settings, archive)),
        _ => None,
    };
    if let Some(gguf) = gguf {
        // Its own description is the one that fits its tensors, whatever lies beside it.
        return read_gguf(&Checkpoint { config: None, gguf: Some(gguf), tensors, options }, gguf.architecture)
            .map_err(in_weights);
    }
    let checkpoint = Checkpoint { config: config.as_ref().map(Object::new), gguf: None, tensors, options };
    if let Some(reading) = read_own(&checkpoint).map_err(in_config)? {
        return Ok(reading);
    }
    for family in FAMILIES {
        if let Some(reading) = family.read(&checkpoint).map_err(in_config)? {
            // Sizes that contradict each other are the file's fault, so it is named before a graph is built.
            reading.architecture.boxed().map_err(|refusal| in_config(Fault::whole(refusal.0)))?;
            return Ok(reading);
        }
    }
    let known = FAMILIES.into_iter().flat_map(Family::model_types).copied().collect::<Vec<_>>().join(", ");
    let own = FAMILIES.map(|family| format!("{OWN_PREFIX}{}", family.name())).join(", ");
    let known = format!("{known}, {own}, and timm's `architecture` are known here");
    match (checkpoint.model_type().map_err(in_config)?, &config) {
        (Some(name), _) if !is_known(name) => {
            Err(in_config(Fault::of("model_type", format!("{name:?} is not known; {known}"))))
        }
        (None, Some(config)) if !config.contains_key("architecture") => {
            Err(in_config(Fault::whole(format!("it has neither `model_type` nor `architecture`; {known}"))))
        }
        _ => Err(ModelError::unknown_dialect(&weights, tensors.unwrap_or(&Inventory::new()))),
    }
}

/// Reads a GGUF file with the family that knows its architecture.
fn read_gguf(checkpoint: &Checkpoint, architecture: &str) -> Result<Reading, Fault> {
    for family in FAMILIES.into_iter().filter(|family| family.gguf_architectures().contains(&architecture)) {
        if let Some(reading) = family.read(checkpoint)? {
            reading.architecture.boxed().map_err(|refusal| Fault::whole(refusal.0))?;
            return Ok(reading);
        }
    }
    let known = FAMILIES.into_iter().flat_map(Family::gguf_architectures).copied().collect::<Vec<_>>().join(", ");
    Err(Fault::of(gguf::ARCHITECTURE, format!("{architecture:?} is not supported: {known} are")))
}

fn is_known(model_type: &str) -> bool {
    model_type == "timm_wrapper" || FAMILIES.into_iter().any(|family| family.model_types().contains(&model_type))
}

fn parse(bytes: &[u8]) -> Result<Settings, Fault> {
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(Fault::whole("this is not a JSON object")),
        Err(error) => Err(Fault::whole(format!("this is not JSON: {error}"))),
    }
}

/// Our own configuration: a family's settings under its name.
fn read_own(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let Some(name) = checkpoint.model_type()?.and_then(|name| name.strip_prefix(OWN_PREFIX)) else { return Ok(None) };
    let (Some(config), Some(family)) = (checkpoint.config, crate::families::family(name)) else { return Ok(None) };
    let key = family.name();
    let settings = match config.get(key) {
        Some(Json::Object(settings)) => settings,
        Some(_) => return Err(Fault::of(key, "should be an object: the model's settings")),
        None => return Err(Fault::of(key, "is missing: it holds the configuration")),
    };
    let architecture = family.from_settings(settings).map_err(|refusal| Fault::of(key, refusal.0))?;
    let dialect = architecture.dialect(Format::Own).map_err(Fault::whole)?;
    let labels = config.labels("id2label")?.unwrap_or_default();
    Ok(Some(Reading { architecture, dialect, labels, notes: Vec::new() }))
}
