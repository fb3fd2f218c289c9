//! Hugging Face's `config.json` of CLIP and SigLIP, read and written.

use serde_json::{Map, Value, json};

use super::config::{ClipConfig, Variant};
use super::names::Names;
use crate::checkpoint::Dialect;
use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{Activation, Settings};

/// What versions of `transformers` before 4.31 wrote as the end of a text: it means the token with the largest number.
const LEGACY_END: usize = 2;

/// The start of a text that `transformers` assumes.
const START_OF_TEXT: usize = 49_406;

/// The configuration of one tower, with what an older key says over it: `transformers` wrote `text_config_dict` beside `text_config`.
struct Tower {
    map: Map<String, Value>,
    name: &'static str,
}

impl Tower {
    fn of(object: &Object, name: &'static str, older: &'static str) -> Result<Tower, Fault> {
        let mut map = Map::new();
        for key in [name, older] {
            match object.get(key) {
                None => {}
                Some(Value::Object(own)) => map.extend(own.clone()),
                Some(_) => return Err(Fault::of(key, "should be an object: the settings of a tower")),
            }
        }
        Ok(Tower { map, name })
    }

    fn object(&self) -> Object<'_> {
        Object::at(&self.map, self.name)
    }
}

/// Reads a configuration.
pub(super) fn read(object: &Object, variant: Variant) -> Result<ClipConfig, Fault> {
    let text = Tower::of(object, "text_config", "text_config_dict")?;
    let vision = Tower::of(object, "vision_config", "vision_config_dict")?;
    let (text, vision) = (text.object(), vision.object());
    let usual = match variant {
        Variant::Clip => ClipConfig::default(),
        Variant::Siglip => ClipConfig::siglip(),
    };
    let size = |of: &Object, key: &str, usual: usize| Ok::<_, Fault>(of.size(key)?.unwrap_or(usual));
    if vision.flag("vision_use_head")? == Some(false) {
        return Err(vision.fault("vision_use_head", "an image tower without its pooling is not supported".to_string()));
    }
    let dim = size(&vision, "hidden_size", usual.dim)?;
    let text_dim = size(&text, "hidden_size", usual.text_dim)?;
    let projection = match variant {
        Variant::Clip => size(object, "projection_dim", usual.projection)?,
        Variant::Siglip => size(&text, "projection_size", text_dim)?,
    };
    let end_token = match (variant, text.size("eos_token_id")) {
        (Variant::Siglip, _) => None,
        (Variant::Clip, Ok(None)) => usual.end_token,
        (Variant::Clip, Ok(Some(LEGACY_END))) => None,
        (Variant::Clip, Ok(Some(end))) => u32::try_from(end).ok(),
        (Variant::Clip, Err(fault)) => return Err(fault),
    };
    let padding = size(&text, "pad_token_id", usual.padding_token as usize)?;
    Ok(ClipConfig {
        variant,
        towers: usual.towers,
        image: vision.sides("image_size")?.unwrap_or(usual.image),
        patch: vision.sides("patch_size")?.unwrap_or(usual.patch),
        channels: size(&vision, "num_channels", usual.channels)?,
        dim,
        depth: size(&vision, "num_hidden_layers", usual.depth)?,
        heads: size(&vision, "num_attention_heads", usual.heads)?,
        mlp_dim: size(&vision, "intermediate_size", usual.mlp_dim)?,
        vocabulary: size(&text, "vocab_size", usual.vocabulary)?,
        max_length: size(&text, "max_position_embeddings", usual.max_length)?,
        text_dim,
        text_depth: size(&text, "num_hidden_layers", usual.text_depth)?,
        text_heads: size(&text, "num_attention_heads", usual.text_heads)?,
        text_mlp_dim: size(&text, "intermediate_size", usual.text_mlp_dim)?,
        projection,
        activation: same(&text, &vision, "hidden_act", |of, key| activation(of, key, usual.activation))?,
        norm_eps: same(&text, &vision, "layer_norm_eps", |of, key| rate(of, key, usual.norm_eps))?,
        end_token,
        padding_token: u32::try_from(padding).unwrap_or(usual.padding_token),
        attention_dropout: same(&text, &vision, "attention_dropout", |of, key| rate(of, key, 0.0))?,
    })
}

