//! Encoder-decoders, and models of images and texts.

use std::path::Path;

use serde_json::{Value, json};
use vitreous_engine::{Device, Precision};
use vitreous_runtime::sequences::{SequenceModel, SequenceOptions, SequenceWriter};

use crate::client::*;
use crate::tiny;

/// What the library writes, and of how many tokens.
fn expected(path: &Path, texts: &[&str], most: usize) -> Vec<(String, usize)> {
    let model = SequenceModel::open(path).expect("a model");
    let device = Device::Cpu { threads: 2 };
    let mut writer = SequenceWriter::new(&model, &SequenceOptions::default(), Precision::F32, &device).expect("ready");
    writer.set_max_tokens(Some(most));
    let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
    let found = writer.write(&texts).expect("written");
    found.iter().map(|best| (model.text(&best[0].tokens).expect("text"), best[0].tokens.len())).collect()
}

#[test]
fn encoder_decoders_complete_texts_as_the_library_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["t5", "bart"].map(|name| folder.path().join(name));
    tiny::byt5(&paths[0]);
    tiny::bart(&paths[1]);
    let server = start(vec![named("t5", paths[0].clone()), named("bart", paths[1].clone())]);
    for (name, path) in ["t5", "bart"].iter().zip(&paths) {
        let theirs = expected(path, &["One two.", "Three"], 12);
        let body = json!({"model": name, "prompt": ["One two.", "Three"], "max_tokens": 12});
        let answer = post_json(server.address, "/v1/completions", &body).ok();
        for (index, (text, _)) in theirs.iter().enumerate() {
            assert_eq!(answer["choices"][index]["text"], text.as_str(), "{name}");
        }
        let tokens: usize = theirs.iter().map(|(_, tokens)| tokens).sum();
        assert_eq!(answer["usage"]["completion_tokens"], tokens);
        let ask = json!({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["One two."]}]});
        let whole = post_json(server.address, &format!("/v2/models/{name}/infer"), &ask).ok();
        assert!(whole["outputs"][0]["data"][0].is_string());
        for (field, value) in [("stream", json!(true)), ("n", json!(2)), ("logprobs", json!(1)), ("stop", json!("x"))] {
            let mut wrong = body.clone();
            wrong[field] = value;
            let told = post_json(server.address, "/v1/completions", &wrong).refused(400);
            assert!(told.contains(&format!("`{field}` is for language models")), "{told}");
        }
    }
    server.finish().expect("a clean end");
}

/// Requests name languages; those of one moment that name others are written by the same model. The tokens are those of `transformers`.
#[test]
fn languages_are_named_by_requests() {
    let expected = read_json(&fixture("languages/expected.json"));
    let texts = expected["texts"].as_array().expect("texts");
    let models = ["mbart", "mbart50", "marian"];
    let server = start(models.map(|name| named(name, fixture(&format!("languages/{name}")))).into());
    for name in models {
        let model = SequenceModel::open(&fixture(&format!("languages/{name}"))).expect("a model");
        let from = (name != "marian").then_some("en");
        // All languages at once, so that batches are mixed.
        std::thread::scope(|scope| {
            for (code, rows) in expected[name].as_object().expect("languages") {
                let model = &model;
                scope.spawn(move || {
                    let tokens: Vec<Vec<u32>> = serde_json::from_value(rows.clone()).expect("tokens");
                    let theirs: Vec<String> = tokens.iter().map(|row| model.text(row).expect("text")).collect();
                    let mut body = json!({"model": name, "prompt": texts, "max_tokens": 8, "to": code});
                    let mut parameters = json!({"max_tokens": 8, "to": code});
                    if let Some(from) = from {
                        (body["from"], parameters["from"]) = (json!(from), json!(from));
                    }
                    for _ in 0..3 {
                        let answer = post_json(server.address, "/v1/completions", &body).ok();
                        let choices = answer["choices"].as_array().expect("choices").iter();
                        let found: Vec<Value> = choices.map(|one| one["text"].clone()).collect();
                        assert_eq!(json!(found), json!(theirs), "{name} to {code}");
                    }
                    let input = json!({"name": "text", "shape": [texts.len()], "datatype": "BYTES", "data": texts});
                    let ask = json!({"inputs": [input], "parameters": parameters});
                    let answer = post_json(server.address, &format!("/v2/models/{name}/infer"), &ask).ok();
                    assert_eq!(answer["outputs"][0]["data"], json!(theirs), "{name} to {code}");
                });
            }
        });
    }
    let refused = |body: Value| post_json(server.address, "/v1/completions", &body).refused(400);
    let told = refused(json!({"model": "mbart", "prompt": "a", "to": "de"}));
    assert!(told.contains("name one in `from`") && told.contains("en_XX"), "{told}");
    assert!(refused(json!({"model": "mbart50", "prompt": "a", "from": "en"})).contains("name one in `to`"));
    assert!(refused(json!({"model": "marian", "prompt": "a", "to": "tlh"})).contains("tlh"));
    server.finish().expect("a clean end");
}

