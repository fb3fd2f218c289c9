//! Dropout and stochastic depth in training, each in the right position. Read off the graph, since a rate that is not
//! applied changes no shape and no result at inference.

use crate::families::vit::{FeedForward, VitConfig, vit};
use crate::settings::NormOrder;
use crate::{Call, Size};
use vitreous_engine::{Graph, Mode, Op, Precision, Step};

const DROPOUT: f32 = 0.125;
const ATTENTION_DROPOUT: f32 = 0.25;
const STOCHASTIC_DEPTH: f32 = 0.5;

fn config() -> VitConfig {
    VitConfig {
        image: Size::square(8),
        patch: Size::square(4),
        dim: 8,
        depth: 5,
        heads: 2,
        mlp_dim: 12,
        classes: 3,
        dropout: DROPOUT,
        attention_dropout: ATTENTION_DROPOUT,
        stochastic_depth: STOCHASTIC_DEPTH,
        layer_scale: Some(1.0),
        ..VitConfig::default()
    }
}

fn build(config: &VitConfig, mode: Mode) -> Graph {
    let mut g = Graph::new(mode, Precision::F32);
    vit(&mut g, &config, &Call::whole(2)).expect("builds");
    g
}

/// The dropout ops and steps of the graph in order: `(path, name, rate)`.
fn rates(g: &Graph) -> Vec<(String, &'static str, f32)> {
    let mut found = Vec::new();
    for node in g.nodes() {
        if let Op::Attention(attention) = &node.op
            && let Some(drop) = attention.dropout
        {
            found.push((node.path.clone(), "attention", drop.rate));
        }
        for step in &node.steps {
            match step {
                Step::Dropout(drop) => found.push((node.path.clone(), "dropout", drop.rate)),
                Step::StochasticDepth(drop) => found.push((node.path.clone(), "stochastic_depth", drop.rate)),
                _ => {}
            }
        }
    }
    found
}

/// A path without its last component, which is the op's, and may be numbered.
fn place(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(place, _)| place)
}

#[test]
fn stochastic_depth_rises_linearly_from_nothing_to_what_is_configured() {
    let found = rates(&build(&config(), Mode::Training));
    for layer in 0..5 {
        let of_layer: Vec<f32> = found
            .iter()
            .filter(|(path, kind, _)| *kind == "stochastic_depth" && place(path) == format!("blocks.{layer}"))
            .map(|(.., rate)| *rate)
            .collect();
        // A rate of 0.5 in the fifth of five layers: an eighth more per layer, on both branches; a rate of 0 adds no
        // step.
        let rate = layer as f32 / 8.0;
        let expected = if layer == 0 { vec![] } else { vec![rate, rate] };
        assert_eq!(of_layer, expected, "layer {layer}");
    }
    assert_eq!(found.iter().filter(|(_, kind, _)| *kind == "stochastic_depth").count(), 8);
}

#[test]
fn dropout_stands_behind_positions_and_branches_and_inside_the_mlp() {
    for norm_order in [NormOrder::Pre, NormOrder::Post] {
        let found = rates(&build(&VitConfig { norm_order, ..config() }, Mode::Training));
        let places: Vec<&str> =
            found.iter().filter(|(_, kind, _)| *kind == "dropout").map(|(path, ..)| place(path)).collect();
        let layers: Vec<String> = (0..5).map(|layer| format!("blocks.{layer}")).collect();
        let mlps: Vec<String> = layers.iter().map(|layer| format!("{layer}.mlp")).collect();
        let mut expected = vec!["position_embedding"];
        for (layer, mlp) in layers.iter().zip(&mlps) {
            expected.extend([layer.as_str(), mlp.as_str(), layer.as_str()]);
        }
        assert_eq!(places, expected);
        assert!(found.iter().filter(|(_, kind, _)| *kind == "dropout").all(|(.., rate)| *rate == DROPOUT));
    }
}

/// Only its scale comes between the last multiplication of a branch and its dropout.
#[test]
fn dropout_comes_before_the_scale_and_that_before_stochastic_depth() {
    let g = build(&config(), Mode::Training);
    let names: Vec<&str> = g
        .nodes()
        .iter()
        .filter(|node| place(&node.path) == "blocks.4" && !node.steps.is_empty())
        .flat_map(|node| node.steps.iter().map(Step::name))
        .collect();
    let branch = ["dropout", "multiply", "stochastic_depth", "add"];
    assert_eq!(names, [branch, branch].concat());
}

#[test]
fn weights_of_attention_are_dropped_in_every_layer() {
    let found = rates(&build(&config(), Mode::Training));
    let on_weights: Vec<_> = found.iter().filter(|(_, kind, _)| *kind == "attention").collect();
    assert_eq!(on_weights.len(), 5);
    for (layer, (path, _, rate)) in on_weights.into_iter().enumerate() {
        assert_eq!((place(path), *rate), (format!("blocks.{layer}.attention").as_str(), ATTENTION_DROPOUT));
    }
}

#[test]
fn inference_drops_nothing() {
    for feed_forward in [FeedForward::Mlp, FeedForward::SwiGlu] {
        assert_eq!(rates(&build(&VitConfig { feed_forward, ..config() }, Mode::Inference)), []);
    }
}
