//! Hugging Face's `config.json` of `vit`, `deit`, `dinov2` and `dinov2_with_registers`, for reading and writing.

use serde_json::{Value, json};

use super::config::{FeedForward, FinalNorm, Pooling, PositionScope, Positions, Qkv, VitConfig};
use super::names;
use crate::checkpoint::json::{Fault, Object, shortest};
use crate::checkpoint::resize::Filter;
use crate::checkpoint::{Dialect, Inventory};
use crate::settings::{Activation, NormOrder, Settings, Size};

/// A `model_type` of Hugging Face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelType {
    /// `ViTModel`, `ViTForImageClassification`.
    Vit,
    /// `DeiTModel`, `DeiTForImageClassification`, `DeiTForImageClassificationWithTeacher`.
    Deit,
    /// `Dinov2Model`, `Dinov2ForImageClassification`.
    Dinov2,
    /// `Dinov2WithRegistersModel`, `Dinov2WithRegistersForImageClassification`.
    Dinov2WithRegisters,
}

impl ModelType {
    /// All of them.
    pub const ALL: [ModelType; 4] =
        [ModelType::Vit, ModelType::Deit, ModelType::Dinov2, ModelType::Dinov2WithRegisters];

    /// `model_type` in the configuration; followed by a dot, the prefix of all tensor names but the head's.
    pub fn name(self) -> &'static str {
        match self {
            ModelType::Vit => "vit",
            ModelType::Deit => "deit",
            ModelType::Dinov2 => "dinov2",
            ModelType::Dinov2WithRegisters => "dinov2_with_registers",
        }
    }

    fn class(self) -> &'static str {
        match self {
            ModelType::Vit => "ViT",
            ModelType::Deit => "DeiT",
            ModelType::Dinov2 => "Dinov2",
            ModelType::Dinov2WithRegisters => "Dinov2WithRegisters",
        }
    }

    /// Whether it is a DINOv2.
    pub fn is_dinov2(self) -> bool {
        matches!(self, ModelType::Dinov2 | ModelType::Dinov2WithRegisters)
    }

    /// How its class resizes positions.
    pub fn filter(self) -> Filter {
        match self {
            ModelType::Dinov2WithRegisters => Filter::BicubicAntialiased,
            _ => Filter::Bicubic,
        }
    }
}

/// The heads of a model, from the name of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// None.
    No,
    /// One.
    One,
    /// One for the class token, one for the distillation token.
    Two,
}

/// The contents of a configuration, before the file's tensors are considered.
#[derive(Clone, Debug)]
pub struct Described {
    /// The model type.
    pub model_type: ModelType,
    /// The model. Its head is as configured, or absent if the configuration does not say.
    pub config: VitConfig,
    /// Class names in order, if any.
    pub labels: Vec<String>,
    /// Its heads, if the class name tells.
    pub heads: Option<Heads>,
    /// Number of classes, if the configuration says.
    classes: Option<usize>,
    pooler: Pooler,
}

/// The layer after `ViTModel`.
#[derive(Clone, Debug)]
struct Pooler {
    width: usize,
    activation: String,
}

/// Reads a configuration of a model type.
pub fn read(model_type: ModelType, object: &Object) -> Result<Described, Fault> {
    let config = body(model_type, object)?;
    let labels = object.labels("id2label")?;
    let classes = match (object.size("num_labels")?, &labels) {
        (Some(count), Some(labels)) if count != labels.len() => {
            return Err(
                object.fault("num_labels", format!("is {count}, but `id2label` names {} classes", labels.len()))
            );
        }
        (count, labels) => count.or(labels.as_ref().map(Vec::len)),
    };
    let pooler = Pooler {
        width: object.size("pooler_output_size")?.filter(|width| *width > 0).unwrap_or(config.dim),
        activation: object.text("pooler_act")?.unwrap_or("tanh").to_string(),
    };
    let mut described =
        Described { model_type, config, labels: labels.unwrap_or_default(), heads: heads(object)?, classes, pooler };
    if let Some(heads) = described.heads {
        described.set_heads(heads, classes.unwrap_or(2));
    }
    Ok(described)
}

