//! The configuration of a Vision Transformer: every choice of the family, with its default.

use serde::{Deserialize, Serialize};

use crate::settings::{
    Activation, ConfigError, NormOrder, Size, check_eps, check_fixed_table, check_layers, check_rates, check_sizes,
    choice, rule,
};

choice! {
    /// The kind of position embedding.
    Positions {
        /// A learned table, resized when the grid of patches changes.
        Learned,
        /// The table of "Attention is all you need": sines and cosines of the index in the sequence.
        Sinusoidal,
        /// Sines and cosines of the column, then of the row, as in MAE; for patches only.
        SinCos2d,
        /// None.
        None,
    }
}

choice! {
    /// Which tokens have a row in the position table.
    PositionScope {
        /// Patches only.
        Patches,
        /// Class and distillation token, and patches, but not registers.
        Class,
        /// All tokens.
        All,
    }
}

choice! {
    /// How tokens are pooled into one vector.
    Pooling {
        /// The class token.
        Class,
        /// The mean over patches.
        Mean,
        /// The maximum over patches.
        Max,
        /// The class token followed by the mean over patches (the head of DINOv2).
        ClassAndMean,
        /// A learned query attends to all patches, and a feed-forward block follows (the head of SigLIP).
        Attention,
    }
}

choice! {
    /// The position of the final norm.
    FinalNorm {
        /// Over all tokens, before pooling.
        Tokens,
        /// Over the pooled vector (timm's `fc_norm`).
        Pooled,
        /// None: post-norm layers end in a norm of their own.
        None,
    }
}

choice! {
    /// How query, key and value are projected.
    Qkv {
        /// By one matrix with three times the width.
        Fused,
        /// By three matrices.
        Separate,
    }
}

choice! {
    /// The form of the feed-forward block.
    FeedForward {
        /// `fc2(activation(fc1 x))`.
        Mlp,
        /// `down(silu(gate x) · up x)`.
        SwiGlu,
    }
}

/// A Vision Transformer. The default is ViT-Base/16 of the paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VitConfig {
    /// Height and width of the images.
    pub image: Size,
    /// Height and width of a patch.
    pub patch: Size,
    /// Channels of the images.
    pub channels: usize,
    /// Width of a token.
    pub dim: usize,
    /// Number of layers.
    pub depth: usize,
    /// Attention heads; must divide `dim`.
    pub heads: usize,
    /// Width of the feed-forward block.
    pub mlp_dim: usize,
    /// Form of the feed-forward block.
    pub feed_forward: FeedForward,
    /// Activation of the feed-forward block.
    pub activation: Activation,
    /// Whether the sequence begins with a class token.
    pub class_token: bool,
    /// Whether a distillation token follows it (DeiT).
    pub distillation_token: bool,
    /// Number of register tokens after those.
    pub registers: usize,
    /// The kind of position embedding.
    pub positions: Positions,
    /// Which tokens have a position.
    pub position_scope: PositionScope,
    /// How tokens are pooled into one vector.
    pub pooling: Pooling,
    /// Pre-norm or post-norm.
    pub norm_order: NormOrder,
    /// Whether the tokens are normalised before the first layer (CLIP).
    #[serde(skip_serializing_if = "is_false")]
    pub embedding_norm: bool,
    /// Whether the patch embedding has a bias.
    #[serde(skip_serializing_if = "is_true")]
    pub patch_bias: bool,
    /// The position of the final norm.
    pub final_norm: FinalNorm,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// How query, key and value are projected.
    pub qkv: Qkv,
    /// Whether these projections have a bias.
    pub qkv_bias: bool,
    /// Initial value of LayerScale; `None` for no LayerScale.
    pub layer_scale: Option<f32>,
    /// Width of a `tanh` layer between pooling and head, if any.
    pub pre_logits: Option<usize>,
    /// Number of classes; 0 for no head.
    pub classes: usize,
    /// Whether the distillation token has a head of its own, whose logits are averaged with the class token's.
    pub distillation_head: bool,
    /// Dropout after positions and residual branches and inside the feed-forward block.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
    /// Stochastic depth rate of the last layer; it rises linearly from 0 in the first.
    pub stochastic_depth: f32,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_true(flag: &bool) -> bool {
    *flag
}

