//! `open_clip_config.json`, which LAION's models come with, and OpenAI's files, whose sizes follow from their tensors.

use serde_json::Value;

use super::config::{ClipConfig, Variant};
use super::names::Names;
use crate::checkpoint::Inventory;
use crate::checkpoint::json::{Fault, Object};
use crate::settings::{Activation, Size};

/// OpenAI's statistics of images, which open_clip uses unless a configuration has others.
const MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];
/// Width of a head where no configuration tells: OpenAI's own rule.
const HEAD: usize = 64;

/// Settings of open_clip's towers that change what is computed; those of any other value are refused.
const TEXT_SUPPORTED: [&str; 13] = [
    "context_length",
    "vocab_size",
    "width",
    "heads",
    "layers",
    "mlp_ratio",
    "no_causal_mask",
    "proj_bias",
    "pool_type",
    "norm_kwargs",
    "act_kwargs",
    "hf_tokenizer_name",
    "tokenizer_kwargs",
];
const VISION_SUPPORTED: [&str; 12] = [
    "image_size",
    "layers",
    "width",
    "patch_size",
    "head_width",
    "mlp_ratio",
    "timm_model_name",
    "timm_model_pretrained",
    "timm_pool",
    "timm_proj",
    "patch_dropout",
    "timm_drop_path",
];

/// Reads `model_cfg`.
pub(super) fn read(
    model: &Object,
    tensors: Option<(&Inventory, &str)>,
    heads: Option<usize>,
) -> Result<(ClipConfig, Names), Fault> {
    let missing = |key: &str| model.fault(key, "is missing".to_string());
    let vision = model.object("vision_cfg")?.ok_or_else(|| missing("vision_cfg"))?;
    let text = model.object("text_cfg")?.ok_or_else(|| missing("text_cfg"))?;
    refuse_others(model, "vision_cfg", &VISION_SUPPORTED)?;
    refuse_others(model, "text_cfg", &TEXT_SUPPORTED)?;
    let is_timm = vision.text("timm_model_name")?.is_some();
    let reads_both_ways = text.flag("no_causal_mask")? == Some(true);
    if is_timm != reads_both_ways {
        let what = "a causal text tower belongs to open_clip's own image tower, and one without a mask to SigLIP's of timm: other \
                    combinations are not supported";
        return Err(text.fault("no_causal_mask", what.to_string()));
    }
    let usual = if is_timm { ClipConfig::siglip() } else { ClipConfig::default() };
    let size = |of: &Object, key: &str, usual: usize| Ok::<_, Fault>(of.size(key)?.unwrap_or(usual));
    let text_dim = size(&text, "width", 512)?;
    let tanh =
        text.object("act_kwargs")?.map(|kwargs| kwargs.text("approximate")).transpose()?.flatten() == Some("tanh");
    let activation = match model.flag("quick_gelu")?.unwrap_or(false) {
        true => Activation::QuickGelu,
        false if tanh => Activation::GeluTanh,
        false => Activation::Gelu,
    };
    let common = ClipConfig {
        image: vision.sides("image_size")?.unwrap_or(usual.image),
        vocabulary: size(&text, "vocab_size", usual.vocabulary)?,
        max_length: size(&text, "context_length", 77)?,
        text_dim,
        text_depth: size(&text, "layers", 12)?,
        text_heads: size(&text, "heads", 8)?,
        text_mlp_dim: widened(&text, text_dim)?,
        projection: model.size("embed_dim")?.ok_or_else(|| missing("embed_dim"))?,
        activation,
        end_token: None,
        ..usual
    };
    if !is_timm {
        let dim = size(&vision, "width", 768)?;
        let head = size(&vision, "head_width", HEAD)?.max(1);
        let sizes = ClipConfig {
            patch: vision.sides("patch_size")?.unwrap_or(Size::square(16)),
            dim,
            depth: match vision.get("layers") {
                Some(Value::Array(_)) => return Err(vision.fault("layers", RESNET.to_string())),
                _ => size(&vision, "layers", 12)?,
            },
            heads: dim / head,
            mlp_dim: widened(&vision, dim)?,
            ..common
        };
        return Ok((sizes, Names::OpenAi));
    }
    // The name of a model of timm says its sizes; so do its tensors.
    let Some((tensors, prefix)) = tensors else {
        let what = "the sizes of timm's model are taken from its tensors, and there are none here".to_string();
        return Err(vision.fault("timm_model_name", what));
    };
    let shape = |name: &str| {
        let name = format!("{prefix}visual.trunk.{name}");
        tensors.get(&name).ok_or_else(|| Fault::whole(format!("there is no tensor `{name}`")))
    };
    let [dim, channels, height, width] = shape("patch_embed.proj.weight")?[..] else {
        return Err(Fault::whole("`visual.trunk.patch_embed.proj.weight` is not the kernel of a convolution"));
    };
    let depth = layers(tensors, &format!("{prefix}visual.trunk.blocks."));
    let sizes = ClipConfig {
        patch: Size { height, width },
        channels,
        dim,
        depth,
        // Only the shape-optimised SigLIP has wider heads.
        heads: heads.unwrap_or(if dim == 1152 { 16 } else { (dim / HEAD).max(1) }),
        mlp_dim: shape("blocks.0.mlp.fc1.weight")?.first().copied().unwrap_or(0),
        ..common
    };
    Ok((sizes, Names::OpenClipTimm))
}

