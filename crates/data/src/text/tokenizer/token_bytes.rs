//! The bytes that a token adds to a text.

use tokenizers::Model as _;

use super::TextTokenizer;
use super::stream::{Decoding, fallback_byte, push_byte_level};

impl TextTokenizer {
    /// The bytes of a token in the middle of a text, which need not be whole characters; `None` for special tokens, and for numbers that
    /// no token has.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(added) = self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id) {
            return (!added.special).then(|| added.content.as_bytes().to_vec());
        }
        let token = self.inner.get_model().id_to_token(id)?;
        let special = [self.special.unknown, self.special.begin, self.special.end, self.special.padding];
        if special.contains(&Some(id)) {
            return None;
        }
        if self.decoding == Decoding::ByteLevel {
            let mut bytes = Vec::with_capacity(token.len());
            push_byte_level(&token, &mut bytes);
            return Some(bytes);
        }
        if let Some(byte) = fallback_byte(&token) {
            return Some(vec![byte]);
        }
        match self.continuing_prefix() {
            // A word begins behind a space; a piece that goes on with one does not.
            Some(prefix) => Some(match token.strip_prefix(prefix) {
                Some(rest) => rest.as_bytes().to_vec(),
                None => format!(" {token}").into_bytes(),
            }),
            None => Some(token.replace('▁', " ").replace("</w>", " ").into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::VocabularyKind;

    #[test]
    fn the_bytes_of_a_text_are_those_of_its_tokens() {
        let text = "The naïve gulls, 11 of them — 中文!\n \"quoted\"";
        let texts = || [text.to_string()].into_iter();
        for kind in [VocabularyKind::Bpe, VocabularyKind::Unigram] {
            let tokenizer = TextTokenizer::train(kind, &mut texts(), 300, false).expect("a tokenizer");
            let ids = tokenizer.encode_plain(text).expect("tokens");
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).expect("text")).collect();
            let expected = tokenizer.decode(&ids, true).expect("text");
            assert_eq!(std::str::from_utf8(&bytes).expect("text").trim_start(), expected.trim_start(), "{kind:?}");
            let special = tokenizer.special().unknown.or(tokenizer.special().padding).expect("a special token");
            assert_eq!((tokenizer.token_bytes(special), tokenizer.token_bytes(u32::MAX)), (None, None));
        }
    }
}
