//! Values of a config.json by key: typed and bounded, with errors that name the key.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::settings::{Settings, Size};

/// What is wrong with a key, or with the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key, if the error concerns one.
    pub key: Option<String>,
    /// What is wrong, and what is expected.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "`{key}`: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Fault {
    /// An error of one key.
    pub fn of(key: impl Into<String>, what: impl Into<String>) -> Fault {
        Fault { key: Some(key.into()), what: what.into() }
    }

    /// An error of the whole file.
    pub fn whole(what: impl Into<String>) -> Fault {
        Fault { key: None, what: what.into() }
    }
}

/// No model has larger sizes, and they could overflow later computations.
const LARGEST_SIZE: u64 = 1 << 32;

/// An object, and the path to it.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Object<'a> {
    /// The object at the top.
    pub fn new(map: &'a Map<String, Value>) -> Object<'a> {
        Object { map, path: "" }
    }

    /// An object at a path that errors name.
    pub fn at(map: &'a Map<String, Value>, path: &'a str) -> Object<'a> {
        Object { map, path }
    }

    /// The value of a key; null counts as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether a key is there, and null: where absence means something else.
    pub fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    /// The first of these keys that is present.
    pub fn has_any<'k>(&self, keys: &[&'k str]) -> Option<&'k str> {
        keys.iter().copied().find(|key| self.get(key).is_some())
    }

    /// An object inside this one.
    pub fn object(&self, key: &'static str) -> Result<Option<Object<'a>>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Object { map, path: key })),
            Some(other) => Err(self.wrong(key, "an object", other)),
        }
    }

    /// A non-negative integer.
    pub fn size(&self, key: &str) -> Result<Option<usize>, Fault> {
        self.get(key).map(|value| self.as_size(key, value)).transpose()
    }

    /// Height and width: one number for both, or a list of two.
    pub fn sides(&self, key: &str) -> Result<Option<Size>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(sides)) => match sides.as_slice() {
                [both] => Ok(Some(Size::square(self.as_size(key, both)?))),
                [height, width] => {
                    Ok(Some(Size { height: self.as_size(key, height)?, width: self.as_size(key, width)? }))
                }
                _ => Err(self.fault(key, "a list must be height and width".to_string())),
            },
            Some(value) => Ok(Some(Size::square(self.as_size(key, value)?))),
        }
    }

    /// A number.
    pub fn number(&self, key: &str) -> Result<Option<f64>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(self.wrong(key, "a number", value)),
            },
        }
    }

    /// A boolean.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(key, "true or false", other)),
        }
    }

    /// A string.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a string", other)),
        }
    }

    /// Class names in order: a list, or an object that maps class numbers to names.
    pub fn labels(&self, key: &str) -> Result<Option<Vec<String>>, Fault> {
        let name = |value: &Value| match value {
            Value::String(name) => Ok(name.clone()),
            // Some tools write names that consist of digits as numbers.
            Value::Number(number) => Ok(number.to_string()),
            other => Err(self.wrong(key, "names of classes", other)),
        };
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(names)) => Ok(Some(names.iter().map(name).collect::<Result<_, _>>()?)),
            Some(Value::Object(map)) => {
                let mut labels: Vec<Option<String>> = vec![None; map.len()];
                for (number, value) in map {
                    let slot = number.parse::<usize>().ok().and_then(|index| labels.get_mut(index));
                    let slot = slot.ok_or_else(|| {
                        let what = format!("{number:?} is not one of its {} classes, 0 and up", map.len());
                        self.fault(key, what)
                    })?;
                    *slot = Some(name(value)?);
                }
                let all: Option<Vec<String>> = labels.into_iter().collect();
                Ok(Some(all.ok_or_else(|| self.fault(key, "one class occurs twice, another is missing".to_string()))?))
            }
            Some(other) => Err(self.wrong(key, "an object of numbers to names", other)),
        }
    }

    /// An error of a key of this object.
    pub fn fault(&self, key: &str, what: String) -> Fault {
        Fault::of(if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }, what)
    }

    fn as_size(&self, key: &str, value: &Value) -> Result<usize, Fault> {
        // Python writes computed integers as 16.0.
        let whole = value.as_f64().filter(|x| x.fract() == 0.0 && *x >= 0.0 && *x <= LARGEST_SIZE as f64);
        let number = value.as_u64().or(whole.map(|x| x as u64));
        match number {
            Some(number) if number <= LARGEST_SIZE => Ok(number as usize),
            _ => Err(self.wrong(key, &format!("a whole number up to {LARGEST_SIZE}"), value)),
        }
    }

    fn wrong(&self, key: &str, expected: &str, got: &Value) -> Fault {
        let mut got = got.to_string();
        if let Some((end, _)) = got.char_indices().nth(60) {
            got.truncate(end);
            got.push_str("...");
        }
        self.fault(key, format!("should be {expected}, not {got}"))
    }
}

/// `id2label` and `label2id`, which also define the number of classes.
pub fn put_labels(map: &mut Settings, labels: &[String], classes: usize) {
    let names: Vec<String> = match labels.len() {
        0 => (0..classes).map(|class| format!("LABEL_{class}")).collect(),
        _ => labels.to_vec(),
    };
    if !names.is_empty() {
        let numbered = names.iter().enumerate();
        let by_number: Settings = numbered.clone().map(|(i, name)| (i.to_string(), json!(name))).collect();
        let by_name: Settings = numbered.map(|(i, name)| (name.clone(), json!(i))).collect();
        map.insert("id2label".to_string(), Value::Object(by_number));
        map.insert("label2id".to_string(), Value::Object(by_name));
    }
}

/// 1e-12 as f32 is 9.999999960041972e-13 as f64: writes the shortest number that parses to the same f32.
pub fn shortest(number: f32) -> Value {
    format!("{number:e}").parse::<f64>().map_or(Value::Null, |number| json!(number))
}
