//! Files that lie: each is refused with a sentence, before memory is taken for what it claims.

use std::fs;

use vitreous_models::archive::Archive;
use vitreous_models::{Model, OpenOptions};

use super::fixture;

/// A header: version, tensors and keys as claimed, then whatever follows.
fn file(version: u32, tensors: u64, keys: u64, rest: &[u8]) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(version.to_le_bytes());
    file.extend(tensors.to_le_bytes());
    file.extend(keys.to_le_bytes());
    file.extend(rest);
    file
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A key with a value of a type.
fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(name), &kind.to_le_bytes()[..], value].concat()
}

/// A tensor's description.
fn tensor(name: &str, axes: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let sizes: Vec<u8> = axes.iter().flat_map(|size| size.to_le_bytes()).collect();
    [&text(name), &(axes.len() as u32).to_le_bytes()[..], &sizes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat()
}

/// A list of a type with a count, as a value.
fn list(kind: u32, count: u64, rest: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), rest].concat()
}

#[track_caller]
fn assert_refused(file: Vec<u8>, says: &str) {
    let error = Archive::from_bytes(file).map(|_| ()).expect_err("refused").to_string();
    assert!(error.contains(says), "`{says}` is not in: {error}");
}

#[test]
fn absurd_claims_are_refused() {
    const MANY: u64 = u64::MAX / 2;
    assert_refused(file(3, 0, MANY, &[]), "keys");
    assert_refused(file(3, MANY, 0, &[]), "tensors");
    assert_refused(file(3, 0, 1, &[&MANY.to_le_bytes()[..], &[0; 64]].concat()), "bytes of text");
    assert_refused(file(3, 0, 1, &key("a", 8, &MANY.to_le_bytes())), "bytes of text");
    for kind in [0, 5, 6, 7, 8, 9, 10, 12] {
        assert_refused(file(3, 0, 1, &key("a", 9, &list(kind, MANY, &[0; 64]))), "values of a list");
    }
    assert_refused(file(3, 0, 1, &key("a", 9, &list(77, 1, &[0; 64]))), "type 77");
    assert_refused(file(3, 0, 1, &key("a", 13, &[0; 64])), "type 13");
    assert_refused(file(3, 0, 1, &key("a", 7, &[2; 64])), "neither true nor false");
    let nested = (0..40).fold(list(0, 0, &[]), |inner, _| list(9, 1, &inner));
    assert_refused(file(3, 0, 1, &key("a", 9, &nested)), "nested");
    assert_refused(file(3, 0, 2, &[key("a", 7, &[1]), key("a", 7, &[1]), vec![0; 64]].concat()), "occurs twice");
    assert_refused(file(3, 0, 1, &key("\u{0}", 9, &list(10, 1, &[0xFF; 8]))), "larger than any number");
    for alignment in [0u32, 3, 1 << 31] {
        let keys = [key("general.alignment", 4, &alignment.to_le_bytes()), vec![0; 64]].concat();
        assert_refused(file(3, 0, 1, &keys), "power of two");
    }
    let split = [key("split.count", 2, &3u16.to_le_bytes()), vec![0; 64]].concat();
    assert_refused(file(3, 0, 1, &split), "one of 3 files");
}

#[test]
fn absurd_tensors_are_refused() {
    let with =
        |axes: &[u64], kind: u32, offset: u64| file(3, 1, 0, &[tensor("w", axes, kind, offset), vec![0; 256]].concat());
    assert_refused(with(&[1 << 40, 1 << 40], 0, 0), "larger than any memory");
    assert_refused(with(&[u64::MAX, 0], 0, 0), "larger than any memory");
    assert_refused(with(&[1 << 30], 0, 0), "beyond the file");
    assert_refused(with(&[2], 0, 1 << 62), "beyond the file");
    assert_refused(with(&[2], 0, u64::MAX - 31), "beyond the file");
    assert_refused(with(&[2], 0, 4), "multiple of 32");
    assert_refused(with(&[33], 8, 0), "whole blocks of 32");
    assert_refused(with(&[32, 8], 12, 0), "whole blocks of 256");
    assert_refused(with(&[1; 5], 0, 0), "5 axes");
    let two = [tensor("w", &[2], 0, 0), tensor("w", &[2], 0, 0), vec![0; 256]].concat();
    assert_refused(file(3, 2, 0, &two), "occurs twice");
}

#[test]
fn other_versions_and_byte_orders_are_named() {
    assert_refused(file(1, 0, 0, &[]), "version 1");
    assert_refused(file(4, 0, 0, &[]), "version 4");
    assert_refused(file(3u32.swap_bytes(), 0, 0, &[]), "big-endian");
    assert!(Archive::from_bytes(file(2, 0, 0, &[0; 32])).is_ok());
}

