//! SentencePiece's unigram models, as its own library encodes with them: a text becomes the pieces whose sum of scores is largest.
//!
//! `transformers` converts such files to `tokenizers`, which splits text at spaces first and differs where spaces are rare; here ids are
//! those of `sentencepiece` itself.

mod normalise;
mod trie;

use std::path::Path;

use vitreous_files::open::read_bounded;

use super::files::MOST_FILE_BYTES;
use super::sentencepiece::{self, CONTROL, USER_DEFINED};
use crate::text::TokeniserError;
use normalise::{Normaliser, SPACE};
use trie::Trie;

/// Types of pieces beside those that are matched before all others.
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;
/// How much less than the least likely piece an unknown letter counts.
const UNKNOWN_PENALTY: f32 = 10.0;
/// What an unknown piece is shown as.
const UNKNOWN_TEXT: &str = " \u{2047} ";

/// A unigram model of SentencePiece.
#[derive(Clone, Debug)]
pub struct SentencePieces {
    pieces: Vec<OwnedPiece>,
    trie: Trie,
    normaliser: Normaliser,
    unknown: u32,
    /// The piece of each byte, if unknown letters become bytes.
    bytes: Option<Vec<u32>>,
    least: f32,
    largest: f32,
}

#[derive(Clone, Debug)]
struct OwnedPiece {
    text: String,
    score: f32,
    kind: u64,
}

/// The best way to a place in a text.
#[derive(Clone, Copy)]
struct Way {
    score: f32,
    piece: u32,
    from: Option<usize>,
}

impl SentencePieces {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<SentencePieces, TokeniserError> {
        let failed = |error| TokeniserError::Io { path: path.to_path_buf(), error };
        let bytes = read_bounded(path, MOST_FILE_BYTES).map_err(failed)?;
        let damaged = |reason: String| TokeniserError::Damaged { path: path.to_path_buf(), reason };
        SentencePieces::read(&bytes).map_err(damaged)
    }

    /// Reads the bytes of a file.
    pub fn read(bytes: &[u8]) -> Result<SentencePieces, String> {
        let file = sentencepiece::read(bytes)?;
        if file.model_type != 1 {
            return Err("it is no unigram model: only those are read here".to_string());
        }
        if let Some(piece) = file.pieces.iter().find(|piece| !(piece.score as f32).is_finite()) {
            return Err(format!("its piece {:?} has a score that is no number", piece.text));
        }
        let unknown = file.pieces.iter().position(|piece| piece.kind == UNKNOWN);
        let unknown = unknown.ok_or("it has no piece for what is unknown")? as u32;
        let of_kind = |kinds: &'static [u64]| {
            let pieces = file.pieces.iter().zip(0..).filter(|(piece, _)| kinds.contains(&piece.kind));
            pieces.map(|(piece, id)| (piece.text.as_bytes(), id)).collect::<Vec<(&[u8], u32)>>()
        };
        let scores = || file.pieces.iter().filter(|piece| piece.kind == NORMAL).map(|piece| piece.score as f32);
        let bytes = match file.byte_fallback {
            true => Some(byte_pieces(&of_kind(&[BYTE]))?),
            false => None,
        };
        let kept = Trie::new(of_kind(&[USER_DEFINED]));
        Ok(SentencePieces {
            trie: Trie::new(of_kind(&[NORMAL, USER_DEFINED, UNUSED])),
            normaliser: Normaliser::new(&file, kept)?,
            unknown,
            bytes,
            least: scores().reduce(f32::min).unwrap_or_default(),
            largest: scores().fold(f32::MIN_POSITIVE, f32::max),
            pieces: file
                .pieces
                .iter()
                .map(|piece| OwnedPiece { text: piece.text.to_string(), score: piece.score as f32, kind: piece.kind })
                .collect(),
        })
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether it has no pieces; a file has some.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The piece for what is unknown.
    pub fn unknown(&self) -> u32 {
        self.unknown
    }

