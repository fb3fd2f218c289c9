//! Files of vectors: NumPy's `.npy`, and Parquet with a column for the inputs.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use vitreous_files::partial::PartialFile;

use crate::failure::Failure;

/// Bytes of the header of a `.npy`: room for any number of rows.
const NPY_HEADER: usize = 128;
/// The most bytes of a row group of Parquet, which is in memory until it is written.
const BYTES_OF_GROUP: usize = 1 << 25;

/// A file that is being written. It gets its name when it is complete.
pub struct VectorFile {
    partial: PartialFile,
    width: usize,
    count: usize,
    format: Format,
}

enum Format {
    Npy(BufWriter<std::fs::File>),
    Parquet {
        writer: Box<SerializedFileWriter<std::fs::File>>,
        inputs: Vec<ByteArray>,
        vectors: Vec<f32>,
        bytes: usize,
    },
}

impl VectorFile {
    /// Refuses a name that says no format, or a file that is there, unless it is to be overwritten; gives the name's ending.
    pub fn check(path: &Path, force: bool) -> Result<String, Failure> {
        if path.exists() && !force {
            return Err(Failure::input(anyhow!("{}: the file exists; --force overwrites it", path.display())));
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        if !["npy", "parquet"].contains(&ending.as_str()) {
            return Err(Failure::input(anyhow!("{}: name a file that ends in .npy or .parquet", path.display())));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Failure::input(anyhow!("{}: there is no directory {}", path.display(), folder.display())));
        }
        Ok(ending)
    }

    /// Begins a file; its name tells the format. An existing one is overwritten only by force.
    pub fn create(path: &Path, kind: &str, width: usize, force: bool) -> Result<VectorFile, Failure> {
        let written = |error: std::io::Error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display()));
        let ending = VectorFile::check(path, force)?;
        let mut partial = PartialFile::create(path).map_err(written)?;
        let file = partial.file().try_clone().map_err(written)?;
        let format = match ending.as_str() {
            "npy" => {
                let mut file = BufWriter::new(file);
                file.write_all(&[0; NPY_HEADER]).map_err(written)?;
                Format::Npy(file)
            }
            _ => {
                let failed = failed(path);
                let schema = schema(kind).map_err(&failed)?;
                let properties = Arc::new(WriterProperties::builder().set_dictionary_enabled(false).build());
                let writer = SerializedFileWriter::new(file, schema, properties).map_err(failed)?;
                Format::Parquet { writer: Box::new(writer), inputs: Vec::new(), vectors: Vec::new(), bytes: 0 }
            }
        };
        Ok(VectorFile { partial, width, count: 0, format })
    }

    /// Adds a row.
    pub fn push(&mut self, input: &str, vector: &[f32]) -> Result<(), Failure> {
        self.count += 1;
        match &mut self.format {
            Format::Npy(file) => {
                let path = self.partial.path();
                let written = |error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display()));
                vector.iter().try_for_each(|number| file.write_all(&number.to_le_bytes())).map_err(written)
            }
            Format::Parquet { writer, inputs, vectors, bytes } => {
                inputs.push(ByteArray::from(input));
                vectors.extend_from_slice(vector);
                *bytes += input.len() + size_of_val(vector);
                match *bytes >= BYTES_OF_GROUP {
                    true => {
                        *bytes = 0;
                        let failed = failed(self.partial.path());
                        write_group(writer, inputs, vectors, self.width).map_err(failed)
                    }
                    false => Ok(()),
                }
            }
        }
    }

    /// Completes the file.
    pub fn finish(self) -> Result<(), Failure> {
        let VectorFile { partial, width, count, format } = self;
        let path = partial.path().to_path_buf();
        let written = |error: std::io::Error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display()));
        match format {
            Format::Npy(mut file) => {
                file.seek(SeekFrom::Start(0))
                    .and_then(|_| file.write_all(&npy_header(count, width)))
                    .map_err(written)?;
                file.flush().map_err(written)?;
            }
            Format::Parquet { mut writer, mut inputs, mut vectors, bytes: _ } => {
                if !inputs.is_empty() {
                    write_group(&mut writer, &mut inputs, &mut vectors, width).map_err(failed(&path))?;
                }
                writer.close().map_err(failed(&path))?;
            }
        }
        partial.finish().map_err(written)?;
        say!("wrote {count} vectors of {width} dimensions to {}", path.display());
        Ok(())
    }
}

fn failed(path: &Path) -> impl Fn(ParquetError) -> Failure {
    move |error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display()))
}

/// The header of a matrix of f32, always of the same length.
fn npy_header(rows: usize, columns: usize) -> Vec<u8> {
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(((NPY_HEADER - 10) as u16).to_le_bytes());
    header.extend(format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}").bytes());
    header.resize(NPY_HEADER - 1, b' ');
    header.push(b'\n');
    header
}

/// The input as text, and a list of floats.
fn schema(kind: &str) -> Result<Arc<Type>, ParquetError> {
    let input = Type::primitive_type_builder(kind, Physical::BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::String))
        .build()?;
    let element =
        Type::primitive_type_builder("element", Physical::FLOAT).with_repetition(Repetition::REQUIRED).build()?;
    let list = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let embedding = Type::group_type_builder("embedding")
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(list)])
        .build()?;
    let fields = vec![Arc::new(input), Arc::new(embedding)];
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?))
}

fn write_group(
    writer: &mut SerializedFileWriter<std::fs::File>,
    inputs: &mut Vec<ByteArray>,
    vectors: &mut Vec<f32>,
    width: usize,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    if let Some(mut column) = group.next_column()? {
        column.typed::<ByteArrayType>().write_batch(inputs, None, None)?;
        column.close()?;
    }
    if let Some(mut column) = group.next_column()? {
        // Each number is there (level 1), and all but the first of a row repeat its list.
        let present = vec![1i16; vectors.len()];
        let repeated: Vec<i16> = (0..vectors.len()).map(|index| i16::from(index % width != 0)).collect();
        column.typed::<FloatType>().write_batch(vectors, Some(&present), Some(&repeated))?;
        column.close()?;
    }
    group.close()?;
    inputs.clear();
    vectors.clear();
    Ok(())
}
