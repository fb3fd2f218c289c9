//! The directory of a zip file. PyTorch's checkpoints and NumPy's archives are zip files with mostly uncompressed
//! entries, so all we need is the range of each entry in the mapping.
//!
//! Anything that two readers could interpret differently is an error: duplicate names, overlapping entries, local
//! headers that disagree with the directory.

use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::error::{Fault, Parsed, shortened};
use super::tensor::ByteRange;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const END_64_LOCATOR: u32 = 0x0706_4b50;

const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END_64_BYTES: usize = 56;
const END_64_LOCATOR_BYTES: usize = 20;

/// Marker in 32-bit fields: the number is in the zip64 extra field instead.
const ELSEWHERE: u64 = 0xffff_ffff;

/// The largest expansion of deflate: a run of 258 bytes in two bits.
const MOST_INFLATION: usize = 1032;

/// One entry of a zip file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) content: Content,
}

/// The content of an entry.
#[derive(Debug, Clone)]
pub(super) struct Content {
    /// The range of its bytes in the file, possibly compressed.
    pub(super) data: Range<usize>,
    pub(super) deflated: bool,
    /// Its size when inflated.
    pub(super) size: usize,
    crc: u32,
}

impl Content {
    /// The location of the whole content.
    pub(super) fn location(&self) -> ByteRange {
        match self.deflated {
            true => ByteRange::Deflated(self.clone(), 0..self.size),
            false => ByteRange::Stored(self.data.clone()),
        }
    }

    /// The whole content of a deflated entry, verified against its length and its checksum.
    pub(super) fn inflate(&self, file: &[u8]) -> Parsed<Vec<u8>> {
        let content = self.inflate_start(file, self.size.saturating_add(1))?;
        if content.len() != self.size {
            let more = if content.len() > self.size { "more than" } else { "less than" };
            return Err(Fault::damaged(format!("its compressed bytes give {more} the {} declared", self.size)));
        }
        let mut crc = Crc::new();
        crc.update(&content);
        if crc.sum() != self.crc {
            return Err(Fault::damaged("its checksum does not match"));
        }
        Ok(content)
    }

    /// At most `limit` bytes from the beginning of a deflated entry.
    pub(super) fn inflate_start(&self, file: &[u8], limit: usize) -> Parsed<Vec<u8>> {
        let mut content = Vec::new();
        let expected = limit.min(self.size);
        if content.try_reserve_exact(expected).is_err() {
            return Err(Fault::unsupported(
                format!("there is not enough memory for its {expected} bytes"),
                "free some",
            ));
        }
        DeflateDecoder::new(&file[self.data.clone()])
            .take(limit as u64)
            .read_to_end(&mut content)
            .map_err(|error| Fault::damaged(format!("its compressed bytes cannot be inflated ({error})")))?;
        Ok(content)
    }
}

/// Whether a file begins like a zip file, including one without entries.
pub(super) fn is_it(file: &[u8]) -> bool {
    u32_at(file, 0).is_ok_and(|signature| signature == LOCAL || signature == END)
}

/// The entries of a zip file in the directory's order, without subdirectories.
pub(super) fn entries(file: &[u8]) -> Parsed<Vec<Entry>> {
    let (directory, count) = central_directory(file)?;
    if count > directory.len() / CENTRAL_BYTES {
        return Err(Fault::damaged(format!("the zip directory of {} bytes claims {count} entries", directory.len())));
    }
    let directory_start = directory.start;
    let mut rest = &file[directory];
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        found.push(central_entry(&mut rest)?);
    }
    let mut entries = Vec::with_capacity(count);
    let mut extents = Vec::with_capacity(count);
    for (entry, local) in found {
        let entry = located(&file[..directory_start], entry, local)?;
        extents.push((local..entry.content.data.end, entries.len()));
        entries.push(entry);
    }
    refuse_overlap(extents, &entries)?;
    let mut names = HashSet::with_capacity(count);
    if let Some(twice) = entries.iter().find(|entry| !names.insert(entry.name.as_str())) {
        return Err(Fault::damaged(format!("the zip entry `{}` occurs twice", shortened(&twice.name))));
    }
    entries.retain(|entry| !entry.name.ends_with('/'));
    Ok(entries)
}