    /// A piece as the file has it.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(|piece| piece.text.as_str())
    }

    /// The number of a piece.
    pub fn id(&self, piece: &str) -> Option<u32> {
        self.pieces.iter().position(|known| known.text == piece).map(|id| id as u32)
    }

    /// The pieces of a text.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        for (id, part) in self.split(&self.normaliser.normalise(text)) {
            match (&self.bytes, id == self.unknown) {
                (Some(bytes), true) => ids.extend(part.bytes().map(|byte| bytes[usize::from(byte)])),
                // Unknown letters beside each other are one piece.
                (None, true) if ids.last() == Some(&self.unknown) => {}
                _ => ids.push(id),
            }
        }
        ids
    }

    /// The pieces of a text as text, as a vocabulary of another program numbers them.
    pub fn encode_pieces(&self, text: &str) -> Vec<String> {
        let normalised = self.normaliser.normalise(text);
        let mut pieces: Vec<(bool, String)> = Vec::new();
        for (id, part) in self.split(&normalised) {
            let is_unknown = id == self.unknown;
            match pieces.last_mut() {
                Some((true, last)) if is_unknown => last.push_str(part),
                _ => pieces.push((is_unknown, part.to_string())),
            }
        }
        pieces.into_iter().map(|(_, piece)| piece).collect()
    }

    /// The best way through a normalised text.
    fn split<'t>(&self, text: &'t str) -> Vec<(u32, &'t str)> {
        let bytes = text.as_bytes();
        let none = Way { score: 0.0, piece: self.unknown, from: None };
        let mut ways = vec![none; bytes.len() + 1];
        let unknown_score = self.least - UNKNOWN_PENALTY;
        let reach = |ways: &mut [Way], from: usize, to: usize, piece: u32, score: f32| {
            let score = score + ways[from].score;
            if ways[to].from.is_none() || score > ways[to].score {
                ways[to] = Way { score, piece, from: Some(from) };
            }
        };
        for (start, letter) in text.char_indices() {
            let mut has_letter = false;
            for (length, id) in self.trie.prefixes(&bytes[start..]) {
                let piece = &self.pieces[id as usize];
                let score = match piece.kind {
                    UNUSED => continue,
                    // What the user defined always wins.
                    USER_DEFINED => length as f32 * self.largest - 0.1,
                    _ => piece.score,
                };
                reach(&mut ways, start, start + length, id, score);
                has_letter |= length == letter.len_utf8();
            }
            if !has_letter {
                reach(&mut ways, start, start + letter.len_utf8(), self.unknown, unknown_score);
            }
        }
        let mut found = Vec::new();
        let mut end = bytes.len();
        while let Some(from) = ways[end].from {
            found.push((ways[end].piece, text.get(from..end).unwrap_or_default()));
            end = from;
        }
        found.reverse();
        found
    }

    /// The text of pieces. Control pieces and numbers outside of the vocabulary are skipped; bytes that are no UTF-8 become `\u{fffd}`.
    pub fn decode(&self, ids: &[u32]) -> String {
        let known = ids.iter().filter_map(|&id| self.pieces.get(id as usize));
        let shown = known.filter(|piece| piece.kind != CONTROL).map(|piece| match piece.kind {
            UNKNOWN => Shown::Text(UNKNOWN_TEXT.to_string()),
            BYTE => byte_of(&piece.text).map_or(Shown::Text(String::new()), Shown::Byte),
            _ => Shown::Text(piece.text.clone()),
        });
        self.join(shown)
    }

    /// The text of pieces that are given as text.
    pub fn decode_pieces<'p>(&self, pieces: impl Iterator<Item = &'p str>) -> String {
        self.join(pieces.map(|piece| Shown::Text(piece.to_string())))
    }

    fn join(&self, pieces: impl Iterator<Item = Shown>) -> String {
        let mut bytes = Vec::new();
        // The space before a text, and all there are where spaces beside others are dropped, are not part of it.
        let mut is_first = self.normaliser.space_before || self.normaliser.drops_spaces;
        for piece in pieces {
            match piece {
                Shown::Byte(byte) => bytes.push(byte),
                Shown::Text(text) => {
                    let own = text.strip_prefix(SPACE).filter(|_| is_first);
                    is_first &= own.is_none() || self.normaliser.drops_spaces;
                    bytes.extend_from_slice(own.unwrap_or(&text).replace(SPACE, " ").as_bytes());
                }
            }
            is_first &= bytes.is_empty();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

enum Shown {
    Text(String),
    Byte(u8),
}

/// The byte of a piece such as `<0x0A>`.
fn byte_of(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// The piece of each byte.
fn byte_pieces(pieces: &[(&[u8], u32)]) -> Result<Vec<u32>, String> {
    let mut ids = vec![None; 256];
    for (text, id) in pieces {
        if let Some(byte) = std::str::from_utf8(text).ok().and_then(byte_of) {
            ids[usize::from(byte)] = Some(*id);
        }
    }
    let all: Option<Vec<u32>> = ids.into_iter().collect();
    all.ok_or_else(|| "it turns unknown letters into bytes, but does not have a piece for each byte".to_string())
}

#[cfg(test)]
mod tests;
