//! The configuration of BART, mBART and Marian, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::families::t5::config::{end_token, in_range};
use crate::settings::{
    Activation, ConfigError, NormOrder, Settings, check_layers, check_rates, check_sizes, choice, rule,
};

choice! {
    /// Which of Hugging Face's classes a model belongs to.
    Variant {
        /// BART: learned positions, norms after the residual sums, a norm of the embeddings.
        Bart,
        /// mBART: as BART, with norms before each branch and at the end of each side.
        Mbart,
        /// Marian: sinusoidal positions, norms after the residual sums, a bias of the logits.
        Marian,
    }
}

impl Variant {
    pub(super) const ALL: [Variant; 3] = [Variant::Bart, Variant::Mbart, Variant::Marian];

    /// Hugging Face's name of the model's type.
    pub(super) fn model_type(self) -> &'static str {
        match self {
            Variant::Bart => "bart",
            Variant::Mbart => "mbart",
            Variant::Marian => "marian",
        }
    }

    /// Where the norms are.
    pub fn norm_order(self) -> NormOrder {
        match self {
            Variant::Mbart => NormOrder::Pre,
            Variant::Bart | Variant::Marian => NormOrder::Post,
        }
    }

    /// Whether positions are learned, and embeddings normalised.
    pub fn learns_positions(self) -> bool {
        self != Variant::Marian
    }
}

/// A BART. The default is BART-base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BartConfig {
    /// Which of the relatives it is.
    pub variant: Variant,
    /// Vocabulary size of sources.
    pub source_vocabulary: usize,
    /// Vocabulary size of targets.
    pub target_vocabulary: usize,
    /// Width of a token.
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
    /// Activation of the feed-forward block.
    pub activation: Activation,
    /// Maximum sequence length.
    pub max_length: usize,
    /// Whether word embeddings are multiplied by √dim.
    pub scaled_embedding: bool,
    /// Whether source and target share one table of word embeddings.
    pub shared_embedding: bool,
    /// Whether the output matrix is that of the target's word embeddings.
    pub tied_output: bool,
    /// Whether the logits have a bias, which is not trained. Only Marian's differs from zero.
    pub logits_bias: bool,
    /// Dropout after embeddings and residual branches.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
    /// Dropout inside the feed-forward block.
    pub mlp_dropout: f32,
    /// What a text begins with, if there is such a token.
    pub begin_token: Option<usize>,
    /// What fills up a batch.
    pub padding_token: usize,
    /// What ends a text.
    pub end_token: usize,
    /// What a target begins with.
    pub start_token: usize,
    /// The last token of a target that has become too long, if it is given.
    pub forced_end_token: Option<usize>,
}

impl Default for BartConfig {
    fn default() -> Self {
        BartConfig {
            variant: Variant::Bart,
            source_vocabulary: 50_265,
            target_vocabulary: 50_265,
            dim: 768,
            heads: 12,
            decoder_heads: 12,
            encoder_layers: 6,
            decoder_layers: 6,
            mlp_dim: 3072,
            decoder_mlp_dim: 3072,
            activation: Activation::Gelu,
            max_length: 1024,
            scaled_embedding: false,
            shared_embedding: true,
            tied_output: true,
            logits_bias: true,
            dropout: 0.1,
            attention_dropout: 0.0,
            mlp_dropout: 0.0,
            begin_token: Some(0),
            padding_token: 1,
            end_token: 2,
            start_token: 2,
            forced_end_token: Some(2),
        }
    }
}

