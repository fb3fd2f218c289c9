//! What the walk over all families does not see: gradients, left-over tensors, and refusals.

use serde_json::json;

use super::Gpt2Config;
use crate::initial::{Initialisation, initial_values};
use crate::settings::NormOrder;
use crate::testing::fixture;
use crate::{Architecture, Call, Model, OpenOptions, Part};
use vitreous_engine::Graph;

fn open(name: &str) -> Model {
    Model::open(&fixture("gpt2", name), &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn config(name: &str) -> Gpt2Config {
    open(name).architecture.downcast_ref::<Gpt2Config>().expect("a GPT").clone()
}

#[test]
fn a_file_without_a_head_has_the_words_for_one() {
    assert!(config("openai").tied && config("model").tied && !config("untied").tied);
    // A constant of the library is neither read nor missed.
    assert_eq!(open("openai").parameters().len(), open("model").parameters().len());
}

/// GPT-2's paper, section 2.3: "we scale the weights of residual layers at initialization by a factor of 1/√N where N is the number of
/// residual layers", two per block.
#[test]
fn what_adds_to_the_residual_stream_starts_smaller() {
    let deviation = |config: &Gpt2Config, name: &str| {
        let parameters = (config as &dyn Architecture).parameters().expect("parameters");
        let parameter = parameters.iter().find(|parameter| parameter.name == name).expect("known");
        let values = initial_values(Initialisation::TruncatedNormal, parameter, 3);
        (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    let gpt2 = Gpt2Config { vocabulary: 16, dim: 96, depth: 8, heads: 4, mlp_dim: 384, ..Gpt2Config::default() };
    let gpt1 = Gpt2Config { norm_order: NormOrder::Post, ..gpt2.clone() };
    for (name, adds) in [
        ("blocks.3.attention.output.weight", true),
        ("blocks.7.mlp.fc2.weight", true),
        ("blocks.3.attention.qkv.weight", false),
        ("blocks.3.mlp.fc1.weight", false),
    ] {
        for (config, factor) in [(&gpt2, 16f64.sqrt()), (&gpt1, 1.0)] {
            let expected = 0.02 / if adds { factor } else { 1.0 };
            let got = deviation(config, name);
            assert!((got / expected - 1.0).abs() < 0.03, "{name}: {got}, not {expected}");
        }
    }
}

#[test]
fn what_is_not_known_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (key, value, says) in [
        ("add_cross_attention", json!(true), "beside an encoder"),
        ("activation_function", json!("mish"), "mish"),
        ("n_layer", json!(1_000_000), "layers"),
        ("n_embd", json!(13), "13"),
    ] {
        let from = fixture("gpt2", "model");
        let text = std::fs::read_to_string(from.join("config.json")).expect("a configuration");
        let mut changed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        changed[key] = value;
        std::fs::write(directory.path().join("config.json"), changed.to_string()).expect("written");
        std::fs::copy(from.join("model.safetensors"), directory.path().join("model.safetensors")).expect("copied");
        let error = Model::open(directory.path(), &OpenOptions::default()).expect_err(key).to_string();
        assert!(error.contains(says), "{key}: {error}");
    }
}

#[test]
fn sequences_beyond_the_positions_are_refused() {
    let config = Gpt2Config { max_length: 8, depth: 1, ..Gpt2Config::default() };
    for call in [Call::whole(1).tokens(9), Call::whole(1).target(9).part(Part::Step)] {
        let error = config.build(&mut Graph::for_inference(), &call).expect_err("too long").to_string();
        assert!(error.contains("longer than max_length, 8"), "{error}");
    }
    let error = config.build(&mut Graph::for_inference(), &Call::whole(1).part(Part::Encode)).expect_err("no encoder");
    assert!(error.to_string().contains("no encoder"), "{error}");
}
