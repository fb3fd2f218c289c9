//! Writes GGUF files of version 3, with the widths of numbers that llama.cpp expects: 32 bits wherever they suffice.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::super::error::{ArchiveError, Result};
use super::super::write::{TensorToWrite, refuse_duplicates, replace};
use super::{DEFAULT_ALIGNMENT, MAGIC, MetaValue, Metadata, types};

const VERSION: u32 = 3;

/// Writes a GGUF file. Tensors keep their order, and are asked for their values one by one.
pub fn write_gguf<'a>(
    path: &Path,
    metadata: &Metadata,
    tensors: impl IntoIterator<Item = TensorToWrite<'a>>,
) -> Result<()> {
    let tensors: Vec<TensorToWrite> = tensors.into_iter().collect();
    refuse_duplicates(path, &tensors)?;
    let header = header(path, metadata, &tensors)?;
    replace(path, |file| {
        let failed = |source| ArchiveError::Io { file: path.to_path_buf(), doing: "write", source };
        let mut writer = BufWriter::new(file);
        writer.write_all(&header).map_err(failed)?;
        for tensor in tensors {
            let bytes = tensor.take(path)?;
            writer.write_all(&bytes).map_err(failed)?;
            writer.write_all(&padding(bytes.len())).map_err(failed)?;
        }
        writer.flush().map_err(failed)
    })
}

/// Zeros from a length up to the next multiple of the alignment.
fn padding(length: usize) -> Vec<u8> {
    vec![0; length.next_multiple_of(DEFAULT_ALIGNMENT) - length]
}

fn header(path: &Path, metadata: &Metadata, tensors: &[TensorToWrite]) -> Result<Vec<u8>> {
    let mut to = MAGIC.to_vec();
    to.extend(VERSION.to_le_bytes());
    to.extend((tensors.len() as u64).to_le_bytes());
    to.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata.iter() {
        put_text(key, &mut to);
        put_value(value, &mut to);
    }
    let mut offset = 0usize;
    for tensor in tensors {
        let kind = tensor.element_in(path, types::number)?;
        put_text(tensor.name(), &mut to);
        to.extend((tensor.shape().len() as u32).to_le_bytes());
        tensor.shape().iter().rev().for_each(|&size| to.extend((size as u64).to_le_bytes()));
        to.extend(kind.to_le_bytes());
        to.extend((offset as u64).to_le_bytes());
        let end = offset.checked_add(tensor.bytes(path)?);
        let next = end.and_then(|end| end.checked_next_multiple_of(DEFAULT_ALIGNMENT));
        offset = next.ok_or_else(|| tensor.unwritable(path, "the file would be too large".to_string()))?;
    }
    let length = to.len();
    to.extend(padding(length));
    Ok(to)
}

fn put_text(text: &str, to: &mut Vec<u8>) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// A value with its type before it.
fn put_value(value: &MetaValue, to: &mut Vec<u8>) {
    const LIST: u32 = 9;
    match value {
        MetaValue::U64(number) => match u32::try_from(*number) {
            Ok(number) => put(4, &number.to_le_bytes(), to),
            Err(_) => put(10, &number.to_le_bytes(), to),
        },
        MetaValue::I64(number) => match i32::try_from(*number) {
            Ok(number) => put(5, &number.to_le_bytes(), to),
            Err(_) => put(11, &number.to_le_bytes(), to),
        },
        MetaValue::F64(number) => match *number as f32 {
            narrow if narrow.is_finite() || !number.is_finite() => put(6, &narrow.to_le_bytes(), to),
            _ => put(12, &number.to_le_bytes(), to),
        },
        MetaValue::Bool(flag) => put(7, &[u8::from(*flag)], to),
        MetaValue::Text(text) => {
            put(8, &[], to);
            put_text(text, to);
        }
        MetaValue::Texts(_)
        | MetaValue::Integers(_)
        | MetaValue::Floats(_)
        | MetaValue::Flags(_)
        | MetaValue::Bytes(_)
        | MetaValue::Lists(_) => {
            put(LIST, &[], to);
            put_list(value, to);
        }
    }
}

fn put(kind: u32, bytes: &[u8], to: &mut Vec<u8>) {
    to.extend(kind.to_le_bytes());
    to.extend(bytes);
}

/// The type of a list's values, their number, and the values.
fn put_list(value: &MetaValue, to: &mut Vec<u8>) {
    let mut begin = |kind: u32, count: usize| put(kind, &(count as u64).to_le_bytes(), to);
    match value {
        MetaValue::Texts(texts) => {
            begin(8, texts.len());
            texts.iter().for_each(|text| put_text(text, to));
        }
        MetaValue::Integers(numbers) => {
            let narrow: Option<Vec<i32>> = numbers.iter().map(|&number| i32::try_from(number).ok()).collect();
            begin(if narrow.is_some() { 5 } else { 11 }, numbers.len());
            match narrow {
                Some(narrow) => narrow.iter().for_each(|number| to.extend(number.to_le_bytes())),
                None => numbers.iter().for_each(|number| to.extend(number.to_le_bytes())),
            }
        }
        MetaValue::Floats(numbers) => {
            begin(6, numbers.len());
            numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
        }
        MetaValue::Flags(flags) => {
            begin(7, flags.len());
            to.extend(flags.iter().map(|flag| u8::from(*flag)));
        }
        MetaValue::Bytes(bytes) => {
            begin(0, bytes.len());
            to.extend(bytes);
        }
        MetaValue::Lists(lists) => {
            begin(9, lists.len());
            lists.iter().for_each(|list| put_list(list, to));
        }
        // Lists hold lists only: the reader makes no others.
        MetaValue::U64(_) | MetaValue::I64(_) | MetaValue::F64(_) | MetaValue::Bool(_) | MetaValue::Text(_) => {
            begin(0, 0);
        }
    }
}
