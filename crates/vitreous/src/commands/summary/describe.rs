//! What a model of any family is and costs, read off its graph.

use serde_json::{Value as Json, json};
use vitreous_engine::{Graph, Op, Plan, Precision};
use vitreous_models::stages::{Stage, stages};
use vitreous_models::{Architecture, Call, Gives, Part, Takes};
use vitreous_pages::folding::block_of;
use vitreous_pages::{flow, format};
use vitreous_runtime::training_graph::training_graph;

use super::{Described, Memory, parameters_of};
use crate::failure::Failure;
use vitreous_pages::facts::flow_notes;

/// What depends on what a model takes.
struct Input {
    batch: String,
    facts: Vec<(&'static str, String)>,
    sizes: Json,
    /// Further lines about cost.
    lines: Vec<String>,
    drawing: Option<String>,
}

/// The model in a batch of this size; sequences have these many tokens, source and target.
pub fn describe(
    model: &dyn Architecture,
    batch: usize,
    (tokens, target): (usize, usize),
) -> Result<Described, Failure> {
    let call = Call::whole(batch).tokens(tokens).target(target);
    let mut graph = Graph::for_inference();
    let output = model.build_result(&mut graph, &call).map_err(Failure::input)?;
    let plan = Plan::for_cpu_with_fixed_weights(&graph, &[output]).map_err(Failure::input)?;
    let mut stages = stages(&graph, &plan);
    name_embeddings(&mut stages);
    let memory = Memory::of(&plan, |gradient| training_graph(model, &call, Precision::F32, gradient))?;
    let Input { batch, mut facts, sizes, lines, drawing } = input_of(model, &call, &graph).map_err(Failure::input)?;
    let heads = attention(&graph).map_or(0, |(_, heads)| heads);
    facts.push(("Layers", format!("{} with {} each", depth_of(&stages), format::count(heads, "head", "heads"))));
    let mut layer = layers(&stages);
    layer.extend(lines);
    Ok(Described { batch, facts, inputs: inputs(&graph), sizes, stages, layer, stored: Vec::new(), memory, drawing })
}

fn input_of(model: &dyn Architecture, call: &Call, graph: &Graph) -> vitreous_engine::Result<Input> {
    let Call { batch, tokens, target, .. } = *call;
    let words = |count: usize| format::thousands(count as u128);
    let width = attention(graph).map_or(0, |(width, _)| width);
    let of_width = |tokens: String| format!("{tokens} of width {width}");
    Ok(match &model.signature().takes {
        Takes::Images(images) => Input {
            batch: format::count(batch, "image", "images"),
            facts: vec![
                ("Images", format!("{} \u{d7} {} pixels", images.size.height, images.size.width)),
                ("Tokens", of_width(words(images.tokens()))),
            ],
            sizes: json!({ "image": [images.size.height, images.size.width] }),
            lines: leading_cost(graph, images.tokens(), width).into_iter().collect(),
            drawing: Some(flow::drawing(graph, &flow_notes(model))),
        },
        Takes::Tokens(of) => {
            let generates = model.signature().gives.iter().any(|output| matches!(output, Gives::NextToken(_)));
            let generation = generates.then(|| Generation::of(model, of.longest)).transpose()?;
            let mut sizes = json!({ "tokens": tokens });
            if let (Json::Object(sizes), Some(Json::Object(costs))) =
                (&mut sizes, generation.as_ref().map(Generation::json))
            {
                sizes.extend(costs);
            }
            Input {
                batch: format!("{} of {tokens} tokens", format::count(batch, "text", "texts")),
                facts: vec![("Vocabulary", words(of.vocabulary)), ("Tokens", of_width(tokens.to_string()))],
                sizes,
                lines: generation.map_or_else(Vec::new, |generation| generation.lines()),
                drawing: None,
            }
        }
        Takes::ImagesAndTexts { images, texts } => Input {
            batch: format!("{} and as many texts of {tokens} tokens", format::count(batch, "image", "images")),
            facts: vec![
                ("Images", format!("{} \u{d7} {} pixels", images.size.height, images.size.width)),
                ("Vocabulary", words(texts.tokens.vocabulary)),
                ("Tokens", format!("{} of an image, {tokens} of a text", words(images.tokens()))),
            ],
            sizes: json!({ "image": [images.size.height, images.size.width], "tokens": tokens }),
            lines: Vec::new(),
            drawing: None,
        },
        Takes::Pairs { source, target: of_target, .. } => {
            let [encoding, step] = [decoding_cost(model, call, Part::Encode)?, decoding_cost(model, call, Part::Step)?];
            let line = format!(
                "Translating {} with a KV cache: {} FLOPs to encode, then at most {} for each token",
                format::count(batch, "sentence", "sentences"),
                format::thousands(encoding),
                format::thousands(step)
            );
            Input {
                batch: format!("{} of {tokens} and {target} tokens", format::count(batch, "pair", "pairs")),
                facts: vec![
                    ("Vocabulary", format!("{} and {}", words(source.vocabulary), words(of_target.vocabulary))),
                    ("Tokens", of_width(format!("{tokens} and {target}"))),
                ],
                sizes: json!({
                    "source": tokens,
                    "target": target,
                    "translating_flops": { "source": encoding, "word": step },
                }),
                lines: vec![line],
                drawing: None,
            }
        }
        Takes::Audio(audio) => {
            let [encoding, step] = [Part::Encode, Part::Step].map(|part| {
                let call = Call { tokens: 1, target: audio.target.longest, ..*call };
                decoding_cost(model, &call, part)
            });
            let (encoding, step) = (encoding?, step?);
            let line = format!(
                "Transcribing {} with a KV cache: {} FLOPs to encode, then at most {} for each token",
                format::count(batch, "window", "windows"),
                format::thousands(encoding),
                format::thousands(step)
            );
            Input {
                batch: format!("{} with {target} tokens", format::count(batch, "window of audio", "windows of audio")),
                facts: vec![
                    ("Audio", format!("{} frames of {} mel bins", words(audio.frames), audio.bins)),
                    ("Vocabulary", words(audio.target.vocabulary)),
                    ("Positions", of_width(format!("{} and {target}", words(audio.positions)))),
                ],
                sizes: json!({
                    "frames": audio.frames,
                    "target": target,
                    "transcribing_flops": { "window": encoding, "token": step },
                }),
                lines: vec![line],
                drawing: None,
            }
        }
    })
}

/// The cost of one sequence that a language model generates token by token.
struct Generation {
    /// KV cache of one token, in all layers, in f32.
    cache_bytes: usize,
    /// FLOPs of the first token, and of one whose KV cache holds the longest sequence.
    flops: [u64; 2],
    /// The maximum sequence length.
    longest: usize,
}

impl Generation {
    fn of(model: &dyn Architecture, longest: usize) -> vitreous_engine::Result<Generation> {
        let step = |capacity: usize| {
            let mut graph = Graph::for_inference();
            model.build(&mut graph, &Call::whole(1).target(capacity).part(Part::Step))?;
            Ok::<_, vitreous_engine::Error>(graph)
        };
        let [first, last] = [step(1)?, step(longest)?];
        // Caches of one slot with room for one token.
        let cache_bytes = first.caches().map(|(_, cache)| first.type_of(cache).bytes()).sum();
        Ok(Generation { cache_bytes, flops: [first.flops(), last.flops()], longest })
    }

