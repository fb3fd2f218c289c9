//! Keys by which it is known that finished work is of the same inputs, model and command.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use vitreous_runtime::locate::model_directory;
use vitreous_runtime::text::TextInput;

/// A key of a list of texts and bytes. Changes are found that happen; nobody is kept from forging one.
#[derive(Clone, Default)]
pub struct Key(DefaultHasher);

impl Key {
    /// Adds bytes, apart from those before and after.
    pub fn add(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.0.write_u64(bytes.len() as u64);
        self.0.write(bytes);
    }

    /// Adds a file of inputs: its path, size and time, because it may be large.
    pub fn add_file(&mut self, path: &Path) {
        self.add(path.as_os_str().as_encoded_bytes());
        let metadata = std::fs::metadata(path).ok();
        let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        self.0.write_u64(metadata.map_or(u64::MAX, |metadata| metadata.len()));
        self.0.write_u64(since.map_or(0, |since| since.as_secs()));
    }

    /// The number.
    pub fn number(&self) -> u64 {
        self.0.finish()
    }
}

/// An input that a chunk's key depends on.
pub trait Keyed {
    /// Adds it to a key.
    fn add_to(&self, key: &mut Key);
}

impl Keyed for String {
    fn add_to(&self, key: &mut Key) {
        key.add(self);
    }
}

impl Keyed for TextInput {
    fn add_to(&self, key: &mut Key) {
        key.add(&self.text);
        match &self.pair {
            Some(pair) => key.add(pair),
            None => key.0.write_u8(0),
        }
    }
}

impl Keyed for PathBuf {
    fn add_to(&self, key: &mut Key) {
        key.add_file(self);
    }
}

/// The key of some inputs.
pub fn key_of<T: Keyed>(inputs: &[T]) -> u64 {
    let mut key = Key::default();
    inputs.iter().for_each(|input| input.add_to(&mut key));
    key.number()
}

/// Samples of a large file, and the bytes of each.
const SAMPLES: u64 = 64;
const SAMPLE: u64 = 4096;
/// Files of a model's directory that count; more are no model's.
const MOST_FILES: usize = 4096;

/// The key of a model: the names, sizes and samples of its files. They may lie elsewhere, and be of another time, on each host.
pub fn key_of_model(model: &Path) -> io::Result<u64> {
    let mut key = Key::default();
    let directory = model_directory(model);
    let mut files = match directory.is_dir() {
        false => vec![model.to_path_buf()],
        true => std::fs::read_dir(&directory)?
            .take(MOST_FILES)
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?,
    };
    files.sort();
    for path in files.iter().filter(|path| path.is_file()) {
        key.add(path.file_name().unwrap_or(OsStr::new("")).as_encoded_bytes());
        add_samples(&mut key, path)?;
    }
    Ok(key.number())
}

/// Adds a file's size, and pieces of it that are spread over all of it: training changes all weights.
pub fn add_samples(key: &mut Key, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    key.0.write_u64(size);
    let mut sample = Vec::new();
    for index in 0..SAMPLES {
        let place = size.saturating_sub(SAMPLE) / (SAMPLES - 1) * index;
        file.seek(SeekFrom::Start(place))?;
        sample.clear();
        Read::by_ref(&mut file).take(SAMPLE).read_to_end(&mut sample)?;
        key.add(&sample);
        if size <= SAMPLE {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart_from_their_neighbours() {
        let key = |texts: &[&str]| key_of(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["ab", "c"]), key(&["c", "ab"]));
        assert_ne!(key(&["a"]), key(&["a", ""]));
        let pair = |pair: Option<&str>| key_of(&[TextInput { text: "a".into(), pair: pair.map(str::to_string) }]);
        assert_ne!(pair(None), pair(Some("")));
    }

    #[test]
    fn a_model_is_known_by_its_weights_wherever_it_lies() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = |name: &str, weights: &[u8]| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).expect("a folder");
            std::fs::write(path.join("config.json"), "{}").expect("written");
            std::fs::write(path.join("model.safetensors"), weights).expect("written");
            key_of_model(&path).expect("a model")
        };
        let weights: Vec<u8> = (0..1_000_000u32).map(|number| (number * 7) as u8).collect();
        let other: Vec<u8> = weights.iter().map(|byte| byte ^ 1).collect();
        assert_eq!(folder("one", &weights), folder("two", &weights));
        assert_ne!(folder("three", &weights), folder("four", &other));
        assert_ne!(folder("five", &weights), folder("six", &weights[1..]));
    }
}
