//! Comparison with `transformers`. `make.py` made the fixtures, which the test of all families compares; tests specific
//! to BERT are here.

use crate::families::bert::BertConfig;
use crate::testing::fixture;
use crate::{Architecture, Gives, Head, Model, OpenOptions};

fn open(name: &str) -> Model {
    Model::open(&fixture("bert", name), &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn config(model: &Model) -> &BertConfig {
    let architecture: &dyn Architecture = model.architecture.as_ref();
    architecture.downcast_ref().expect("a BERT")
}

#[test]
fn heads_are_those_of_the_class_and_of_the_file() {
    let heads = |name: &str| {
        let model = open(name);
        let BertConfig { pooler, head, .. } = *config(&model);
        (pooler, head)
    };
    assert_eq!(heads("model"), (true, Head::None));
    assert_eq!(heads("masked"), (false, Head::MaskedTokens));
    assert_eq!(heads("pretraining"), (true, Head::MaskedTokens));
    assert_eq!(heads("classes"), (true, Head::Classes(3)));
    assert_eq!(open("classes").assets.labels, ["down", "up", "sideways"]);
}

#[test]
fn older_names_of_norms_hold_the_same_values() {
    let (new, old) = (open("classes"), open("classes_old_names"));
    for parameter in new.parameters() {
        assert_eq!(new.parameter(&parameter.name).expect("there"), old.parameter(&parameter.name).expect("there"));
    }
}

#[test]
fn a_configuration_alone_says_what_a_model_is() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(fixture("bert", "masked").join("config.json"), directory.path().join("config.json")).expect("copied");
    let described = Model::describe(directory.path(), &OpenOptions::default()).expect("enough");
    assert_eq!(config(&described), config(&open("masked")));
    assert!(described.architecture.signature().gives.contains(&Gives::MaskedTokens(31)));
    assert!(Model::open(directory.path(), &OpenOptions::default()).is_err(), "there are no weights");
}

#[test]
fn what_is_not_known_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |key: &str, value: serde_json::Value| {
        let text = std::fs::read(fixture("bert", "model").join("config.json")).expect("a file");
        let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        config[key] = value;
        std::fs::write(directory.path().join("config.json"), config.to_string()).expect("written");
        Model::describe(directory.path(), &OpenOptions::default()).expect_err(key).to_string()
    };
    assert!(refused("position_embedding_type", "relative_key".into()).contains("`position_embedding_type`"));
    assert!(refused("is_decoder", true.into()).contains("`is_decoder`"));
    assert!(refused("hidden_act", "mish".into()).contains("\"mish\""));
    assert!(refused("num_attention_heads", 3.into()).contains("3 heads do not divide a dim of 16"));
}

#[test]
fn a_new_head_is_all_that_has_no_values() {
    let options = OpenOptions { replace_head: Some(Head::Classes(5)), ..OpenOptions::default() };
    let model = Model::open(&fixture("bert", "pretraining"), &options).expect("opens");
    assert_eq!(model.architecture.signature().classes(), Some(5));
    for parameter in model.parameters() {
        assert_eq!(model.is_new(&parameter.name), parameter.name.starts_with("head."), "{}", parameter.name);
        assert_eq!(model.parameter(&parameter.name).is_err(), parameter.head, "{}", parameter.name);
    }
}
