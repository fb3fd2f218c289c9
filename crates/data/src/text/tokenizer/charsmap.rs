//! Checks a `precompiled_charsmap`, the normalisation of sentencepiece: a trie of UTF-8 bytes whose leaves are places in a text of
//! replacements, each ended by a zero. The library indexes both without looking.
//!
//! The file: the trie's size in bytes (u32), the trie (u32 per node), the replacements. A node has a label (bits 0 to 7 and 31), the
//! offset of its children (bits 10 to 30, and bit 9 for a shift by 8), and whether it is the end of a key (bit 8). Values have bit 31.

/// Unicode's longest decomposition has 33 bytes.
const LONGEST_REPLACEMENT: usize = 64;

/// What `check` says of a map in base64.
pub(super) fn check_base64(text: &str) -> Result<usize, String> {
    check(&decode_base64(text).ok_or("its precompiled_charsmap is not base64")?)
}

/// By how much a text can grow, or what is wrong with the map.
pub(super) fn check(map: &[u8]) -> Result<usize, String> {
    let damaged = || "its precompiled_charsmap is damaged".to_string();
    let (size, rest) = map.split_first_chunk::<4>().ok_or_else(damaged)?;
    let size = u32::from_le_bytes(*size) as usize / 4 * 4;
    let (trie, text) = rest.split_at_checked(size).ok_or_else(damaged)?;
    let text = std::str::from_utf8(text).map_err(|_| damaged())?;
    let trie: Vec<u32> = trie.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    if trie.is_empty() {
        return Err(damaged());
    }
    let mut longest = 1;
    for (place, &node) in trie.iter().enumerate().filter(|(_, node)| *node >> 31 == 0) {
        let offset = ((node >> 10) << ((node & (1 << 9)) >> 6)) as usize;
        let children = place ^ offset;
        // A child is at this place, with its label in the lower eight bits.
        if (children | 0xff) >= trie.len() {
            return Err(damaged());
        }
        if (node >> 8) & 1 == 1 {
            let start = (trie[children] & 0x7fff_ffff) as usize;
            let replacement = text.get(start..).ok_or_else(damaged)?.bytes().take_while(|&byte| byte != 0);
            longest = longest.max(replacement.take(LONGEST_REPLACEMENT + 1).count());
        }
    }
    match longest > LONGEST_REPLACEMENT {
        true => Err(format!("its precompiled_charsmap has a replacement of more than {LONGEST_REPLACEMENT} bytes")),
        false => Ok(longest),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with its padding, as `tokenizer.json` has it.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut values = [u8::MAX; 256];
    ALPHABET.iter().enumerate().for_each(|(value, &letter)| values[usize::from(letter)] = value as u8);
    let body = text.trim_end_matches('=').as_bytes();
    if !text.len().is_multiple_of(4) || text.len() - body.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in body.chunks(4) {
        let mut bits = 0_u32;
        for &letter in group {
            let value = values[usize::from(letter)];
            bits = bits << 6 | u32::from((value != u8::MAX).then_some(value)?);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

/// Base64 with its padding.
pub(super) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for letter in 0..4 {
            match letter <= group.len() {
                true => text.push(char::from(ALPHABET[(bits >> (18 - 6 * letter) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}