fn refuse_overlap(mut extents: Vec<(Range<usize>, usize)>, entries: &[Entry]) -> Parsed<()> {
    extents.sort_by_key(|(extent, _)| extent.start);
    for pair in extents.windows(2) {
        if pair[1].0.start < pair[0].0.end {
            let name = |index: usize| shortened(&entries[index].name);
            let (one, other) = (name(pair[0].1), name(pair[1].1));
            return Err(Fault::damaged(format!("the zip entries `{one}` and `{other}` overlap")));
        }
    }
    Ok(())
}

/// The range of the directory, and its number of entries.
fn central_directory(file: &[u8]) -> Parsed<(Range<usize>, usize)> {
    let end = end_record(file).ok_or_else(|| Fault::damaged("the zip file has no directory at its end"))?;
    let record = &file[end..];
    let mut count = u64::from(u16_at(record, 10)?);
    let mut size = u64::from(u32_at(record, 12)?);
    let mut start = u64::from(u32_at(record, 16)?);
    let mut limit = end;
    let locator = end.checked_sub(END_64_LOCATOR_BYTES).filter(|at| u32_at(file, *at).ok() == Some(END_64_LOCATOR));
    if let Some(locator) = locator {
        let record = usize::try_from(u64_at(file, locator + 8)?).ok();
        let record = record.filter(|at| at.checked_add(END_64_BYTES).is_some_and(|record_end| record_end <= locator));
        let record = record.ok_or_else(|| Fault::damaged("the zip64 directory record is outside of the file"))?;
        if u32_at(file, record)? != END_64 {
            return Err(Fault::damaged("the zip64 directory record is not where it should be"));
        }
        count = u64_at(file, record + 32)?;
        size = u64_at(file, record + 40)?;
        start = u64_at(file, record + 48)?;
        limit = record;
    }
    let range = start.checked_add(size).filter(|directory_end| *directory_end <= limit as u64);
    let range = range.map(|directory_end| start as usize..directory_end as usize);
    let range = range.ok_or_else(|| Fault::damaged("the zip directory is outside of the file"))?;
    Ok((range, usize::try_from(count).unwrap_or(usize::MAX)))
}

/// The offset of the end record: the one whose comment ends at the end of the file.
fn end_record(file: &[u8]) -> Option<usize> {
    let last = file.len().checked_sub(END_BYTES)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    (first..=last).rev().find(|&at| {
        u32_at(file, at).ok() == Some(END)
            && u16_at(file, at + 20).is_ok_and(|comment| at + END_BYTES + usize::from(comment) == file.len())
    })
}

/// Parses one entry of the directory. Its data range is only a length so far; also returns the offset of its local
/// header.
fn central_entry(rest: &mut &[u8]) -> Parsed<(Entry, usize)> {
    let cut = || Fault::damaged("the zip directory is cut short");
    let record = *rest;
    if record.len() < CENTRAL_BYTES || u32_at(record, 0)? != CENTRAL {
        return Err(cut());
    }
    let name_end = CENTRAL_BYTES + usize::from(u16_at(record, 28)?);
    let extra_end = name_end + usize::from(u16_at(record, 30)?);
    let comment_end = extra_end + usize::from(u16_at(record, 32)?);
    let name = record.get(CENTRAL_BYTES..name_end).ok_or_else(cut)?;
    let extra = record.get(name_end..extra_end).ok_or_else(cut)?;
    *rest = record.get(comment_end..).ok_or_else(cut)?;

    let name = str::from_utf8(name).map_err(|_| Fault::damaged("the name of a zip entry is not UTF-8"))?.to_string();
    let mut large = zip64_numbers(extra);
    let mut widened = |narrow: u32| match u64::from(narrow) {
        ELSEWHERE => large.next(),
        narrow => Some(narrow),
    };
    // The order of the zip64 field: size, compressed size, offset; each only if needed.
    let size = widened(u32_at(record, 24)?);
    let compressed = widened(u32_at(record, 20)?);
    let local = widened(u32_at(record, 42)?);
    let fits = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    let (Some(size), Some(compressed), Some(local)) = (fits(size), fits(compressed), fits(local)) else {
        return Err(Fault::damaged(format!("the zip entry `{}` does not say how large it is", shortened(&name))));
    };
    let deflated = check_method(record, &name, size, compressed)?;
    let content = Content { data: 0..compressed, deflated, size, crc: u32_at(record, 16)? };
    Ok((Entry { name, content }, local))
}

