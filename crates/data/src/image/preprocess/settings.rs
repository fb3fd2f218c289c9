//! Reads settings from a JSON object, with errors that name the setting. `null` means absent, as in the peers.

use serde_json::{Map, Value};

use crate::image::error::ConfigError;

/// The maximum side in a configuration. Models run at hundreds, seldom at a few thousand.
pub(crate) const LONGEST_SIDE: usize = 8192;

pub(crate) struct Settings {
    values: Map<String, Value>,
}

impl Settings {
    pub fn parse(json: &[u8]) -> Result<Settings, ConfigError> {
        match serde_json::from_slice(json) {
            Ok(Value::Object(values)) => Ok(Settings { values }),
            Ok(other) => Err(ConfigError::Json(format!("it is {}", kind(&other)))),
            Err(error) => Err(ConfigError::Json(error.to_string())),
        }
    }

    /// The settings inside `key` if there is such a key, otherwise these.
    pub fn inner(self, key: &str) -> Settings {
        match self.values.get(key) {
            Some(Value::Object(values)) => Settings { values: values.clone() },
            _ => self,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| wrong(key, "true or false", value));
        self.get(key).map_or(Ok(default), read)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        let read = |value| Value::as_str(value).ok_or_else(|| wrong(key, "a string", value));
        self.get(key).map(read).transpose()
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.get(key).map(|value| number(key, value)).transpose()
    }

    /// One number per channel, or one for all.
    pub fn numbers(&self, key: &str) -> Result<Option<Numbers>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Value::Array(values) = value else {
            return Ok(Some(Numbers::One(number(key, value)? as f32)));
        };
        if values.is_empty() || values.len() > 16 {
            return Err(wrong(key, "one number per channel", value));
        }
        let numbers = values.iter().map(|value| Ok(number(key, value)? as f32));
        Ok(Some(Numbers::Each(numbers.collect::<Result<_, ConfigError>>()?)))
    }
}

/// One number for all channels, or one per channel.
pub(crate) enum Numbers {
    One(f32),
    Each(Vec<f32>),
}

impl Numbers {
    /// The number of channels, if there is one number per channel.
    pub fn count(&self) -> Option<usize> {
        match self {
            Numbers::One(_) => None,
            Numbers::Each(values) => Some(values.len()),
        }
    }

    pub fn for_channels(self, key: &str, channels: usize) -> Result<Vec<f32>, ConfigError> {
        match self {
            Numbers::One(value) => Ok(vec![value; channels]),
            Numbers::Each(values) if values.len() == channels => Ok(values),
            Numbers::Each(values) => Err(ConfigError::Value {
                key: key.to_string(),
                rule: format!("there must be one number for each of {channels} channels"),
                got: format!("{values:?}"),
            }),
        }
    }
}

pub(crate) fn number(key: &str, value: &Value) -> Result<f64, ConfigError> {
    let fits = |number: &f64| number.abs() <= f64::from(f32::MAX);
    value.as_f64().filter(fits).ok_or_else(|| wrong(key, "a number", value))
}

/// The length of a side.
pub(crate) fn side(key: &str, value: &Value) -> Result<usize, ConfigError> {
    // 224.0 is how some tools write 224.
    let whole = value.as_u64().or_else(|| value.as_f64().filter(|side| side.fract() == 0.0).map(|side| side as u64));
    let side = whole.and_then(|side| usize::try_from(side).ok()).filter(|side| (1..=LONGEST_SIDE).contains(side));
    side.ok_or_else(|| wrong(key, &format!("a side from 1 to {LONGEST_SIDE}"), value))
}

/// A height and a width.
pub(crate) fn sides(key: &str, values: &[Value]) -> Result<[usize; 2], ConfigError> {
    match values {
        [height, width] => Ok([side(key, height)?, side(key, width)?]),
        _ => Err(wrong(key, "a height and a width", &Value::Array(values.to_vec()))),
    }
}

pub(crate) fn wrong(key: &str, rule: &str, got: &Value) -> ConfigError {
    let mut text = got.to_string();
    if text.chars().count() > 80 {
        text = text.chars().take(77).chain("...".chars()).collect();
    }
    ConfigError::Value { key: key.to_string(), rule: format!("it must be {rule}"), got: text }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
