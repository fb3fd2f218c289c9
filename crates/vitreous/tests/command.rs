//! The command itself: version, completions, quiet, overwriting, standard input.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use common::{fixtures, vitreous};

#[test]
fn the_version_tells_commit_and_features() {
    let text = vitreous(&["--version"]).succeeded().stdout;
    assert!(text.starts_with(&format!("vitreous {} (", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(
        text.contains("+cuda") && text.contains("+download") && text.contains("+mmap") && text.contains("+serve"),
        "{text}"
    );
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = vitreous(&["completions", shell]).succeeded().stdout;
        assert!(script.contains("translate") && script.contains("summary"), "{shell}");
    }
    vitreous(&["completions", "tcsh"]).failed(2, &["tcsh"]);
}

#[test]
fn quiet_prints_results_and_errors_alone() {
    let loud = vitreous(&["predict", "tiny_vit", "pictures"]).succeeded();
    let quiet = vitreous(&["-q", "predict", "tiny_vit", "pictures"]).succeeded();
    assert!(!loud.stderr.is_empty() && quiet.stderr.is_empty(), "{}", quiet.stderr);
    assert_eq!(loud.stdout, quiet.stdout);
    vitreous(&["predict", "tiny_vit", "no-such.png", "--quiet"]).failed(1, &["no-such.png"]);
}

#[test]
fn convert_overwrites_nothing_unless_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    vitreous(&["convert", "tiny_vit", &path("model")]).succeeded();
    let before = fs::read(path("model/model.safetensors")).expect("weights");
    vitreous(&["convert", "tiny_vit", &path("model"), "--no-head"]).failed(2, &["already there", "--force"]);
    assert_eq!(fs::read(path("model/model.safetensors")).expect("weights"), before);
    vitreous(&["convert", "tiny_vit", &path("model"), "--no-head", "--force"]).succeeded();
    assert_ne!(fs::read(path("model/model.safetensors")).expect("weights"), before);
    vitreous(&["convert", "tiny_vit", &path("model.npz")]).succeeded();
    vitreous(&["convert", "tiny_vit", &path("model.npz")]).failed(2, &["model.npz", "--force"]);
}

/// Standard input may be an image, or a list of paths.
#[test]
fn an_image_on_standard_input_is_classified() {
    let classify = |input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
            .args(["predict", "tiny_vit", "-", "--json", "--device", "cpu"])
            .current_dir(fixtures())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        child.stdin.take().expect("an input").write_all(input).expect("written");
        let output = child.wait_with_output().expect("ends");
        let lines = String::from_utf8(output.stdout).expect("text");
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")).collect::<Vec<_>>()
    };
    let image = fs::read(fixtures().join("pictures/noise.png")).expect("an image");
    let (piped, listed) = (classify(&image), classify(b"pictures/noise.png\n"));
    assert_eq!((piped.len(), &piped[0]["path"]), (1, &serde_json::json!("-")));
    assert_eq!(piped[0]["logits"], listed[0]["logits"]);
    // A path that begins as a format does is a path.
    assert_eq!(classify(b"BMW.jpg\n")[0]["path"], "BMW.jpg");
}
