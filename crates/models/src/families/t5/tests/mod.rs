//! What the walk over all families does not see: buckets, initial values, and which matrix the output is.

use serde_json::Value as Json;

use super::{T5Config, bucket};
use crate::initial::initial_values;
use crate::testing::fixture;
use crate::{Architecture, Initialisation, Model, OpenOptions};

#[test]
fn buckets_are_the_peers() {
    let text = std::fs::read_to_string(fixture("t5", "buckets.json")).expect("a file");
    let cases: Vec<Json> = serde_json::from_str(&text).expect("JSON");
    let mut compared = 0;
    for case in &cases {
        let size = |key: &str| case[key].as_u64().expect("a number") as usize;
        let (buckets, max_distance) = (size("buckets"), size("max_distance"));
        let is_bidirectional = case["bidirectional"].as_bool().expect("a flag");
        for (relative, expected) in (-700..).zip(case["numbers"].as_array().expect("a list")) {
            let got = bucket(relative, is_bidirectional, buckets, max_distance);
            assert_eq!(i64::from(got), expected.as_i64().expect("a number"), "{relative} of {buckets}, {max_distance}");
            compared += 1;
        }
    }
    assert_eq!(compared, 5 * 1401);
}

#[test]
fn whether_the_output_is_tied_and_scaled_is_read() {
    let config = |name: &str| {
        let model = Model::open(&fixture("t5", name), &OpenOptions::default()).expect("opens");
        let config = model.architecture.downcast_ref::<T5Config>().expect("a T5").clone();
        (config.tied_output, config.scaled_output, config.gated)
    };
    assert_eq!(config("model"), (true, true, false));
    assert_eq!(config("gated"), (false, false, true));
    assert_eq!(config("gated_tied"), (true, true, true));
    assert_eq!(config("mt5"), (false, false, true));
}

/// Scores are not divided by the square root of a head's width: the queries begin smaller instead.
#[test]
fn queries_begin_smaller_than_keys_and_values() {
    let model: Box<dyn Architecture> = Box::new(T5Config::default());
    let parameters = model.parameters().expect("builds");
    let deviation =
        |values: &[f32]| (values.iter().map(|v| f64::from(v * v)).sum::<f64>() / values.len() as f64).sqrt();
    let of = |name: &str| {
        let parameter = parameters.iter().find(|parameter| parameter.name == name).expect(name);
        initial_values(Initialisation::Xavier, parameter, 3)
    };
    let qkv = of("encoder.0.attention.qkv.weight");
    let third = qkv.len() / 3;
    let expected = [(512f64 * 64.0).powf(-0.5), 512f64.powf(-0.5), 512f64.powf(-0.5)];
    for (part, expected) in qkv.chunks_exact(third).zip(expected) {
        assert!((deviation(part) / expected - 1.0).abs() < 0.01, "{} for {expected}", deviation(part));
    }
    assert!((deviation(&of("embedding")) - 1.0).abs() < 0.01);
    assert!((deviation(&of("decoder.2.mlp.fc2.weight")) * 2048f64.sqrt() - 1.0).abs() < 0.01);
}