impl Default for VitConfig {
    fn default() -> Self {
        VitConfig {
            image: Size::square(224),
            patch: Size::square(16),
            channels: 3,
            dim: 768,
            depth: 12,
            heads: 12,
            mlp_dim: 3072,
            feed_forward: FeedForward::Mlp,
            activation: Activation::Gelu,
            class_token: true,
            distillation_token: false,
            registers: 0,
            positions: Positions::Learned,
            position_scope: PositionScope::All,
            pooling: Pooling::Class,
            norm_order: NormOrder::Pre,
            embedding_norm: false,
            patch_bias: true,
            final_norm: FinalNorm::Tokens,
            norm_eps: 1e-6,
            qkv: Qkv::Fused,
            qkv_bias: true,
            layer_scale: None,
            pre_logits: None,
            classes: 1000,
            distillation_head: false,
            dropout: 0.0,
            attention_dropout: 0.0,
            stochastic_depth: 0.0,
        }
    }
}

impl VitConfig {
    /// Rows and columns of the grid of patches.
    pub fn grid(&self) -> Size {
        Size {
            height: self.image.height.checked_div(self.patch.height).unwrap_or(0),
            width: self.image.width.checked_div(self.patch.width).unwrap_or(0),
        }
    }

    /// Number of patches.
    pub fn patches(&self) -> usize {
        self.grid().height.saturating_mul(self.grid().width)
    }

    /// Number of tokens before the patches: class, distillation, registers.
    pub fn prefix_tokens(&self) -> usize {
        self.special_tokens().saturating_add(self.registers)
    }

    /// Class and distillation token.
    fn special_tokens(&self) -> usize {
        usize::from(self.class_token) + usize::from(self.distillation_token)
    }

    /// Sequence length.
    pub fn tokens(&self) -> usize {
        self.prefix_tokens().saturating_add(self.patches())
    }

    /// How many of the tokens before the patches have a position.
    pub fn positioned_prefix(&self) -> usize {
        match (self.positions, self.position_scope) {
            (Positions::None, _) | (_, PositionScope::Patches) => 0,
            (_, PositionScope::Class) => self.special_tokens(),
            (_, PositionScope::All) => self.prefix_tokens(),
        }
    }

    /// The same with the pooling of DINOv2's classes: the class token and, for a head, the mean of the patches.
    pub(super) fn with_usual_pooling(&self) -> VitConfig {
        let pooling = if self.classes > 0 { Pooling::ClassAndMean } else { Pooling::Class };
        VitConfig { pooling, ..self.clone() }
    }

    /// Width of the pooled vector.
    pub fn pooled(&self) -> usize {
        if self.pooling == Pooling::ClassAndMean { self.dim.saturating_mul(2) } else { self.dim }
    }

    /// Width of the head's input.
    pub fn features(&self) -> usize {
        self.pre_logits.unwrap_or(self.pooled())
    }

