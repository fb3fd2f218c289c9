//! The glass house through a real socket: what a look shows is what the library computes, and what an edit does is what the command does.

use std::net::SocketAddr;
use std::sync::OnceLock;

use serde_json::{Value, json};
use vitreous_engine::{Device, Edit, EditValues, Intervention};
use vitreous_explain::inside::{Given, Inside, value_of};
use vitreous_models::{Model, OpenOptions};
use vitreous_runtime::scores::softmax;
use vitreous_runtime::text::{TextInput, TextModel};
use vitreous_runtime::{ImageModel, language::LanguageModel};

use crate::client::*;

pub fn device() -> Device {
    Device::Cpu { threads: 2 }
}

/// A server with a model of every kind that can be watched.
pub fn watched() -> SocketAddr {
    static SERVER: OnceLock<Running> = OnceLock::new();
    let of = |name: &str| named(name, fixture(&format!("texts/{name}")));
    SERVER
        .get_or_init(|| {
            start(vec![
                named("vit", fixture("tiny_vit")),
                named("llama", language("llama").0),
                of("bert_classes"),
                of("bert_masked"),
                of("bert_tokens"),
                of("bert_answers"),
                of("sentence_mean"),
            ])
        })
        .address
}

pub fn picture(name: &str) -> Vec<u8> {
    std::fs::read(fixture("pictures").join(name)).expect("a picture")
}

/// Gives a model an input; gives what was answered.
pub fn give(model: &str, kind: &str, body: &[u8]) -> Value {
    post(watched(), &format!("/glass/{model}/inputs"), kind, body).ok()
}

pub fn give_text(model: &str, text: &str) -> Value {
    give(model, "application/json", json!({"text": text}).to_string().as_bytes())
}

/// A look, read as its description says and by nothing of ours.
pub struct Seen {
    pub header: Value,
    arrays: Vec<u8>,
}

impl Seen {
    pub fn of(bytes: &[u8]) -> Seen {
        let length = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
        let header: Value = serde_json::from_slice(&bytes[4..4 + length]).expect("a header");
        let start = (4 + length).div_ceil(8) * 8;
        assert!(bytes[4 + length..start].iter().all(|byte| *byte == 0));
        Seen { header, arrays: bytes[start..].to_vec() }
    }

    fn about(&self, name: &str) -> &Value {
        let arrays = self.header["arrays"].as_array().expect("a list");
        arrays.iter().find(|array| array["name"] == name).unwrap_or_else(|| panic!("{name} is not in {}", self.header))
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        let axes = self.about(name)["shape"].as_array().expect("a shape").iter();
        axes.map(|axis| axis.as_u64().expect("a size") as usize).collect()
    }

    fn bytes(&self, name: &str, size: usize) -> &[u8] {
        let offset = self.about(name)["offset"].as_u64().expect("an offset") as usize;
        assert_eq!(offset % 8, 0);
        &self.arrays[offset..offset + size * self.shape(name).iter().product::<usize>()]
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        assert_eq!(self.about(name)["type"], "f32");
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        self.bytes(name, 4).chunks_exact(4).map(number).collect()
    }

    pub fn levels(&self, name: &str) -> Vec<u8> {
        assert_eq!(self.about(name)["type"], "u8");
        self.bytes(name, 1).to_vec()
    }

    fn scores(&self) -> Vec<(u64, f64)> {
        let top = self.header["answer"]["top"].as_array().expect("a list").iter();
        top.map(|one| (one["index"].as_u64().expect("an index"), one["score"].as_f64().expect("a score"))).collect()
    }
}

