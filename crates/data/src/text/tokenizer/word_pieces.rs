//! A fast way through BERT's tokenizer for the text that most of it is: words of ASCII.
//!
//! The library keeps, for every byte of a text, where it came from, through each step; that takes most of its time. Here the parts of a
//! text between spaces are looked at one by one. No step of BERT's tokenizer looks beyond a space, so that a part of printable ASCII can
//! be split and looked up at once, with the same result, while the library gets the others.

use tokenizers::models::bpe::Vocab;
use tokenizers::{Model as _, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use super::encoding::Sequence;

/// With more added tokens than this, looking for each of them in a text is not fast.
const MOST_ADDED: usize = 64;

/// What is needed for words of ASCII.
#[derive(Clone)]
pub(super) struct WordPieces {
    /// Tokens that begin a word.
    begin: Vocab,
    /// Tokens inside of words, without their prefix.
    inside: Vocab,
    /// The length of the longest token, in bytes.
    longest: usize,
    unknown: u32,
    longest_word: usize,
    lower_case: bool,
    /// Tokens that are matched in the text before it is split.
    added: Vec<String>,
}

impl WordPieces {
    /// `None` if the tokenizer is not one of BERT's.
    pub(super) fn of(tokenizer: &Tokenizer) -> Option<WordPieces> {
        let Some(NormalizerWrapper::BertNormalizer(normalizer)) = tokenizer.get_normalizer() else { return None };
        let Some(PreTokenizerWrapper::BertPreTokenizer(_)) = tokenizer.get_pre_tokenizer() else { return None };
        let ModelWrapper::WordPiece(model) = tokenizer.get_model() else { return None };
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        if !normalizer.clean_text || added.len() > MOST_ADDED || added.values().any(|token| token.normalized) {
            return None;
        }
        let prefix = &model.continuing_subword_prefix;
        let (mut begin, mut inside, mut longest) = (Vocab::default(), Vocab::default(), 0);
        for (token, id) in model.get_vocab().into_iter().filter(|(token, _)| token.is_ascii() && !token.is_empty()) {
            if let Some(rest) = token.strip_prefix(prefix.as_str()).filter(|rest| !rest.is_empty()) {
                inside.insert(rest.to_string(), id);
            }
            longest = longest.max(token.len());
            begin.insert(token, id);
        }
        Some(WordPieces {
            begin,
            inside,
            longest,
            unknown: model.token_to_id(&model.unk_token)?,
            longest_word: model.max_input_chars_per_word,
            lower_case: normalizer.lowercase,
            added: added.values().map(|token| token.content.clone()).collect(),
        })
    }

    /// Whether a text can be taken apart at spaces: no added token is written in it.
    pub(super) fn fits(&self, text: &str) -> bool {
        !self.added.iter().any(|token| text.contains(token.as_str()))
    }

    /// The tokens of a text that fits, at least the first `limit`. Parts that are not printable ASCII are given to `other`.
    pub(super) fn sequence<E>(
        &self,
        text: &str,
        limit: usize,
        other: impl Fn(&str) -> Result<Sequence, E>,
    ) -> Result<Sequence, E> {
        // A token has five letters or so.
        let guess = (text.len() / 4 + 1).min(limit.saturating_add(16));
        let mut found = Sequence {
            ids: Vec::with_capacity(guess),
            offsets: Vec::with_capacity(guess),
            words: Vec::with_capacity(guess),
            spaces: Vec::new(),
        };
        let mut words = 0;
        let bytes = text.as_bytes();
        let mut buffer = Vec::with_capacity(self.longest_word);
        let mut start = 0;
        while start < bytes.len() && found.len() < limit {
            if is_space(bytes[start]) {
                start += 1;
                continue;
            }
            let part = &bytes[start..];
            let length = part.iter().position(|&byte| is_space(byte)).unwrap_or(part.len());
            let part = &part[..length];
            if part.iter().all(|byte| byte.is_ascii_graphic()) {
                self.push_part(part, start, &mut words, &mut buffer, &mut found);
            } else {
                let mut sequence = other(&text[start..start + length])?;
                sequence.offsets.iter_mut().for_each(|range| *range = (range.0 + start, range.1 + start));
                sequence.words.iter_mut().for_each(|word| *word += words);
                words = sequence.words.last().map_or(words, |word| word + 1);
                found.extend(sequence);
            }
            start += length;
        }
        Ok(found)
    }

    /// Tokens of a part of printable ASCII: each punctuation mark is a word.
    fn push_part(&self, part: &[u8], start: usize, words: &mut u32, buffer: &mut Vec<u8>, found: &mut Sequence) {
        let mut place = 0;
        while place < part.len() {
            let rest = &part[place..];
            let length = rest.iter().position(u8::is_ascii_punctuation).unwrap_or(rest.len()).max(1);
            buffer.clear();
            buffer.extend_from_slice(&rest[..length]);
            if self.lower_case {
                buffer.make_ascii_lowercase();
            }
            // It is ASCII.
            self.push_word(std::str::from_utf8(buffer).unwrap_or_default(), start + place, *words, found);
            *words += 1;
            place += length;
        }
    }

    /// Tokens of a word: the longest one that fits, again and again; one unknown token if there is none at some place.
    fn push_word(&self, word: &str, start: usize, number: u32, found: &mut Sequence) {
        let before = found.len();
        let mut place = 0;
        let mut push = |id: u32, from: usize, to: usize| {
            found.ids.push(id);
            found.offsets.push((start + from, start + to));
            found.words.push(number);
        };
        if word.len() <= self.longest_word {
            while place < word.len() {
                let vocab = if place == 0 { &self.begin } else { &self.inside };
                let most = word.len().min(place + self.longest);
                let next = (place + 1..=most).rev().find_map(|end| Some((*vocab.get(&word[place..end])?, end)));
                let Some((id, end)) = next else { break };
                push(id, place, end);
                place = end;
            }
        }
        if place < word.len() {
            found.ids.truncate(before);
            found.offsets.truncate(before);
            found.words.truncate(before);
            found.ids.push(self.unknown);
            found.offsets.push((start, start + word.len()));
            found.words.push(number);
        }
    }
}

/// The white space between words; other control characters are removed by BERT's tokenizer.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
