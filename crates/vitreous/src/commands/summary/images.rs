//! What is known of a model for images.

use serde_json::json;
use vitreous_engine::{Graph, Plan, Precision};
use vitreous_models::stages::{Stage, stages};
use vitreous_models::{VitConfig, vit};

use super::{Described, Memory, parameters_of};
use crate::failure::Failure;
use crate::format;
use crate::page_facts::flow_notes;
use crate::step::training_graph;
use vitreous_pages::flow;

pub fn describe(config: &VitConfig, batch: usize) -> Result<Described, Failure> {
    let mut graph = Graph::for_inference();
    let model = vit(&mut graph, config, batch).map_err(Failure::input)?;
    let output = model.logits.unwrap_or(model.features);
    let plan = Plan::for_cpu_with_fixed_weights(&graph, &[output]).map_err(Failure::input)?;
    let stages = stages(&graph, &plan);
    let memory = Memory::of(&plan, |gradient| training_graph(config, batch, Precision::F32, gradient))?;
    let image = config.image;
    Ok(Described {
        batch: format::count(batch, "image", "images"),
        facts: vec![
            ("Images", format!("{} \u{d7} {} pixels", image.height, image.width)),
            ("Tokens", format!("{} of {} numbers", format::thousands(config.tokens() as u128), config.dim)),
            ("Layers", format!("{} with {} each", config.depth, format::count(config.heads, "head", "heads"))),
        ],
        inputs: vec![("images", vec![batch, config.channels, image.height, image.width])],
        sizes: json!({ "image": [image.height, image.width] }),
        layer: a_layer(config, &stages),
        stages,
        memory,
        drawing: Some(flow::drawing(&graph, &flow_notes(config))),
    })
}

/// What one layer has and costs, the costs by the terms that papers compare.
fn a_layer(config: &VitConfig, stages: &[Stage]) -> Vec<String> {
    let of = |part: &str| parameters_of(stages, "blocks.0", part);
    let text = |number: usize| format::thousands(number as u128);
    let (tokens, dim) = (config.tokens() as u128, config.dim as u128);
    vec![
        format!(
            "A layer: attention {} + feed-forward {} + norms {} = {} parameters; {} layers: {}",
            text(of(".attention")),
            text(of(".mlp")),
            text(of(".norm")),
            text(of("")),
            config.depth,
            text(of("").saturating_mul(config.depth))
        ),
        format!(
            "Cost of a layer an image, by its leading terms: attention L\u{b2}D = {}, feed-forward L\u{b7}D\u{b7}D_ff = {}",
            format::thousands(tokens.saturating_mul(tokens).saturating_mul(dim)),
            format::thousands(tokens.saturating_mul(dim).saturating_mul(config.mlp_dim as u128))
        ),
    ]
}
