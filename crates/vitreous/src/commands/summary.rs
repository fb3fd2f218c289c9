//! `vitreous summary`: every stage with its shape, parameters and cost. Everything is read off the graph; nothing is allocated.

mod describe;
mod scale;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value as Json, json};
use vitreous_data::image::Preprocess;
use vitreous_engine::{GradientOptions, Graph, Plan, State, Value};
use vitreous_models::stages::Stage;
use vitreous_models::{FAMILIES, OpenOptions, Signature, Size, StoredFormat, Takes};
use vitreous_pages::folding::{block_of, fold, name_inside};
use vitreous_pages::format;
use vitreous_pages::summary::{KIND, ModelSummary, page};
use vitreous_pages::write::{check_place, write_page};
use vitreous_runtime::locate::model_directory;

use super::{parse_count, parse_size};
use crate::failure::Failure;
use scale::ScaleOptions;

/// Show every stage of a model: shape, parameters, FLOPs, memory. Allocates nothing; a directory needs its config.json alone
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous summary vit_base_patch16_224
  vitreous summary runs/small-1 --html summary.html
  vitreous summary --list                                 all presets, by family
  vitreous summary llama3_8b --ranks 64 --link 50         training on 64 GPUs, predicted")]
pub struct Summary {
    /// A model directory, a checkpoint file, or a preset such as vit_base_patch16_224, transformer_base or bert_base
    #[arg(required_unless_present = "list")]
    model: Option<String>,
    /// List all presets
    #[arg(long)]
    list: bool,
    /// Samples per batch: images, texts or pairs [default: 1; with --ranks about 16,384 tokens]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    batch: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write an HTML page instead, for image models with the data flow as a picture; replaces an earlier page, never any other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The image size, if not the model's own: HEIGHTxWIDTH, or one number
    #[arg(long, value_name = "HxW", value_parser = parse_size, help_heading = "For images")]
    image: Option<Size>,
    /// The number of attention heads, for files that do not contain it
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "For images")]
    heads: Option<usize>,
    /// Tokens of a text, or of a source [default: 32; with --ranks 2048]
    #[arg(long, value_name = "N", value_parser = parse_length, help_heading = "For text", visible_alias = "tokens")]
    source: Option<usize>,
    /// Tokens of a target [default: 32]
    #[arg(long, value_name = "N", value_parser = parse_length, help_heading = "For text")]
    target: Option<usize>,
    #[command(flatten)]
    scale: ScaleOptions,
}

/// Tokens of a sequence, if none are named and the model takes as many.
const USUAL_TOKENS: usize = 32;

