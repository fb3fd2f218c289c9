//! Google's `.npz`: Flax names and layouts, in the flat form of the original ViTs and AugReg, and in that of big_vision.

use crate::config::{
    Activation, FeedForward, FinalNorm, NormOrder, Pooling, PositionScope, Positions, Size, VitConfig,
};

use super::infer::square;
use super::json::Fault;
use super::table::{Entry, Inventory, Layout, Presence};

/// What stands before the names, by the tools that wrote the file.
const PREFIXES: [&str; 4] = ["", "opt/target/", "params/", "params/img/"];

/// A file's dialect.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Flax {
    /// What stands before all names.
    pub prefix: &'static str,
    /// big_vision numbers the parts of a layer in another way.
    pub big_vision: bool,
    /// Whether positions stand at the root, as big_vision has them.
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

    /// Whether a tensor is a part of the model, not of the optimiser that lies beside it.
    pub fn concerns(&self, name: &str) -> bool {
        name.starts_with(self.prefix) && !name.starts_with("opt/state") && !matches!(name, "opt/step" | "extra")
    }

    /// The configuration that the shapes tell: all but the epsilon, which is Flax' 1e-6, and the activation.
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
        // Stacked tensors have the layers in front of their own axes.
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
            // No model has more; a table of what a hostile file claims must not fill the memory.
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

    /// All tensors of a model in this dialect.
    pub fn tensors(&self, config: &VitConfig) -> Vec<Entry> {
        let mut table = Table { dialect: self, config, entries: Vec::new() };
        table.embedding();
        if self.stacked {
            table.layers(0, config.depth);
        } else {
            (0..config.depth).for_each(|layer| table.layers(layer, layer + 1));
        }
        table.end();
        table.entries
    }
}

/// What these files cannot say of a model, if there is something.
pub fn lacks(config: &VitConfig) -> Option<String> {
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

struct Table<'a> {
    dialect: &'a Flax,
    config: &'a VitConfig,
    entries: Vec<Entry>,
}

impl Table<'_> {
    fn add(&mut self, name: &str, shape: &[usize], atoms: Vec<String>, layout: Layout) {
        let name = format!("{}{name}", self.dialect.prefix);
        self.entries.push(Entry { name, shape: shape.to_vec(), atoms, layout, presence: Presence::Needed });
    }

    fn embedding(&mut self) {
        let config = self.config;
        let (patch, inputs, dim) = (config.patch, config.channels, config.dim);
        let layout = Layout::Hwio { pixels: patch.height.saturating_mul(patch.width), inputs, outputs: dim };
        let kernel = [patch.height, patch.width, inputs, dim];
        self.add("embedding/kernel", &kernel, vec!["patch_embedding.weight".to_string()], layout);
        self.add("embedding/bias", &[dim], vec!["patch_embedding.bias".to_string()], Layout::Same);
        if config.class_token {
            self.add("cls", &[1, 1, dim], vec!["class_token".to_string()], Layout::Same);
        }
        let rows = config.positioned_prefix().saturating_add(config.patches());
        self.add(self.dialect.positions(), &[1, rows, dim], vec!["positions".to_string()], Layout::Same);
    }

    /// The layers from `first` to `end`: one, or all in one tensor.
    fn layers(&mut self, first: usize, end: usize) {
        let (dialect, config) = (self.dialect, self.config);
        let (dim, heads) = (config.dim, config.heads);
        let width = dim.checked_div(heads).unwrap_or(0);
        let mut put = |part: &str, shape: &[usize], ours: &str, layout: Layout| {
            let atoms = (first..end).map(|layer| format!("blocks.{layer}.{ours}")).collect();
            let stack = dialect.stacked.then_some(end - first);
            let shape: Vec<usize> = stack.into_iter().chain(shape.iter().copied()).collect();
            self.add(&dialect.layer_name(first, part), &shape, atoms, layout);
        };
        let transposed = |rows, columns| Layout::Transposed { rows, columns };

        let second_norm = if dialect.big_vision { "LayerNorm_1" } else { "LayerNorm_2" };
        for (theirs, ours) in [("LayerNorm_0", "norm1"), (second_norm, "norm2")] {
            put(&format!("{theirs}/scale"), &[dim], &format!("{ours}.weight"), Layout::Same);
            put(&format!("{theirs}/bias"), &[dim], &format!("{ours}.bias"), Layout::Same);
        }
        let attention = dialect.attention();
        for part in ["query", "key", "value"] {
            let (theirs, ours) = (format!("{attention}/{part}"), format!("attention.{part}"));
            put(&format!("{theirs}/kernel"), &[dim, heads, width], &format!("{ours}.weight"), transposed(dim, dim));
            put(&format!("{theirs}/bias"), &[heads, width], &format!("{ours}.bias"), Layout::Same);
        }
        put(&format!("{attention}/out/kernel"), &[heads, width, dim], "attention.output.weight", transposed(dim, dim));
        put(&format!("{attention}/out/bias"), &[dim], "attention.output.bias", Layout::Same);
        let sides = [("Dense_0", "fc1", dim, config.mlp_dim), ("Dense_1", "fc2", config.mlp_dim, dim)];
        for (theirs, ours, into, out) in sides {
            let theirs = format!("{}/{theirs}", dialect.mlp());
            put(&format!("{theirs}/kernel"), &[into, out], &format!("mlp.{ours}.weight"), transposed(out, into));
            put(&format!("{theirs}/bias"), &[out], &format!("mlp.{ours}.bias"), Layout::Same);
        }
    }

    fn end(&mut self) {
        let config = self.config;
        self.add("Transformer/encoder_norm/scale", &[config.dim], vec!["norm.weight".to_string()], Layout::Same);
        self.add("Transformer/encoder_norm/bias", &[config.dim], vec!["norm.bias".to_string()], Layout::Same);
        let mut dense = |name: &str, into: usize, out: usize| {
            let layout = Layout::Transposed { rows: out, columns: into };
            self.add(&format!("{name}/kernel"), &[into, out], vec![format!("{name}.weight")], layout);
            self.add(&format!("{name}/bias"), &[out], vec![format!("{name}.bias")], Layout::Same);
        };
        if let Some(width) = config.pre_logits {
            dense("pre_logits", config.pooled(), width);
        }
        if config.classes > 0 {
            dense("head", config.features(), config.classes);
        }
    }
}
