//! Reads the header of a GGUF file: metadata, and what tensors there are.
//!
//! ```text
//! "GGUF", version u32, tensors u64, keys u64
//! key:     name, type u32, value           a text: bytes u64, UTF-8;  a list: type u32, count u64, values
//! tensor:  name, axes u32, the size of each axis u64 from the innermost on, type u32, offset u64
//! zeros up to a multiple of `general.alignment`, then the tensors' bytes
//! ```
//!
//! Every count is compared with the bytes that are left before memory is taken for it.

use std::collections::HashSet;

use super::super::Contents;
use super::super::error::{Fault, Parsed, shortened};
use super::super::tensor::{ByteRange, Tensor, size_of};
use super::{DEFAULT_ALIGNMENT, MAGIC, MetaValue, Metadata, types};

/// ggml's own limit.
const MOST_AXES: u32 = 4;
/// Lists within lists: none of the known keys has any.
const DEEPEST_LIST: usize = 4;
/// The fewest bytes of a key with its value, and of a tensor's description.
const SMALLEST_KEY: usize = 8 + 4 + 1;
const SMALLEST_TENSOR: usize = 8 + 4 + 4 + 8;
const LARGEST_ALIGNMENT: u64 = 1 << 20;

/// Whether a file begins like GGUF.
pub(crate) fn is_it(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

/// The metadata and tensors of a GGUF file.
pub(crate) fn read(file: &[u8]) -> Parsed<Contents> {
    let mut cursor = Cursor { file, at: MAGIC.len() };
    check_version(cursor.u32()?)?;
    let (tensors, keys) = (cursor.u64()?, cursor.u64()?);
    let keys = cursor.bounded(keys, SMALLEST_KEY, "keys")?;
    let metadata = read_metadata(&mut cursor, keys)?;
    refuse_splits(&metadata)?;
    let tensors = cursor.bounded(tensors, SMALLEST_TENSOR, "tensors")?;
    let mut described = Vec::with_capacity(tensors);
    let mut names = HashSet::with_capacity(tensors);
    for _ in 0..tensors {
        let tensor = Described::read(&mut cursor)?;
        if !names.insert(tensor.name.clone()) {
            return Err(Fault::damaged("it occurs twice").in_tensor(&tensor.name));
        }
        described.push(tensor);
    }
    let alignment = alignment(&metadata)?;
    let start = cursor.at.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    let mut contents = Contents::default();
    for tensor in described {
        let found = tensor.place(start, alignment, file.len());
        contents.note(tensor.name, found)?;
    }
    contents.gguf = Some(metadata);
    Ok(contents)
}

fn check_version(version: u32) -> Parsed<()> {
    match version {
        2 | 3 => Ok(()),
        1 => Err(Fault::unsupported("this is GGUF of version 1, of 2023", "use a file of version 2 or 3")),
        _ if matches!(version.swap_bytes(), 1..=3) => Err(Fault::unsupported(
            "this is a GGUF file for big-endian machines",
            "use the file for little-endian machines, which all usual ones are",
        )),
        other => Err(Fault::unsupported(format!("this is GGUF of version {other}"), "versions 2 and 3 are read")),
    }
}

fn read_metadata(cursor: &mut Cursor, keys: usize) -> Parsed<Metadata> {
    let mut metadata = Metadata::default();
    let mut names = HashSet::with_capacity(keys);
    for _ in 0..keys {
        let key = cursor.name("a key")?;
        let kind = cursor.u32()?;
        let value = cursor.value(kind, 0).map_err(|fault| fault.in_key(&key))?;
        if !names.insert(key.clone()) {
            return Err(Fault::damaged(format!("the key `{}` occurs twice", shortened(&key))));
        }
        metadata.push(key, value);
    }
    Ok(metadata)
}

/// A model may be cut into several files; one of them alone is no model.
fn refuse_splits(metadata: &Metadata) -> Parsed<()> {
    match metadata.unsigned("split.count") {
        Some(count) if count > 1 => Err(Fault::unsupported(
            format!("this is one of {count} files of a model"),
            "join them with `llama-gguf-split --merge FIRST OUT.gguf`",
        )),
        _ => Ok(()),
    }
}

fn alignment(metadata: &Metadata) -> Parsed<usize> {
    const KEY: &str = "general.alignment";
    if metadata.get(KEY).is_none() {
        return Ok(DEFAULT_ALIGNMENT);
    }
    match metadata.unsigned(KEY) {
        Some(alignment) if alignment.is_power_of_two() && alignment <= LARGEST_ALIGNMENT => Ok(alignment as usize),
        _ => Err(Fault::damaged(format!("`{KEY}` is no power of two up to {LARGEST_ALIGNMENT}"))),
    }
}

/// A tensor as the header describes it.
struct Described {
    name: String,
    /// The outermost axis first, as everywhere here.
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

impl Described {
    fn read(cursor: &mut Cursor) -> Parsed<Described> {
        let name = cursor.name("a tensor")?;
        let axes = cursor.u32()?;
        if axes > MOST_AXES {
            return Err(Fault::damaged(format!("it has {axes} axes, more than {MOST_AXES}")).in_tensor(&name));
        }
        let mut shape = (0..axes).map(|_| cursor.u64()).collect::<Parsed<Vec<u64>>>()?;
        shape.reverse();
        Ok(Described { name, shape, kind: cursor.u32()?, offset: cursor.u64()? })
    }

    fn place(&self, start: usize, alignment: usize, file: usize) -> Parsed<Tensor> {
        let element = types::element(self.kind)?;
        let shape: Option<Vec<usize>> = self.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let shape = shape.ok_or_else(|| Fault::damaged(format!("the shape {:?} is too large", self.shape)))?;
        let (_, bytes) = size_of(&shape, element)?;
        if !self.offset.is_multiple_of(alignment as u64) {
            return Err(Fault::damaged(format!("its offset {} is no multiple of {alignment}", self.offset)));
        }
        let begin = usize::try_from(self.offset).ok().and_then(|offset| start.checked_add(offset));
        let end = begin.and_then(|begin| begin.checked_add(bytes)).filter(|&end| end <= file);
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(Fault::damaged(format!("{bytes} bytes from {} on end beyond the file's {file}", self.offset)));
        };
        let location = ByteRange::Stored(begin..end);
        Ok(Tensor { element, shape, strides: None, big_endian: false, location })
    }
}

/// A place in the header.
struct Cursor<'f> {
    file: &'f [u8],
    at: usize,
}

