//! Models inside the binary, opened by name as any other: `builtin:small`.
//!
//! `small` is what the recipe `small` trains on the built-in images; `assets/small/README.md` says how its files were made.
//! `small-untrained` is the same model before its first step: that run's initial values, made from its seed when they are asked for.

use std::path::{Path, PathBuf};

use super::locate::Located;
use super::{Model, ModelError};
use crate::archive::{TensorToWrite, write_safetensors_into};
use crate::family::OpenOptions;
use crate::initial::{Initialisation, initial_values};

/// What the names of built-in models begin with.
pub const BUILTIN: &str = "builtin:";
/// The names of all built-in models.
pub const BUILTIN_MODELS: [&str; 2] = [SMALL, UNTRAINED];

const SMALL: &str = "builtin:small";
const UNTRAINED: &str = "builtin:small-untrained";

const CONFIG: &[u8] = include_bytes!("../../assets/small/config.json");
const PREPROCESSOR: &[u8] = include_bytes!("../../assets/small/preprocessor_config.json");
const WEIGHTS: &[u8] = include_bytes!("../../assets/small/model.safetensors");

/// As `train.init` and `train.seed` of the run that trained `small`.
const INITIALISATION: Initialisation = Initialisation::PyTorch;
const SEED: u64 = 1;

/// The name of a built-in model, if a path is one and no file of that name is there.
pub fn builtin_name(path: &Path) -> Option<&'static str> {
    let name = BUILTIN_MODELS.into_iter().find(|name| path.as_os_str() == *name)?;
    (!path.exists()).then_some(name)
}

/// Whether a path is the built-in model with its initial values.
pub fn is_untrained(path: &Path) -> bool {
    builtin_name(path) == Some(UNTRAINED)
}

/// Whether there is a model to open: a file or directory, or a built-in one.
pub fn is_there(path: &Path) -> bool {
    path.exists() || builtin_name(path).is_some()
}

/// The files of a built-in model.
pub(super) fn located(name: &'static str) -> Result<Located, ModelError> {
    let content = if name == UNTRAINED { untrained()? } else { WEIGHTS.to_vec() };
    Ok(Located {
        weights: Some(PathBuf::from(name)),
        content: Some(content),
        config_file: Some(PathBuf::from(name).join("config.json")),
        config_bytes: Some(CONFIG.to_vec()),
        preprocessor: Some(PREPROCESSOR.to_vec()),
        assets: Vec::new(),
    })
}

/// The initial values of the trained model, as a file in memory.
fn untrained() -> Result<Vec<u8>, ModelError> {
    let trained = Model::open(Path::new(SMALL), &OpenOptions::default())?;
    let values = trained.parameters().iter().map(|parameter| {
        let values = initial_values(INITIALISATION, parameter, SEED);
        (parameter.name.as_str(), parameter.shape.axes(), values)
    });
    let values: Vec<_> = values.collect();
    let tensors = values.iter().map(|(name, shape, values)| TensorToWrite::f32(*name, shape, values));
    let mut bytes = Vec::new();
    write_safetensors_into(&mut bytes, Path::new(UNTRAINED), tensors, &Default::default())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::ElementType;

    fn open(name: &str) -> Model {
        Model::open(Path::new(name), &OpenOptions::default()).expect(name)
    }

    #[test]
    fn the_files_are_small() {
        let bytes = CONFIG.len() + PREPROCESSOR.len() + WEIGHTS.len();
        assert!(bytes < 3_000_000, "{bytes} bytes");
        let formats = open(SMALL).formats();
        assert!(formats.iter().all(|format| format.element == ElementType::F16), "{formats:?}");
        assert_eq!(open(SMALL).assets.labels.len(), 10);
    }

    /// The same architecture and names, with the numbers that the recipe's initialisation draws.
    #[test]
    fn the_untrained_one_has_the_initial_values_of_the_run() {
        let (trained, untrained) = (open(SMALL), open(UNTRAINED));
        assert_eq!(trained.parameters(), untrained.parameters());
        assert_eq!(trained.assets.labels, untrained.assets.labels);
        let mut moved = 0;
        for parameter in untrained.parameters() {
            let values = untrained.parameter(&parameter.name).expect("values");
            assert_eq!(*values, *initial_values(INITIALISATION, parameter, SEED), "{}", parameter.name);
            moved += usize::from(trained.parameter(&parameter.name).expect("values") != values);
        }
        assert_eq!(moved, untrained.parameters().len(), "training moved all of them");
    }

    #[test]
    fn only_whole_names_are_built_in() {
        assert!(is_there(Path::new(SMALL)) && is_there(Path::new(".")));
        for wrong in ["builtin:", "builtin:smal", "small", "./builtin:small", "builtin:small/", "BUILTIN:small"] {
            let opened = Model::open(Path::new(wrong), &OpenOptions::default());
            assert!(opened.is_err() && builtin_name(Path::new(wrong)).is_none(), "{wrong}");
        }
    }
}
