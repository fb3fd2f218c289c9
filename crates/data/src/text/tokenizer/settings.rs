//! What the files beside a vocabulary say: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and `config.json`.

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::files::Files;
use crate::text::TokeniserError;

/// The tokenizer classes of `transformers` whose files are read without a `tokenizer.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Bert,
    Mpnet,
    Roberta,
    Gpt2,
    Albert,
    XlmRoberta,
    Camembert,
    Llama,
    T5,
    Clip,
    Siglip,
}

/// The special tokens, in `transformers`' order.
pub(super) const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl Class {
    fn of_name(name: &str) -> Option<Class> {
        match name.strip_suffix("Fast").unwrap_or(name) {
            "BertTokenizer"
            | "DistilBertTokenizer"
            | "ElectraTokenizer"
            | "MobileBertTokenizer"
            | "ConvBertTokenizer"
            | "LayoutLMTokenizer"
            | "SqueezeBertTokenizer"
            | "RetriBertTokenizer" => Some(Class::Bert),
            "MPNetTokenizer" => Some(Class::Mpnet),
            "RobertaTokenizer" | "LongformerTokenizer" | "BartTokenizer" => Some(Class::Roberta),
            "GPT2Tokenizer" => Some(Class::Gpt2),
            "AlbertTokenizer" => Some(Class::Albert),
            "XLMRobertaTokenizer" => Some(Class::XlmRoberta),
            "CamembertTokenizer" => Some(Class::Camembert),
            "T5Tokenizer" => Some(Class::T5),
            "CLIPTokenizer" => Some(Class::Clip),
            "SiglipTokenizer" => Some(Class::Siglip),
            _ => None,
        }
    }

    fn of_model_type(model_type: &str) -> Option<Class> {
        match model_type {
            "bert" | "distilbert" | "electra" | "mobilebert" | "convbert" | "layoutlm" | "squeezebert"
            | "nomic_bert" => Some(Class::Bert),
            "mpnet" => Some(Class::Mpnet),
            "roberta" | "longformer" | "bart" => Some(Class::Roberta),
            "gpt2" => Some(Class::Gpt2),
            "albert" => Some(Class::Albert),
            "xlm-roberta" => Some(Class::XlmRoberta),
            "camembert" => Some(Class::Camembert),
            "t5" | "mt5" => Some(Class::T5),
            "clip" => Some(Class::Clip),
            "siglip" => Some(Class::Siglip),
            _ => None,
        }
    }

    /// The name of the class.
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Bert => "BertTokenizer",
            Class::Mpnet => "MPNetTokenizer",
            Class::Roberta => "RobertaTokenizer",
            Class::Gpt2 => "GPT2Tokenizer",
            Class::Albert => "AlbertTokenizer",
            Class::XlmRoberta => "XLMRobertaTokenizer",
            Class::Camembert => "CamembertTokenizer",
            Class::Llama => "LlamaTokenizer",
            Class::T5 => "T5Tokenizer",
            Class::Clip => "CLIPTokenizer",
            Class::Siglip => "SiglipTokenizer",
        }
    }

    /// The special tokens where no file names them, in the order of [`ROLES`].
    pub(super) fn default_tokens(self) -> [Option<&'static str>; 7] {
        match self {
            Class::Bert => [None, None, Some("[UNK]"), Some("[SEP]"), Some("[PAD]"), Some("[CLS]"), Some("[MASK]")],
            Class::Mpnet => ["<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"].map(Some),
            Class::Roberta | Class::XlmRoberta | Class::Camembert => {
                ["<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"].map(Some)
            }
            Class::Gpt2 => {
                let end = Some("<|endoftext|>");
                [end, end, end, None, None, None, None]
            }
            Class::Llama => [Some("<s>"), Some("</s>"), Some("<unk>"), None, None, None, None],
            Class::T5 => [None, Some("</s>"), Some("<unk>"), None, Some("<pad>"), None, None],
            Class::Clip => {
                let end = Some("<|endoftext|>");
                [Some("<|startoftext|>"), end, end, None, end, None, None]
            }
            Class::Siglip => [None, Some("</s>"), Some("<unk>"), None, Some("</s>"), None, None],
            Class::Albert => ["[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"].map(Some),
        }
    }
}

/// What the files say.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// `tokenizer_config.json`, with what `special_tokens_map.json` says over it.
    config: Map<String, Value>,
    /// The class that the files name.
    pub(super) class: Option<Class>,
    /// Whether the vocabulary belongs to another class than the one that the files name.
    pub(super) other_class: bool,
    /// Tokens with indices, sorted by them.
    pub(super) added: Vec<(u64, AddedToken)>,
}

