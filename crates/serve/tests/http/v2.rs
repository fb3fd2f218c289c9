//! The Open Inference Protocol.

use serde_json::{Value, json};

use crate::client::*;

#[test]
fn the_server_and_its_models_are_described() {
    // Of the repository there is its index alone, which is not what clients take the extension `model_repository` for.
    assert_eq!(get(shared(), "/v2").ok()["extensions"], json!(["binary_tensor_data"]));
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/vit/ready", "/v2/models/vit/versions/1/ready"] {
        assert_eq!(get(shared(), path).status, 200, "{path}");
    }
    let vit = get(shared(), "/v2/models/vit").ok();
    assert_eq!(vit["inputs"][0]["name"], "images");
    assert_eq!(vit["outputs"][0], json!({"name": "logits", "datatype": "FP32", "shape": [-1, 7]}));
    assert_eq!(get(shared(), "/v2/models/sentence_mean").ok()["inputs"][0]["datatype"], "BYTES");
    let index = raw(shared(), &request("POST", "/v2/repository/index", &[], b"")).expect("an answer").ok();
    assert_eq!(index[0], json!({"name": "vit", "version": "1", "state": "READY", "reason": ""}));
    // Errors have KServe's shape.
    let missing = get(shared(), "/v2/models/nobody");
    assert!(missing.json()["error"].is_string());
    missing.refused(404);
    get(shared(), "/v2/models/vit/versions/2").refused(404);
}

/// An image model's input of some numbers, and its shape.
fn image() -> (Vec<f32>, Value) {
    let shape = get(shared(), "/v2/models/vit").ok()["inputs"][0]["shape"].clone();
    let sizes: Vec<usize> =
        shape.as_array().expect("a shape")[1..].iter().filter_map(|size| Some(size.as_u64()? as usize)).collect();
    let count: usize = sizes.iter().product();
    let numbers = (0..2 * count).map(|index| ((index * 7) % 17) as f32 / 17.0 - 0.5).collect();
    (numbers, json!([2, sizes[0], sizes[1], sizes[2]]))
}

#[test]
fn tensors_are_the_same_as_json_and_as_bytes() {
    let (numbers, shape) = image();
    let ask = json!({"id": "7", "inputs": [{"name": "images", "shape": shape, "datatype": "FP32", "data": numbers}],
        "outputs": [{"name": "logits"}, {"name": "features"}]});
    let answer = post_json(shared(), "/v2/models/vit/infer", &ask).ok();
    assert_eq!((&answer["id"], &answer["outputs"][0]["shape"]), (&json!("7"), &json!([2, 7])));
    assert_eq!(answer["outputs"][1]["name"], "features");
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let size = json!({"binary_data_size": bytes.len()});
    let ask = json!({"inputs": [{"name": "images", "shape": shape, "datatype": "FP32", "parameters": size}],
        "outputs": [{"name": "logits", "parameters": {"binary_data": true}}]});
    let json = ask.to_string();
    let body = [json.as_bytes(), &bytes].concat();
    let length = json.len().to_string();
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let binary = raw(shared(), &request("POST", "/v2/models/vit/infer", &headers, &body)).expect("an answer");
    assert_eq!(binary.status, 200, "{:?}", String::from_utf8_lossy(&binary.body));
    let split: usize = binary.header("inference-header-content-length").expect("a length").parse().expect("a number");
    let told: Value = serde_json::from_slice(&binary.body[..split]).expect("JSON");
    assert_eq!(told["outputs"][0]["parameters"]["binary_data_size"], 56);
    let ours: Vec<f64> = binary.body[split..]
        .chunks_exact(4)
        .map(|four| f64::from(f32::from_le_bytes(four.try_into().expect("four"))))
        .collect();
    assert_close(&ours, &crate::client::numbers(&answer["outputs"][0]["data"]), 1e-6);
    // Too short, too long, and a length that is none.
    for (length, body) in [
        (json.len().to_string(), &body[..body.len() - 4]),
        ("999999".into(), &body[..]),
        ("x".into(), &body[..]),
        ((json.len() - 1).to_string(), &body[..]),
    ] {
        let headers = [("Inference-Header-Content-Length", length.as_str())];
        raw(shared(), &request("POST", "/v2/models/vit/infer", &headers, body)).expect("an answer").refused(400);
    }
}

#[test]
fn texts_go_in_and_vectors_or_texts_come_out() {
    let body = json!({"model": "sentence_mean", "input": "Ada Lovelace lived in London."});
    let theirs = post_json(shared(), "/v1/embeddings", &body).ok()["data"][0]["embedding"].clone();
    let ask = json!({"inputs": [{"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": [["Ada Lovelace lived in London."], ["a"]]}]});
    let answer = post_json(shared(), "/v2/models/sentence_mean/infer", &ask).ok();
    let width = numbers(&theirs).len();
    assert_eq!(answer["outputs"][0]["shape"], json!([2, width]));
    assert_close(&numbers(&answer["outputs"][0]["data"])[..width], &numbers(&theirs), 1e-6);
    let ask = json!({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["Once upon a time"]}],
        "parameters": {"max_tokens": 20, "temperature": 0}});
    let answer = post_json(shared(), "/v2/models/llama/infer", &ask).ok();
    assert_eq!(answer["outputs"][0]["data"][0], language("llama").1["texts"][0]);
}

