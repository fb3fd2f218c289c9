//! Cached measurements: the time of a multiplication or a kernel, and the cuBLASLt algorithm.
//!
//! They are stored on disk for all processes, one per line. The first measurement wins, and later processes use it:
//! other algorithms sum in another order, and a resumed or repeated run must produce the same bits.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::compile::cache_folder;

/// A serialised cuBLASLt algorithm and its seconds; for our own kernel, cuBLASLt's seconds in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub algorithm: [u64; 8],
    pub seconds: f64,
}

impl Measured {
    /// Of a kernel, and of the alternative that it was measured against.
    pub fn of_kernel(seconds: f64, others: f64) -> Measured {
        Measured { algorithm: [others.to_bits(), 0, 0, 0, 0, 0, 0, 0], seconds }
    }

    /// The advantage of a kernel in seconds.
    pub fn gain_of_kernel(&self) -> f64 {
        f64::from_bits(self.algorithm[0]) - self.seconds
    }
}

/// For this process.
static KNOWN: Mutex<Option<HashMap<String, Measured>>> = Mutex::new(None);

/// The cached measurement of a key.
pub(super) fn recall(key: &str) -> Option<Measured> {
    with_known(|known| known.get(key).copied())
}

/// Caches a measurement, unless there is one already; returns the one that is valid from now on.
pub(super) fn remember(key: String, measured: Measured) -> Measured {
    with_known(|known| {
        // Only a cache: if it cannot be written, the next start measures again.
        let settled = file().and_then(|path| settle(&path, &key, measured).ok()).unwrap_or(measured);
        *known.entry(key).or_insert(settled)
    })
}

fn file() -> Option<PathBuf> {
    cache_folder().map(|folder| folder.join("products.txt"))
}

/// Accesses the cache, which is read from disk the first time.
fn with_known<T>(look: impl FnOnce(&mut HashMap<String, Measured>) -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    look(
        known.get_or_insert_with(|| {
            parse(&file().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default())
        }),
    )
}

/// Appends a line to the file, unless it has the key; returns the file's measurement. Locks the file.
fn settle(path: &Path, key: &str, measured: Measured) -> std::io::Result<Measured> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut file: File = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if let Some(&there) = parse(&text).get(key) {
        return Ok(there);
    }
    // Terminates a line that was cut short, perhaps by a full disk.
    let break_before = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{break_before}{}", line_of(key, &measured)).as_bytes())?;
    Ok(measured)
}

/// The first line of a key counts.
fn parse(text: &str) -> HashMap<String, Measured> {
    let mut all = HashMap::new();
    for (key, measured) in text.lines().filter_map(read_line) {
        all.entry(key).or_insert(measured);
    }
    all
}

fn line_of(key: &str, measured: &Measured) -> String {
    let mut line = key.to_string();
    for word in measured.algorithm {
        let _ = write!(line, " {word:x}");
    }
    let _ = write!(line, " {:016x}", measured.seconds.to_bits());
    line.push('\n');
    line
}

fn read_line(line: &str) -> Option<(String, Measured)> {
    let mut words = line.split(' ');
    let key = words.next()?.to_string();
    let mut numbers = Vec::new();
    let mut last = "";
    for word in words {
        numbers.push(u64::from_str_radix(word, 16).ok()?);
        last = word;
    }
    // A line that was cut in its last word is ignored.
    if last.len() < 16 {
        return None;
    }
    let (&seconds, algorithm) = numbers.split_last()?;
    Some((key, Measured { algorithm: algorithm.try_into().ok()?, seconds: f64::from_bits(seconds) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: Measured = Measured { algorithm: [0, 1, u64::MAX, 0x1234, 5, 6, 7, 8], seconds: 1.25e-4 };

    #[test]
    fn what_was_measured_is_read_as_it_was_written() {
        let line = line_of("NVIDIA_H200/130100/bf16-f32/1x2", &MEASURED);
        assert_eq!(read_line(line.trim_end()), Some(("NVIDIA_H200/130100/bf16-f32/1x2".to_string(), MEASURED)));
        for broken in
            ["", "key", "key 1 2 3", "key 1 2 3 4 5 6 7 8 x", "key 1 2 3 4 5 6 7 8 9 0", &line[..line.len() - 3]]
        {
            assert_eq!(read_line(broken), None, "{broken}");
        }
    }

    #[test]
    fn who_measured_first_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernels").join("products.txt");
        let slower = Measured { seconds: 2.0 * MEASURED.seconds, ..MEASURED };
        let faster = Measured { seconds: 0.5 * MEASURED.seconds, algorithm: [9; 8] };
        assert_eq!(settle(&path, "one", MEASURED).unwrap(), MEASURED);
        for later in [slower, faster] {
            assert_eq!(settle(&path, "one", later).unwrap(), MEASURED);
        }
        // Lines of other processes stay, and so do those after a truncated line.
        assert_eq!(settle(&path, "two", faster).unwrap(), faster);
        let mut cut = std::fs::read_to_string(&path).unwrap();
        cut.push_str("three 1 2");
        std::fs::write(&path, cut).unwrap();
        assert_eq!(settle(&path, "three", slower).unwrap(), slower);
        let all = parse(&std::fs::read_to_string(&path).unwrap());
        assert_eq!((all.len(), all["one"], all["two"], all["three"]), (3, MEASURED, faster, slower));
    }
}
