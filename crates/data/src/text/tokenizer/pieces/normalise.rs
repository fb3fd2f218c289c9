//! SentencePiece's normalisation: characters replaced by a map (usually NFKC), spaces beside others dropped, spaces written as `▁`.

use super::super::charsmap;
use super::super::sentencepiece::File;
use super::trie::Trie;

/// What a space is written as.
pub(super) const SPACE: &str = "\u{2581}";

/// A model's normalisation.
#[derive(Clone, Debug)]
pub(super) struct Normaliser {
    /// The map: a trie in an array (see [`charsmap`]), and what it leads to.
    trie: Vec<u32>,
    replacements: String,
    /// Symbols that the user defined, which stay as they are.
    kept: Trie,
    pub(super) space_before: bool,
    pub(super) drops_spaces: bool,
    escapes_spaces: bool,
    space_is_suffix: bool,
}

impl Normaliser {
    pub(super) fn new(file: &File, kept: Trie) -> Result<Normaliser, String> {
        let (mut trie, mut replacements) = (Vec::new(), String::new());
        if !file.characters.is_empty() {
            charsmap::check(file.characters)?;
            let (size, rest) = file.characters.split_first_chunk::<4>().ok_or("its map of characters is cut")?;
            let size = u32::from_le_bytes(*size) as usize / 4 * 4;
            let (nodes, text) = rest.split_at_checked(size).ok_or("its map of characters is cut")?;
            trie = nodes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            replacements = String::from_utf8_lossy(text).into_owned();
        }
        Ok(Normaliser {
            trie,
            replacements,
            kept,
            space_before: !file.no_space_before,
            drops_spaces: !file.keeps_spaces,
            escapes_spaces: !file.plain_spaces,
            space_is_suffix: file.space_is_suffix,
        })
    }

    /// A text as the pieces are looked up in it.
    pub(super) fn normalise(&self, text: &str) -> String {
        let mut rest = text;
        if self.drops_spaces {
            while let Some((" ", length)) = self.prefix(rest) {
                rest = &rest[length..];
            }
        }
        let mut out = String::with_capacity(rest.len() * 3 / 2 + SPACE.len());
        if rest.is_empty() {
            return out;
        }
        let space = if self.escapes_spaces { SPACE } else { " " };
        if self.space_before && !self.space_is_suffix {
            out.push_str(space);
        }
        let mut is_behind_space = self.drops_spaces;
        while let Some((replaced, length)) = self.prefix(rest) {
            let piece = if is_behind_space { replaced.trim_start_matches(' ') } else { replaced };
            if !piece.is_empty() {
                piece.split_inclusive(' ').for_each(|part| match part.strip_suffix(' ') {
                    Some(before) => {
                        out.push_str(before);
                        out.push_str(space);
                    }
                    None => out.push_str(part),
                });
                is_behind_space = piece.ends_with(' ');
            }
            is_behind_space &= self.drops_spaces;
            rest = &rest[length..];
        }
        if self.drops_spaces {
            while out.ends_with(space) {
                out.truncate(out.len() - space.len());
            }
        }
        if self.space_before && self.space_is_suffix {
            out.push_str(space);
        }
        out
    }

    /// What the beginning of a text becomes, and how many of its bytes that is; `None` at its end.
    fn prefix<'t>(&'t self, text: &'t str) -> Option<(&'t str, usize)> {
        let letter = text.chars().next()?.len_utf8();
        if let Some((length, _)) = self.kept.prefixes(text.as_bytes()).last() {
            return Some((text.get(..length)?, length));
        }
        let found = self.longest(text.as_bytes());
        // A key of the map that ends inside of a letter is none of text.
        match found.filter(|(length, _)| text.is_char_boundary(*length)) {
            Some((length, start)) => {
                let all = self.replacements.get(start..).unwrap_or_default();
                Some((all.split('\0').next().unwrap_or_default(), length))
            }
            None => Some((&text[..letter], letter)),
        }
    }

    /// The longest key of the map that a text begins with: its length, and the place of its replacement.
    fn longest(&self, text: &[u8]) -> Option<(usize, usize)> {
        let offset = |node: u32| ((node >> 10) << ((node & (1 << 9)) >> 6)) as usize;
        let mut place = offset(*self.trie.first()?);
        let mut found = None;
        for (index, &byte) in text.iter().enumerate() {
            if byte == 0 {
                break;
            }
            place ^= usize::from(byte);
            let Some(&node) = self.trie.get(place) else { break };
            if node & 0x8000_00ff != u32::from(byte) {
                break;
            }
            place ^= offset(node);
            if (node >> 8) & 1 == 1 {
                let value = self.trie.get(place).map_or(0, |value| value & 0x7fff_ffff);
                found = Some((index + 1, value as usize));
            }
        }
        found
    }
}
