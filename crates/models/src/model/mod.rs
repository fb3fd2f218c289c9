//! Whole models: opened from a directory or a file of any dialect, and saved in one.

pub(crate) mod aside;
mod error;
pub(crate) mod locate;
mod save;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vitreous_engine::State;

use crate::adapters::is_adapter;
use crate::archive::{Archive, ArchiveError, ElementType};
use crate::checkpoint::json::Fault;
use crate::checkpoint::resize::resize;
use crate::checkpoint::table::{Entry, Inventory, Layout, Presence, atoms_of, problems};
use crate::checkpoint::torch::{OWN, Torch};
use crate::checkpoint::{Description, Dialect};
use crate::config::{Pooling, Positions, Qkv, Size, VitConfig};

pub use error::ModelError;
pub use locate::USUAL_WEIGHTS;
pub use save::{SaveOptions, Written};

use locate::Located;

/// How to open a model.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Another height and width of images than the checkpoint's: learned positions are resized as the checkpoint's library does.
    pub image: Option<Size>,
    /// A new head of so many classes in place of the checkpoint's; it has no values yet. 0 for no head.
    pub replace_head: Option<usize>,
    /// The number of heads of attention, for files that do not tell it (bare timm and DINOv2 checkpoints: it is otherwise
    /// taken from the usual width of a head).
    pub heads: Option<usize>,
    /// Whether query, key and value are to be one parameter or three; one otherwise, but for models that say.
    pub qkv: Option<Qkv>,
}

/// How a checkpoint says that images are to be prepared; to be read by who prepares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preprocessing {
    /// The bytes of a `preprocessor_config.json`.
    HuggingFace(Vec<u8>),
    /// The bytes of a timm `config.json`, which has `pretrained_cfg` in it.
    Timm(Vec<u8>),
}

/// A model: what it is, and where its values lie.
#[derive(Debug)]
pub struct Model {
    /// What it is, with the options that it was opened with.
    pub config: VitConfig,
    /// Names of its classes in order; empty where they have none.
    pub labels: Vec<String>,
    /// How its images are to be prepared, if the checkpoint says.
    pub preprocessing: Option<Preprocessing>,
    /// The directory or file that it was opened from.
    pub path: Option<PathBuf>,
    /// Whether nothing in the checkpoint tells the number of heads, so that the usual one of its width was taken.
    pub guessed_heads: bool,
    shapes: HashMap<String, Vec<usize>>,
    source: Option<Source>,
}

/// A checkpoint that was checked against its table.
#[derive(Debug)]
struct Source {
    archive: Archive,
    dialect: Dialect,
    /// The model as the file has it.
    config: VitConfig,
    entries: Vec<Entry>,
    /// Atoms to entry and place in it.
    places: HashMap<String, (usize, usize)>,
    head_replaced: bool,
}

impl Model {
    /// A model that has no values yet.
    pub fn new(config: VitConfig, labels: Vec<String>) -> Result<Model, ModelError> {
        config.check()?;
        let (classes, names) = (config.classes, labels.len());
        if names != 0 && names != classes {
            return Err(ModelError::Labels { classes, names });
        }
        let shapes = shapes_of(&config);
        Ok(Model { config, labels, preprocessing: None, path: None, guessed_heads: false, shapes, source: None })
    }

    /// Opens a model directory, or a file of weights alone. No tensor is read: the file is mapped, and its names and shapes
    /// are compared with what the model needs.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Model, ModelError> {
        let Located { weights, config_file, config_bytes, preprocessor } = locate::locate(path)?;
        let archive = Archive::open(&weights)?;
        let inventory: Inventory =
            archive.tensors().map(|tensor| (tensor.name().to_string(), tensor.shape.to_vec())).collect();
        let dialect = Dialect::find(&inventory).ok_or_else(|| ModelError::unknown_dialect(&weights, &inventory))?;
        let in_config = |fault| ModelError::Config { file: config_file.clone().unwrap_or(weights.clone()), fault };
        let description = config_bytes.as_deref().map(Description::parse).transpose().map_err(in_config)?;
        let preprocessing = preprocessor.map(Preprocessing::HuggingFace).or_else(|| match &description {
            Some(Description::Timm(_)) => config_bytes.map(Preprocessing::Timm),
            _ => None,
        });

        let Settled { dialect, config: file_config, mut labels, guessed_heads } =
            settle(dialect, description, &inventory, options).map_err(in_config)?;
        let stacked = matches!(&dialect, Dialect::Google(flax) if flax.stacked);
        if file_config.depth > inventory.len() && !stacked {
            let what = format!("{} layers are spoken of, but there are {} tensors", file_config.depth, inventory.len());
            return Err(ModelError::Refused { file: weights, what });
        }
        file_config.check()?;
        let entries = dialect.tensors(&file_config);
        let found = problems(&entries, &inventory, |name| dialect.concerns(name));
        if !found.is_empty() {
            return Err(ModelError::Tensors { file: weights, problems: found });
        }

