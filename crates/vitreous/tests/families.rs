//! Every family through the command: what a command can do follows from what a model takes and gives, and a model that it cannot use gets
//! one sentence: what it is, and the commands for it.

mod common;

use std::fs;
use std::path::Path;

use common::translator::translator;
use common::vitreous;

/// A fixture of a family in the models crate.
fn fixture(family: &str, name: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/src/families");
    models.join(family).join("tests/fixtures").join(name).to_str().expect("text").to_string()
}

#[test]
fn a_summary_needs_the_configuration_alone_and_counts_tied_parameters_once() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(Path::new(&fixture("bert", "masked")).join("config.json"), folder.path().join("config.json"))
        .expect("copied");
    let path = folder.path().to_str().expect("text");
    let json = &vitreous(&["summary", path, "--json", "--tokens", "7"]).succeeded().json_lines()[0];
    // transformers: sum(p.numel() for p in BertForMaskedLM(config).parameters()), whose decoder is the word embedding.
    assert_eq!(json["total_parameters"], 4959);
    assert_eq!(json["tokens"], 7);
    let text = vitreous(&["summary", "bert_base"]).succeeded().stdout;
    assert!(text.contains("109,482,240") && text.contains("12 layers"), "{text}");
    // The weights of the same model, opened, are as many.
    let whole = &vitreous(&["summary", &fixture("bert", "masked"), "--json"]).succeeded().json_lines()[0];
    assert_eq!(whole["total_parameters"], 4959);
}

#[test]
fn presets_are_listed_by_family() {
    let text = vitreous(&["summary", "--list"]).succeeded().stdout;
    for name in
        ["vit\n", "  vit_base_patch16_224\n", "transformer\n", "  transformer_base\n", "bert\n", "  bert_large\n"]
    {
        assert!(text.contains(name), "{text}");
    }
    let families = vitreous(&["summary", "--list", "--json"]).succeeded().json_lines();
    assert_eq!(families[0]["family"], "vit");
    vitreous(&["summary"]).failed(2, &["--list"]);
}

#[test]
fn a_model_that_a_command_cannot_use_is_told_its_commands() {
    let bert = fixture("bert", "masked");
    vitreous(&["predict", &bert, "pictures"])
        .failed(2, &["a masked language model", "not a model for images", "vitreous summary"]);
    vitreous(&["translate", "tiny_vit", "Hello."])
        .failed(2, &["an image classifier", "not a translator", "vitreous predict tiny_vit IMAGE"]);
    vitreous(&["explain", "tiny_vit", "--text", "Hello."])
        .failed(2, &["reads no text", "vitreous explain tiny_vit photo.jpg"]);
    vitreous(&["predict", translator(), "pictures"]).failed(2, &["this is a translator", "vitreous translate"]);
    vitreous(&["summary", "tiny_vit", "--tokens", "9"]).failed(2, &["--source is for text", "an image classifier"]);
}

#[test]
fn a_summary_is_of_the_size_that_images_are_brought_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("model");
    common::changed_copy("tiny_vit", &copy, "preprocessor_config.json", |config| {
        config["size"] = serde_json::json!({"height": 48, "width": 48});
    });
    let run = vitreous(&["summary", copy.to_str().expect("text"), "--json"]).succeeded();
    assert_eq!(run.json_lines()[0]["image"], serde_json::json!([48, 48]), "{}", run.stdout);
    assert!(run.stderr.contains("brings images to 48x48"), "{}", run.stderr);
}

#[test]
fn a_family_without_its_own_command_yet_converts_to_the_same_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("copy");
    let to = to.to_str().expect("text");
    let told = vitreous(&["convert", &fixture("bert", "pretraining"), to]).succeeded().stderr;
    assert!(told.contains("Hugging Face's layout (bert)"), "{told}");
    let bytes = |path: &str| fs::read(Path::new(path).join("model.safetensors")).expect("weights");
    assert_eq!(bytes(to).len(), bytes(&fixture("bert", "pretraining")).len());
}

#[test]
fn a_run_of_bench_measures_text_models_too() {
    let json = &vitreous(&[
        "bench",
        "bert_tiny",
        "--batch",
        "2",
        "--tokens",
        "8",
        "--seconds",
        "0.1",
        "--json",
        "--device",
        "cpu",
    ])
    .succeeded()
    .json_lines()[0];
    assert!(json["sequences_per_second"].as_f64().expect("a number") > 0.0, "{json}");
}
