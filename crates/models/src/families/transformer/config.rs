//! The configuration of a Transformer.

use serde::{Deserialize, Serialize};

use crate::settings::{Activation, ConfigError, MOST_LAYERS, NormOrder, check_sizes};

/// The kind of position encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextPositions {
    /// Sines and cosines, the same for both sides.
    Sinusoidal,
    /// A learned table per side.
    Learned,
}

/// An encoder-decoder Transformer. The default is the paper's base model, with two vocabularies of 10,000.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransformerConfig {
    /// Source vocabulary size.
    pub source_vocabulary: usize,
    /// Target vocabulary size.
    pub target_vocabulary: usize,
    /// Width of a token.
    pub dim: usize,
    /// Attention heads; must divide `dim`.
    pub heads: usize,
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder.
    pub decoder_layers: usize,
    /// Width of the feed-forward block.
    pub mlp_dim: usize,
    /// Activation of the feed-forward block.
    pub activation: Activation,
    /// Pre-norm or post-norm.
    pub norm_order: NormOrder,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// The kind of position encoding.
    pub positions: TextPositions,
    /// Maximum sequence length.
    pub max_length: usize,
    /// Whether source and target share one vocabulary and embedding table.
    pub shared_vocabulary: bool,
    /// Whether the output matrix is tied to the target embeddings.
    pub tied_output: bool,
    /// Dropout after positions and residual branches and inside the feed-forward block.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
}

impl Default for TransformerConfig {
    fn default() -> Self {
        TransformerConfig {
            source_vocabulary: 10_000,
            target_vocabulary: 10_000,
            dim: 512,
            heads: 8,
            encoder_layers: 6,
            decoder_layers: 6,
            mlp_dim: 2048,
            activation: Activation::Relu,
            norm_order: NormOrder::Post,
            norm_eps: 1e-5,
            positions: TextPositions::Sinusoidal,
            max_length: 5000,
            shared_vocabulary: false,
            tied_output: false,
            dropout: 0.1,
            attention_dropout: 0.1,
        }
    }
}

impl TransformerConfig {
    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        let broken = |what: String| Err(ConfigError(what));
        let sizes = [
            ("source_vocabulary", self.source_vocabulary),
            ("target_vocabulary", self.target_vocabulary),
            ("dim", self.dim),
            ("heads", self.heads),
            ("encoder_layers", self.encoder_layers),
            ("decoder_layers", self.decoder_layers),
            ("mlp_dim", self.mlp_dim),
            ("max_length", self.max_length),
        ];
        check_sizes(&sizes)?;
        let layers = [("encoder_layers", self.encoder_layers), ("decoder_layers", self.decoder_layers)];
        if let Some((name, _)) = layers.iter().find(|(_, layers)| *layers > MOST_LAYERS) {
            return broken(format!("{name} must be at most {MOST_LAYERS}"));
        }
        if !self.dim.is_multiple_of(self.heads) {
            return broken(format!("the {} heads must divide dim {}", self.heads, self.dim));
        }
        if self.shared_vocabulary && self.source_vocabulary != self.target_vocabulary {
            return broken(format!(
                "a shared vocabulary has one size, but the source's is {} and the target's {}",
                self.source_vocabulary, self.target_vocabulary
            ));
        }
        let rates = [("dropout", self.dropout), ("attention_dropout", self.attention_dropout)];
        if let Some((name, rate)) = rates.iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
            return broken(format!("{name} must be at least 0 and under 1, it is {rate}"));
        }
        if !(self.norm_eps > 0.0 && self.norm_eps.is_finite()) {
            return broken(format!("norm_eps must be positive, it is {}", self.norm_eps));
        }
        Ok(())
    }
}
