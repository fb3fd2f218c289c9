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
