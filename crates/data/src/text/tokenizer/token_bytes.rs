//! The bytes that a token adds to a text.

use tokenizers::{DecoderWrapper, Model as _};

use super::TextTokenizer;

impl TextTokenizer {
    /// The bytes of a token in the middle of a text, which need not be whole characters; `None` for special tokens, and for numbers that
    /// no token has.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(added) = self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id) {
            return (!added.special).then(|| added.content.as_bytes().to_vec());
        }
        let token = self.inner.get_model().id_to_token(id)?;
        if [self.special.unknown, self.special.begin, self.special.end, self.special.padding].contains(&Some(id)) {
            return None;
        }
        if matches!(self.inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            let bytes: Option<Vec<u8>> = token.chars().map(byte_of_letter).collect();
            return Some(bytes.unwrap_or_else(|| token.into_bytes()));
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

/// The byte of a token such as `<0x0A>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The byte that a letter of byte-level byte pairs stands for: visible letters of Latin-1 are their own, the others follow from `Ā` on.
fn byte_of_letter(letter: char) -> Option<u8> {
    let is_own = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(letter) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(|byte| is_own(*byte)),
        code => (0..=255u8).filter(|byte| !is_own(*byte)).nth(usize::try_from(code.checked_sub(0x100)?).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::VocabularyKind;

    #[test]
    fn letters_of_byte_level_tokens_are_all_bytes_once() {
        let letters = (0u32..0x200).filter_map(char::from_u32);
        let mut bytes: Vec<u8> = letters.filter_map(byte_of_letter).collect();
        bytes.sort_unstable();
        assert!(bytes.into_iter().eq(0..=255));
        assert_eq!([byte_of_letter('Ġ'), byte_of_letter('Ċ'), byte_of_letter('中')], [Some(b' '), Some(b'\n'), None]);
        assert_eq!([fallback_byte("<0x0A>"), fallback_byte("<0x0>"), fallback_byte("<s>")], [Some(10), None, None]);
    }

    #[test]
    fn the_bytes_of_a_text_are_those_of_its_tokens() {
        let text = "The naïve gulls, 11 of them — 中文!\n \"quoted\"";
        let texts = || [text.to_string()].into_iter();
        let tokenizer = TextTokenizer::train(VocabularyKind::Bpe, &mut texts(), 300, false).expect("a tokenizer");
        let ids = tokenizer.encode_plain(text).expect("tokens");
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).expect("text")).collect();
        assert_eq!(std::str::from_utf8(&bytes).expect("text").trim_start(), text);
        let special = tokenizer.special().unknown.or(tokenizer.special().padding).expect("a special token");
        assert_eq!((tokenizer.token_bytes(special), tokenizer.token_bytes(u32::MAX)), (None, None));
    }
}
