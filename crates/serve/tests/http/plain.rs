//! Requests of people with curl, and the pages for them.

use serde_json::{Value, json};

use crate::client::*;

fn picture(name: &str) -> Vec<u8> {
    std::fs::read(fixture("pictures").join(name)).expect("a picture")
}

#[test]
fn an_image_is_classified_however_it_is_sent() {
    use base64::Engine;
    let expected = read_json(&fixture("predictions.json"));
    for name in ["noise.png", "smooth.png", "deeper/grey.BMP"] {
        let bytes = picture(name);
        let theirs = numbers(&expected[name]["logits"]);
        let (kind, fields) = form(&[("image", &bytes)]);
        let json = json!({"image": base64::engine::general_purpose::STANDARD.encode(&bytes)}).to_string();
        for answer in [
            post(shared(), "/classify/vit", "application/x-www-form-urlencoded", &bytes),
            post(shared(), "/classify/vit", "image/png", &bytes),
            post(shared(), "/classify/vit", &kind, &fields),
            post(shared(), "/classify/vit?top=7", "application/json", json.as_bytes()),
        ] {
            let answer = answer.ok();
            assert_close(&numbers(&answer["logits"]), &theirs, 1e-4);
            let best = (0..theirs.len()).max_by(|&a, &b| theirs[a].total_cmp(&theirs[b])).expect("a class");
            assert_eq!(answer["top"][0]["index"], best);
        }
    }
    let seven = post(shared(), "/classify/vit?top=7", "image/png", &picture("noise.png")).ok();
    assert_eq!(seven["top"].as_array().expect("a list").len(), 7);
}

