//! Storages and the tensors that are views of them, checked against each other.

use super::CONVERT;
use crate::archive::error::{Fault, Parsed};
use crate::archive::pickle::{Object, Pickle, Value};
use crate::archive::safetensors::unsupported_element;
use crate::archive::tensor::{ByteRange, ElementType, Tensor, size_of};

/// A pickle's reference to a storage: `('storage', torch.FloatStorage, key, location, count)`, and in old streams a
/// part of it.
pub(super) struct StorageId<'a> {
    class: String,
    pub(super) key: &'a str,
    /// In elements.
    count: usize,
    /// Start of the part, in elements. Its length is the count.
    start: usize,
}

impl<'a> StorageId<'a> {
    pub(super) fn parse(pickle: &Pickle<'a>, id: Value) -> Parsed<StorageId<'a>> {
        let malformed = || Fault::damaged("the description of a storage is invalid");
        let parts = pickle.sequence(id).ok_or_else(malformed)?;
        let [kind, class, key, _location, count, rest @ ..] = parts else { return Err(malformed()) };
        if pickle.text(*kind) != Some("storage") {
            return Err(malformed());
        }
        let class = pickle.global(*class).ok_or_else(malformed)?;
        let key = pickle.text(*key).ok_or_else(malformed)?;
        let (count, start) = match rest.first().and_then(|view| pickle.sequence(*view)) {
            Some([_key, start, length, ..]) => (size(*length)?, size(*start)?),
            Some(_) => return Err(malformed()),
            None => (size(*count)?, 0),
        };
        Ok(StorageId { class, key, count, start })
    }

    fn element(&self) -> Parsed<ElementType> {
        Ok(match self.kind() {
            "DoubleStorage" => ElementType::F64,
            "FloatStorage" => ElementType::F32,
            "HalfStorage" => ElementType::F16,
            "BFloat16Storage" => ElementType::Bf16,
            "LongStorage" => ElementType::I64,
            "IntStorage" => ElementType::I32,
            "ShortStorage" => ElementType::I16,
            "CharStorage" => ElementType::I8,
            "ByteStorage" | "UntypedStorage" | "_UntypedStorage" => ElementType::U8,
            "BoolStorage" => ElementType::Bool,
            _ => return Err(unsupported_element(&format!("those of `{}`", self.class))),
        })
    }

    /// Bytes per element, of unsupported types as well: streams contain their storages too.
    pub(super) fn width(&self) -> Parsed<usize> {
        match self.kind() {
            "ComplexDoubleStorage" => Ok(16),
            "ComplexFloatStorage" => Ok(8),
            "QInt32Storage" => Ok(4),
            "QInt8Storage" | "QUInt8Storage" => Ok(1),
            _ => self.element().map(ElementType::bytes),
        }
    }

    /// The class's own name: `FloatStorage`.
    fn kind(&self) -> &str {
        let name = self.class.strip_prefix("torch.").unwrap_or("");
        name.strip_prefix("cuda.").or(name.strip_prefix("storage.")).unwrap_or(name)
    }

    /// The part of the storage's bytes.
    fn of(&self, whole: ByteRange) -> Parsed<ByteRange> {
        let bytes = self.width()?;
        let start = self.start.checked_mul(bytes);
        let end = self.start.checked_add(self.count).and_then(|end| end.checked_mul(bytes));
        let part = start.zip(end).and_then(|(start, end)| whole.part(start..end));
        part.ok_or_else(|| {
            let there = whole.bytes() / bytes;
            Fault::damaged(format!("its storage should have {} elements, but has {there}", self.count))
        })
    }
}

/// PyTorch's names of element types.
fn dtype_element(dtype: &str) -> Parsed<ElementType> {
    Ok(match dtype {
        "torch.float64" => ElementType::F64,
        "torch.float32" => ElementType::F32,
        "torch.float16" => ElementType::F16,
        "torch.bfloat16" => ElementType::Bf16,
        "torch.int64" => ElementType::I64,
        "torch.int32" => ElementType::I32,
        "torch.int16" => ElementType::I16,
        "torch.int8" => ElementType::I8,
        "torch.uint8" => ElementType::U8,
        "torch.bool" => ElementType::Bool,
        _ => return Err(unsupported_element(&format!("`{dtype}`"))),
    })
}

/// The arguments of `_rebuild_tensor`, with which those of its later versions begin: storage, offset, size, stride.
pub(super) struct Rebuild<'p> {
    pub(super) storage: Value,
    pub(super) offset: Value,
    pub(super) size: &'p [Value],
    pub(super) stride: &'p [Value],
    /// Only in the third version: for element types without a storage class.
    pub(super) dtype: Option<Value>,
}

