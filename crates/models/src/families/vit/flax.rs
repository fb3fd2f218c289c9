//! Google's `.npz`: Flax names and layouts, in the flat form of the original ViTs and AugReg, and in that of
//! big_vision.

use super::config::{FeedForward, FinalNorm, Pooling, PositionScope, Positions, VitConfig};
use super::infer::square;
use super::names;
use crate::checkpoint::json::Fault;
use crate::checkpoint::resize::Filter;
use crate::checkpoint::{Dialect, Inventory, Rule};
use crate::settings::{Activation, NormOrder, Size};

/// Name prefixes of the tools that wrote the file.
const PREFIXES: [&str; 4] = ["", "opt/target/", "params/", "params/img/"];

/// A file's dialect.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Flax {
    /// Prefix of all names.
    pub prefix: &'static str,
    /// big_vision numbers the parts of a layer differently.
    pub big_vision: bool,
    /// Whether the positions are at the root, as in big_vision.
    pub root_positions: bool,
    /// Whether all layers are stacked in one tensor.
    pub stacked: bool,
}

impl Flax {
    /// The dialect of a file, if it is one of these.
    pub fn find(inventory: &Inventory) -> Option<Flax> {
        let has = |name: String| inventory.contains_key(&name);
        let prefix = PREFIXES.into_iter().find(|prefix| has(format!("{prefix}embedding/kernel")))?;
        let root_positions = has(format!("{prefix}pos_embedding"));
        let stacked = has(format!("{prefix}Transformer/encoderblock/LayerNorm_0/scale"));
        let flat = has(format!("{prefix}Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel"));
        Some(Flax { prefix, big_vision: stacked || !flat, root_positions, stacked })
    }

    /// The configuration, derived from the shapes: all but the epsilon, which is Flax's 1e-6, and the activation.
    pub fn infer(&self, inventory: &Inventory, heads: Option<usize>) -> Result<VitConfig, Fault> {
        let shape = |name: &str| {
            let name = format!("{}{name}", self.prefix);
            inventory.get(&name).map(Vec::as_slice).ok_or_else(|| Fault::of(name, "is missing"))
        };
        let wrong = |name: &str, form: &str| {
            Fault::of(
                format!("{}{name}", self.prefix),
                format!("should be {form}, not {:?}", shape(name).unwrap_or_default()),
            )
        };
        let &[height, width, channels, dim] = shape("embedding/kernel")? else {
            return Err(wrong("embedding/kernel", "[height, width, channels, dim]"));
        };
        let patch = Size { height, width };
        let class_token = shape("cls").is_ok();
        let depth = self.depth(inventory)?;
        // Stacked tensors have a leading axis of layers.
        let layer_shape = |part: String| -> Result<&[usize], Fault> {
            let name = self.layer_name(0, &part);
            Ok(shape(&name)?.get(usize::from(self.stacked)..).unwrap_or_default())
        };
        let query = format!("{}/query/kernel", self.attention());
        let &[_, file_heads, _] = layer_shape(query.clone())? else {
            return Err(wrong(&self.layer_name(0, &query), "[dim, heads, width]"));
        };
        let dense = format!("{}/Dense_0/kernel", self.mlp());
        let &[_, mlp_dim] = layer_shape(dense.clone())? else {
            return Err(wrong(&self.layer_name(0, &dense), "[dim, mlp_dim]"));
        };
        let columns = |name: &str| shape(name).ok().and_then(|shape| shape.last().copied());
        let mut config = VitConfig {
            patch,
            channels,
            dim,
            depth,
            heads: heads.unwrap_or(file_heads),
            mlp_dim,
            class_token,
            pooling: if class_token { Pooling::Class } else { Pooling::Mean },
            pre_logits: columns("pre_logits/kernel"),
            classes: columns("head/kernel").unwrap_or(0),
            norm_eps: 1e-6,
            ..VitConfig::default()
        };
        let positions = self.positions();
        let &[1, rows, _] = shape(positions)? else { return Err(wrong(positions, "[1, positions, dim]")) };
        for scope in [PositionScope::All, PositionScope::Patches] {
            config.position_scope = scope;
            let patches = rows.checked_sub(config.positioned_prefix()).filter(|patches| *patches > 0);
            if let Some(image) = patches.and_then(|patches| square(patches, patch)) {
                config.image = image;
                return Ok(config);
            }
        }
        Err(Fault::of(format!("{}{positions}", self.prefix), format!("{rows} positions are no square grid")))
    }

    fn depth(&self, inventory: &Inventory) -> Result<usize, Fault> {
        if self.stacked {
            let name = format!("{}{}", self.prefix, self.layer_name(0, "LayerNorm_0/scale"));
            // No model has more; a hostile file must not make us allocate what it claims.
            return match inventory.get(&name).map(Vec::as_slice) {
                Some(&[depth, _]) if (1..=1 << 10).contains(&depth) => Ok(depth),
                got => Err(Fault::of(name, format!("should be [layers, dim], not {:?}", got.unwrap_or_default()))),
            };
        }
        let start = format!("{}Transformer/encoderblock_", self.prefix);
        let numbers =
            inventory.keys().filter_map(|name| name.strip_prefix(&start)?.split_once('/')?.0.parse::<usize>().ok());
        match numbers.max() {
            Some(last) if last < inventory.len() => Ok(last + 1),
            Some(last) => Err(Fault::whole(format!("layers are numbered up to {last}: there are not that many"))),
            None => Err(Fault::whole(format!("there are no layers: no tensor's name begins with `{start}0/`"))),
        }
    }

    fn attention(&self) -> String {
        format!("MultiHeadDotProductAttention_{}", if self.big_vision { 0 } else { 1 })
    }

