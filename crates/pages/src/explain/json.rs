//! The explanation of an image as JSON: what `explain --json` prints and a server answers.

use std::path::Path;

use serde_json::{Value, json};
use vitreous_explain::{Explanation, Reader, Relevance, Rollout};
use vitreous_models::Size;
use vitreous_runtime::ImageModel;
use vitreous_runtime::scores::{best, softmax};

/// The object; see the guide for its fields.
pub fn object(path: &str, page: Option<&Path>, explanation: &Explanation, model: &ImageModel, top: usize) -> Value {
    let layout = &explanation.layout;
    let size = |Size { height, width }: Size| json!([height, width]);
    let class = |class: usize| json!({"index": class, "label": model.label(class)});
    let mut object = json!({
        "path": path,
        "page": page.map(|page| page.to_string_lossy()),
        "layout": {
            "image": size(layout.image),
            "patch": size(layout.patch),
            "grid": size(layout.grid),
            "prefix": layout.prefix,
            "reader": match layout.reader {
                Reader::ClassToken => "class_token",
                Reader::MeanOfPatches => "mean_of_patches",
            },
        },
    });
    if let Some(logits) = &explanation.logits {
        let scores = softmax(logits);
        let top = best(&scores, top).into_iter().map(|index| {
            let mut class = class(index);
            class["score"] = json!(scores[index]);
            class
        });
        object["top"] = top.collect();
        object["logits"] = json!(logits);
    }
    object["features"] = json!(explanation.features);
    let layers = explanation.attention.iter().map(|layer| {
        json!({"layer": layer.layer, "heads": layer.heads, "distance": layer.distance, "entropy": layer.entropy})
    });
    object["layers"] = layers.collect();
    let rollout = explanation.rollout.iter().map(|rollout| {
        json!({
            "heads": rollout.fusion.name(),
            "discard": as_written(rollout.discard),
            "array": rollout_name(rollout),
            "patches": rollout.patches,
        })
    });
    object["rollout"] = rollout.collect();
    let relevance = explanation.relevance.iter().map(|relevance| {
        json!({
            "class": relevance.class.map(class),
            "array": relevance_name(relevance),
            "patches": relevance.patches,
        })
    });
    object["relevance"] = relevance.collect();
    object
}

/// A setting as a user writes it: 0.9, and not the 0.8999999761581421 that is the same in f32.
fn as_written(setting: f32) -> f64 {
    setting.to_string().parse().unwrap_or(f64::from(setting))
}

/// What a rollout is called in `arrays.npz`, as `rollout.mean.0.9`.
pub fn rollout_name(rollout: &Rollout) -> String {
    format!("rollout.{}.{}", rollout.fusion.name(), rollout.discard)
}

/// What relevance is called in `arrays.npz`, as `relevance.3`.
pub fn relevance_name(relevance: &Relevance) -> String {
    let class = relevance.class.map_or("features".to_string(), |class| class.to_string());
    format!("relevance.{class}")
}
