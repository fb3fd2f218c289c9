//! Where the fixtures are, and how they are listed.

#![allow(dead_code)] // Each test file uses its part.

use std::path::PathBuf;

use serde_json::Value;

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The cases that a list holds. Empty lists would make tests that cannot fail.
pub fn cases(name: &str, at_least: usize) -> Vec<Value> {
    let Value::Array(cases) = serde_json::from_slice(&bytes(name)).unwrap() else { panic!("{name} is no list") };
    assert!(cases.len() >= at_least, "{name} has {} cases", cases.len());
    cases
}

pub fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_else(|| panic!("{key} in {case}"))
}

pub fn integer(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value}")) as usize
}

/// The largest difference of two lists of bytes.
pub fn largest_difference(ours: &[u8], theirs: &[u8]) -> u8 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(ours, theirs)| ours.abs_diff(*theirs)).max().unwrap_or(0)
}