    fn lines(&self) -> Vec<String> {
        let number = |count: usize| format::thousands(count as u128);
        let [first, last] = self.flops.map(format::thousands);
        let longest = number(self.longest);
        vec![
            format!(
                "KV cache: {} bytes per token in f32, {} in bf16; {} and {} for {longest} tokens",
                number(self.cache_bytes),
                number(self.cache_bytes / 2),
                format::bytes(self.cache_bytes.saturating_mul(self.longest)),
                format::bytes((self.cache_bytes / 2).saturating_mul(self.longest)),
            ),
            format!("Generating with a KV cache: {first} FLOPs for the first token, {last} for token {longest}"),
        ]
    }

    fn json(&self) -> Json {
        json!({
            "kv_cache_bytes_per_token": self.cache_bytes,
            "kv_cache_bytes_per_token_bf16": self.cache_bytes / 2,
            "flops_per_token": self.flops[0],
            "flops_per_token_at_max_length": self.flops[1],
            "max_length": self.longest,
        })
    }
}

/// The shapes of the inputs that have more than one axis: lengths are no news.
fn inputs(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    let shape = |(name, value): (&str, _)| (name.to_string(), graph.shape_of(value).axes().to_vec());
    graph.inputs().map(shape).filter(|(_, shape)| shape.len() > 1).collect()
}

/// What stands in a stack's scope but in no layer is the embedding of source or target: the words, and what is added to them.
fn name_embeddings(stages: &mut Vec<Stage>) {
    for (scope, name) in [("encoder", "source_embedding"), ("decoder", "target_embedding")] {
        let words = stages.iter().position(|stage| stage.name == format!("{scope}.embedding"));
        let rest = stages.iter().position(|stage| stage.name == scope);
        let Some(kept) = words.or(rest) else { continue };
        stages[kept].name = name.to_string();
        if let (Some(kept), Some(rest)) = (words, rest) {
            let Stage { parameters, flops, activation_bytes, shape, .. } = stages[rest].clone();
            let stage = &mut stages[kept];
            stage.parameters += parameters;
            stage.flops += flops;
            stage.activation_bytes += activation_bytes;
            stage.shape = shape;
            stages.remove(rest);
        }
    }
}

/// The width of a token and the number of heads, of the first attention.
fn attention(graph: &Graph) -> Option<(usize, usize)> {
    graph.nodes().iter().find_map(|node| match &node.op {
        Op::Attention(op) => Some((node.outputs[0].shape.columns(), op.heads)),
        _ => None,
    })
}

/// The stacks of layers: the first block of each, and how many there are.
fn stacks(stages: &[Stage]) -> Vec<(&str, usize)> {
    let mut stacks: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in stages.iter().filter_map(|stage| block_of(&stage.name)) {
        let scope = block.split('.').next().unwrap_or(block);
        match stacks.iter_mut().find(|(known, _)| *known == scope) {
            Some((_, blocks)) if blocks.contains(&block) => {}
            Some((_, blocks)) => blocks.push(block),
            None => stacks.push((scope, vec![block])),
        }
    }
    stacks.into_iter().map(|(_, blocks)| (blocks[0], blocks.len())).collect()
}

fn depth_of(stages: &[Stage]) -> String {
    stacks(stages).iter().map(|(_, count)| count.to_string()).collect::<Vec<_>>().join(" and ")
}

/// What a layer of each stack has.
fn layers(stages: &[Stage]) -> Vec<String> {
    let text = |number: usize| format::thousands(number as u128);
    let line = |(block, count): (&str, usize)| {
        let of = |part: &str| parameters_of(stages, block, part);
        let cross = match of(".cross_attention") {
            0 => String::new(),
            parameters => format!(" + cross-attention {}", text(parameters)),
        };
        let stack = match block.split('.').next() {
            Some(stack @ ("encoder" | "decoder")) => format!(" of the {stack}"),
            _ => String::new(),
        };
        format!(
            "A layer{stack}: attention {}{cross} + feed-forward {} + norms {} = {} parameters; {}: {}",
            text(of(".attention")),
            text(of(".mlp")),
            text(of(".norm")),
            text(of("")),
            format::count(count, "layer", "layers"),
            text(of("").saturating_mul(count))
        )
    };
    stacks(stages).into_iter().map(line).collect()
}

/// The cost of a layer by the terms that papers compare.
fn leading_cost(graph: &Graph, tokens: usize, dim: usize) -> Option<String> {
    let linear = graph.nodes().iter().filter(|node| matches!(node.op, Op::Linear(_)) && node.path.contains(".mlp."));
    let hidden = linear.map(|node| node.outputs[0].shape.columns()).max()?;
    let product = |factors: [usize; 3]| factors.iter().fold(1u128, |product, &f| product.saturating_mul(f as u128));
    Some(format!(
        "Cost of a layer per image, by its leading terms: attention L\u{b2}D = {}, feed-forward L\u{b7}D\u{b7}D_ff = {}",
        format::thousands(product([tokens, tokens, dim])),
        format::thousands(product([tokens, dim, hidden]))
    ))
}

/// FLOPs of a part: encoding a batch of sources, or one decoding step where all tokens before it are there.
fn decoding_cost(model: &dyn Architecture, call: &Call, part: Part) -> vitreous_engine::Result<u64> {
    let mut graph = Graph::for_inference();
    model.build(&mut graph, &call.part(part))?;
    Ok(graph.flops())
}
