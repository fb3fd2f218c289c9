//! Tokenizers of vocabularies that are stored inside of a model's file: GGUF's `tokenizer.ggml.*`, and llama2.c's `tokenizer.bin`.
//!
//! What such a file says is little: the tokens, their scores or merges, their types, and the name of the algorithm. All the rest is
//! llama.cpp's convention, and followed here so that the tokens are those that llama.cpp gives.

mod byte_level;
mod ends;
mod llama2c;
mod pre_tokenizers;
mod score_merges;
mod whisper;
mod word_pieces;

use serde_json::{Value, json};
use tokenizers::AddedToken;

pub(super) use ends::end_tokens;
pub(super) use score_merges::ScoreMerges;

use super::build::Description;
use super::model::MOST_TOKENS;
use super::settings::{Class, Settings};
use super::{TextTokenizer, open};
use crate::text::TokeniserError;

/// More tokens that are matched in text before it is split than any vocabulary has: Gemma's has some 6,000.
const MOST_ADDED: usize = 1 << 16;

/// The types of tokens, numbered as sentencepiece and GGUF do.
mod token_type {
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
}

/// A vocabulary as it is stored inside of a model's file. Lists are empty, and options `None`, where the file does not say them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VocabularyData {
    /// The algorithm, as GGUF names it (`tokenizer.ggml.model`): `gpt2` (byte pairs), `llama` (sentencepiece's merges by score) or
    /// `bert` (word pieces).
    pub model: String,
    /// How text is split before byte pairs are merged (`tokenizer.ggml.pre`).
    pub pre_tokenizer: Option<String>,
    /// The model's name (`general.name`): llama.cpp knows by it that Phi-3's special tokens take the space after them.
    pub model_name: Option<String>,
    /// The tokens by index.
    pub tokens: Vec<String>,
    /// A score for each token: of `llama`, merges of a higher score come first.
    pub scores: Vec<f32>,
    /// A type for each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 a byte.
    pub token_types: Vec<i32>,
    /// Pairs of tokens with a space between them, in the order in which `gpt2` merges them.
    pub merges: Vec<String>,
    /// The special tokens.
    pub special: VocabularySpecial,
    /// Whether the beginning-of-text token is put before a text.
    pub add_bos: Option<bool>,
    /// Whether the end-of-text token is put after a text.
    pub add_eos: Option<bool>,
    /// Whether `llama` puts a space before a text.
    pub add_space_prefix: Option<bool>,
    /// Whether `bert` lower-cases text. It does unless this says otherwise.
    pub lower_case: Option<bool>,
    /// Chat templates by name; the usual one is called `default`.
    pub chat_templates: Vec<(String, String)>,
}

/// The indices of a stored vocabulary's special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VocabularySpecial {
    /// The beginning of a text.
    pub bos: Option<u32>,
    /// The end of a text.
    pub eos: Option<u32>,
    /// The end of a turn in a chat.
    pub eot: Option<u32>,
    /// What stands for text that the vocabulary cannot express.
    pub unknown: Option<u32>,
    /// What separates texts.
    pub separator: Option<u32>,
    /// What fills up the shorter texts of a batch.
    pub padding: Option<u32>,
    /// The token before a text, of encoders.
    pub cls: Option<u32>,
    /// What stands for a token that is to be predicted.
    pub mask: Option<u32>,
}

impl VocabularyData {
    /// Reads llama2.c's `tokenizer.bin`: the length of the longest token, then for each token its score, its length and its bytes.
    pub fn read_llama2c(bytes: &[u8]) -> Result<VocabularyData, TokeniserError> {
        llama2c::read(bytes).map_err(TokeniserError::Stored)
    }

    /// Checks what the algorithms rely on, and leaves out special tokens that are not in the vocabulary, as llama.cpp does.
    fn check(&mut self) -> Result<(), String> {
        let size = self.tokens.len();
        if size == 0 || size > MOST_TOKENS as usize {
            return Err(format!("it has {size} tokens, but must have from 1 to {MOST_TOKENS}"));
        }
        for (what, length) in [("scores", self.scores.len()), ("token types", self.token_types.len())] {
            if length != 0 && length < size {
                return Err(format!("it has {size} tokens, but only {length} {what}: each token needs one"));
            }
        }
        if let Some(place) = self.scores.iter().position(|score| score.is_nan()) {
            return Err(format!("the score of its token {place} is not a number"));
        }
        for (id, token) in self.tokens.iter_mut().enumerate().filter(|(_, token)| token.is_empty()) {
            *token = format!("[EMPTY_{id}]");
        }
        let special = &mut self.special;
        for id in [
            &mut special.bos,
            &mut special.eos,
            &mut special.eot,
            &mut special.unknown,
            &mut special.separator,
            &mut special.padding,
            &mut special.cls,
            &mut special.mask,
        ] {
            *id = id.filter(|&id| (id as usize) < size);
        }
        Ok(())
    }

    fn token_type(&self, id: usize) -> i32 {
        self.token_types.get(id).copied().unwrap_or(1)
    }

