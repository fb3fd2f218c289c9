//! Values as text, as Python writes them: `str()`, `repr()` and `json.dumps()`.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::bounds::{MOST_DEPTH, MOST_TEXT_BYTES, too_large};

/// How a value is written.
#[derive(Clone, Debug)]
pub(super) enum Style {
    Python,
    Json { indent: Option<usize>, item: String, key: String, sort_keys: bool, ascii: bool },
}

/// A text that does not grow beyond its bound.
struct Bounded(String);

impl Bounded {
    fn push(&mut self, text: &str) -> Result<(), Error> {
        if self.0.len() + text.len() > MOST_TEXT_BYTES {
            return Err(too_large("a text"));
        }
        self.0.push_str(text);
        Ok(())
    }

    /// A new line with this indentation.
    fn line(&mut self, spaces: usize) -> Result<(), Error> {
        if self.0.len().saturating_add(spaces) > MOST_TEXT_BYTES {
            return Err(too_large("a text"));
        }
        self.push("\n")?;
        self.push(&" ".repeat(spaces))
    }
}

/// A value as `str()` writes it.
pub(super) fn python(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) if text.len() > MOST_TEXT_BYTES => Err(too_large("a text")),
        Some(text) => Ok(text.to_string()),
        None => {
            let mut text = Bounded(String::new());
            write(value, &Style::Python, 0, &mut text)?;
            Ok(text.0)
        }
    }
}

/// A value as `json.dumps()` writes it.
pub(super) fn json(value: &Value, style: &Style) -> Result<String, Error> {
    let mut text = Bounded(String::new());
    write(value, style, 0, &mut text)?;
    Ok(text.0)
}

fn write(value: &Value, style: &Style, depth: usize, text: &mut Bounded) -> Result<(), Error> {
    if depth > MOST_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply"));
    }
    let is_json = matches!(style, Style::Json { .. });
    match value.kind() {
        ValueKind::Undefined if is_json => Err(Error::new(ErrorKind::UndefinedError, "a value of tojson is undefined")),
        ValueKind::Undefined => Ok(()),
        ValueKind::None => text.push(if is_json { "null" } else { "None" }),
        ValueKind::Bool => text.push(match (value.is_true(), is_json) {
            (true, true) => "true",
            (false, true) => "false",
            (true, false) => "True",
            (false, false) => "False",
        }),
        ValueKind::Number => text.push(&value.to_string()),
        ValueKind::String => text.push(&quoted(value.as_str().unwrap_or_default(), style)?),
        ValueKind::Seq | ValueKind::Iterable => write_list(value, style, depth, text),
        ValueKind::Map => write_map(value, style, depth, text),
        // Bytes, macros and other objects.
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("a value of type {} has no text", value.kind()))),
    }
}

/// Where items are put: the separator, and whether each is on a line of its own.
fn separators(style: &Style) -> (&str, &str, Option<usize>) {
    match style {
        Style::Python => (", ", ": ", None),
        Style::Json { indent, item, key, .. } => (item, key, *indent),
    }
}

fn write_list(value: &Value, style: &Style, depth: usize, text: &mut Bounded) -> Result<(), Error> {
    let (separator, _, indent) = separators(style);
    text.push("[")?;
    let mut is_empty = true;
    for item in value.try_iter()? {
        if !std::mem::replace(&mut is_empty, false) {
            text.push(separator)?;
        }
        if let Some(indent) = indent {
            text.line(indent.saturating_mul(depth + 1))?;
        }
        write(&item, style, depth + 1, text)?;
    }
    if let Some(indent) = indent.filter(|_| !is_empty) {
        text.line(indent.saturating_mul(depth))?;
    }
    text.push("]")
}

fn write_map(value: &Value, style: &Style, depth: usize, text: &mut Bounded) -> Result<(), Error> {
    let (separator, colon, indent) = separators(style);
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if matches!(style, Style::Json { sort_keys: true, .. }) {
        keys.sort();
    }
    text.push("{")?;
    for (place, key) in keys.iter().enumerate() {
        if place > 0 {
            text.push(separator)?;
        }
        if let Some(indent) = indent {
            text.line(indent.saturating_mul(depth + 1))?;
        }
        match (style, key.kind()) {
            // JSON has texts for keys only.
            (Style::Json { .. }, kind) if kind != ValueKind::String => text.push(&format!("\"{key}\""))?,
            _ => write(key, style, depth + 1, text)?,
        }
        text.push(colon)?;
        write(&value.get_item(key)?, style, depth + 1, text)?;
    }
    if let Some(indent) = indent.filter(|_| !keys.is_empty()) {
        text.line(indent.saturating_mul(depth))?;
    }
    text.push("}")
}

/// A text in quotation marks.
fn quoted(text: &str, style: &Style) -> Result<String, Error> {
    if text.len() > MOST_TEXT_BYTES {
        return Err(too_large("a text"));
    }
    if let Style::Json { ascii, .. } = style {
        let json =
            serde_json::to_string(text).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
        return Ok(if *ascii { escaped(&json) } else { json });
    }
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut found = String::with_capacity(text.len() + 2);
    found.push(mark);
    for letter in text.chars() {
        match letter {
            '\n' => found.push_str("\\n"),
            '\r' => found.push_str("\\r"),
            '\t' => found.push_str("\\t"),
            '\\' => found.push_str("\\\\"),
            letter if letter == mark => {
                found.push('\\');
                found.push(letter);
            }
            letter if letter.is_ascii_control() => found.push_str(&format!("\\x{:02x}", letter as u32)),
            letter => found.push(letter),
        }
    }
    found.push(mark);
    Ok(found)
}

/// JSON with nothing but ASCII in it.
fn escaped(json: &str) -> String {
    let mut found = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_ascii() {
            found.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                found.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    found
}
