//! PyTorch's checkpoints: a pickle that describes tensors, and the storages that they are views of.
//!
//! Since PyTorch 1.6 a checkpoint is a zip file with `data.pkl` and one `data/<key>` per storage. Before, it was a
//! stream of pickles followed by the storages. TorchScript's archives are such zip files, too, with the code of the model beside
//! its tensors; the code is neither read nor run.

mod layout;
mod walk;

use std::borrow::Cow;
use std::collections::HashMap;

use super::Contents;
use super::error::{Fault, Parsed, shortened};
use super::pickle::{self, Object, Pickle, Value};
use super::tensor::ByteRange;
use super::zip::{Content, Entry};
use layout::StorageId;

/// The magic number of streams, a long integer: `0x1950a86a20f9469cfc6c`.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const STREAM_VERSION: i64 = 1001;

const CONVERT: &str = "load it where it was made and save its state_dict as safetensors";

/// Whether a zip file contains a checkpoint.
pub(super) fn is_it(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| prefix(entry).is_some())
}

/// The checkpoint's directory inside its zip file, with its slash, if this entry is the checkpoint's pickle.
fn prefix(entry: &Entry) -> Option<&str> {
    let prefix = entry.name.strip_suffix("data.pkl")?;
    let folder = prefix.strip_suffix('/').unwrap_or("");
    (prefix.is_empty() || (!folder.is_empty() && !folder.contains('/'))).then_some(prefix)
}

/// The current format: a zip file.
pub(super) fn read_zip(file: &[u8], entries: &[Entry]) -> Parsed<Contents> {
    let mut pickles = entries.iter().filter_map(|entry| Some((prefix(entry)?, &entry.content)));
    let (Some((prefix, pickle)), None) = (pickles.next(), pickles.next()) else {
        return Err(Fault::unsupported("the file holds more than one checkpoint", CONVERT));
    };
    let storages: HashMap<&str, &Content> =
        entries.iter().filter_map(|entry| Some((entry.name.strip_prefix(prefix)?, &entry.content))).collect();
    let big_endian = match storages.get("byteorder") {
        Some(content) => *whole(file, content)? == *b"big",
        None => false,
    };
    let bytes = whole(file, pickle)?;
    let pickle = pickle::parse(&bytes)?;
    let storage = |id: &StorageId| -> Parsed<ByteRange> {
        let content = storages.get(format!("data/{}", id.key).as_str());
        let content =
            content.ok_or_else(|| Fault::damaged(format!("its storage `{}` is missing", shortened(id.key))))?;
        Ok(content.location())
    };
    walk::tensors(&pickle, big_endian, &storage)
}

/// The whole content of a small entry.
fn whole<'a>(file: &'a [u8], content: &Content) -> Parsed<Cow<'a, [u8]>> {
    if content.size > pickle::LARGEST {
        return Err(Fault::unsupported(format!("the checkpoint's pickle has {} bytes", content.size), CONVERT));
    }
    match content.deflated {
        true => content.inflate(file).map(Into::into),
        false => Ok(file[content.data.clone()].into()),
    }
}

/// The stream format from before PyTorch 1.6.
pub(super) fn read_stream(file: &[u8]) -> Parsed<Contents> {
    let mut at = 0;
    let mut next = || -> Parsed<Pickle> {
        let pickle = pickle::parse(&file[at..])?;
        at += pickle.length;
        Ok(pickle)
    };
    let magic = next()?;
    if !matches!(magic.root, Value::LongInt(span) if magic.raw(span) == MAGIC) {
        return Err(Fault::unsupported("this is a pickle, but not a checkpoint of PyTorch", CONVERT));
    }
    if next()?.root != Value::Int(STREAM_VERSION) {
        return Err(Fault::unsupported("this checkpoint is of a version that PyTorch never released", CONVERT));
    }
    // The description of the machine does not matter: storages are always little-endian.
    next()?;
    let pickle = next()?;
    let keys = next()?;
    let locations = stream_storages(file, at, &pickle, &keys)?;
    let storage = |id: &StorageId| -> Parsed<ByteRange> {
        let location = locations.get(id.key).cloned();
        location.ok_or_else(|| Fault::damaged(format!("its storage `{}` is missing", shortened(id.key))))
    };
    walk::tensors(&pickle, false, &storage)
}

/// The range of each storage. Each is a count and its elements, whose width only the references to it tell.
fn stream_storages<'a>(
    file: &[u8],
    mut at: usize,
    pickle: &Pickle<'a>,
    keys: &Pickle<'a>,
) -> Parsed<HashMap<&'a str, ByteRange>> {
    let mut widths = HashMap::new();
    for object in pickle.objects() {
        if let Object::Persistent(id) = object {
            let id = StorageId::parse(pickle, *id)?;
            widths.insert(id.key, id.width()?);
        }
    }
    let keys_listed = keys.sequence(keys.root).ok_or_else(|| Fault::damaged("the list of storages is missing"))?;
    let mut locations = HashMap::new();
    for key in keys_listed {
        let key = keys
            .text(*key)
            .ok_or_else(|| Fault::damaged("the list of storages names one by something other than text"))?;
        let fault = |what: &str| Fault::damaged(format!("the storage `{}` {what}", shortened(key)));
        let width = *widths.get(key).ok_or_else(|| fault("is used by no tensor"))?;
        let count = file[at..].first_chunk::<8>().ok_or_else(|| fault("is missing"))?;
        let start = at + 8;
        let bytes = usize::try_from(i64::from_le_bytes(*count)).ok().and_then(|count| count.checked_mul(width));
        let end = bytes.and_then(|bytes| start.checked_add(bytes)).filter(|end| *end <= file.len());
        at = end.ok_or_else(|| fault("ends beyond the file"))?;
        if locations.insert(key, ByteRange::Stored(start..at)).is_some() {
            return Err(fault("occurs twice"));
        }
    }
    Ok(locations)
}
