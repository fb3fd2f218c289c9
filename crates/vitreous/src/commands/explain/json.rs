//! The numbers of an image in one line.

use std::path::Path;

use serde_json::{Value, json};
use vitreous_explain::{Explanation, Reader};
use vitreous_models::{Model, Size};

use crate::scores::{best, label, softmax};

/// The object that `--json` prints; see the guide for its fields.
pub fn object(path: &str, page: Option<&Path>, explanation: &Explanation, model: &Model, top: usize) -> Value {
    let layout = &explanation.layout;
    let size = |Size { height, width }: Size| json!([height, width]);
    let class = |class: usize| json!({"index": class, "label": label(model, class)});
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
    let rollout = explanation
        .rollout
        .iter()
        .map(|rollout| json!({"heads": rollout.fusion.name(), "discard": rollout.discard, "patches": rollout.patches}));
    object["rollout"] = rollout.collect();
    let relevance = explanation
        .relevance
        .iter()
        .map(|relevance| json!({"class": relevance.class.map(class), "patches": relevance.patches}));
    object["relevance"] = relevance.collect();
    object
}