/// A type that is not read is refused only when its tensor is asked for.
#[test]
fn unknown_types_are_named_when_they_are_needed() {
    let tensors = [tensor("old", &[256], 10, 0), tensor("new", &[32], 99, 0), tensor("w", &[2], 0, 0), vec![0; 256]];
    let archive = Archive::from_bytes(file(3, 3, 0, &tensors.concat())).expect("opens");
    assert_eq!(archive.tensor("w").expect("there").to_f32().expect("read"), [0.0, 0.0].as_slice());
    let said = |name: &str| archive.tensor(name).map(|_| ()).expect_err("refused").to_string();
    assert!(said("old").contains("Q2_K") && said("old").contains("are read"), "{}", said("old"));
    assert!(said("new").contains("type 99"), "{}", said("new"));
}

/// Opening a model says why a tensor cannot be read, not that it is missing; and a head that cannot be read does not make the table of
/// words the head.
#[test]
fn a_model_with_a_type_that_is_not_read_says_so() {
    for (file, tensor) in [("llama_f32.gguf", "blk.0.ffn_up.weight"), ("qwen2_bf16.gguf", "output.weight")] {
        let error = refused(file, |bytes| {
            let name = text(tensor);
            let place = bytes.windows(name.len()).position(|window| window == name).expect("there");
            let kind = place + name.len() + 4 + 2 * 8;
            bytes[kind..kind + 4].copy_from_slice(&10u32.to_le_bytes());
        });
        assert!(error.contains(tensor) && error.contains("Q2_K"), "{error}");
    }
}

fn refused_model(change: impl Fn(&mut Vec<u8>)) -> String {
    refused("llama_f32.gguf", change)
}

/// The error of opening a fixture that was changed.
fn refused(file: &str, change: impl Fn(&mut Vec<u8>)) -> String {
    let mut bytes = fs::read(fixture(file)).expect("read");
    change(&mut bytes);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.gguf");
    fs::write(&path, bytes).expect("written");
    Model::open(&path, &OpenOptions::default()).expect_err("refused").to_string()
}

/// Replaces the bytes of a key's value.
fn set(bytes: &mut [u8], name: &str, value: &[u8]) {
    let name = text(name);
    let place = bytes.windows(name.len()).position(|window| window == name).expect("there") + name.len() + 4;
    bytes[place..place + value.len()].copy_from_slice(value);
}

#[test]
fn wrong_settings_are_named() {
    let number = |name: &'static str, value: u32| refused_model(|bytes| set(bytes, name, &value.to_le_bytes()));
    for (name, value, says) in [
        ("llama.block_count", 1_000_000, "layers"),
        ("llama.block_count", 3, "blk.2."),
        ("llama.attention.head_count", 0, "heads"),
        ("llama.attention.head_count", 5, "divide"),
        ("llama.attention.head_count_kv", 4, "divide"),
        ("llama.attention.key_length", 5, "even"),
        ("llama.embedding_length", u32::MAX, "token_embd.weight"),
        ("llama.rope.scaling.original_context_length", 0, "original_length"),
    ] {
        let error = number(name, value);
        assert!(error.contains(says), "{name} = {value}: {error}");
    }
    let error = refused_model(|bytes| {
        let place = bytes.windows(5).position(|window| window == b"llama").expect("there");
        bytes[place..place + 5].copy_from_slice(b"mamba");
    });
    assert!(error.contains("general.architecture") && error.contains("mamba") && error.contains("qwen2"), "{error}");
    // A text where a number should be.
    let error = refused_model(|bytes| {
        let name = text("llama.block_count");
        let place = bytes.windows(name.len()).position(|window| window == name).expect("there") + name.len();
        bytes[place..place + 4].copy_from_slice(&6u32.to_le_bytes());
        bytes[place + 4..place + 8].copy_from_slice(&1.5f32.to_le_bytes());
    });
    assert!(error.contains("llama.block_count") && error.contains("whole number"), "{error}");
}

#[test]
fn cut_and_changed_files_never_panic() {
    for name in ["types.gguf", "llama_f32.gguf"] {
        let bytes = fs::read(fixture(name)).expect("read");
        let header = 4096.min(bytes.len());
        for end in (0..header).chain([bytes.len() - 33]) {
            // What is missing is at the latest the end of a tensor: zeros behind it are no loss.
            let error = Archive::from_bytes(bytes[..end].to_vec()).map(|_| ()).expect_err("cut short").to_string();
            assert!(!error.is_empty());
        }
        for place in 4..header {
            for change in [0x01, 0x80, 0xFF] {
                let mut changed = bytes.clone();
                changed[place] ^= change;
                if let Ok(archive) = Archive::from_bytes(changed) {
                    archive.tensors().for_each(|view| {
                        let _ = view.to_f32();
                    });
                }
            }
        }
    }
}