impl<'f> Cursor<'f> {
    fn take(&mut self, count: usize) -> Parsed<&'f [u8]> {
        let end = self.at.checked_add(count);
        let bytes = end.and_then(|end| self.file.get(self.at..end));
        let bytes = bytes.ok_or_else(|| {
            Fault::damaged(format!("the header goes on for {count} bytes at {} of {}", self.at, self.file.len()))
        })?;
        self.at += count;
        Ok(bytes)
    }

    fn number<const WIDTH: usize>(&mut self) -> Parsed<[u8; WIDTH]> {
        let bytes = self.take(WIDTH)?;
        bytes.try_into().map_err(|_| Fault::damaged("the header is cut short"))
    }

    fn u32(&mut self) -> Parsed<u32> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn u64(&mut self) -> Parsed<u64> {
        Ok(u64::from_le_bytes(self.number()?))
    }

    /// A count of things of at least so many bytes each, if the rest of the file can hold them.
    fn bounded(&self, count: u64, smallest: usize, what: &str) -> Parsed<usize> {
        let left = self.file.len() - self.at;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= left / smallest)
            .ok_or_else(|| Fault::damaged(format!("the header claims {count} {what}, but only {left} bytes follow")))
    }

    fn bytes(&mut self) -> Parsed<&'f [u8]> {
        let length = self.u64()?;
        let length = self.bounded(length, 1, "bytes of text")?;
        self.take(length)
    }

    fn name(&mut self, of: &str) -> Parsed<String> {
        let name = str::from_utf8(self.bytes()?);
        name.map(str::to_string).map_err(|_| Fault::damaged(format!("the name of {of} is not UTF-8")))
    }

    fn text(&mut self) -> Parsed<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn flag(&mut self) -> Parsed<bool> {
        match self.number::<1>()?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault::damaged(format!("{other} is neither true nor false"))),
        }
    }

    fn value(&mut self, kind: u32, depth: usize) -> Parsed<MetaValue> {
        Ok(match kind {
            0 => MetaValue::U64(u8::from_le_bytes(self.number()?).into()),
            1 => MetaValue::I64(i8::from_le_bytes(self.number()?).into()),
            2 => MetaValue::U64(u16::from_le_bytes(self.number()?).into()),
            3 => MetaValue::I64(i16::from_le_bytes(self.number()?).into()),
            4 => MetaValue::U64(self.u32()?.into()),
            5 => MetaValue::I64(i32::from_le_bytes(self.number()?).into()),
            6 => MetaValue::F64(f32::from_le_bytes(self.number()?).into()),
            7 => MetaValue::Bool(self.flag()?),
            8 => MetaValue::Text(self.text()?),
            9 => self.list(depth)?,
            10 => MetaValue::U64(self.u64()?),
            11 => MetaValue::I64(i64::from_le_bytes(self.number()?)),
            12 => MetaValue::F64(f64::from_le_bytes(self.number()?)),
            other => return Err(Fault::damaged(format!("its value is of type {other}, which GGUF does not have"))),
        })
    }

    fn list(&mut self, depth: usize) -> Parsed<MetaValue> {
        let kind = self.u32()?;
        let count = self.u64()?;
        let smallest = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            9 => 12,
            _ => 8,
        };
        let count = self.bounded(count, smallest, "values of a list")?;
        let integer = |bytes: u64| {
            i64::try_from(bytes).map_err(|_| Fault::damaged(format!("{bytes} is larger than any number of a list")))
        };
        Ok(match kind {
            0 => MetaValue::Bytes(self.take(count)?.to_vec()),
            1 => MetaValue::Integers(self.numbers(count, |raw| Ok(i8::from_le_bytes(raw).into()))?),
            2 => MetaValue::Integers(self.numbers(count, |raw| Ok(u16::from_le_bytes(raw).into()))?),
            3 => MetaValue::Integers(self.numbers(count, |raw| Ok(i16::from_le_bytes(raw).into()))?),
            4 => MetaValue::Integers(self.numbers(count, |raw| Ok(u32::from_le_bytes(raw).into()))?),
            5 => MetaValue::Integers(self.numbers(count, |raw| Ok(i32::from_le_bytes(raw).into()))?),
            6 => MetaValue::Floats(self.numbers(count, |raw| Ok(f32::from_le_bytes(raw)))?),
            7 => MetaValue::Flags((0..count).map(|_| self.flag()).collect::<Parsed<_>>()?),
            8 => MetaValue::Texts((0..count).map(|_| self.text()).collect::<Parsed<_>>()?),
            9 if depth < DEEPEST_LIST => {
                MetaValue::Lists((0..count).map(|_| self.list(depth + 1)).collect::<Parsed<_>>()?)
            }
            9 => return Err(Fault::damaged(format!("lists are nested deeper than {DEEPEST_LIST}"))),
            10 => MetaValue::Integers(self.numbers(count, |raw| integer(u64::from_le_bytes(raw)))?),
            11 => MetaValue::Integers(self.numbers(count, |raw| Ok(i64::from_le_bytes(raw)))?),
            12 => MetaValue::Floats(self.numbers(count, |raw| Ok(f64::from_le_bytes(raw) as f32))?),
            other => return Err(Fault::damaged(format!("it lists values of type {other}, which GGUF does not have"))),
        })
    }

    fn numbers<const WIDTH: usize, T>(
        &mut self,
        count: usize,
        convert: impl Fn([u8; WIDTH]) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let (numbers, _) = self.take(count.saturating_mul(WIDTH))?.as_chunks::<WIDTH>();
        numbers.iter().map(|raw| convert(*raw)).collect()
    }
}
