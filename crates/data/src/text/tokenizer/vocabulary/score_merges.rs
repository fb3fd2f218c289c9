//! sentencepiece's byte pairs (`llama`): of all neighbours whose union is a token, the two with the best score are merged, the leftmost
//! first if scores are equal. Characters that are no tokens are written as their bytes (`<0x0A>`).
//!
//! The `tokenizers` library orders pairs by rank, of which each pair has its own. Where two pairs give the same token, or tokens of the
//! same score, that order is not the leftmost-first one, so that the algorithm is written here. The library's tokenizer with the ranks
//! that come nearest is what is saved.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use serde_json::json;
use tokenizers::models::bpe::Vocab;
use tokenizers::{NormalizerWrapper, OffsetReferential, OffsetType, Tokenizer};

use super::super::build::Description;
use super::super::encoding::Sequence;
use super::super::model::{Bpe, Model};
use super::{Parts, VocabularyData};

/// What the usual special tokens are, where a file does not say it.
const USUAL_UNKNOWN: u32 = 0;
const USUAL_BEGIN: u32 = 1;
const USUAL_END: u32 = 2;
const SPACE: &str = "▁";

/// Merges by score.
#[derive(Clone)]
pub(in super::super) struct ScoreMerges {
    vocab: Arc<Vocab>,
    scores: Arc<[f32]>,
    /// The tokens of bytes.
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
    space_prefix: bool,
}

/// A part of the text that is a token or becomes a part of one. An empty one has been merged into the one before it.
struct Symbol {
    /// Its range in the text with `▁` for spaces.
    start: usize,
    end: usize,
    /// Its range in the text as it was given.
    from: usize,
    to: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that can be merged.
struct Pair {
    left: usize,
    right: usize,
    score: f32,
    /// The length of the token, by which a pair is recognised whose parts have changed since.
    length: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

pub(super) fn parts(data: &mut VocabularyData) -> Result<Parts, String> {
    let size = data.tokens.len();
    let usual = |id: Option<u32>, usual: u32| id.or(Some(usual)).filter(|&id| (id as usize) < size);
    data.special.unknown = usual(data.special.unknown, USUAL_UNKNOWN);
    data.special.bos = usual(data.special.bos, USUAL_BEGIN);
    data.special.eos = usual(data.special.eos, USUAL_END);
    let merges = ScoreMerges::new(data);
    let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if merges.space_prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let model = Model::Bpe(Bpe {
        vocab: (*merges.vocab).clone(),
        merges: merges.ranked(&data.tokens),
        unknown: data.name(data.special.unknown).map(str::to_string),
        fuse_unknown: true,
        byte_fallback: true,
        ..Bpe::default()
    });
    let description = Description {
        model,
        added: data.added()?,
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: serde_json::Value::Null,
        post_processor: data.template(data.add_bos.unwrap_or(true), data.add_eos.unwrap_or(false)),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
    };
    Ok(Parts { description, settings: data.settings(None, &[]), merges: Some(merges), notes: Vec::new() })
}

impl ScoreMerges {
    fn new(data: &VocabularyData) -> ScoreMerges {
        let mut vocab = Vocab::default();
        for (token, id) in data.tokens.iter().zip(0..) {
            vocab.entry(token.clone()).or_insert(id);
        }
        let mut scores = data.scores.clone();
        scores.resize(data.tokens.len(), 0.0);
        let bytes = std::array::from_fn(|byte| vocab.get(&format!("<0x{byte:02X}>")).copied());
        ScoreMerges {
            vocab: Arc::new(vocab),
            scores: scores.into(),
            bytes: Box::new(bytes),
            unknown: data.special.unknown,
            space_prefix: data.add_space_prefix.unwrap_or(true),
        }
    }

