//! What a model is, and the stages of its graph.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use vitreous_engine::{Graph, Op, Plan};
use vitreous_explain::live::{LayerGroup, LiveInput, LiveValue, layer_groups};
use vitreous_models::stages::{Step, steps};
use vitreous_models::{Call, Gives, ImageInput, Model, PooledFrom, Signature};
use vitreous_pages::folding::block_of;

use super::prepare::MOST_TOKENS;
use super::work::failed;
use super::{Watched, WatchedInput, WatchedModel};
use crate::work::WorkError;

/// A space in vocabularies whose pieces are bytes, each written as a letter.
const BYTE_LEVEL_SPACE: &str = "\u{120}";

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
        let is_of_vectors = is_of_vectors(&self.model);
        // The lens of a vector needs streams with names.
        can.extend((!is_of_vectors || is_own).then_some("lens"));
        let has_one_logit = is_own && !is_of_vectors && !signature.is_span();
        can.extend(has_one_logit.then_some(["attribution", "patching"]).into_iter().flatten());
        let has_own_measure = groups.len() > 1 || (is_of_vectors && !groups.is_empty());
        can.extend((has_one_logit || has_own_measure).then_some("effects"));
        can.extend(matches!(self.model, WatchedModel::Language(_)).then_some("scores"));
        can.extend(
            matches!(self.model, WatchedModel::Image(_) | WatchedModel::ImageText(_) | WatchedModel::Text(_))
                .then_some("relevance"),
        );
        let group = |group: &LayerGroup| json!({"name": group.group.name(), "layers": group.layers, "heads": group.heads, "block": group.block, "attention": group.attention});
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
            "byte_level": (0..vocabulary.unwrap_or(0)).any(|id| self.model.piece(id as u32, false) == BYTE_LEVEL_SPACE),
            "final_norm": has_final_norm(model, &groups)?, "pooled_from": signature.image_input().map(pooled_from),
        }))
    }
}

/// Whether a model answers with a vector, and has no logits.
pub(super) fn is_of_vectors(model: &WatchedModel) -> bool {
    gives(model, &model.model().architecture.signature()) == "vector"
}

fn pooled_from(images: &ImageInput) -> &'static str {
    match images.pooled_from {
        PooledFrom::ClassToken => "class_token",
        PooledFrom::Patches => "patches",
    }
}

/// Whether a norm stands behind the last layer, before anything else with weights.
fn has_final_norm(model: &Model, groups: &[LayerGroup]) -> Result<bool, WorkError> {
    let mut graph = Graph::for_inference();
    let built = model.architecture.build(&mut graph, &Call::whole(1));
    built.map_err(|error| WorkError::Failed(error.to_string()))?;
    // The decoder's layers are behind those of the encoder.
    let last = groups.iter().rev().find_map(|group| {
        let path = group.block.replacen('#', &group.layers.saturating_sub(1).to_string(), 1);
        graph.find(&path).ok()
    });
    let mut behind: HashSet<&str> = last.map(|last| graph.path(last)).into_iter().collect();
    for node in graph.nodes() {
        if !node.inputs.iter().any(|&read| behind.contains(graph.path(read))) {
            continue;
        }
        match node.op {
            Op::LayerNorm(_) | Op::RmsNorm(_) => return Ok(true),
            _ if node.inputs.iter().any(|&read| matches!(graph.node(read).op, Op::Parameter(_))) => {}
            _ => {
                behind.insert(&node.path);
            }
        }
    }
    Ok(false)
}

/// Numbers of a token's vector.
fn width(model: &Model) -> Result<usize, WorkError> {
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

/// The stages for an input, in order of computation: as `vitreous summary` has them, but one that others are computed in between of comes
/// in steps; and before them what goes in.
pub(super) fn graph(model: &WatchedModel, input: &WatchedInput) -> Result<Json, WorkError> {
    let broken = |error: vitreous_engine::Error| WorkError::Failed(error.to_string());
    let lengths = input.live.lengths();
    let mut graph = Graph::for_inference();
    let call = Call::whole(1).tokens(lengths.tokens).target(lengths.target).masked(lengths.masked);
    let result = model.model().architecture.build_result(&mut graph, &call).map_err(broken)?;
    let plan = Plan::for_cpu_with_fixed_weights(&graph, &[result]).map_err(broken)?;
    let editable = graph.editable_paths();
    let inputs = graph.nodes().iter().filter(|node| matches!(node.op, Op::Input(_)));
    let given = inputs.filter_map(|node| {
        let output = node.outputs.first()?;
        Some(json!({
            "path": node.path, "name": node.path, "op": "input", "shape": output.shape.axes(), "parameters": 0, "flops": 0,
            "bytes": output.bytes(), "reads": [], "joins": false, "stage": node.path, "fold": Json::Null, "editable": false,
            "value": Json::Null,
        }))
    });
    let listed = steps(&graph, Some(&plan)).into_iter().map(|step| {
        let Step { own, stage, result, reads, joins, nodes } = step;
        let nodes = || nodes.iter().map(|&node| &graph.nodes()[node]);
        let words = |label: &str| label.split('+').map(plain).collect::<Vec<_>>().join(", ");
        let mut ops: Vec<String> = nodes().map(|node| words(&node.label())).collect();
        ops.dedup();
        let mut one = json!({
            "path": own.name, "name": own.name, "op": ops.join(", "), "shape": own.shape.axes(), "parameters": own.parameters,
            "flops": own.flops, "bytes": own.activation_bytes, "reads": reads, "joins": joins, "stage": stage,
            "fold": fold_of(&stage), "editable": editable.contains(&own.name), "value": result,
        });
        if let Some(heads) = nodes().find_map(|node| if let Op::Attention(op) = &node.op { Some(op.heads) } else { None }) {
            one["heads"] = json!(heads);
        }
        one
    });
    Ok(json!({"stages": given.chain(listed).collect::<Vec<_>>()}))
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
