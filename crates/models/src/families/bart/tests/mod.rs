//! What the walk over all families does not see: which tables are shared, and the bias that is not trained.

use super::BartConfig;
use crate::testing::fixture;
use crate::{Model, OpenOptions};
use vitreous_engine::Role;

#[test]
fn what_is_shared_and_tied_is_read() {
    let config = |name: &str| {
        let model = Model::open(&fixture("bart", name), &OpenOptions::default()).expect("opens");
        let config = model.architecture.downcast_ref::<BartConfig>().expect("a BART").clone();
        (config.shared_embedding, config.tied_output, config.logits_bias)
    };
    assert_eq!(config("model"), (true, true, true));
    assert_eq!(config("scaled"), (true, true, false));
    assert_eq!(config("untied"), (false, false, true));
    assert_eq!(config("marian_apart"), (false, true, true));
}

/// In a `config.json` null is not the same as nothing: BART's class forces an end unless it is told otherwise.
#[test]
fn a_last_token_that_is_null_is_not_forced() {
    let own = std::fs::read_to_string(fixture("bart", "model").join("config.json")).expect("a file");
    let own: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&own).expect("JSON");
    let forced = |value: Option<serde_json::Value>| {
        let mut config = own.clone();
        config.remove("forced_eos_token_id");
        config.extend(value.map(|value| ("forced_eos_token_id".to_string(), value)));
        let directory = tempfile::tempdir().expect("a directory");
        let text = serde_json::Value::Object(config).to_string();
        std::fs::write(directory.path().join("config.json"), text).expect("written");
        let model = Model::describe(directory.path(), &OpenOptions::default()).expect("a BART");
        model.architecture.downcast_ref::<BartConfig>().expect("a BART").forced_end_token
    };
    let end = own["eos_token_id"].as_u64().map(|token| token as usize);
    assert_eq!([forced(None), forced(Some(4.into())), forced(Some(serde_json::Value::Null))], [end, Some(4), None]);
}

#[test]
fn the_bias_of_the_logits_is_a_constant() {
    let model = Model::open(&fixture("bart", "marian"), &OpenOptions::default()).expect("opens");
    let constants: Vec<&str> = model
        .parameters()
        .iter()
        .filter(|parameter| parameter.role() == Role::Constant)
        .map(|parameter| parameter.name.as_str())
        .collect();
    assert_eq!(constants, ["output.bias"]);
    assert!(model.parameter("output.bias").expect("there").iter().any(|&value| value != 0.0));
}