impl Settings {
    /// Reads the files of a directory that are there.
    pub(super) fn read(files: &mut Files) -> Result<Settings, TokeniserError> {
        let mut config = object(files, "tokenizer_config.json")?;
        let model = object(files, "config.json")?;
        if let Some(template) = files.read("chat_template.jinja")? {
            let path = || files.path("chat_template.jinja");
            let template = std::str::from_utf8(&template)
                .map_err(|_| TokeniserError::Damaged { path: path(), reason: "this is not UTF-8 text".to_string() })?;
            config.insert("chat_template".to_string(), template.into());
        }
        let map = object(files, "special_tokens_map.json")?;
        let added_tokens = object(files, "added_tokens.json")?;
        let name = [&config, &model].into_iter().find_map(|file| file.get("tokenizer_class")?.as_str());
        let class = name.and_then(Class::of_name);
        let model_type = model.get("model_type").and_then(Value::as_str);
        let class = class.or_else(|| model_type.and_then(Class::of_model_type));
        let mut added = Vec::new();
        // As transformers: where tokenizer_config.json lists the added tokens, the older files say nothing.
        if let Some(Value::Object(tokens)) = config.get("added_tokens_decoder") {
            for (id, token) in tokens {
                if let (Ok(id), Some(token)) = (id.parse(), added_token(token, false)) {
                    added.push((id, token));
                }
            }
        } else {
            config.extend(map);
            let special: Vec<String> = ROLES.iter().filter_map(|role| content(config.get(*role)?)).collect();
            for (token, id) in added_tokens {
                let is_special = special.contains(&token);
                if let Some(id) = id.as_u64() {
                    added.push((id, AddedToken::from(token, is_special)));
                }
            }
        }
        added.sort_by_key(|(id, _)| *id);
        Ok(Settings { config, class, other_class: false, added })
    }

    /// The settings of a tokenizer of a class, where no file says anything.
    pub(super) fn of_class(class: Class, options: &[(&str, Value)]) -> Settings {
        Settings::of_options(Some(class), options)
    }

    /// The settings of a tokenizer without files, which may have no class.
    pub(super) fn of_options(class: Option<Class>, options: &[(&str, Value)]) -> Settings {
        let config = options.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Settings { config, class, other_class: false, added: Vec::new() }
    }

    /// The same settings for another class.
    pub(super) fn with(&self, class: Class) -> Settings {
        let other_class = self.class.is_some_and(|named| named != class);
        Settings { class: Some(class), other_class, ..self.clone() }
    }

    /// What a `tokenizer_config.json` says, or would say.
    pub(super) fn options(&self) -> Map<String, Value> {
        self.config.clone()
    }

    /// An option that is true or false.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.config.get(name).and_then(Value::as_bool)
    }

    /// The chat templates by name: `chat_template` is one template, or a list of objects with a name and a template.
    pub(super) fn chat_templates(&self) -> Vec<(String, String)> {
        let named = |value: &Value| {
            let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
            Some((text("name")?, text("template")?))
        };
        match self.config.get("chat_template") {
            Some(Value::String(template)) => vec![("default".to_string(), template.clone())],
            Some(Value::Array(templates)) => templates.iter().filter_map(named).collect(),
            _ => Vec::new(),
        }
    }

    /// Replaces the chat templates by one.
    pub(super) fn set_chat_template(&mut self, template: &str) {
        self.config.insert("chat_template".to_string(), template.into());
    }

    /// The special token of a role.
    pub(super) fn special(&self, role: &str) -> Option<AddedToken> {
        if let Some(value) = self.config.get(role) {
            return added_token(value, true);
        }
        let place = ROLES.iter().position(|name| *name == role)?;
        let name = self.class?.default_tokens()[place]?;
        // These classes say that their mask takes the space before it.
        let takes_space = role == "mask_token" && matches!(self.class, Some(Class::Camembert | Class::Mpnet));
        Some(AddedToken::from(name, true).lstrip(takes_space))
    }

    /// The name of the special token of a role.
    pub(super) fn special_name(&self, role: &str) -> Option<String> {
        self.special(role).map(|token| token.content)
    }

    /// Further special tokens.
    pub(super) fn further_special(&self) -> Vec<AddedToken> {
        let lists = ["extra_special_tokens", "additional_special_tokens"];
        let tokens =
            lists.into_iter().find_map(|name| self.config.get(name)?.as_array().filter(|list| !list.is_empty()));
        tokens.into_iter().flatten().filter_map(|token| added_token(token, true)).collect()
    }

    /// The longest input, where it is a sensible number: `transformers` writes 10^30 where it does not know it.
    pub(super) fn longest(&self) -> Option<usize> {
        let longest = self.config.get("model_max_length")?.as_u64()?;
        usize::try_from(longest).ok().filter(|longest| (1..1 << 30).contains(longest))
    }
}

fn object(files: &mut Files, name: &str) -> Result<Map<String, Value>, TokeniserError> {
    let Some(bytes) = files.read(name)? else {
        return Ok(Map::new());
    };
    let damaged = |reason: String| TokeniserError::Damaged { path: files.path(name), reason };
    match serde_json::from_slice(&bytes).map_err(|error| damaged(format!("this is not JSON: {error}")))? {
        Value::Object(object) => Ok(object),
        _ => Err(damaged("this is not a JSON object".to_string())),
    }
}

fn content(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_string)
}

/// A token that is written as a text, or as an object that says how it is matched.
fn added_token(value: &Value, is_special: bool) -> Option<AddedToken> {
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let is_special = is_special || flag("special").unwrap_or(false);
    let token = AddedToken::from(content(value)?, is_special)
        .single_word(flag("single_word").unwrap_or(false))
        .lstrip(flag("lstrip").unwrap_or(false))
        .rstrip(flag("rstrip").unwrap_or(false));
    Some(token.normalized(flag("normalized").unwrap_or(!is_special)))
}

/// Whether a directory has one of the files that say which tokenizer it has.
pub(super) fn says_class(directory: &Path) -> bool {
    ["tokenizer_config.json", "config.json"].iter().any(|name| directory.join(name).exists())
}
