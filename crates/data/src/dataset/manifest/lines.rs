//! JSON lines: one object per line.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::DatasetError;
use super::{LABEL_NAMES, PATH_NAMES, Row, Rows, SPLIT_NAMES};

/// Parses the lines of a file; empty lines are skipped.
pub(super) fn rows(path: &Path, bytes: Vec<u8>, labels: Option<&str>) -> Result<Rows, DatasetError> {
    let (path, labels) = (path.to_path_buf(), labels.map(str::to_string));
    let (mut start, mut number) = (0, 0);
    let rows = std::iter::from_fn(move || {
        while start < bytes.len() {
            let end =
                bytes[start..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| start + length);
            let line = bytes[start..end].trim_ascii();
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            (start, number) = (end + 1, number + 1);
            if !line.is_empty() {
                let row = row(line, labels.as_deref());
                return Some(row.map(|row| (number, row)).map_err(|reason| DatasetError::row(&path, number, reason)));
            }
        }
        None
    });
    Ok(Box::new(rows))
}

fn row(line: &[u8], labels: Option<&str>) -> Result<Row, String> {
    let object: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("this is not a JSON object: {error}"))?;
    let find = |names: &[&str]| names.iter().find_map(|name| object.get(*name));
    let path = find(&PATH_NAMES).ok_or_else(|| format!("there is no path: none of {}", PATH_NAMES.join(", ")))?;
    let path = path.as_str().filter(|path| !path.is_empty()).ok_or("the path is not a string")?;
    let label = match labels {
        Some(name) => object.get(name).ok_or_else(|| format!("there is no `{name}`"))?,
        None => find(&LABEL_NAMES).ok_or_else(|| format!("there is no label: none of {}", LABEL_NAMES.join(", ")))?,
    };
    let (labels, is_list) = spellings(label)?;
    let split = find(&SPLIT_NAMES).and_then(Value::as_str).map(str::to_string);
    Ok(Row { path: path.as_bytes().to_vec(), labels, is_list, split })
}

/// The labels in a JSON value: a string, an integer, or a list of these; and whether it is a list.
pub(in super::super) fn spellings(value: &Value) -> Result<(Vec<String>, bool), String> {
    let one = |value: &Value| match value {
        Value::String(text) if !text.trim().is_empty() => Ok(text.trim().to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        other => Err(format!("a label must be a string or an integer, but it is {other}")),
    };
    match value {
        Value::Array(values) => Ok((values.iter().map(one).collect::<Result<_, _>>()?, true)),
        Value::Null => Ok((Vec::new(), false)),
        value => Ok((vec![one(value)?], false)),
    }
}