impl Rebuild<'_> {
    /// The tensor, if it lies within its storage.
    pub(super) fn tensor(
        &self,
        pickle: &Pickle,
        big_endian: bool,
        storage: &dyn Fn(&StorageId) -> Parsed<ByteRange>,
    ) -> Parsed<Tensor> {
        let Some(Object::Persistent(id)) = pickle.object(self.storage) else {
            return Err(Fault::unsupported(depends(pickle, self.storage), CONVERT));
        };
        let id = StorageId::parse(pickle, *id)?;
        let location = id.of(storage(&id)?)?;
        let element = match self.dtype {
            Some(dtype) => dtype_element(&pickle.global(dtype).unwrap_or_else(|| pickle.show(dtype)))?,
            None => id.element()?,
        };
        let shape = sizes(self.size)?;
        let strides = sizes(self.stride)?;
        if shape.len() != strides.len() {
            return Err(Fault::damaged(format!("it has {} dimensions, but {} strides", shape.len(), strides.len())));
        }
        let (elements, _) = size_of(&shape, element)?;
        let extent = extent(elements, &shape, &strides, size(self.offset)?, location.bytes() / element.bytes())?;
        let location = location.part(extent.start * element.bytes()..extent.end * element.bytes());
        let location = location.ok_or_else(|| Fault::damaged("it reaches beyond its storage"))?;
        let strides = (!is_contiguous(&shape, &strides)).then_some(strides);
        Ok(Tensor { element, shape, strides, big_endian, location })
    }
}

/// The message for a tensor that would need code to be executed.
pub(super) fn depends(pickle: &Pickle, value: Value) -> String {
    format!("it depends on {}, and nothing that a checkpoint asks for is ever run", pickle.show(value))
}

/// From the first element to one past the last, in elements of the storage.
fn extent(
    elements: usize,
    shape: &[usize],
    strides: &[usize],
    offset: usize,
    storage_elements: usize,
) -> Parsed<std::ops::Range<usize>> {
    if elements == 0 {
        return Ok(0..0);
    }
    // Without this, a storage of one number could be expanded to fill the memory.
    if elements > storage_elements {
        let what = format!("it has {elements} elements, which repeat the {storage_elements} of its storage");
        return Err(Fault::unsupported(what, "call .contiguous() on it before it is saved"));
    }
    let last = shape.iter().zip(strides).try_fold(offset, |last, (size, stride)| {
        (size - 1).checked_mul(*stride).and_then(|distance| last.checked_add(distance))
    });
    match last {
        Some(last) if last < storage_elements => Ok(offset..last + 1),
        _ => Err(Fault::damaged(format!(
            "its shape {shape:?}, strides {strides:?} and offset {offset} reach beyond its storage of {storage_elements}"
        ))),
    }
}

fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
}

fn sizes(values: &[Value]) -> Parsed<Vec<usize>> {
    // Checked before the copy: one long tuple may be the shape of many tensors.
    if values.len() > crate::archive::tensor::MOST_DIMENSIONS {
        return Err(Fault::damaged(format!("{} dimensions are claimed", values.len())));
    }
    values.iter().map(|value| size(*value)).collect()
}

fn size(value: Value) -> Parsed<usize> {
    let size = match value {
        Value::Int(number) => usize::try_from(number).ok(),
        _ => None,
    };
    size.ok_or_else(|| Fault::damaged("a size, stride or offset is not a natural number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_reach_from_the_first_element_to_the_last() {
        assert_eq!(extent(6, &[2, 3], &[3, 1], 4, 10).unwrap(), 4..10);
        assert_eq!(extent(6, &[2, 3], &[1, 2], 0, 6).unwrap(), 0..6);
        assert_eq!(extent(2, &[2], &[5], 1, 7).unwrap(), 1..7);
        assert_eq!(extent(0, &[0, 3], &[usize::MAX, 1], usize::MAX, 0).unwrap(), 0..0);
    }

    #[test]
    fn extents_beyond_the_storage_are_refused_even_where_they_overflow() {
        assert!(extent(6, &[2, 3], &[3, 1], 5, 10).is_err());
        assert!(extent(2, &[2], &[6], 1, 7).is_err());
        assert!(extent(3, &[3], &[usize::MAX], 0, 7).is_err());
        assert!(extent(2, &[2], &[1], usize::MAX, 7).is_err());
        assert!(extent(8, &[8], &[0], 0, 7).is_err());
    }

    #[test]
    fn dimensions_of_one_do_not_make_a_tensor_strided() {
        assert!(is_contiguous(&[2, 1, 3], &[3, 99, 1]));
        assert!(is_contiguous(&[], &[]));
        assert!(!is_contiguous(&[2, 3], &[1, 2]));
        assert!(!is_contiguous(&[3], &[0]));
    }
}
