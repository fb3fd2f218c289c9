//! Tokens that are no words, and where they stand in a source and a target.

/// Fills a row up to its length; as a wanted token it counts for nothing (the loss's ignored index).
pub const PADDING: u32 = 0;
/// What a target starts with.
pub const START: u32 = 1;
/// What a source and a target end with.
pub const END: u32 = 2;

/// What the special tokens are called in a vocabulary, by number.
pub const SPECIAL_TOKENS: [&str; 3] = ["<pad>", "<s>", "</s>"];

/// What an encoder reads: the words and the end. So no source is empty, and there is always a place to look at when all is said.
pub fn source_of(words: &[u32]) -> impl Iterator<Item = u32> {
    words.iter().copied().chain([END])
}

/// What a decoder reads while it learns: the start and the words, that is, what is wanted, one place later.
pub fn shifted_target(words: &[u32]) -> impl Iterator<Item = u32> {
    [START].into_iter().chain(words.iter().copied())
}

/// What a decoder should say at each place: the words and the end.
pub fn wanted_target(words: &[u32]) -> impl Iterator<Item = u32> {
    words.iter().copied().chain([END])
}
