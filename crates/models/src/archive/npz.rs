//! `.npz`: a zip file of `.npy` arrays. An array consists of a magic number, a version, the header's length, the header
//! as a Python literal, and the elements.

use std::borrow::Cow;

use super::Contents;
use super::error::{Fault, Parsed, shortened};
use super::safetensors::unsupported_element;
use super::tensor::{ElementType, MOST_DIMENSIONS, Tensor, size_of};
use super::zip::{Content, Entry};

/// Suffix of array names in the zip file.
pub(super) const SUFFIX: &str = ".npy";
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// More than any numeric array needs: only structured arrays with thousands of named columns have longer headers.
const LONGEST_HEADER: usize = 1 << 16;
/// Magic number, version, and the longer of the two length fields.
const PREAMBLE: usize = 12;

/// The arrays of an archive. Stored ones are parsed in place; of deflated ones, only the beginning is inflated.
pub(super) fn read(file: &[u8], entries: Vec<Entry>) -> Parsed<Contents> {
    let mut contents = Contents::default();
    for entry in entries {
        let Some(name) = entry.name.strip_suffix(SUFFIX).map(str::to_string) else {
            let fault = Fault::unsupported("it is not an array, only a file in the archive", "save it as an array");
            contents.refuse(entry.name, fault);
            continue;
        };
        let start = if entry.content.deflated {
            Cow::Owned(
                entry.content.inflate_start(file, PREAMBLE + LONGEST_HEADER).map_err(|fault| fault.in_tensor(&name))?,
            )
        } else {
            let data = &file[entry.content.data.clone()];
            Cow::Borrowed(&data[..data.len().min(PREAMBLE + LONGEST_HEADER)])
        };
        let header = Header::parse(&start).map_err(|fault| fault.in_tensor(&name))?;
        let element = header.element();
        let tensor = element.and_then(|(element, big_endian)| tensor(header, element, big_endian, entry.content));
        contents.note(name, tensor)?;
    }
    Ok(contents)
}

fn tensor(header: Header, element: ElementType, big_endian: bool, content: Content) -> Parsed<Tensor> {
    let (_, bytes) = size_of(&header.shape, element)?;
    let end = header.data_start.checked_add(bytes);
    if end != Some(content.size) {
        let there = content.size.saturating_sub(header.data_start);
        return Err(Fault::damaged(format!("its header describes {bytes} bytes, but {there} are there")));
    }
    let location = content.location().part(header.data_start..content.size);
    let location = location.ok_or_else(|| Fault::damaged("its elements are outside of the file"))?;
    let strides = (header.fortran_order && header.shape.len() > 1).then(|| fortran_strides(&header.shape));
    Ok(Tensor { element, shape: header.shape, strides, big_endian, location })
}

/// Strides with the first dimension contiguous. The products cannot overflow if the shape's own does not; without
/// elements they do not matter.
fn fortran_strides(shape: &[usize]) -> Vec<usize> {
    let mut stride = 1;
    let step = |size: &usize| {
        let own = stride;
        stride *= (*size).max(1);
        own
    };
    shape.iter().map(step).collect()
}

/// The contents of a `.npy` header.
struct Header {
    kind: String,
    fortran_order: bool,
    shape: Vec<usize>,
    data_start: usize,
}

impl Header {
    fn parse(start: &[u8]) -> Parsed<Header> {
        let cut = || Fault::damaged("its .npy header is cut short");
        if !start.starts_with(MAGIC) {
            return Err(Fault::damaged("it does not begin as a .npy array does"));
        }
        let version = *start.get(6).ok_or_else(cut)?;
        let rest = start.get(8..).ok_or_else(cut)?;
        let (length, length_bytes) = match version {
            1 => (u16::from_le_bytes(*rest.first_chunk().ok_or_else(cut)?).into(), 2),
            2 | 3 => (u32::from_le_bytes(*rest.first_chunk().ok_or_else(cut)?), 4),
            other => {
                return Err(Fault::unsupported(
                    format!("its .npy version is {other}"),
                    "versions 1 to 3 are read: save it again",
                ));
            }
        };
        let data_start = 8 + length_bytes + length as usize;
        if length as usize > LONGEST_HEADER {
            return Err(Fault::damaged(format!("a .npy header of {length} bytes is claimed")));
        }
        let text = start.get(8 + length_bytes..data_start).ok_or_else(cut)?;
        let mut header = Literal { rest: text }.header()?;
        header.data_start = data_start;
        Ok(header)
    }

    /// The element type, and whether it is big-endian.
    fn element(&self) -> Parsed<(ElementType, bool)> {
        let (order, kind) = self.kind.split_at_checked(1).ok_or_else(|| unsupported_element(&self.kind))?;
        let element = match kind {
            "f8" => ElementType::F64,
            "f4" => ElementType::F32,
            "f2" => ElementType::F16,
            // NumPy has no bfloat16: JAX's arrays are saved as untyped two-byte elements.
            "V2" => ElementType::Bf16,
            "i8" => ElementType::I64,
            "i4" => ElementType::I32,
            "i2" => ElementType::I16,
            "i1" => ElementType::I8,
            "u1" => ElementType::U8,
            "b1" => ElementType::Bool,
            _ => return Err(unsupported_element(&self.kind)),
        };
        match order {
            "<" | "|" => Ok((element, false)),
            ">" => Ok((element, true)),
            _ => Err(unsupported_element(&self.kind)),
        }
    }
}

