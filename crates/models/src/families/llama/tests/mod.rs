//! What the walk over all families does not see: old configurations, and refusals.

use std::str::FromStr;

use serde_json::{Value, json};
use vitreous_engine::Graph;

use super::{LlamaConfig, RopeScaling, Variant};
use crate::checkpoint::json::Object;
use crate::testing::fixture;
use crate::{Activation, Architecture, Call, Model, OpenOptions, Part, preset};

fn open(name: &str) -> LlamaConfig {
    let model = Model::open(&fixture("llama", name), &OpenOptions::default());
    let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
    model.architecture.downcast_ref::<LlamaConfig>().expect("a LLaMA").clone()
}

#[test]
fn old_and_new_words_for_rotary_positions_are_read() {
    assert_eq!((open("old").rope_base, open("old").rope_scaling), (100.0, RopeScaling::Linear { factor: 2.0 }));
    assert_eq!(open("linear").rope_scaling, RopeScaling::Linear { factor: 4.0 });
    assert!(matches!(open("yarn").rope_scaling, RopeScaling::Yarn { original_length: 12, .. }));
    assert_eq!((open("mistral").window, open("qwen2").window, open("qwen2_window").window), (Some(3), None, Some(2)));
}

#[test]
fn what_is_not_known_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let refusal = |name: &str, changes: &[(&str, Value)]| {
        let from = fixture("llama", name);
        let text = std::fs::read_to_string(from.join("config.json")).expect("a configuration");
        let mut changed: Value = serde_json::from_str(&text).expect("JSON");
        changes.iter().for_each(|(key, value)| changed[*key] = value.clone());
        std::fs::write(directory.path().join("config.json"), changed.to_string()).expect("written");
        std::fs::copy(from.join("model.safetensors"), directory.path().join("model.safetensors")).expect("copied");
        Model::open(directory.path(), &OpenOptions::default()).expect_err("refused").to_string()
    };
    for (changes, says) in [
        (vec![("rope_parameters", json!({"rope_type": "proportional", "rope_theta": 1e4}))], "proportional"),
        (vec![("rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1e4}))], "short_factor"),
        (
            vec![("rope_parameters", json!({"rope_type": "longrope", "short_factor": [1], "long_factor": [1, 2]}))],
            "pairs",
        ),
        (vec![("rope_parameters", json!({"rope_type": "dynamic", "factor": 0.5}))], "at least 1"),
        (vec![("rope_parameters", json!({"rope_type": "yarn", "factor": 2, "truncate": false}))], "truncate"),
        (vec![("model_type", json!("gemma2"))], "soft-capping"),
        (vec![("model_type", json!("gemma3_text"))], "windows"),
        (vec![("rope_parameters", json!({"rope_type": "linear", "rope_theta": 1e4}))], "factor"),
        (vec![("rope_parameters", json!({"rope_type": "linear", "factor": 0.0}))], "above 0"),
        (vec![("rope_parameters", json!({"partial_rotary_factor": 0.5}))], "part of each head"),
        (vec![("hidden_act", json!("mish"))], "mish"),
        (vec![("num_key_value_heads", json!(4))], "divide"),
        (vec![("head_dim", json!(5))], "even"),
        (vec![("num_hidden_layers", json!(1_000_000))], "layers"),
    ] {
        let error = refusal("model", &changes);
        assert!(error.contains(says), "{changes:?}: {error}");
    }
    let error = refusal("phi3", &[("rope_parameters", json!({"partial_rotary_factor": 1.5}))]);
    assert!(error.contains("at most 1"), "{error}");
    let error = refusal("gemma", &[("use_bidirectional_attention", json!(true))]);
    assert!(error.contains("later tokens"), "{error}");
    let error = refusal("qwen2_window", &[("max_window_layers", json!(1))]);
    assert!(error.contains("some layers only"), "{error}");
}

#[test]
fn sequences_beyond_the_maximum_are_refused() {
    let config = LlamaConfig { max_length: 8, depth: 1, ..LlamaConfig::default() };
    for call in [Call::whole(1).tokens(9), Call::whole(1).target(9).part(Part::Step)] {
        let error = config.build(&mut Graph::for_inference(), &call).expect_err("too long").to_string();
        assert!(error.contains("longer than max_length, 8"), "{error}");
    }
}

#[test]
fn all_scalings_have_the_frequencies_of_the_peer() {
    let path = fixture("llama", "").join("../frequencies.json");
    let entries: Vec<Value> = serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON");
    assert!(entries.len() >= 50);
    for entry in entries {
        let text = entry["config"].to_string();
        let object = Value::from_str(&text).expect("JSON");
        let object = Object::new(object.as_object().expect("an object"));
        let config = LlamaConfig::from_hugging_face(&object, Variant::Llama).unwrap_or_else(|_| panic!("{text}"));
        config.check().unwrap_or_else(|error| panic!("{text}: {}", error.0));
        let length = entry["length"].as_u64().expect("a length") as usize;
        let (frequencies, factor) = config.rope_scaling.frequencies(config.rope_base, config.rotary_dim(), length);
        let theirs = entry["frequencies"].as_array().expect("a list");
        assert_eq!(frequencies.len(), theirs.len());
        for (ours, theirs) in frequencies.iter().zip(theirs) {
            let theirs = theirs.as_f64().expect("a number") as f32;
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{text}, length {length}: {ours} is not {theirs}");
        }
        assert!((f64::from(factor) - entry["factor"].as_f64().expect("a number")).abs() < 1e-6, "{text}");
    }
}

#[test]
fn relatives_are_read_with_their_settings() {
    let phi = open("phi3");
    assert_eq!((phi.variant, phi.rotary_dim, phi.window), (Variant::Phi3, Some(6), Some(4)));
    assert!(matches!(open("phi3_long").rope_scaling, RopeScaling::Longrope { original_length: 6, .. }));
    // Dynamic scaling reaches beyond the length that it begins from.
    assert_eq!((open("dynamic").max_length, open("gemma").activation), (32, Activation::GeluTanh));
    assert_eq!(open("gemma_biases").activation, Activation::Relu);
    let counts = [("gemma_2b", 2_506_172_416), ("gemma_7b", 8_537_680_896), ("phi3_mini_4k", 3_821_079_552)];
    for (name, count) in counts {
        let preset = preset(name).expect("a preset");
        assert_eq!(preset.parameter_count().expect("a graph"), count, "{name}");
    }
}