        let config = with_options(&dialect, &file_config, options);
        config.check()?;
        if options.replace_head.is_some() {
            labels.clear();
        }
        let mut places = HashMap::new();
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| inventory.contains_key(&entry.name)) {
            for (part, atom) in entry.atoms.iter().enumerate() {
                places.insert(atom.clone(), (index, part));
            }
        }
        let head_replaced = options.replace_head.is_some();
        let shapes = shapes_of(&config);
        let source = Source { archive, dialect, config: file_config, entries, places, head_replaced };
        let path = Some(path.to_path_buf());
        Ok(Model { config, labels, preprocessing, path, guessed_heads, shapes, source: Some(source) })
    }

    /// Whether a parameter is of a head that was replaced, and so has no values yet.
    pub fn is_new(&self, parameter: &str) -> bool {
        self.source.as_ref().is_none_or(|source| source.replaces(parameter))
    }

    /// A parameter's values by our name, borrowed from the mapped file where they lie there as they are needed.
    pub fn parameter(&self, name: &str) -> Result<Cow<'_, [f32]>, ModelError> {
        let (source, shape) = self.find(name)?;
        let atoms = atoms_of(name);
        if let Some(whole) = source.whole(&self.config, &atoms)? {
            return Ok(whole);
        }
        let mut values = vec![0.0; shape.iter().product()];
        source.fill(&self.config, &atoms, &mut values)?;
        Ok(Cow::Owned(values))
    }

    /// Puts all values into the state of this model's graph. A head that was replaced, and adapters, are left as they are.
    pub fn load(&self, state: &mut State) -> Result<(), ModelError> {
        let names: Vec<String> = state.table().iter().map(|parameter| parameter.name.clone()).collect();
        let missing = self.shapes.keys().find(|name| !names.contains(name));
        if let (Some(missing), true) = (missing, names.len() < self.shapes.len()) {
            return Err(ModelError::parameter(missing, "is not in the state: it was made for another model"));
        }
        for name in names {
            let replaced = self.source.as_ref().is_some_and(|source| source.replaces(&name));
            if replaced && self.shapes.contains_key(&name) || is_adapter(&name) {
                continue;
            }
            let (source, shape) = self.find(&name)?;
            let target = state.parameter_mut(&name)?;
            if target.len() != shape.iter().product::<usize>() {
                let what = format!("has {} numbers in the state, but is {shape:?} in this model", target.len());
                return Err(ModelError::parameter(&name, what));
            }
            source.fill(&self.config, &atoms_of(&name), target)?;
        }
        Ok(())
    }

    /// The names and shapes of all parameters.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.shapes.iter().map(|(name, shape)| (name.as_str(), shape.as_slice()))
    }

    /// The dialect of the checkpoint that it was opened from.
    pub fn dialect(&self) -> Option<&Dialect> {
        self.source.as_ref().map(|source| &source.dialect)
    }

    fn find(&self, name: &str) -> Result<(&Source, &[usize]), ModelError> {
        let shape = self.shapes.get(name).ok_or_else(|| ModelError::parameter(name, "is not of this model"))?;
        match &self.source {
            Some(source) if !source.replaces(name) => Ok((source, shape)),
            Some(_) => Err(ModelError::parameter(name, "is of the head that was replaced: it has no values yet")),
            None => Err(ModelError::parameter(name, "has no values: this model was not opened from a checkpoint")),
        }
    }
}

impl Source {
    fn replaces(&self, parameter: &str) -> bool {
        self.head_replaced && (parameter.starts_with("head.") || parameter.starts_with("distillation_head."))
    }

    /// Puts an atom's numbers into a slice, in our layout.
    fn read(&self, atom: &str, ours: &mut [f32]) -> Result<(), ArchiveError> {
        let Some(&(index, part)) = self.places.get(atom) else {
            // Not to be reached after the check of the table: an error, and not a value left as it was.
            return self.archive.tensor(atom).map(|_| ());
        };
        let entry = &self.entries[index];
        let all = self.archive.tensor(&entry.name)?.to_f32()?;
        let size = all.len() / entry.atoms.len();
        entry.layout.read(&all[part * size..(part + 1) * size], ours);
        Ok(())
    }

    /// The type of an atom's numbers in the file.
    fn element(&self, atom: &str) -> Option<ElementType> {
        let (index, _) = self.places.get(atom)?;
        self.archive.get(&self.entries[*index].name).map(|tensor| tensor.element)
    }

    /// Whether positions are to be those of another grid than the file's.
    fn resizes(&self, config: &VitConfig, atoms: &[String]) -> bool {
        atoms[0] == "positions" && config.positions == Positions::Learned && config.grid() != self.config.grid()
    }

