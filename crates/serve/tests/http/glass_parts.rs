//! What happens without single parts, of models with several stacks of layers and of models whose answer is a vector: as separate looks say.

use serde_json::{Value, json};

use crate::client::*;
use crate::glass::Seen;
use crate::glass_pairs::{look, share, translator};
use crate::tiny::{self, clip, dinov2, whisper};

fn zero(path: &str) -> Value {
    json!({"path": path, "do": "zero"})
}

/// The log-probability of all tokens of the answer to a look with edits.
fn log_probability(server: &Running, model: &str, input: &Value, edits: &[Value]) -> f64 {
    let asked = json!({"input": input, "edits": edits, "want": {"answer": {"top": 1}}});
    let tokens = look(server, model, &asked).header["answer"]["tokens"].clone();
    tokens.as_array().expect("tokens").iter().map(|token| share(&token["probability"]).ln()).sum()
}

/// Numbers of one head and of one MLP of each group are those of two looks, with and without it, on top of edits.
fn check_groups(server: &Running, model: &str, input: &Value, heads: [&str; 3], mlps: [&str; 2], edits: &[Value]) {
    let whole = log_probability(server, model, input, edits);
    let change = |path: &str| {
        let with: Vec<Value> = edits.iter().cloned().chain([zero(path)]).collect();
        log_probability(server, model, input, &with) - whole
    };
    let mut seen = Vec::new();
    for (group, head) in ["encoder", "decoder", "cross"].iter().zip(heads) {
        let asked = json!({"input": input, "edits": edits, "want": {"effects": {"group": group}}});
        let effects = look(server, model, &asked).header["effects"].clone();
        assert_eq!(effects["group"], *group);
        assert!((share(&effects["log_probability"]) - whole).abs() < 1e-3, "{effects}: {whole}");
        // The last head of the last layer.
        let last = effects["heads"].as_array().and_then(|layers| layers.last()?.as_array()?.last()).expect("a head");
        assert!((share(last) - change(head)).abs() < 1e-3, "{head}: {last}, and a look says {}", change(head));
        seen.push(share(last));
        let own = effects["mlps"].as_array().expect("a list");
        match mlps.iter().find(|mlp| *group != "cross" && mlp.starts_with(group)) {
            Some(mlp) => {
                let last = share(own.last().expect("an MLP"));
                assert!((last - change(mlp)).abs() < 1e-3, "{mlp}: {last}, and a look says {}", change(mlp));
                seen.push(last);
            }
            None => assert!(own.is_empty(), "{effects}"),
        }
    }
    assert!(seen.iter().any(|effect| effect.abs() > 1e-2), "nothing changes: {seen:?}");
}

fn refused(server: &Running, model: &str, input: &Value, want: &Value) -> String {
    post_json(server.address, &format!("/glass/{model}/look"), &json!({"input": input, "want": want})).refused(400)
}

#[test]
fn each_part_of_a_translator_has_its_effect_on_the_whole_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model");
    translator(&path);
    let server = start(vec![named("translator", path)]);
    let listed = get(server.address, "/glass/models").ok()["models"][0].clone();
    let can: Vec<&str> = listed["can"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(can, ["attention", "edits", "lens", "effects"]);
    let given =
        post_json(server.address, "/glass/translator/inputs", &json!({"text": "two four", "target": "nana one"})).ok();
    let input = &given["input"];
    let heads = ["encoder.1.attention.heads.1", "decoder.2.attention.heads.1", "decoder.2.cross_attention.heads.1"];
    let mlps = ["encoder.1.mlp", "decoder.2.mlp"];
    check_groups(&server, "translator", input, heads, mlps, &[]);
    let edits = [zero("decoder.0.mlp"), json!({"path": "encoder.0", "do": "scale", "factor": 2.0})];
    check_groups(&server, "translator", input, heads, mlps, &edits);
    // A part that is changed is switched off in place of that.
    let asked = json!({"input": input, "edits": [zero(mlps[0])], "want": {"effects": {"group": "encoder"}}});
    let effects = look(&server, "translator", &asked).header["effects"].clone();
    assert!(share(&effects["mlps"][1]).abs() < 1e-9, "{effects}");
    // Without a group it is the first.
    let first = look(&server, "translator", &json!({"input": input, "want": {"effects": {}}}));
    assert_eq!(first.header["effects"]["group"], "encoder");
    let told = refused(&server, "translator", input, &json!({"effects": {"group": "self"}}));
    assert!(told.contains("`self`") && told.contains("encoder, decoder, cross"), "{told}");
    assert!(refused(&server, "translator", input, &json!({"effects": {"target": 3}})).contains("whole text"));
    server.finish().expect("an end");
}

#[test]
fn each_part_of_a_model_of_speech_has_its_effect_on_what_it_hears() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model");
    whisper(&path);
    let recording = std::fs::read(repository("crates/data/tests/fixtures/audio/mono.flac")).expect("a fixture");
    let server = start(vec![named("ear", path)]);
    let given = post(server.address, "/glass/ear/inputs", "audio/flac", &recording).ok();
    let heads = ["encoder.0.attention.heads.0", "decoder.0.attention.heads.0", "decoder.0.cross_attention.heads.0"];
    check_groups(&server, "ear", &given["input"], heads, ["encoder.0.mlp", "decoder.0.mlp"], &[]);
    assert!(refused(&server, "ear", &given["input"], &json!({"effects": {"group": "ears"}})).contains("`ears`"));
    server.finish().expect("an end");
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    assert!(!a.is_empty() && a.len() == b.len());
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn vector_with(server: &Running, model: &str, input: &Value, edits: &[Value]) -> Vec<f32> {
    look(server, model, &json!({"input": input, "edits": edits, "want": {"answer": {}}})).floats("vector")
}

