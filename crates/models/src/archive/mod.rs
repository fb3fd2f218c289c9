//! Files of named tensors, read without executing or trusting anything.
//!
//! [`Archive::open`] takes a file in any of the usual formats for weights, and detects the format from the content:
//!
//! - safetensors, one file or several with a `*.index.json`;
//! - PyTorch's checkpoints, the current zip files and the streams from before 1.6;
//! - NumPy's `.npz`;
//! - GGUF, with weights quantised in blocks;
//! - the models of llama2.c.
//!
//! A file is memory-mapped: opening it reads headers only, and f32 values are used in place. Every claim of a file is
//! checked against its length before memory is allocated. Checksums are verified when bytes are inflated; bytes used in
//! place are not summed.
//!
//! Tensors of nested checkpoints are named by their path, as `model.blocks.0.norm1.weight` in `{"model":
//! {"blocks.0...": ...}}`. Which prefix is the model's (`model.`, `state_dict.`, `module.`, `teacher.`) is up to the
//! dialect; [`Archive::under`] lists the tensors below one.
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

mod error;
pub mod gguf;
mod json;
mod llama2c;
mod npz;
mod pickle;
mod room;
mod safetensors;
mod shards;
mod source;
mod tensor;
mod torch;
mod write;
mod zip;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::{ArchiveError, Result};
pub(crate) use room::zeros;
pub use tensor::{ElementType, TensorView};
pub(crate) use write::write_safetensors_into;
pub use write::{TensorToWrite, write_npz, write_safetensors};

use error::{Fault, Parsed};
use source::Source;
use tensor::Tensor;

/// An open file of tensors, or a set of shards.
#[derive(Debug)]
pub struct Archive {
    /// The opened file: the index, if there are shards.
    file: PathBuf,
    sources: Vec<Source>,
    tensors: Vec<Stored>,
    by_name: HashMap<String, usize>,
    /// Objects that cannot be read as a tensor, and why.
    refused: HashMap<String, Fault>,
    metadata: BTreeMap<String, String>,
    gguf: Option<Arc<gguf::Metadata>>,
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
    gguf: Option<gguf::Metadata>,
}

impl Contents {
    /// Adds a tensor. An unsupported one is an error only when it is requested; an invalid one makes the whole file
    /// invalid.
    fn note(&mut self, name: String, tensor: Parsed<Tensor>) -> Parsed<()> {
        match tensor {
            Ok(tensor) => self.tensors.push((name, tensor)),
            Err(fault) if fault.is_damage() => return Err(fault.in_tensor(&name)),
            Err(fault) => self.refuse(name, fault),
        }
        Ok(())
    }

    /// Adds an object that is not a tensor: an error only when it is requested.
    fn refuse(&mut self, name: String, fault: Fault) {
        let fault = fault.in_tensor(&name);
        self.refused.push((name, fault));
    }
}

impl Archive {
    /// Opens a file of any supported format, detected from its content and not its name, or a `*.index.json` of shards.
    ///
    /// While the archive is open, the file must not be truncated or overwritten in place; replacing it by renaming is
    /// fine.
    pub fn open(path: &Path) -> Result<Archive> {
        Archive::from_source(Source::map(path)?)
    }

    /// Opens a file's content in memory. This does not work for an index of shards, which needs a directory.
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
            gguf: None,
        }
    }

    fn add(&mut self, source: Source, contents: Contents) -> Result<()> {
        for (name, tensor) in contents.tensors {
            if self.by_name.insert(name.clone(), self.tensors.len()).is_some() {
                return Err(Fault::damaged("it occurs twice").in_tensor(&name).in_file(&source.file));
            }
            self.tensors.push(Stored { name, source: self.sources.len(), tensor });
        }
        self.refused.extend(contents.refused);
        for (key, value) in contents.metadata {
            self.metadata.entry(key).or_insert(value);
        }
        self.gguf = self.gguf.take().or(contents.gguf.map(Arc::new));
        self.sources.push(source);
        Ok(())
    }

    /// The opened file.
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

    /// The tensors whose names begin with a prefix, each with the rest of its name.
    pub fn under<'a>(&'a self, prefix: &str) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        self.tensors.iter().filter_map(move |stored| Some((stored.name.strip_prefix(prefix)?, self.view(stored))))
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensor with this name, if it exists and can be read.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        self.by_name.get(name).map(|index| self.view(&self.tensors[*index]))
    }

    /// The tensor with this name, or an error that says whether it is missing or why it cannot be read.
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

    /// The metadata of the file: safetensors' `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The metadata of a GGUF file; of a model of llama2.c, what a GGUF file would say of it.
    pub fn gguf(&self) -> Option<&Arc<gguf::Metadata>> {
        self.gguf.as_ref()
    }

    /// Whether there is an object with this name that cannot be read as a tensor; [`Archive::tensor`] says why.
    pub fn is_refused(&self, name: &str) -> bool {
        self.refused.contains_key(name)
    }

    fn view<'a>(&'a self, stored: &'a Stored) -> TensorView<'a> {
        let source = &self.sources[stored.source];
        TensorView::new(&stored.name, &stored.tensor, &source.file, source.bytes())
    }
}

/// Detects the format of a file, and reads its headers.
fn contents_of(source: &Source) -> Parsed<Contents> {
    let file = source.bytes();
    if safetensors::is_it(file) {
        return safetensors::read(file);
    }
    if gguf::is_it(file) {
        return gguf::read(file);
    }
    // Its only mark is that its sizes fit the file's length: it comes before formats that are told by two bytes.
    if let Some(header) = llama2c::header(file) {
        return header.contents();
    }
    if zip::is_it(file) {
        let entries = zip::entries(file)?;
        if torch::is_it(&entries) {
            return torch::read_zip(file, &entries);
        }
        if entries.iter().any(|entry| entry.name.ends_with(npz::SUFFIX)) || entries.is_empty() {
            return npz::read(file, entries);
        }
        let what = "this zip file contains neither a PyTorch checkpoint nor NumPy arrays";
        return Err(Fault::unsupported(what, "if it packs a file of weights, unpack it first"));
    }
    if pickle::is_it(file) {
        return torch::read_stream(file);
    }
    Err(unrecognised(file))
}

/// The error for a file of unknown format, with advice for what people download by mistake.
fn unrecognised(file: &[u8]) -> Fault {
    const KNOWN: &str = "safetensors, PyTorch checkpoints, .npz and GGUF are read";
    let start = file.trim_ascii_start();
    let begins = |with: &[u8]| start.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    if begins(b"version https://git-lfs") {
        return Fault::unsupported("this is a Git LFS pointer, not the file itself", "run `git lfs pull`");
    }
    if begins(b"<!doctype") || begins(b"<html") || begins(b"<?xml") {
        return Fault::unsupported("this is a web page", "the download failed: download the file again");
    }
    if begins(b"\x89HDF") {
        return Fault::unsupported("this is an HDF5 file", KNOWN);
    }
    if begins(npz::MAGIC) {
        return Fault::unsupported("this is a single .npy array without a name", "save it in an .npz");
    }
    if begins(b"\x1f\x8b") || begins(b"ustar") || file.get(257..262) == Some(b"ustar") {
        return Fault::unsupported("this is a compressed file", "unpack it first");
    }
    if begins(b"{") {
        return Fault::unsupported("this is JSON", "an index of shards must be opened as a file");
    }
    Fault::unsupported(format!("the format of this file is unknown ({} bytes)", file.len()), KNOWN)
}
