//! The dialects that lay numbers out as PyTorch does: Hugging Face's, timm's, the original DINOv2's, and our own. They differ
//! in names alone, so that each is a table of names.

use crate::config::{FeedForward, FinalNorm, Positions, Qkv, VitConfig};

use super::table::{Entry, Inventory, Layout, Presence};

/// How a dialect names query, key and value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkvNames {
    /// One tensor of three times the width.
    Fused(&'static str),
    /// Three tensors.
    Separate([&'static str; 3]),
    /// Both are used: which one, the configuration says.
    Either(&'static str, [&'static str; 3]),
}

/// How a dialect names the parts of a gated feed-forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SwiGluNames {
    /// Gate and up in one tensor, then down.
    Packed([&'static str; 2]),
    /// Gate, up, down.
    Separate([&'static str; 3]),
}

/// The names of a dialect. Those of layers come after `block` and the layer's number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // each is the name of what it says
pub struct Names {
    pub patch: &'static str,
    pub class: &'static str,
    pub distillation: &'static str,
    pub registers: &'static str,
    /// The token of masked patches, which no result depends on.
    pub mask: &'static str,
    /// How many axes that has.
    pub mask_axes: usize,
    pub positions: &'static str,
    pub block: &'static str,
    pub norm1: &'static str,
    pub norm2: &'static str,
    pub qkv: QkvNames,
    pub output: &'static str,
    pub scale1: &'static str,
    pub scale2: &'static str,
    pub mlp: [&'static str; 2],
    pub swiglu: SwiGluNames,
    pub norm: &'static str,
    pub pooled_norm: &'static str,
    pub pre_logits: &'static str,
    /// Whether files with a head may still have the layer before it, unused.
    pub spare_pre_logits: bool,
    /// The head where it is alone, and where a distillation head stands beside it.
    pub head: [&'static str; 2],
    pub distillation_head: &'static str,
    /// Whether tensors have the axes that PyTorch's modules want: kernels of four, tokens of three.
    pub module_axes: bool,
}

/// Our own names.
pub const OWN: Names = Names {
    patch: "patch_embedding",
    class: "class_token",
    distillation: "distillation_token",
    registers: "register_tokens",
    mask: "mask_token",
    mask_axes: 2,
    positions: "positions",
    block: "blocks.",
    norm1: "norm1",
    norm2: "norm2",
    qkv: QkvNames::Either("attention.qkv", ["attention.query", "attention.key", "attention.value"]),
    output: "attention.output",
    scale1: "layer_scale1",
    scale2: "layer_scale2",
    mlp: ["mlp.fc1", "mlp.fc2"],
    swiglu: SwiGluNames::Separate(["mlp.gate", "mlp.up", "mlp.down"]),
    norm: "norm",
    pooled_norm: "norm",
    pre_logits: "pre_logits",
    spare_pre_logits: false,
    head: ["head", "head"],
    distillation_head: "distillation_head",
    module_axes: false,
};

/// timm's `VisionTransformer` and `VisionTransformerDistilled`.
pub const TIMM: Names = Names {
    patch: "patch_embed.proj",
    class: "cls_token",
    distillation: "dist_token",
    registers: "reg_token",
    mask: "mask_token",
    mask_axes: 2,
    positions: "pos_embed",
    block: "blocks.",
    norm1: "norm1",
    norm2: "norm2",
    qkv: QkvNames::Fused("attn.qkv"),
    output: "attn.proj",
    scale1: "ls1.gamma",
    scale2: "ls2.gamma",
    mlp: ["mlp.fc1", "mlp.fc2"],
    swiglu: SwiGluNames::Packed(["mlp.fc1", "mlp.fc2"]),
    norm: "norm",
    pooled_norm: "fc_norm",
    pre_logits: "pre_logits.fc",
    spare_pre_logits: false,
    head: ["head", "head"],
    distillation_head: "head_dist",
    module_axes: true,
};

/// Hugging Face's `vit` and `deit` as they are written by all versions, and read by all.
pub const HUGGING_FACE_VIT: Names = Names {
    patch: "embeddings.patch_embeddings.projection",
    class: "embeddings.cls_token",
    distillation: "embeddings.distillation_token",
    registers: "embeddings.register_tokens",
    mask: "embeddings.mask_token",
    mask_axes: 3,
    positions: "embeddings.position_embeddings",
    block: "encoder.layer.",
    norm1: "layernorm_before",
    norm2: "layernorm_after",
    qkv: QkvNames::Separate(["attention.attention.query", "attention.attention.key", "attention.attention.value"]),
    output: "attention.output.dense",
    scale1: "layer_scale1.lambda1",
    scale2: "layer_scale2.lambda1",
    mlp: ["intermediate.dense", "output.dense"],
    swiglu: SwiGluNames::Packed(["mlp.weights_in", "mlp.weights_out"]),
    norm: "layernorm",
    pooled_norm: "layernorm",
    pre_logits: "pooler.dense",
    spare_pre_logits: true,
    head: ["classifier", "cls_classifier"],
    distillation_head: "distillation_classifier",
    module_axes: true,
};

/// Hugging Face's `dinov2` and `dinov2_with_registers`, likewise.
pub const HUGGING_FACE_DINOV2: Names = Names {
    mask_axes: 2,
    norm1: "norm1",
    norm2: "norm2",
    mlp: ["mlp.fc1", "mlp.fc2"],
    spare_pre_logits: false,
    ..HUGGING_FACE_VIT
};

/// A dialect in a file: its names, and what stands before them.
#[derive(Clone, Debug, PartialEq)]
pub struct Torch {
    /// The names.
    pub names: Names,
    /// What stands before all names: `module.`, `teacher.backbone.`.
    pub wrapper: String,
    /// What stands before all names but the heads': `vit.`.
    pub backbone: String,
}

impl Torch {
    /// A dialect with nothing before its names.
    pub fn plain(names: Names) -> Torch {
        Torch { names, wrapper: String::new(), backbone: String::new() }
    }

    /// The full name of something outside of the heads.
    pub fn name(&self, name: &str) -> String {
        format!("{}{}{name}", self.wrapper, self.backbone)
    }

    /// The full name of something of a head.
    pub fn head_name(&self, name: &str) -> String {
        format!("{}{name}", self.wrapper)
    }

    /// The full name of something of a layer.
    pub fn layer_name(&self, layer: usize, name: &str) -> String {
        format!("{}{}{}{layer}.{name}", self.wrapper, self.backbone, self.names.block)
    }

    /// The same dialect with the spellings that this file has: some names were changed over the years.
    pub fn as_in(mut self, inventory: &Inventory) -> Torch {
        let names = &mut self.names;
        let start = format!("{}{}", self.wrapper, self.backbone);
        let has = |name: &str| inventory.contains_key(&format!("{start}{name}"));
        if names.block == "encoder.layer." && has("layers.0.norm1.weight") | has("layers.0.layernorm_before.weight") {
            names.block = "layers.";
        }
        let first = format!("{start}{}0.", names.block);
        let has_layer = |name: &str| inventory.contains_key(&format!("{first}{name}"));
        if has_layer("attention.q_proj.weight") {
            names.qkv = QkvNames::Separate(["attention.q_proj", "attention.k_proj", "attention.v_proj"]);
        }
        if has_layer("attention.o_proj.weight") {
            names.output = "attention.o_proj";
        }
        if has_layer("mlp.fc1.weight") {
            names.mlp = ["mlp.fc1", "mlp.fc2"];
        }
        if has_layer("mlp.gate_proj.weight") {
            names.swiglu = SwiGluNames::Separate(["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]);
        }
        // The original DINOv2's, timm's unpacked gate, DeiT III's scales.
        if has_layer("mlp.w12.weight") {
            names.swiglu = SwiGluNames::Packed(["mlp.w12", "mlp.w3"]);
        }
        if has_layer("mlp.fc1_g.weight") {
            names.swiglu = SwiGluNames::Separate(["mlp.fc1_g", "mlp.fc1_x", "mlp.fc2"]);
        }
        if has_layer("gamma_1") {
            [names.scale1, names.scale2] = ["gamma_1", "gamma_2"];
        }
        if inventory.contains_key(&format!("{start}register_tokens")) {
            names.registers = "register_tokens";
        }
        self
    }

    /// All tensors of a model in this dialect.
    pub fn tensors(&self, config: &VitConfig) -> Vec<Entry> {
        let mut table = Table { dialect: self, config, entries: Vec::new() };
        table.embedding();
        for layer in 0..config.depth {
            table.layer(layer);
        }
        table.end();
        table.entries
    }
}

/// A table while it is filled.
struct Table<'a> {
    dialect: &'a Torch,
    config: &'a VitConfig,
    entries: Vec<Entry>,
}

impl Table<'_> {
    fn add(&mut self, name: String, shape: &[usize], atoms: Vec<String>) {
        let presence = Presence::Needed;
        self.entries.push(Entry { name, shape: shape.to_vec(), atoms, layout: Layout::Same, presence });
    }

    /// Weight and bias of a linear layer, or of several that are stacked: `out` is the width of one.
    fn linear(&mut self, name: &str, ours: &[String], [out, into]: [usize; 2], bias: bool) {
        let of = |kind: &str| ours.iter().map(|atom| format!("{atom}.{kind}")).collect();
        self.add(format!("{name}.weight"), &[ours.len() * out, into], of("weight"));
        if bias {
            self.add(format!("{name}.bias"), &[ours.len() * out], of("bias"));
        }
    }

    fn norm(&mut self, name: &str, ours: &str) {
        for kind in ["weight", "bias"] {
            self.add(format!("{name}.{kind}"), &[self.config.dim], vec![format!("{ours}.{kind}")]);
        }
    }

    /// Tokens: `[1, count, dim]`, or `[count, dim]` by our own names.
    fn tokens(&mut self, name: &str, ours: &str, count: usize) {
        let shape = [1, count, self.config.dim];
        let shape = if self.dialect.names.module_axes { &shape[..] } else { &shape[1..] };
        self.add(self.dialect.name(name), shape, vec![ours.to_string()]);
    }

    fn embedding(&mut self) {
        let (names, config) = (&self.dialect.names, self.config);
        let (patch, channels, dim) = (config.patch, config.channels, config.dim);
        let pixels = patch.height.saturating_mul(patch.width);
        self.linear(
            &self.dialect.name(names.patch),
            &["patch_embedding".to_string()],
            [dim, channels.saturating_mul(pixels)],
            true,
        );
        if names.module_axes {
            self.entries[0].shape = vec![dim, channels, patch.height, patch.width];
        }
        if config.class_token {
            self.tokens(names.class, "class_token", 1);
        }
        if config.distillation_token {
            self.tokens(names.distillation, "distillation_token", 1);
        }
        if config.registers > 0 {
            self.tokens(names.registers, "register_tokens", config.registers);
        }
        if config.positions == Positions::Learned {
            self.tokens(names.positions, "positions", config.positioned_prefix().saturating_add(config.patches()));
        }
        let mask_shape = [1, 1, dim];
        self.add(self.dialect.name(names.mask), &mask_shape[3 - names.mask_axes..], vec!["mask_token".to_string()]);
        self.keep_last(1);
    }

    fn layer(&mut self, layer: usize) {
        let (dialect, config) = (self.dialect, self.config);
        let names = &dialect.names;
        let theirs = |name: &str| dialect.layer_name(layer, name);
        let ours = |name: &str| format!("blocks.{layer}.{name}");
        let (dim, bias) = (config.dim, config.qkv_bias);

        self.norm(&theirs(names.norm1), &ours("norm1"));
        let parts = ["query", "key", "value"].map(|part| ours(&format!("attention.{part}")));
        match (names.qkv, config.qkv) {
            (QkvNames::Fused(fused), _) | (QkvNames::Either(fused, _), Qkv::Fused) => {
                self.linear(&theirs(fused), &parts, [dim, dim], bias);
            }
            (QkvNames::Separate(separate), _) | (QkvNames::Either(_, separate), Qkv::Separate) => {
                for (name, part) in separate.into_iter().zip(parts) {
                    self.linear(&theirs(name), &[part], [dim, dim], bias);
                }
            }
        }
        self.linear(&theirs(names.output), &[ours("attention.output")], [dim, dim], true);
        self.norm(&theirs(names.norm2), &ours("norm2"));
        self.feed_forward(layer);
        if config.layer_scale.is_some() {
            self.add(theirs(names.scale1), &[dim], vec![ours("layer_scale1")]);
            self.add(theirs(names.scale2), &[dim], vec![ours("layer_scale2")]);
        }
    }

    fn feed_forward(&mut self, layer: usize) {
        let (dialect, config) = (self.dialect, self.config);
        let theirs = |name: &str| dialect.layer_name(layer, name);
        let ours = |name: &str| format!("blocks.{layer}.mlp.{name}");
        let (inward, outward) = ([config.mlp_dim, config.dim], [config.dim, config.mlp_dim]);
        match (config.feed_forward, dialect.names.swiglu) {
            (FeedForward::Mlp, _) => {
                let [fc1, fc2] = dialect.names.mlp;
                self.linear(&theirs(fc1), &[ours("fc1")], inward, true);
                self.linear(&theirs(fc2), &[ours("fc2")], outward, true);
            }
            (FeedForward::SwiGlu, SwiGluNames::Packed([packed, down])) => {
                self.linear(&theirs(packed), &[ours("gate"), ours("up")], inward, true);
                self.linear(&theirs(down), &[ours("down")], outward, true);
            }
            (FeedForward::SwiGlu, SwiGluNames::Separate([gate, up, down])) => {
                self.linear(&theirs(gate), &[ours("gate")], inward, true);
                self.linear(&theirs(up), &[ours("up")], inward, true);
                self.linear(&theirs(down), &[ours("down")], outward, true);
            }
        }
    }

    fn end(&mut self) {
        let (dialect, config) = (self.dialect, self.config);
        let names = &dialect.names;
        match config.final_norm {
            FinalNorm::Tokens => self.norm(&dialect.name(names.norm), "norm"),
            // Over the pooled vector, which may be wider than a token.
            FinalNorm::Pooled => {
                let width = config.pooled();
                for kind in ["weight", "bias"] {
                    let name = dialect.name(&format!("{}.{kind}", names.pooled_norm));
                    self.add(name, &[width], vec![format!("norm.{kind}")]);
                }
            }
            FinalNorm::None => {}
        }
        if let Some(width) = config.pre_logits {
            let shape = [width, config.pooled()];
            self.linear(&dialect.name(names.pre_logits), &["pre_logits".to_string()], shape, true);
        } else if names.spare_pre_logits {
            self.linear(&dialect.name(names.pre_logits), &["unused.pooler".to_string()], [config.dim; 2], true);
            self.keep_last(2);
        }
        if config.classes > 0 {
            let head = names.head[usize::from(config.distillation_head)];
            self.linear(&dialect.head_name(head), &["head".to_string()], [config.classes, config.features()], true);
        }
        if config.distillation_head {
            let shape = [config.classes, config.dim];
            let head = dialect.head_name(names.distillation_head);
            self.linear(&head, &["distillation_head".to_string()], shape, true);
        }
    }

    /// The last entries are not needed.
    fn keep_last(&mut self, count: usize) {
        let first = self.entries.len() - count;
        self.entries[first..].iter_mut().for_each(|entry| entry.presence = Presence::Kept);
    }
}

#[cfg(test)]
mod tests {
    use vitreous_engine::Graph;

    use super::*;
    use crate::{preset, presets, vit};

    /// Our own table is what the model's graph asks for, name by name.
    #[test]
    fn our_own_table_is_the_models() {
        let mut configs: Vec<VitConfig> = presets::names().iter().filter_map(|name| preset(name)).collect();
        configs.retain(|config| config.dim < 1000);
        let classifier = VitConfig {
            pooling: crate::config::Pooling::ClassAndMean,
            final_norm: FinalNorm::Pooled,
            feed_forward: FeedForward::SwiGlu,
            ..VitConfig::default()
        };
        configs.push(classifier.clone());
        configs.push(VitConfig { pre_logits: Some(20), qkv_bias: false, qkv: Qkv::Separate, ..classifier });
        for config in configs {
            let mut g = Graph::for_inference();
            vit(&mut g, &config, 1).expect("builds");
            let mut expected: Vec<(String, Vec<usize>)> =
                g.parameters().iter().map(|p| (p.name.clone(), p.shape.axes().to_vec())).collect();
            let entries = Torch::plain(OWN).tensors(&config);
            let needed = entries.into_iter().filter(|entry| entry.presence == Presence::Needed);
            let mut got: Vec<(String, Vec<usize>)> = needed.map(|entry| (entry.name, entry.shape)).collect();
            expected.sort();
            got.sort();
            assert_eq!(got, expected);
        }
    }
}