pub fn look(model: &str, body: &Value) -> Seen {
    let answer = post_json(watched(), &format!("/glass/{model}/look"), body);
    assert_eq!(answer.status, 200, "{}: {body}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    Seen::of(&answer.body)
}

fn model(path: std::path::PathBuf) -> Model {
    Model::open(&path, &OpenOptions::default()).expect("a model")
}

fn pixels(vit: &ImageModel, bytes: &[u8]) -> Vec<f32> {
    use vitreous_data::image::{Channels, Scratch, decode_within};
    let channels = Channels::from_count(vit.input.channels).expect("channels");
    let image = decode_within(bytes, channels, 1 << 24).expect("an image");
    let mut numbers = vec![0.0; vit.input.floats()];
    vit.preprocess.apply(&image, &mut Scratch::default(), &mut numbers).expect("prepared");
    numbers
}

fn assert_near(what: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let largest = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-5, "{what}: {largest:e}");
    assert!(theirs.iter().any(|x| x.abs() > 1e-6), "{what} says nothing");
}

#[test]
fn the_page_and_its_files_come_from_the_binary() {
    let page = get(watched(), "/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"), "{policy}");
    let tag = page.header("etag").expect("a tag").to_string();
    let again = raw(watched(), &request("GET", "/", &[("If-None-Match", &tag)], b"")).expect("an answer");
    assert_eq!((again.status, again.body.len()), (304, 0));
    let file = get(watched(), "/glass/app/index.html");
    assert_eq!((file.status, file.header("cache-control")), (200, Some("no-cache")));
    let named = get(watched(), &format!("/glass/app/index.html?v={}", tag.trim_matches('"')));
    assert!(named.header("cache-control").expect("caching").contains("immutable"));
    for wrong in ["/glass/app/nothing.js", "/glass/app/../mod.rs", "/glass/app/%2e%2e/lib.rs", "/glass/app/mod.rs"] {
        get(watched(), wrong).refused(404);
    }
}

#[test]
fn models_say_what_they_take_and_give() {
    let listed = get(watched(), "/glass/models").ok();
    let of = |name: &str| {
        let list = listed["models"].as_array().expect("a list");
        list.iter().find(|model| model["name"] == name).expect(name).clone()
    };
    let kinds = [
        ("vit", "image", "classes"),
        ("llama", "text", "next_token"),
        ("bert_classes", "text", "classes"),
        ("bert_masked", "text", "masked"),
        ("bert_tokens", "text", "token_classes"),
        ("bert_answers", "pair", "answers"),
        ("sentence_mean", "text", "vector"),
    ];
    for (name, takes, gives) in kinds {
        assert_eq!((&of(name)["takes"], &of(name)["gives"]), (&json!(takes), &json!(gives)), "{name}");
        assert_eq!(of(name)["groups"][0]["attention"], "blocks.#.attention", "{name}");
        assert!(of(name)["parameters"].as_u64().expect("a number") > 100, "{name}");
    }
    assert_eq!(of("bert_masked")["mask"], "[MASK]");
    let vit = model(fixture("tiny_vit"));
    assert_eq!(of("vit")["labels"].as_array().map(Vec::len).unwrap_or(0), vit.assets.labels.len());
}

#[test]
fn an_image_is_given_once_and_seen_as_the_model_sees_it() {
    let first = give("vit", "image/png", &picture("noise.png"));
    let again = give("vit", "image/png", &picture("noise.png"));
    assert_eq!(first["input"], again["input"]);
    assert_ne!(first["input"], give("vit", "image/png", &picture("smooth.png"))["input"]);
    let vit = ImageModel::open(&fixture("tiny_vit"), &OpenOptions::default()).expect("a model");
    assert_eq!(first["grid"]["rows"], vit.input.grid.height);
    assert_eq!(first["tokens"].as_array().expect("tokens").len(), vit.input.tokens());
    let seen = get(watched(), &format!("/glass/vit/inputs/{}/seen", first["input"].as_str().expect("an id")));
    assert_eq!((seen.status, seen.header("content-type")), (200, Some("image/png")));
    assert!(seen.body.starts_with(b"\x89PNG"));
    get(watched(), "/glass/vit/inputs/0123/seen").refused(410);
}

