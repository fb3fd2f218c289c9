//! `vitreous summary`: every stage with its shape, parameters and cost. Everything is read off the graph; nothing is allocated.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use vitreous_engine::{GradientOptions, Graph, Plan, Precision, State};
use vitreous_models::stages::{Stage, stages};
use vitreous_models::{Size, VitConfig, vit};

use super::{parse_count, parse_size};
use crate::failure::Failure;
use crate::folding::{block_of, fold, name_inside};
use crate::format;
use crate::pages::summary::{KIND, Summarised, page};
use crate::pages::write::{check_place, write_page};
use crate::source;
use crate::step::training_graph;

/// Show every stage of a model: shape, parameters, FLOPs, memory. It allocates nothing
#[derive(Args)]
pub struct Summary {
    /// A model directory, a checkpoint file, or a preset such as vit_base_patch16_224
    model: String,
    /// The size of the images, if not the model's own: HEIGHTxWIDTH, or one number
    #[arg(long, value_name = "HxW", value_parser = parse_size)]
    image: Option<Size>,
    /// The number of heads, for files that do not tell it
    #[arg(long, value_name = "N", value_parser = parse_count)]
    heads: Option<usize>,
    /// Images at a time
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    batch: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a page instead, with the data flow as a picture; a page that is there is replaced, any other file is not
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What running a model takes, in bytes.
struct Memory {
    weights: usize,
    inference: usize,
    training_state: usize,
    training: usize,
    training_recomputed: usize,
}

impl Summary {
    pub fn run(self) -> Result<(), Failure> {
        self.html.as_deref().map_or(Ok(()), |path| check_place(path, KIND))?;
        let config = source::configuration(&self.model, self.image, self.heads)?;
        let mut graph = Graph::for_inference();
        let model = vit(&mut graph, &config, self.batch).map_err(Failure::input)?;
        let output = model.logits.unwrap_or(model.features);
        let plan = Plan::for_cpu_with_fixed_weights(&graph, &[output]).map_err(Failure::input)?;
        let stages = stages(&graph, &plan);
        let memory = Memory::of(&config, self.batch, &plan)?;
        if let Some(path) = &self.html {
            let summarised = Summarised {
                model: &self.model,
                batch: self.batch,
                config: &config,
                graph: &graph,
                stages: &stages,
                layer: a_layer(&config, &stages),
                memory: memory.lines(self.batch),
            };
            write_page(path, &page(&summarised))?;
            say!("{} written", path.display());
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            let value = self.json_of(&config, &stages, &memory);
            writeln!(out, "{value}")?;
        } else if self.html.is_none() {
            for line in self.lines(&config, &stages, &memory) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    fn json_of(&self, config: &VitConfig, stages: &[Stage], memory: &Memory) -> serde_json::Value {
        let stage = |stage: &Stage| {
            json!({
                "name": stage.name,
                "shape": stage.shape.axes(),
                "parameters": stage.parameters,
                "flops": stage.flops,
                "activation_bytes": stage.activation_bytes,
            })
        };
        json!({
            "model": self.model,
            "batch": self.batch,
            "image": [config.image.height, config.image.width],
            "total_parameters": stages.iter().map(|stage| stage.parameters).sum::<usize>(),
            "forward_flops": stages.iter().map(|stage| stage.flops).sum::<u64>(),
            "memory_bytes": {
                "weights": memory.weights,
                "inference": memory.inference,
                "training_state": memory.training_state,
                "training": memory.training,
                "training_with_recomputation": memory.training_recomputed,
            },
            "stages": stages.iter().map(stage).collect::<Vec<_>>(),
        })
    }

    fn lines(&self, config: &VitConfig, stages: &[Stage], memory: &Memory) -> Vec<String> {
        let image = [self.batch, config.channels, config.image.height, config.image.width];
        let mut rows = vec![
            ["stage", "shape", "parameters", "FLOPs", "activations"].map(str::to_string).to_vec(),
            vec!["images".to_string(), shape_text(&image)],
        ];
        rows.extend(stage_rows(stages));
        let parameters: usize = stages.iter().map(|stage| stage.parameters).sum();
        let flops: u64 = stages.iter().map(|stage| stage.flops).sum();
        let activations: usize = stages.iter().map(|stage| stage.activation_bytes).sum();
        rows.push(row("total", String::new(), parameters, flops, activations));
        let mut lines = format::table(&rows);
        let rule = "-".repeat(lines.iter().map(|line| line.chars().count()).max().unwrap_or(0));
        lines.insert(lines.len() - 1, rule.clone());
        lines.insert(1, rule);
        lines.push(String::new());
        lines.extend(a_layer(config, stages));
        lines.extend(memory.lines(self.batch));
        lines
    }
}

impl Memory {
    fn of(config: &VitConfig, batch: usize, inference: &Plan) -> Result<Memory, Failure> {
        let state = training_plan(config, batch, false)?;
        let recomputed = training_plan(config, batch, true)?;
        let threads = source::threads();
        Ok(Memory {
            weights: inference.weight_bytes(),
            inference: inference.peak_bytes(threads),
            training_state: state.1,
            training: state.0.peak_bytes(threads) + state.1,
            training_recomputed: recomputed.0.peak_bytes(threads) + recomputed.1,
        })
    }

    fn lines(&self, batch: usize) -> Vec<String> {
        let [inference, weights] = [self.inference, self.weights].map(format::bytes);
        let [training, state] = [self.training, self.training_state].map(format::bytes);
        let recomputed = format::bytes(self.training_recomputed);
        vec![
            format!("Inference, batch {batch}: {inference} ({weights} of weights)"),
            format!(
                "Training with AdamW, batch {batch}: {training} ({state} of parameters, gradients and moments), \
                 {recomputed} with recomputation"
            ),
        ]
    }
}

/// The plan of a training step and the bytes of what it changes.
fn training_plan(config: &VitConfig, batch: usize, recompute: bool) -> Result<(Plan, usize), Failure> {
    let build = || {
        let (graph, loss) = training_graph(config, batch, Precision::F32, GradientOptions { recompute })?;
        Ok((Plan::for_cpu(&graph, &[loss])?, State::bytes_needed(&graph)))
    };
    build().map_err(|error: vitreous_engine::Error| Failure::input(error))
}

fn shape_text(axes: &[usize]) -> String {
    axes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")
}

fn row(name: &str, shape: String, parameters: usize, flops: u64, activations: usize) -> Vec<String> {
    let parameters = if parameters == 0 { "-".to_string() } else { format::thousands(parameters as u128) };
    let flops = if flops == 0 { "-".to_string() } else { format::thousands(flops) };
    let activations = if activations == 0 { "-".to_string() } else { format::bytes(activations) };
    vec![name.to_string(), shape, parameters, flops, activations]
}

/// A row a stage. Blocks have a row of sums; the stages inside are shown for the first one, and for others that differ from it.
fn stage_rows(stages: &[Stage]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let nameless =
        |stage: &Stage| (name_inside(&stage.name).to_string(), Stage { name: String::new(), ..stage.clone() });
    for fold in fold(stages, |stage| &stage.name, nameless) {
        if fold.block.is_none() {
            rows.extend(fold.first().iter().map(|stage| stage_row(&stage.name, stage)));
            continue;
        }
        for (index, repeat) in fold.repeats.iter().enumerate() {
            let block = block_of(&repeat[0].name).unwrap_or_default();
            let shape = repeat.last().map_or_else(String::new, |stage| shape_text(stage.shape.axes()));
            let (parameters, flops) = (repeat.iter().map(|s| s.parameters).sum(), repeat.iter().map(|s| s.flops).sum());
            rows.push(row(block, shape, parameters, flops, repeat.iter().map(|s| s.activation_bytes).sum()));
            if index == 0 {
                rows.extend(repeat.iter().map(|stage| stage_row(&format!("  {}", name_inside(&stage.name)), stage)));
            }
        }
    }
    rows
}

fn stage_row(name: &str, stage: &Stage) -> Vec<String> {
    row(name, shape_text(stage.shape.axes()), stage.parameters, stage.flops, stage.activation_bytes)
}

/// What one layer has and costs, the costs by the terms that papers compare.
fn a_layer(config: &VitConfig, stages: &[Stage]) -> Vec<String> {
    let of = |part: &str| {
        let inside = stages.iter().filter(|stage| block_of(&stage.name) == Some("blocks.0"));
        inside.filter(|stage| stage.name.contains(part)).map(|stage| stage.parameters).sum::<usize>()
    };
    let layer: usize =
        stages.iter().filter(|stage| block_of(&stage.name) == Some("blocks.0")).map(|stage| stage.parameters).sum();
    let text = |number: usize| format::thousands(number as u128);
    let (tokens, dim) = (config.tokens() as u128, config.dim as u128);
    vec![
        format!(
            "A layer: attention {} + feed-forward {} + norms {} = {} parameters; {} layers: {}",
            text(of(".attention")),
            text(of(".mlp")),
            text(of(".norm")),
            text(layer),
            config.depth,
            text(layer.saturating_mul(config.depth))
        ),
        format!(
            "Cost of a layer an image, by its leading terms: attention L\u{b2}D = {}, feed-forward L\u{b7}D\u{b7}D_ff = {}",
            format::thousands(tokens.saturating_mul(tokens).saturating_mul(dim)),
            format::thousands(tokens.saturating_mul(dim).saturating_mul(config.mlp_dim as u128))
        ),
    ]
}
