//! Transformers on disk: a directory of `config.json`, `model.safetensors` and the files of their tokenisers.
//!
//! Tensors have the names of the graph's parameters. What a tokeniser's file says, its reader knows; here it is bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vitreous_engine::{Graph, State};

use crate::archive::{Archive, TensorToWrite, write_safetensors_into};
use crate::checkpoint::table::Problem;
use crate::model::ModelError;
use crate::model::aside::{Aside, all_of};
use crate::model::locate::read_if_there;
use crate::transformer::{PairShape, TransformerConfig, transformer};

/// What `model_type` says of these models.
pub const TEXT_MODEL_TYPE: &str = "vitreous_transformer";
const WEIGHTS: &str = "model.safetensors";
const CONFIG: &str = "config.json";

/// A Transformer: what it is, and where its values lie.
#[derive(Debug)]
pub struct TextModel {
    /// What it is.
    pub config: TransformerConfig,
    /// The directory that it was opened from.
    pub path: PathBuf,
    archive: Archive,
}

impl TextModel {
    /// Whether a directory holds a Transformer, by what its configuration says.
    pub fn is_at(directory: &Path) -> bool {
        let config = read_if_there(&directory.join(CONFIG)).ok().flatten();
        let config = config.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        config.is_some_and(|config| config["model_type"] == TEXT_MODEL_TYPE)
    }

    /// Opens a model directory. The file of weights is mapped, and its names and shapes are compared with what the model needs.
    pub fn open(directory: &Path) -> Result<TextModel, ModelError> {
        let file = directory.join(CONFIG);
        let refused = |what: String| ModelError::Refused { file: file.clone(), what };
        let bytes = read_if_there(&file)?.ok_or_else(|| refused("there is no such file".to_string()))?;
        let mut value: Value = serde_json::from_slice(&bytes).map_err(|error| refused(format!("no JSON: {error}")))?;
        if value["model_type"] != TEXT_MODEL_TYPE {
            return Err(refused(format!("`model_type` is {}, not \"{TEXT_MODEL_TYPE}\"", value["model_type"])));
        }
        let config = value["transformer"].take();
        let config: TransformerConfig =
            serde_json::from_value(config).map_err(|error| refused(format!("`transformer`: {error}")))?;
        config.check()?;
        let weights = directory.join(WEIGHTS);
        let archive = Archive::open(&weights)?;
        let problems = problems(&shapes(&config), &archive);
        if !problems.is_empty() {
            return Err(ModelError::Tensors { file: weights, problems });
        }
        Ok(TextModel { config, path: directory.to_path_buf(), archive })
    }

    /// A parameter's values.
    pub fn parameter(&self, name: &str) -> Result<Cow<'_, [f32]>, ModelError> {
        Ok(self.archive.tensor(name)?.to_f32()?)
    }

    /// Puts all values into the state of this model's graph.
    pub fn load(&self, state: &mut State) -> Result<(), ModelError> {
        let names: Vec<String> = state.table().iter().map(|parameter| parameter.name.clone()).collect();
        for name in names {
            let values = self.parameter(&name)?;
            let target = state.parameter_mut(&name)?;
            if target.len() != values.len() {
                return Err(ModelError::parameter(&name, format!("has {} numbers in the state", target.len())));
            }
            target.copy_from_slice(&values);
        }
        Ok(())
    }

    /// Saves a state's values as a model directory, with other files (tokenisers) beside them, whole or not at all.
    pub fn save(
        directory: &Path,
        config: &TransformerConfig,
        state: &State,
        files: &[(&str, &[u8])],
    ) -> Result<(), ModelError> {
        config.check()?;
        let mut tensors = Vec::new();
        for (name, shape) in shapes(config) {
            let values = state.parameter(&name)?;
            tensors.push(TensorToWrite::f32(name, &shape, values));
        }
        let mut aside = Aside::new(directory)?;
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        aside.write(WEIGHTS, |file, path| Ok(write_safetensors_into(file, path, tensors, &metadata)?))?;
        for (name, bytes) in files {
            aside.write(name, all_of(bytes))?;
        }
        let value = json!({
            "architectures": ["VitreousTransformer"],
            "model_type": TEXT_MODEL_TYPE,
            "transformer": config,
        });
        aside.write(CONFIG, all_of(format!("{value:#}\n").as_bytes()))?;
        aside.finish()
    }
}

/// The names and shapes of a model's parameters, in their order.
fn shapes(config: &TransformerConfig) -> Vec<(String, Vec<usize>)> {
    let mut graph = Graph::for_inference();
    // The parameters are the same for every shape of a batch; a configuration that was checked can be built.
    let _ = transformer(&mut graph, config, PairShape { batch: 1, source: 1, target: 1 });
    graph.parameters().iter().map(|parameter| (parameter.name.clone(), parameter.shape.axes().to_vec())).collect()
}

fn problems(expected: &[(String, Vec<usize>)], archive: &Archive) -> Vec<Problem> {
    let there: HashMap<&str, &[usize]> = archive.tensors().map(|tensor| (tensor.name(), tensor.shape)).collect();
    let mut problems: Vec<Problem> = Vec::new();
    for (name, shape) in expected {
        match there.get(name.as_str()) {
            None => problems.push(Problem::Missing { name: name.clone(), expected: shape.clone() }),
            Some(got) if got != shape => {
                let (name, expected, got) = (name.clone(), shape.clone(), got.to_vec());
                problems.push(Problem::Misshapen { name, expected, got });
            }
            Some(_) => {}
        }
    }
    let surplus = archive.tensors().filter(|tensor| !expected.iter().any(|(name, _)| name == tensor.name()));
    problems.extend(surplus.map(|t| Problem::Surplus { name: t.name().to_string(), shape: t.shape.to_vec() }));
    problems
}