    /// All pairs of tokens whose union is a token, the best first, for the library's tokenizer.
    fn ranked(&self, tokens: &[String]) -> Vec<(String, String)> {
        let mut pairs: Vec<(f32, u32, usize)> = Vec::new();
        for (token, id) in tokens.iter().zip(0_u32..) {
            for (place, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(place);
                if self.vocab.contains_key(left) && self.vocab.contains_key(right) {
                    pairs.push((self.scores[id as usize], id, place));
                }
            }
        }
        pairs.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| (one.1, one.2).cmp(&(other.1, other.2))));
        let parts = |(_, id, place): (f32, u32, usize)| {
            let (left, right) = tokens[id as usize].split_at(place);
            (left.to_string(), right.to_string())
        };
        pairs.into_iter().map(parts).collect()
    }

    /// The tokens of a text, in which added tokens are matched first. A space is put before each part that follows on one of them.
    pub(in super::super) fn sequence(&self, tokenizer: &Tokenizer, text: &str) -> Sequence {
        let split = tokenizer.get_added_vocabulary().extract_and_normalize(None::<&NormalizerWrapper>, text);
        let mut found = Sequence::default();
        for (part, (from, to), tokens) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            match tokens {
                Some(tokens) => {
                    for token in tokens {
                        found.push(token.id, (from, to), true);
                    }
                }
                None => self.push_text(part, from, &mut found),
            }
        }
        found
    }

    fn push_text(&self, text: &str, from: usize, found: &mut Sequence) {
        if text.is_empty() {
            return;
        }
        let (escaped, mut symbols) = self.symbols(text, from);
        let mut queue = BinaryHeap::new();
        for left in 0..symbols.len().saturating_sub(1) {
            queue.extend(self.pair(&escaped, &symbols, left, left + 1));
        }
        while let Some(pair) = queue.pop() {
            let (left, right) = (&symbols[pair.left], &symbols[pair.right]);
            if left.start == left.end || right.start == right.end || right.end - left.start != pair.length {
                continue;
            }
            let (end, to, next) = (right.end, right.to, right.next);
            symbols[pair.right].end = symbols[pair.right].start;
            let merged = &mut symbols[pair.left];
            (merged.end, merged.to, merged.next) = (end, to, next);
            let previous = merged.previous;
            if let Some(next) = next {
                symbols[next].previous = Some(pair.left);
                queue.extend(self.pair(&escaped, &symbols, pair.left, next));
            }
            if let Some(previous) = previous {
                queue.extend(self.pair(&escaped, &symbols, previous, pair.left));
            }
        }
        for symbol in symbols.iter().filter(|symbol| symbol.start < symbol.end) {
            self.push_symbol(&escaped[symbol.start..symbol.end], (symbol.from, symbol.to), found);
        }
    }

    /// The text with `▁` for spaces, and its characters.
    fn symbols(&self, text: &str, from: usize) -> (String, Vec<Symbol>) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2 + SPACE.len());
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len() + 1);
        let mut push = |letter: char, from: usize, to: usize| {
            let (start, place) = (escaped.len(), symbols.len());
            match letter {
                ' ' => escaped.push_str(SPACE),
                letter => escaped.push(letter),
            }
            if let Some(before) = symbols.last_mut() {
                before.next = Some(place);
            }
            symbols.push(Symbol { start, end: escaped.len(), from, to, previous: place.checked_sub(1), next: None });
        };
        if self.space_prefix {
            push(' ', from, from);
        }
        for (place, letter) in text.char_indices() {
            push(letter, from + place, from + place + letter.len_utf8());
        }
        (escaped, symbols)
    }

    fn pair(&self, escaped: &str, symbols: &[Symbol], left: usize, right: usize) -> Option<Pair> {
        let (start, end) = (symbols[left].start, symbols[right].end);
        let id = self.vocab.get(&escaped[start..end])?;
        Some(Pair { left, right, score: self.scores[*id as usize], length: end - start })
    }

    fn push_symbol(&self, token: &str, range: (usize, usize), found: &mut Sequence) {
        let begins_word = token.starts_with(SPACE);
        if let Some(&id) = self.vocab.get(token) {
            found.push(id, range, begins_word);
            return;
        }
        for byte in token.bytes() {
            if let Some(id) = self.bytes[usize::from(byte)].or(self.unknown) {
                found.push(id, range, false);
            }
        }
    }
}
