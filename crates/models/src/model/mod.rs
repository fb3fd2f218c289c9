//! Whole models: architecture, weights and assets, opened from a directory or a file of any family and dialect.

pub(crate) mod aside;
mod builtin;
mod edited;
mod error;
pub(crate) mod locate;
mod open;
mod save;
mod save_gguf;
mod weight_type;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use vitreous_engine::{BlockFormat, Parameter, Role, State, WeightView};

use crate::archive::gguf::Metadata;
use crate::archive::{Archive, ArchiveError, ElementType, zeros};
use crate::checkpoint::resize::resize;
use crate::checkpoint::{Dialect, Entry, GridTable, Presence, Storage};
use crate::family::Architecture;
use crate::settings::Size;

pub use builtin::{BUILTIN, BUILTIN_MODELS, builtin_name, is_there, is_untrained};
pub use error::ModelError;
pub use locate::{ASSET_FILES, USUAL_WEIGHTS};
pub use save::{SaveOptions, Written};
pub use weight_type::WeightType;

/// The preprocessing that a checkpoint specifies, to be parsed by the image code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preprocessing {
    /// The bytes of a `preprocessor_config.json`.
    HuggingFace(Vec<u8>),
    /// The bytes of a timm `config.json`, which contains `pretrained_cfg`.
    Timm(Vec<u8>),
}

/// What belongs to a model besides its weights.
#[derive(Clone, Debug, Default)]
pub struct Assets {
    /// Class names in order; empty if there are none.
    pub labels: Vec<String>,
    /// Its image preprocessing, if the checkpoint specifies it.
    pub preprocessing: Option<Preprocessing>,
    /// Files of its tokenizer and of sentence-transformers, by name.
    pub files: Vec<(String, PathBuf)>,
    /// What a GGUF file says of the model and its tokenizer.
    pub metadata: Option<Arc<Metadata>>,
}

/// A model: its architecture, its weights in a file, and its assets.
#[derive(Debug)]
pub struct Model {
    /// The architecture, with the options that it was opened with.
    pub architecture: Box<dyn Architecture>,
    /// Names of classes, preprocessing, tokenizer files.
    pub assets: Assets,
    /// The directory or file that it was opened from.
    pub path: Option<PathBuf>,
    /// Notes for the user about what had to be guessed.
    pub notes: Vec<String>,
    parameters: Vec<Parameter>,
    source: Option<Source>,
}

/// How much of a file has one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFormat {
    /// The format.
    pub element: ElementType,
    /// How many tensors have it.
    pub tensors: usize,
    /// How many values they have.
    pub values: usize,
    /// How many bytes they take.
    pub bytes: usize,
}

/// A checkpoint whose tensors were checked against the graph.
#[derive(Debug)]
struct Source {
    archive: Archive,
    dialect: Dialect,
    entries: Vec<Entry>,
    /// For each atom, its entry and its index in the entry.
    atoms: HashMap<String, (usize, usize)>,
    /// The patch grid of the requested model; the file's may differ.
    grid: Option<Size>,
    head_replaced: bool,
}

impl Model {
    /// A model without values.
    pub fn new(architecture: Box<dyn Architecture>, labels: Vec<String>) -> Result<Model, ModelError> {
        let (classes, names) = (architecture.signature().named_outputs(), labels.len());
        if names != 0 && names != classes {
            return Err(ModelError::Labels { classes, names });
        }
        let parameters = architecture.parameters()?;
        let assets = Assets { labels, ..Assets::default() };
        Ok(Model { architecture, assets, path: None, notes: Vec::new(), parameters, source: None })
    }

    /// Whether a parameter has no values yet: those of a replaced head, or all of a new model.
    pub fn is_new(&self, parameter: &str) -> bool {
        self.source.is_none() || self.parameters.iter().any(|known| known.name == parameter && self.is_replaced(known))
    }

