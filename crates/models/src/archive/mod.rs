//! Files of named tensors, read without running anything and without trusting anything.
//!
//! [`Archive::open`] takes a file of any kind that weights come in, and tells the kind by the content:
//!
//! - safetensors, one file or several with a `*.index.json`;
//! - PyTorch's checkpoints, the zip files of today and the streams of before 1.6;
//! - NumPy's `.npz`.
//!
//! A file is mapped, not read: opening it looks at headers alone, and numbers are used where they lie whenever they lie as f32.
//! Everything a file claims is checked against its length before memory is taken for it. Checksums are verified where bytes are
//! inflated; bytes that are used in place are not summed.
//!
//! Tensors of nested checkpoints are named by their path, as `model.blocks.0.norm1.weight` in `{"model": {"blocks.0...": ...}}`.
//! Which prefix is the model's (`model.`, `state_dict.`, `module.`, `teacher.`) is for who knows the dialect;
//! [`Archive::under`] gives what is below one.
//!
//! ```
//! use vitreous_models::archive::{Archive, TensorToWrite, write_safetensors};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("small.safetensors");
//! let bias = [0.5, -1.0];
//! write_safetensors(&path, [TensorToWrite::f32("head.bias", &[2], &bias)], &Default::default())?;
//!
//! let archive = Archive::open(&path)?;
//! assert_eq!(archive.tensor("head.bias")?.to_f32()?, &bias[..]);
//! # Ok(())
//! # }
//! ```

mod aside;
mod error;
mod json;
mod npz;
mod pickle;
mod safetensors;
mod shards;
mod source;
mod tensor;
mod torch;
mod write;
mod zip;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub(crate) use aside::create_aside;
pub use error::{ArchiveError, Result};
pub use tensor::{ElementType, TensorView};
pub(crate) use write::write_safetensors_into;
pub use write::{TensorToWrite, write_npz, write_safetensors};

use error::{Fault, Parsed};
use source::Source;
use tensor::Tensor;

/// An open file of tensors, or several that belong together.
#[derive(Debug)]
pub struct Archive {
    /// The file that was opened: the index, where there are shards.
    file: PathBuf,
    sources: Vec<Source>,
    tensors: Vec<Stored>,
    by_name: HashMap<String, usize>,
    /// What is there but cannot be read as a tensor, and why.
    refused: HashMap<String, Fault>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Stored {
    name: String,
    source: usize,
    tensor: Tensor,
}

/// What a parser found in one file.
#[derive(Debug, Default)]
struct Contents {
    tensors: Vec<(String, Tensor)>,
    refused: Vec<(String, Fault)>,
    metadata: BTreeMap<String, String>,
}

impl Contents {
    /// Notes a tensor. What is not read is refused to who asks for it; what is wrong makes the whole file wrong.
    fn note(&mut self, name: String, tensor: Parsed<Tensor>) -> Parsed<()> {
        match tensor {
            Ok(tensor) => self.tensors.push((name, tensor)),
            Err(fault) if fault.is_damage() => return Err(fault.in_tensor(&name)),
            Err(fault) => self.refuse(name, fault),
        }
        Ok(())
    }

    /// Notes that something is there that is no tensor. An error only for who asks for it.
    fn refuse(&mut self, name: String, fault: Fault) {
        let fault = fault.in_tensor(&name);
        self.refused.push((name, fault));
    }
}

impl Archive {
    /// Opens a file of any known kind, which its content tells and not its name, or a `*.index.json` of shards.
    ///
    /// While the archive lives, the file must not be cut or overwritten in place; replacing it by renaming is fine.
    pub fn open(path: &Path) -> Result<Archive> {
        Archive::from_source(Source::map(path)?)
    }

    /// Takes a file's content from memory. An index of shards cannot be opened so: it has no directory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Archive> {
        Archive::from_source(Source::from_bytes(bytes))
    }

    fn from_source(source: Source) -> Result<Archive> {
        if source.is_file() && !safetensors::is_it(source.bytes()) && shards::is_it(source.bytes()) {
            return shards::read(&source);
        }
        let contents = contents_of(&source).map_err(|fault| fault.in_file(&source.file))?;
        let mut archive = Archive::empty(source.file.clone());
        archive.add(source, contents)?;
        Ok(archive)
    }

