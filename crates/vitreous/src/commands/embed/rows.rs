//! Vectors and their inputs as bytes, in parts of a run that is shared out.

use anyhow::anyhow;

use crate::failure::Failure;

/// What an input is called, by its number.
const KINDS: [&str; 2] = ["text", "path"];
/// The number of a row without a vector.
const FAILURE: u8 = KINDS.len() as u8;

/// An answer.
#[derive(Debug, PartialEq)]
pub enum Row {
    /// The vector of an input, and what that is called.
    Vector { kind: &'static str, input: String, vector: Vec<f32> },
    /// An image that cannot be read.
    Failure { path: String, error: String },
}

fn add_bytes(part: &mut Vec<u8>, bytes: &[u8]) {
    part.extend((bytes.len() as u64).to_le_bytes());
    part.extend(bytes);
}

/// Adds a vector.
pub fn add_vector(part: &mut Vec<u8>, kind: &str, input: &str, vector: &[f32]) {
    part.push(KINDS.iter().position(|known| *known == kind).unwrap_or(0) as u8);
    add_bytes(part, input.as_bytes());
    part.extend((4 * vector.len() as u64).to_le_bytes());
    vector.iter().for_each(|number| part.extend(number.to_le_bytes()));
}

/// Adds why there is none.
pub fn add_failure(part: &mut Vec<u8>, path: &str, error: &str) {
    part.push(FAILURE);
    add_bytes(part, path.as_bytes());
    add_bytes(part, error.as_bytes());
}

/// The rows of a part.
pub fn rows(part: &[u8]) -> impl Iterator<Item = Result<Row, Failure>> {
    let mut rest = part;
    std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| {
            let row = next_row(&mut rest);
            if row.is_none() {
                rest = &[];
            }
            row.ok_or_else(|| Failure::work(anyhow!("a part does not hold what embed writes: remove it and run again")))
        })
    })
}

fn next_row(rest: &mut &[u8]) -> Option<Row> {
    let kind = take(rest, 1)?[0];
    let (first, second) = (take_bytes(rest)?, take_bytes(rest)?);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    if kind == FAILURE {
        return Some(Row::Failure { path: text(first)?, error: text(second)? });
    }
    let floats = second.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    Some(Row::Vector { kind: KINDS.get(usize::from(kind))?, input: text(first)?, vector: floats.collect() })
}

fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = u64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
    take(rest, usize::try_from(length).ok()?)
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were() {
        let mut part = Vec::new();
        add_vector(&mut part, "text", "a\nb", &[1.5, -0.0, f32::MIN_POSITIVE]);
        add_vector(&mut part, "path", "", &[]);
        add_failure(&mut part, "x.png", "no image");
        let found: Vec<Row> = rows(&part).map(|row| row.expect("a row")).collect();
        let vector =
            |kind, input: &str, vector: &[f32]| Row::Vector { kind, input: input.into(), vector: vector.into() };
        let failure = Row::Failure { path: "x.png".into(), error: "no image".into() };
        assert_eq!(found, [vector("text", "a\nb", &[1.5, -0.0, f32::MIN_POSITIVE]), vector("path", "", &[]), failure]);
        // Whatever a part holds, it is read to its end or refused.
        for end in 1..part.len() {
            let found: Vec<_> = rows(&part[..end]).collect();
            assert!(found.iter().filter(|row| row.is_err()).count() <= 1);
        }
        assert!(rows(&[9, 1, 2]).next().is_some_and(|row| row.is_err()));
    }
}
