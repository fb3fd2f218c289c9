//! The template of a tokenizer: which special tokens are put around one text and around two.

use serde::Deserialize;

use super::encoding::{Encoding, Sequence, Trim};

/// More special tokens around a text than any model has.
const MOST_PIECES: usize = 64;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// The text with this number.
    Text {
        number: u8,
        token_type: u32,
    },
    Special {
        ids: Vec<u32>,
        token_type: u32,
    },
}

/// What is put around texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    single: Vec<Piece>,
    pair: Vec<Piece>,
    pub(super) trim: Option<Trim>,
}

/// A `post_processor` of a `tokenizer.json`.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum PostProcessor {
    TemplateProcessing {
        single: Vec<JsonPiece>,
        pair: Vec<JsonPiece>,
        special_tokens: std::collections::BTreeMap<String, SpecialToken>,
    },
    BertProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    RobertaProcessing {
        sep: (String, u32),
        cls: (String, u32),
        #[serde(default = "yes")]
        trim_offsets: bool,
        #[serde(default = "yes")]
        add_prefix_space: bool,
    },
    ByteLevel {
        #[serde(default = "yes")]
        trim_offsets: bool,
        #[serde(default = "yes")]
        add_prefix_space: bool,
    },
    Sequence {
        processors: Vec<PostProcessor>,
    },
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
enum JsonPiece {
    Sequence { id: JsonText, type_id: u32 },
    SpecialToken { id: String, type_id: u32 },
}

#[derive(Deserialize)]
enum JsonText {
    A,
    B,
}

#[derive(Deserialize)]
struct SpecialToken {
    ids: Vec<u32>,
}

fn text(number: u8, token_type: u32) -> Piece {
    Piece::Text { number, token_type }
}

fn special(id: u32, token_type: u32) -> Piece {
    Piece::Special { ids: vec![id], token_type }
}

impl Default for Template {
    /// No special tokens.
    fn default() -> Template {
        Template { single: vec![text(0, 0)], pair: vec![text(0, 0), text(1, 1)], trim: None }
    }
}

impl Template {
    /// The template of a `post_processor`, or what is wrong with it.
    pub(super) fn read(value: &serde_json::Value) -> Result<Template, String> {
        let mut template = Template::default();
        if !value.is_null() {
            let parsed = PostProcessor::deserialize(value).map_err(|error| format!("its post_processor: {error}"))?;
            let mut has_tokens = false;
            template.add(parsed, &mut has_tokens)?;
        }
        Ok(template)
    }

    fn add(&mut self, processor: PostProcessor, has_tokens: &mut bool) -> Result<(), String> {
        let trim =
            |trim_offsets: bool, prefix_space| if trim_offsets { Some(Trim { prefix_space }) } else { self.trim };
        let (single, pair) = match processor {
            PostProcessor::ByteLevel { trim_offsets, add_prefix_space } => {
                self.trim = trim(trim_offsets, add_prefix_space);
                return Ok(());
            }
            PostProcessor::Sequence { processors } => {
                return processors.into_iter().try_for_each(|processor| self.add(processor, has_tokens));
            }
            PostProcessor::BertProcessing { sep: (_, sep), cls: (_, cls) } => {
                let pair = vec![special(cls, 0), text(0, 0), special(sep, 0), text(1, 1), special(sep, 1)];
                (pair[..3].to_vec(), pair)
            }
            PostProcessor::RobertaProcessing { sep: (_, sep), cls: (_, cls), trim_offsets, add_prefix_space } => {
                self.trim = trim(trim_offsets, add_prefix_space);
                let first = vec![special(cls, 0), text(0, 0), special(sep, 0)];
                let second = [special(sep, 0), text(1, 0), special(sep, 0)];
                (first.clone(), [&first[..], &second].concat())
            }
            PostProcessor::TemplateProcessing { single, pair, special_tokens } => {
                (pieces(single, &special_tokens)?, pieces(pair, &special_tokens)?)
            }
        };
        if std::mem::replace(has_tokens, true) {
            return Err("its post_processor has two templates, but only one is supported".to_string());
        }
        let texts = |pieces: &[Piece]| {
            pieces
                .iter()
                .filter_map(|piece| if let Piece::Text { number, .. } = piece { Some(*number) } else { None })
                .collect::<Vec<_>>()
        };
        if texts(&single) != [0] || texts(&pair) != [0, 1] {
            return Err("its post_processor must have the first text once in the template of one text, and both in \
                        order in the template of two"
                .to_string());
        }
        (self.single, self.pair) = (single, pair);
        Ok(())
    }

    fn pieces(&self, is_pair: bool) -> &[Piece] {
        if is_pair { &self.pair } else { &self.single }
    }

    /// The number of special tokens around one text, or around two.
    pub(super) fn special_tokens(&self, is_pair: bool) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Text { .. } => 0,
            Piece::Special { ids, .. } => ids.len(),
        };
        self.pieces(is_pair).iter().map(length).sum()
    }

    /// The largest index of a special token.
    pub(super) fn largest_id(&self) -> Option<u32> {
        let ids = |piece: &Piece| match piece {
            Piece::Text { .. } => None,
            Piece::Special { ids, .. } => ids.iter().max().copied(),
        };
        self.single.iter().chain(&self.pair).filter_map(ids).max()
    }

    /// Texts with their special tokens: of each, the tokens in the range.
    pub(super) fn apply(&self, texts: &[(&Sequence, std::ops::Range<usize>)]) -> Encoding {
        let is_pair = texts.len() > 1;
        let length = texts.iter().map(|(_, range)| range.len()).sum::<usize>() + self.special_tokens(is_pair);
        let mut encoding = Encoding::with_capacity(length);
        for piece in self.pieces(is_pair) {
            match piece {
                Piece::Special { ids, token_type } => encoding.push_special(ids, *token_type),
                Piece::Text { number, token_type } => {
                    let (sequence, range) = &texts[usize::from(*number)];
                    encoding.push_sequence(sequence, range.clone(), (*number, *token_type), self.trim);
                }
            }
        }
        encoding
    }
}

fn pieces(
    pieces: Vec<JsonPiece>,
    special_tokens: &std::collections::BTreeMap<String, SpecialToken>,
) -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    let mut length = 0;
    for piece in pieces {
        let piece = match piece {
            JsonPiece::Sequence { id: JsonText::A, type_id } => text(0, type_id),
            JsonPiece::Sequence { id: JsonText::B, type_id } => text(1, type_id),
            JsonPiece::SpecialToken { id, type_id } => {
                let token = special_tokens.get(&id);
                let token = token.ok_or_else(|| {
                    format!("its post_processor puts {id:?} around texts, but does not say which token that is")
                })?;
                length += token.ids.len();
                Piece::Special { ids: token.ids.iter().take(MOST_PIECES).copied().collect(), token_type: type_id }
            }
        };
        length += 1;
        if length > MOST_PIECES {
            return Err(format!("its post_processor puts more than {MOST_PIECES} tokens around a text"));
        }
        found.push(piece);
    }
    Ok(found)
}
