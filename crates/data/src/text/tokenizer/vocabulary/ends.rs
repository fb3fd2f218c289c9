//! The tokens with which a model ends what it writes.

use super::TextTokenizer;

/// Names of control and user-defined tokens that end a text or a turn. Vocabularies often name one token as their end and have models end with another
/// one, so that llama.cpp, too, goes by the names.
const ENDS: [&str; 18] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
];

/// Whether a token ends a text, by its name.
pub(super) fn is_end(token: &str) -> bool {
    ENDS.contains(&token)
}

/// The tokens that end a text, in order.
pub(in super::super) fn end_tokens(tokenizer: &TextTokenizer) -> Vec<u32> {
    let added = tokenizer.inner.get_added_vocabulary().get_added_tokens_decoder();
    let named = added.iter().filter(|(_, token)| is_end(&token.content));
    let has = |name: &str| added.values().any(|token| token.content == name);
    // Of models that end with <|return|>, <|end|> ends only a part of an answer.
    let only_parts = has("<|return|>") && has("<|call|>");
    let mut ends: Vec<u32> =
        named.filter(|(_, token)| !(only_parts && token.content == "<|end|>")).map(|(&id, _)| id).collect();
    ends.extend([tokenizer.special.end, tokenizer.special.end_of_turn].into_iter().flatten());
    ends.sort_unstable();
    ends.dedup();
    ends
}
