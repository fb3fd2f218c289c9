//! llama2.c's `tokenizer.bin`: sentencepiece's tokens and scores, with `▁` written as a space.

use super::super::model::MOST_TOKENS;
use super::{VocabularyData, VocabularySpecial};

const UNKNOWN: u32 = 0;
const BEGIN: u32 = 1;
const END: u32 = 2;

/// The first bytes of a list, which they are taken from.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

pub(super) fn read(bytes: &[u8]) -> Result<VocabularyData, String> {
    let mut rest = bytes;
    let not_one = || "this is not a tokenizer.bin of llama2.c".to_string();
    let longest = take(&mut rest).map(i32::from_le_bytes).and_then(|longest| usize::try_from(longest).ok());
    let longest = longest.ok_or_else(not_one)?;
    let mut data = VocabularyData { model: "llama".to_string(), ..VocabularyData::default() };
    while !rest.is_empty() {
        let place = data.tokens.len();
        let cut_off =
            || format!("this is not a tokenizer.bin of llama2.c, or it is cut off: token {place} is not whole");
        if place == MOST_TOKENS as usize {
            return Err(format!("it has more than {MOST_TOKENS} tokens"));
        }
        let score = take(&mut rest).map(f32::from_le_bytes).ok_or_else(cut_off)?;
        let length = take(&mut rest).map(i32::from_le_bytes).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= longest).ok_or_else(cut_off)?;
        let (token, after) = rest.split_at_checked(length).ok_or_else(cut_off)?;
        rest = after;
        let token = std::str::from_utf8(token).map_err(|_| format!("its token {place} is not UTF-8"))?;
        data.scores.push(score);
        // The program prints these two on lines of their own.
        data.tokens.push(match token {
            "\n<s>\n" => "<s>".to_string(),
            "\n</s>\n" => "</s>".to_string(),
            token => token.replace(' ', "▁"),
        });
        data.token_types.push(kind(place, &data.tokens[place]));
    }
    if data.tokens.is_empty() {
        return Err(not_one());
    }
    data.special =
        VocabularySpecial { bos: Some(BEGIN), eos: Some(END), unknown: Some(UNKNOWN), ..VocabularySpecial::default() };
    Ok(data)
}

/// The first three tokens are special, and those after them are bytes.
fn kind(place: usize, token: &str) -> i32 {
    match place {
        0 => 2,
        1 | 2 => 3,
        3..259 if token.starts_with("<0x") => 6,
        _ => 1,
    }
}
