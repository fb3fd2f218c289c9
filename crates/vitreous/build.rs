//! Tells the program which commit it was built from, and with which features: `vitreous --version`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/refs/heads");
    let commit = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output().ok();
    let commit =
        commit.filter(|output| output.status.success()).and_then(|output| String::from_utf8(output.stdout).ok());
    // A source package has no commit.
    let commit = commit.map(|commit| format!("commit {}, ", commit.trim())).unwrap_or_default();
    let features: Vec<String> = ["cuda", "download", "mmap", "serve"]
        .into_iter()
        .filter(|feature| std::env::var_os(format!("CARGO_FEATURE_{}", feature.to_uppercase())).is_some())
        .map(|feature| format!("+{feature}"))
        .collect();
    let features = if features.is_empty() { "no optional features".to_string() } else { features.join(" ") };
    println!("cargo::rustc-env=VITREOUS_BUILD={commit}{features}");
}