    fn empty(file: PathBuf) -> Archive {
        Archive {
            file,
            sources: Vec::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
            refused: HashMap::new(),
            metadata: BTreeMap::new(),
        }
    }

    fn add(&mut self, source: Source, contents: Contents) -> Result<()> {
        for (name, tensor) in contents.tensors {
            if self.by_name.insert(name.clone(), self.tensors.len()).is_some() {
                return Err(Fault::damaged("it is there twice").in_tensor(&name).in_file(&source.file));
            }
            self.tensors.push(Stored { name, source: self.sources.len(), tensor });
        }
        self.refused.extend(contents.refused);
        for (key, value) in contents.metadata {
            self.metadata.entry(key).or_insert(value);
        }
        self.sources.push(source);
        Ok(())
    }

    /// The file that was opened.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The names of all tensors, in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|stored| stored.name.as_str())
    }

    /// All tensors, in the file's order.
    pub fn tensors(&self) -> impl Iterator<Item = TensorView<'_>> {
        self.tensors.iter().map(|stored| self.view(stored))
    }

    /// The tensors whose names begin so, each with the rest of its name.
    pub fn under<'a>(&'a self, prefix: &str) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        self.tensors.iter().filter_map(move |stored| Some((stored.name.strip_prefix(prefix)?, self.view(stored))))
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// A tensor, if there is one of this name that can be read.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        self.by_name.get(name).map(|index| self.view(&self.tensors[*index]))
    }

    /// A tensor that must be there. The error says whether there is none, or what stands in the way of reading it.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        const SHOWN: usize = 6;
        if let Some(view) = self.get(name) {
            return Ok(view);
        }
        if let Some(fault) = self.refused.get(name) {
            return Err(fault.clone().in_file(&self.file));
        }
        Err(ArchiveError::NotFound {
            file: self.file.clone(),
            tensor: name.to_string(),
            count: self.len(),
            names: self.names().take(SHOWN).map(error::shortened).collect(),
        })
    }

    /// What the file says about itself: safetensors' `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn view<'a>(&'a self, stored: &'a Stored) -> TensorView<'a> {
        let source = &self.sources[stored.source];
        TensorView::new(&stored.name, &stored.tensor, &source.file, source.bytes())
    }
}

/// Tells what kind of file it is, and reads its headers.
fn contents_of(source: &Source) -> Parsed<Contents> {
    let file = source.bytes();
    if safetensors::is_it(file) {
        return safetensors::read(file);
    }
    if zip::is_it(file) {
        let entries = zip::entries(file)?;
        if torch::is_it(&entries) {
            return torch::read_zip(file, &entries);
        }
        if entries.iter().any(|entry| entry.name.ends_with(npz::SUFFIX)) || entries.is_empty() {
            return npz::read(file, entries);
        }
        let what = "this zip file holds neither a PyTorch checkpoint nor NumPy arrays";
        return Err(Fault::unsupported(what, "if it packs a file of weights, unpack it first"));
    }
    if pickle::is_it(file) {
        return torch::read_stream(file);
    }
    Err(unrecognised(file))
}

/// What people download in place of weights.
fn unrecognised(file: &[u8]) -> Fault {
    const KNOWN: &str = "safetensors, PyTorch checkpoints and .npz are read";
    let start = file.trim_ascii_start();
    let begins = |with: &[u8]| start.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    if begins(b"version https://git-lfs") {
        return Fault::unsupported("this is a Git LFS pointer, not the file itself", "run `git lfs pull`");
    }
    if begins(b"<!doctype") || begins(b"<html") || begins(b"<?xml") {
        return Fault::unsupported("this is a web page", "the download went wrong: fetch the file again");
    }
    if begins(b"\x89HDF") {
        return Fault::unsupported("this is an HDF5 file", KNOWN);
    }
    if begins(npz::MAGIC) {
        return Fault::unsupported("this is a single .npy array without a name", "save it in an .npz");
    }
    if begins(b"\x1f\x8b") || begins(b"ustar") || file.get(257..262) == Some(b"ustar") {
        return Fault::unsupported("this is a packed file", "unpack it first");
    }
    if begins(b"{") {
        return Fault::unsupported("this is JSON", "an index of shards must be opened as a file");
    }
    Fault::unsupported(format!("this is no kind of file of tensors that is known ({} bytes)", file.len()), KNOWN)
}
