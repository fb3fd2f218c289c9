//! The Vision Transformer ("An Image is Worth 16x16 Words", equations 1 to 4); DeiT, DINOv2 and similar models are
//! settings of it.
//!
//! ```text
//! z0 = [class; x1 E; ..; xN E] + positions                                      (1)
//! z  = z + attention(norm(z))        or, post-norm,  z = norm(z + attention(z)) (2)
//! z  = z + mlp(norm(z))              or, post-norm,  z = norm(z + mlp(z))       (3)
//! y  = norm(z)[class]                or the mean or maximum over patches        (4)
//! ```

mod config;
mod flax;
mod graph;
mod hugging_face;
mod infer;
mod names;
mod presets;
mod read;
#[cfg(test)]
mod tests;
mod timm;

use vitreous_engine::{Graph, Result};

use crate::call::{Call, Outputs};
use crate::checkpoint::Dialect;
use crate::family::{Architecture, Family, Format, family, to_settings};
use crate::settings::{ConfigError, Settings, rule};
use crate::signature::{Gives, Head, ImageInput, PooledFrom, Signature, Takes};

pub use config::{FeedForward, FinalNorm, Pooling, PositionScope, Positions, Qkv, VitConfig};
pub use graph::vit;

family!(
    Vit,
    "vit",
    VitConfig,
    model_types: ["vit", "deit", "dinov2", "dinov2_with_registers"],
    gguf: [],
    read: read::read
);

impl VitConfig {
    /// What it takes.
    pub(crate) fn image_input(&self) -> ImageInput {
        let special = [("class token", self.class_token), ("distillation token", self.distillation_token)];
        let special = special.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name.to_string());
        let registers = (0..self.registers).map(|register| format!("register {register}"));
        ImageInput {
            channels: self.channels,
            size: self.image,
            grid: self.grid(),
            prefix: special.chain(registers).collect(),
            pooled_from: match self.pooling {
                Pooling::Class | Pooling::ClassAndMean => PooledFrom::ClassToken,
                Pooling::Mean | Pooling::Max | Pooling::Attention => PooledFrom::Patches,
            },
        }
    }
}

impl Architecture for VitConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        let images = self.image_input();
        let mut gives = vec![Gives::Vector(self.features()), Gives::TokenVectors(self.dim)];
        if self.classes > 0 {
            gives.push(Gives::Classes(self.classes));
        }
        Signature { takes: Takes::Images(images), gives }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        vit(graph, self, call)
    }

    fn with_head(&self, head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let classes = match head {
            Head::None => 0,
            Head::Classes(classes) => {
                rule(classes > 0, || "a head needs at least one class".to_string())?;
                classes
            }
            other => {
                let what = format!("a Vision Transformer has a head for classes or none, not for {}", other.purpose());
                return Err(ConfigError(what));
            }
        };
        let mut config = self.clone();
        config.classes = classes;
        config.distillation_head = self.distillation_head && classes > 0;
        if classes > 0 {
            // The layer before the head belongs to the task it was trained for (section 3.1 of the paper).
            config.pre_logits = None;
        }
        // DINOv2's classes pool with the class token and, for a head, also with the mean of the patches.
        if self.layer_scale.is_some() && hugging_face::model_for(&config.with_usual_pooling()).is_ok() {
            config = config.with_usual_pooling();
        }
        config.check()?;
        Ok(Box::new(config))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(names::own(self)),
            Format::HuggingFace => hugging_face::dialect(self),
            Format::Npz => flax::dialect(self),
            Format::Gguf => Err("GGUF is for language models; save to a directory instead".to_string()),
        }
    }
}
