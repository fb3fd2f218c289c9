//! Models with two sides, watched and explained: a translator and a model of speech.

use std::path::Path;

use serde_json::{Value, json};
use vitreous_data::text::{Pair, TokeniserKind, Tokenisers};
use vitreous_engine::{Edit, Graph, Precision, State};
use vitreous_explain::text::{TextChoice, TextStructure, explain_text};
use vitreous_models::generate::SearchOptions;
use vitreous_models::initial::{Initialisation, initialise};
use vitreous_models::{Call, Model, OpenOptions, SaveOptions, preset};
use vitreous_runtime::{Intervene, TextTranslator, TranslatorModel};

use crate::client::*;
use crate::glass::{Seen, device};
use crate::tiny::whisper;

/// A translator of the smallest sizes that has learned nothing.
pub fn translator(directory: &Path) {
    let pairs: Vec<Pair> = ["one two three", "four five six", "seven eight nine"]
        .map(|text| Pair::new(text, &text.replace('e', "a")))
        .to_vec();
    let tokenizers = Tokenisers::train(TokeniserKind::Bpe, &pairs, 300, true).expect("tokens");
    let vocabulary = tokenizers.source.vocabulary_size();
    let mut sizes = OpenOptions::default().with("shared_vocabulary", true).with("max_length", 64);
    for (key, value) in [
        ("source_vocabulary", vocabulary),
        ("target_vocabulary", vocabulary),
        ("dim", 16),
        ("mlp_dim", 32),
        ("heads", 2),
        ("encoder_layers", 2),
        ("decoder_layers", 3),
    ] {
        sizes = sizes.with(key, value);
    }
    let architecture = preset("transformer_tiny").expect("known").with_settings(&sizes.settings).expect("fits");
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1)).expect("builds");
    let mut state = State::new(&graph).expect("memory");
    initialise(&mut state, Initialisation::PyTorch, 3, &|_| true).expect("initialised");
    let options = SaveOptions { state: Some(&state), ..SaveOptions::default() };
    Model::new(architecture, Vec::new()).expect("a model").save(directory, &options).expect("saved");
    tokenizers.save(directory).expect("saved");
}

fn path_of(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("model")
}