    fn is_replaced(&self, parameter: &Parameter) -> bool {
        // A head may need a layer that the file's own head did without: BERT's pooler.
        let lacks = |source: &Source| !parameter.part_names().iter().all(|atom| source.atoms.contains_key(atom));
        self.source.as_ref().is_some_and(|source| source.head_replaced && (parameter.head || lacks(source)))
    }

    /// A parameter's values by our name as f32, borrowed from the mapped file where they lie there as they are needed.
    pub fn parameter(&self, name: &str) -> Result<Cow<'_, [f32]>, ModelError> {
        Ok(self.weight(name)?.into_f32())
    }

    /// A parameter's values by our name, in the format that the file has them in where they lie there as they are needed: what an
    /// executor takes in.
    pub fn weight(&self, name: &str) -> Result<WeightView<'_>, ModelError> {
        let (source, parameter) = self.find(name)?;
        let atoms = parameter.part_names();
        if let Some(whole) = source.whole(&atoms)? {
            return Ok(whole);
        }
        let mut values = zeros(name, parameter.shape.elements(), 1)?;
        source.fill(&atoms, &mut values)?;
        Ok(values.into())
    }

    /// The format of a parameter that [`Model::weight`] gives as quantised blocks; known without reading it.
    pub fn blocks(&self, name: &str) -> Option<BlockFormat> {
        let (source, parameter) = self.find(name).ok()?;
        source.blocks(&parameter.part_names())
    }

    /// Copies all values into the state of this model's graph. A replaced head, and adapters, are left unchanged.
    pub fn load(&self, state: &mut State) -> Result<(), ModelError> {
        let table: Vec<Parameter> = state.table().to_vec();
        let missing = self.parameters.iter().find(|own| table.iter().all(|there| there.name != own.name));
        if let (Some(missing), true) = (missing, table.len() < self.parameters.len()) {
            return Err(ModelError::parameter(&missing.name, "is not in the state: it was made for another model"));
        }
        for there in table {
            let replaced = self.parameters.iter().any(|own| own.name == there.name && self.is_replaced(own));
            if replaced || there.role() == Role::Adapter {
                continue;
            }
            let (source, own) = self.find(&there.name)?;
            let target = state.parameter_mut(&there.name)?;
            if target.len() != own.shape.elements() {
                let what = format!("has {} numbers in the state, but is {} in this model", target.len(), own.shape);
                return Err(ModelError::parameter(&there.name, what));
            }
            source.fill(&own.part_names(), target)?;
        }
        Ok(())
    }

    /// All parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The library whose tensor names the opened checkpoint uses.
    pub fn library(&self) -> Option<&'static str> {
        self.source.as_ref().map(|source| source.dialect.library)
    }

    /// The formats of the opened file's tensors: for each, how many tensors, values and bytes there are. Tensors that the model does not
    /// use are not counted.
    pub fn formats(&self) -> Vec<StoredFormat> {
        let mut formats: BTreeMap<ElementType, StoredFormat> = BTreeMap::new();
        let Some(source) = &self.source else { return Vec::new() };
        for entry in source.entries.iter().filter(|entry| entry.presence != Presence::Redundant) {
            let Some(view) = source.archive.get(&entry.name) else { continue };
            let element = view.element;
            let none = StoredFormat { element, tensors: 0, values: 0, bytes: 0 };
            let format = formats.entry(element).or_insert(none);
            format.tensors += 1;
            format.values += view.elements();
            format.bytes += view.elements() / element.values() * element.bytes();
        }
        formats.into_values().collect()
    }

    fn find(&self, name: &str) -> Result<(&Source, &Parameter), ModelError> {
        let parameter = self.parameters.iter().find(|parameter| parameter.name == name);
        let parameter = parameter.ok_or_else(|| ModelError::parameter(name, "is not of this model"))?;
        match &self.source {
            Some(_) if self.is_replaced(parameter) => {
                Err(ModelError::parameter(name, "is of the head that was replaced: it has no values yet"))
            }
            Some(source) => Ok((source, parameter)),
            None => Err(ModelError::parameter(name, "has no values: this model was not opened from a checkpoint")),
        }
    }
}

