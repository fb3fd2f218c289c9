//! Constraints on what may be written: a grammar, a JSON schema, a regular expression, over tokens.

/// What the tokens of one sequence must obey. Each sequence has a constraint of its own, which follows it from its first written token
/// on; the prompt is not shown to it.
pub trait TokenConstraint: Send {
    /// Allows the tokens that may come next, in a mask that allows none yet. Tokens that end a text need not be considered:
    /// [`TokenConstraint::may_end`] decides on them.
    fn allowed(&mut self, mask: &mut TokenMask);

    /// Takes the token that was chosen: one of those that it allowed last, and none that ends a text.
    fn accept(&mut self, token: u32);

    /// Whether the text may end here. Where it may, and no token is allowed, it does.
    fn may_end(&self) -> bool;
}

/// A set of tokens of a vocabulary, one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u64>,
    vocabulary: usize,
}

impl TokenMask {
    /// The empty set, for a vocabulary of this size.
    pub fn new(vocabulary: usize) -> TokenMask {
        TokenMask { words: vec![0; vocabulary.div_ceil(64)], vocabulary }
    }

    /// Size of the vocabulary: tokens beyond it are never allowed.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Allows a token.
    pub fn allow(&mut self, token: u32) {
        let token = token as usize;
        if token < self.vocabulary {
            self.words[token / 64] |= 1 << (token % 64);
        }
    }

    /// Allows what another set of the same vocabulary allows.
    pub fn allow_all_of(&mut self, other: &TokenMask) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Forbids a token.
    pub fn forbid(&mut self, token: u32) {
        let token = token as usize;
        if token < self.vocabulary {
            self.words[token / 64] &= !(1 << (token % 64));
        }
    }

    /// Whether a token is allowed.
    pub fn allows(&self, token: u32) -> bool {
        let token = token as usize;
        token < self.vocabulary && self.words[token / 64] >> (token % 64) & 1 == 1
    }

    /// Allows none any more.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Whether no token is allowed.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// How many tokens are allowed.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The allowed tokens, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| (index * 64 + bit) as u32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_the_tokens_that_were_allowed() {
        let mut mask = TokenMask::new(130);
        assert!(mask.is_empty());
        [0, 63, 64, 129, 130, u32::MAX].into_iter().for_each(|token| mask.allow(token));
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!((mask.len(), mask.allows(129), mask.allows(130), mask.allows(1)), (4, true, false, false));
        let mut other = TokenMask::new(130);
        other.allow(7);
        other.allow_all_of(&mask);
        other.forbid(63);
        assert_eq!(other.iter().collect::<Vec<_>>(), [0, 7, 64, 129]);
        other.clear();
        assert!(other.is_empty());
    }
}
