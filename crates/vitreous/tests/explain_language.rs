//! `vitreous explain MODEL --text` of language models, and interventions in every command: page, JSON and arrays say the same; everything a user
//! can get wrong. That the numbers are right is tested where they are computed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::page::parse;
use common::training::tensors;
use common::{Outcome, fixtures, vitreous};
use serde_json::Value;

const TEXT: &str = "Once upon a time";

fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/generate").join(name);
    path.to_str().expect("text").to_string()
}

fn run(name: &str, out: &Path, arguments: &[&str]) -> Outcome {
    let out = out.to_str().expect("UTF-8");
    vitreous(&[&["explain", &model(name), "--device", "cpu", "--threads", "1", "--out", out], arguments].concat())
}

fn explained(name: &str, arguments: &[&str]) -> (Value, String, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let more = [arguments, &["--json", "--arrays"]].concat();
    let line = run(name, &folder.path().join("out"), &more).succeeded().json_lines().remove(0);
    let page = PathBuf::from(line["page"].as_str().expect("a page"));
    (line, fs::read_to_string(&page).expect("a page"), page, folder)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn page_json_and_arrays_say_the_same() {
    for name in ["gpt2", "llama", "qwen3"] {
        let (line, source, place, _folder) =
            explained(name, &["--text", TEXT, "--top", "3", "--nearest", "blocks.0@1"]);
        let tokens = line["tokens"].as_array().expect("tokens").len();
        assert_eq!(line["position"], tokens - 1);
        let parts = &line["attribution"];
        assert!((number(&parts["sum"]) - number(&parts["logit"])).abs() < 1e-4, "{parts}");
        assert!((number(&parts["logit"]) - number(&line["effects"]["logit"])).abs() < 1e-4);
        // The token that is explained is the last layer's likeliest.
        let last = line["lens"].as_array().expect("layers").last().expect("a layer");
        let likeliest = &last["tokens"][tokens - 1][0];
        assert_eq!(likeliest["id"], line["target"]["id"]);
        let probability = number(&line["effects"]["log_probability"]).exp();
        assert!((probability - number(&likeliest["score"])).abs() < 1e-5);
        assert!(line["actual"][0].is_null() && line["actual"][1]["rank"].is_u64());
        assert_eq!(line["nearest"][0]["tokens"].as_array().expect("words").len(), 3);
        let arrays = tensors(&place.with_file_name("arrays.npz"));
        let heads: Vec<f32> = parts["layers"]
            .as_array()
            .expect("layers")
            .iter()
            .flat_map(|layer| layer["heads"].as_array().expect("heads").iter().map(|x| number(x) as f32))
            .collect();
        assert_eq!(arrays["attribution.heads"], heads);
        assert_eq!(arrays["probability"].len(), tokens);
        for key in ["effects.heads", "repeated_scores.induction", "lens.scores", "attention.0"] {
            assert!(arrays[key].iter().all(|x| x.is_finite()), "{key}");
        }
        let page = parse(&source);
        for id in ["next", "surprise", "layers", "attribution", "effects", "kinds", "nearest", "attention", "lines"] {
            assert!(!page.by_id(id).text().is_empty(), "{name}: {id}");
        }
        let cells = page.by_id("effects").of_class("effects")[0].all("td").len();
        let (layers, of_layer) = (heads.len() / parts["layers"][0]["heads"].as_array().expect("heads").len(), cells);
        assert_eq!(of_layer, heads.len() + layers, "a cell for each head, and one for each MLP");
    }
}

#[test]
fn another_token_in_another_place() {
    let (plain, ..) = explained("gpt2", &["--text", TEXT]);
    let second = &plain["lens"][0]["tokens"][1][1];
    let (line, ..) =
        explained("gpt2", &["--text", TEXT, "--token", "1", "--class", second["token"].as_str().expect("a name")]);
    assert_eq!(line["position"], 1);
    assert_eq!(line["target"], serde_json::json!({"token": second["token"], "id": second["id"]}));
    let folder = tempfile::tempdir().expect("a folder");
    run("gpt2", folder.path(), &["--text", TEXT, "--token", "99"]).failed(2, &["--token 99", "counted from 0"]);
    run("gpt2", folder.path(), &["--text", TEXT, "--class", "no such thing"]).failed(2, &["no single token"]);
    run("gpt2", folder.path(), &["--text", TEXT, "--steps", "3"]).failed(2, &["--steps", "language model"]);
    run("gpt2", folder.path(), &["--text", TEXT, "--nearest", "blocks.0@99"]).failed(2, &["no token 99"]);
}

#[test]
fn patching_maps_and_takes_over() {
    let (line, source, ..) = explained("gpt2", &["--text", TEXT, "--patch-from", TEXT]);
    let patching = &line["patching"];
    // From the same text, nothing changes.
    let own = number(&patching["own"]);
    for row in patching["patched"].as_array().expect("places") {
        assert!(row.as_array().expect("tokens").iter().all(|x| (number(x) - own).abs() < 1e-4), "{patching}");
    }
    assert!(source.contains("id=\"patching\""));
    let plain = number(&line["effects"]["logit"]);
    let (same, ..) = explained("gpt2", &["--text", TEXT, "--patch-from", TEXT, "--at", "blocks.0.mlp"]);
    assert!((number(&same["effects"]["logit"]) - plain).abs() < 1e-4);
    assert_eq!(same["edits"].as_array().expect("edits").len(), 1);
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |arguments: &[&str], says: &[&str]| {
        run("gpt2", folder.path(), &[&["--text", TEXT], arguments].concat()).failed(2, says);
    };
    refused(&["--patch-from", "Once"], &["as many tokens"]);
    refused(&["--patch-from", TEXT, "--at", "blocks.0.mpl"], &["`blocks.0.mpl`", "blocks.0.mlp"]);
    refused(&["--at", "blocks.0.mlp"], &["--patch-from"]);
}

#[test]
fn edits_change_what_every_command_says() {
    let (plain, ..) = explained("llama", &["--text", TEXT]);
    let (without, source, ..) = explained("llama", &["--text", TEXT, "--without", "blocks.0.attention.heads.1"]);
    // What the map says of a head is what the model does without it.
    if plain["target"] == without["target"] {
        let change = number(&without["effects"]["logit"]) - number(&plain["effects"]["logit"]);
        assert!((number(&plain["effects"]["head_logits"][0][1]) - change).abs() < 1e-4);
    }
    assert!(source.contains("without blocks.0.attention.heads.1"));
    let llama = model("llama");
    let generate = |more: &[&str]| {
        let words =
            [&["generate", &llama, TEXT, "--device", "cpu", "--max-tokens", "8", "--json", "--logprobs", "1"], more]
                .concat();
        vitreous(&words).succeeded().json_lines().remove(0)
    };
    // Token by token with a KV cache, the edited model is the same as in one run.
    let next = generate(&["--without", "blocks.0.attention.heads.1"]);
    assert_eq!(next["tokens"][0], without["target"]["id"], "{next}");
    let edited = generate(&["--scale", "blocks.0.mlp=-3"]);
    assert_ne!(generate(&[]), edited);
    assert_eq!(generate(&["--scale", "blocks.0.mlp=1"])["text"], generate(&[])["text"]);
    let refused = |edit: &[&str], says: &[&str]| {
        vitreous(&[&["generate", &llama, TEXT, "--device", "cpu"], edit].concat()).failed(2, says);
    };
    refused(&["--without", "block.0.mlp"], &["no value is called `block.0.mlp`", "blocks.0.mlp"]);
    refused(&["--scale", "blocks.0.mlp"], &["a path and a factor"]);
    refused(&["--clamp", "blocks.0=1"], &["least and the greatest"]);
    refused(&["--without", "blocks.0.mlp@1"], &["single tokens", "one by one"]);
    refused(&["--clamp", "blocks.0.attention.weights=0.1,1"], &["KV cache"]);
}

#[test]
fn images_and_encoders_take_edits_too() {
    let fixture = |name: &str| fixtures().join(name).to_str().expect("UTF-8").to_string();
    let (vit, picture) = (fixture("tiny_vit"), fixtures().join("pictures"));
    let predict = |more: &[&str]| {
        let picture = picture.to_str().expect("UTF-8");
        vitreous(&[&["predict", &vit, picture, "--device", "cpu", "--json"], more].concat()).succeeded().stdout
    };
    assert_ne!(predict(&[]), predict(&["--without", "blocks.0.attention.heads.0", "--scale", "blocks.1.mlp=2"]));
    let bert = fixture("texts/bert_classes");
    let classes = |more: &[&str]| {
        vitreous(&[&["predict", &bert, "--text", "Ada", "--device", "cpu", "--json"], more].concat()).succeeded().stdout
    };
    assert_ne!(classes(&[]), classes(&["--without", "blocks.0.mlp"]));
    // Of the image's page, the parts sum to the logit.
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let first = fs::read_dir(&picture).expect("pictures").next().expect("one").expect("one").path();
    let image = first.to_str().expect("UTF-8");
    let line = vitreous(&["explain", &vit, image, "--device", "cpu", "--json", "--arrays", "--out", out])
        .succeeded()
        .json_lines()
        .remove(0);
    let parts = &line["attribution"];
    assert!((number(&parts["sum"]) - number(&parts["logit"])).abs() < 1e-4, "{parts}");
    assert_eq!(
        line["lens"].as_array().expect("layers").last().expect("one")["top"][0]["index"],
        line["top"][0]["index"]
    );
    assert!(line["effects"]["heads"].is_array());
}
