//! Entities that are marked by tags such as `B-PER` and `I-PER`, as seqeval finds and counts them.

use std::collections::{BTreeMap, HashSet};

use super::counts::{Average, Counts, average};
use super::schemes::{self, Prefix};

/// How tags mark entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// seqeval's default, the rules of CoNLL's `conlleval`: any of the schemes, and an entity that is not marked as its scheme demands is
    /// one all the same.
    Lenient,
    /// `B` only between entities of the same type, `I` otherwise; others are no entities.
    StrictIob1,
    /// `B` begins an entity, `I` continues it; others are no entities.
    StrictIob2,
    /// `E` only at the end of an entity that another of the same type follows.
    StrictIoe1,
    /// `E` ends an entity.
    StrictIoe2,
    /// `B`, `I`, `E`; `S` is an entity of one token.
    StrictIobes,
    /// `B`, `I`, `L`; `U` is an entity of one token.
    StrictBilou,
}

/// An entity of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entity {
    /// Its type.
    pub kind: String,
    /// Its first token.
    pub start: usize,
    /// The token behind its last.
    pub end: usize,
}

/// The entities of a sentence. A tag that a strict scheme does not know is an error that names it.
pub fn entities<T: AsRef<str>>(tags: &[T], scheme: Scheme) -> Result<Vec<Entity>, String> {
    match scheme {
        Scheme::Lenient => Ok(lenient(tags)),
        Scheme::StrictIob1 => schemes::strict(tags, &schemes::IOB1),
        Scheme::StrictIob2 => schemes::strict(tags, &schemes::IOB2),
        Scheme::StrictIoe1 => schemes::strict(tags, &schemes::IOE1),
        Scheme::StrictIoe2 => schemes::strict(tags, &schemes::IOE2),
        Scheme::StrictIobes => schemes::strict(tags, &schemes::IOBES),
        Scheme::StrictBilou => schemes::strict(tags, &schemes::BILOU),
    }
}

/// The letter and the type of a tag: `B-PER` is of the type `PER`, and `B` of the type `_`.
fn split(tag: &str) -> (char, &str) {
    let mut letters = tag.chars();
    let letter = letters.next().unwrap_or('O');
    let rest = letters.as_str();
    let kind = rest.split_once('-').map_or(rest, |(_, kind)| kind);
    (letter, if kind.is_empty() { "_" } else { kind })
}

fn lenient<T: AsRef<str>>(tags: &[T]) -> Vec<Entity> {
    let mut found = Vec::new();
    let (mut before, mut start) = (('O', ""), 0);
    let tags = tags.iter().map(|tag| split(tag.as_ref())).chain([('O', "_")]);
    for (place, tag) in tags.enumerate() {
        if ends(before, tag) {
            found.push(Entity { kind: before.1.to_string(), start, end: place });
        }
        if starts(before, tag) {
            start = place;
        }
        before = tag;
    }
    found
}

/// Whether an entity ends between two tags.
fn ends(before: (char, &str), tag: (char, &str)) -> bool {
    match (before.0, tag.0) {
        ('E' | 'S', _) | ('B' | 'I', 'B' | 'S' | 'O') => true,
        ('O' | '.', _) => false,
        _ => before.1 != tag.1,
    }
}

/// Whether an entity begins with the second of two tags.
fn starts(before: (char, &str), tag: (char, &str)) -> bool {
    match (before.0, tag.0) {
        (_, 'B' | 'S') | ('E' | 'S' | 'O', 'E' | 'I') => true,
        (_, 'O' | '.') => false,
        _ => before.1 != tag.1,
    }
}

/// What is measured of entities, of each type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityMeasures {
    types: BTreeMap<String, Counts>,
}

impl EntityMeasures {
    /// Of the tags of sentences: an entity is right if its type, its beginning and its end are. Sentences have as many predicted tags as
    /// expected ones.
    pub fn of<E: AsRef<str>, P: AsRef<str>>(
        expected: &[Vec<E>],
        predicted: &[Vec<P>],
        scheme: Scheme,
    ) -> Result<EntityMeasures, String> {
        assert_eq!(expected.len(), predicted.len(), "as many predictions as sentences");
        let mut measures = EntityMeasures::default();
        for (expected, predicted) in expected.iter().zip(predicted) {
            measures.add(expected, predicted, scheme)?;
        }
        Ok(measures)
    }

    /// Counts one more sentence.
    pub fn add<E: AsRef<str>, P: AsRef<str>>(
        &mut self,
        expected: &[E],
        predicted: &[P],
        scheme: Scheme,
    ) -> Result<(), String> {
        assert_eq!(expected.len(), predicted.len(), "as many predicted tags as expected");
        let expected: HashSet<Entity> = entities(expected, scheme)?.into_iter().collect();
        let predicted: HashSet<Entity> = entities(predicted, scheme)?.into_iter().collect();
        for entity in &predicted {
            let counts = self.types.entry(entity.kind.clone()).or_default();
            counts.predicted += 1;
            counts.correct += u64::from(expected.contains(entity));
        }
        for entity in expected {
            self.types.entry(entity.kind).or_default().expected += 1;
        }
        Ok(())
    }

    /// The counts of each type that was predicted or expected.
    pub fn types(&self) -> &BTreeMap<String, Counts> {
        &self.types
    }

    /// The share of predicted entities that are right; [`Average::Binary`] counts types in the order of their names.
    pub fn precision(&self, how: Average) -> f64 {
        self.average(how, Counts::precision)
    }

    /// The share of expected entities that were found.
    pub fn recall(&self, how: Average) -> f64 {
        self.average(how, Counts::recall)
    }

    /// The harmonic mean of precision and recall.
    pub fn f1(&self, how: Average) -> f64 {
        self.average(how, Counts::f1)
    }

    fn average(&self, how: Average, number: impl Fn(Counts) -> f64) -> f64 {
        let counts: Vec<Counts> = self.types.values().copied().collect();
        average(&counts, how, |_| true, number)
    }
}

/// The letter of a tag in a strict scheme, and its type.
pub(super) fn strict_tag(tag: &str) -> Option<(Prefix, &str)> {
    let mut letters = tag.chars();
    let prefix = Prefix::of(letters.next()?)?;
    let kind = letters.as_str().trim_matches('-');
    Some((prefix, if kind.is_empty() { "_" } else { kind }))
}