impl Source {
    /// Copies an atom's values into a slice, in our layout.
    fn read(&self, atom: &str, ours: &mut [f32]) -> Result<(), ArchiveError> {
        let Some(&(index, part)) = self.atoms.get(atom) else {
            // Unreachable after the check of the tensors; if it is reached, an error is better than a stale value.
            return self.archive.tensor(atom).map(|_| ());
        };
        let entry = &self.entries[index];
        let all = self.archive.tensor(&entry.name)?.to_f32()?;
        let size = all.len() / entry.atoms.len();
        entry.storage.read(&all[part * size..(part + 1) * size], ours);
        Ok(())
    }

    /// The element type of an atom in the file.
    fn element(&self, atom: &str) -> Option<ElementType> {
        let (index, _) = self.atoms.get(atom)?;
        self.archive.get(&self.entries[*index].name).map(|tensor| tensor.element)
    }

    /// The entry and the new grid, if position embeddings have to be resized from the file's grid.
    fn resized(&self, atoms: &[String]) -> Option<(&Entry, GridTable, Size)> {
        let entry = &self.entries[self.atoms.get(&atoms[0])?.0];
        let (table, grid) = (entry.grid?, self.grid?);
        (grid != table.size).then_some((entry, table, grid))
    }

    /// The entry that has atoms as they are needed, or with their rows in another order, and the range of its values that they are;
    /// `None` if they have to be put together.
    fn whole_entry(&self, atoms: &[String]) -> Option<(&Entry, Range<usize>)> {
        if self.resized(atoms).is_some() {
            return None;
        }
        let &(index, part) = self.atoms.get(&atoms[0])?;
        let entry = &self.entries[index];
        let movable = match entry.storage {
            Storage::Same => true,
            Storage::RotaryPairs { .. } => atoms.len() == 1,
            Storage::Transposed { .. } | Storage::Hwio { .. } | Storage::PlusOne => false,
        };
        if !movable || entry.atoms.get(part..part + atoms.len()) != Some(atoms) {
            return None;
        }
        let tensor = self.archive.get(&entry.name)?;
        let size = tensor.elements() / entry.atoms.len();
        let range = part * size..(part + atoms.len()) * size;
        match tensor.element {
            ElementType::Blocks(format) if [range.start, range.end].iter().any(|at| at % format.values() != 0) => None,
            _ => Some((entry, range)),
        }
    }

    /// Atoms that lie in the file as they are needed.
    fn whole(&self, atoms: &[String]) -> Result<Option<WeightView<'_>>, ArchiveError> {
        let Some((entry, range)) = self.whole_entry(atoms) else { return Ok(None) };
        let all = self.archive.tensor(&entry.name)?.to_weight()?;
        let part = if range.len() == all.len() { all } else { all.into_part(range) };
        Ok(entry.storage.read_weight(part))
    }

    /// The format of atoms that [`Source::whole`] gives as quantised blocks.
    fn blocks(&self, atoms: &[String]) -> Option<BlockFormat> {
        let (entry, _) = self.whole_entry(atoms)?;
        match self.archive.get(&entry.name)?.element {
            ElementType::Blocks(format) => Some(format),
            _ => None,
        }
    }

    /// Copies atoms one after another, in our layout.
    fn fill(&self, atoms: &[String], values: &mut [f32]) -> Result<(), ArchiveError> {
        if let Some((entry, table, grid)) = self.resized(atoms) {
            let numbers = self.archive.tensor(&entry.name)?.to_f32()?;
            let rows = table.prefix + grid.area();
            let dim = values.len() / rows;
            values.copy_from_slice(&resize(&numbers, dim, table.prefix, table.size, grid, table.filter));
            return Ok(());
        }
        let size = values.len() / atoms.len();
        for (atom, values) in atoms.iter().zip(values.chunks_exact_mut(size)) {
            self.read(atom, values)?;
        }
        Ok(())
    }
}
