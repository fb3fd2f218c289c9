//! A vocabulary as the byte strings of its tokens.

use std::sync::Arc;

use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use super::FormatError;

/// Longer tokens are never written: none is as long in practice.
const MOST_TOKEN_BYTES: usize = 512;
/// What the trie marks special tokens with; no UTF-8 has such a byte.
const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// The bytes of every token of a vocabulary.
#[derive(Clone, Debug, Default)]
pub struct TokenBytes {
    tokens: Vec<Vec<u8>>,
}

impl TokenBytes {
    /// Of tokens by their index: what they are in the middle of a text; `None` for special tokens and those that are not used.
    pub fn new(tokens: impl IntoIterator<Item = Option<Vec<u8>>>) -> TokenBytes {
        let bytes = |token: Option<Vec<u8>>| {
            token.filter(|bytes| bytes.len() <= MOST_TOKEN_BYTES && !bytes.contains(&MARK)).unwrap_or_default()
        };
        TokenBytes { tokens: tokens.into_iter().map(bytes).collect() }
    }

    /// The trie of all tokens, and one more that stands for the end.
    pub(super) fn environment(&self) -> Result<TokEnv, FormatError> {
        if self.tokens.iter().all(Vec::is_empty) {
            return Err(FormatError("the vocabulary has no tokens that are text".to_string()));
        }
        let mut words = self.tokens.clone();
        words.push([&[MARK][..], b"<end>"].concat());
        let size = u32::try_from(words.len()).map_err(|_| FormatError("the vocabulary is too large".to_string()))?;
        let trie = TokTrie::from(&TokRxInfo::new(size, size - 1), &words);
        Ok(Arc::new(ApproximateTokEnv::new(trie)))
    }
}
