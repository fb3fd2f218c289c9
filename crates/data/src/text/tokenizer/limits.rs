//! Bounds on what the parts of a stranger's tokenizer can do to a text.
//!
//! Memory: each part of a normalizer multiplies the length of a text by a factor that is known before; the product is bounded. Time: a
//! regular expression with look-ahead is matched by backtracking, a million steps per match at most (`fancy-regex`), after which the
//! rest of the text stays one piece. A hostile expression can still take that many steps for every character: it is the length of the
//! text that bounds the time then, and that is the caller's choice.

use serde_json::Value;

use super::charsmap;

/// A text gets at most so many times longer by normalising. ALBERT's normalizer has the largest factor of those in use, about 1600, of
/// which no text takes more than 30.
const MOST_GROWTH: usize = 1 << 12;
/// More parts than any normalizer or pre-tokenizer has.
const MOST_PARTS: usize = 64;
/// Regular expressions of real tokenizers have less than a thousand bytes.
const MOST_PATTERN_BYTES: usize = 4096;

fn kind(part: &Value) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The parts of a sequence of parts, in order; nested ones, too.
fn flatten<'a>(part: &'a Value, list: &str, found: &mut Vec<&'a Value>) -> Result<(), String> {
    match part.get(list).and_then(Value::as_array) {
        Some(parts) if kind(part) == "Sequence" => parts.iter().try_for_each(|part| flatten(part, list, found)),
        _ if found.len() == MOST_PARTS => Err(format!("it has more than {MOST_PARTS} {list}")),
        _ => {
            found.push(part);
            Ok(())
        }
    }
}

fn check_pattern(part: &Value) -> Result<(), String> {
    let pattern = part.get("pattern").and_then(|pattern| pattern.get("Regex")).and_then(Value::as_str);
    match pattern.filter(|pattern| pattern.len() > MOST_PATTERN_BYTES) {
        Some(_) => Err(format!("a regular expression of it is longer than {MOST_PATTERN_BYTES} bytes")),
        None => Ok(()),
    }
}

pub(super) fn check_normalizer(normalizer: &Value) -> Result<(), String> {
    let mut parts = Vec::new();
    flatten(normalizer, "normalizers", &mut parts)?;
    let mut growth = 1_usize;
    for part in parts {
        let text = |name: &str| part.get(name).and_then(Value::as_str).unwrap_or_default();
        let factor = match kind(part) {
            "Replace" => {
                check_pattern(part)?;
                // An expression that matches nothing at all does so before every byte.
                text("content").len() + 1
            }
            "Prepend" => text("prepend").len() + 1,
            "Precompiled" => charsmap::check_base64(text("precompiled_charsmap"))?.max(1),
            "NFD" | "NFKD" | "NFC" | "NFKC" | "BertNormalizer" => 12,
            "ByteLevel" | "Lowercase" => 2,
            _ => 1,
        };
        // The decompositions follow each other in real files, but only the first has something to do.
        growth = if factor == 12 { growth.max(12) } else { growth.saturating_mul(factor) };
        if growth > MOST_GROWTH {
            return Err(format!("its normalizer can make a text more than {MOST_GROWTH} times longer"));
        }
    }
    Ok(())
}

pub(super) fn check_pre_tokenizer(pre_tokenizer: &Value) -> Result<(), String> {
    let mut parts = Vec::new();
    flatten(pre_tokenizer, "pretokenizers", &mut parts)?;
    parts.into_iter().try_for_each(check_pattern)
}
