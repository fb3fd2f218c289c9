//! Saves a model: in Hugging Face's format if one of its classes is exactly this model, in our own otherwise, as a GGUF file, or as
//! an `.npz` with Google's names.
//!
//! Files are written under temporary names in the target directory and renamed when all of them are complete, the
//! configuration last: if anything fails before, an existing model is unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use serde_json::{Value, json};
use vitreous_engine::{BlockFormat, Parameter, State, WeightView};

use super::aside::{Aside, all_of, copy_of};
use super::open::OWN_PREFIX;
use super::{Model, ModelError, Preprocessing, WeightType};
use crate::archive::gguf::Metadata;
use crate::archive::{ArchiveError, ElementType, TensorToWrite, write_npz, write_safetensors_into, zeros};
use crate::checkpoint::json::put_labels;
use crate::checkpoint::{Dialect, Entry, Presence, Storage};
use crate::family::Format;
use crate::settings::Settings;

/// Options for saving a model.
#[derive(Clone, Copy, Default)]
pub struct SaveOptions<'a> {
    /// Trained values that replace those of the opened checkpoint.
    pub state: Option<&'a State>,
    /// The format of the weights. By default f16 and bf16 are kept, and so are quantised weights if the target is a GGUF file; all
    /// others are written as f32.
    pub weights: Option<WeightType>,
    /// What a GGUF file is to say of the tokenizer (`tokenizer.*`), instead of what the opened one says.
    pub metadata: Option<&'a Metadata>,
    /// The bytes of a `preprocessor_config.json` to write beside the model, instead of the one it was opened with.
    pub preprocessor: Option<&'a [u8]>,
    /// Files to write beside the model, by name: a tokenizer's, instead of those it was opened with.
    pub files: &'a [(String, Vec<u8>)],
    /// Further entries of `config.json`: the special tokens of a language model.
    pub config: &'a [(&'static str, Value)],
}

/// The format in which a model was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A directory that `transformers` opens, with this `model_type`.
    HuggingFace(String),
    /// A directory in our own format, and why none of Hugging Face's classes is this model.
    Own(String),
    /// A GGUF file.
    Gguf,
    /// An `.npz` with Google's names. It contains neither class names nor preprocessing.
    Npz,
}