/// The format's name for an element type.
pub(super) fn element_name(element: ElementType) -> Option<&'static str> {
    Some(match element {
        ElementType::F64 => "<f8",
        ElementType::F32 => "<f4",
        ElementType::F16 => "<f2",
        ElementType::Bf16 => "|V2",
        ElementType::I64 => "<i8",
        ElementType::I32 => "<i4",
        ElementType::I16 => "<i2",
        ElementType::I8 => "|i1",
        ElementType::U8 => "|u1",
        ElementType::Bool => "|b1",
        ElementType::Blocks(_) => return None,
    })
}

/// The few Python literals that occur in headers: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
struct Literal<'a> {
    rest: &'a [u8],
}

impl Literal<'_> {
    fn header(mut self) -> Parsed<Header> {
        let (mut kind, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.take(b'}') {
            let key = self.text()?;
            self.expect(b':')?;
            let is_new = match key.as_str() {
                "descr" => kind.replace(self.kind()?).is_none(),
                "fortran_order" => fortran_order.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                other => {
                    return Err(Fault::damaged(format!("its .npy header has an unknown key `{}`", shortened(other))));
                }
            };
            if !is_new {
                return Err(Fault::damaged(format!("its .npy header says `{key}` twice")));
            }
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_blanks();
        match (kind, fortran_order, shape) {
            (Some(kind), Some(fortran_order), Some(shape)) if self.rest.is_empty() => {
                Ok(Header { kind, fortran_order, shape, data_start: 0 })
            }
            _ => Err(Self::malformed()),
        }
    }

    fn malformed() -> Fault {
        Fault::damaged("its .npy header is not a description of an array")
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.take(byte) { Ok(()) } else { Err(Self::malformed()) }
    }

    fn text(&mut self) -> Parsed<String> {
        let quote = if self.take(b'\'') { b'\'' } else { b'"' };
        if quote == b'"' {
            self.expect(quote)?;
        }
        let end = self.rest.iter().position(|byte| *byte == quote || *byte == b'\\').ok_or_else(Self::malformed)?;
        let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest = &self.rest[end..];
        self.expect(quote)?;
        Ok(text)
    }

    /// An element type. A list describes a structured array, which is not a tensor; it is kept as text for the message.
    fn kind(&mut self) -> Parsed<String> {
        self.skip_blanks();
        if self.rest.first() != Some(&b'[') {
            return self.text();
        }
        let end = self.rest.iter().rposition(|byte| *byte == b']').ok_or_else(Self::malformed)?;
        let list = String::from_utf8_lossy(&self.rest[..=end]).into_owned();
        self.rest = &self.rest[end + 1..];
        Ok(list)
    }

    fn truth(&mut self) -> Parsed<bool> {
        self.skip_blanks();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(Self::malformed())
    }

    fn shape(&mut self) -> Parsed<Vec<usize>> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.take(b')') {
            if shape.len() == MOST_DIMENSIONS {
                return Err(Self::malformed());
            }
            shape.push(self.size()?);
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn size(&mut self) -> Parsed<usize> {
        self.skip_blanks();
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = str::from_utf8(&self.rest[..digits]).ok().and_then(|digits| digits.parse().ok());
        self.rest = &self.rest[digits..];
        // Python 2 marks its long integers with an L.
        self.rest = self.rest.strip_prefix(b"L").unwrap_or(self.rest);
        number.ok_or_else(Self::malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Parsed<Header> {
        Literal { rest: text.as_bytes() }.header()
    }

    #[test]
    fn headers_of_any_order_spacing_and_age_are_read() {
        let found = header("{\"shape\" :( 3L,4 , ) ,'fortran_order':True,'descr':'>f8'}  \n").unwrap();
        assert_eq!((found.kind.as_str(), found.fortran_order, found.shape), (">f8", true, vec![3, 4]));
        assert_eq!(header("{'descr': '<f4', 'fortran_order': False, 'shape': (), }").unwrap().shape, [0usize; 0]);
    }

    #[test]
    fn tables_of_columns_are_named_and_not_read() {
        let found = header("{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, 'shape': (2,), }");
        // The list extends to the last bracket, so that what follows it is still parsed.
        let fault = found.unwrap().element().unwrap_err();
        assert!(format!("{fault:?}").contains("('b', '<i8')"));
    }

    #[test]
    fn headers_that_are_not_literals_are_refused() {
        let calls = "{'descr': '<f4', 'fortran_order': __import__('os').system('true'), 'shape': (1,)}";
        let twice = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (2,)}";
        let negative = "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}";
        let endless = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,";
        let large = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999,)}";
        for text in [calls, twice, negative, endless, large, "", "{}", "{'a': 1}", "{'descr': '<f4\\'"] {
            assert!(header(text).is_err(), "{text}");
        }
    }
}