#[test]
fn answers_and_values_of_an_image_are_the_librarys() {
    let vit = ImageModel::open(&fixture("tiny_vit"), &OpenOptions::default()).expect("a model");
    let expected = read_json(&fixture("predictions.json"));
    let input = give("vit", "image/png", &picture("noise.png"))["input"].clone();
    let paths = ["blocks.0", "blocks.1.mlp", "blocks.0.attention", "embedding"];
    let values: Vec<Value> = paths.iter().map(|path| json!({"path": path})).collect();
    let seen = look(
        "vit",
        &json!({"input": input, "want": {"answer": {"top": 3}, "values": values, "stages": {"fit": [4, 6]}}}),
    );
    let scores = softmax(&numbers(&expected["noise.png"]["logits"]).iter().map(|x| *x as f32).collect::<Vec<_>>());
    for (index, score) in seen.scores() {
        assert!((scores[index as usize] - score).abs() < 1e-4, "{index}: {score}");
    }
    let entropy: f64 = scores.iter().map(|p| -p * p.ln()).sum();
    assert!((seen.header["answer"]["entropy"].as_f64().expect("entropy") - entropy).abs() < 1e-3);
    assert_eq!(seen.header["answer"]["of"], scores.len());
    let given = Given::Image(pixels(&vit, &picture("noise.png")));
    for path in paths {
        let (shape, theirs) = value_of(&vit.model, &given, path, &device()).expect(path);
        assert_eq!(seen.shape(path), shape[1..], "{path}");
        assert_near(path, &seen.floats(path), &theirs);
    }
    let of_stages = seen.header["arrays"].as_array().expect("a list").iter().filter(|array| array["from"] == "stages");
    let names: Vec<&str> = of_stages.filter_map(|array| array["name"].as_str()).collect();
    let listed = get(watched(), &format!("/glass/vit/graph?input={}", input.as_str().expect("an id"))).ok();
    let stages: Vec<&str> =
        listed["stages"].as_array().expect("stages").iter().filter_map(|stage| stage["path"].as_str()).collect();
    assert_eq!(names, stages, "every stage has its picture");
    assert!(stages.contains(&"blocks.1.attention") && stages.contains(&"images"), "{stages:?}");
}

#[test]
fn attention_of_one_head_is_there_in_all_its_steps() {
    let vit = model(fixture("tiny_vit"));
    let of = ImageModel::open(&fixture("tiny_vit"), &OpenOptions::default()).expect("a model");
    let input = give("vit", "image/png", &picture("smooth.png"))["input"].clone();
    let parts = ["query", "key", "value", "scores", "weights", "heads"];
    let values: Vec<Value> =
        parts.iter().map(|part| json!({"path": format!("blocks.1.attention.{part}"), "head": 1})).collect();
    let seen = look(
        "vit",
        &json!({"input": input, "want": {"values": values, "attention": {"group": "self"}, "attention_row": {"query": 2}}}),
    );
    let given = Given::Image(pixels(&of, &picture("smooth.png")));
    let (shape, weights) = value_of(&vit, &given, "blocks.1.attention.heads.1.weights", &device()).expect("weights");
    let tokens = shape[2];
    assert_near("weights", &seen.floats("blocks.1.attention.weights"), &weights);
    let (_, heads) = value_of(&vit, &given, "blocks.1.attention.heads.1", &device()).expect("heads");
    assert_near("heads", &seen.floats("blocks.1.attention.heads"), &heads);
    let maps = seen.shape("attention self");
    assert_eq!(maps[2..], [tokens, tokens]);
    let levels = seen.levels("attention self");
    let map = &levels[(maps[1] + 1) * tokens * tokens..][..tokens * tokens];
    let most = seen.about("attention self")["maximum"][maps[1] + 1].as_f64().expect("a maximum") as f32;
    for (level, weight) in map.iter().zip(&weights) {
        assert!((f32::from(*level) / 255.0 * most - weight).abs() <= most / 255.0);
    }
    let row = seen.floats("attention_row self");
    assert_near("row", &row[(maps[1] + 1) * tokens..][..tokens], &weights[2 * tokens..3 * tokens]);
}