/// Whether an entry is deflated; an error if it is neither deflated nor stored, or if its sizes are impossible.
fn check_method(record: &[u8], name: &str, size: usize, compressed: usize) -> Parsed<bool> {
    let name = || shortened(name);
    if u16_at(record, 8)? & 1 != 0 {
        return Err(Fault::unsupported(format!("the zip entry `{}` is encrypted", name()), "decrypt the file first"));
    }
    match u16_at(record, 10)? {
        0 if size != compressed => {
            Err(Fault::damaged(format!("the stored zip entry `{}` claims two sizes, {compressed} and {size}", name())))
        }
        0 => Ok(false),
        8 if size / MOST_INFLATION > compressed => Err(Fault::damaged(format!(
            "the zip entry `{}` claims to inflate from {compressed} bytes to {size}, more than deflate can",
            name()
        ))),
        8 => Ok(true),
        other => Err(Fault::unsupported(
            format!("the zip entry `{}` is compressed by method {other}", name()),
            "save it again, stored or deflated",
        )),
    }
}

/// The numbers in the zip64 extra field.
fn zip64_numbers(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut field: &[u8] = &[];
    while let (Ok(id), Ok(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let end = 4 + usize::from(length);
        let Some(content) = extra.get(4..end) else { break };
        if id == 1 {
            field = content;
            break;
        }
        extra = &extra[end..];
    }
    field.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Finds an entry's bytes after its local header. `file` ends where the directory begins.
fn located(file: &[u8], mut entry: Entry, local: usize) -> Parsed<Entry> {
    let fault = |what: &str| Fault::damaged(format!("the zip entry `{}` {what}", shortened(&entry.name)));
    let header = file.get(local..).filter(|header| header.len() >= LOCAL_BYTES);
    let header = header.ok_or_else(|| fault("is outside of the file"))?;
    if u32_at(header, 0)? != LOCAL {
        return Err(fault("is not where the directory says"));
    }
    let name_end = LOCAL_BYTES + usize::from(u16_at(header, 26)?);
    let data_start = name_end + usize::from(u16_at(header, 28)?);
    let method = if entry.content.deflated { 8 } else { 0 };
    if header.get(LOCAL_BYTES..name_end) != Some(entry.name.as_bytes()) || u16_at(header, 8)? != method {
        return Err(fault("differs from what the directory says"));
    }
    let data_end = data_start.checked_add(entry.content.data.len()).filter(|data_end| *data_end <= header.len());
    let data_end = data_end.ok_or_else(|| fault("is outside of the file"))?;
    entry.content.data = local + data_start..local + data_end;
    Ok(entry)
}

fn bytes_at<const COUNT: usize>(bytes: &[u8], at: usize) -> Parsed<[u8; COUNT]> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<COUNT>());
    found.copied().ok_or_else(|| Fault::damaged("the zip file is cut short"))
}

fn u16_at(bytes: &[u8], at: usize) -> Parsed<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Parsed<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Parsed<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}