/// What a model is and costs.
struct Described {
    /// What it takes at a time, in words.
    batch: String,
    /// What else a page says at its top.
    facts: Vec<(&'static str, String)>,
    /// The shapes of what goes in, by name.
    inputs: Vec<(String, Vec<usize>)>,
    /// The sizes that were asked for, as JSON.
    sizes: Json,
    stages: Vec<Stage>,
    /// What a layer has and costs, in sentences.
    layer: Vec<String>,
    /// The formats of the weights on disk.
    stored: Vec<StoredFormat>,
    memory: Memory,
    /// The data flow; none of models with two sides.
    drawing: Option<String>,
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
        let Some(model) = self.model.as_deref().filter(|_| !self.list) else { return list(self.json) };
        self.html.as_deref().map_or(Ok(()), |path| check_place(path, KIND))?;
        let (plain, _) = vitreous_runtime::architecture(model, &OpenOptions::default().with_some("heads", self.heads))?;
        self.refuse_options(model, &plain.signature())?;
        let options = OpenOptions::default().with_some("image", self.image).with_some("heads", self.heads);
        let (mut architecture, notes) = vitreous_runtime::architecture(model, &options)?;
        let signature = architecture.signature();
        // A model is used at the size that its images are brought to, which may be another than it was trained with.
        if let (None, Some(images), Some(size)) = (self.image, signature.images(), preprocessed_size(model))
            && images.size != size
        {
            say!("note: preprocessor_config.json brings images to {size}; the model was trained with {}", images.size);
            let resized = OpenOptions::default().with("image", size);
            architecture = architecture.with_settings(&resized.settings).map_err(Failure::input)?;
        }
        notes.iter().for_each(|note| say!("note: {note}"));
        if self.scale.is_asked() {
            return self.scale.run((model, architecture.as_ref()), self.batch, self.source, self.json);
        }
        let longest = match &signature.takes {
            Takes::Images(_) => USUAL_TOKENS,
            Takes::Tokens(tokens) => tokens.longest,
            Takes::ImagesAndTexts { texts, .. } => texts.tokens.longest,
            Takes::Pairs { source, target, .. } => source.longest.min(target.longest),
            Takes::Audio(audio) => audio.target.longest,
        };
        let usual = USUAL_TOKENS.min(longest);
        let lengths = (self.source.unwrap_or(usual), self.target.unwrap_or(usual));
        let mut described = describe::describe(architecture.as_ref(), self.batch.unwrap_or(1), lengths)?;
        described.stored = vitreous_runtime::locate::stored_formats(model, &options)?;
        described.layer.extend(stored_line(&described.stored));
        let memory = described.memory.lines(&described.batch);
        if let Some(path) = &self.html {
            let summary = ModelSummary {
                model,
                batch: &described.batch,
                facts: &described.facts,
                inputs: &described.inputs,
                drawing: described.drawing.as_deref(),
                stages: &described.stages,
                layer: &described.layer,
                memory: &memory,
            };
            write_page(path, &page(&summary))?;
            say!("{} written", path.display());
        }
        let mut out = crate::say::stdout();
        if self.json {
            writeln!(out, "{}", self.json_of(model, &described))?;
        } else if self.html.is_none() {
            for line in described.lines(memory) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// Refuses options that mean nothing to the model, of which some were given.
    fn refuse_options(&self, model: &str, signature: &Signature) -> Result<(), Failure> {
        let images = [("--image", self.image.is_some()), ("--heads", self.heads.is_some())];
        let text = [("--source", self.source.is_some()), ("--target", self.target.is_some())];
        let (refused, of) = match &signature.takes {
            Takes::Images(_) => (&text[..], "texts and translators"),
            Takes::Tokens(_) | Takes::Pairs { .. } | Takes::Audio(_) => (&images[..], "images"),
            Takes::ImagesAndTexts { .. } => (&text[1..], "translators"),
        };
        match refused.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                Err(Failure::input(anyhow!("{option} is for {of}, but {model} is {}", signature.what())))
            }
            None => Ok(()),
        }
    }

    fn json_of(&self, model: &str, described: &Described) -> Json {
        let Described { stages, memory, sizes, .. } = described;
        let stage = |stage: &Stage| {
            json!({
                "name": stage.name,
                "shape": stage.shape.axes(),
                "parameters": stage.parameters,
                "flops": stage.flops,
                "activation_bytes": stage.activation_bytes,
            })
        };
        let mut object = json!({ "model": model, "batch": self.batch.unwrap_or(1) });
        let rest = json!({
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
        });
        if let (Json::Object(object), Json::Object(sizes), Json::Object(rest)) = (&mut object, sizes, rest) {
            object.extend(sizes.clone());
            object.extend(rest);
            if !described.stored.is_empty() {
                let stored = described.stored.iter().map(|format| {
                    json!({
                        "format": format.element.name(),
                        "tensors": format.tensors,
                        "parameters": format.values,
                        "bytes": format.bytes,
                    })
                });
                object.insert("stored_weights".to_string(), stored.collect());
            }
        }
        object
    }
}

impl Described {
    fn lines(&self, memory: Vec<String>) -> Vec<String> {
        let mut rows = vec![["stage", "shape", "parameters", "FLOPs", "activations"].map(str::to_string).to_vec()];
        rows.extend(self.inputs.iter().map(|(name, shape)| vec![name.to_string(), shape_text(shape)]));
        rows.extend(stage_rows(&self.stages));
        let parameters: usize = self.stages.iter().map(|stage| stage.parameters).sum();
        let flops: u64 = self.stages.iter().map(|stage| stage.flops).sum();
        let activations: usize = self.stages.iter().map(|stage| stage.activation_bytes).sum();
        rows.push(row("total", String::new(), parameters, flops, activations));
        let mut lines = format::table(&rows);
        let rule = "-".repeat(lines.iter().map(|line| line.chars().count()).max().unwrap_or(0));
        lines.insert(lines.len() - 1, rule.clone());
        lines.insert(1, rule);
        lines.push(String::new());
        lines.extend(self.layer.iter().cloned());
        lines.extend(memory);
        lines
    }
}

