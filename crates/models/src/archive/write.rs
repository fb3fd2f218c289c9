//! Writing. A file is written under a temporary name, synced, and only then renamed: if anything fails, an existing
//! file is unchanged. Tensors are requested one by one, so that only one is in memory at a time.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use vitreous_files::partial::PartialFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::error::{ArchiveError, Result, shortened};
use super::tensor::{ElementType, TensorView, size_of};
use super::{npz, safetensors};

/// Alignment of elements in the files: good for vector instructions, and mapped f32 need at least four.
const ALIGNMENT: usize = 64;

/// A tensor to be written, and a function that provides its elements.
pub struct TensorToWrite<'a> {
    name: String,
    shape: Vec<usize>,
    element: ElementType,
    data: Box<dyn FnOnce() -> Result<Cow<'a, [u8]>> + 'a>,
}

impl<'a> TensorToWrite<'a> {
    /// A tensor whose elements `data` provides, little-endian and in row-major order. It is called when the tensor is
    /// written, and its result dropped before the next tensor.
    pub fn new(
        name: impl Into<String>,
        shape: &[usize],
        element: ElementType,
        data: impl FnOnce() -> Result<Cow<'a, [u8]>> + 'a,
    ) -> Self {
        TensorToWrite { name: name.into(), shape: shape.to_vec(), element, data: Box::new(data) }
    }

    /// A tensor of f32 values in memory.
    pub fn f32(name: impl Into<String>, shape: &[usize], numbers: &'a [f32]) -> Self {
        TensorToWrite::new(name, shape, ElementType::F32, move || Ok(little_endian(numbers)))
    }

    /// A tensor of another archive, under a new name, without conversion.
    pub fn copy(name: impl Into<String>, view: TensorView<'a>) -> Self {
        TensorToWrite::new(name, view.shape, view.element, move || view.to_bytes())
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its shape.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Size of its elements in bytes.
    pub(super) fn bytes(&self, file: &Path) -> Result<usize> {
        match size_of(&self.shape, self.element) {
            Ok((_, bytes)) => Ok(bytes),
            Err(_) => Err(self.unwritable(file, format!("the shape {:?} is too large", self.shape))),
        }
    }

    /// Its elements, if their number matches its shape.
    pub(super) fn take(self, file: &Path) -> Result<Cow<'a, [u8]>> {
        let expected = self.bytes(file)?;
        let (name, shape) = (self.name, self.shape);
        let data = (self.data)()?;
        if data.len() != expected {
            let what = format!("its shape {shape:?} takes {expected} bytes, but {} were passed", data.len());
            return Err(ArchiveError::Unwritable { file: file.to_path_buf(), tensor: name, what });
        }
        Ok(data)
    }

    /// What a format calls its element type, if it has it.
    pub(super) fn element_in<T>(&self, file: &Path, format: fn(ElementType) -> Option<T>) -> Result<T> {
        format(self.element).ok_or_else(|| {
            let what = format!("this format has no {}: write f32, f16 or bf16", self.element.name());
            self.unwritable(file, what)
        })
    }

    pub(super) fn unwritable(&self, file: &Path, what: String) -> ArchiveError {
        ArchiveError::Unwritable { file: file.to_path_buf(), tensor: shortened(&self.name), what }
    }
}

fn little_endian(numbers: &[f32]) -> Cow<'_, [u8]> {
    match cfg!(target_endian = "little") {
        true => Cow::Borrowed(bytemuck::cast_slice(numbers)),
        false => Cow::Owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect()),
    }
}

/// Writes a safetensors file. Tensors keep their order, except that wider elements come first, which aligns them all.
pub fn write_safetensors<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = TensorToWrite<'a>>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    replace(path, |file| write_safetensors_into(file, path, tensors, metadata))
}

/// Writes the content of a safetensors file into a file that will be renamed to `path`.
pub(crate) fn write_safetensors_into<'a>(
    file: &mut impl Write,
    path: &Path,
    tensors: impl IntoIterator<Item = TensorToWrite<'a>>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let mut tensors: Vec<TensorToWrite> = tensors.into_iter().collect();
    refuse_duplicates(path, &tensors)?;
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.element.bytes()));
    let header = safetensors_header(path, &tensors, metadata)?;
    let failed = |source| ArchiveError::Io { file: path.to_path_buf(), doing: "write", source };
    let mut writer = BufWriter::new(file);
    writer.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    writer.write_all(header.as_bytes()).map_err(failed)?;
    for tensor in tensors {
        writer.write_all(&tensor.take(path)?).map_err(failed)?;
    }
    writer.flush().map_err(failed)
}

