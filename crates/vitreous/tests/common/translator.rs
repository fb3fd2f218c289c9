//! A translator that learned for some steps, for tests that need one and not a good one.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::vitreous;

/// Layers of the encoder and the decoder, and heads of each.
pub const ENCODER_LAYERS: usize = 2;
pub const DECODER_LAYERS: usize = 3;
pub const HEADS: usize = 2;

/// What stays for all tests of a binary. Nothing removes it at the end, so it lies in the build's own folder.
static TRAINED: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let run = train_translator(folder.path());
    (folder, run)
});

/// The run directory of a translator, trained once.
pub fn translator() -> &'static str {
    TRAINED.1.to_str().expect("UTF-8")
}

/// Trains a translator of numbers as words to numbers as digits, in a folder, and gives its run directory.
fn train_translator(folder: &Path) -> PathBuf {
    let names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let pair = |number: usize| {
        let digits = [number / 100 % 10, number / 10 % 10, number % 10];
        format!("{}\t{}\n", digits.map(|digit| names[digit]).join(" "), digits.map(|digit| digit.to_string()).join(" "))
    };
    let data = folder.join("pairs");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("train.tsv"), (0..180).map(|n| pair(n * 53)).collect::<String>()).expect("written");
    std::fs::write(data.join("valid.tsv"), (0..4).map(|n| pair(n * 71 + 7)).collect::<String>()).expect("written");
    let run = folder.join("run");
    let (data, out) = (data.to_str().expect("UTF-8"), run.to_str().expect("UTF-8"));
    let sizes = [
        "text.vocabulary=360".to_string(),
        "train.tokens=512".to_string(),
        "train.epochs=2".to_string(),
        "train.average=1".to_string(),
        "model.dim=16".to_string(),
        "model.mlp_dim=32".to_string(),
        "model.max_length=300".to_string(),
        format!("model.heads={HEADS}"),
        format!("model.encoder_layers={ENCODER_LAYERS}"),
        format!("model.decoder_layers={DECODER_LAYERS}"),
        "schedule.warmup_steps=4".to_string(),
        "optimizer.lr=1e-2".to_string(),
    ];
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    vitreous(&[&["train", "translation", "--data", data, "--out", out][..], &sizes].concat()).succeeded();
    run
}
