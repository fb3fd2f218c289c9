//! What a model is, and the stages of its graph.

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use vitreous_engine::{Graph, Op, Plan};
use vitreous_explain::live::{LiveInput, LiveValue, layer_groups};
use vitreous_models::stages::{results, stage_of, stages};
use vitreous_models::{Call, Gives, Signature};
use vitreous_pages::folding::block_of;

use super::prepare::MOST_TOKENS;
use super::work::failed;
use super::{Watched, WatchedInput, WatchedModel};
use crate::work::WorkError;

impl Watched {
    /// What a client is told of the model.
    pub fn described(&self) -> Result<Json, WorkError> {
        match self.described.get() {
            Some(known) => Ok(known.clone()),
            None => {
                let described = self.describe()?;
                Ok(self.described.get_or_init(|| described).clone())
            }
        }
    }

    fn describe(&self) -> Result<Json, WorkError> {
        let model = self.model.model();
        let architecture = model.architecture.as_ref();
        let signature = architecture.signature();
        let groups = layer_groups(model).map_err(failed)?;
        let is_own = groups.iter().any(|group| group.block == "blocks.#");
        let mut can = vec!["attention", "edits"];
        let has_logits = gives(&self.model, &signature) != "vector";
        can.extend(has_logits.then_some("lens"));
        if is_own && has_logits && !signature.is_span() {
            can.extend(["attribution", "effects", "patching"]);
        }
        can.extend(matches!(self.model, WatchedModel::Language(_)).then_some("scores"));
        can.extend(
            matches!(self.model, WatchedModel::Image(_) | WatchedModel::ImageText(_) | WatchedModel::Text(_))
                .then_some("relevance"),
        );
        let group = |group: &vitreous_explain::live::LayerGroup| json!({"name": group.group.name(), "layers": group.layers, "heads": group.heads, "block": group.block, "attention": group.attention});
        let (vocabulary, longest) = lengths(&self.model, &signature);
        let mask = match &self.model {
            WatchedModel::Text(text) if signature.masked_tokens().is_some() => text.mask().map(|(_, mask)| mask),
            _ => None,
        };
        let labels = &model.assets.labels;
        let parameters: usize = model.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
        Ok(json!({
            "name": self.name, "what": signature.what(), "takes": takes(&self.model, &signature), "gives": gives(&self.model, &signature),
            "parameters": parameters, "width": width(model)?, "labels": (!labels.is_empty()).then_some(labels), "mask": mask,
            "vocabulary": vocabulary, "longest": longest,
            "groups": groups.iter().map(group).collect::<Vec<_>>(), "can": can,
        }))
    }
}

/// Numbers of a token's vector.
fn width(model: &vitreous_models::Model) -> Result<usize, WorkError> {
    let mut graph = Graph::for_inference();
    let built =
        model.architecture.build(&mut graph, &Call::whole(1)).map_err(|error| WorkError::Failed(error.to_string()))?;
    let value = ["blocks.0", "decoder.0"].iter().find_map(|path| graph.find(path).ok()).or(built.get("tokens"));
    Ok(value.map_or(0, |value| graph.shape_of(value).columns()))
}

fn takes(model: &WatchedModel, signature: &Signature) -> &'static str {
    match model {
        WatchedModel::Image(_) => "image",
        WatchedModel::ImageText(_) => "image_text",
        WatchedModel::Text(_) if signature.is_span() => "pair",
        WatchedModel::Text(_) | WatchedModel::Language(_) => "text",
        WatchedModel::Translator(_) | WatchedModel::Sequence(_) => "pair",
        WatchedModel::Speech(_) => "audio",
    }
}

fn gives(model: &WatchedModel, signature: &Signature) -> &'static str {
    match model {
        WatchedModel::Image(_) if signature.classes().is_some() => "classes",
        WatchedModel::Image(_) | WatchedModel::ImageText(_) => "vector",
        WatchedModel::Language(_) => "next_token",
        WatchedModel::Translator(_) | WatchedModel::Sequence(_) => "sequence",
        WatchedModel::Speech(_) => "speech",
        WatchedModel::Text(text) => match text.head() {
            Some(Gives::Classes(_) | Gives::Labels(_)) => "classes",
            Some(Gives::Numbers(_)) => "numbers",
            Some(Gives::TokenClasses(_)) => "token_classes",
            Some(Gives::Span) => "answers",
            _ if signature.masked_tokens().is_some() => "masked",
            _ => "vector",
        },
    }
}

/// The vocabulary, and the most tokens that are watched.
fn lengths(model: &WatchedModel, signature: &Signature) -> (Option<usize>, Option<usize>) {
    let found = match model {
        WatchedModel::Image(_) | WatchedModel::ImageText(_) => None,
        WatchedModel::Text(text) => Some((text.input.vocabulary, text.longest)),
        WatchedModel::Language(language) => Some((language.vocabulary, language.longest)),
        WatchedModel::Translator(_) | WatchedModel::Sequence(_) => {
            signature.pairs().map(|(source, target)| (target.vocabulary, source.longest.min(target.longest)))
        }
        WatchedModel::Speech(speech) => Some((speech.input.target.vocabulary, speech.input.target.longest)),
    };
    (found.map(|(vocabulary, _)| vocabulary), found.map(|(_, longest)| longest.min(MOST_TOKENS)))
}