/// Effects on a vector are how far it turns between two looks.
fn check_turns(server: &Running, model: &str, input: &Value, edits: &[Value], block: &str) -> Seen {
    let mut want = json!({"effects": {}, "values": [{"path": format!("{block}.0")}], "answer": {}});
    let has_streams = block == "blocks";
    if has_streams {
        want["lens"] = json!({});
    }
    let seen = look(server, model, &json!({"input": input, "edits": edits, "want": want}));
    let effects = &seen.header["effects"];
    let vector = seen.floats("vector");
    let last = effects["mlps"].as_array().expect("a list").len() - 1;
    for (effect, path) in [
        (&effects["heads"][0][1], format!("{block}.0.attention.heads.1")),
        (&effects["mlps"][last], format!("{block}.{last}.mlp")),
    ] {
        let with: Vec<Value> = edits.iter().cloned().chain([zero(&path)]).collect();
        let turn = 1.0 - cosine(&vector, &vector_with(server, model, input, &with));
        assert!((share(effect) - turn).abs() < 1e-6 && turn > 1e-5, "{path}: {effect}, and a look says {turn}");
    }
    if has_streams {
        let at_the_end = seen.header["lens"].as_array().and_then(|layers| layers.last()).expect("layers").clone();
        assert!((share(&at_the_end["cosine"]) - 1.0).abs() < 1e-6, "{at_the_end}");
    }
    seen
}

#[test]
fn a_vector_turns_without_its_parts_and_comes_near_layer_by_layer() {
    let folder = tempfile::tempdir().expect("a folder");
    let [eye, patches, both] = ["eye", "patches", "both"].map(|name| folder.path().join(name));
    dinov2(&eye);
    tiny::write(&patches, "vit_cifar", &[("dim", 16), ("depth", 1), ("heads", 2), ("mlp_dim", 32)]);
    clip(&both);
    let sentence = fixture("texts/sentence_mean");
    let models = [("sentence", sentence), ("eye", eye), ("patches", patches), ("clip", both)];
    let server = start(models.map(|(name, path)| named(name, path)).to_vec());
    let listed = get(server.address, "/glass/models").ok();
    let of = |name: &str| {
        listed["models"].as_array().expect("a list").iter().find(|model| model["name"] == name).expect(name).clone()
    };
    for name in ["sentence", "eye", "clip"] {
        let can = of(name)["can"].clone();
        let has = |what: &str| can.as_array().expect("a list").contains(&json!(what));
        // Streams inside a tower have no lens.
        assert!(has("lens") == (name != "clip") && has("effects") && !has("attribution"), "{name}: {can}");
    }
    for (name, has_norm, pooled_from) in [
        ("sentence", false, Value::Null),
        ("eye", true, json!("class_token")),
        ("patches", false, json!("patches")),
        ("clip", true, json!("class_token")),
    ] {
        assert_eq!((&of(name)["final_norm"], &of(name)["pooled_from"]), (&json!(has_norm), &pooled_from), "{name}");
    }

    let given = post_json(server.address, "/glass/sentence/inputs", &json!({"text": "A cat sits."})).ok();
    for edits in [vec![], vec![json!({"path": "blocks.0.mlp", "do": "scale", "factor": 0.5})]] {
        let seen = check_turns(&server, "sentence", &given["input"], &edits, "blocks");
        // Layers of BERT end in a norm, and nothing stands behind them: the vector of a layer is the mean of its stream.
        let stream = seen.floats("blocks.0");
        let [tokens, width] = seen.shape("blocks.0")[..] else { panic!("no matrix") };
        let mean: Vec<f32> = (0..width)
            .map(|at| (0..tokens).map(|token| stream[token * width + at]).sum::<f32>() / tokens as f32)
            .collect();
        let after_first = seen.header["lens"].as_array().expect("layers").iter().find(|one| one["layer"] == 0);
        let (ours, theirs) = (share(&after_first.expect("a layer")["cosine"]), cosine(&mean, &seen.floats("vector")));
        assert!((ours - theirs).abs() < 1e-6 && theirs < 0.9999, "{ours}, and the stream says {theirs}");
    }
    let told = refused(&server, "sentence", &given["input"], &json!({"lens": {"token": 1}}));
    assert!(told.contains("one cosine"), "{told}");

    let picture = std::fs::read(fixture("pictures").join("noise.png")).expect("a picture");
    let given = post(server.address, "/glass/clip/inputs", "image/png", &picture).ok();
    check_turns(&server, "clip", &given["input"], &[], "image.blocks");
    let given = post(server.address, "/glass/eye/inputs", "image/png", &picture).ok();
    let seen = check_turns(&server, "eye", &given["input"], &[], "blocks");
    // Without both parts of its last layer the stream stays what it was before: the end makes of it what the lens shows there.
    let bare = vector_with(&server, "eye", &given["input"], &[zero("blocks.1.attention"), zero("blocks.1.mlp")]);
    let after_first = seen.header["lens"].as_array().expect("layers").iter().find(|one| one["layer"] == 0);
    let (ours, theirs) = (share(&after_first.expect("a layer")["cosine"]), cosine(&bare, &seen.floats("vector")));
    assert!((ours - theirs).abs() < 1e-5 && theirs < 0.9999, "{ours}, and a look says {theirs}");
    server.finish().expect("an end");
}