impl Memory {
    /// Of a plan for inference, and of the training step that is built with or without recomputation.
    fn of(
        inference: &Plan,
        training: impl Fn(GradientOptions) -> vitreous_engine::Result<(Graph, Value)>,
    ) -> Result<Memory, Failure> {
        let threads = vitreous_runtime::threads();
        let plan = |recompute| {
            let (graph, loss) = training(GradientOptions { recompute })?;
            let state = State::bytes_needed(&graph);
            Ok((Plan::for_cpu(&graph, &[loss])?.peak_bytes(threads) + state, state))
        };
        let plan = |recompute| plan(recompute).map_err(|error: vitreous_engine::Error| Failure::input(error));
        let (training, training_state) = plan(false)?;
        Ok(Memory {
            weights: inference.weight_bytes(),
            inference: inference.peak_bytes(threads),
            training_state,
            training,
            training_recomputed: plan(true)?.0,
        })
    }

    fn lines(&self, batch: &str) -> Vec<String> {
        let [inference, weights] = [self.inference, self.weights].map(format::bytes);
        let [training, state] = [self.training, self.training_state].map(format::bytes);
        let recomputed = format::bytes(self.training_recomputed);
        vec![
            format!("Inference, {batch} at a time: {inference} ({weights} of weights)"),
            format!(
                "Training with AdamW, {batch} at a time: {training} ({state} of parameters, gradients and moments), \
                 {recomputed} with recomputation"
            ),
        ]
    }
}

/// The formats of the weights on disk and their bytes, the largest first.
fn stored_line(stored: &[StoredFormat]) -> Option<String> {
    let mut largest = stored.to_vec();
    largest.sort_by_key(|format| std::cmp::Reverse(format.bytes));
    let part = |format: &StoredFormat| {
        let tensors = format::count(format.tensors, "tensor", "tensors");
        format!("{} {} ({tensors})", format::bytes(format.bytes), format.element.name())
    };
    let parts: Vec<String> = largest.iter().map(part).collect();
    let bytes = stored.iter().map(|format| format.bytes).sum();
    (!parts.is_empty()).then(|| format!("Weights on disk: {}: {}", format::bytes(bytes), parts.join(", ")))
}

/// The size that a model directory's own preprocessing brings images to.
fn preprocessed_size(model: &str) -> Option<Size> {
    let file = model_directory(Path::new(model)).join("preprocessor_config.json");
    let preprocess = Preprocess::from_hugging_face(&std::fs::read(file).ok()?).ok()?;
    preprocess.output_size().map(|[height, width]| Size { height, width })
}

/// Prints all presets.
fn list(json: bool) -> Result<(), Failure> {
    let mut out = crate::say::stdout();
    for family in FAMILIES {
        if json {
            writeln!(out, "{}", json!({ "family": family.name(), "presets": family.presets() }))?;
            continue;
        }
        writeln!(out, "{}", family.name())?;
        for preset in family.presets() {
            writeln!(out, "  {preset}")?;
        }
    }
    Ok(())
}

/// Reads a number of tokens: of at most a million, because the table of positions is made.
fn parse_length(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        length if length <= 1 << 20 => Ok(length),
        _ => Err("at most 1048576 tokens are taken".to_string()),
    }
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

/// One row per stage. Blocks have a row of sums; the stages inside are shown for the first one, and for others that differ from it.
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

/// Parameters of the stages of a block whose name has a part, such as `.mlp`; of all with an empty one.
fn parameters_of(stages: &[Stage], block: &str, part: &str) -> usize {
    let inside = stages.iter().filter(|stage| block_of(&stage.name) == Some(block));
    inside.filter(|stage| stage.name.contains(part)).map(|stage| stage.parameters).sum()
}
