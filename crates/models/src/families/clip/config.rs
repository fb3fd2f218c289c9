//! The configuration of CLIP and SigLIP, and the Vision Transformer that its image tower is.

use serde::{Deserialize, Serialize};

use crate::families::vit::{FinalNorm, Pooling, VitConfig};
use crate::settings::{Activation, ConfigError, Size, check_eps, check_layers, check_rates, check_sizes, choice, rule};
use crate::signature::{CaptionInput, CaptionToken, TokenInput};

choice! {
    /// Which of the two papers' models it is.
    Variant {
        /// CLIP: a class token, a text pooled at its end behind a causal mask, and a softmax over the batch.
        Clip,
        /// SigLIP: pooling by attention, texts that are read in both directions and pooled at their last place, and a sigmoid for each
        /// pair.
        Siglip,
    }
}

choice! {
    /// The towers that are built.
    Towers {
        /// Both, and the logits of all pairs.
        Both,
        /// The image tower alone.
        Image,
        /// The text tower alone.
        Text,
    }
}

/// A model of images and texts. The default is CLIP ViT-B/32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClipConfig {
    /// CLIP or SigLIP.
    pub variant: Variant,
    /// The towers that are built.
    pub towers: Towers,
    /// Height and width of the images.
    pub image: Size,
    /// Height and width of a patch.
    pub patch: Size,
    /// Channels of the images.
    pub channels: usize,
    /// Width of a token of the image tower.
    pub dim: usize,
    /// Layers of the image tower.
    pub depth: usize,
    /// Attention heads of the image tower; must divide `dim`.
    pub heads: usize,
    /// Width of its feed-forward block.
    pub mlp_dim: usize,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Maximum number of tokens of a text.
    pub max_length: usize,
    /// Width of a token of the text tower.
    pub text_dim: usize,
    /// Layers of the text tower.
    pub text_depth: usize,
    /// Attention heads of the text tower; must divide `text_dim`.
    pub text_heads: usize,
    /// Width of its feed-forward block.
    pub text_mlp_dim: usize,
    /// Width of the space that images and texts share; of SigLIP, the image tower's own width.
    pub projection: usize,
    /// Activation of the feed-forward blocks.
    pub activation: Activation,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// The token that ends a text, where its vector is the text's; `None` for the token with the largest number.
    pub end_token: Option<u32>,
    /// What SigLIP's texts are filled up with.
    pub padding_token: u32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
}

impl Default for ClipConfig {
    fn default() -> Self {
        ClipConfig {
            variant: Variant::Clip,
            towers: Towers::Both,
            image: Size::square(224),
            patch: Size::square(32),
            channels: 3,
            dim: 768,
            depth: 12,
            heads: 12,
            mlp_dim: 3072,
            vocabulary: 49_408,
            max_length: 77,
            text_dim: 512,
            text_depth: 12,
            text_heads: 8,
            text_mlp_dim: 2048,
            projection: 512,
            activation: Activation::QuickGelu,
            norm_eps: 1e-5,
            end_token: Some(49_407),
            padding_token: 1,
            attention_dropout: 0.0,
        }
    }
}

impl ClipConfig {
    /// SigLIP base with patches of 16.
    pub fn siglip() -> ClipConfig {
        ClipConfig {
            variant: Variant::Siglip,
            patch: Size::square(16),
            vocabulary: 32_000,
            max_length: 64,
            text_dim: 768,
            text_heads: 12,
            text_mlp_dim: 3072,
            projection: 768,
            activation: Activation::GeluTanh,
            norm_eps: 1e-6,
            end_token: None,
            ..ClipConfig::default()
        }
    }

    /// The Vision Transformer of the image tower.
    pub fn image_tower(&self) -> VitConfig {
        let common = VitConfig {
            image: self.image,
            patch: self.patch,
            channels: self.channels,
            dim: self.dim,
            depth: self.depth,
            heads: self.heads,
            mlp_dim: self.mlp_dim,
            activation: self.activation,
            norm_eps: self.norm_eps,
            attention_dropout: self.attention_dropout,
            classes: 0,
            ..VitConfig::default()
        };
        match self.variant {
            Variant::Clip => {
                VitConfig { embedding_norm: true, patch_bias: false, final_norm: FinalNorm::Pooled, ..common }
            }
            Variant::Siglip => VitConfig { class_token: false, pooling: Pooling::Attention, ..common },
        }
    }

    /// What the text tower takes.
    pub fn captions(&self) -> CaptionInput {
        let tokens = TokenInput { vocabulary: self.vocabulary, longest: self.max_length, window: None, token_types: 0 };
        let pooled = match (self.variant, self.end_token) {
            (Variant::Siglip, _) => CaptionToken::Last { padding: self.padding_token },
            (Variant::Clip, Some(end)) => CaptionToken::End(end),
            (Variant::Clip, None) => CaptionToken::Largest,
        };
        CaptionInput { tokens, pooled }
    }

    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("vocabulary", self.vocabulary),
            ("max_length", self.max_length),
            ("text_dim", self.text_dim),
            ("text_depth", self.text_depth),
            ("text_heads", self.text_heads),
            ("text_mlp_dim", self.text_mlp_dim),
            ("projection", self.projection),
        ])?;
        self.image_tower().check()?;
        check_layers(self.text_dim, self.text_heads, self.text_depth)
            .map_err(|refusal| ConfigError(format!("in the text tower, {}", refusal.0)))?;
        if self.variant == Variant::Siglip && self.towers != Towers::Text {
            let (dim, projection) = (self.dim, self.projection);
            let says = || format!("SigLIP's images are not projected: dim is {dim}, but projection is {projection}");
            rule(dim == projection, says)?;
        }
        check_rates(&[("attention_dropout", self.attention_dropout)])?;
        check_eps(self.norm_eps)
    }
}