    fn mlp(&self) -> String {
        format!("MlpBlock_{}", if self.big_vision { 0 } else { 3 })
    }

    fn positions(&self) -> &'static str {
        if self.root_positions { "pos_embedding" } else { "Transformer/posembed_input/pos_embedding" }
    }

    fn layer_name(&self, layer: usize, part: &str) -> String {
        match self.stacked {
            true => format!("Transformer/encoderblock/{part}"),
            false => format!("Transformer/encoderblock_{layer}/{part}"),
        }
    }

    /// The rename rules of such a file.
    pub fn dialect(&self, config: &VitConfig) -> Dialect {
        let (dim, heads, patch) = (config.dim, config.heads, config.patch);
        let mut rules = vec![
            Rule::rename("patch_embedding.weight", "embedding/kernel").channels_last().axes(&[
                patch.height,
                patch.width,
                config.channels,
                dim,
            ]),
            Rule::rename("patch_embedding.bias", "embedding/bias"),
            Rule::rename("class_token", "cls").leading_one(),
            Rule::rename("positions", self.positions()).leading_one().grid(names::grid(config, Filter::Bilinear)),
        ];
        let layer = match self.stacked {
            true => "Transformer/encoderblock",
            false => "Transformer/encoderblock_#",
        };
        let theirs = |name: &str| format!("{layer}/{name}");
        let second_norm = if self.big_vision { "LayerNorm_1" } else { "LayerNorm_2" };
        for (ours, name) in [("norm1", "LayerNorm_0"), ("norm2", second_norm)] {
            rules.push(Rule::rename(&format!("blocks.#.{ours}.weight"), theirs(&format!("{name}/scale"))));
            rules.push(Rule::rename(&format!("blocks.#.{ours}.bias"), theirs(&format!("{name}/bias"))));
        }
        let attention = self.attention();
        let width = dim.checked_div(heads).unwrap_or(0);
        for part in ["query", "key", "value"] {
            let ours = |kind: &str| format!("blocks.#.attention.{part}.{kind}");
            let kernel = Rule::rename(&ours("weight"), theirs(&format!("{attention}/{part}/kernel")));
            rules.push(kernel.transposed().axes(&[dim, heads, width]));
            let bias = Rule::rename(&ours("bias"), theirs(&format!("{attention}/{part}/bias")));
            rules.push(bias.axes(&[heads, width]));
        }
        let output = Rule::rename("blocks.#.attention.output.weight", theirs(&format!("{attention}/out/kernel")));
        rules.push(output.transposed().axes(&[heads, width, dim]));
        rules.push(Rule::rename("blocks.#.attention.output.bias", theirs(&format!("{attention}/out/bias"))));
        let mlp = self.mlp();
        rules.extend(dense("blocks.#.mlp.fc1", &theirs(&format!("{mlp}/Dense_0"))));
        rules.extend(dense("blocks.#.mlp.fc2", &theirs(&format!("{mlp}/Dense_1"))));
        rules.push(Rule::rename("norm.weight", "Transformer/encoder_norm/scale"));
        rules.push(Rule::rename("norm.bias", "Transformer/encoder_norm/bias"));
        rules.extend(dense("pre_logits", "pre_logits"));
        rules.extend(dense("head", "head"));
        let foreign = &["opt/state", "opt/step", "extra"];
        Dialect { library: "Google", foreign, rules, ..Dialect::default() }.with_prefix(self.prefix)
    }
}

/// A linear layer: Flax stores its matrix as `[in, out]`.
fn dense(ours: &str, theirs: &str) -> [Rule; 2] {
    [
        Rule::rename(&format!("{ours}.weight"), format!("{theirs}/kernel")).transposed(),
        Rule::rename(&format!("{ours}.bias"), format!("{theirs}/bias")),
    ]
}

/// The dialect for writing a model as an `.npz`, or what such files cannot express.
pub fn dialect(config: &VitConfig) -> Result<Dialect, String> {
    match lacks(config) {
        Some(what) => Err(what),
        None => Ok(Flax::default().dialect(config)),
    }
}

/// The first property of a model that these files cannot express, if any.
fn lacks(config: &VitConfig) -> Option<String> {
    let plain = VitConfig::default();
    let image = config.image;
    let patches_only = config.class_token && config.positioned_prefix() == 0;
    let lacks = [
        (config.distillation_token, "a distillation token"),
        (config.registers > 0, "register tokens"),
        (config.positions != Positions::Learned, "positions that are not learned"),
        (patches_only, "a class token without a position"),
        (config.grid().height != config.grid().width, "a grid that is not square"),
        (config.norm_order != NormOrder::Pre, "post-norm layers"),
        (config.embedding_norm, "a norm before the first layer"),
        (!config.patch_bias, "patches without bias"),
        (config.final_norm != FinalNorm::Tokens, "another last norm than over tokens"),
        (!config.qkv_bias, "projections without bias"),
        (config.layer_scale.is_some(), "LayerScale"),
        (config.feed_forward != FeedForward::Mlp, "SwiGLU"),
        (config.activation != Activation::Gelu, "another activation than GELU"),
        (config.norm_eps > plain.norm_eps, "an epsilon of norms above 1e-6"),
    ];
    let pooling = match (config.class_token, config.pooling) {
        (true, Pooling::Class) | (false, Pooling::Mean) => None,
        _ => Some("this pooling (the class token, or the mean where there is none)"),
    };
    let lacking = lacks.into_iter().find_map(|(lacking, what)| lacking.then_some(what)).or(pooling)?;
    Some(format!("Google's .npz cannot say {lacking} (image {image}): save to a directory instead"))
}
