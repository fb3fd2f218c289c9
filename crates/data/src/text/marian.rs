//! Marian's tokenizer: a file of pieces for each side, whose numbers are another file's: one for both sides, or one each.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::TokeniserError;
use super::pair_tokenizer::{PairSide, read_json};
use super::tokenizer::SentencePieces;

/// The code of a language in its token: `fr` of `>>fr<<`.
fn language_of(token: &str) -> Option<&str> {
    token.strip_prefix(">>")?.strip_suffix("<<")
}

/// The pieces of both sides and their numbers.
#[derive(Clone, Debug)]
pub(super) struct MarianPieces {
    source: SentencePieces,
    target: SentencePieces,
    /// The numbers of the source's pieces.
    numbers: Numbers,
    /// Those of the target's, if they are others.
    of_target: Option<Numbers>,
}

/// The pieces by number, and the numbers by piece.
#[derive(Clone, Debug)]
struct Numbers {
    names: Vec<String>,
    ids: HashMap<String, u32>,
    unknown: u32,
}

impl MarianPieces {
    /// Opens a directory's files; `is_separate` if the target has numbers of its own.
    pub fn open(directory: &Path, is_separate: bool) -> Result<MarianPieces, TokeniserError> {
        Ok(MarianPieces {
            numbers: Numbers::open(directory, "vocab.json")?,
            of_target: is_separate.then(|| Numbers::open(directory, "target_vocab.json")).transpose()?,
            source: SentencePieces::open(&directory.join("source.spm"))?,
            target: SentencePieces::open(&directory.join("target.spm"))?,
        })
    }

    /// The numbers of a side.
    fn numbers(&self, side: PairSide) -> &Numbers {
        match (side, &self.of_target) {
            (PairSide::Target, Some(own)) => own,
            _ => &self.numbers,
        }
    }

    /// The tokens of a text. A language that it begins with, as in `>>fr<< Hello`, is a token.
    pub fn encode(&self, side: PairSide, text: &str) -> Vec<u32> {
        let numbers = self.numbers(side);
        let id = |piece: &str| numbers.ids.get(piece).copied().unwrap_or(numbers.unknown);
        let behind = if text.starts_with(">>") { text.find("<<").map(|place| place + 2) } else { None };
        let (language, text) = text.split_at(behind.unwrap_or(0));
        let pieces = if side == PairSide::Source { &self.source } else { &self.target };
        let pieces = pieces.encode_pieces(text);
        Some(language)
            .filter(|code| !code.is_empty())
            .map(id)
            .into_iter()
            .chain(pieces.iter().map(|piece| id(piece)))
            .collect()
    }

    /// The text of a target's tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        let is_special = |name: &str| matches!(name, "</s>" | "<pad>" | "<unk>") || language_of(name).is_some();
        let shown = |id: &u32| self.name(PairSide::Target, *id).filter(|name| !is_special(name));
        self.target.decode_pieces(ids.iter().filter_map(shown)).trim_end().to_string()
    }

    /// A token as the vocabulary has it.
    pub fn name(&self, side: PairSide, id: u32) -> Option<&str> {
        self.numbers(side).names.get(id as usize).map(String::as_str)
    }

    /// The number of a token of sources.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.numbers.ids.get(name).copied()
    }

    /// The codes of the languages that sources can begin with, and their tokens.
    pub fn languages(&self) -> Vec<(String, u32)> {
        let languages = self.numbers.names.iter().zip(0..);
        languages.filter_map(|(name, id)| Some((language_of(name)?.to_string(), id))).collect()
    }

    /// Number of tokens of a side.
    pub fn size(&self, side: PairSide) -> usize {
        self.numbers(side).names.len()
    }

    /// Whether the target's numbers are others than the source's.
    pub fn is_separate(&self) -> bool {
        self.of_target.is_some()
    }
}

impl Numbers {
    fn open(directory: &Path, name: &str) -> Result<Numbers, TokeniserError> {
        let path = directory.join(name);
        let damaged = |reason: String| TokeniserError::Damaged { path: path.clone(), reason };
        let object = match read_json(&path)? {
            Value::Object(object) => object,
            Value::Null => {
                return Err(damaged(
                    "there is no such file, but tokenizer_config.json says `separate_vocabs`".to_string(),
                ));
            }
            _ => return Err(damaged("this is not a JSON object of tokens and their numbers".to_string())),
        };
        let mut names = vec![None; object.len()];
        for (name, id) in &object {
            let place = id.as_u64().and_then(|id| names.get_mut(usize::try_from(id).ok()?));
            match place {
                Some(place @ None) => *place = Some(name.clone()),
                _ => return Err(damaged(format!("{name:?} has the number {id}: numbers must be from 0, each once"))),
            }
        }
        let names: Vec<String> = names.into_iter().flatten().collect();
        let ids: HashMap<String, u32> = names.iter().cloned().zip(0..).collect();
        let unknown = *ids.get("<unk>").ok_or_else(|| damaged("there is no <unk>".to_string()))?;
        Ok(Numbers { names, ids, unknown })
    }
}
