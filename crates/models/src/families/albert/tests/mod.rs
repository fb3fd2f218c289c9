//! Comparison with `transformers`. `make.py` made the fixtures, which the test of all families compares; tests specific
//! to ALBERT are here.

use crate::families::albert::AlbertConfig;
use crate::testing::fixture;
use crate::{Architecture, Head, Model, OpenOptions};

fn config(name: &str) -> AlbertConfig {
    let model = Model::open(&fixture("albert", name), &OpenOptions::default());
    let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
    let architecture: &dyn Architecture = model.architecture.as_ref();
    architecture.downcast_ref::<AlbertConfig>().expect("an ALBERT").clone()
}

#[test]
fn heads_are_those_of_the_class_and_of_the_file() {
    let heads = [
        ("model", Head::None, true),
        ("masked", Head::MaskedTokens, false),
        ("pretraining", Head::MaskedTokens, true),
        ("classes", Head::Classes(3), true),
        ("labels", Head::Labels(4), true),
        ("numbers", Head::Numbers(2), true),
        ("token_classes", Head::TokenClasses(5), false),
        ("span", Head::Span, false),
    ];
    for (name, head, pooler) in heads {
        let config = config(name);
        assert_eq!((config.head, config.pooler), (head, pooler), "{name}");
    }
    assert!(config("masked").tied && !config("untied").tied);
}

#[test]
fn layers_share_the_parameters_of_their_group() {
    let config = config("groups");
    assert_eq!((config.depth, config.groups, config.inner_layers), (5, 3, 2));
    // transformers: int(i / (5 / 3)).
    assert_eq!([0, 1, 2, 3, 4].map(|place| config.group(place)), [0, 0, 1, 1, 2]);
    let parameters = config_parameters(&config);
    let queries = parameters.iter().filter(|name| name.ends_with("attention.qkv.weight"));
    assert_eq!(queries.count(), 6, "one for each layer of a group, not for each use");
    let once = AlbertConfig { depth: 3, ..config };
    assert_eq!(config_parameters(&once), parameters);
}

fn config_parameters(config: &AlbertConfig) -> Vec<String> {
    let config: &dyn Architecture = config;
    config.parameters().expect("builds").into_iter().map(|parameter| parameter.name).collect()
}
