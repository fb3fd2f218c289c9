//! What parts of a model do for the class of an image.

use serde_json::{Value, json};
use vitreous_engine::Device;
use vitreous_explain::Explanation;
use vitreous_explain::inside::{Given, Inside};
use vitreous_models::Model;
use vitreous_pages::explain::parts::ImageParts;
use vitreous_pages::inside::json as parts_json;
use vitreous_runtime::scores::{best, softmax};

use super::failure;
use super::language::arrays;
use crate::failure::Failure;

/// For the most probable class; `None` without a head.
pub fn of(
    model: &Model,
    pixels: &[f32],
    explanation: &Explanation,
    top: usize,
    with_effects: bool,
    device: &Device,
) -> Result<Option<ImageParts>, Failure> {
    let class = explanation.logits.as_ref().and_then(|logits| best(&softmax(logits), 1).first().copied());
    let Some(class) = class else { return Ok(None) };
    let mut inside = Inside::read(model, Given::Image(pixels.to_vec()), device).map_err(failure)?;
    let lens = inside.lens(top, &[Some(class as u32)]).map_err(failure)?;
    let attribution = inside.attribution(0, class).map_err(|error| error.to_string());
    let effects = with_effects.then(|| inside.head_effects(0, class)).transpose().map_err(failure)?;
    Ok(Some(ImageParts { class, lens, attribution, effects }))
}

/// Their fields of `--json`.
pub fn add_to(object: &mut Value, parts: &ImageParts, label: impl Fn(usize) -> String) {
    let said = |reading: &vitreous_explain::inside::Reading| {
        let said = reading.said.first();
        let top = said.map(|said| {
            let class =
                |(class, share): &(u32, f32)| json!({"index": class, "label": label(*class as usize), "score": share});
            said.top.iter().map(class).collect::<Vec<_>>()
        });
        let asked = said.and_then(|said| said.asked).map(|(share, rank)| json!({"probability": share, "rank": rank}));
        json!({"layer": reading.layer, "top": top, "class": asked})
    };
    object["lens"] = parts.lens.iter().map(said).collect();
    match &parts.attribution {
        Ok(attribution) => object["attribution"] = parts_json::attribution(attribution),
        Err(why) => object["attribution_note"] = json!(why),
    }
    if let Some(effects) = &parts.effects {
        object["effects"] = parts_json::effects(effects);
    }
}

/// Their arrays.
pub fn arrays_of(parts: &ImageParts) -> Vec<arrays::NumberArray> {
    let effects = parts.effects.iter().flat_map(arrays::of_effects);
    effects.chain(parts.attribution.iter().flat_map(arrays::of_attribution)).collect()
}