impl BartConfig {
    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("source_vocabulary", self.source_vocabulary),
            ("target_vocabulary", self.target_vocabulary),
            ("dim", self.dim),
            ("heads", self.heads),
            ("decoder_heads", self.decoder_heads),
            ("encoder_layers", self.encoder_layers),
            ("decoder_layers", self.decoder_layers),
            ("mlp_dim", self.mlp_dim),
            ("decoder_mlp_dim", self.decoder_mlp_dim),
            ("max_length", self.max_length),
        ])?;
        check_layers(self.dim, self.heads, self.encoder_layers)?;
        check_layers(self.dim, self.decoder_heads, self.decoder_layers)?;
        check_rates(&[
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("mlp_dropout", self.mlp_dropout),
        ])?;
        rule(!self.shared_embedding || self.source_vocabulary == self.target_vocabulary, || {
            let (source, target) = (self.source_vocabulary, self.target_vocabulary);
            format!("a shared table has one vocabulary, but the source's is {source} and the target's {target}")
        })?;
        let special = [
            ("begin_token", self.begin_token),
            ("padding_token", Some(self.padding_token)),
            ("end_token", Some(self.end_token)),
            ("start_token", Some(self.start_token)),
            ("forced_end_token", self.forced_end_token),
        ];
        for (name, token) in special.iter().filter_map(|(name, token)| Some((name, (*token)?))) {
            let vocabulary = self.target_vocabulary;
            rule(token < vocabulary, || format!("{name} is {token}, but the vocabulary has {vocabulary} tokens"))?;
        }
        Ok(())
    }

    /// Reads a configuration.
    pub(super) fn from_hugging_face(object: &Object, variant: Variant) -> Result<BartConfig, Fault> {
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let rate = |key: &str, usual: f32| Ok::<_, Fault>(object.number(key)?.map_or(usual, |rate| rate as f32));
        let is_marian = variant == Variant::Marian;
        let source_vocabulary = size("vocab_size", if is_marian { 58_101 } else { 50_265 })?;
        let tied = object.flag("tie_word_embeddings")?.unwrap_or(true);
        let shares = match is_marian {
            true => object.flag("share_encoder_decoder_embeddings")?.unwrap_or(true),
            false => tied,
        };
        let target_vocabulary = match is_marian && !shares {
            true => size("decoder_vocab_size", source_vocabulary)?,
            false => source_vocabulary,
        };
        let end_token = end_token(object)?.unwrap_or(if is_marian { 0 } else { 2 });
        let padding_token = size("pad_token_id", if is_marian { 58_100 } else { 1 })?;
        let start_token = size("decoder_start_token_id", if is_marian { padding_token } else { end_token })?;
        // Null says that none is forced.
        let forced = match object.is_null("forced_eos_token_id") {
            true => None,
            false => Some(size("forced_eos_token_id", end_token)?),
        };
        for (key, token) in [
            ("decoder_start_token_id", start_token),
            ("pad_token_id", padding_token),
            ("eos_token_id", end_token),
            ("forced_eos_token_id", forced.unwrap_or(end_token)),
        ] {
            in_range(object, key, token, target_vocabulary)?;
        }
        Ok(BartConfig {
            variant,
            source_vocabulary,
            target_vocabulary,
            dim: size("d_model", 1024)?,
            heads: size("encoder_attention_heads", 16)?,
            decoder_heads: size("decoder_attention_heads", 16)?,
            encoder_layers: size("encoder_layers", 12)?,
            decoder_layers: size("decoder_layers", 12)?,
            mlp_dim: size("encoder_ffn_dim", 4096)?,
            decoder_mlp_dim: size("decoder_ffn_dim", 4096)?,
            activation: activation(object)?,
            max_length: size("max_position_embeddings", 1024)?,
            scaled_embedding: object.flag("scale_embedding")?.unwrap_or(false),
            shared_embedding: shares,
            tied_output: tied,
            logits_bias: true,
            dropout: rate("dropout", 0.1)?,
            attention_dropout: rate("attention_dropout", 0.0)?,
            mlp_dropout: rate("activation_dropout", 0.0)?,
            begin_token: object.size("bos_token_id")?.or(if is_marian { None } else { Some(0) }),
            padding_token,
            end_token,
            start_token,
            forced_end_token: forced,
        })
    }

    /// The configuration of the Hugging Face class for this model.
    pub(super) fn to_hugging_face(&self) -> Settings {
        let class = match self.variant {
            Variant::Bart => "BartForConditionalGeneration",
            Variant::Mbart => "MBartForConditionalGeneration",
            Variant::Marian => "MarianMTModel",
        };
        let mut entries = vec![
            ("architectures", json!([class])),
            ("model_type", json!(self.variant.model_type())),
            ("is_encoder_decoder", json!(true)),
            ("vocab_size", json!(self.source_vocabulary)),
            ("d_model", json!(self.dim)),
            ("encoder_layers", json!(self.encoder_layers)),
            ("decoder_layers", json!(self.decoder_layers)),
            ("encoder_attention_heads", json!(self.heads)),
            ("decoder_attention_heads", json!(self.decoder_heads)),
            ("encoder_ffn_dim", json!(self.mlp_dim)),
            ("decoder_ffn_dim", json!(self.decoder_mlp_dim)),
            ("max_position_embeddings", json!(self.max_length)),
            ("activation_function", json!(self.activation.hugging_face())),
            ("dropout", shortest(self.dropout)),
            ("attention_dropout", shortest(self.attention_dropout)),
            ("activation_dropout", shortest(self.mlp_dropout)),
            ("init_std", json!(0.02)),
            ("scale_embedding", json!(self.scaled_embedding)),
            ("pad_token_id", json!(self.padding_token)),
            ("eos_token_id", json!(self.end_token)),
            ("decoder_start_token_id", json!(self.start_token)),
            ("forced_eos_token_id", json!(self.forced_end_token)),
            ("tie_word_embeddings", json!(self.tied_output)),
        ];
        if let Some(token) = self.begin_token {
            entries.push(("bos_token_id", json!(token)));
        }
        if self.variant == Variant::Marian {
            entries.push(("share_encoder_decoder_embeddings", json!(self.shared_embedding)));
            entries.push(("decoder_vocab_size", json!(self.target_vocabulary)));
        }
        entries.into_iter().map(|(key, value): (&str, Value)| (key.to_string(), value)).collect()
    }

    /// Whether Hugging Face has a class for it: those of BART and mBART share all tables, or none.
    pub(super) fn has_class(&self) -> Result<(), String> {
        match self.variant != Variant::Marian && self.shared_embedding != self.tied_output {
            true => Err("transformers' BART ties both sides' words and the output, or none of them".to_string()),
            false => Ok(()),
        }
    }
}

fn activation(object: &Object) -> Result<Activation, Fault> {
    const KEY: &str = "activation_function";
    let Some(name) = object.text(KEY)? else { return Ok(Activation::Gelu) };
    Activation::from_hugging_face(name)
        .ok_or_else(|| object.fault(KEY, format!("{name:?} is not supported: gelu, gelu_new, relu, silu and tanh are")))
}