/// What the model is given, as a picture of a stage.
pub(super) fn given_value(model: &WatchedModel, input: &WatchedInput) -> Option<(String, LiveValue)> {
    match &input.live {
        LiveInput::Image(pixels) => {
            let columns = input.grid.as_ref()?["image"][1].as_u64()? as usize;
            Some(("images".to_string(), LiveValue::matrix(&[columns], pixels.to_vec())))
        }
        LiveInput::Audio { mel, .. } => {
            let WatchedModel::Speech(speech) = model else { return None };
            Some(("mel".to_string(), LiveValue::matrix(&[speech.input.bins], mel.to_vec())))
        }
        LiveInput::Text { .. } | LiveInput::Pair { .. } => None,
    }
}

/// The layer that a stage belongs to: `blocks.3`, or `image.blocks.3` in the tower of a model with two.
fn fold_of(name: &str) -> Option<&str> {
    let in_tower = || {
        let (tower, rest) = name.split_once('.')?;
        Some(&name[..tower.len() + 1 + block_of(rest)?.len()])
    };
    block_of(name).or_else(in_tower)
}

/// An op in plain words.
fn plain(op: &str) -> &str {
    match op {
        "layer_norm" => "layer norm",
        "rms_norm" => "RMS norm",
        "add" => "sum",
        "multiply" => "product",
        "mean_tokens" => "mean",
        "max_tokens" => "maximum",
        "top_k" => "top k",
        op => op,
    }
}

/// The stages for an input, in order of computation: the same as `vitreous summary` has them, and before them what goes in.
pub(super) fn graph(model: &WatchedModel, input: &WatchedInput) -> Result<Json, WorkError> {
    let broken = |error: vitreous_engine::Error| WorkError::Failed(error.to_string());
    let lengths = input.live.lengths();
    let mut graph = Graph::for_inference();
    let call = Call::whole(1).tokens(lengths.tokens).target(lengths.target).masked(lengths.masked);
    let result = model.model().architecture.build_result(&mut graph, &call).map_err(broken)?;
    let plan = Plan::for_cpu_with_fixed_weights(&graph, &[result]).map_err(broken)?;
    let editable = graph.editable_paths();
    let mut ops: HashMap<&str, Vec<String>> = HashMap::new();
    let mut reads: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut heads: HashMap<&str, usize> = HashMap::new();
    let mut given: Vec<Json> = Vec::new();
    for node in graph.nodes() {
        if let (Op::Input(_), Some(output)) = (&node.op, node.outputs.first()) {
            given.push(json!({
                "path": node.path, "name": node.path, "op": "input", "shape": output.shape.axes(), "parameters": 0, "flops": 0,
                "bytes": output.bytes(), "reads": [], "fold": Json::Null, "editable": false, "value": Json::Null,
            }));
        }
        if node.op.is_leaf() {
            continue;
        }
        let stage = stage_of(&node.path);
        let (named, label) = (ops.entry(stage).or_default(), node.label());
        let words = label.split('+').map(plain).collect::<Vec<_>>().join(", ");
        if named.last() != Some(&words) {
            named.push(words);
        }
        if let Op::Attention(op) = &node.op {
            heads.insert(stage, op.heads);
        }
        let from = reads.entry(stage).or_default();
        for &read in &node.inputs {
            let source = graph.node(read);
            let of = if matches!(source.op, Op::Input(_)) { source.path.as_str() } else { stage_of(&source.path) };
            let is_leaf = source.op.is_leaf() && !matches!(source.op, Op::Input(_));
            if !is_leaf && of != stage && !from.contains(&of) {
                from.push(of);
            }
        }
    }
    let results: HashMap<String, String> = results(&graph).into_iter().collect();
    let listed = stages(&graph, &plan).into_iter().map(|stage| {
        let name = stage.name.as_str();
        let mut one = json!({
            "path": name, "name": name, "op": ops.get(name).map(|ops| ops.join(", ")), "shape": stage.shape.axes(),
            "parameters": stage.parameters, "flops": stage.flops, "bytes": stage.activation_bytes, "reads": reads.get(name),
            "fold": fold_of(name), "editable": editable.iter().any(|path| path == name), "value": results.get(name),
        });
        if let Some(heads) = heads.get(name) {
            one["heads"] = json!(heads);
        }
        one
    });
    Ok(json!({"stages": given.into_iter().chain(listed).collect::<Vec<_>>()}))
}

#[cfg(test)]
mod tests {
    use super::fold_of;

    #[test]
    fn layers_of_towers_fold_too() {
        let names = ["blocks.3.mlp", "image.blocks.10.attention", "image.blocks.0", "image.embedding_norm", "head"];
        assert_eq!(names.map(fold_of), [Some("blocks.3"), Some("image.blocks.10"), Some("image.blocks.0"), None, None]);
    }
}