/// Why a file of OpenAI's other models is refused.
pub(super) const RESNET: &str = "its image tower is a ResNet, which is not supported: only Vision Transformers are";

/// The width of a feed-forward block: the ratio times that of a token, rounded down.
fn widened(of: &Object, dim: usize) -> Result<usize, Fault> {
    let ratio = of.number("mlp_ratio")?.unwrap_or(4.0);
    if !(ratio > 0.0 && ratio <= 1024.0) {
        return Err(of.fault("mlp_ratio", format!("should be above 0 and at most 1024, not {ratio}")));
    }
    Ok((dim as f64 * ratio) as usize)
}

/// Refuses settings of a tower that are not known and are set.
fn refuse_others(model: &Object, tower: &'static str, known: &[&str]) -> Result<(), Fault> {
    let Some(Value::Object(map)) = model.get(tower) else { return Ok(()) };
    let acts = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    match map.iter().find(|(key, value)| acts(value) && !known.contains(&key.as_str())) {
        Some((key, _)) => Err(Fault::of(format!("{tower}.{key}"), "this setting of open_clip is not supported")),
        None => Ok(()),
    }
}

/// The sizes of a file without a configuration, as OpenAI's `build_model` finds them: quick GELU, heads of 64.
pub(super) fn infer(tensors: &Inventory, prefix: &str, heads: Option<usize>) -> Result<ClipConfig, Fault> {
    let shape = |name: &str| {
        let name = format!("{prefix}{name}");
        tensors.get(&name).ok_or_else(|| Fault::whole(format!("there is no tensor `{name}`")))
    };
    let axis = |name: &str, axis: usize| {
        let size = shape(name)?.get(axis).copied();
        size.ok_or_else(|| Fault::whole(format!("`{prefix}{name}` has too few axes")))
    };
    let [dim, channels, height, width] = shape("visual.conv1.weight")?[..] else {
        return Err(Fault::whole("`visual.conv1.weight` is not the kernel of a convolution"));
    };
    let patches = axis("visual.positional_embedding", 0)?.saturating_sub(1);
    let side = patches.isqrt();
    if side * side != patches {
        return Err(Fault::whole(format!(
            "{patches} positions of patches are no square, and no configuration tells their grid"
        )));
    }
    let text_dim = axis("ln_final.weight", 0)?;
    Ok(ClipConfig {
        image: Size { height: height.saturating_mul(side), width: width.saturating_mul(side) },
        patch: Size { height, width },
        channels,
        dim,
        depth: layers(tensors, &format!("{prefix}visual.transformer.resblocks.")),
        heads: heads.unwrap_or((dim / HEAD).max(1)),
        mlp_dim: axis("visual.transformer.resblocks.0.mlp.c_fc.weight", 0)?,
        vocabulary: axis("token_embedding.weight", 0)?,
        max_length: axis("positional_embedding", 0)?,
        text_dim,
        text_depth: layers(tensors, &format!("{prefix}transformer.resblocks.")),
        text_heads: (text_dim / HEAD).max(1),
        text_mlp_dim: axis("transformer.resblocks.0.mlp.c_fc.weight", 0)?,
        projection: axis("text_projection", 1)?,
        end_token: None,
        ..ClipConfig::default()
    })
}

/// The number of layers whose names start like this.
fn layers(tensors: &Inventory, start: &str) -> usize {
    let numbers = tensors.keys().filter_map(|name| name.strip_prefix(start)?.split('.').next()?.parse::<usize>().ok());
    numbers.max().map_or(0, |last| last.saturating_add(1))
}

/// The `preprocessor_config.json` that says what open_clip does with images, after `preprocess_cfg`.
pub(super) fn preprocessing(config: &ClipConfig, given: Option<Object>) -> Value {
    let numbers = |key: &str| -> Option<Vec<f64>> {
        given?.get(key)?.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()
    };
    let (mean, std, usually_squashed) = match config.variant {
        Variant::Clip => (MEAN, STD, false),
        Variant::Siglip => ([0.5; 3], [0.5; 3], true),
    };
    let squash = match given.and_then(|given| given.text("resize_mode").ok().flatten()) {
        Some(mode) => mode == "squash",
        None => usually_squashed,
    };
    let [mean, std] = [("mean", mean), ("std", std)].map(|(key, usual)| {
        let channels = config.channels;
        let usual = if channels == 3 { usual.to_vec() } else { vec![usual.iter().sum::<f64>() / 3.0; channels] };
        numbers(key).filter(|numbers| numbers.len() == channels).unwrap_or(usual)
    });
    super::preprocessor(config, &mean, &std, squash)
}
