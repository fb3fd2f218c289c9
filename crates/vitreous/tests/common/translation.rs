//! What tests of translators share: pairs of sentences, and a tiny translator that learned a little of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;

use super::vitreous;

/// A translator that learns a step in some milliseconds, with everything random switched on.
pub const TINY_TEXT: [&str; 13] = [
    "text.vocabulary=300",
    "text.max_tokens=40",
    "train.tokens=256",
    "train.epochs=2",
    "train.average=2",
    "model.dim=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.mlp_dim=32",
    "model.max_length=64",
    "schedule.warmup_steps=10",
    "output.checkpoint_steps=5",
];

const ENGLISH: [&str; 8] = ["zero", "one", "two", "three", "four", "five", "six", "seven"];
const GERMAN: [&str; 8] = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"];

/// Sentences of digits in two languages.
pub fn pairs(count: usize, seed: usize) -> Vec<(String, String)> {
    let mut state = seed;
    let mut digit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) % 8
    };
    let mut pair = || {
        let digits: Vec<usize> = (0..1 + digit()).map(|_| digit()).collect();
        let say = |words: [&str; 8]| digits.iter().map(|&digit| words[digit]).collect::<Vec<_>>().join(" ") + ".";
        (say(ENGLISH), say(GERMAN))
    };
    (0..count).map(|_| pair()).collect()
}

/// Writes pairs as lines of source, tab, target.
pub fn write_pairs(file: &Path, pairs: &[(String, String)]) {
    let lines: String = pairs.iter().map(|(source, target)| format!("{source}\t{target}\n")).collect();
    std::fs::write(file, lines).expect("written");
}

/// A folder with pairs to learn from and to test with, and the run of a translator that learned them.
pub struct Learned {
    place: TempDir,
}

impl Learned {
    /// The run directory.
    pub fn run(&self) -> PathBuf {
        self.place.path().join("run")
    }

    /// Its name as an argument.
    pub fn model(&self) -> String {
        self.run().to_str().expect("UTF-8").to_string()
    }

    /// The folder of pairs.
    pub fn data(&self) -> PathBuf {
        self.place.path().join("pairs")
    }
}

/// A folder with `train.tsv`, `valid.tsv` and `test.tsv`.
pub fn pair_folder(folder: &Path) {
    std::fs::create_dir(folder).expect("a folder");
    for (part, count, seed) in [("train", 120, 1), ("valid", 12, 2), ("test", 15, 3)] {
        write_pairs(&folder.join(format!("{part}.tsv")), &pairs(count, seed));
    }
}

/// A translator, which is trained once for all tests that run at the same time, and removed after the last.
pub fn translator() -> Arc<Learned> {
    static SHARED: Mutex<Weak<Learned>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(there) = shared.upgrade() {
        return there;
    }
    let learned = Arc::new(Learned { place: tempfile::tempdir().expect("a directory") });
    pair_folder(&learned.data());
    let (data, model) = (learned.data(), learned.model());
    let words = ["train", "translation", "--data", data.to_str().expect("UTF-8"), "--out", &model];
    vitreous(&[&words, &TINY_TEXT[..]].concat()).succeeded();
    *shared = Arc::downgrade(&learned);
    learned
}