/// Everything but heads.
fn body(model_type: ModelType, object: &Object) -> Result<VitConfig, Fault> {
    let size = |key: &str, default: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(default));
    let rate = |key: &str, default: f64| Ok::<_, Fault>(object.number(key)?.unwrap_or(default) as f32);
    let dinov2 = model_type.is_dinov2();
    let dim = size("hidden_size", 768)?;
    let swiglu = dinov2 && object.flag("use_swiglu_ffn")?.unwrap_or(false);
    let mlp_dim = if dinov2 {
        let ratio = object.number("mlp_ratio")?.unwrap_or(4.0);
        if !(ratio > 0.0 && ratio <= 1024.0) {
            return Err(object.fault("mlp_ratio", format!("should be above 0 and at most 1024, not {ratio}")));
        }
        dinov2_width(dim, ratio, swiglu)
    } else {
        size("intermediate_size", 3072)?
    };
    Ok(VitConfig {
        image: object.sides("image_size")?.unwrap_or(Size::square(224)),
        patch: object.sides("patch_size")?.unwrap_or(Size::square(if model_type == ModelType::Dinov2 {
            14
        } else {
            16
        })),
        channels: size("num_channels", 3)?,
        dim,
        depth: size("num_hidden_layers", 12)?,
        heads: size("num_attention_heads", 12)?,
        mlp_dim,
        feed_forward: if swiglu { FeedForward::SwiGlu } else { FeedForward::Mlp },
        activation: activation(object)?,
        class_token: true,
        distillation_token: model_type == ModelType::Deit,
        registers: if model_type == ModelType::Dinov2WithRegisters { size("num_register_tokens", 4)? } else { 0 },
        positions: Positions::Learned,
        position_scope: if model_type == ModelType::Dinov2WithRegisters {
            PositionScope::Class
        } else {
            PositionScope::All
        },
        pooling: Pooling::Class,
        norm_order: NormOrder::Pre,
        embedding_norm: false,
        patch_bias: true,
        final_norm: FinalNorm::Tokens,
        norm_eps: rate("layer_norm_eps", if dinov2 { 1e-6 } else { 1e-12 })?,
        qkv: Qkv::Fused,
        qkv_bias: object.flag("qkv_bias")?.unwrap_or(true),
        layer_scale: if dinov2 { Some(rate("layerscale_value", 1.0)?) } else { None },
        pre_logits: None,
        classes: 0,
        distillation_head: false,
        dropout: rate("hidden_dropout_prob", 0.0)?,
        attention_dropout: rate("attention_probs_dropout_prob", 0.0)?,
        stochastic_depth: if dinov2 { rate("drop_path_rate", 0.0)? } else { 0.0 },
    })
}

/// The width of DINOv2's feed-forward block; a gated one keeps two thirds of it, rounded up to a multiple of 8.
fn dinov2_width(dim: usize, ratio: f64, swiglu: bool) -> usize {
    let width = (dim as f64 * ratio) as usize;
    if swiglu { ((width as f64 * 2.0 / 3.0) as usize).div_ceil(8) * 8 } else { width }
}

fn activation(object: &Object) -> Result<Activation, Fault> {
    let name = object.text("hidden_act")?.unwrap_or("gelu");
    Activation::from_hugging_face(name).ok_or_else(|| {
        let what = format!("{name:?} is not supported: gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu are");
        object.fault("hidden_act", what)
    })
}

