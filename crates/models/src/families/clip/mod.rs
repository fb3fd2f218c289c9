//! CLIP ("Learning Transferable Visual Models From Natural Language Supervision") and SigLIP ("Sigmoid Loss for Language Image
//! Pre-Training"): a Vision Transformer for images and a Transformer for texts, whose vectors lie in one space.
//!
//! ```text
//! I = unit(W_i vit(image))          SigLIP: unit(vit(image)), pooled by attention
//! T = unit(W_t text(tokens)[end])   behind a causal mask; SigLIP: read in both directions, the last token, W_t with bias
//! logits = e^t I Tᵀ                 SigLIP: + b
//! ```
//!
//! With `towers = "image"` or `"text"` the model is one of the towers: an encoder of images, or of texts, like any other.

mod config;
mod graph;
mod hugging_face;
mod names;
mod open_clip;
mod presets;
mod read;
#[cfg(test)]
mod tests;

use serde_json::{Value as Json, json};
use vitreous_engine::{Graph, Result};

use crate::call::{Call, Outputs};
use crate::checkpoint::Dialect;
use crate::checkpoint::json::{Fault, Object};
use crate::family::{Architecture, Checkpoint, Family, Format, Reading, parse_settings, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Gives, Head, Signature, Takes};

pub use config::{ClipConfig, Towers, Variant};
pub use graph::{clip, scaled_cosines};

/// The family.
pub struct Clip;

/// The entry of the family list.
pub static FAMILY: Clip = Clip;

impl Family for Clip {
    fn name(&self) -> &'static str {
        "clip"
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["clip", "siglip"]
    }

    fn presets(&self) -> Vec<String> {
        presets::names()
    }

    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>> {
        Some(Box::new(presets::preset(name)?))
    }

    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let config: ClipConfig = parse_settings(settings)?;
        config.check()?;
        Ok(Box::new(config))
    }

    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
        read::read(checkpoint)
    }

    /// As OpenAI's and open_clip's own code prepares images.
    fn usual_preprocessing(&self, architecture: &dyn Architecture, config: Option<Object>) -> Option<Json> {
        let own = architecture.downcast_ref::<ClipConfig>()?;
        let given = config.and_then(|config| config.object("preprocess_cfg").ok().flatten());
        Some(open_clip::preprocessing(own, given))
    }
}

impl Architecture for ClipConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        let vector = Gives::Vector(self.projection);
        match self.towers {
            Towers::Both => {
                let (images, texts) = (self.image_tower().image_input(), self.captions());
                Signature { takes: Takes::ImagesAndTexts { images, texts }, gives: vec![vector] }
            }
            Towers::Image => Signature {
                takes: Takes::Images(self.image_tower().image_input()),
                gives: vec![vector, Gives::TokenVectors(self.dim)],
            },
            Towers::Text => Signature {
                takes: Takes::Tokens(self.captions().tokens),
                gives: vec![vector, Gives::TokenVectors(self.text_dim)],
            },
        }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        clip(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let what = "a model of images and texts has no head: `predict --labels` takes the names of any classes";
        Err(ConfigError(what.to_string()))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(names::own(self)),
            Format::HuggingFace if self.towers == Towers::Both => hugging_face::dialect(self),
            Format::HuggingFace => Err("one tower of two is written in our own format only".to_string()),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
            Format::Gguf => Err("GGUF is for language models; save to a directory instead".to_string()),
        }
    }
}

/// The usual `preprocessor_config.json` of a size: the shortest side is resized, the centre cropped.
fn preprocessor(config: &ClipConfig, mean: &[f64], std: &[f64], squash: bool) -> Json {
    let size = json!({"height": config.image.height, "width": config.image.width});
    let (resize, class) = match (squash, config.variant) {
        (true, _) => (size.clone(), "SiglipImageProcessor"),
        (false, _) => (json!({"shortest_edge": config.image.height.max(config.image.width)}), "CLIPImageProcessor"),
    };
    let mut processor = json!({
        "image_processor_type": class,
        "do_resize": true,
        "size": resize,
        "resample": 3,
        "do_rescale": true,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": true,
        "image_mean": mean,
        "image_std": std,
    });
    if !squash {
        processor["do_center_crop"] = json!(true);
        processor["crop_size"] = size;
        processor["do_convert_rgb"] = json!(true);
    }
    processor
}