fn safetensors_header(path: &Path, tensors: &[TensorToWrite], metadata: &BTreeMap<String, String>) -> Result<String> {
    let mut fields = Map::with_capacity(tensors.len() + 1);
    if !metadata.is_empty() {
        fields.insert(safetensors::METADATA.to_string(), json!(metadata));
    }
    let mut start = 0usize;
    for tensor in tensors {
        if tensor.name == safetensors::METADATA {
            return Err(tensor.unwritable(path, "safetensors reserves this name: rename it".to_string()));
        }
        let end = start.checked_add(tensor.bytes(path)?);
        let end = end.ok_or_else(|| tensor.unwritable(path, "the file would be too large".to_string()))?;
        let element = tensor.element_in(path, safetensors::element_name)?;
        let field = json!({ "dtype": element, "shape": tensor.shape, "data_offsets": [start, end] });
        fields.insert(tensor.name.clone(), field);
        start = end;
    }
    let mut header = Value::Object(fields).to_string();
    let unaligned = (8 + header.len()) % ALIGNMENT;
    // The format allows padding the header with spaces.
    header.extend(std::iter::repeat_n(' ', (ALIGNMENT - unaligned) % ALIGNMENT));
    Ok(header)
}

/// Writes an `.npz` that `numpy.load` reads: arrays are stored uncompressed, so that they can be mapped. NumPy has no
/// bf16: such a tensor is written as `V2`, like JAX does.
pub fn write_npz<'a>(path: &Path, tensors: impl IntoIterator<Item = TensorToWrite<'a>>) -> Result<()> {
    let tensors: Vec<TensorToWrite> = tensors.into_iter().collect();
    refuse_duplicates(path, &tensors)?;
    replace(path, |file| {
        let failed = |source| ArchiveError::Io { file: path.to_path_buf(), doing: "write", source };
        let mut writer = ZipWriter::new(BufWriter::new(file));
        for tensor in tensors {
            let header = npy_header(&tensor, tensor.element_in(path, npz::element_name)?);
            let bytes = tensor.bytes(path)?;
            let large = bytes.saturating_add(header.len()) >= u32::MAX as usize;
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .with_alignment(ALIGNMENT as u16)
                .large_file(large);
            let entry = format!("{}{}", tensor.name, npz::SUFFIX);
            writer.start_file(entry, options).map_err(|error| failed(error.into()))?;
            writer.write_all(&header).map_err(failed)?;
            writer.write_all(&tensor.take(path)?).map_err(failed)?;
        }
        writer.finish().map_err(|error| failed(error.into()))?.flush().map_err(failed)
    })
}

/// Magic number, version 1.0, the header's length, the header, and spaces and a line feed up to the alignment.
fn npy_header(tensor: &TensorToWrite, kind: &str) -> Vec<u8> {
    const PREAMBLE: usize = 10;
    let sizes: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", sizes.join(", "));
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let unaligned = (PREAMBLE + header.len() + 1) % ALIGNMENT;
    header.extend(std::iter::repeat_n(' ', (ALIGNMENT - unaligned) % ALIGNMENT));
    header.push('\n');
    let mut bytes = npz::MAGIC.to_vec();
    bytes.extend([1, 0]);
    // No shape with 64 sizes comes close to 65536 characters.
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes
}

pub(super) fn refuse_duplicates(path: &Path, tensors: &[TensorToWrite]) -> Result<()> {
    let mut names = HashSet::with_capacity(tensors.len());
    match tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        Some(twice) => Err(twice.unwritable(path, "two tensors have this name: rename one".to_string())),
        None => Ok(()),
    }
}

/// Writes a temporary file and renames it over an existing one.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let failed = |doing| move |source| ArchiveError::Io { file: path.to_path_buf(), doing, source };
    let mut partial = PartialFile::create(path).map_err(failed("create a file beside it"))?;
    write(partial.file())?;
    partial.finish().map_err(failed("write"))
}
