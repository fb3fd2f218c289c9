//! The stack machine: one function per group of opcodes.

use std::collections::HashMap;

use super::{Call, LARGEST, Object, Parsed, Pickle, Span, Value, cut, malformed, too_many};
use crate::archive::error::Fault;

/// Limits far above any checkpoint, so that a hostile pickle of many megabytes does not take many times as much memory.
const MOST_OBJECTS: usize = 1 << 22;
const DEEPEST_STACK: usize = 1 << 20;

/// Parses the pickle at the beginning of the bytes.
pub(in crate::archive) fn parse(bytes: &[u8]) -> Parsed<Pickle<'_>> {
    let bytes = &bytes[..bytes.len().min(LARGEST)];
    let mut machine =
        Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), objects: Vec::new() };
    loop {
        let opcode = machine.byte().map_err(|fault| match bytes.len() {
            LARGEST => too_many("bytes"),
            _ => fault,
        })?;
        if opcode == b'.' {
            break;
        }
        machine.step(opcode)?;
        if machine.objects.len() > MOST_OBJECTS {
            return Err(too_many("objects"));
        }
        if machine.stack.len() + machine.marks.len() > DEEPEST_STACK || machine.memo.len() > MOST_OBJECTS {
            return Err(too_many("values"));
        }
    }
    let root = machine.pop()?;
    Ok(Pickle { bytes, objects: machine.objects, root, length: machine.at })
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// The stack heights at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    objects: Vec<Object>,
}

impl<'a> Machine<'a> {
    fn step(&mut self, opcode: u8) -> Parsed<()> {
        match opcode {
            // PROTO, FRAME: not needed when the whole pickle is in memory.
            0x80 => self.skip(1),
            0x95 => self.skip(8),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop_or_mark(),
            b'1' => self.pop_to_mark().map(|_| ()),
            b'2' => {
                let top = self.top()?;
                self.push(top)
            }
            b'N' | 0x88 | 0x89 | b'I' | b'J' | b'K' | b'M' | b'L' | 0x8a | 0x8b | b'F' | b'G' => self.number(opcode),
            b'S' | b'V' | b'T' | b'U' | b'X' | b'B' | b'C' | 0x8c | 0x8d | 0x8e | 0x96 => self.string(opcode),
            b']' | b'l' | b'a' | b'e' | b'}' | b'd' | b's' | b'u' | 0x8f | 0x90 | 0x91 => self.collection(opcode),
            b')' | b't' | 0x85 | 0x86 | 0x87 => self.tuple(opcode),
            b'g' | b'h' | b'j' | b'p' | b'q' | b'r' | 0x94 => self.memory(opcode),
            b'c' | 0x93 | b'R' | b'b' | b'i' | b'o' | 0x81 | 0x92 | b'P' | b'Q' => self.call(opcode),
            0x82..=0x84 => Err(Fault::unsupported(
                "the pickle uses Python's registry of extensions",
                "convert it to safetensors where it was made",
            )),
            0x97 | 0x98 => Err(Fault::unsupported(
                "the pickle keeps its data outside of itself",
                "convert it to safetensors where it was made",
            )),
            other => Err(malformed(&format!("has an unknown opcode {other:#04x} at {}", self.at - 1))),
        }
    }

