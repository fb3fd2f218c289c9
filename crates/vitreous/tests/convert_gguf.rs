//! `vitreous convert` and `summary` with GGUF files.

mod common;

use std::fs;
use std::path::Path;

use common::vitreous;
use vitreous_data::text::TextTokenizer;

/// A directory of Hugging Face's with its tokenizer, to GGUF and back.
#[test]
fn there_and_back_with_the_tokenizer() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    for model in ["language/llama", "language/gpt2"] {
        let (file, back, copy) = (path("model.gguf"), path("back"), path("copy"));
        vitreous(&["convert", model, &file, "--force"]).succeeded();
        vitreous(&["convert", &file, &back, "--force"]).succeeded();
        vitreous(&["convert", model, &copy, "--force"]).succeeded();
        let weights = |folder: &str| fs::read(format!("{folder}/model.safetensors")).expect("weights");
        assert_eq!(weights(&back), weights(&copy), "{model}");
        let told = fs::read_to_string(format!("{back}/tokenizer.json")).expect("a tokenizer");
        assert!(told.contains("\"merges\""), "{model}");
        // Texts end where they ended.
        let settings = fs::read_to_string(format!("{back}/generation_config.json")).expect("settings");
        let settings: serde_json::Value = serde_json::from_str(&settings).expect("JSON");
        let tokenizer = TextTokenizer::open(Path::new(&back)).expect("a tokenizer");
        assert_eq!(settings["eos_token_id"].as_u64(), tokenizer.special().end.map(u64::from), "{model}");
        assert!(settings["eos_token_id"].is_u64() && settings["bos_token_id"].is_u64(), "{model}: {settings}");
        // A copy of a GGUF file says the same as the first, to the byte.
        vitreous(&["convert", &file, &path("again.gguf"), "--force"]).succeeded();
        assert_eq!(fs::read(&file).expect("written"), fs::read(path("again.gguf")).expect("written"), "{model}");
    }
}

#[test]
fn weights_are_written_in_the_format_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let summary = |file: &str| vitreous(&["summary", file, "--json"]).succeeded().json_lines().remove(0);
    let parameters = summary("language/llama")["total_parameters"].clone();
    // Rows of this model are no whole blocks: llama.cpp writes them as f16, too.
    for (kind, format) in [("f16", "f16"), ("bf16", "bf16"), ("Q4_0", "f16")] {
        let file = path(&format!("{kind}.gguf"));
        vitreous(&["convert", "language/llama", &file, "--type", kind]).succeeded();
        let told = summary(&file);
        assert_eq!(told["total_parameters"], parameters, "{kind}");
        let formats: Vec<&str> = told["stored_weights"]
            .as_array()
            .expect("formats")
            .iter()
            .filter_map(|one| one["format"].as_str())
            .collect();
        assert!(formats.contains(&format) && formats.contains(&"f32"), "{kind}: {formats:?}");
        let text = vitreous(&["summary", &file]).succeeded().stdout;
        assert!(text.contains("Weights on disk: "), "{text}");
    }
    // What is there is not overwritten, and a directory has no quantised weights.
    vitreous(&["convert", "language/llama", &path("f16.gguf")]).failed(2, &["already there"]);
    vitreous(&["convert", "language/llama", &path("directory"), "--type", "q4_0"]).failed(1, &["name a .gguf"]);
    vitreous(&["convert", "language/llama", &path("new.gguf"), "--type", "q3"]).failed(2, &["q4_k_m"]);
    vitreous(&["convert", "tiny_vit", &path("new.gguf")]).failed(2, &["GGUF is for language models"]);
    assert!(!fs::exists(path("new.gguf")).expect("known"));
}

#[test]
fn broken_files_are_refused_with_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    vitreous(&["convert", "language/gpt2", &path("model.gguf")]).succeeded();
    let bytes = fs::read(path("model.gguf")).expect("written");
    fs::write(path("cut.gguf"), &bytes[..bytes.len() / 2]).expect("written");
    vitreous(&["summary", &path("cut.gguf")]).failed(2, &["beyond the file"]);
    let mut absurd = bytes.clone();
    absurd[16..24].copy_from_slice(&(u64::MAX / 3).to_le_bytes());
    fs::write(path("absurd.gguf"), absurd).expect("written");
    vitreous(&["summary", &path("absurd.gguf")]).failed(2, &["keys"]);
}