    /// The tokens that are matched in text before it is split: control, unknown and user-defined ones. The last are
    /// special tokens only if they end a text.
    fn added(&self) -> Result<Vec<AddedToken>, String> {
        let (keeps_space, takes_space) = (["<unk>", "<s>", "<|endoftext|>"], self.takes_space_after());
        let mut added = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            let is_special = match self.token_type(id) {
                token_type::CONTROL | token_type::UNKNOWN => true,
                token_type::USER_DEFINED => ends::is_end(token),
                _ => continue,
            };
            let takes_space = takes_space && !keeps_space.contains(&token.as_str());
            added.push(AddedToken::from(token.as_str(), is_special).normalized(false).rstrip(takes_space));
        }
        match added.len() > MOST_ADDED {
            true => Err(format!(
                "it has {} control and user-defined tokens, but can have at most {MOST_ADDED}",
                added.len()
            )),
            false => Ok(added),
        }
    }

    fn takes_space_after(&self) -> bool {
        let name = self.model_name.as_deref().unwrap_or_default().to_lowercase();
        name.contains("phi-3") || name.contains("phi3")
    }

    fn name(&self, id: Option<u32>) -> Option<&str> {
        self.tokens.get(id? as usize).map(String::as_str)
    }

    /// What is put around a text: its beginning and its end, where they are wanted and there.
    fn template(&self, add_bos: bool, add_eos: bool) -> Value {
        let wanted = |id: Option<u32>, add: bool| id.filter(|_| add).and_then(|id| Some((self.name(Some(id))?, id)));
        let (begin, end) = (wanted(self.special.bos, add_bos), wanted(self.special.eos, add_eos));
        if begin.is_none() && end.is_none() {
            return Value::Null;
        }
        let mut tokens = serde_json::Map::new();
        for (name, id) in [begin, end].into_iter().flatten() {
            tokens.insert(name.to_string(), json!({"id": name, "ids": [id], "tokens": [name]}));
        }
        let around = |text: &str, kind: u32| {
            let special = |token: Option<(&str, u32)>| {
                token.map(|(name, _)| json!({"SpecialToken": {"id": name, "type_id": kind}}))
            };
            let text = json!({"Sequence": {"id": text, "type_id": kind}});
            [special(begin), Some(text), special(end)].into_iter().flatten().collect::<Vec<_>>()
        };
        let pair = [around("A", 0), around("B", 1)].concat();
        json!({"type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": tokens})
    }

    /// What a `tokenizer_config.json` would say.
    fn settings(&self, class: Option<Class>, further: &[(&str, Value)]) -> Settings {
        let special = &self.special;
        let roles = [
            ("bos_token", special.bos),
            ("eos_token", special.eos),
            ("unk_token", special.unknown),
            ("sep_token", special.separator),
            ("pad_token", special.padding),
            ("cls_token", special.cls),
            ("mask_token", special.mask),
        ];
        let mut options: Vec<(&str, Value)> =
            roles.into_iter().filter_map(|(role, id)| Some((role, self.name(id)?.into()))).collect();
        match &self.chat_templates[..] {
            [] => {}
            [(_, template)] => options.push(("chat_template", template.as_str().into())),
            templates => {
                let named = templates.iter().map(|(name, template)| json!({"name": name, "template": template}));
                options.push(("chat_template", Value::Array(named.collect())));
            }
        }
        options.extend(further.iter().cloned());
        Settings::of_options(class, &options)
    }
}

/// What the parts of a tokenizer are, and how it differs from the library's.
struct Parts {
    description: Description,
    settings: Settings,
    merges: Option<ScoreMerges>,
    notes: Vec<String>,
}

/// The tokenizer of a stored vocabulary.
pub(super) fn open(mut data: VocabularyData) -> Result<TextTokenizer, TokeniserError> {
    build(&mut data).map_err(TokeniserError::Stored)
}

fn build(data: &mut VocabularyData) -> Result<TextTokenizer, String> {
    data.check()?;
    let parts = match data.model.as_str() {
        "gpt2" => byte_level::parts(data)?,
        "llama" => score_merges::parts(data)?,
        "bert" => word_pieces::parts(data)?,
        other => {
            return Err(format!(
                "its tokenizer is {other:?}, but only \"gpt2\" (byte pairs), \"llama\" (merges by score) and \"bert\" (word \
                 pieces) are supported"
            ));
        }
    };
    let mut tokenizer = open::finish(parts.description, parts.settings, None)?;
    // Indices say more than names: where two tokens have the same name, only one of them is found by it.
    let special = &mut tokenizer.special;
    special.begin = data.special.bos.or(special.begin);
    special.end = data.special.eos.or(special.end);
    special.end_of_turn = data.special.eot.or(special.end_of_turn);
    special.padding = data.special.padding.or(special.padding);
    special.unknown = data.special.unknown.or(special.unknown);
    tokenizer.ends = end_tokens(&tokenizer);
    tokenizer.vocabulary_size = tokenizer.vocabulary_size.max(data.tokens.len());
    tokenizer.score_merges = parts.merges;
    tokenizer.notes = parts.notes;
    Ok(tokenizer)
}