pub fn look(server: &Running, model: &str, body: &Value) -> Seen {
    let answer = post_json(server.address, &format!("/glass/{model}/look"), body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    Seen::of(&answer.body)
}

pub fn share(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_translator_shows_both_sides_as_explain_does() {
    let folder = tempfile::tempdir().expect("a folder");
    translator(&path_of(&folder));
    let server = start(vec![named("translator", path_of(&folder))]);
    let listed = get(server.address, "/glass/models").ok()["models"][0].clone();
    assert_eq!((&listed["takes"], &listed["gives"]), (&json!("pair"), &json!("sequence")));
    let groups: Vec<&str> =
        listed["groups"].as_array().expect("groups").iter().filter_map(|group| group["name"].as_str()).collect();
    assert_eq!(groups, ["encoder", "decoder", "cross"]);
    assert_eq!(listed["groups"][2]["attention"], "decoder.#.cross_attention");
    let given =
        post_json(server.address, "/glass/translator/inputs", &json!({"text": "two four", "target": "nana one"})).ok();
    let (source, read) = (&given["source_tokens"], &given["tokens"]);
    assert!(source.as_array().expect("tokens").len() > 2 && read.as_array().expect("tokens").len() > 2);

    let model = TranslatorModel::open(&path_of(&folder)).expect("a model");
    let structure = TextStructure::of(model.model.architecture.as_ref()).expect("a structure");
    let tokens = |text: &str| model.tokenizers.source.encode(text).expect("tokens");
    let special = model.special();
    let explained = |model: &TranslatorModel| {
        let (architecture, weights) = (model.model.architecture.as_ref(), model.weights());
        let choice = TextChoice::all(structure);
        explain_text(architecture, &weights, special, [&tokens("two four"), &tokens("nana one")], &choice, &device())
            .expect("explained")
    };
    let theirs = explained(&model);
    let want = json!({"answer": {"top": 2, "write": true}, "attention": {"group": "cross"}, "attention_row": {"group": "cross", "query": 1},
        "lens": {"token": 1, "top": 2}, "stages": {"fit": [8, 8]},
        "values": [{"path": "decoder.1.cross_attention.weights"}, {"path": "encoder.0.attention.weights", "head": 1}]});
    let seen = look(&server, "translator", &json!({"input": given["input"], "want": want}));
    let ours: Vec<f64> = seen.header["answer"]["tokens"]
        .as_array()
        .expect("tokens")
        .iter()
        .map(|token| share(&token["probability"]))
        .collect();
    assert_close(&ours, &theirs.probabilities.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), 1e-5);
    let close = |ours: &[f32], theirs: &[f32]| {
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-5));
    };
    close(&seen.floats("decoder.1.cross_attention.weights"), &theirs.cross[1].weights);
    let (sources, targets) = (theirs.source.len(), theirs.written.len());
    close(&seen.floats("encoder.0.attention.weights"), &theirs.encoder[0].weights[sources * sources..]);
    assert_eq!(seen.shape("attention cross"), [3, 2, targets, sources]);
    close(&seen.floats("attention_row cross")[..sources], &theirs.cross[0].weights[sources..2 * sources]);
    // After the last layer it says what the model says.
    let last = seen.header["lens"].as_array().expect("layers").last().expect("a layer").clone();
    assert_eq!(last["top"][0]["index"], seen.header["answer"]["tokens"][1]["top"][0]["index"]);
    assert!(
        (share(&last["top"][0]["score"]) - share(&seen.header["answer"]["tokens"][1]["top"][0]["score"])).abs() < 1e-5
    );
    // Without edits it is what the model writes for itself, whatever target was given.
    let written =
        post_json(server.address, "/v1/completions", &json!({"model": "translator", "prompt": "two four"})).ok();
    let (own, anew) = (written["choices"][0]["text"].as_str(), &seen.header["answer"]["rewritten"]);
    let own = own.expect("a text");
    match anew["ended"].as_bool().expect("whether it ended") {
        true => assert_eq!(anew["text"], own),
        false => assert!(own.starts_with(anew["text"].as_str().expect("a text")), "{anew}: {own}"),
    }
    let path = "encoder.1.mlp";
    let edits = json!([{"path": path, "do": "scale", "factor": -3.0}]);
    let asked = json!({"input": given["input"], "edits": edits, "want": {"answer": {"write": true}}});
    let anew = look(&server, "translator", &asked).header["answer"]["rewritten"].clone();
    let edited =
        TranslatorModel::open(&path_of(&folder)).expect("a model").with(path, Edit::Scale(-3.0)).expect("an edit");
    let search = SearchOptions { beam: 1, length_penalty: 0.6 };
    let mut writer = TextTranslator::new(&edited, search, Precision::F32, &device()).expect("a translator");
    let theirs = &writer.translate(&["two four".to_string()]).expect("a text")[0][0].tokens;
    let ours: Vec<u64> =
        anew["tokens"].as_array().expect("tokens").iter().filter_map(|token| token["id"].as_u64()).collect();
    assert!(
        !ours.is_empty() && theirs.iter().map(|&id| u64::from(id)).take(ours.len()).eq(ours.iter().copied()),
        "{anew}: {theirs:?}"
    );
    assert!(ours.len() == theirs.len() || anew["ended"] == false, "{anew}: {theirs:?}");

    let head = "decoder.0.cross_attention.heads.1";
    let edited = look(
        &server,
        "translator",
        &json!({"input": given["input"], "edits": [{"path": head, "do": "zero"}], "want": {"answer": {}}}),
    );
    let theirs =
        explained(&TranslatorModel::open(&path_of(&folder)).expect("a model").with(head, Edit::Zero).expect("an edit"));
    let ours: Vec<f64> = edited.header["answer"]["tokens"]
        .as_array()
        .expect("tokens")
        .iter()
        .map(|token| share(&token["probability"]))
        .collect();
    assert_close(&ours, &theirs.probabilities.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), 1e-5);
    // Without a target it is the model's own.
    let own = post_json(server.address, "/glass/translator/inputs", &json!({"text": "two four"})).ok();
    assert!(own["target"].is_string() && own["input"] != given["input"]);
    server.finish().expect("an end");
}

