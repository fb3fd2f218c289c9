//! What a template can call: what `transformers` gives it, and of the engine's filters those that are bounded.

use std::sync::Arc;
use std::time::SystemTime;

use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::bounds::{MOST_ITEMS, MOST_TEXT_BYTES, Written, too_large};
use super::text::{Style, json, python};
use super::{answers, calendar, operators};

/// Filters that chat templates do not need and that can make much of little, or compare without bound.
const REMOVED: [&str; 12] =
    ["batch", "slice", "pprint", "format", "groupby", "unique", "sort", "min", "max", "sum", "zip", "chain"];
/// Macros may call each other so deeply.
const MOST_CALLS: usize = 100;

/// What `raise_exception` raises.
#[derive(Debug)]
struct Raised;

impl std::fmt::Display for Raised {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

/// Whether the template itself raised the error.
pub(super) fn is_raised(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<Raised>() {
            return true;
        }
        source = cause.source();
    }
    false
}

pub(super) fn new(fuel: u64, now: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(fuel));
    environment.set_recursion_limit(MOST_CALLS);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_unknown_method_callback(method);
    let written = Arc::new(Written::default());
    environment.set_formatter(move |output, _, value| {
        let text = python(value)?;
        written.add(text.len())?;
        output.write_str(&text).map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot write"))
    });
    operators::install(&mut environment);
    for name in REMOVED {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: Value| python(&value));
    environment.add_filter("join", join);
    environment.add_filter("replace", replace);
    environment.add_filter("indent", indent);
    environment.add_filter("list", list);
    environment.add_filter(answers::FILTER, answers::mark);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Raised))
    });
    environment.add_function("strftime_now", move |format: String| calendar::written(now, &format));
    environment
}

/// Methods of Python's types, of which those that can make much of little are bounded here.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (name, value.as_str(), arguments) {
        ("replace", Some(text), [from, to]) => replace(text.to_string(), python(from)?, python(to)?).map(Value::from),
        ("replace", Some(_), _) => {
            Err(Error::new(ErrorKind::InvalidOperation, "replace takes what is replaced, and by what"))
        }
        ("join", Some(separator), [items]) => join(items.clone(), Some(separator.to_string())).map(Value::from),
        ("format", Some(_), _) => Err(Error::new(ErrorKind::UnknownMethod, "str.format is not supported")),
        ("upper" | "lower" | "title" | "capitalize" | "split" | "splitlines", Some(text), _)
            if text.len() > MOST_TEXT_BYTES / 4 =>
        {
            Err(too_large("a text"))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

fn replace(text: String, from: String, to: String) -> Result<String, Error> {
    let matches = text.matches(from.as_str()).count();
    match matches.saturating_mul(to.len()).saturating_add(text.len()) <= MOST_TEXT_BYTES {
        true => Ok(text.replace(from.as_str(), &to)),
        false => Err(too_large("a text")),
    }
}

fn join(items: Value, separator: Option<String>) -> Result<String, Error> {
    let separator = separator.unwrap_or_default();
    let mut joined = String::new();
    for (place, item) in items.try_iter()?.enumerate() {
        let item = python(&item)?;
        let before = if place > 0 { separator.as_str() } else { "" };
        if joined.len().saturating_add(before.len()).saturating_add(item.len()) > MOST_TEXT_BYTES || place > MOST_ITEMS
        {
            return Err(too_large("a text"));
        }
        joined.push_str(before);
        joined.push_str(&item);
    }
    Ok(joined)
}

/// Spaces before each line but the first, and but empty ones.
fn indent(text: String, width: Option<usize>, first: Option<bool>, blank: Option<bool>) -> Result<String, Error> {
    let (width, first, blank) = (width.unwrap_or(4), first.unwrap_or(false), blank.unwrap_or(false));
    let lines = text.split('\n').count();
    if lines.saturating_mul(width).saturating_add(text.len()) > MOST_TEXT_BYTES {
        return Err(too_large("a text"));
    }
    let spaces = " ".repeat(width);
    let mut indented = String::new();
    for (place, line) in text.split('\n').enumerate() {
        if place > 0 {
            indented.push('\n');
        }
        if (place > 0 || first) && (blank || !line.is_empty()) {
            indented.push_str(&spaces);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

fn list(value: Value) -> Result<Value, Error> {
    let mut found = Vec::new();
    for item in value.try_iter()? {
        if found.len() == MOST_ITEMS {
            return Err(too_large("a list"));
        }
        found.push(item);
    }
    Ok(Value::from(found))
}

/// `json.dumps` with `transformers`' defaults.
fn to_json(value: Value, arguments: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.or_else(|| arguments.first().map(Value::is_true));
    let indent = match options.get::<Option<Value>>("indent")?.or_else(|| arguments.get(1).cloned()) {
        Some(width) if !width.is_none() => {
            let width = width.as_i64().and_then(|width| usize::try_from(width).ok());
            Some(width.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "indent is not a number of spaces"))?)
        }
        _ => None,
    };
    let separators = options.get::<Option<Value>>("separators")?.filter(|separators| !separators.is_none());
    let usual = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators {
        Some(pair) => (python(&pair.get_item_by_index(0)?)?, python(&pair.get_item_by_index(1)?)?),
        None => (usual.to_string(), ": ".to_string()),
    };
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    json(&value, &Style::Json { indent, item, key, sort_keys, ascii: ascii.unwrap_or(false) })
}