/// What both towers say of a key, which must be the same.
fn same<T: PartialEq + std::fmt::Debug>(
    text: &Object,
    vision: &Object,
    key: &str,
    read: impl Fn(&Object, &str) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (of_text, of_images) = (read(text, key)?, read(vision, key)?);
    if of_text != of_images {
        let what = format!("the text tower has {of_text:?}, the image tower {of_images:?}: they must be the same");
        return Err(text.fault(key, what));
    }
    Ok(of_text)
}

fn rate(of: &Object, key: &str, usual: f32) -> Result<f32, Fault> {
    Ok(of.number(key)?.map_or(usual, |rate| rate as f32))
}

fn activation(of: &Object, key: &str, usual: Activation) -> Result<Activation, Fault> {
    match of.text(key)? {
        None => Ok(usual),
        Some(name) => Activation::from_hugging_face(name).ok_or_else(|| {
            of.fault(key, format!("{name:?} is not supported: quick_gelu, gelu, gelu_new, relu, silu and tanh are"))
        }),
    }
}

/// The dialect in which a model is written.
pub(super) fn dialect(config: &ClipConfig) -> Result<Dialect, String> {
    if config.variant == Variant::Siglip && config.image.height != config.image.width {
        return Err("Hugging Face's siglip cannot express images that are not square".to_string());
    }
    Ok(Dialect { config: Some(write(config)), ..Names::HuggingFace.dialect(config, "", None) })
}

fn sides(height: usize, width: usize) -> Value {
    if height == width { json!(height) } else { json!([height, width]) }
}

/// The configuration of the class for this model.
fn write(config: &ClipConfig) -> Settings {
    let (class, name) = match config.variant {
        Variant::Clip => ("CLIPModel", "clip"),
        Variant::Siglip => ("SiglipModel", "siglip"),
    };
    let tower = |part: &str, [dim, mlp_dim, depth, heads]: [usize; 4]| {
        let mut entries = Map::new();
        entries.insert("model_type".to_string(), json!(format!("{name}_{part}_model")));
        entries.insert("hidden_size".to_string(), json!(dim));
        entries.insert("intermediate_size".to_string(), json!(mlp_dim));
        entries.insert("num_hidden_layers".to_string(), json!(depth));
        entries.insert("num_attention_heads".to_string(), json!(heads));
        entries.insert("hidden_act".to_string(), json!(config.activation.hugging_face()));
        entries.insert("layer_norm_eps".to_string(), shortest(config.norm_eps));
        entries.insert("attention_dropout".to_string(), shortest(config.attention_dropout));
        entries
    };
    let mut text = tower("text", [config.text_dim, config.text_mlp_dim, config.text_depth, config.text_heads]);
    text.insert("vocab_size".to_string(), json!(config.vocabulary));
    text.insert("max_position_embeddings".to_string(), json!(config.max_length));
    text.insert("pad_token_id".to_string(), json!(config.padding_token));
    // The library's own start of a text, which no model looks at, is a token of OpenAI's vocabulary.
    if config.vocabulary <= START_OF_TEXT {
        text.insert("bos_token_id".to_string(), Value::Null);
    }
    let mut vision = tower("vision", [config.dim, config.mlp_dim, config.depth, config.heads]);
    vision.insert("image_size".to_string(), sides(config.image.height, config.image.width));
    vision.insert("patch_size".to_string(), sides(config.patch.height, config.patch.width));
    vision.insert("num_channels".to_string(), json!(config.channels));
    let mut all = Map::new();
    match config.variant {
        Variant::Clip => {
            text.insert("eos_token_id".to_string(), json!(config.end_token.unwrap_or(LEGACY_END as u32)));
            text.insert("projection_dim".to_string(), json!(config.projection));
            vision.insert("projection_dim".to_string(), json!(config.projection));
            all.insert("projection_dim".to_string(), json!(config.projection));
            all.insert("logit_scale_init_value".to_string(), json!(2.6592));
        }
        Variant::Siglip => {
            text.insert("projection_size".to_string(), json!(config.projection));
        }
    }
    all.insert("architectures".to_string(), json!([class]));
    all.insert("model_type".to_string(), json!(name));
    all.insert("text_config".to_string(), Value::Object(text));
    all.insert("vision_config".to_string(), Value::Object(vision));
    all
}
