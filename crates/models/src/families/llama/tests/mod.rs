//! What the walk over all families does not see: old configurations, and refusals.

use serde_json::{Value, json};
use vitreous_engine::Graph;

use super::{LlamaConfig, RopeScaling};
use crate::testing::fixture;
use crate::{Architecture, Call, Model, OpenOptions, Part};

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
        (vec![("rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1e4}))], "longrope"),
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