impl Model {
    /// Saves the model to a directory, or to a `.gguf` or an `.npz` if the target has that extension.
    pub fn save(&self, target: &Path, options: &SaveOptions) -> Result<Written, ModelError> {
        if self.architecture.parameters()? != self.parameters {
            let what = "its configuration was changed after it was opened: the values no longer fit. Open it with options instead";
            return Err(ModelError::unwritable(target, what));
        }
        let (classes, names) = (self.architecture.signature().named_outputs(), self.assets.labels.len());
        if classes > 0 && names > 0 && names != classes {
            return Err(ModelError::Labels { classes, names });
        }
        let values = Values { model: self, state: options.state, weights: options.weights, target };
        values.check()?;
        let has_extension =
            |name: &str| target.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(name));
        if has_extension("gguf") {
            return self.save_gguf(target, &values, options);
        }
        if let Some(ElementType::Blocks(_)) = options.weights.map(WeightType::element) {
            return Err(ModelError::unwritable(target, "only GGUF files hold quantised weights; name a .gguf"));
        }
        if has_extension("npz") {
            return self.save_npz(target, &values);
        }
        if target.is_file() {
            return Err(ModelError::unwritable(target, "it is a file; name a directory, a .gguf or a .npz"));
        }
        self.save_directory(target, &values, options)
    }

    fn save_npz(&self, target: &Path, values: &Values) -> Result<Written, ModelError> {
        let dialect = self.architecture.dialect(Format::Npz).map_err(|what| ModelError::unwritable(target, what))?;
        self.refuse_source(target, target)?;
        let entries = self.entries(&dialect, target)?;
        // NumPy has no bf16, and readers of these files expect f32.
        let tensors = entries.into_iter().map(|entry| values.tensor(entry, ElementType::F32));
        write_npz(target, tensors)?;
        Ok(Written::Npz)
    }

    /// The entries of a dialect for this model.
    pub(super) fn entries(&self, dialect: &Dialect, target: &Path) -> Result<Vec<Entry>, ModelError> {
        let entries = dialect.entries(&self.parameters, None).map_err(|what| ModelError::unwritable(target, what))?;
        Ok(entries.into_iter().filter(|entry| entry.presence != Presence::Redundant).collect())
    }

    fn save_directory(&self, target: &Path, values: &Values, options: &SaveOptions) -> Result<Written, ModelError> {
        const WEIGHTS: &str = "model.safetensors";
        let (dialect, own) = match self.architecture.dialect(Format::HuggingFace) {
            Ok(dialect) => (dialect, None),
            Err(why) => {
                let dialect = self.architecture.dialect(Format::Own);
                (dialect.map_err(|what| ModelError::unwritable(target, what))?, Some(why))
            }
        };
        let entries = self.entries(&dialect, target)?;
        let entries: Vec<Entry> = entries.into_iter().filter(|entry| values.has(entry, &dialect)).collect();
        let elements: Vec<ElementType> = entries.iter().map(|entry| values.element(entry)).collect();
        let mut config = self.config_json(&dialect, common_name(&elements));
        config.extend(options.config.iter().map(|(key, value)| (key.to_string(), value.clone())));
        let preprocessor = options.preprocessor.or(match &self.assets.preprocessing {
            Some(Preprocessing::HuggingFace(bytes)) => Some(bytes),
            _ => None,
        });
        if preprocessor.is_none() && target.join("preprocessor_config.json").exists() {
            let what = "it has the preprocessor_config.json of another model, and this model has none to replace it by: remove it, or name another directory";
            return Err(ModelError::unwritable(target, what));
        }
        self.refuse_source(target, &target.join(WEIGHTS))?;

        let mut aside = Aside::new(target)?;
        let tensors = entries.into_iter().zip(elements).map(|(entry, element)| values.tensor(entry, element));
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        aside.write(WEIGHTS, |file, path| Ok(write_safetensors_into(file, path, tensors, &metadata)?))?;
        if let Some(bytes) = preprocessor {
            aside.write("preprocessor_config.json", all_of(bytes))?;
        }
        self.write_files(&mut aside, options)?;
        let mut text = serde_json::to_vec_pretty(&Value::Object(config)).map_err(|error| {
            ModelError::unwritable(target, format!("the configuration cannot be written as JSON: {error}"))
        })?;
        text.push(b'\n');
        aside.write("config.json", all_of(&text))?;
        aside.finish()?;
        let model_type = dialect.config.and_then(|config| Some(config.get("model_type")?.as_str()?.to_string()));
        Ok(match own {
            None => Written::HuggingFace(model_type.unwrap_or_default()),
            Some(why) => Written::Own(why),
        })
    }

    /// Writes the files of the tokenizer and of sentence-transformers: those passed, or those that it was opened with.
    fn write_files(&self, aside: &mut Aside, options: &SaveOptions) -> Result<(), ModelError> {
        if !options.files.is_empty() {
            return options.files.iter().try_for_each(|(name, bytes)| aside.write(name, all_of(bytes)));
        }
        self.assets.files.iter().try_for_each(|(name, path)| aside.write(name, copy_of(path)))
    }

    /// The `config.json` of a dialect, with dtype and class names; or our own.
    fn config_json(&self, dialect: &Dialect, dtype: &str) -> Settings {
        let labels = &self.assets.labels;
        if let Some(mut config) = dialect.config.clone() {
            config.insert("torch_dtype".to_string(), json!(dtype));
            put_labels(&mut config, labels, self.architecture.signature().named_outputs());
            return config;
        }
        let family = self.architecture.family().name();
        let class: String = family.chars().take(1).flat_map(char::to_uppercase).chain(family.chars().skip(1)).collect();
        let mut config = Settings::new();
        config.insert("architectures".to_string(), json!([format!("Vitreous{class}")]));
        config.insert("model_type".to_string(), json!(format!("{OWN_PREFIX}{family}")));
        config.insert(family.to_string(), Value::Object(self.architecture.settings()));
        put_labels(&mut config, labels, 0);
        config
    }

    /// An error for overwriting the checkpoint whose values are still to be read.
    pub(super) fn refuse_source(&self, target: &Path, weights: &Path) -> Result<(), ModelError> {
        let Some(source) = &self.source else { return Ok(()) };
        let real = |path: &Path| fs::canonicalize(path).ok();
        let opened = self.path.as_deref().and_then(real);
        let read = real(source.archive.file());
        let same =
            |path: &Path| real(path).is_some_and(|path| Some(&path) == opened.as_ref() || Some(&path) == read.as_ref());
        if same(target) || same(weights) {
            return Err(ModelError::unwritable(target, "it is the checkpoint that the values come from: name another"));
        }
        Ok(())
    }
}

