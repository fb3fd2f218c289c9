//! Commands for language models with broken files, hostile templates and prompts that do not fit: one sentence, exit code 2, no panic.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use common::{changed_copy, fixtures, vitreous, vitreous_with_input};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of the tiny LLaMA, with a file that was changed.
fn changed(folder: &TempDir, file: &str, change: impl FnOnce(&mut Value)) -> String {
    let model = folder.path().join("model");
    changed_copy("language/llama", &model, file, change);
    model.to_str().expect("UTF-8").to_string()
}

#[test]
fn hostile_templates_are_stopped() {
    for (template, says) in [
        ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "does not come to an end"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "recursion"),
        ("{% include '/etc/passwd' %}", "chat template"),
        ("{{ open('/etc/passwd') }}", "chat template"),
        ("{{ 'x' * 99999999999 }}", "too large"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let model = changed(&folder, "tokenizer_config.json", |settings| settings["chat_template"] = json!(template));
        vitreous_with_input(&["chat", &model, "--device", "cpu"], "Hi\n").failed(2, &[says]);
    }
}

#[test]
fn a_prompt_of_ten_megabytes_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.txt");
    fs::write(&file, format!("Once\n{}\n", "a ".repeat(5 << 20))).expect("written");
    let file = file.to_str().expect("UTF-8");
    let arguments = ["generate", "language/llama", "--device", "cpu", "--max-tokens", "2", "--file", file];
    vitreous(&arguments).failed(2, &["prompts.txt, line 2", "longer than 1 MiB"]);
}

#[test]
fn empty_prompts_and_control_characters_have_answers() {
    let lines: String =
        ["", " ", "\u{1}\u{7}\u{1b}"].iter().map(|text| format!("{}\n", json!({"prompt": text}))).collect();
    let arguments = ["generate", "language/llama", "--device", "cpu", "--json", "--max-tokens", "2", "--file", "-"];
    let answers = vitreous_with_input(&arguments, &lines).succeeded().json_lines();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty())));
}

#[test]
fn tokens_that_the_model_does_not_know_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = changed(&folder, "tokenizer.json", |tokenizer| {
        let added = tokenizer["added_tokens"].as_array_mut().expect("a list");
        let mut more = added[0].clone();
        (more["id"], more["content"]) = (json!(140), json!("<more>"));
        added.push(more);
    });
    let arguments = ["generate", &model, "--device", "cpu", "--max-tokens", "2"];
    vitreous(&[&arguments[..], &["Once <more>"]].concat())
        .failed(2, &["token 140 (\"<more>\")", "do not belong to one model"]);
}

#[test]
fn configurations_that_name_no_architecture_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = changed(&folder, "config.json", |config| {
        let config = config.as_object_mut().expect("a configuration");
        config.remove("architectures");
        config.remove("model_type");
    });
    for command in ["generate", "eval"] {
        let data = ["--data", "language/story.txt"];
        let arguments = [&[command, &model][..], if command == "eval" { &data } else { &["Once"] }].concat();
        vitreous(&arguments).failed(2, &["config.json"]);
    }
}

#[test]
fn files_that_are_cut_short_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fs::read(fixtures().join("../../../models/tests/fixtures/gguf/llama_f32.gguf")).expect("a fixture");
    for end in [3, 20, 500, whole.len() / 2, whole.len() - 64] {
        let file = folder.path().join("cut.gguf");
        fs::write(&file, &whole[..end]).expect("written");
        vitreous(&["generate", file.to_str().expect("UTF-8"), "Once"]).failed(2, &["cut.gguf"]);
    }
}

/// A GGUF whose table of words is a hole at the end of the file, so large that no memory holds it.
fn with_a_hole(path: &Path, rows: u64) {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let number = |name: &str, value: u32| [&text(name)[..], &4u32.to_le_bytes(), &value.to_le_bytes()].concat();
    let keys = [
        [&text("general.architecture")[..], &8u32.to_le_bytes(), &text("llama")].concat(),
        number("llama.block_count", 1),
        number("llama.embedding_length", 64),
        number("llama.feed_forward_length", 64),
        number("llama.attention.head_count", 1),
        number("llama.context_length", 64),
        [&text("llama.attention.layer_norm_rms_epsilon")[..], &6u32.to_le_bytes(), &1e-5f32.to_le_bytes()].concat(),
    ];
    let square = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let norms = ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"];
    let mut tensors: Vec<(String, Vec<u64>)> =
        square.iter().map(|name| (format!("blk.0.{name}.weight"), vec![64, 64])).collect();
    tensors.extend(norms.iter().map(|name| (name.to_string(), vec![64])));
    tensors.push(("token_embd.weight".to_string(), vec![64, rows]));
    let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &(tensors.len() as u64).to_le_bytes()].concat();
    file.extend((keys.len() as u64).to_le_bytes());
    file.extend(keys.concat());
    let mut offset = 0;
    for (name, axes) in &tensors {
        file.extend(text(name));
        file.extend((axes.len() as u32).to_le_bytes());
        axes.iter().for_each(|size| file.extend(size.to_le_bytes()));
        file.extend(0u32.to_le_bytes());
        file.extend(u64::to_le_bytes(offset));
        offset += 4 * axes.iter().product::<u64>();
    }
    let start = (file.len() as u64).next_multiple_of(32);
    let mut to = fs::File::create(path).expect("a file");
    to.write_all(&file).expect("written");
    to.set_len(start + offset).expect("a hole");
}

#[test]
fn a_model_larger_than_memory_is_refused() {
    let available = vitreous_engine::machine::available_memory().expect("Linux tells");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("large.gguf");
    // More than there is, of f32 in rows of 64.
    let rows = available / 256 * 2;
    if rows > u64::from(u32::MAX / 2) {
        return eprintln!("skipped: {available} bytes of memory are enough for the largest table of words");
    }
    with_a_hole(&file, rows);
    // The file has no vocabulary inside.
    let tokenizer = "tokenizer.json";
    fs::copy(fixtures().join("language/llama").join(tokenizer), folder.path().join(tokenizer)).expect("copied");
    let model = file.to_str().expect("UTF-8");
    let bench = ["bench", model, "--mode", "generate", "--prompt", "4", "--tokens", "4", "--device", "cpu"];
    for arguments in [&["generate", model, "Once", "--device", "cpu"][..], &bench] {
        vitreous(arguments).failed(2, &[" are available; take a smaller or quantised model"]);
    }
}
