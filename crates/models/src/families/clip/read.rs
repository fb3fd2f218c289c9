//! Reads checkpoints of CLIP and SigLIP: Hugging Face's directories, open_clip's, and OpenAI's files without a configuration.

use super::config::Variant;
use super::names::Names;
use super::{hugging_face, open_clip};
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Inventory, prefix_of};
use crate::family::{Checkpoint, Reading};

/// A tensor that every model with these names has.
const ANCHORS: [(Names, &str); 3] = [
    (Names::HuggingFace, "text_model.embeddings.token_embedding.weight"),
    (Names::OpenAi, "visual.class_embedding"),
    (Names::OpenClipTimm, "visual.trunk.patch_embed.proj.weight"),
];
/// A tensor of OpenAI's models with a ResNet.
const RESNET_ANCHOR: &str = "visual.layer1.0.conv1.weight";

/// Reads a checkpoint; `None` if it is of another family.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let found = checkpoint.tensors.and_then(names_of);
    let heads = checkpoint.options.get("heads");
    let variant = match checkpoint.model_type()? {
        Some("clip") => Some(Variant::Clip),
        Some("siglip") => Some(Variant::Siglip),
        Some(_) => return Ok(None),
        None => None,
    };
    let mut notes = Vec::new();
    let (config, names) = match (variant, checkpoint.config) {
        (Some(variant), Some(object)) => {
            let names = match (found, checkpoint.tensors) {
                (Some((names, _)), _) => names,
                (None, None) => Names::HuggingFace,
                (None, Some(_)) => {
                    let (_, anchor) = ANCHORS[0];
                    let what = format!(
                        "it is a configuration of a model of images and texts, but no tensor beside it is called `{anchor}`"
                    );
                    return Err(Fault::whole(what));
                }
            };
            (hugging_face::read(&object, variant)?, names)
        }
        (None, Some(object)) => match object.object("model_cfg")? {
            Some(model) => {
                let tensors = checkpoint.tensors.zip(found.map(|(_, prefix)| prefix));
                open_clip::read(&model, tensors, heads)?
            }
            None => return Ok(None),
        },
        (_, None) => match (found, checkpoint.tensors) {
            (Some((Names::OpenAi, prefix)), Some(tensors)) => {
                notes.push(
                    "no configuration is beside the weights: taking OpenAI's heads of 64 and quick GELU".to_string(),
                );
                (open_clip::infer(tensors, prefix, heads)?, Names::OpenAi)
            }
            (None, Some(tensors)) if prefix_of(tensors, RESNET_ANCHOR, &[]).is_some() => {
                return Err(Fault::whole(open_clip::RESNET));
            }
            _ => return Ok(None),
        },
    };
    checkpoint.check_layers(config.depth.saturating_add(config.text_depth))?;
    config.check().map_err(|refusal| Fault::whole(refusal.0))?;
    let prefix = found.map_or("", |(_, prefix)| prefix);
    let dialect = names.dialect(&config, prefix, checkpoint.tensors);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes }))
}

/// Whose names a file has, and what is before all of them.
fn names_of(tensors: &Inventory) -> Option<(Names, &str)> {
    ANCHORS.into_iter().find_map(|(names, anchor)| Some((names, prefix_of(tensors, anchor, &["clip"])?)))
}
