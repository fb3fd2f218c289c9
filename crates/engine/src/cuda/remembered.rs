//! Cached measurements: the time of a multiplication or a kernel, and the cuBLASLt algorithm.
//!
//! They are stored on disk for all processes, one per line. The first measurement wins, and later processes use it:
//! other algorithms sum in another order, and a resumed or repeated run must produce the same bits.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write as _};
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

/// The measurements of a file that a process has read.
#[derive(Default)]
struct Known {
    measurements: HashMap<String, Measured>,
    /// How much of the file was read: processes only append.
    read: u64,
}

/// For this process.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// The cached measurement of a key.
pub(super) fn recall(key: &str) -> Option<Measured> {
    with_known(|known| known.measurements.get(key).copied())
}

/// Caches a measurement, unless there is one already; returns the one that is valid from now on.
pub(super) fn remember(key: String, measured: Measured) -> Measured {
    with_known(|known| {
        // Only a cache: if it cannot be written, the next start measures again.
        if let Some(path) = file() {
            let _ = settle(&path, known, &key, measured);
        }
        *known.measurements.entry(key).or_insert(measured)
    })
}

fn file() -> Option<PathBuf> {
    cache_folder().map(|folder| folder.join("products.txt"))
}

/// Accesses the cache, which is read from disk the first time.
fn with_known<T>(look: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    look(known.get_or_insert_with(|| {
        let text = file().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let mut known = Known::default();
        known.read(&text);
        known
    }))
}

/// Appends a line to the file, unless it has the key; afterwards what is known is what the file says. Locks the file.
fn settle(path: &Path, known: &mut Known, key: &str, measured: Measured) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut file: File = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.lock()?;
    // A file that is shorter than before was removed meanwhile, and begins anew.
    known.read = if file.metadata()?.len() < known.read { 0 } else { known.read };
    file.seek(SeekFrom::Start(known.read))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    known.read(&text);
    if known.measurements.contains_key(key) {
        return Ok(());
    }
    // Terminates a line that was cut short, perhaps by a full disk.
    let break_before = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let line = format!("{break_before}{}", line_of(key, &measured));
    file.write_all(line.as_bytes())?;
    known.read(&line);
    Ok(())
}

impl Known {
    /// Takes over what follows in the file. The first line of a key counts.
    fn read(&mut self, text: &str) {
        self.read += text.len() as u64;
        for (key, measured) in text.lines().filter_map(read_line) {
            self.measurements.entry(key).or_insert(measured);
        }
    }
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
        let [mut one, mut other] = [Known::default(), Known::default()];
        let settled = |process: &mut Known, key: &str, measured: Measured| {
            settle(&path, process, key, measured).unwrap();
            process.measurements[key]
        };
        assert_eq!(settled(&mut one, "one", MEASURED), MEASURED);
        assert_eq!([slower, faster].map(|later| settled(&mut other, "one", later)), [MEASURED; 2]);
        // Lines of other processes stay, and so do those after a truncated line.
        assert_eq!(settled(&mut other, "two", faster), faster);
        assert_eq!(settled(&mut one, "two", slower), faster);
        let mut cut = std::fs::read_to_string(&path).unwrap();
        cut.push_str("three 1 2");
        std::fs::write(&path, cut).unwrap();
        assert_eq!(settled(&mut one, "three", slower), slower);
        let mut all = Known::default();
        all.read(&std::fs::read_to_string(&path).unwrap());
        let found = ["one", "two", "three"].map(|key| all.measurements[key]);
        assert_eq!((all.measurements.len(), found), (3, [MEASURED, faster, slower]));
        // A cache that was emptied meanwhile begins anew.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(settled(&mut one, "four", faster), faster);
        assert_eq!(settled(&mut Known::default(), "four", slower), faster);
    }
}