#[test]
fn entities_images_of_clip_and_recordings_are_answered_like_elsewhere() {
    let text = "Ada Lovelace lived in London.";
    let ask = |name: &str, datatype: &str, shape: Value, data: Value| json!({"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": data}]});
    let answer = post_json(shared(), "/v2/models/bert_tokens/infer", &ask("text", "BYTES", json!([1]), json!([text])));
    let found: Value =
        serde_json::from_str(answer.ok()["outputs"][0]["data"][0].as_str().expect("text")).expect("JSON");
    assert_eq!(found, post(shared(), "/classify/bert_tokens", "text/plain", text.as_bytes()).ok());
    let clip = get(shared(), "/v2/models/clip").ok();
    assert_eq!((&clip["inputs"][0]["name"], &clip["outputs"][0]["name"]), (&json!("images"), &json!("features")));
    let blank = ask("images", "FP32", json!([1, 3, 32, 32]), json!(vec![0.5; 3 * 32 * 32]));
    let vector = post_json(shared(), "/v2/models/clip/infer", &blank).ok()["outputs"][0]["data"].clone();
    let body = json!({"model": "clip", "input": ["cat a", "dog a"]});
    let texts = post_json(shared(), "/v1/embeddings", &body).ok();
    assert_eq!(numbers(&texts["data"][1]["embedding"]).len(), numbers(&vector).len());
    assert!(texts["usage"]["prompt_tokens"].as_u64().is_some_and(|count| count > 4));
    // Of length 1, and different.
    let [cat, dog] = [0, 1].map(|index| numbers(&texts["data"][index]["embedding"]));
    assert!((cat.iter().map(|number| number * number).sum::<f64>() - 1.0).abs() < 1e-4 && cat != dog);
    // The recording's bytes come behind the JSON.
    let recording = std::fs::read(repository("crates/data/tests/fixtures/audio/mono.flac")).expect("a fixture");
    let size = json!({"binary_data_size": recording.len() + 4});
    let json =
        json!({"inputs": [{"name": "audio", "shape": [1], "datatype": "BYTES", "parameters": size}]}).to_string();
    let body = [json.as_bytes(), &(recording.len() as u32).to_le_bytes(), &recording].concat();
    let length = json.len().to_string();
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let heard = raw(shared(), &request("POST", "/v2/models/ear/infer", &headers, &body)).expect("an answer").ok();
    let (kind, body) = form(&[("file", &recording), ("model", b"ear")]);
    let theirs = post(shared(), "/v1/audio/transcriptions", &kind, &body).ok();
    assert_eq!(heard["outputs"][0]["data"][0], theirs["text"]);
}

#[test]
fn wrong_tensors_are_told() {
    let (numbers, shape) = image();
    let input = |name: &str, shape: Value, datatype: &str, data: Value| json!({"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": data}]});
    let good = input("images", shape.clone(), "FP32", json!(numbers));
    let mut two = good.clone();
    two["inputs"] = json!([good["inputs"][0], good["inputs"][0]]);
    let mut other = good.clone();
    other["outputs"] = json!([{"name": "x"}]);
    let mut twice = good.clone();
    twice["outputs"] = json!([{"name": "logits"}, {"name": "features"}, {"name": "logits"}]);
    for (wrong, says) in [
        (input("pictures", shape.clone(), "FP32", json!(numbers)), "one input, `images`"),
        (input("images", json!([1, 2]), "FP32", json!([1, 2])), "has the shape"),
        (input("images", json!([0, 3, 32, 32]), "FP32", json!([])), "between 1 and"),
        (input("images", json!([-1, 2]), "FP32", json!([1, 2])), "shape"),
        (input("images", shape.clone(), "INT8", json!(numbers)), "`INT8`"),
        (input("images", shape.clone(), "FP32", json!([[1, "a"]])), "not a number"),
        (input("images", json!([]), "FP32", json!([1e300])), "between 1 and"),
        (json!({"inputs": []}), "one input"),
        (json!({"inputs": 3}), "`inputs`"),
        (two, "one input"),
        (other, "no such output; there are logits, features"),
        (twice, "the output `logits` is named twice"),
    ] {
        let told = post_json(shared(), "/v2/models/vit/infer", &wrong).refused(400);
        assert!(told.contains(says), "{told} for {}", &wrong.to_string()[..100.min(wrong.to_string().len())]);
    }
}