#[test]
fn texts_are_answered_as_by_the_peers_pipelines() {
    let expected = read_json(&fixture("texts/expected.json"));
    let entry = &expected["bert_classes"][0];
    let text = entry["input"].as_str().expect("text");
    let (kind, fields) = form(&[("text", text.as_bytes())]);
    for answer in [
        post(shared(), "/classify/bert_classes", "text/plain", text.as_bytes()),
        post(shared(), "/classify/bert_classes", "application/x-www-form-urlencoded", text.as_bytes()),
        post(shared(), "/classify/bert_classes", &kind, &fields),
        post_json(shared(), "/classify/bert_classes", &json!({"text": text})),
    ] {
        let answer = answer.ok();
        assert_close(&numbers(&answer["logits"]), &numbers(&entry["logits"]), 1e-5);
        assert_eq!(answer["top"][0]["label"], entry["pipeline"][0]["label"]);
    }
    let found = post(shared(), "/classify/bert_tokens", "text/plain", text.as_bytes()).ok();
    let theirs = expected["bert_tokens"]["simple"].as_array().expect("a list");
    let theirs = theirs.iter().find(|entry| entry["text"] == text).expect("the text");
    let groups = |value: &Value| {
        let list = value.as_array().expect("a list").iter();
        list.map(|one| (one["entity_group"].clone(), one["start"].clone(), one["end"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(groups(&found["entities"]), groups(&theirs["entities"]));
    let masked = &expected["bert_masked"][0];
    let filled =
        post(shared(), "/classify/bert_masked?top=4", "text/plain", masked["text"].as_str().expect("text").as_bytes())
            .ok();
    let ids = |top: &Value| top.as_array().expect("a list").iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&filled["masks"][0]["top"]), ids(&masked["masks"][0]));
    let answers = read_json(&fixture("texts/answers.json"));
    let asked = &answers[0];
    let body = json!({"question": asked["question"], "context": asked["context"]});
    let answer = post_json(shared(), "/classify/bert_answers", &body).ok();
    assert!(answer["answers"][0]["score"].as_f64().expect("a score") > 0.0, "{answer}");
    // By tensors: two inputs, in any order.
    let tensor = |name: &str, text: &Value| json!({"name": name, "shape": [1], "datatype": "BYTES", "data": [text]});
    let inputs = [tensor("context", &asked["context"]), tensor("question", &asked["question"])];
    let path = "/v2/models/bert_answers/infer";
    let told = post_json(shared(), path, &json!({"inputs": inputs})).ok();
    let told: Value =
        serde_json::from_str(told["outputs"][0]["data"][0].as_str().expect("a text")).expect("an answer as JSON");
    assert_eq!(told, answer);
    let two = json!({"name": "context", "shape": [2], "datatype": "BYTES", "data": ["Ada.", "Bob."]});
    for (inputs, said) in [
        (json!([inputs[0]]), "two inputs, `question` and `context`"),
        (json!([inputs[0], inputs[0], inputs[1]]), "two inputs"),
        (json!([two, inputs[1]]), "equally many rows"),
    ] {
        assert!(post_json(shared(), path, &json!({"inputs": inputs})).refused(400).contains(said), "{said}");
    }
}

#[test]
fn what_a_model_does_inside_is_a_page_or_json() {
    let bytes = picture("noise.png");
    let page = post(shared(), "/explain/vit", "image/png", &bytes);
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.header("content-type").expect("a type").starts_with("text/html"));
    assert!(page.text().contains("Attention rollout"));
    // Where the model lies on this disk is not told.
    assert!(!page.text().contains("fixtures"), "a path is told");
    let told = post(shared(), "/explain/vit?format=json", "image/png", &bytes).ok();
    assert!(told["rollout"][0]["patches"].is_array() && told["page"].is_null());
    assert!(post(shared(), "/explain/vit", "text/plain", b"a").refused(400).contains("takes an image"));
}

#[test]
fn a_text_is_explained_as_a_page_or_json() {
    let expected = read_json(&fixture("texts/expected.json"));
    let entry = &expected["bert_classes"][0];
    let text = entry["input"].as_str().expect("text");
    let told = post(shared(), "/explain/bert_classes?format=json&top=2", "text/plain", text.as_bytes()).ok();
    assert_close(&numbers(&told["logits"]), &numbers(&entry["logits"]), 1e-5);
    let count = told["tokens"].as_array().expect("tokens").len();
    assert_eq!(told["attention"][0]["mean"].as_array().expect("rows").len(), count);
    assert_eq!((told["top"].as_array().expect("a list").len(), &told["page"]), (2, &Value::Null));
    let page = post(shared(), "/explain/bert_classes", "text/plain", text.as_bytes());
    assert!(page.header("content-type").expect("a type").starts_with("text/html"));
    assert!(page.text().contains("bert_classes") && !page.text().contains("fixtures"), "a path is told");
    let pair = json!({"text": "one text", "pair": "one text"});
    let same = post_json(shared(), "/explain/sentence_mean?format=json", &pair).ok();
    assert_close(&[same["similarity"]["score"].as_f64().expect("a cosine")], &[1.0], 1e-5);
    let answers = read_json(&fixture("texts/answers.json"));
    let asked = json!({"question": answers[0]["question"], "context": answers[0]["context"]});
    let classified = post_json(shared(), "/classify/bert_answers", &asked).ok();
    let told = post_json(shared(), "/explain/bert_answers?format=json", &asked).ok();
    assert_eq!(told["answers"][0]["answer"], classified["answers"][0]["answer"]);

    let told = post(shared(), "/explain/llama?format=json", "text/plain", b"One day").ok();
    let body = json!({"model": "llama", "prompt": "One day", "max_tokens": 1, "temperature": 0, "logprobs": 1});
    let written = post_json(shared(), "/v1/completions", &body).ok();
    let likeliest = written["choices"][0]["logprobs"]["token_logprobs"][0].as_f64().expect("a number");
    let last = told["lens"].as_array().expect("layers").last().expect("a layer")["tokens"].clone();
    let share = last.as_array().expect("tokens").last().expect("a token")[0]["score"].as_f64().expect("a share");
    assert_close(&[share.ln()], &[likeliest], 1e-3);
    assert!(post(shared(), "/explain/llama", "text/plain", b"One day").text().contains("llama"));

    for (model, body, says) in [
        ("llama", json!({"text": "One day", "pair": "Two"}), "takes no `pair`"),
        ("bert_classes", json!({"text": "One day", "target": "Two"}), "takes no `target`"),
        ("bert_answers", json!({"question": "Who?"}), "send `question` and `context`"),
        ("llama", json!({"text": " "}), "the text is empty"),
        ("llama", json!({"text": "One day. ".repeat(2000)}), "give a shorter one"),
        ("bert_masked", json!({"image": "////"}), "not UTF-8"),
    ] {
        let told = post_json(shared(), &format!("/explain/{model}"), &body);
        assert_eq!(told.status, 400, "{model} {}", told.text());
        assert!(told.text().contains(says), "{model}: {}", told.text());
    }
}

#[test]
fn pages_and_descriptions_name_everything() {
    let index = get(shared(), "/docs");
    assert!(index.header("content-security-policy").is_some());
    let index = index.text();
    for part in [
        "curl http://localhost/classify/vit --data-binary @photo.jpg",
        "/v1/chat/completions",
        "sentence_mean",
        "/v2/models/vit",
    ] {
        assert!(index.contains(part), "{part} is not in {index}");
    }
    let described = get(shared(), "/openapi.json").ok();
    assert!(described["openapi"].as_str().expect("a version").starts_with("3."));
    for path in [
        "/v1/completions",
        "/v1/audio/transcriptions",
        "/v2/models/{name}/infer",
        "/classify/{name}",
        "/admin/reload",
        "/metrics",
        "/glass/{name}/look",
        "/glass/{name}/inputs",
    ] {
        assert!(described["paths"][path].is_object(), "{path}");
    }
    let docs = get(shared(), "/docs").text();
    assert!(docs.contains("<code>temperature</code>") && docs.contains("/v1/embeddings"), "{docs}");
    post(shared(), "/classify/vit", "image/png", &picture("noise.png")).ok();
    let metrics = get(shared(), "/metrics").text();
    for part in [
        "vitreous_requests_total{endpoint=\"/classify/{name}\",status=\"200\"}",
        "vitreous_batch_size_bucket{model=\"vit\"",
        "vitreous_queue{model=\"llama\"}",
        "vitreous_cache_room_tokens{model=\"llama\"} 384",
        "vitreous_resident_bytes ",
    ] {
        assert!(metrics.contains(part), "{part} is not in {metrics}");
    }
}

#[test]
fn every_answer_has_an_id() {
    let own = raw(shared(), &request("GET", "/v1/models", &[("X-Request-Id", "mine-7")], b"")).expect("an answer");
    assert_eq!(own.header("x-request-id"), Some("mine-7"));
    for answer in [get(shared(), "/"), get(shared(), "/nowhere"), get(shared(), "/v2/health/live")] {
        assert!(answer.header("x-request-id").expect("an id").starts_with("req-"));
    }
    // One that is none is not repeated.
    let odd = raw(shared(), &request("GET", "/", &[("X-Request-Id", "a b<c>")], b"")).expect("an answer");
    assert!(odd.header("x-request-id").expect("an id").starts_with("req-"));
    get(shared(), "/nowhere").refused(404);
    get(shared(), "/v1/completions").refused(405);
}