    /// Atoms that lie in the file as they are needed.
    fn whole(&self, config: &VitConfig, atoms: &[String]) -> Result<Option<Cow<'_, [f32]>>, ArchiveError> {
        if self.resizes(config, atoms) {
            return Ok(None);
        }
        let Some(&(index, part)) = self.places.get(&atoms[0]) else { return Ok(None) };
        let entry = &self.entries[index];
        if entry.layout != Layout::Same || entry.atoms.get(part..part + atoms.len()) != Some(atoms) {
            return Ok(None);
        }
        let all = self.archive.tensor(&entry.name)?.to_f32()?;
        let size = all.len() / entry.atoms.len();
        let range = part * size..(part + atoms.len()) * size;
        Ok(match all {
            all if atoms.len() == entry.atoms.len() => Some(all),
            Cow::Borrowed(all) => Some(Cow::Borrowed(&all[range])),
            Cow::Owned(_) => None,
        })
    }

    /// Puts atoms one after another, in our layout.
    fn fill(&self, config: &VitConfig, atoms: &[String], values: &mut [f32]) -> Result<(), ArchiveError> {
        if self.resizes(config, atoms) {
            let table = self.archive.tensor(&self.entries[self.places[&atoms[0]].0].name)?.to_f32()?;
            let prefix = self.config.positioned_prefix();
            let (from, to) = (self.config.grid(), config.grid());
            values.copy_from_slice(&resize(&table, config.dim, prefix, from, to, self.dialect.filter()));
            return Ok(());
        }
        let size = values.len() / atoms.len();
        for (atom, values) in atoms.iter().zip(values.chunks_exact_mut(size)) {
            self.read(atom, values)?;
        }
        Ok(())
    }
}

/// What configuration and tensors say together.
struct Settled {
    dialect: Dialect,
    /// The model as the file has it.
    config: VitConfig,
    labels: Vec<String>,
    guessed_heads: bool,
}

fn settle(
    dialect: Dialect,
    description: Option<Description>,
    inventory: &Inventory,
    options: &OpenOptions,
) -> Result<Settled, Fault> {
    let head_is_used = options.replace_head.is_none();
    let mut guessed_heads = false;
    let (mut config, labels, dialect) = match (description, dialect) {
        (Some(Description::HuggingFace(described)), Dialect::HuggingFace(_, torch)) => {
            // The configuration knows the family better than the tensors: theirs may have nothing special.
            let kind = described.kind;
            let names = kind.names();
            let torch = Torch { names, ..torch }.as_in(inventory);
            let settled = described.settle(&torch, inventory, head_is_used)?;
            (settled.config, settled.labels, Dialect::HuggingFace(kind, torch))
        }
        (Some(Description::Timm(described)), Dialect::Timm(torch)) => {
            let config = described.settle(&torch, inventory, head_is_used)?;
            guessed_heads = !described.tells_heads(&config);
            (config, described.labels, Dialect::Timm(torch))
        }
        (Some(Description::Own(config, labels)), Dialect::Own(torch)) => (*config, labels, Dialect::Own(torch)),
        // These files have no configuration, but some directories name their classes beside them.
        (Some(description), dialect @ Dialect::Google(_)) => {
            let config = dialect.infer(inventory, options.heads, options.image)?;
            let mut labels = description.labels().to_vec();
            labels.truncate(if labels.len() == config.classes { config.classes } else { 0 });
            (config, labels, dialect)
        }
        (Some(description), dialect) => {
            let what = format!("it is {}, but the tensors beside it have {}", description.whose(), dialect.whose());
            return Err(Fault::whole(what));
        }
        (None, dialect) => {
            // Google's tensors have an axis of heads.
            guessed_heads = !matches!(dialect, Dialect::Google(_));
            (dialect.infer(inventory, options.heads, options.image)?, Vec::new(), dialect)
        }
    };
    if let Some(heads) = options.heads {
        config.heads = heads;
        guessed_heads = false;
    }
    Ok(Settled { dialect, config, labels, guessed_heads })
}

/// The model that was asked for.
fn with_options(dialect: &Dialect, file: &VitConfig, options: &OpenOptions) -> VitConfig {
    let mut config = file.clone();
    config.image = options.image.unwrap_or(config.image);
    config.qkv = options.qkv.unwrap_or(config.qkv);
    if let Some(classes) = options.replace_head {
        config.classes = classes;
        config.distillation_head = file.distillation_head && classes > 0;
        if classes > 0 {
            // The layer before the head belongs to the task that it was trained for (section 3.1 of the paper).
            config.pre_logits = None;
        }
        if let Dialect::HuggingFace(kind, _) = dialect
            && kind.is_dinov2()
        {
            config.pooling = if classes > 0 { Pooling::ClassAndMean } else { Pooling::Class };
        }
    }
    config
}

/// Names and shapes of a model's parameters.
fn shapes_of(config: &VitConfig) -> HashMap<String, Vec<usize>> {
    let entries = Torch::plain(OWN).tensors(config);
    let needed = entries.into_iter().filter(|entry| entry.presence == Presence::Needed);
    needed.map(|entry| (entry.name, entry.shape)).collect()
}
