//! What the README shows is what the repository has.

use std::fs;
use std::path::Path;

#[test]
fn the_readmes_show_the_example_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
    let example = read("crates/runtime/examples/classify.rs");
    let code = example.lines().filter(|line| !line.starts_with("//!")).collect::<Vec<_>>().join("\n");
    assert!(code.trim().lines().count() <= 20, "an example of 20 lines");
    for readme in ["README.md", "README.zh-CN.md"] {
        let text = read(readme);
        let shown = text.split_once("<!-- example:begin -->\n```rust\n").and_then(|(_, rest)| rest.split_once("```\n"));
        assert_eq!(shown.expect("an example").0.trim(), code.trim(), "{readme}");
    }
}

#[test]
fn both_readmes_have_the_same_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let commands = |path: &str| -> Vec<String> {
        let text = fs::read_to_string(root.join(path)).expect(path);
        let lines =
            text.lines().map(str::trim).filter(|line| line.starts_with("vitreous ") || line.starts_with("cargo "));
        lines.map(|line| line.split(" #").next().unwrap_or(line).trim().to_string()).collect()
    };
    assert_eq!(commands("README.md"), commands("README.zh-CN.md"));
}
