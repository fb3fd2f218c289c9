//! Python pickles, read as data. A pickle is a program for a stack machine that can call anything; this machine builds
//! lists, tuples, dictionaries, strings and numbers, and records calls with their arguments. Nothing is ever called.
//! The reader of the result decides which calls it understands.
//!
//! Values are small copies that point into an arena, so that a pickle which uses one list a million times costs a
//! million pointers, and dropping deeply nested lists takes no stack. Each opcode adds a bounded number of values:
//! memory is proportional to the pickle, whatever it does.

mod machine;

use super::error::{Fault, Parsed, shortened};

pub(super) use machine::parse;

/// Real ones, with the whole state of a training run, have a few megabytes.
pub(super) const LARGEST: usize = 1 << 26;

/// Longer text is not a name. It is not decoded: one long text may be used millions of times.
const LONGEST_NAME: u32 = 1024;

/// A value of a pickle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, in its two's complement little-endian bytes.
    LongInt(Span),
    /// Floats never describe a tensor: their values are not kept.
    Float,
    /// A string, or bytes: Python 2 did not distinguish them.
    Text(Span),
    /// Something in the arena.
    Object(u32),
}

/// A range of the pickle's own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    length: u32,
}

/// Objects in the arena.
#[derive(Debug)]
pub(super) enum Object {
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Set(Vec<Value>),
    /// The name of a function or a class.
    Global {
        module: Span,
        name: Span,
    },
    Call(Box<Call>),
    /// An object outside of the pickle: PyTorch's references to storages.
    Persistent(Value),
}

/// A recorded call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: Value,
    pub(super) arguments: Value,
    /// Items set on the result, in case it is a dictionary. Items appended to it are not kept.
    pub(super) items: Vec<(Value, Value)>,
    /// What the result's attributes were set to, most often a dictionary.
    pub(super) state: Value,
}

/// A parsed pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    objects: Vec<Object>,
    /// The result.
    pub(super) root: Value,
    /// Its length: in a stream, others follow.
    pub(super) length: usize,
}

/// Whether a file begins like a pickle of protocols 2 to 5.
pub(super) fn is_it(file: &[u8]) -> bool {
    matches!(file, [0x80, 2..=5, ..])
}

impl<'a> Pickle<'a> {
    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    pub(super) fn object(&self, value: Value) -> Option<&Object> {
        match value {
            Value::Object(index) => self.objects.get(index as usize),
            _ => None,
        }
    }

    pub(super) fn raw(&self, span: Span) -> &'a [u8] {
        &self.bytes[span.start as usize..span.start as usize + span.length as usize]
    }

    /// A string. `None` if the value is something else, not UTF-8, or too long for a name.
    pub(super) fn text(&self, value: Value) -> Option<&'a str> {
        match value {
            Value::Text(span) if span.length <= LONGEST_NAME => str::from_utf8(self.raw(span)).ok(),
            _ => None,
        }
    }

    /// The items of a list or a tuple.
    pub(super) fn sequence(&self, value: Value) -> Option<&[Value]> {
        match self.object(value)? {
            Object::List(items) | Object::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The name of a function or a class, with its module.
    pub(super) fn global(&self, value: Value) -> Option<String> {
        match self.object(value)? {
            Object::Global { module, name } => {
                let start = |span: &Span| Span { length: span.length.min(LONGEST_NAME), ..*span };
                let text = |span: &Span| String::from_utf8_lossy(self.raw(start(span)));
                Some(format!("{}.{}", text(module), text(name)))
            }
            _ => None,
        }
    }

    /// A value, described for messages.
    pub(super) fn show(&self, value: Value) -> String {
        match value {
            Value::Object(_) => match self.object(value) {
                Some(Object::Global { .. }) => format!("`{}`", shortened(&self.global(value).unwrap_or_default())),
                Some(Object::Call(call)) => match self.global(call.function) {
                    Some(name) => format!("the result of `{}`", shortened(&name)),
                    None => "the result of a computed function".to_string(),
                },
                Some(Object::List(_)) => "a list".to_string(),
                Some(Object::Tuple(_)) => "a tuple".to_string(),
                Some(Object::Dict(_)) => "a dictionary".to_string(),
                Some(Object::Set(_)) => "a set".to_string(),
                _ => "an object outside of the pickle".to_string(),
            },
            Value::Text(_) => format!("`{}`", shortened(self.text(value).unwrap_or("bytes"))),
            Value::Int(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::None => "None".to_string(),
            Value::Float | Value::LongInt(_) => "a number".to_string(),
        }
    }
}

fn too_many(what: &str) -> Fault {
    Fault::unsupported(
        format!("the pickle makes more {what} than a checkpoint has"),
        "save the model's state_dict alone, or convert it to safetensors",
    )
}

fn cut() -> Fault {
    Fault::damaged("the pickle is cut short")
}

fn malformed(what: &str) -> Fault {
    Fault::damaged(format!("the pickle {what}"))
}

#[cfg(test)]
mod tests;
