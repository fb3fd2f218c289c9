//! Tokens of a text, ready for a model, and of one sequence before special tokens are put around it.

use std::ops::Range;

/// A text, or a pair of texts, as a model reads it: all fields have one entry per token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The type of each token: 0, and 1 for the second text of models that tell them apart.
    pub token_types: Vec<u32>,
    /// Where a token is in its text, as a range of bytes that begins and ends between characters; (0, 0) for special tokens. If the
    /// text was given as words, the range is in the word.
    pub offsets: Vec<(usize, usize)>,
    /// Whether the template added the token. A special token that is written in the text is none of these.
    pub special: Vec<bool>,
    /// The text that a token comes from: 0 for the first, 1 for the second, `None` for special tokens.
    pub sequence: Vec<Option<u8>>,
    /// The word of a token in its text, counted from 0: the words that were given, or else what the tokenizer splits text into.
    pub words: Vec<Option<u32>>,
    /// Whether tokens were left out.
    pub truncated: bool,
}

impl Encoding {
    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn with_capacity(length: usize) -> Encoding {
        Encoding {
            ids: Vec::with_capacity(length),
            token_types: Vec::with_capacity(length),
            offsets: Vec::with_capacity(length),
            special: Vec::with_capacity(length),
            sequence: Vec::with_capacity(length),
            words: Vec::with_capacity(length),
            truncated: false,
        }
    }

    pub(super) fn push_special(&mut self, ids: &[u32], token_type: u32) {
        let length = self.len() + ids.len();
        self.ids.extend_from_slice(ids);
        self.token_types.resize(length, token_type);
        self.offsets.resize(length, (0, 0));
        self.special.resize(length, true);
        self.sequence.resize(length, None);
        self.words.resize(length, None);
    }

    /// Appends tokens of a sequence. With `trim`, white space at the ends of a token is not in its range.
    pub(super) fn push_sequence(
        &mut self,
        sequence: &Sequence,
        range: Range<usize>,
        (number, token_type): (u8, u32),
        trim: Option<Trim>,
    ) {
        let length = self.len() + range.len();
        self.ids.extend_from_slice(&sequence.ids[range.clone()]);
        self.token_types.resize(length, token_type);
        match trim {
            None => self.offsets.extend_from_slice(&sequence.offsets[range.clone()]),
            Some(trim) => {
                self.offsets.extend(range.clone().enumerate().map(|(n, token)| trim.offsets(sequence, token, n == 0)));
            }
        }
        self.special.resize(length, false);
        self.sequence.resize(length, Some(number));
        self.words.extend(sequence.words[range].iter().map(|&word| Some(word)));
    }
}

/// The tokens of one text.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub(super) ids: Vec<u32>,
    pub(super) offsets: Vec<(usize, usize)>,
    pub(super) words: Vec<u32>,
    /// The spaces of each token; only of tokenizers that trim.
    pub(super) spaces: Vec<Spaces>,
}

impl Sequence {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Appends a token with its range, which begins a word or goes on with one.
    pub(super) fn push(&mut self, id: u32, range: (usize, usize), begins_word: bool) {
        let word = self.words.last().map_or(0, |&word| word + u32::from(begins_word));
        self.ids.push(id);
        self.offsets.push(range);
        self.words.push(word);
    }

    pub(super) fn extend(&mut self, other: Sequence) {
        self.ids.extend(other.ids);
        self.offsets.extend(other.offsets);
        self.words.extend(other.words);
        self.spaces.extend(other.spaces);
    }
}

/// The white space of a byte-level token.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spaces {
    /// The number of characters of white space before the word.
    leading: usize,
    /// Where the range begins after as many characters, and ends before as many as the token has at its end.
    start: usize,
    end: usize,
}

impl Spaces {
    /// The spaces of a token of a text, with its range. In a byte-level token, `Ġ` is a space.
    pub(super) fn of(token: &str, text: &str, (start, end): (usize, usize)) -> Spaces {
        let is_space = |letter: &char| *letter == 'Ġ' || letter.is_whitespace();
        let leading = token.chars().take_while(is_space).count();
        let trailing = token.chars().rev().take_while(is_space).count();
        let after = |place: usize| text[place..].char_indices().nth(leading).map_or(text.len(), |(n, _)| place + n);
        let before = |place: usize| text[..place].char_indices().rev().nth(trailing - 1).map_or(place, |(n, _)| n);
        Spaces {
            leading,
            start: if leading > 0 { after(start).min(end) } else { start },
            end: if trailing > 0 { before(end) } else { end },
        }
    }
}

/// How ranges of byte-level tokens are trimmed: the space before a word is a part of its token, but not of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    /// Whether the tokenizer puts a space before a text that has none: then the first token's one space is not in the text.
    pub(super) prefix_space: bool,
}

impl Trim {
    /// The range of a token, as `tokenizers::processors::byte_level::process_offsets` computes it of characters.
    fn offsets(self, sequence: &Sequence, token: usize, is_first: bool) -> (usize, usize) {
        let (start, end) = sequence.offsets[token];
        let Some(spaces) = sequence.spaces.get(token) else {
            return (start, end);
        };
        let is_added = (is_first || start == 0) && self.prefix_space && spaces.leading == 1;
        let start = if is_added { start } else { spaces.start };
        (start, spaces.end.max(start))
    }
}