    fn number(&mut self, opcode: u8) -> Parsed<()> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'J' => Value::Int(i32::from_le_bytes(self.array()?).into()),
            b'K' => Value::Int(self.byte()?.into()),
            b'M' => Value::Int(u16::from_le_bytes(self.array()?).into()),
            b'G' => {
                self.skip(8)?;
                Value::Float
            }
            b'F' => {
                self.line()?;
                Value::Float
            }
            0x8a => {
                let length = self.byte()?.into();
                self.long(length)?
            }
            0x8b => {
                let length = u32::from_le_bytes(self.array()?);
                self.long(length.into())?
            }
            _ => self.decimal(opcode)?,
        };
        self.push(value)
    }

    /// INT and LONG: a line of decimal digits.
    fn decimal(&mut self, opcode: u8) -> Parsed<Value> {
        let line = self.line()?;
        match (opcode, self.raw(line)) {
            (b'I', b"00") => return Ok(Value::Bool(false)),
            (b'I', b"01") => return Ok(Value::Bool(true)),
            _ => {}
        }
        let digits = self.raw(line).strip_suffix(b"L").unwrap_or(self.raw(line));
        let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.map(Value::Int).ok_or_else(|| malformed("has an invalid integer, or one that is too large"))
    }

    fn long(&mut self, length: u64) -> Parsed<Value> {
        let span = self.span(length)?;
        let bytes = self.raw(span);
        if bytes.len() > 8 {
            return Ok(Value::LongInt(span));
        }
        let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut extended = if negative { [0xff; 8] } else { [0; 8] };
        extended[..bytes.len()].copy_from_slice(bytes);
        Ok(Value::Int(i64::from_le_bytes(extended)))
    }

    fn string(&mut self, opcode: u8) -> Parsed<()> {
        let span = match opcode {
            b'V' => self.line()?,
            b'S' => {
                let quoted = self.line()?;
                let is_quoted = matches!(self.raw(quoted), [b'\'', .., b'\''] | [b'"', .., b'"']);
                if !is_quoted {
                    return Err(malformed("has a string without quotes"));
                }
                Span { start: quoted.start + 1, length: quoted.length - 2 }
            }
            b'U' | b'C' | 0x8c => {
                let length = self.byte()?.into();
                self.span(length)?
            }
            b'T' | b'X' | b'B' => {
                let length = u32::from_le_bytes(self.array()?);
                self.span(length.into())?
            }
            _ => {
                let length = u64::from_le_bytes(self.array()?);
                self.span(length)?
            }
        };
        self.push(Value::Text(span))
    }

    fn collection(&mut self, opcode: u8) -> Parsed<()> {
        match opcode {
            b']' => self.push_object(Object::List(Vec::new())),
            b'}' => self.push_object(Object::Dict(Vec::new())),
            0x8f => self.push_object(Object::Set(Vec::new())),
            b'l' => {
                let items = self.pop_to_mark()?;
                self.push_object(Object::List(items))
            }
            0x91 => {
                let items = self.pop_to_mark()?;
                self.push_object(Object::Set(items))
            }
            b'd' => {
                let items = pairs(self.pop_to_mark()?)?;
                self.push_object(Object::Dict(items))
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(&[item])
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(vec![(key, value)])
            }
            b'u' => {
                let items = pairs(self.pop_to_mark()?)?;
                self.insert(items)
            }
            // APPENDS and ADDITEMS
            _ => {
                let items = self.pop_to_mark()?;
                self.extend(&items)
            }
        }
    }

    fn tuple(&mut self, opcode: u8) -> Parsed<()> {
        let items = match opcode {
            b')' => Vec::new(),
            b't' => self.pop_to_mark()?,
            _ => {
                let count = usize::from(opcode - 0x84);
                let items = (0..count).map(|_| self.pop()).collect::<Parsed<Vec<Value>>>();
                items.map(|items| items.into_iter().rev().collect())?
            }
        };
        self.push_object(Object::Tuple(items))
    }

    fn memory(&mut self, opcode: u8) -> Parsed<()> {
        let key = match opcode {
            b'h' | b'q' => self.byte()?.into(),
            b'j' | b'r' => u32::from_le_bytes(self.array()?).into(),
            0x94 => self.memo.len() as u64,
            _ => {
                let line = self.line()?;
                let key = str::from_utf8(self.raw(line)).ok().and_then(|digits| digits.parse().ok());
                key.ok_or_else(|| malformed("has a memo key that is not a number"))?
            }
        };
        if matches!(opcode, b'g' | b'h' | b'j') {
            let value = self.memo.get(&key).copied();
            return self.push(value.ok_or_else(|| malformed("uses a value that it did not remember"))?);
        }
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn call(&mut self, opcode: u8) -> Parsed<()> {
        match opcode {
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push_object(Object::Global { module, name })
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.push_object(Object::Global { module, name }),
                _ => Err(malformed("names a global by something other than text")),
            },
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.push_call(function, arguments)
            }
            0x92 => {
                let (_keywords, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.push_call(class, arguments)
            }
            // BUILD sets attributes: of objects alone, since what else has some (a dictionary's class) says nothing about tensors.
            b'b' => {
                let state = self.pop()?;
                if let Ok(Object::Call(call)) = self.top_object() {
                    call.state = state;
                }
                self.top().map(|_| ())
            }
            b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                let arguments = self.pop_to_mark()?;
                let class = self.new_object(Object::Global { module, name });
                let arguments = self.new_object(Object::Tuple(arguments));
                self.push_call(class, arguments)
            }
            b'o' => {
                let mut arguments = self.pop_to_mark()?;
                if arguments.is_empty() {
                    return Err(malformed("makes an object without a class"));
                }
                let class = arguments.remove(0);
                let arguments = self.new_object(Object::Tuple(arguments));
                self.push_call(class, arguments)
            }
            b'P' => {
                let line = self.line()?;
                self.push_object(Object::Persistent(Value::Text(line)))
            }
            // BINPERSID
            _ => {
                let id = self.pop()?;
                self.push_object(Object::Persistent(id))
            }
        }
    }

    fn push_call(&mut self, function: Value, arguments: Value) -> Parsed<()> {
        self.push_object(Object::Call(Box::new(Call { function, arguments, items: Vec::new(), state: Value::None })))
    }

    /// Appends to the list or set on top of the stack.
    fn extend(&mut self, items: &[Value]) -> Parsed<()> {
        match self.top_object()? {
            Object::List(list) | Object::Set(list) => list.extend_from_slice(items),
            Object::Call(_) => {}
            _ => return Err(malformed("appends to something that is not a list")),
        }
        Ok(())
    }

    /// Inserts into the dictionary on top of the stack.
    fn insert(&mut self, items: Vec<(Value, Value)>) -> Parsed<()> {
        match self.top_object()? {
            Object::Dict(dict) => dict.extend(items),
            Object::Call(call) => call.items.extend(items),
            _ => return Err(malformed("inserts into something that is not a dictionary")),
        }
        Ok(())
    }

    fn new_object(&mut self, object: Object) -> Value {
        // At most MOST_OBJECTS and the few of one opcode.
        let index = self.objects.len() as u32;
        self.objects.push(object);
        Value::Object(index)
    }

    fn push_object(&mut self, object: Object) -> Parsed<()> {
        let value = self.new_object(object);
        self.push(value)
    }

    /// The height of the stack is checked after each opcode.
    fn push(&mut self, value: Value) -> Parsed<()> {
        self.stack.push(value);
        Ok(())
    }

    /// The lowest stack height that may be popped: that of the open mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Parsed<Value> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    fn top(&self) -> Parsed<Value> {
        let above = self.stack.get(self.floor()..).and_then(<[Value]>::last);
        above.copied().ok_or_else(|| malformed("takes a value that is not there"))
    }

    fn top_object(&mut self) -> Parsed<&mut Object> {
        let object = match self.top()? {
            Value::Object(index) => self.objects.get_mut(index as usize),
            _ => None,
        };
        object.ok_or_else(|| malformed("adds to something that is not a container"))
    }

    fn pop_or_mark(&mut self) -> Parsed<()> {
        if self.stack.len() == self.floor() && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop().map(|_| ())
    }

    fn pop_to_mark(&mut self) -> Parsed<Vec<Value>> {
        let mark = self.marks.pop().ok_or_else(|| malformed("closes a group that is not open"))?;
        Ok(self.stack.drain(mark..).collect())
    }

    fn raw(&self, span: Span) -> &'a [u8] {
        &self.bytes[span.start as usize..span.start as usize + span.length as usize]
    }

    fn span(&mut self, length: u64) -> Parsed<Span> {
        let start = self.at;
        let rest = (self.bytes.len() - start) as u64;
        if length > rest {
            return Err(cut());
        }
        self.at += length as usize;
        Ok(Span { start: start as u32, length: length as u32 })
    }

    fn skip(&mut self, count: u64) -> Parsed<()> {
        self.span(count).map(|_| ())
    }

    fn array<const COUNT: usize>(&mut self) -> Parsed<[u8; COUNT]> {
        let array = *self.bytes[self.at..].first_chunk().ok_or_else(cut)?;
        self.at += COUNT;
        Ok(array)
    }

    fn byte(&mut self) -> Parsed<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Up to the next line feed, which is consumed.
    fn line(&mut self) -> Parsed<Span> {
        let length = self.bytes[self.at..].iter().position(|byte| *byte == b'\n').ok_or_else(cut)?;
        let span = self.span(length as u64)?;
        self.at += 1;
        Ok(span)
    }
}

/// Alternating keys and values.
fn pairs(values: Vec<Value>) -> Parsed<Vec<(Value, Value)>> {
    if !values.len().is_multiple_of(2) {
        return Err(malformed("has a key without a value"));
    }
    Ok(values.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}
