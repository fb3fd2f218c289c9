//! What a GGUF file says beside its tensors: keys with typed values.

/// The keys and values of a GGUF file, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, MetaValue)>,
}

/// A value. Narrower numbers of the file are widened, which is exact.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaValue {
    /// An unsigned integer of any width.
    U64(u64),
    /// A signed integer of any width.
    I64(i64),
    /// A float of either width.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// A text; bytes that are no UTF-8 are replaced.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of integers of any width but that of a byte.
    Integers(Vec<i64>),
    /// A list of floats, at f32.
    Floats(Vec<f32>),
    /// A list of true and false.
    Flags(Vec<bool>),
    /// A list of unsigned bytes.
    Bytes(Vec<u8>),
    /// A list of lists.
    Lists(Vec<MetaValue>),
}

impl Metadata {
    /// From keys and values. A later one replaces an earlier one of the same key.
    pub fn new(entries: impl IntoIterator<Item = (String, MetaValue)>) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in entries {
            metadata.insert(key, value);
        }
        metadata
    }

    /// Adds a value, or replaces that of its key.
    pub fn insert(&mut self, key: impl Into<String>, value: MetaValue) {
        let key = key.into();
        match self.entries.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key, value)),
        }
    }

    /// Adds a value whose key is known to be new.
    pub(super) fn push(&mut self, key: String, value: MetaValue) {
        self.entries.push((key, value));
    }

    /// All keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetaValue)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetaValue> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// A text by key.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            MetaValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list of texts by key.
    pub fn texts(&self, key: &str) -> Option<&[String]> {
        match self.get(key)? {
            MetaValue::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    /// A list of floats by key.
    pub fn floats(&self, key: &str) -> Option<&[f32]> {
        match self.get(key)? {
            MetaValue::Floats(floats) => Some(floats),
            _ => None,
        }
    }

    /// A list of integers by key.
    pub fn integers(&self, key: &str) -> Option<&[i64]> {
        match self.get(key)? {
            MetaValue::Integers(integers) => Some(integers),
            _ => None,
        }
    }

    /// A non-negative integer by key.
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        match *self.get(key)? {
            MetaValue::U64(number) => Some(number),
            MetaValue::I64(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// True or false by key.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match *self.get(key)? {
            MetaValue::Bool(flag) => Some(flag),
            _ => None,
        }
    }
}
