//! The configuration of Whisper, read from and written to Hugging Face's `config.json`, or told by the shapes of OpenAI's files.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::families::t5::config::in_range;
use crate::settings::{Activation, ConfigError, Settings, check_layers, check_rates, check_sizes, rule};

/// The width of all heads of OpenAI's models.
pub(super) const HEAD_DIM: usize = 64;

/// A Whisper. The default is the multilingual `tiny`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhisperConfig {
    /// Mel bins of a frame.
    pub mel_bins: usize,
    /// Positions of the encoder: half as many as a window has frames.
    pub source_positions: usize,
    /// Positions of the decoder: the most tokens of a prompt and its text.
    pub target_positions: usize,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of a position.
    pub dim: usize,
    /// Attention heads of the encoder; must divide `dim`.
    pub heads: usize,
    /// Attention heads of the decoder; must divide `dim`.
    pub decoder_heads: usize,
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder.
    pub decoder_layers: usize,
    /// Width of the encoder's feed-forward block.
    pub mlp_dim: usize,
    /// Width of the decoder's feed-forward block.
    pub decoder_mlp_dim: usize,
    /// Activation of the feed-forward block. That of the convolutions is always exact GELU.
    pub activation: Activation,
    /// Dropout after embeddings and residual branches.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
    /// Dropout inside the feed-forward block.
    pub mlp_dropout: f32,
    /// What a text begins with, before its language and task.
    pub start_token: usize,
    /// What ends a text.
    pub end_token: usize,
    /// What fills up a batch.
    pub padding_token: usize,
}

impl Default for WhisperConfig {
    fn default() -> Self {
        WhisperConfig {
            mel_bins: 80,
            source_positions: 1500,
            target_positions: 448,
            vocabulary: 51_865,
            dim: 384,
            heads: 6,
            decoder_heads: 6,
            encoder_layers: 4,
            decoder_layers: 4,
            mlp_dim: 1536,
            decoder_mlp_dim: 1536,
            activation: Activation::Gelu,
            dropout: 0.0,
            attention_dropout: 0.0,
            mlp_dropout: 0.0,
            start_token: 50_258,
            end_token: 50_257,
            padding_token: 50_257,
        }
    }
}

impl WhisperConfig {
    /// Frames of a window.
    pub fn frames(&self) -> usize {
        2 * self.source_positions
    }

    /// Checks the rules.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("mel_bins", self.mel_bins),
            ("source_positions", self.source_positions),
            ("target_positions", self.target_positions),
            ("vocabulary", self.vocabulary),
            ("dim", self.dim),
            ("heads", self.heads),
            ("decoder_heads", self.decoder_heads),
            ("encoder_layers", self.encoder_layers),
            ("decoder_layers", self.decoder_layers),
            ("mlp_dim", self.mlp_dim),
            ("decoder_mlp_dim", self.decoder_mlp_dim),
        ])?;
        check_layers(self.dim, self.heads, self.encoder_layers)?;
        check_layers(self.dim, self.decoder_heads, self.decoder_layers)?;
        check_rates(&[
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("mlp_dropout", self.mlp_dropout),
        ])?;
        rule(self.dim.is_multiple_of(2) && self.dim >= 4, || {
            format!("dim is {}, but half of a position's values are sines and half cosines: it must be even", self.dim)
        })?;
        for (name, token) in [("start_token", self.start_token), ("end_token", self.end_token)] {
            let vocabulary = self.vocabulary;
            rule(token < vocabulary, || format!("{name} is {token}, but the vocabulary has {vocabulary} tokens"))?;
        }
        Ok(())
    }

    /// Reads a configuration.
    pub(super) fn from_hugging_face(object: &Object) -> Result<WhisperConfig, Fault> {
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let rate = |key: &str| Ok::<_, Fault>(object.number(key)?.map_or(0.0, |rate| rate as f32));
        let vocabulary = size("vocab_size", 51_865)?;
        let end_token = size("eos_token_id", 50_256)?;
        let start_token = size("decoder_start_token_id", 50_257)?;
        for (key, token) in [("eos_token_id", end_token), ("decoder_start_token_id", start_token)] {
            in_range(object, key, token, vocabulary)?;
        }
        Ok(WhisperConfig {
            mel_bins: size("num_mel_bins", 80)?,
            source_positions: size("max_source_positions", 1500)?,
            target_positions: size("max_target_positions", 448)?,
            vocabulary,
            dim: size("d_model", 384)?,
            heads: size("encoder_attention_heads", 6)?,
            decoder_heads: size("decoder_attention_heads", 6)?,
            encoder_layers: size("encoder_layers", 4)?,
            decoder_layers: size("decoder_layers", 4)?,
            mlp_dim: size("encoder_ffn_dim", 1536)?,
            decoder_mlp_dim: size("decoder_ffn_dim", 1536)?,
            activation: activation(object)?,
            dropout: rate("dropout")?,
            attention_dropout: rate("attention_dropout")?,
            mlp_dropout: rate("activation_dropout")?,
            start_token,
            end_token,
            padding_token: size("pad_token_id", end_token)?,
        })
    }

    /// The configuration of Hugging Face's `WhisperForConditionalGeneration`.
    pub(super) fn to_hugging_face(&self) -> Settings {
        let entries = [
            ("architectures", json!(["WhisperForConditionalGeneration"])),
            ("model_type", json!("whisper")),
            ("is_encoder_decoder", json!(true)),
            ("vocab_size", json!(self.vocabulary)),
            ("num_mel_bins", json!(self.mel_bins)),
            ("d_model", json!(self.dim)),
            ("encoder_layers", json!(self.encoder_layers)),
            ("decoder_layers", json!(self.decoder_layers)),
            ("num_hidden_layers", json!(self.encoder_layers)),
            ("encoder_attention_heads", json!(self.heads)),
            ("decoder_attention_heads", json!(self.decoder_heads)),
            ("encoder_ffn_dim", json!(self.mlp_dim)),
            ("decoder_ffn_dim", json!(self.decoder_mlp_dim)),
            ("max_source_positions", json!(self.source_positions)),
            ("max_target_positions", json!(self.target_positions)),
            ("activation_function", json!(self.activation.hugging_face())),
            ("dropout", shortest(self.dropout)),
            ("attention_dropout", shortest(self.attention_dropout)),
            ("activation_dropout", shortest(self.mlp_dropout)),
            ("init_std", json!(0.02)),
            // `transformers` reads this, but scales nothing.
            ("scale_embedding", json!(false)),
            ("bos_token_id", json!(self.end_token)),
            ("eos_token_id", json!(self.end_token)),
            ("pad_token_id", json!(self.padding_token)),
            ("decoder_start_token_id", json!(self.start_token)),
            ("tie_word_embeddings", json!(true)),
        ];
        entries.into_iter().map(|(key, value): (&str, Value)| (key.to_string(), value)).collect()
    }
}

fn activation(object: &Object) -> Result<Activation, Fault> {
    const KEY: &str = "activation_function";
    let Some(name) = object.text(KEY)? else { return Ok(Activation::Gelu) };
    Activation::from_hugging_face(name)
        .ok_or_else(|| object.fault(KEY, format!("{name:?} is not supported: gelu, gelu_new, relu, silu and tanh are")))
}
