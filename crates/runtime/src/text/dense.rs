//! The linear layers that sentence-transformers may put behind the pooling (its `Dense` module).
//!
//! ```text
//! y = activation(W x + b)             with a residual connection: + x, or + R x where the sizes differ
//! ```

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use vitreous_engine::{
    Activation, DType, Device, Executor, Graph, Init, LayerKind, Mode, Parameter, Precision, Role, Value, WeightView,
};
use vitreous_models::archive::Archive;

use super::sentence::read_json;
use crate::error::Error;

/// Vectors that are computed at a time.
const ROWS: usize = 64;

/// A `Dense` module, as its `config.json` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseSettings {
    /// Its folder, with the configuration and the weights.
    pub folder: PathBuf,
    /// Numbers of a vector that goes in.
    pub inputs: usize,
    /// Numbers of a vector that comes out.
    pub outputs: usize,
    /// Whether it has a bias.
    pub bias: bool,
    /// What comes after the linear layer; `None` for nothing.
    pub activation: Option<Activation>,
    /// Whether what goes in is added to what comes out.
    pub residual: bool,
}

impl DenseSettings {
    /// Reads the `config.json` of a folder. What is not supported is refused by its name.
    pub(super) fn read(folder: &Path) -> Result<DenseSettings, Error> {
        let file = folder.join("config.json");
        let refuse = |what: String| Error::input(format!("{}: {what}", file.display()));
        let Some(config) = read_json(&file)? else { return Err(refuse("there is no such file".to_string())) };
        let size = |key: &str| {
            let size = config.get(key).and_then(Json::as_u64).and_then(|size| usize::try_from(size).ok());
            size.filter(|&size| size > 0).ok_or_else(|| refuse(format!("{key} must be a whole number above 0")))
        };
        let flag = |key: &str, usual: bool| match config.get(key) {
            None | Some(Json::Null) => Ok(usual),
            Some(Json::Bool(flag)) => Ok(*flag),
            Some(other) => Err(refuse(format!("{key} is {other}, but must be true or false"))),
        };
        for key in ["module_input_name", "module_output_name"] {
            match config.get(key).and_then(Json::as_str) {
                None | Some("sentence_embedding") => {}
                Some(other) => {
                    return Err(refuse(format!(
                        "{key} is {other:?}: a Dense module of anything but the pooled vector is not supported"
                    )));
                }
            }
        }
        // As sentence-transformers: a configuration that says nothing means tanh.
        let named =
            config.get("activation_function").and_then(Json::as_str).unwrap_or("torch.nn.modules.activation.Tanh");
        Ok(DenseSettings {
            folder: folder.to_path_buf(),
            inputs: size("in_features")?,
            outputs: size("out_features")?,
            bias: flag("bias", true)?,
            activation: activation(named).map_err(refuse)?,
            residual: flag("use_residual", false)?,
        })
    }
}

/// The activation that a PyTorch class names.
fn activation(class: &str) -> Result<Option<Activation>, String> {
    match class {
        "torch.nn.modules.linear.Identity" => Ok(None),
        "torch.nn.modules.activation.Tanh" => Ok(Some(Activation::Tanh)),
        "torch.nn.modules.activation.ReLU" => Ok(Some(Activation::Relu)),
        "torch.nn.modules.activation.GELU" => Ok(Some(Activation::Gelu)),
        "torch.nn.modules.activation.SiLU" => Ok(Some(Activation::Silu)),
        other => Err(format!(
            "the activation function {other:?} is not supported: Identity, Tanh, ReLU, GELU and SiLU of torch.nn are"
        )),
    }
}

/// A `Dense` module made ready on a device.
pub(super) struct Dense {
    executor: Executor,
    output: Value,
    inputs: usize,
    outputs: usize,
}

impl Dense {
    /// Opens its weights, and makes it ready.
    pub fn open(settings: &DenseSettings, precision: Precision, device: &Device) -> Result<Dense, Error> {
        let &DenseSettings { inputs, outputs, bias, activation, residual, .. } = settings;
        let archive =
            Archive::open(&weights_file(&settings.folder)?).map_err(|error| Error::input(error.to_string()))?;
        // What is built is as large as the file, whatever the configuration says.
        check_tensor(&archive, "linear.weight", &[outputs, inputs])?;
        if bias {
            check_tensor(&archive, "linear.bias", &[outputs])?;
        }
        let projects = residual && inputs != outputs;
        if projects {
            check_tensor(&archive, "residual.weight", &[outputs, inputs])?;
        }
        let mut graph = Graph::new(Mode::Inference, precision);
        let weight = |graph: &mut Graph, name: &str, shape: [usize; 2]| {
            graph.declare(name, shape, Role::Weight.starting(Init::Matrix(LayerKind::Linear)))
        };
        let x = graph.input("vectors", [ROWS, inputs], DType::F32)?;
        let own = weight(&mut graph, "linear.weight", [outputs, inputs])?;
        let bias = match bias {
            true => Some(graph.declare("linear.bias", [outputs], Role::Bias.starting(Init::Constant(0.0)))?),
            false => None,
        };
        let mut y = graph.linear(x, own, bias)?; // [ROWS, outputs]
        if let Some(activation) = activation {
            y = graph.activation(y, activation)?;
        }
        if residual {
            let added = match projects {
                false => x,
                true => {
                    let projection = weight(&mut graph, "residual.weight", [outputs, inputs])?;
                    graph.linear(x, projection, None)?
                }
            };
            y = graph.add(y, added)?;
        }
        let output = graph.cast(y, DType::F32)?;
        let plan = device.plan_with_fixed_weights(&graph, &[output])?;
        let values = |parameter: &Parameter| -> Result<WeightView<'_>, Error> {
            let tensor = archive.tensor(&parameter.name).and_then(|tensor| tensor.to_weight());
            tensor.map_err(|error| Error::input(error.to_string()))
        };
        Ok(Dense { executor: Executor::with_weights(plan, device, values)?, output, inputs, outputs })
    }

    /// Numbers of a vector that comes out.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// What becomes of vectors, one after the other.
    pub fn apply(&mut self, vectors: &[f32]) -> Result<Vec<f32>, Error> {
        let mut all = Vec::with_capacity(vectors.len() / self.inputs * self.outputs);
        for some in vectors.chunks(ROWS * self.inputs) {
            let input = self.executor.input("vectors")?;
            input[..some.len()].copy_from_slice(some);
            input[some.len()..].fill(0.0);
            self.executor.infer()?;
            self.executor.finish()?;
            let rows = some.len() / self.inputs;
            all.extend_from_slice(&self.executor.output_slice(self.output)?[..rows * self.outputs]);
        }
        Ok(all)
    }
}

fn weights_file(folder: &Path) -> Result<PathBuf, Error> {
    let files = ["model.safetensors", "pytorch_model.bin"].map(|name| folder.join(name));
    let there = files.into_iter().find(|file| file.is_file());
    there.ok_or_else(|| {
        Error::input(format!("{}: there is neither model.safetensors nor pytorch_model.bin", folder.display()))
    })
}

/// Refuses a tensor that is missing or has another shape than the configuration says.
fn check_tensor(archive: &Archive, name: &str, shape: &[usize]) -> Result<(), Error> {
    let tensor = archive.tensor(name).map_err(|error| Error::input(error.to_string()))?;
    match tensor.shape == shape {
        true => Ok(()),
        false => {
            let (file, found) = (archive.file().display(), tensor.shape);
            Err(Error::input(format!("{file}: {name} is {found:?}, but {shape:?} by the configuration")))
        }
    }
}