#[test]
fn languages_are_refused_where_there_are_none() {
    let refused = |body: Value| post_json(shared(), "/v1/completions", &body).refused(400);
    assert!(refused(json!({"model": "byt5", "prompt": "a", "to": "de"})).contains("no languages"));
    let told = refused(json!({"model": "llama", "prompt": "a", "max_tokens": 2, "to": "de"}));
    assert!(told.contains("`to` is for translators"), "{told}");
}

#[test]
fn images_are_classified_by_the_names_of_classes() {
    let picture = std::fs::read(fixture("pictures/noise.png")).expect("a picture");
    let fields: [(&str, &[u8]); 3] = [("image", &picture), ("labels", b"cat,dog,car"), ("template", b"{} a")];
    let (kind, body) = form(&fields);
    let answer = post(shared(), "/classify/clip?top=3", &kind, &body).ok();
    assert_eq!(answer["logits"].as_array().expect("a list").len(), 3);
    let scores: Vec<f64> =
        answer["top"].as_array().expect("a list").iter().filter_map(|one| one["score"].as_f64()).collect();
    assert!(scores.len() == 3 && scores[0] > scores[1], "{answer}");
    assert!((scores.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{answer}");
    let (kind, body) = form(&fields[..1]);
    assert!(post(shared(), "/classify/clip", &kind, &body).refused(400).contains("`labels`"));
}

#[test]
fn captions_are_explained_on_their_picture() {
    let picture = std::fs::read(fixture("pictures/noise.png")).expect("a picture");
    let (kind, body) = form(&[("image", &picture), ("text", b"cat a\n\n dog a \n")]);
    let answer = post(shared(), "/explain/clip?format=json", &kind, &body).ok();
    let captions = answer["captions"].as_array().expect("captions");
    assert_eq!(captions.iter().map(|caption| caption["text"].clone()).collect::<Vec<_>>(), ["cat a", "dog a"]);
    // The cosines are those of the vectors that other endpoints give, and logits are cosines times one scale.
    let embed = json!({"model": "clip", "input": ["cat a", "dog a"]});
    let embedded = post_json(shared(), "/v1/embeddings", &embed).ok();
    let vector = |index: usize| -> Vec<f64> {
        serde_json::from_value(embedded["data"][index]["embedding"].clone()).expect("numbers")
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for index in 0..2 {
        assert!((dot(&vector(index), &vector(index)) - 1.0).abs() < 1e-4, "a vector of length 1");
    }
    let (kind_of_labels, labels) = form_of_labels(&picture);
    let logits = post(shared(), "/classify/clip", &kind_of_labels, &labels).ok()["logits"].clone();
    let cosine = |index: usize| captions[index]["cosine"].as_f64().expect("a number");
    let logit = |index: usize| logits[index].as_f64().expect("a number");
    let scale = logit(0) / cosine(0);
    assert!(scale > 1.0 && (logit(1) / cosine(1) - scale).abs() < 1e-3 * scale, "{answer}, logits {logits}");
    assert!((cosine(0) - cosine(1)).abs() > 1e-5, "{answer}");
    let page = post(shared(), "/explain/clip", &kind, &body).text();
    assert!(page.contains("cat a") && page.contains("dog a") && !page.contains("/tmp"), "{page}");
    let (kind, body) = form(&[("image", &picture)]);
    assert!(post(shared(), "/explain/clip", &kind, &body).refused(400).contains("`text`"));
    let many = "a\n".repeat(17);
    let (kind, body) = form(&[("image", &picture), ("text", many.as_bytes())]);
    assert!(post(shared(), "/explain/clip", &kind, &body).refused(400).contains("at most 16"));
}

fn form_of_labels(picture: &[u8]) -> (String, Vec<u8>) {
    form(&[("image", picture), ("labels", b"cat a,dog a"), ("template", b"{}")])
}
