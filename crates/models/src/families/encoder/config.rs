//! The part of Hugging Face's `config.json` that all encoders of texts have, read and written.

use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{Activation, Settings};

/// The keys of sizes and rates, which DistilBERT spells differently.
pub(crate) struct Keys {
    pub dim: &'static str,
    pub depth: &'static str,
    pub heads: &'static str,
    pub mlp_dim: &'static str,
    pub activation: &'static str,
    pub dropout: &'static str,
    pub attention_dropout: &'static str,
}

/// BERT's keys, which most have taken over.
pub(crate) const KEYS: Keys = Keys {
    dim: "hidden_size",
    depth: "num_hidden_layers",
    heads: "num_attention_heads",
    mlp_dim: "intermediate_size",
    activation: "hidden_act",
    dropout: "hidden_dropout_prob",
    attention_dropout: "attention_probs_dropout_prob",
};

/// Sizes and rates that every configuration has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub vocabulary: usize,
    pub dim: usize,
    pub depth: usize,
    pub heads: usize,
    pub mlp_dim: usize,
    pub activation: Activation,
    /// Rows of the position table.
    pub positions: usize,
    pub dropout: f32,
    pub attention_dropout: f32,
    /// Whether the output matrix is that of the word embeddings.
    pub tied: bool,
}

impl Sizes {
    /// Reads them; an absent key has its value in `usual`.
    pub fn read(object: &Object, keys: &Keys, usual: Sizes) -> Result<Sizes, Fault> {
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let rate = |key: &str, usual: f32| Ok::<_, Fault>(object.number(key)?.map_or(usual, |rate| rate as f32));
        let activation = match object.text(keys.activation)? {
            None => usual.activation,
            Some(name) => Activation::from_hugging_face(name).ok_or_else(|| {
                let what = format!("{name:?} is not supported: gelu, gelu_new, relu, silu and tanh are");
                object.fault(keys.activation, what)
            })?,
        };
        Ok(Sizes {
            vocabulary: size("vocab_size", usual.vocabulary)?,
            dim: size(keys.dim, usual.dim)?,
            depth: size(keys.depth, usual.depth)?,
            heads: size(keys.heads, usual.heads)?,
            mlp_dim: size(keys.mlp_dim, usual.mlp_dim)?,
            activation,
            positions: size("max_position_embeddings", usual.positions)?,
            dropout: rate(keys.dropout, usual.dropout)?,
            attention_dropout: rate(keys.attention_dropout, usual.attention_dropout)?,
            tied: object.flag("tie_word_embeddings")?.unwrap_or(usual.tied),
        })
    }

    /// A configuration with them, for this class.
    pub fn write(&self, keys: &Keys, class: &str, model_type: &str) -> Settings {
        let mut entries = vec![
            ("architectures", json!([class])),
            ("model_type", json!(model_type)),
            ("vocab_size", json!(self.vocabulary)),
            (keys.dim, json!(self.dim)),
            (keys.depth, json!(self.depth)),
            (keys.heads, json!(self.heads)),
            (keys.mlp_dim, json!(self.mlp_dim)),
            (keys.activation, json!(self.activation.hugging_face())),
            (keys.dropout, shortest(self.dropout)),
            (keys.attention_dropout, shortest(self.attention_dropout)),
            ("max_position_embeddings", json!(self.positions)),
            ("initializer_range", json!(0.02)),
        ];
        if !self.tied {
            entries.push(("tie_word_embeddings", json!(false)));
        }
        entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// An error for settings that change the computation in ways that are not supported.
pub(crate) fn check_supported(object: &Object) -> Result<(), Fault> {
    let key = "position_embedding_type";
    if let Some(other) = object.text(key)?.filter(|value| *value != "absolute") {
        return Err(object.fault(key, format!("{other:?} is not supported, only \"absolute\" is")));
    }
    for key in ["is_decoder", "add_cross_attention"] {
        if object.flag(key)? == Some(true) {
            return Err(object.fault(key, "an encoder that decodes is not supported".to_string()));
        }
    }
    match object.get("pruned_heads") {
        Some(Value::Object(layers)) if !layers.is_empty() => {
            Err(object.fault("pruned_heads", "layers with fewer heads than others are not supported".to_string()))
        }
        _ => Ok(()),
    }
}