#[test]
fn a_model_of_speech_shows_what_it_hears() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model");
    whisper(&path);
    let recording = std::fs::read(repository("crates/data/tests/fixtures/audio/mono.flac")).expect("a fixture");
    let server = start(vec![named("ear", path)]);
    let given = post(server.address, "/glass/ear/inputs", "audio/flac", &recording).ok();
    assert_eq!(given["kind"], "audio");
    assert!(share(&given["seconds"]) > 0.0 && !given["tokens"].as_array().expect("tokens").is_empty());
    let id = given["input"].as_str().expect("an id");
    let seen = get(server.address, &format!("/glass/ear/inputs/{id}/seen"));
    assert!(seen.status == 200 && seen.body.starts_with(b"\x89PNG"));
    let want = json!({"answer": {"top": 1}, "stages": {"fit": [4, 4]}, "attention": {"group": "cross", "fit": 32},
        "values": [{"path": "decoder.0.cross_attention.weights", "fit": [8, 8]}]});
    let seen = look(&server, "ear", &json!({"input": id, "want": want}));
    let tokens = given["tokens"].as_array().expect("tokens").len();
    assert_eq!(seen.header["answer"]["tokens"].as_array().expect("tokens").len(), tokens);
    assert_eq!(seen.shape("attention cross"), [1, 1, tokens.min(32), 32]);
    let edits = json!([{"path": "encoder.0.mlp", "do": "zero"}]);
    let edited = look(&server, "ear", &json!({"input": id, "edits": edits, "want": {"answer": {"top": 1}}}));
    assert_ne!(edited.header["answer"]["tokens"], seen.header["answer"]["tokens"]);
    let anew = look(&server, "ear", &json!({"input": id, "edits": edits, "want": {"answer": {"write": true}}}));
    assert!(anew.header["answer"]["rewritten"]["text"].is_string(), "{}", anew.header);
    let placed = json!([{"path": "encoder.0.mlp", "do": "zero", "tokens": [0]}]);
    let asked = json!({"input": id, "edits": placed, "want": {"answer": {"write": true}}});
    assert!(post_json(server.address, "/glass/ear/look", &asked).refused(400).contains("single tokens"));
    post(server.address, "/glass/ear/inputs", "audio/flac", b"no recording").refused(400);
    server.finish().expect("an end");
}

#[test]
fn sentences_and_recordings_are_explained_as_they_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let [translator_path, ear] = ["translator", "ear"].map(|name| folder.path().join(name));
    translator(&translator_path);
    whisper(&ear);
    let server = start(vec![named("translator", translator_path), named("ear", ear)]);
    let address = server.address;
    let written = post_json(address, "/v1/completions", &json!({"model": "translator", "prompt": "two four"})).ok();
    let told = post(address, "/explain/translator?format=json", "text/plain", b"two four").ok();
    assert_eq!(told["translation"], written["choices"][0]["text"]);
    assert_eq!((&told["given"], &told["page"]), (&json!(false), &Value::Null));
    let asked = json!({"text": "two four", "target": "nana one"});
    let told = post_json(address, "/explain/translator?format=json", &asked).ok();
    assert_eq!((&told["given"], &told["translation"]), (&json!(true), &json!("nana one")));
    let page = post(address, "/explain/translator", "text/plain", b"two four");
    assert!(page.status == 200 && page.text().contains("two"), "{}", page.text());

    let recording = std::fs::read(repository("crates/data/tests/fixtures/audio/mono.flac")).expect("a fixture");
    let (kind, fields) = form(&[("model", b"ear"), ("file", &recording)]);
    let heard = post(address, "/v1/audio/transcriptions", &kind, &fields).ok();
    let told = post(address, "/explain/ear?format=json", "audio/flac", &recording).ok();
    assert_eq!(told["text"], heard["text"].as_str().expect("text").trim());
    assert!(share(&told["seconds"]) > 0.0 && told["windows"].is_array());
    let page = post(address, "/explain/ear", "audio/flac", &recording);
    assert!(page.status == 200 && page.text().contains("<svg"), "{}", page.text());
    assert!(post(address, "/explain/ear", "audio/flac", b"noise").refused(400).contains("the recording"));
    server.finish().expect("an end");
}
