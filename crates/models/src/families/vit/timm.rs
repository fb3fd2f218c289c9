//! timm's `config.json`: it names an architecture and the arguments that differ from its defaults. Most of the
//! configuration follows from the shapes of tensors, and the arguments are checked against them.

use super::config::{Pooling, Positions, VitConfig};
use super::infer::{Hints, infer};
use super::presets::preset;
use super::read::TorchNames;
use crate::checkpoint::Inventory;
use crate::checkpoint::json::{Fault, Object};
use crate::settings::{Activation, Size};

/// What a configuration says beyond the shapes of tensors.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// Class names in order, if any.
    pub labels: Vec<String>,
    architecture: String,
    heads: Option<usize>,
    image: Option<Size>,
    /// Whether it is an argument of the model, and not only the size it was trained with.
    image_is_argument: bool,
    pooling: Option<Pooling>,
    activation: Option<Activation>,
    layer_scale: Option<f64>,
    dropout: f64,
    attention_dropout: f64,
    stochastic_depth: f64,
    /// Sizes that must agree with the shapes.
    sizes: Vec<(&'static str, usize)>,
}

/// Arguments that change the computation in unsupported ways, unless they are false or 0.
const REFUSED: [&str; 7] = [
    "pre_norm",
    "qk_norm",
    "scale_attn_norm",
    "scale_mlp_norm",
    "pool_include_prefix",
    "dynamic_img_pad",
    "embed_norm_layer",
];

/// Reads a configuration.
pub fn read(object: &Object) -> Result<Described, Fault> {
    let architecture = object.text("architecture")?.unwrap_or_default().to_string();
    if architecture.contains("_rpn_") || architecture.contains("quickgelu") {
        return Err(object.fault("architecture", format!("{architecture:?} computes what is not supported")));
    }
    let mut described = Described {
        labels: object.labels("label_names")?.unwrap_or_default(),
        activation: activation_of(&architecture),
        heads: heads_of(&architecture),
        architecture,
        ..Described::default()
    };
    if let Some(count) = object.size("num_classes")? {
        described.sizes.push(("num_classes", count));
    }
    described.pooling = pooling(object)?;
    if let Some(pretrained) = object.object("pretrained_cfg")?
        && let Some(sizes) = pretrained.get("input_size").and_then(|sizes| sizes.as_array())
        && let [_, height, width] = sizes.as_slice()
    {
        let side = |value: &serde_json::Value| value.as_u64().filter(|side| (1..=1 << 32).contains(side));
        described.image = match (side(height), side(width)) {
            (Some(height), Some(width)) => Some(Size { height: height as usize, width: width as usize }),
            _ => return Err(pretrained.fault("input_size", "should be channels, height, width".to_string())),
        };
    }
    if let Some(arguments) = object.object("model_args")? {
        described.take_arguments(&arguments)?;
    }
    Ok(described)
}

fn pooling(object: &Object) -> Result<Option<Pooling>, Fault> {
    Ok(match object.text("global_pool")? {
        None => None,
        Some("token") => Some(Pooling::Class),
        Some("avg") => Some(Pooling::Mean),
        Some("max") => Some(Pooling::Max),
        Some(other) => {
            return Err(object.fault("global_pool", format!("{other:?} is not supported: token, avg, max are")));
        }
    })
}

/// timm architectures whose activation is not GELU although the file does not say so.
fn activation_of(architecture: &str) -> Option<Activation> {
    let approximate = ["vit_base_patch32_siglip", "vit_so400m_patch16_siglip", "vit_giantopt_patch16_siglip"];
    let large = ["vit_large_patch16_siglip_512", "vit_large_patch16_siglip_gap_512"];
    let found = approximate.iter().chain(&large).any(|name| architecture.starts_with(name));
    found.then_some(Activation::GeluTanh)
}

/// timm architectures whose number of heads is not the usual one for their width although the file does not say so.
fn heads_of(architecture: &str) -> Option<usize> {
    let unusual = ["vit_base_patch16_gap_", "vit_giantopt_"];
    unusual.iter().any(|name| architecture.starts_with(name)).then_some(16)
}