fn heads(object: &Object) -> Result<Option<Heads>, Fault> {
    let Some(architectures) = object.get("architectures") else { return Ok(None) };
    let first = architectures.as_array().and_then(|names| names.first()).and_then(Value::as_str);
    Ok(match first {
        Some(name) if name.ends_with("ForImageClassificationWithTeacher") => Some(Heads::Two),
        Some(name) if name.ends_with("ForImageClassification") => Some(Heads::One),
        Some(name) if name.ends_with("Model") || name.ends_with("Backbone") => Some(Heads::No),
        _ => None,
    })
}

impl Described {
    fn set_heads(&mut self, heads: Heads, classes: usize) {
        self.heads = Some(heads);
        self.config.classes = if heads == Heads::No { 0 } else { classes };
        // A classifier with no classes is not a classifier there either.
        self.config.distillation_head = heads == Heads::Two && self.config.distillation_token && classes > 0;
        self.config.pooling = match self.model_type.is_dinov2() && self.config.classes > 0 {
            true => Pooling::ClassAndMean,
            false => Pooling::Class,
        };
    }

    /// Completes the model with the tensors: whether there is a head, if the configuration does not say; its number of
    /// classes; and whether the layer after `ViTModel` exists.
    pub fn settle(
        mut self,
        prefix: &str,
        backbone: &str,
        tensors: &Inventory,
        head_is_used: bool,
    ) -> Result<Described, Fault> {
        let rows = |head: &str| {
            let name = format!("{prefix}{head}.weight");
            tensors.get(&name).and_then(|shape| shape.first().copied()).map(|rows| (name, rows))
        };
        let [alone, beside] = ["classifier", "cls_classifier"];
        let heads = self.heads.unwrap_or(match (rows(beside), rows(alone)) {
            (Some(_), _) => Heads::Two,
            (_, Some(_)) => Heads::One,
            _ => Heads::No,
        });
        let found = match heads {
            Heads::No => None,
            Heads::One => rows(alone),
            Heads::Two => rows(beside),
        };
        let classes = match (self.classes, found) {
            (Some(said), Some((name, rows))) if said != rows && head_is_used => {
                let what =
                    format!("{said} classes are spoken of (`id2label` or `num_labels`), but `{name}` has {rows}");
                return Err(Fault::whole(what));
            }
            (_, Some((_, rows))) => rows,
            (said, None) => said.unwrap_or(2),
        };
        self.set_heads(heads, classes);
        let pooler = format!("{prefix}{backbone}pooler.dense.weight");
        if self.config.classes == 0 && !self.model_type.is_dinov2() && tensors.contains_key(&pooler) {
            if self.pooler.activation != "tanh" {
                let what = format!("{:?} is not supported, only tanh is", self.pooler.activation);
                return Err(Fault::of("pooler_act", what));
            }
            self.config.pre_logits = Some(self.pooler.width);
        }
        Ok(self)
    }
}

/// The dialect for writing a model, or why none of Hugging Face's classes is exactly this model.
pub fn dialect(config: &VitConfig) -> Result<Dialect, String> {
    let model_type = model_for(config)?;
    let backbone = if config.classes > 0 { format!("{}.", model_type.name()) } else { String::new() };
    let dialect = names::hugging_face(model_type, &backbone, config);
    // DINOv2's classes have a mask token, which starts at zero.
    let always = if model_type.is_dinov2() { vec![format!("{backbone}embeddings.mask_token")] } else { Vec::new() };
    Ok(Dialect { config: Some(write(model_type, config)), always, ..dialect })
}