/// PyTorch's name of the common dtype.
fn common_name(elements: &[ElementType]) -> &'static str {
    match elements.first() {
        Some(first) if elements.iter().any(|element| element != first) => "float32",
        Some(ElementType::F16) => "float16",
        Some(ElementType::Bf16) => "bfloat16",
        _ => "float32",
    }
}

/// The source of the values to write.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    model: &'a Model,
    state: Option<&'a State>,
    weights: Option<WeightType>,
    target: &'a Path,
}

impl<'a> Values<'a> {
    /// Checks everything that could be wrong with values, before anything is written.
    fn check(&self) -> Result<(), ModelError> {
        for Parameter { name, shape, .. } in self.model.parameters() {
            match self.state {
                None => {
                    self.model.find(name)?;
                }
                Some(state) if state.parameter(name)?.len() != shape.elements() => {
                    return Err(ModelError::parameter(
                        name,
                        "is of another size in the state: it was made for another model",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a tensor is written. Required tensors were checked to exist; an optional one is written if the
    /// checkpoint had it, or, as zeros, if the library's own files always have it (DINOv2's mask token).
    fn has(&self, entry: &Entry, dialect: &Dialect) -> bool {
        let kept = |atom: &String| self.model.source.as_ref().is_some_and(|source| source.atoms.contains_key(atom));
        entry.presence == Presence::Needed || entry.atoms.iter().all(kept) || dialect.always.contains(&entry.name)
    }

    /// The element type that atoms have in the checkpoint, if their values are written as they are there.
    pub(super) fn common_element(&self, atoms: &[String]) -> Option<ElementType> {
        let source = self.model.source.as_ref().filter(|_| self.state.is_none())?;
        let source = source.resized(atoms).is_none().then_some(source)?;
        let first = source.element(&atoms[0]);
        first.filter(|_| atoms.iter().all(|atom| source.element(atom) == first))
    }

    /// The dtype of a tensor to write: the one asked for, or that of its atoms in the checkpoint, if it is half precision.
    fn element(&self, entry: &Entry) -> ElementType {
        match (self.weights, self.common_element(&entry.atoms)) {
            (Some(weights), _) => weights.element(),
            (None, Some(half @ (ElementType::F16 | ElementType::Bf16))) => half,
            (None, _) => ElementType::F32,
        }
    }

    /// The quantised blocks of a tensor, if the checkpoint has them in this format and its rows need only be moved.
    pub(super) fn blocks(&self, entry: &Entry, element: ElementType) -> Result<Option<Cow<'a, [u8]>>, ArchiveError> {
        let ElementType::Blocks(_) = element else { return Ok(None) };
        let (Some(source), Some(kept)) = (&self.model.source, self.common_element(&entry.atoms)) else {
            return Ok(None);
        };
        // Rows of several atoms lie one after another, unless each of them has its rows in another order.
        if kept != element || (entry.atoms.len() != 1 && entry.storage != Storage::Same) {
            return Ok(None);
        }
        let weight = source.whole(&entry.atoms)?.and_then(|ours| entry.storage.write_weight(ours));
        Ok(match weight {
            Some(WeightView::Blocks(_, bytes)) => Some(bytes),
            _ => None,
        })
    }

    pub(super) fn tensor(self, entry: Entry, element: ElementType) -> TensorToWrite<'a> {
        let (name, shape) = (entry.name.clone(), entry.shape.clone());
        TensorToWrite::new(name, &shape, element, move || {
            if let Some(bytes) = self.blocks(&entry, element)? {
                return Ok(bytes);
            }
            // Its bytes are a copy.
            let mut theirs = zeros(&entry.name, entry.shape.iter().product(), 2)?;
            let size = theirs.len() / entry.atoms.len();
            for (atom, theirs) in entry.atoms.iter().zip(theirs.chunks_exact_mut(size.max(1))) {
                if let Some(ours) = self.atom(atom, theirs.len())? {
                    entry.storage.write(&ours, theirs);
                }
            }
            match element {
                ElementType::Blocks(format) => Ok(Cow::Owned(self.quantised(&entry.name, &theirs, format)?)),
                ElementType::F16 => {
                    self.check_halves(&entry.name, &theirs)?;
                    Ok(Cow::Owned(encoded(&theirs, element)))
                }
                _ => Ok(Cow::Owned(encoded(&theirs, element))),
            }
        })
    }

    /// Refuses finite values that would become infinite in f16.
    fn check_halves(&self, tensor: &str, values: &[f32]) -> Result<(), ArchiveError> {
        match values.iter().find(|value| value.is_finite() && value.abs() > f16::MAX.to_f32()) {
            None => Ok(()),
            Some(value) => {
                let what = format!("it holds {value}, which f16 cannot: write f32 or bf16");
                Err(ArchiveError::Unwritable { file: self.target.to_path_buf(), tensor: tensor.to_string(), what })
            }
        }
    }

    /// Values as quantised blocks, by all threads.
    fn quantised(&self, tensor: &str, values: &[f32], format: BlockFormat) -> Result<Vec<u8>, ArchiveError> {
        let refused = |what: String| {
            let (file, tensor) = (self.target.to_path_buf(), tensor.to_string());
            Err(ArchiveError::Unwritable { file, tensor, what })
        };
        if let Some(value) = values.iter().find(|value| value.is_nan() || value.abs() > f16::MAX.to_f32()) {
            return refused(format!("it holds {value}, which blocks cannot: write f32 or bf16"));
        }
        let Some(bytes) = format.bytes_of(values.len()) else {
            return refused(format!("its {} values are no whole blocks of {}", values.len(), format.values()));
        };
        let mut blocks = vec![0; bytes];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let chunk = (values.len() / format.values()).div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let parts = values.chunks(chunk * format.values()).zip(blocks.chunks_mut(chunk * format.bytes()));
            parts.for_each(|(values, blocks)| {
                scope.spawn(move || format.quantise(values, blocks));
            });
        });
        Ok(blocks)
    }

    /// An atom's values in our layout; `None` for one that is zero.
    fn atom(&self, atom: &str, size: usize) -> Result<Option<Cow<'a, [f32]>>, ArchiveError> {
        if let Some(values) = self.state.and_then(|state| self.trained(state, atom)) {
            return Ok(Some(Cow::Borrowed(values)));
        }
        let Some(source) = self.model.source.as_ref().filter(|source| source.atoms.contains_key(atom)) else {
            return Ok(None);
        };
        let atoms = [atom.to_string()];
        if let Some(whole) = source.whole(&atoms)? {
            return Ok(Some(whole.into_f32()));
        }
        let mut values = zeros(atom, size, 1)?;
        source.fill(&atoms, &mut values)?;
        Ok(Some(Cow::Owned(values)))
    }

    /// An atom of a state, where projections may be fused.
    fn trained(&self, state: &'a State, atom: &str) -> Option<&'a [f32]> {
        if let Ok(values) = state.parameter(atom) {
            return Some(values);
        }
        let has = |parameter: &&Parameter| parameter.part_names().iter().any(|part| part == atom);
        let fused = self.model.parameters.iter().filter(|parameter| !parameter.declared.parts.is_empty()).find(has)?;
        let parts = fused.part_names();
        let index = parts.iter().position(|part| part == atom)?;
        let values = state.parameter(&fused.name).ok()?;
        let size = values.len() / parts.len();
        Some(&values[index * size..(index + 1) * size])
    }
}

/// Values as little-endian bytes. Values that were widened from half precision narrow to the same bits.
fn encoded(numbers: &[f32], element: ElementType) -> Vec<u8> {
    match element {
        ElementType::F16 => {
            let mut halves = vec![f16::ZERO; numbers.len()];
            halves.convert_from_f32_slice(numbers);
            halves.iter().flat_map(|half| half.to_le_bytes()).collect()
        }
        ElementType::Bf16 => numbers.iter().flat_map(|&number| bf16::from_f32(number).to_le_bytes()).collect(),
        _ if cfg!(target_endian = "little") => bytemuck::cast_slice(numbers).to_vec(),
        _ => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
    }
}