    /// Stochastic depth rate of a layer: rises linearly with depth.
    pub fn stochastic_depth_at(&self, layer: usize) -> f32 {
        if self.depth > 1 {
            self.stochastic_depth * layer as f32 / (self.depth - 1) as f32
        } else {
            self.stochastic_depth
        }
    }

    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_sizes()?;
        self.check_parts()?;
        self.check_rates()
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("image height", self.image.height),
            ("image width", self.image.width),
            ("patch height", self.patch.height),
            ("patch width", self.patch.width),
            ("channels", self.channels),
            ("dim", self.dim),
            ("depth", self.depth),
            ("heads", self.heads),
            ("mlp_dim", self.mlp_dim),
            ("pre_logits", self.pre_logits.unwrap_or(1)),
        ];
        check_sizes(&sizes)?;
        let (image, patch) = (self.image, self.patch);
        let whole = image.height.is_multiple_of(patch.height) && image.width.is_multiple_of(patch.width);
        rule(whole, || format!("an image of {image} is not a whole number of {patch} patches"))?;
        check_layers(self.dim, self.heads, self.depth)?;
        let inputs = self.channels.saturating_mul(patch.area());
        // 0 classes, for no head, must pass.
        check_sizes(&[
            ("tokens", self.tokens()),
            ("patch inputs", inputs),
            ("classes", self.classes.saturating_add(1)),
            ("features", self.features()),
        ])
    }

    fn check_parts(&self) -> Result<(), ConfigError> {
        let class = matches!(self.pooling, Pooling::Class | Pooling::ClassAndMean);
        rule(!class || self.class_token, || "pooling by class token needs class_token = true".to_string())?;
        let distills = !self.distillation_token || self.class_token;
        rule(distills, || "a distillation token stands behind a class token: set class_token = true".to_string())?;
        let head = !self.distillation_head || (self.distillation_token && self.classes > 0);
        rule(head, || "a distillation head needs a distillation token and classes".to_string())?;
        if matches!(self.positions, Positions::Sinusoidal | Positions::SinCos2d) {
            check_fixed_table(self.tokens(), self.dim)?;
        }
        let dim = self.dim;
        match self.positions {
            Positions::Sinusoidal => {
                rule(dim.is_multiple_of(2), || format!("sinusoidal positions need an even dim, not {dim}"))
            }
            Positions::SinCos2d => {
                rule(dim.is_multiple_of(4), || format!("2-D sin-cos positions need a dim divisible by 4, not {dim}"))?;
                let patches = self.positioned_prefix() == 0;
                rule(patches, || {
                    "2-D sin-cos positions are for patches alone: set position_scope = patches".to_string()
                })
            }
            Positions::Learned | Positions::None => Ok(()),
        }
    }

    fn check_rates(&self) -> Result<(), ConfigError> {
        let rates = [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("stochastic_depth", self.stochastic_depth),
        ];
        check_rates(&rates)?;
        check_eps(self.norm_eps)?;
        let scale = self.layer_scale.unwrap_or(1.0);
        rule(scale.is_finite(), || format!("layer_scale must be a number, not {scale}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut VitConfig)) -> String {
        let mut config = VitConfig::default();
        change(&mut config);
        config.check().expect_err("refused").0
    }

    #[test]
    fn what_cannot_be_built_is_refused_with_the_rule() {
        assert_eq!(refusal(|c| c.heads = 7), "7 heads do not divide a dim of 768");
        assert_eq!(
            refusal(|c| c.image = Size { height: 224, width: 225 }),
            "an image of 224x225 is not a whole number of 16x16 patches"
        );
        assert_eq!(refusal(|c| c.patch.width = 0), "patch width must be at least 1");
        assert_eq!(refusal(|c| c.depth = 0), "depth must be at least 1");
        assert_eq!(refusal(|c| c.heads = 0), "heads must be at least 1");
        assert_eq!(refusal(|c| c.class_token = false), "pooling by class token needs class_token = true");
        assert_eq!(refusal(|c| c.dropout = 1.0), "dropout must be in 0..1, not 1");
        assert!(refusal(|c| c.norm_eps = f32::NAN).starts_with("norm_eps must be above 0"));
        assert!(refusal(|c| c.distillation_head = true).starts_with("a distillation head needs"));
        assert!(refusal(|c| c.positions = Positions::SinCos2d).starts_with("2-D sin-cos positions are for patches"));
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = usize::MAX;
        assert!(refusal(|c| c.registers = huge).contains("too large"));
        assert!(refusal(|c| c.image = Size::square(huge - huge % 16)).contains("too large"));
        assert!(refusal(|c| c.depth = huge).contains("too large"));
        assert!(refusal(|c| (c.dim, c.heads) = (huge, 1)).contains("too large"));
        assert!(refusal(|c| (c.image, c.patch) = (Size::square(huge), Size::square(huge))).contains("too large"));
        let table = refusal(|c| {
            (c.positions, c.image, c.patch) = (Positions::Sinusoidal, Size::square(1 << 16), Size::square(1));
        });
        assert!(table.contains("too large"), "{table}");
    }

    #[test]
    fn an_unknown_key_is_refused_and_sizes_are_one_number_or_two() {
        let config: VitConfig = serde_json::from_str(r#"{"image": 32, "patch": [4, 8], "pooling": "mean"}"#).unwrap();
        assert_eq!((config.image, config.patch), (Size::square(32), Size { height: 4, width: 8 }));
        assert_eq!(config.grid(), Size { height: 8, width: 4 });
        let error = serde_json::from_str::<VitConfig>(r#"{"imgsize": 32}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `imgsize`"), "{error}");
    }
}