impl Described {
    fn take_arguments(&mut self, arguments: &Object) -> Result<(), Fault> {
        for key in REFUSED {
            let harmless = |value: &serde_json::Value| *value == false || *value == 0;
            if arguments.get(key).is_some_and(|value| !harmless(value)) {
                return Err(arguments.fault(key, "is not supported".to_string()));
            }
        }
        self.heads = arguments.size("num_heads")?.or(self.heads);
        let image = arguments.sides("img_size")?;
        self.image_is_argument = image.is_some();
        self.image = image.or(self.image);
        self.pooling = pooling(arguments)?.or(self.pooling);
        self.layer_scale = arguments.number("init_values")?;
        self.dropout = arguments.number("proj_drop_rate")?.unwrap_or(0.0);
        self.attention_dropout = arguments.number("attn_drop_rate")?.unwrap_or(0.0);
        self.stochastic_depth = arguments.number("drop_path_rate")?.unwrap_or(0.0);
        if let Some(name) = arguments.text("act_layer")? {
            self.activation = Some(match name {
                "gelu" => Activation::Gelu,
                "gelu_tanh" => Activation::GeluTanh,
                "relu" => Activation::Relu,
                "silu" | "swish" => Activation::Silu,
                other => return Err(arguments.fault("act_layer", format!("{other:?} is not supported"))),
            });
        }
        for key in ["embed_dim", "depth", "in_chans", "reg_tokens", "num_classes"] {
            if let Some(size) = arguments.size(key)? {
                self.sizes.retain(|(known, _)| *known != key);
                self.sizes.push((key, size));
            }
        }
        for key in ["class_token", "qkv_bias", "no_embed_class"] {
            if let Some(flag) = arguments.flag(key)? {
                self.sizes.push((key, usize::from(flag)));
            }
        }
        Ok(())
    }

    /// The model: derived from the shapes, completed by and checked against the configuration.
    pub fn settle(&self, names: &TorchNames, tensors: &Inventory, head_is_used: bool) -> Result<VitConfig, Fault> {
        let named = preset(&self.architecture);
        let hints = Hints { heads: self.heads, image: self.image, scope: None };
        let mut config = infer(names, tensors, hints)?;
        if let (None, Some(named)) = (self.heads, named.filter(|named| named.dim == config.dim)) {
            config.heads = named.heads;
        }
        self.complete(&mut config)?;
        self.check(&config, head_is_used)?;
        Ok(config)
    }

    /// The model from the architecture's name, if there are no tensors.
    pub fn without_tensors(&self) -> Result<VitConfig, Fault> {
        let Some(mut config) = preset(&self.architecture) else {
            let what =
                format!("{:?} is not a known preset: its weights are needed to tell its sizes", self.architecture);
            return Err(Fault::of("architecture", what));
        };
        let said = |key: &str| self.sizes.iter().find(|(known, _)| *known == key).map(|(_, size)| *size);
        config.classes = said("num_classes").unwrap_or(config.classes);
        config.dim = said("embed_dim").unwrap_or(config.dim);
        config.depth = said("depth").unwrap_or(config.depth);
        config.channels = said("in_chans").unwrap_or(config.channels);
        config.registers = said("reg_tokens").unwrap_or(config.registers);
        config.heads = self.heads.unwrap_or(config.heads);
        config.image = self.image.unwrap_or(config.image);
        self.complete(&mut config)?;
        self.check(&config, true)?;
        Ok(config)
    }

    /// Sets what neither shapes nor a preset determine.
    fn complete(&self, config: &mut VitConfig) -> Result<(), Fault> {
        config.pooling = match self.pooling {
            Some(Pooling::Class) if !config.class_token => {
                return Err(Fault::of("global_pool", "is \"token\", but the file has no class token"));
            }
            Some(pooling) => pooling,
            None => config.pooling,
        };
        if let Some(activation) = self.activation {
            config.activation = activation;
        }
        if let (Some(start), Some(_)) = (self.layer_scale, config.layer_scale) {
            config.layer_scale = Some(start as f32);
        }
        config.dropout = self.dropout as f32;
        config.attention_dropout = self.attention_dropout as f32;
        config.stochastic_depth = self.stochastic_depth as f32;
        Ok(())
    }

    /// Whether the number of heads follows from the arguments, or from the architecture's name.
    pub fn tells_heads(&self, config: &VitConfig) -> bool {
        self.heads.is_some() || preset(&self.architecture).is_some_and(|named| named.dim == config.dim)
    }

    fn check(&self, config: &VitConfig, head_is_used: bool) -> Result<(), Fault> {
        let positions = config.positions == Positions::Learned;
        for &(key, said) in &self.sizes {
            let found = match key {
                "embed_dim" => config.dim,
                "depth" => config.depth,
                "in_chans" => config.channels,
                "reg_tokens" => config.registers,
                "num_classes" if head_is_used => config.classes,
                "class_token" => usize::from(config.class_token),
                "qkv_bias" => usize::from(config.qkv_bias),
                "no_embed_class" if positions && config.prefix_tokens() > 0 => {
                    usize::from(config.positioned_prefix() == 0)
                }
                _ => said,
            };
            if found != said {
                return Err(Fault::of(key, format!("is {said} here, but by the shapes of the tensors it is {found}")));
            }
        }
        if let Some(image) = self.image.filter(|image| self.image_is_argument && *image != config.image) {
            return Err(Fault::of("img_size", format!("is {image}, but there are positions for {}", config.image)));
        }
        let (labels, classes) = (self.labels.len(), config.classes);
        if head_is_used && labels > 0 && labels != classes {
            return Err(Fault::of("label_names", format!("names {labels} classes, but the head has {classes}")));
        }
        Ok(())
    }
}
