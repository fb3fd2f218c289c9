//! Tokenizers of sentencepiece's model files (`spiece.model`, `sentencepiece.bpe.model`), as `transformers` converts them.
//!
//! The file is a protobuf message: field 1 is a piece (1 its text, 2 its score as a float, 3 its type), again and again; field 2 is how
//! it was trained (3 the model's type, 24 whether spaces are suffixes, 35 whether unknown letters become bytes); field 3 is the
//! normalisation (2 the [map of characters](super::charsmap), 3 a space before the text, 4 no spaces beside others, 5 spaces as `▁`).

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use tokenizers::AddedToken;

use super::build::Description;
use super::charsmap;
use super::model::{MOST_TOKENS, Model};
use super::settings::{Class, Settings};
use super::slow::{bert_template, end_template, roberta_template};

/// The types of pieces that are matched in the text before it is split: control tokens such as `<s>`, and those the user defined.
pub(super) const CONTROL: u64 = 3;
pub(super) const USER_DEFINED: u64 = 4;

/// A model file.
#[derive(Default)]
pub(super) struct File<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    /// 1 is unigram, 2 is byte pairs.
    pub(super) model_type: u64,
    pub(super) characters: &'a [u8],
    pub(super) byte_fallback: bool,
    pub(super) space_is_suffix: bool,
    /// Whether a text begins with a space, spaces beside others are dropped, and spaces are written as `▁`: usually all.
    pub(super) no_space_before: bool,
    pub(super) keeps_spaces: bool,
    pub(super) plain_spaces: bool,
}

pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) score: f64,
    pub(super) kind: u64,
}

