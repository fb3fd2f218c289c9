//! Looks that are wrong, too large, or about what is not there any more.

use serde_json::json;

use crate::client::*;
use crate::glass::{give, give_text, picture, watched};

fn refused(model: &str, body: &serde_json::Value, status: u16) -> String {
    post_json(watched(), &format!("/glass/{model}/look"), body).refused(status)
}

#[test]
fn what_is_not_there_is_said_with_what_there_is() {
    let input = give("vit", "image/png", &picture("noise.png"))["input"].clone();
    let similar = refused("vit", &json!({"input": input, "edits": [{"path": "blocks.0.mpl", "do": "zero"}]}), 400);
    assert!(similar.contains("blocks.0.mlp"), "{similar}");
    let similar = refused("vit", &json!({"input": input, "want": {"values": [{"path": "block.0"}]}}), 400);
    assert!(similar.contains("blocks.0"), "{similar}");
    assert!(refused("vit", &json!({"input": "0123", "want": {"answer": {}}}), 410).contains("give it again"));
    let edit = json!([{"path": "blocks.0", "do": "from", "input": "0123"}]);
    refused("vit", &json!({"input": input, "edits": edit}), 410);
    assert!(refused("nothing", &json!({"input": input}), 404).contains("`vit`"));
    assert!(refused("vit", &json!({"input": input, "want": {"answr": {}}}), 400).contains("answr"));
    assert!(
        refused("vit", &json!({"input": input, "edits": [{"path": "blocks.0", "do": "scale"}]}), 400)
            .contains("`factor`")
    );
    assert!(refused("vit", &json!({"input": input, "want": {"attention": {"group": "cross"}}}), 400).contains("self"));
    for want in [
        json!({"attention": {"layers": [99]}}),
        json!({"attention": {"heads": [0, 99]}}),
        json!({"attention_row": {"query": 9999}}),
        json!({"values": [{"path": "blocks.0.attention.weights", "head": 99}]}),
        json!({"values": [{"path": "blocks.0", "rows": [5, 2]}]}),
        json!({"answer": {"top": 0}}),
        json!({"attribution": {"target": 1_000_000}}),
        json!({"effects": {"target": 1_000_000}}),
    ] {
        refused("vit", &json!({"input": input, "want": want}), 400);
    }
    get(watched(), "/glass/vit/graph").refused(400);
    get(watched(), "/glass/vit/graph?input=0").refused(410);
    get(watched(), "/glass/vit/look").refused(405);
}

#[test]
fn inputs_that_are_too_large_are_refused_before_they_are_worked_on() {
    let text = "word ".repeat(200_000);
    for model in ["llama", "bert_classes", "bert_masked"] {
        let body = json!({"text": text}).to_string();
        let told = post(watched(), &format!("/glass/{model}/inputs"), "application/json", body.as_bytes()).refused(413);
        assert!(told.contains("shorter"), "{told}");
    }
    let told = post_json(watched(), "/glass/llama/inputs", &json!({"ids": vec![1; 100_000]})).refused(413);
    assert!(told.contains("shorter"), "{told}");
    assert!(
        post_json(watched(), "/glass/llama/inputs", &json!({"ids": [1_000_000]})).refused(400).contains("vocabulary")
    );
    post_json(watched(), "/glass/llama/inputs", &json!({"ids": []})).refused(400);
    // The head of a PNG of 100 megapixels: what it says is believed before anything is decoded.
    let mut png = picture("noise.png");
    png[16..20].copy_from_slice(&10_000u32.to_be_bytes());
    png[20..24].copy_from_slice(&10_000u32.to_be_bytes());
    let told = post(watched(), "/glass/vit/inputs", "image/png", &png).refused(400);
    assert!(told.contains("the image"), "{told}");
    post(watched(), "/glass/vit/inputs", "image/png", b"").refused(400);
    post(watched(), "/glass/vit/inputs", "image/png", b"no picture").refused(400);
    assert!(post(watched(), "/glass/llama/inputs", "image/png", &picture("noise.png")).refused(400).contains("`text`"));
    assert!(post_json(watched(), "/glass/vit/inputs", &json!({"text": "a"})).refused(400).contains("image"));
    post_json(watched(), "/glass/vit/inputs", &json!({"text": "a", "ids": [1]})).refused(400);
}

#[test]
fn an_input_is_forgotten_when_its_model_is_loaded_again() {
    let running = start(vec![named("llama", language("llama").0)]);
    let given = post_json(running.address, "/glass/llama/inputs", &json!({"ids": [1, 2, 3]})).ok();
    let body = json!({"input": given["input"], "want": {"answer": {}}});
    assert_eq!(post_json(running.address, "/glass/llama/look", &body).status, 200);
    post(running.address, "/admin/reload", "text/plain", b"").ok();
    assert!(post_json(running.address, "/glass/llama/look", &body).refused(410).contains("again"));
    let given = post_json(running.address, "/glass/llama/inputs", &json!({"ids": [1, 2, 3]})).ok();
    let body = json!({"input": given["input"], "want": {"answer": {}}});
    assert_eq!(post_json(running.address, "/glass/llama/look", &body).status, 200);
    running.finish().expect("an end");
}

#[test]
fn with_keys_the_page_is_open_and_the_models_are_not() {
    let keys = vitreous_serve::ApiKeys::parse("secret");
    let running =
        start_with(vitreous_serve::ServeOptions { keys, ..options(vec![named("llama", language("llama").0)]) }, None);
    assert_eq!(get(running.address, "/").status, 200);
    assert_eq!(get(running.address, "/glass/app/index.html").status, 200);
    get(running.address, "/glass/models").refused(401);
    let with_key = request("GET", "/glass/models", &[("Authorization", "Bearer secret")], b"");
    assert_eq!(raw(running.address, &with_key).expect("an answer").status, 200);
    running.finish().expect("an end");
}

#[test]
fn a_hundred_edits_are_one_plan_and_right_to_the_last() {
    let input = give_text("bert_classes", "A cat sits on a mat.")["input"].clone();
    let scores = |edits: serde_json::Value| {
        let seen = crate::glass::look("bert_classes", &json!({"input": input, "edits": edits, "want": {"answer": {}}}));
        seen.header["answer"]["top"].clone()
    };
    let plain = scores(json!([]));
    for step in 0..100 {
        let factor = f64::from(step) / 50.0;
        scores(
            json!([{"path": "blocks.0.mlp", "do": "scale", "factor": factor}, {"path": "blocks.1.attention.heads.0", "do": "zero"}]),
        );
    }
    assert_eq!(scores(json!([{"path": "blocks.0.mlp", "do": "scale", "factor": 1.0}])), plain);
    assert_eq!(scores(json!([])), plain);
}
