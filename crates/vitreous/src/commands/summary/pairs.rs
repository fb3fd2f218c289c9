//! What is known of a translator.

use serde_json::json;
use vitreous_engine::{DType, Graph, Plan};
use vitreous_models::stages::{Stage, stages};
use vitreous_models::transformer::{
    PairShape, StepShape, TransformerConfig, decoder_step, encoder_for_decoding, transformer,
};

use super::{Described, Memory, parameters_of};
use crate::failure::Failure;
use crate::format;
use crate::step::translation_graph;

pub fn describe(config: &TransformerConfig, batch: usize, source: usize, target: usize) -> Result<Described, Failure> {
    let shape = PairShape { batch, source, target };
    let mut graph = Graph::for_inference();
    let model = transformer(&mut graph, config, shape).map_err(Failure::input)?;
    let plan = Plan::for_cpu_with_fixed_weights(&graph, &[model.logits]).map_err(Failure::input)?;
    let mut stages = stages(&graph, &plan);
    for (scope, name) in [("encoder", "source_embedding"), ("decoder", "target_embedding")] {
        // What stands in a side's scope but in no layer.
        stages.iter_mut().filter(|stage| stage.name == scope).for_each(|stage| stage.name = name.to_string());
    }
    let memory = Memory::of(&plan, |gradient| translation_graph(config, shape, gradient))?;
    let [encoding, a_word] = flops_of_translating(config, shape).map_err(Failure::input)?;
    let mut layer = layers(config, &stages);
    layer.push(format!(
        "Translating {}, with keys and values kept: {} FLOPs to read, then at most {} for each word",
        format::count(batch, "sentence", "sentences"),
        format::thousands(encoding),
        format::thousands(a_word)
    ));
    let words = |count: usize| format::thousands(count as u128);
    Ok(Described {
        batch: format!("{} of {source} and {target} tokens", format::count(batch, "pair", "pairs")),
        facts: vec![
            ("Words", format!("{} and {}", words(config.source_vocabulary), words(config.target_vocabulary))),
            ("Tokens", format!("{source} and {target} of {} numbers", config.dim)),
            (
                "Layers",
                format!(
                    "{} and {} with {} each",
                    config.encoder_layers,
                    config.decoder_layers,
                    format::count(config.heads, "head", "heads")
                ),
            ),
        ],
        inputs: vec![("source", vec![batch, source]), ("target", vec![batch, target])],
        sizes: json!({
            "source": source,
            "target": target,
            "translating_flops": { "source": encoding, "word": a_word },
        }),
        stages,
        layer,
        memory,
        drawing: None,
    })
}

/// Operations of a batch of sources, and of a word of each target where all words before it are there.
fn flops_of_translating(config: &TransformerConfig, shape: PairShape) -> vitreous_engine::Result<[u64; 2]> {
    let PairShape { batch, source, target } = shape;
    let mut encoding = Graph::for_inference();
    encoder_for_decoding(&mut encoding, config, batch, source)?;
    let mut step = Graph::for_inference();
    decoder_step(&mut step, config, StepShape { batch, source, capacity: target, cache: DType::F32 })?;
    Ok([encoding.flops(), step.flops()])
}

/// What a layer of each side has.
fn layers(config: &TransformerConfig, stages: &[Stage]) -> Vec<String> {
    let text = |number: usize| format::thousands(number as u128);
    let line = |side: &str, block: &str, count: usize, cross: bool| {
        let of = |part: &str| parameters_of(stages, block, part);
        let cross = match cross {
            true => format!(" + cross-attention {}", text(of(".cross_attention"))),
            false => String::new(),
        };
        format!(
            "A layer of the {side}: attention {}{cross} + feed-forward {} + norms {} = {} parameters; {}: {}",
            text(of(".attention")),
            text(of(".mlp")),
            text(of(".norm")),
            text(of("")),
            format::count(count, "layer", "layers"),
            text(of("").saturating_mul(count))
        )
    };
    vec![
        line("encoder", "encoder.0", config.encoder_layers, false),
        line("decoder", "decoder.0", config.decoder_layers, true),
    ]
}