#[test]
fn edits_do_what_the_command_does() {
    let path = fixture("tiny_vit");
    let of = ImageModel::open(&path, &OpenOptions::default()).expect("a model");
    let numbers = pixels(&of, &picture("noise.png"));
    let input = give("vit", "image/png", &picture("noise.png"))["input"].clone();
    let edits = [
        (
            json!([{"path": "blocks.0.attention.heads.1", "do": "zero"}]),
            vec![Intervention::new("blocks.0.attention.heads.1", Edit::Zero)],
        ),
        (
            json!([{"path": "blocks.1.mlp", "do": "scale", "factor": 0.5}]),
            vec![Intervention::new("blocks.1.mlp", Edit::Scale(0.5))],
        ),
        (
            json!([{"path": "blocks.0", "do": "clamp", "low": -0.5, "high": 0.5, "tokens": [0, 1]}]),
            vec![Intervention::new("blocks.0", Edit::Clamp { low: -0.5, high: 0.5 }).at(vec![0, 1])],
        ),
    ];
    let plain = look("vit", &json!({"input": input, "want": {"answer": {"top": 10}}})).scores();
    for (asked, interventions) in edits {
        let seen =
            look("vit", &json!({"input": input, "edits": asked, "want": {"answer": {"top": 10}, "attribution": {}}}));
        let edited = model(path.clone()).with_interventions(interventions).expect("an edit");
        let mut inside = Inside::read(&edited, Given::Image(numbers.clone()), &device()).expect("read");
        let mut scores = Vec::new();
        inside.with_own_logits(0, |logits| scores = softmax(logits)).expect("logits");
        for (index, score) in seen.scores() {
            assert!((scores[index as usize] - score).abs() < 1e-6, "{asked}: {index}: {score}");
        }
        assert_ne!(seen.scores(), plain, "{asked}");
        let target = seen.scores()[0].0 as usize;
        if let Ok(parts) = inside.attribution(0, target) {
            let ours = seen.header["attribution"]["logit"].as_f64().expect("a logit");
            assert!((parts.logit - ours).abs() < 1e-5);
        }
    }
    let command = |edits: Value| look("vit", &json!({"input": input, "edits": edits})).header["command"].clone();
    let scaled = json!([{"path": "blocks.1.mlp", "do": "scale", "factor": 0.5}]);
    assert_eq!(command(scaled), "vitreous predict vit picture.png --scale blocks.1.mlp=0.5");
    let taken = json!([{"path": "blocks.1.mlp", "do": "from", "input": input}]);
    assert_eq!(command(taken), "vitreous explain vit picture.png --at blocks.1.mlp --patch-from other.png");
}

