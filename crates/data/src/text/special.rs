//! Special tokens, and their positions in source and target.

/// Padding, which the loss ignores.
pub const PADDING: u32 = 0;
/// The start of a target.
pub const START: u32 = 1;
/// The end of a source and of a target.
pub const END: u32 = 2;

/// The special tokens in a vocabulary, by index.
pub const SPECIAL_TOKENS: [&str; 3] = ["<pad>", "<s>", "</s>"];

/// The encoder's input: the tokens and the end. So no source is empty, and attention always has a position to go to.
pub fn source_of(words: &[u32]) -> impl Iterator<Item = u32> {
    words.iter().copied().chain([END])
}

/// The decoder's input in training: the start and the tokens, which is the wanted output, shifted by one position.
pub fn shifted_target(words: &[u32]) -> impl Iterator<Item = u32> {
    [START].into_iter().chain(words.iter().copied())
}

/// The wanted output of the decoder at each position: the tokens and the end.
pub fn wanted_target(words: &[u32]) -> impl Iterator<Item = u32> {
    words.iter().copied().chain([END])
}
