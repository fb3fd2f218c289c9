//! Hugging Face's tensor names for encoders of texts: rules that all of them share.

use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Inventory, Rule, prefix_of};

/// The names of a masked-token head's tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaskedNames {
    pub transform: &'static str,
    pub norm: &'static str,
    pub bias: &'static str,
    pub decoder: &'static str,
    /// A second bias, which is the first if the decoder is tied; otherwise it is the one that counts.
    pub decoder_bias: Option<&'static str>,
}

/// Rules in the making. The encoder's names have a prefix in models with a head: `bert.`.
pub(crate) struct Names {
    backbone: String,
    rules: Vec<Rule>,
}

impl Names {
    pub fn new(backbone: &str) -> Names {
        // Constants of the library.
        let constants = ["position_ids", "token_type_ids"].map(|name| format!("{backbone}embeddings.{name}"));
        Names { backbone: backbone.to_string(), rules: constants.map(Rule::redundant).to_vec() }
    }

    /// The prefix of all names of a file, and that of the encoder's among them.
    pub fn prefixes(tensors: &Inventory, model_type: &str, base: &'static str) -> Result<(String, String), Fault> {
        let anchor = "embeddings.word_embeddings.weight";
        let Some(prefix) = prefix_of(tensors, anchor, &[base]) else {
            return Err(Fault::whole(format!(
                "it is a configuration of `{model_type}`, but no tensor beside it is called `{anchor}`"
            )));
        };
        let backbone = format!("{base}.");
        Ok(match prefix.strip_suffix(&backbone) {
            Some(prefix) => (prefix.to_string(), backbone),
            None => (prefix.to_string(), String::new()),
        })
    }

    /// Names of the encoder.
    pub fn encoder(&mut self, names: &[(&str, &str)]) {
        for (ours, theirs) in names {
            let theirs = format!("{}{theirs}", self.backbone);
            self.rename(ours, theirs);
        }
    }

    /// Names of a head.
    pub fn head(&mut self, ours: &str, theirs: &str) {
        self.rename(ours, theirs.to_string());
    }

    /// A tensor of a head that no result depends on.
    pub fn keep(&mut self, ours: &str, theirs: &str, shape: &[usize]) {
        self.rules.push(Rule::keep(ours, theirs, shape));
    }

    /// Names of the masked-token head.
    pub fn masked(&mut self, names: &MaskedNames, tied: bool, vocabulary: usize) {
        self.head("masked_tokens.transform.*", &format!("{}.*", names.transform));
        self.head("masked_tokens.norm.*", &format!("{}.*", names.norm));
        match (tied, names.decoder_bias) {
            (true, None) => self.head("masked_tokens.bias", names.bias),
            (true, Some(second)) => {
                self.head("masked_tokens.bias", names.bias);
                self.head("masked_tokens.bias", second);
                self.rules.push(Rule::redundant(second));
            }
            (false, None) => self.head("masked_tokens.bias", names.bias),
            (false, Some(second)) => {
                self.head("masked_tokens.bias", second);
                // transformers before 5 has one bias under two names, and 5 a first one without any effect.
                self.head("masked_tokens.bias", names.bias);
                self.keep("masked_tokens.unused_bias", names.bias, &[vocabulary]);
            }
        }
        match tied {
            true => self.rules.push(Rule::redundant(names.decoder)),
            false => self.head("masked_tokens.decoder", names.decoder),
        }
    }

    fn rename(&mut self, ours: &str, theirs: String) {
        self.rules.push(Rule::rename(ours, theirs.clone()));
        // In files converted from TensorFlow, such as BERT-Base, the weights of norms are called gamma and beta.
        if let (Some((ours, "*")), Some(norm)) = (ours.rsplit_once('.'), theirs.strip_suffix("LayerNorm.*")) {
            self.rules.extend(
                [("weight", "gamma"), ("bias", "beta")]
                    .map(|(kind, old)| Rule::rename(&format!("{ours}.{kind}"), format!("{norm}LayerNorm.{old}"))),
            );
        }
    }

    /// The dialect. Tensors that begin with one of `heads` are of heads that the model may not have.
    pub fn dialect(self, heads: &'static [&'static str]) -> Dialect {
        Dialect { library: "Hugging Face", rules: self.rules, foreign: heads, ..Dialect::default() }
    }
}
