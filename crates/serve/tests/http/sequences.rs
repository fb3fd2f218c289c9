//! Encoder-decoders, and models of images and texts.

use std::path::Path;

use serde_json::json;
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
    // The cosines are those of the vectors that other endpoints give.
    let embed = json!({"model": "clip", "input": ["cat a", "dog a"]});
    let embedded = post_json(shared(), "/v1/embeddings", &embed).ok();
    let vector = |index: usize| -> Vec<f64> {
        serde_json::from_value(embedded["data"][index]["embedding"].clone()).expect("numbers")
    };
    let logits = post(shared(), "/classify/clip", &kind, &form_of_labels(&picture).1).ok()["logits"].clone();
    let cosine = |index: usize| captions[index]["cosine"].as_f64().expect("a number");
    let logit = |index: usize| logits[index].as_f64().expect("a number");
    assert!(vector(0) != vector(1) && (cosine(0) > cosine(1)) == (logit(0) > logit(1)), "{answer}");
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