#[test]
fn a_value_of_another_input_is_taken_over() {
    let path = language("llama").0;
    let llama = LanguageModel::open(&path).expect("a model");
    let ids: [Vec<u32>; 2] = [vec![1, 5, 9, 20, 7], vec![1, 8, 9, 21, 7]];
    let inputs = ids
        .clone()
        .map(|ids| give("llama", "application/json", json!({"ids": ids}).to_string().as_bytes())["input"].clone());
    let at = "blocks.0.mlp";
    let (_, values) = value_of(&llama.model, &Given::Tokens(ids[1].clone()), at, &device()).expect("a value");
    let edit = Intervention::new(at, Edit::Replace(EditValues::Numbers(values.into())));
    let edited = model(path.clone()).with_interventions(vec![edit]).expect("an edit");
    let mut scores = Vec::new();
    let mut inside = Inside::read(&edited, Given::Tokens(ids[0].clone()), &device()).expect("read");
    inside.with_own_logits(4, |logits| scores = softmax(logits)).expect("logits");
    let edits = json!([{"path": at, "do": "from", "input": inputs[1]}]);
    let seen = look("llama", &json!({"input": inputs[0], "edits": edits, "want": {"answer": {"top": 8}}}));
    for (index, score) in seen.scores() {
        assert!((scores[index as usize] - score).abs() < 1e-5, "{index}");
    }
    // Every vector of the other, tried here.
    let seen = look("llama", &json!({"input": inputs[0], "want": {"patching": {"other": inputs[1]}}}));
    let mut own = Inside::read(&llama.model, Given::Tokens(ids[0].clone()), &device()).expect("read");
    let mut other = Inside::read(&llama.model, Given::Tokens(ids[1].clone()), &device()).expect("read");
    let told = &seen.header["patching"];
    let outputs = [&told["target"], &told["against"]].map(|one| one["index"].as_u64().expect("an index") as usize);
    let theirs = own.patch_effects(&mut other, 4, outputs).expect("effects");
    for (ours, theirs) in told["patched"].as_array().expect("rows").iter().zip(&theirs.patched) {
        assert_close(&numbers(ours), theirs, 1e-4);
    }
    let short = give("llama", "application/json", br#"{"ids": [1, 2]}"#)["input"].clone();
    let wrong = json!({"input": inputs[0], "edits": [{"path": at, "do": "from", "input": short}]});
    assert!(post_json(watched(), "/glass/llama/look", &wrong).refused(400).contains("as many tokens"));
}

#[test]
fn a_language_model_says_what_follows_at_every_layer() {
    let (path, _) = language("llama");
    let llama = LanguageModel::open(&path).expect("a model");
    let ids = vec![1u32, 5, 9, 20, 7, 3];
    let input = give("llama", "application/json", json!({"ids": ids}).to_string().as_bytes())["input"].clone();
    let want = json!({"answer": {"top": 4, "tokens": true}, "lens": {"token": "all", "top": 2}, "effects": {}, "attribution": {}, "scores": {}});
    let seen = look("llama", &json!({"input": input, "want": want}));
    let mut inside = Inside::read(&llama.model, Given::Tokens(ids.clone()), &device()).expect("read");
    let following: Vec<Option<u32>> = ids.iter().skip(1).map(|id| Some(*id)).chain([None]).collect();
    let readings = inside.lens(4, &following).expect("a lens");
    let last = readings.last().expect("layers");
    for ((index, score), (id, share)) in seen.scores().iter().zip(&last.said[5].top) {
        assert_eq!(*index, u64::from(*id));
        assert!((score - f64::from(*share)).abs() < 1e-5);
    }
    let actual = seen.header["answer"]["actual"].as_array().expect("a list");
    assert!(actual[0].is_null() && actual.len() == ids.len());
    for (ours, said) in actual[1..].iter().zip(&last.said) {
        let (share, rank) = said.asked.expect("asked");
        assert_eq!(ours["rank"], rank);
        assert!((ours["probability"].as_f64().expect("a number") - f64::from(share)).abs() < 1e-5);
    }
    for (ours, theirs) in seen.header["lens"].as_array().expect("layers").iter().zip(&readings) {
        assert_eq!(ours["layer"], json!(theirs.layer));
        for (ours, said) in ours["tokens"].as_array().expect("tokens").iter().zip(&theirs.said) {
            assert_eq!(ours["top"][0]["index"], said.top[0].0);
        }
    }
    // Those that are followed have their probability after each layer, also where it is none of the largest.
    let followed =
        look("llama", &json!({"input": input, "want": {"lens": {"token": 5, "top": 1, "follow": 3}}})).header;
    let followed = followed["followed"].as_array().expect("outputs");
    assert_eq!((followed.len(), followed[0]["index"].as_u64()), (3, Some(seen.scores()[0].0)));
    for one in followed {
        let index = one["index"].as_u64().expect("an index") as u32;
        let theirs = inside.lens(1, &vec![Some(index); ids.len()]).expect("a lens");
        let theirs: Vec<f64> = theirs.iter().map(|layer| f64::from(layer.said[5].asked.expect("asked").0)).collect();
        assert_close(&numbers(&one["scores"]), &theirs, 1e-5);
    }
    let wrong = json!({"input": input, "want": {"lens": {"token": "all", "follow": 3}}});
    assert!(post_json(watched(), "/glass/llama/look", &wrong).refused(400).contains("for one token"));
    let target = seen.scores()[0].0 as usize;
    let effects = inside.head_effects(5, target).expect("effects");
    assert_close(&numbers(&seen.header["effects"]["mlps"]), &effects.mlps, 1e-4);
    let parts = inside.attribution(5, target).expect("parts");
    assert_close(&numbers(&seen.header["attribution"]["layers"][0]["heads"]), &parts.layers[0].heads, 1e-4);
    assert!(seen.header["scores"]["induction"].is_array() && seen.header["scores"]["repeated"].is_object());
}

#[test]
fn encoders_of_texts_answer_as_elsewhere() {
    let expected = read_json(&fixture("texts/expected.json"));
    let entry = &expected["bert_classes"][0];
    let text = entry["input"].as_str().expect("text");
    let input = give_text("bert_classes", text);
    let seen = look(
        "bert_classes",
        &json!({"input": input["input"], "want": {"answer": {}, "lens": {}, "relevance": {"integrated": true}}}),
    );
    assert_eq!(seen.header["answer"]["top"][0]["label"], entry["pipeline"][0]["label"]);
    let share = |value: &Value| value.as_f64().expect("a number");
    let last = seen.header["lens"].as_array().expect("layers").last().expect("a layer");
    assert!((share(&last["top"][0]["score"]) - share(&seen.header["answer"]["top"][0]["score"])).abs() < 1e-5);
    assert_eq!(
        numbers(&seen.header["relevance"]["gradient_attention"]).len(),
        input["tokens"].as_array().expect("tokens").len()
    );
    let masked = &expected["bert_masked"][0];
    let input = give_text("bert_masked", masked["text"].as_str().expect("text"));
    let seen =
        look("bert_masked", &json!({"input": input["input"], "want": {"answer": {"top": 4}, "lens": {"top": 4}}}));
    let ids =
        |top: &Value, key: &str| top.as_array().expect("a list").iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&seen.header["answer"]["masks"][0]["top"], "index"), ids(&masked["masks"][0], "id"));
    let last = seen.header["lens"].as_array().expect("layers").last().expect("a layer");
    assert_eq!(ids(&last["top"], "index"), ids(&masked["masks"][0], "id"));
    let tagged = give_text("bert_tokens", text);
    let seen = look("bert_tokens", &json!({"input": tagged["input"], "want": {"answer": {"top": 2}}}));
    let tokens = tagged["tokens"].as_array().expect("tokens");
    assert_eq!(seen.header["answer"]["token_classes"].as_array().expect("a list").len(), tokens.len());
    assert!(tokens.iter().any(|token| token["start"].is_number() && token["end"].is_number()));
    let answers = read_json(&fixture("texts/answers.json"));
    let body = json!({"text": answers[0]["question"], "pair": answers[0]["context"]}).to_string();
    let input = give("bert_answers", "application/json", body.as_bytes());
    let seen = look("bert_answers", &json!({"input": input["input"], "want": {"answer": {}}}));
    let found = seen.header["answer"]["answers"][0]["text"].as_str().expect("an answer");
    assert!(answers[0]["context"].as_str().expect("a context").contains(found) && !found.is_empty());
}

#[test]
fn vectors_are_pooled_as_the_model_says() {
    let path = fixture("texts/sentence_mean");
    let model = TextModel::open(&path, &OpenOptions::default()).expect("a model");
    let text = "A cat sits.";
    let input = give_text("sentence_mean", text);
    let seen = look("sentence_mean", &json!({"input": input["input"], "want": {"answer": {}}}));
    let encoding = model.encode(&TextInput { text: text.to_string(), pair: None }).expect("tokens");
    let structure = vitreous_explain::Structure::of(model.model.architecture.as_ref()).expect("a structure");
    let settings = vitreous_explain::encoder::EncoderSettings {
        pooling: model.sentence.pooling(),
        ..vitreous_explain::encoder::EncoderSettings::usual(structure, 2)
    };
    let mut explainer =
        vitreous_explain::encoder::EncoderExplainer::new(&model.model, settings, &device()).expect("ready");
    let tokens = vitreous_models::encode::TextTokens { ids: &encoding.ids, types: &encoding.token_types, masked: &[] };
    let theirs = explainer.read(tokens).expect("read").vector().expect("a vector");
    assert_near("the vector", &seen.floats("vector"), &theirs);
    assert_eq!(seen.header["answer"]["vector"]["width"], theirs.len());
}
