//! safetensors: eight bytes of length, a JSON header with names, shapes and ranges, then the elements.

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde_json::value::RawValue;

use super::Contents;
use super::error::{Fault, Parsed, shortened};
use super::json::Fields;
use super::tensor::{ByteRange, ElementType, Tensor, size_of};

/// The key in the header for the file's metadata.
pub(super) const METADATA: &str = "__metadata__";

/// The format's own limit.
const LARGEST_HEADER: u64 = 100_000_000;

/// Whether a file begins like safetensors.
pub(super) fn is_it(file: &[u8]) -> bool {
    header_length(file).is_some_and(|length| length <= LARGEST_HEADER) && file.get(8) == Some(&b'{')
}

fn header_length(file: &[u8]) -> Option<u64> {
    file.first_chunk::<8>().map(|length| u64::from_le_bytes(*length))
}

/// The names, shapes and ranges of a safetensors file.
pub(super) fn read(file: &[u8]) -> Parsed<Contents> {
    let length = header_length(file).filter(|length| *length <= LARGEST_HEADER);
    let end = length.map(|length| 8 + length as usize);
    let header = end.and_then(|end| file.get(8..end)).ok_or_else(|| {
        let length = header_length(file).unwrap_or_default();
        Fault::damaged(format!("a safetensors header of {length} bytes is claimed, in a file of {}", file.len()))
    })?;
    let header = str::from_utf8(header).map_err(|_| Fault::damaged("the safetensors header is not UTF-8"))?;
    let (metadata, tensors) = parse_header(header)?;
    let data = file.len() - 8 - header.len();
    if let Some((name, _)) = tensors.iter().find(|(_, info)| info.data_offsets.1 > data) {
        return Err(Fault::damaged(format!("it ends beyond the file's {} bytes", file.len())).in_tensor(name));
    }
    let names: Vec<String> = tensors.iter().map(|(name, _)| name.clone()).collect();
    // The format's own crate checks that shapes match ranges, and that ranges have no gaps or overlaps.
    let checked = Metadata::new(None, tensors).map_err(|error| Fault::damaged(format!("{error}")))?;
    if checked.data_len() != data {
        return Err(Fault::damaged(format!(
            "{} bytes of tensors are described, but there are {data}",
            checked.data_len()
        )));
    }
    let mut contents = Contents { metadata, ..Contents::default() };
    for name in names {
        let Some(info) = checked.info(&name) else { continue };
        contents.note(name, tensor(info, 8 + header.len()))?;
    }
    Ok(contents)
}

type Header = (BTreeMap<String, String>, Vec<(String, TensorInfo)>);

/// The header's metadata, and its tensors in order of their offsets.
fn parse_header(header: &str) -> Parsed<Header> {
    let json = |error: serde_json::Error| Fault::damaged(format!("the safetensors header is invalid ({error})"));
    let fields: Fields<&RawValue> = serde_json::from_str(header).map_err(json)?;
    let mut metadata = BTreeMap::new();
    let mut tensors = Vec::with_capacity(fields.0.len());
    for (name, value) in fields.0 {
        if name == METADATA {
            metadata = serde_json::from_str::<Fields<String>>(value.get()).map_err(json)?.0.into_iter().collect();
            continue;
        }
        let info = serde_json::from_str::<TensorInfo>(value.get());
        let info = info
            .map_err(|error| Fault::damaged(format!("its description is not understood ({error})")).in_tensor(&name))?;
        tensors.push((name, info));
    }
    tensors.sort_by(|(name, one), (other_name, other)| (one.data_offsets, name).cmp(&(other.data_offsets, other_name)));
    Ok((metadata, tensors))
}

fn tensor(info: &TensorInfo, data_start: usize) -> Parsed<Tensor> {
    let element = element(info.dtype)?;
    size_of(&info.shape, element)?;
    let location = ByteRange::Stored(data_start + info.data_offsets.0..data_start + info.data_offsets.1);
    Ok(Tensor { element, shape: info.shape.clone(), strides: None, big_endian: false, location })
}

fn element(dtype: Dtype) -> Parsed<ElementType> {
    Ok(match dtype {
        Dtype::F64 => ElementType::F64,
        Dtype::F32 => ElementType::F32,
        Dtype::F16 => ElementType::F16,
        Dtype::BF16 => ElementType::Bf16,
        Dtype::I64 => ElementType::I64,
        Dtype::I32 => ElementType::I32,
        Dtype::I16 => ElementType::I16,
        Dtype::I8 => ElementType::I8,
        Dtype::U8 => ElementType::U8,
        Dtype::BOOL => ElementType::Bool,
        other => return Err(unsupported_element(&format!("{other:?}"))),
    })
}

/// The format's name for an element type; it has none for quantised blocks.
pub(super) fn element_name(element: ElementType) -> Option<&'static str> {
    Some(match element {
        ElementType::F64 => "F64",
        ElementType::F32 => "F32",
        ElementType::F16 => "F16",
        ElementType::Bf16 => "BF16",
        ElementType::I64 => "I64",
        ElementType::I32 => "I32",
        ElementType::I16 => "I16",
        ElementType::I8 => "I8",
        ElementType::U8 => "U8",
        ElementType::Bool => "BOOL",
        ElementType::Blocks(_) => return None,
    })
}

/// The error for an unsupported element type.
pub(super) fn unsupported_element(kind: &str) -> Fault {
    let what = format!("its elements are {}", shortened(kind));
    Fault::unsupported(what, "convert it to f32, f16 or bf16 and save it again")
}