/// A value of a field.
enum Field<'a> {
    Number(u64),
    Float(f32),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next field; `None` at the end; an error if the message is cut off.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.field().map(Some).ok_or_else(|| "this is not a model of sentencepiece".to_string())
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.number()?;
        let field = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => Field::Bytes(self.bytes(8)?),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                Field::Bytes(self.bytes(length)?)
            }
            5 => Field::Float(f32::from_le_bytes(self.bytes(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

pub(super) fn read(bytes: &[u8]) -> Result<File<'_>, String> {
    let mut file = File { model_type: 1, ..File::default() };
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => {
                file.pieces.push(piece(bytes)?);
                if file.pieces.len() > MOST_TOKENS as usize {
                    return Err(format!("it has more than {MOST_TOKENS} pieces"));
                }
            }
            (2, Field::Bytes(bytes)) => {
                let mut message = Message(bytes);
                while let Some((number, field)) = message.next()? {
                    match (number, field) {
                        (3, Field::Number(value)) => file.model_type = value,
                        (24, Field::Number(value)) => file.space_is_suffix = value != 0,
                        (35, Field::Number(value)) => file.byte_fallback = value != 0,
                        _ => {}
                    }
                }
            }
            (3, Field::Bytes(bytes)) => {
                let mut message = Message(bytes);
                while let Some((number, field)) = message.next()? {
                    match (number, field) {
                        (2, Field::Bytes(bytes)) => file.characters = bytes,
                        (3, Field::Number(value)) => file.no_space_before = value == 0,
                        (4, Field::Number(value)) => file.keeps_spaces = value == 0,
                        (5, Field::Number(value)) => file.plain_spaces = value == 0,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if file.pieces.is_empty() {
        return Err("this is not a model of sentencepiece: it has no pieces".to_string());
    }
    Ok(file)
}

fn piece(bytes: &[u8]) -> Result<Piece<'_>, String> {
    let mut piece = Piece { text: "", score: 0.0, kind: 1 };
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match (number, field) {
            (1, Field::Bytes(text)) => {
                piece.text = std::str::from_utf8(text).map_err(|_| "a piece of it is not UTF-8")?;
            }
            (2, Field::Float(score)) => piece.score = f64::from(score),
            (3, Field::Number(kind)) => piece.kind = kind,
            _ => {}
        }
    }
    Ok(piece)
}

/// The tokenizer of a model file for one of the classes that have such files.
pub(super) fn describe(bytes: &[u8], settings: &Settings, class: Class) -> Result<Description, String> {
    let file = read(bytes)?;
    // transformers reads the pieces of these classes as a unigram model, whatever the file says.
    if !matches!(file.model_type, 1 | 2) {
        return Err("it is a model of words or characters, but must be one of unigrams or byte pairs".to_string());
    }
    let name = |role: &str| settings.special_name(role).unwrap_or_default();
    let own = |skipped: usize| file.pieces.iter().skip(skipped).map(|piece| (piece.text.to_string(), piece.score));
    let special = |names: &[(String, f64)], skipped: usize| {
        let mask = (name("mask_token"), 0.0);
        names.iter().cloned().chain(own(skipped)).chain([mask]).collect::<Vec<_>>()
    };
    let (pieces, unknown) = match class {
        Class::XlmRoberta => {
            let names = ["bos_token", "pad_token", "eos_token", "unk_token"].map(|role| (name(role), 0.0));
            (special(&names, 3), 3)
        }
        Class::Camembert => {
            let unused = |name: &str, score: f64| (format!("{name}NOTUSED"), score);
            let names = [
                unused("<s>", 0.0),
                (name("pad_token"), 0.0),
                unused("</s>", 0.0),
                (name("unk_token"), 0.0),
                unused("<unk>", -100.0),
            ];
            let pieces = special(&names, 1);
            let unknown = pieces.iter().position(|piece| piece.0 == name("unk_token")).unwrap_or(0);
            (pieces, unknown)
        }
        Class::Siglip => {
            let pieces: Vec<(String, f64)> = own(0).collect();
            let unknown = pieces.iter().position(|piece| piece.0 == name("unk_token")).unwrap_or(0);
            (pieces, unknown)
        }
        _ => (own(0).collect(), 1),
    };
    let places: HashMap<&str, u32> = pieces.iter().zip(0..).map(|((name, _), id)| (name.as_str(), id)).collect();
    let id = |name: &str| {
        let id = places.get(name).copied();
        id.ok_or_else(|| format!("its vocabulary has no token {name:?}, which the template of the model needs"))
    };
    let (first, separator) = match class {
        Class::XlmRoberta | Class::Camembert | Class::Siglip => (name("bos_token"), name("eos_token")),
        _ => (name("cls_token"), name("sep_token")),
    };
    let post_processor = match class {
        Class::Siglip => end_template((&separator, id(&separator)?)),
        Class::XlmRoberta | Class::Camembert => roberta_template((&first, id(&first)?), (&separator, id(&separator)?)),
        _ => bert_template((&first, id(&first)?), (&separator, id(&separator)?)),
    };
    let scheme = if settings.flag("add_prefix_space").unwrap_or(true) { "always" } else { "never" };
    let space = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    let mut names = HashSet::new();
    // SigLIP's class matches its own special tokens alone: others lose their punctuation, as any text does.
    let is_matched = |piece: &&Piece| match class {
        Class::Siglip => [name("eos_token"), name("unk_token")].iter().any(|special| special == piece.text),
        _ => matches!(piece.kind, CONTROL | USER_DEFINED),
    };
    let matched = file.pieces.iter().filter(is_matched);
    let added = matched.filter(|piece| !piece.text.is_empty() && names.insert(piece.text));
    let added = added.map(|piece| AddedToken::from(piece.text, piece.kind == CONTROL).normalized(false)).collect();
    Ok(Description {
        normalizer: normalizer(&file, settings, class),
        model: Model::Unigram { pieces, unknown: Some(unknown), byte_fallback: false },
        added,
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}),
        post_processor,
        decoder: space,
    })
}

fn normalizer(file: &File<'_>, settings: &Settings, class: Class) -> Value {
    let characters = json!({
        "type": "Precompiled",
        "precompiled_charsmap": charsmap::encode_base64(file.characters),
    });
    if class == Class::Siglip {
        // `canonicalize_text` of the class: small letters, no punctuation, single spaces.
        let replace =
            |pattern: &str, by: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": by});
        let mut normalizers = vec![
            replace(r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"##, ""),
            // The class puts a space in front of the text, which stays a token of its own before others.
            replace(r"^\s+(?=\S)", "▁ "),
            replace(r"\s+", " "),
            json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        ];
        if settings.flag("do_lower_case").unwrap_or(true) {
            normalizers.insert(0, json!({"type": "Lowercase"}));
        }
        if !file.characters.is_empty() {
            normalizers.push(characters);
        }
        return json!({"type": "Sequence", "normalizers": normalizers});
    }
    if class != Class::Albert {
        return if file.characters.is_empty() { Value::Null } else { characters };
    }
    let replace = |text: &str| json!({"type": "Replace", "pattern": {"String": text}, "content": "\""});
    let mut normalizers = vec![replace("``"), replace("''")];
    if !settings.flag("keep_accents").unwrap_or(false) {
        normalizers.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
    }
    if settings.flag("do_lower_case").unwrap_or(true) {
        normalizers.push(json!({"type": "Lowercase"}));
    }
    if !file.characters.is_empty() {
        normalizers.push(characters);
    }
    json!({"type": "Sequence", "normalizers": normalizers})
}
