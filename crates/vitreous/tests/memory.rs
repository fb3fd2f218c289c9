//! What does not fit into memory is refused before any of it is taken, with what would fit.
#![cfg(target_os = "linux")] // where the system tells what is available

mod common;

use common::translation::{TINY_TEXT, pair_folder};
use common::vitreous;

/// The number behind a text.
fn number_behind(text: &str, what: &str) -> usize {
    let rest = text.split(what).nth(1).unwrap_or_else(|| panic!("`{what}` is not in {text}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn training_beyond_memory_says_the_batch_that_fits() {
    let directory = tempfile::tempdir().expect("a folder");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let words = ["train", "small", "model.preset=vit_base_patch16_384", "train.batch=10000"];
    let refused = |more: &[&str]| {
        let arguments = [&words, more, &["--device", "cpu", "--out", out]].concat();
        vitreous(&arguments).failed(1, &["training with train.batch=10000 needs ", " GiB "]).stderr
    };
    let plain = refused(&[]);
    let fits = number_behind(&plain, "available; take a smaller batch: train.batch=");
    let recomputed = number_behind(&plain, "and fit with train.batch=");
    assert!(plain.contains(" would fit; or train.recompute=true would need "), "{plain}");
    assert!(0 < fits && fits < recomputed && recomputed < 10_000, "{plain}");
    // What else takes memory at the same time changes this a little.
    let already = refused(&["train.recompute=true"]);
    let again = number_behind(&already, "take a smaller batch: train.batch=");
    assert!(again.abs_diff(recomputed) < recomputed / 2 && !already.contains("recompute"), "{already}");
    assert!(!run.exists());
}

#[test]
fn a_translator_beyond_memory_says_the_tokens_that_fit() {
    let directory = tempfile::tempdir().expect("a folder");
    let (data, run) = (directory.path().join("pairs"), directory.path().join("run"));
    pair_folder(&data);
    let places = ["--data", data.to_str().expect("UTF-8"), "--out", run.to_str().expect("UTF-8")];
    let tokens = ["train.tokens=2000000000", "--device", "cpu"];
    let arguments = [&["train", "translation"], &TINY_TEXT[..], &tokens, &places].concat();
    let said = vitreous(&arguments).failed(1, &["training with train.tokens=2000000000 needs "]).stderr;
    let fits = number_behind(&said, "take a smaller batch: train.tokens=");
    assert!((100..2_000_000_000).contains(&fits), "{said}");
    assert!(!run.exists());
}
