//! The strict schemes of tags, as seqeval's `scheme.py` defines them: which pairs of neighbouring tags begin an entity, continue it and
//! end it.

use super::entities::{Entity, strict_tag};

/// The letter of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    I,
    O,
    B,
    E,
    S,
    U,
    L,
}

use Prefix::{B, E, I, L, O, S, U};

impl Prefix {
    pub(super) fn of(letter: char) -> Option<Prefix> {
        match letter {
            'I' => Some(I),
            'O' => Some(O),
            'B' => Some(B),
            'E' => Some(E),
            'S' => Some(S),
            'U' => Some(U),
            'L' => Some(L),
            _ => None,
        }
    }
}

/// Whether two tags have the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Types {
    Same,
    Different,
    Any,
}

use Types::{Any, Different, Same};

/// A tag, the one before it, and whether their types are equal; the tag before may be any.
type Pattern = (Option<Prefix>, Option<Prefix>, Types);

/// A scheme of tags.
pub(super) struct Rules {
    allowed: &'static [Prefix],
    start: &'static [Pattern],
    inside: &'static [Pattern],
    end: &'static [Pattern],
}

pub(super) static IOB1: Rules = Rules {
    allowed: &[I, O, B],
    start: &[
        (Some(O), Some(I), Any),
        (Some(I), Some(I), Different),
        (Some(B), Some(I), Any),
        (Some(I), Some(B), Same),
        (Some(B), Some(B), Same),
    ],
    inside: &[(Some(B), Some(I), Same), (Some(I), Some(I), Same)],
    end: &[
        (Some(I), Some(I), Different),
        (Some(I), Some(O), Any),
        (Some(I), Some(B), Any),
        (Some(B), Some(O), Any),
        (Some(B), Some(I), Different),
        (Some(B), Some(B), Same),
    ],
};

pub(super) static IOE1: Rules = Rules {
    allowed: &[I, O, E],
    start: &[(Some(O), Some(I), Any), (Some(I), Some(I), Different), (Some(E), Some(I), Any), (Some(E), Some(E), Same)],
    inside: &[(Some(I), Some(I), Same), (Some(I), Some(E), Same)],
    end: &[
        (Some(I), Some(I), Different),
        (Some(I), Some(O), Any),
        (Some(I), Some(E), Different),
        (Some(E), Some(I), Same),
        (Some(E), Some(E), Same),
    ],
};

pub(super) static IOB2: Rules = Rules {
    allowed: &[I, O, B],
    start: &[(None, Some(B), Any)],
    inside: &[(Some(B), Some(I), Same), (Some(I), Some(I), Same)],
    end: &[
        (Some(I), Some(O), Any),
        (Some(I), Some(I), Different),
        (Some(I), Some(B), Any),
        (Some(B), Some(O), Any),
        (Some(B), Some(I), Different),
        (Some(B), Some(B), Any),
    ],
};

pub(super) static IOE2: Rules = Rules {
    allowed: &[I, O, E],
    start: &[
        (Some(O), Some(I), Any),
        (Some(O), Some(E), Any),
        (Some(E), Some(I), Any),
        (Some(E), Some(E), Any),
        (Some(I), Some(I), Different),
        (Some(I), Some(E), Different),
    ],
    inside: &[(Some(I), Some(E), Same), (Some(I), Some(I), Same)],
    end: &[(Some(E), None, Any)],
};

pub(super) static IOBES: Rules = Rules {
    allowed: &[I, O, B, E, S],
    start: &[(None, Some(B), Any), (None, Some(S), Any)],
    inside: &[(Some(B), Some(I), Same), (Some(B), Some(E), Same), (Some(I), Some(I), Same), (Some(I), Some(E), Same)],
    end: &[(Some(S), None, Any), (Some(E), None, Any)],
};

pub(super) static BILOU: Rules = Rules {
    allowed: &[B, I, L, O, U],
    start: &[(None, Some(B), Any), (None, Some(U), Any)],
    inside: &[(Some(B), Some(I), Same), (Some(B), Some(L), Same), (Some(I), Some(I), Same), (Some(I), Some(L), Same)],
    end: &[(Some(U), None, Any), (Some(L), None, Any)],
};

type Tag<'a> = (Prefix, &'a str);

fn matches(patterns: &[Pattern], before: Tag<'_>, tag: Tag<'_>) -> bool {
    patterns.iter().any(|&(first, second, types)| {
        let is_type = match types {
            Same => before.1 == tag.1,
            Different => before.1 != tag.1,
            Any => true,
        };
        is_type && first.is_none_or(|first| first == before.0) && second.is_none_or(|second| second == tag.0)
    })
}

/// The entities of a sentence that are marked exactly as the scheme demands.
pub(super) fn strict<T: AsRef<str>>(tags: &[T], rules: &Rules) -> Result<Vec<Entity>, String> {
    let mut parsed = Vec::with_capacity(tags.len() + 1);
    for tag in tags {
        let tag = tag.as_ref();
        let known = strict_tag(tag).filter(|(prefix, _)| rules.allowed.contains(prefix));
        parsed.push(known.ok_or_else(|| format!("the tag {tag:?} is not one of the scheme"))?);
    }
    let outside = (O, "_");
    parsed.push(outside);
    let mut found = Vec::new();
    let (mut place, mut before) = (0, outside);
    while place < parsed.len() {
        if matches(rules.start, before, parsed[place]) {
            let (start, kind) = (place, parsed[place].1);
            place += 1;
            // The last tag is outside of all entities, so that this stops there at the latest.
            while place < parsed.len() && matches(rules.inside, parsed[place - 1], parsed[place]) {
                place += 1;
            }
            if place < parsed.len() && matches(rules.end, parsed[place - 1], parsed[place]) {
                found.push(Entity { kind: kind.to_string(), start, end: place });
            }
        } else {
            place += 1;
        }
        before = parsed[place - 1];
    }
    Ok(found)
}
