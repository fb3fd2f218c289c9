//! Entities from the classes of tokens, as `transformers`' token-classification pipeline makes them.

use vitreous_data::text::{Encoding, TextTokenizer};

use crate::error::Error;
use crate::scores::softmax;

/// How tokens become entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Every token by itself.
    None,
    /// Neighbouring tokens of one entity are joined.
    #[default]
    Simple,
    /// A word has the class of its first token.
    First,
    /// A word has the class with the highest mean score of its tokens.
    Average,
    /// A word has the class of its token with the highest score.
    Max,
}

/// A part of a text with its class.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    /// The class; without `B-` and `I-` where tokens are joined.
    pub class: String,
    /// Its probability; the mean over the tokens.
    pub score: f64,
    /// The tokens as text.
    pub word: String,
    /// Where it begins in the text, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// The index of the token, where tokens stay by themselves.
    pub index: Option<usize>,
}

/// The class of what is no entity.
const OUTSIDE: &str = "O";

/// A token, or the tokens of a word, with the probabilities of the classes.
struct Piece {
    /// The names of the tokens; of an unknown one, the text that it stands for.
    tokens: Vec<String>,
    class: usize,
    score: f64,
    start: usize,
    end: usize,
    index: usize,
}

/// The entities of a text, by the logits of its tokens.
pub fn entities(
    text: &str,
    encoding: &Encoding,
    logits: &[f32],
    label: &dyn Fn(usize) -> String,
    tokenizer: &TextTokenizer,
    aggregation: Aggregation,
) -> Result<Vec<Entity>, Error> {
    let classes = logits.len() / encoding.len().max(1);
    let mut tokens = Vec::new();
    for (index, logits) in logits.chunks_exact(classes.max(1)).enumerate().take(encoding.len()) {
        if !encoding.special[index] {
            tokens.push((index, softmax(logits)));
        }
    }
    let is_word = matches!(aggregation, Aggregation::First | Aggregation::Average | Aggregation::Max);
    let mut words: Vec<Vec<(usize, Vec<f64>)>> = Vec::new();
    for token in tokens {
        match words.last_mut() {
            Some(word) if is_word && is_subword(text, encoding, token.0, tokenizer) => word.push(token),
            _ => words.push(vec![token]),
        }
    }
    let name = |index: usize| match encoding.ids[index] {
        id if Some(id) == tokenizer.special().unknown => {
            let (start, end) = encoding.offsets[index];
            text[start..end].to_string()
        }
        id => tokenizer.token(id).unwrap_or_default(),
    };
    let pieces: Vec<Piece> = words.iter().map(|word| piece(word, encoding, aggregation, &name)).collect();
    let groups = match aggregation {
        Aggregation::None => pieces.into_iter().map(|piece| vec![piece]).collect(),
        _ => joined(pieces, label),
    };
    let mut found = Vec::new();
    for group in groups {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let name = label(first.class);
        let class = match aggregation {
            Aggregation::None => name,
            // The part behind the first dash, if there is one.
            _ => name.split_once('-').map_or(name.clone(), |(_, tag)| tag.to_string()),
        };
        if class == OUTSIDE {
            continue;
        }
        let tokens = group.iter().flat_map(|piece| piece.tokens.clone());
        let word = match aggregation {
            Aggregation::None => tokens.collect(),
            // The pipeline joins the tokens of words, and then words, which loses the spaces of SentencePiece and the accents of
            // byte-level tokens. Here all are joined at once.
            _ => tokenizer.join(tokens.collect())?,
        };
        let score = group.iter().map(|piece| piece.score).sum::<f64>() / group.len() as f64;
        let index = (aggregation == Aggregation::None).then_some(first.index);
        found.push(Entity { class, score, word, start: first.start, end: last.end, index });
    }
    Ok(found)
}

/// Whether a token goes on with the word before it.
fn is_subword(text: &str, encoding: &Encoding, index: usize, tokenizer: &TextTokenizer) -> bool {
    let (start, end) = encoding.offsets[index];
    let id = encoding.ids[index];
    if Some(id) == tokenizer.special().unknown {
        return false;
    }
    match tokenizer.continuing_prefix() {
        // A piece of a word is written with a mark in front: it is longer than what it stands for.
        Some(_) => {
            let token = tokenizer.token(id).unwrap_or_default();
            token.chars().count() != text[start..end].chars().count()
        }
        None => {
            let before = text[..start].chars().next_back();
            let first = text[start..].chars().next();
            before.is_some_and(|before| before != ' ') && first != Some(' ')
        }
    }
}

/// A word's class and score.
fn piece(
    word: &[(usize, Vec<f64>)],
    encoding: &Encoding,
    aggregation: Aggregation,
    name: &dyn Fn(usize) -> String,
) -> Piece {
    let largest = |scores: &[f64]| {
        let first = scores.first().copied().unwrap_or_default();
        scores
            .iter()
            .enumerate()
            .fold((0, first), |best, (class, &score)| if score > best.1 { (class, score) } else { best })
    };
    let (class, score) = match aggregation {
        Aggregation::None | Aggregation::Simple | Aggregation::First => largest(&word[0].1),
        Aggregation::Average => {
            let mean = |class: usize| word.iter().map(|(_, scores)| scores[class]).sum::<f64>() / word.len() as f64;
            largest(&(0..word[0].1.len()).map(mean).collect::<Vec<f64>>())
        }
        Aggregation::Max => {
            let all = word.iter().map(|(_, scores)| largest(scores));
            all.reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap_or_default()
        }
    };
    let (first, last) = (word[0].0, word[word.len() - 1].0);
    Piece {
        tokens: word.iter().map(|(index, _)| name(*index)).collect(),
        class,
        score,
        start: encoding.offsets[first].0,
        end: encoding.offsets[last].1,
        index: first,
    }
}

/// Neighbours of the same entity together. One that begins (`B-`) is joined to none before it.
fn joined(pieces: Vec<Piece>, label: &dyn Fn(usize) -> String) -> Vec<Vec<Piece>> {
    let tag = |class: usize| {
        let name = label(class);
        match name.get(..2) {
            Some("B-") => (true, name[2..].to_string()),
            Some("I-") => (false, name[2..].to_string()),
            _ => (false, name),
        }
    };
    let mut groups: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        let (begins, name) = tag(piece.class);
        match groups.last_mut() {
            Some(group) if !begins && group.last().is_some_and(|last| tag(last.class).1 == name) => group.push(piece),
            _ => groups.push(vec![piece]),
        }
    }
    groups
}
