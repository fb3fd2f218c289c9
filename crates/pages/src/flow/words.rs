//! Captions: what each step computes, in the terms of the papers and with the model's own numbers.

use super::FlowNotes;
use super::steps::{Detail, FlowStep, Joining};
use crate::folding::name_inside;
use crate::format;

/// One sentence per step. A step that it does not know is described by the names of its ops.
pub fn caption(notes: &FlowNotes, step: &FlowStep) -> String {
    let details = &step.inside.details;
    match name_inside(&step.stage) {
        "images" => image(step),
        "patch_embedding" => patches(details),
        "position_embedding" => positions(notes, step),
        "prefix_tokens" => prefix(notes, step),
        "norm1" | "norm2" | "norm" => norm(step),
        "attention" => attention(details),
        "mlp" => feed_forward(step),
        "residual" => residual(step),
        "pooling" => pooling(notes, details),
        "pre_logits" => format!("{}, tanh", linear(details)),
        "head" => format!("{}: logits, one per class", linear(details)),
        "distillation_pooling" => "the distillation token".to_string(),
        "distillation_head" => format!("{}, then the mean of both heads", linear(details)),
        _ => step.inside.operations.join(", "),
    }
}

/// What joins from the side: its short name, and whether it is learned.
pub fn joining(notes: &FlowNotes, value: &Joining) -> [String; 2] {
    let rows = value.shape.axes().first().copied().unwrap_or(1);
    let name = match value.name.as_str() {
        "class_token" => "class token".to_string(),
        "distillation_token" => "distillation".to_string(),
        "register_tokens" => format::count(rows, "register", "registers"),
        other => other.to_string(),
    };
    let kind = if value.trained { "learned" } else { notes.constant(&value.name) };
    [name, kind.to_string()]
}

fn image(step: &FlowStep) -> String {
    let &[_, channels, height, width] = step.inside.shape.axes() else { return step.stage.clone() };
    let colours = match channels {
        1 => "greyscale".to_string(),
        3 => "RGB".to_string(),
        other => format!("{other} channels"),
    };
    format!("{height} \u{d7} {width} pixels, {colours}")
}

fn patches(details: &[Detail]) -> String {
    let cut = details.iter().find_map(|detail| match detail {
        Detail::Patches { grid: [rows, columns], patch: [height, width] } => {
            Some(format!("{rows} \u{d7} {columns} patches of {height} \u{d7} {width} pixels; each through one "))
        }
        _ => None,
    });
    cut.unwrap_or_default() + &linear(details)
}

fn positions(notes: &FlowNotes, step: &FlowStep) -> String {
    let kind = match step.inside.joining.iter().find(|value| value.name == "positions") {
        Some(table) if table.trained => "learned",
        _ => notes.constant("positions"),
    };
    format!("adds {kind} position embeddings")
}

/// The tokens in front of the patches.
fn prefix(notes: &FlowNotes, step: &FlowStep) -> String {
    let tokens = step.inside.shape.axes().get(1).copied().unwrap_or(0);
    let patches = step.inside.inputs.iter().filter_map(|edge| match edge.shape.axes() {
        [_, patches, _] => Some(*patches),
        _ => None,
    });
    let patches = patches.max().unwrap_or(tokens);
    format!("{} in front of {patches} patches: {tokens} tokens", notes.prefix.join(", "))
}

fn norm(step: &FlowStep) -> String {
    let name = match step.inside.operations.iter().any(|name| name == "rms_norm") {
        true => "RMS norm",
        false => "layer norm",
    };
    match step.inside.shape.axes().len() {
        2 => format!("{name} of the pooled vector"),
        _ => format!("{name} of each token"),
    }
}

fn attention(details: &[Detail]) -> String {
    let found = details.iter().find_map(|detail| match detail {
        Detail::Attention { heads, width, keys } => {
            let heads = format::count(*heads, "head", "heads");
            Some(format!(
                "{heads} of {width} over {keys} tokens: softmax(QK\u{1d40}\u{a0}/\u{a0}\u{221a}{width})\u{a0}V"
            ))
        }
        _ => None,
    });
    found.unwrap_or_else(|| linear(details))
}

fn feed_forward(step: &FlowStep) -> String {
    let widths: Vec<[usize; 2]> = linears(&step.inside.details).collect();
    let (Some(first), Some(last)) = (widths.first(), widths.last()) else { return String::new() };
    let names = step.inside.operations.iter().flat_map(|label| label.split('+'));
    let activation = names.filter_map(activation_name).next().unwrap_or("no activation");
    match widths.len() {
        // Two linear layers side by side, one of which gates the other, then one behind them.
        3 => format!(
            "each token: {} \u{2192} {activation}(gate) \u{b7} up, both {} \u{2192} {}",
            first[0], first[1], last[1]
        ),
        _ => format!("each token: {} \u{2192} {} \u{2192} {activation} \u{2192} {}", first[0], first[1], last[1]),
    }
}

/// The activation that an op's name says.
fn activation_name(op: &str) -> Option<&'static str> {
    match op {
        "gelu" => Some("GELU"),
        "gelu_tanh" => Some("GELU (tanh)"),
        "relu" => Some("ReLU"),
        "silu" => Some("SiLU"),
        "tanh" => Some("tanh"),
        _ => None,
    }
}

fn linears(details: &[Detail]) -> impl Iterator<Item = [usize; 2]> {
    details.iter().filter_map(|detail| match detail {
        Detail::Linear { inputs, outputs } => Some([*inputs, *outputs]),
        _ => None,
    })
}

fn linear(details: &[Detail]) -> String {
    let all = linears(details).map(|[inputs, outputs]| format!("linear layer, {inputs} \u{2192} {outputs}"));
    all.collect::<Vec<_>>().join(", ")
}

fn residual(step: &FlowStep) -> String {
    match step.inside.joining.first() {
        Some(scale) => format!("times {}, plus the input", scale.name),
        None => "plus the input".to_string(),
    }
}

fn pooling(notes: &FlowNotes, details: &[Detail]) -> String {
    let reduced = details.iter().find_map(|detail| match detail {
        Detail::Mean { tokens } => Some(format!("mean over {tokens} patches")),
        Detail::Max { tokens } => Some(format!("maximum over {tokens} patches")),
        _ => None,
    });
    let takes_one = details.contains(&Detail::OneToken);
    let first = notes.prefix.first().map_or("first token", String::as_str);
    match (takes_one, reduced) {
        (true, Some(reduced)) => format!("{first}, and {reduced}"),
        (false, Some(reduced)) => reduced,
        (_, None) => format!("the {first}"),
    }
}