/// The model type of exactly this model, or why there is none.
pub fn model_for(config: &VitConfig) -> Result<ModelType, String> {
    let model_type = match (config.distillation_token, config.layer_scale.is_some(), config.registers) {
        (true, ..) => ModelType::Deit,
        (false, true, 0) => ModelType::Dinov2,
        (false, true, _) => ModelType::Dinov2WithRegisters,
        (false, false, _) => ModelType::Vit,
    };
    let dinov2 = model_type.is_dinov2();
    let pooling = if dinov2 && config.classes > 0 { Pooling::ClassAndMean } else { Pooling::Class };
    let special = 1 + usize::from(config.distillation_token);
    let square = config.image.height == config.image.width;
    let lacks = [
        (!config.class_token, "a model without class token"),
        (config.norm_order != NormOrder::Pre, "post-norm layers"),
        (config.embedding_norm, "a norm before the first layer"),
        (!config.patch_bias, "patches without bias"),
        (config.final_norm != FinalNorm::Tokens, "another last norm than over tokens"),
        (config.positions != Positions::Learned, "positions that are not learned"),
        (config.positioned_prefix() != special, "positions of other tokens than class, distillation and patches"),
        (config.pooling != pooling, "this pooling"),
        (!dinov2 && config.registers > 0, "register tokens without LayerScale"),
        (!dinov2 && config.layer_scale.is_some(), "LayerScale beside a distillation token"),
        (!dinov2 && config.feed_forward != FeedForward::Mlp, "SwiGLU without LayerScale"),
        (config.pre_logits.is_some() && (dinov2 || config.classes > 0), "a tanh layer before the head"),
        (dinov2 && mlp_ratio(config).is_none(), "a feed-forward width that is no multiple of the model's"),
        // Its class assumes a square grid as soon as the image is not square.
        (dinov2 && !square, "a DINOv2 for images that are not square"),
    ];
    match lacks.into_iter().find(|(lacking, _)| *lacking) {
        None => Ok(model_type),
        Some((_, what)) => Err(format!("Hugging Face's {} cannot express {what}", model_type.name())),
    }
}

/// The integer ratio that gives DINOv2's width: its class takes no other.
fn mlp_ratio(config: &VitConfig) -> Option<usize> {
    let swiglu = config.feed_forward == FeedForward::SwiGlu;
    (1..=64).find(|&ratio| dinov2_width(config.dim, ratio as f64, swiglu) == config.mlp_dim)
}

/// The configuration of a model of this type. The caller adds class names and dtype.
fn write(model_type: ModelType, config: &VitConfig) -> Settings {
    let class = model_type.class();
    let architecture = match (config.classes, config.distillation_head) {
        (0, _) => format!("{class}Model"),
        (_, false) => format!("{class}ForImageClassification"),
        (_, true) => format!("{class}ForImageClassificationWithTeacher"),
    };
    let mut map = Settings::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_string(), value);
    put("architectures", json!([architecture]));
    put("model_type", json!(model_type.name()));
    put("hidden_size", json!(config.dim));
    put("num_hidden_layers", json!(config.depth));
    put("num_attention_heads", json!(config.heads));
    put("hidden_act", json!(config.activation.hugging_face()));
    put("hidden_dropout_prob", shortest(config.dropout));
    put("attention_probs_dropout_prob", shortest(config.attention_dropout));
    put("initializer_range", json!(0.02));
    put("layer_norm_eps", shortest(config.norm_eps));
    put("image_size", json!(config.image));
    put("patch_size", json!(config.patch));
    put("num_channels", json!(config.channels));
    put("qkv_bias", json!(config.qkv_bias));
    if model_type.is_dinov2() {
        put("mlp_ratio", json!(mlp_ratio(config)));
        put("layerscale_value", shortest(config.layer_scale.unwrap_or(1.0)));
        put("drop_path_rate", shortest(config.stochastic_depth));
        put("use_swiglu_ffn", json!(config.feed_forward == FeedForward::SwiGlu));
        if model_type == ModelType::Dinov2 {
            put("use_mask_token", json!(true));
        } else {
            put("num_register_tokens", json!(config.registers));
        }
    } else {
        put("intermediate_size", json!(config.mlp_dim));
        put("encoder_stride", json!(config.patch.height));
        if let Some(width) = config.pre_logits {
            put("pooler_act", json!("tanh"));
            put("pooler_output_size", json!(width));
        }
    }
    map
}
