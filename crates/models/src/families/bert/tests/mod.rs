//! Comparison with `transformers`. `make.py` made the fixtures, which the test of all families compares; tests specific
//! to BERT are here.

use crate::families::bert::{BertConfig, Variant};
use crate::testing::fixture;
use crate::{Architecture, Format, Gives, Head, Model, OpenOptions};

fn open(name: &str) -> Model {
    Model::open(&fixture("bert", name), &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn config(model: &Model) -> &BertConfig {
    let architecture: &dyn Architecture = model.architecture.as_ref();
    architecture.downcast_ref().expect("a BERT")
}

#[test]
fn heads_are_those_of_the_class_and_of_the_file() {
    let heads = [
        ("model", Head::None, true),
        ("three_types", Head::None, false),
        ("masked", Head::MaskedTokens, false),
        ("pretraining", Head::MaskedTokens, true),
        ("classes", Head::Classes(3), true),
        ("labels", Head::Labels(4), true),
        ("numbers", Head::Numbers(1), true),
        ("token_classes", Head::TokenClasses(3), false),
        ("span", Head::Span, false),
        ("roberta", Head::None, true),
        ("roberta_masked", Head::MaskedTokens, false),
        ("roberta_classes", Head::Classes(3), false),
        ("roberta_token_classes", Head::TokenClasses(2), false),
        ("roberta_span", Head::Span, false),
        ("xlm_roberta_numbers", Head::Numbers(1), false),
        ("distilbert", Head::None, false),
        ("distilbert_classes", Head::Classes(3), false),
        ("distilbert_token_classes", Head::TokenClasses(5), false),
        ("distilbert_span", Head::Span, false),
        ("electra_masked", Head::MaskedTokens, false),
        ("electra_labels", Head::Labels(4), false),
        ("electra_discriminator", Head::None, false),
    ];
    for (name, head, pooler) in heads {
        let model = open(name);
        assert_eq!((config(&model).head, config(&model).pooler), (head, pooler), "{name}");
        // Without the name of a class, the tensors say the same.
        let directory = tempfile::tempdir().expect("a directory");
        let text = std::fs::read(fixture("bert", name).join("config.json")).expect("a file");
        let mut nameless: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        nameless["architectures"] = serde_json::Value::Null;
        std::fs::write(directory.path().join("config.json"), nameless.to_string()).expect("written");
        let weights = "model.safetensors";
        std::fs::copy(fixture("bert", name).join(weights), directory.path().join(weights)).expect("copied");
        let guessed = Model::open(directory.path(), &OpenOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(config(&guessed).head, head, "{name}");
    }
    assert_eq!(open("classes").assets.labels, ["down", "up", "sideways"]);
    assert_eq!(open("token_classes").assets.labels, ["down", "up", "sideways"]);
}

#[test]
fn relatives_are_settings() {
    let of = |name: &str| {
        let model = open(name);
        let BertConfig { variant, position_offset, token_types, max_length, tied, .. } = *config(&model);
        (variant, position_offset, token_types, max_length, tied)
    };
    assert_eq!(of("model"), (Variant::Bert, 0, 2, 9, true));
    assert_eq!(of("one_type"), (Variant::Bert, 0, 1, 9, true));
    assert_eq!(of("untied"), (Variant::Bert, 0, 2, 9, false));
    assert_eq!(of("roberta"), (Variant::Roberta, 2, 1, 7, true));
    assert_eq!(of("roberta_classes"), (Variant::Roberta, 5, 1, 7, true));
    assert_eq!(of("roberta_token_classes"), (Variant::Roberta, 1, 2, 7, true));
    assert_eq!(of("xlm_roberta_masked"), (Variant::XlmRoberta, 2, 1, 7, true));
    assert_eq!(of("camembert_untied"), (Variant::Camembert, 2, 1, 7, false));
    assert_eq!(of("distilbert"), (Variant::Distilbert, 0, 0, 9, true));
    assert_eq!(of("electra"), (Variant::Electra, 0, 2, 9, true));
    assert_eq!(config(&open("electra")).embedding_dim, Some(5));
    assert_eq!(config(&open("electra_same_width")).embedding_dim, None);
}

/// What no class of Hugging Face can be is written in our own format.
#[test]
fn a_model_that_hugging_face_has_no_class_for_is_written_as_our_own() {
    let why = |config: BertConfig| config.dialect(Format::HuggingFace).expect_err("no class");
    assert!(why(BertConfig { position_offset: 2, ..BertConfig::default() }).contains("no BERT with positions"));
    assert!(why(BertConfig { token_types: 0, ..BertConfig::default() }).contains("token types"));
    assert!(why(BertConfig { embedding_dim: Some(8), ..BertConfig::default() }).contains("projected"));
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
