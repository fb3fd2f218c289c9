//! One tensor of an archive: its element type, shape and location, and its values as f32.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use vitreous_engine::{BlockFormat, WeightView};

use super::error::{ArchiveError, Fault, Parsed, Result};
use super::room::{room, zeros};
use super::zip;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// Double precision.
    F64,
    /// Single precision, the type that models compute in.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 16 bits.
    I16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// A byte, zero or nonzero.
    Bool,
    /// Floats quantised in blocks; the rows of a tensor are whole blocks.
    Blocks(BlockFormat),
}

impl ElementType {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::F64 => "f64",
            ElementType::F32 => "f32",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::I64 => "i64",
            ElementType::I32 => "i32",
            ElementType::I16 => "i16",
            ElementType::I8 => "i8",
            ElementType::U8 => "u8",
            ElementType::Bool => "bool",
            ElementType::Blocks(format) => format.name(),
        }
    }

    /// Elements that share their bytes: one, or those of a block.
    pub fn values(self) -> usize {
        match self {
            ElementType::Blocks(format) => format.values(),
            _ => 1,
        }
    }

    /// Bytes of an element, or of a block of them.
    pub fn bytes(self) -> usize {
        match self {
            ElementType::F64 | ElementType::I64 => 8,
            ElementType::F32 | ElementType::I32 => 4,
            ElementType::F16 | ElementType::Bf16 | ElementType::I16 => 2,
            ElementType::I8 | ElementType::U8 | ElementType::Bool => 1,
            ElementType::Blocks(format) => format.bytes(),
        }
    }
}

/// More dimensions than any weight has; PyTorch's and NumPy's own limit is 64.
pub(super) const MOST_DIMENSIONS: usize = 64;

/// Number of elements of a shape, and their size in bytes. An error if the product overflows.
pub(super) fn size_of(shape: &[usize], element: ElementType) -> Parsed<(usize, usize)> {
    if shape.len() > MOST_DIMENSIONS {
        return Err(Fault::damaged(format!("the tensor has {} dimensions", shape.len())));
    }
    if let ElementType::Blocks(format) = element
        && !shape.last().is_some_and(|columns| columns.is_multiple_of(format.values()))
    {
        let what = format!("rows of the shape {shape:?} are no whole blocks of {} values", format.values());
        return Err(Fault::damaged(what));
    }
    // A zero would hide an overflow of the other factors, so they are multiplied without it.
    let others = shape.iter().filter(|size| **size != 0).try_fold(1usize, |product, size| product.checked_mul(*size));
    let elements = others.map(|product| if shape.contains(&0) { 0 } else { product });
    let bytes_of = |elements: usize| (elements / element.values()).checked_mul(element.bytes());
    let bytes = others.and_then(bytes_of).and_then(|_| bytes_of(elements?));
    match (elements, bytes) {
        (Some(elements), Some(bytes)) => Ok((elements, bytes)),
        _ => Err(Fault::damaged(format!("the shape {shape:?} of {} is larger than any memory", element.name()))),
    }
}

/// The location and layout of a tensor. All of it was checked against the file when the archive was opened.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) element: ElementType,
    pub(super) shape: Vec<usize>,
    /// In elements; `None` if the tensor is contiguous in row-major order.
    pub(super) strides: Option<Vec<usize>>,
    pub(super) big_endian: bool,
    pub(super) location: ByteRange,
}

/// The location of the bytes from a tensor's first element to the end of its last.
#[derive(Debug, Clone)]
pub(super) enum ByteRange {
    /// Uncompressed, in this range of the file.
    Stored(Range<usize>),
    /// In this range of the inflated content of a deflated entry.
    Deflated(zip::Content, Range<usize>),
}

impl ByteRange {
    pub(super) fn bytes(&self) -> usize {
        match self {
            ByteRange::Stored(range) | ByteRange::Deflated(_, range) => range.len(),
        }
    }

    /// A part of it; `None` if the part is out of range.
    pub(super) fn part(&self, part: Range<usize>) -> Option<ByteRange> {
        if part.start > part.end || part.end > self.bytes() {
            return None;
        }
        let moved = |range: &Range<usize>| range.start + part.start..range.start + part.end;
        Some(match self {
            ByteRange::Stored(range) => ByteRange::Stored(moved(range)),
            ByteRange::Deflated(content, range) => ByteRange::Deflated(content.clone(), moved(range)),
        })
    }
}

/// A tensor of an archive. Nothing is read until its values are requested.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// The element type in the file.
    pub element: ElementType,
    /// Its shape; empty for a scalar.
    pub shape: &'a [usize],
    name: &'a str,
    file: &'a Path,
    bytes: &'a [u8],
    tensor: &'a Tensor,
}

impl<'a> TensorView<'a> {
    pub(super) fn new(name: &'a str, tensor: &'a Tensor, file: &'a Path, bytes: &'a [u8]) -> Self {
        TensorView { element: tensor.element, shape: &tensor.shape, name, file, bytes, tensor }
    }

    /// Its name in the archive.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values as f32 in row-major order: borrowed from the memory-mapped file if they are stored like that
    /// (little-endian f32, aligned, contiguous); otherwise a converted copy. Integers and f64 are rounded to the
    /// nearest f32, and a bool is 0 or 1.
    pub fn to_f32(&self) -> Result<Cow<'a, [f32]>> {
        let content = self.content()?;
        if let Cow::Borrowed(bytes) = content
            && self.element == ElementType::F32
            && self.is_native()
            && let Ok(numbers) = bytemuck::try_cast_slice(bytes)
        {
            return Ok(Cow::Borrowed(numbers));
        }
        let mut numbers = zeros(self.name, self.elements(), 1)?;
        self.convert(&content, &mut numbers);
        Ok(Cow::Owned(numbers))
    }

    /// The numbers in C order, in the format that they are stored in if that is f32, f16, bf16 or quantised blocks, otherwise as [`to_f32`](Self::to_f32)
    /// gives them. Borrowed from the mapped file if they lie there so.
    pub fn to_weight(&self) -> Result<WeightView<'a>> {
        if let ElementType::Blocks(format) = self.element {
            return Ok(WeightView::Blocks(format, self.content()?));
        }
        let is_half = matches!(self.element, ElementType::F16 | ElementType::Bf16);
        if !is_half || !self.is_native() {
            return Ok(WeightView::F32(self.to_f32()?));
        }
        let content = self.content()?;
        Ok(match self.element {
            ElementType::F16 => WeightView::F16(halves(content, f16::from_le_bytes)),
            _ => WeightView::Bf16(halves(content, bf16::from_le_bytes)),
        })
    }

    /// Fills a slice of the tensor's length with its numbers, as [`to_f32`](Self::to_f32) gives them.
    pub fn read_into(&self, numbers: &mut [f32]) -> Result<()> {
        if numbers.len() != self.elements() {
            let (file, tensor) = (self.file.to_path_buf(), self.name.to_string());
            return Err(ArchiveError::Length { file, tensor, elements: self.elements(), got: numbers.len() });
        }
        self.convert(&self.content()?, numbers);
        Ok(())
    }

    /// The elements as bytes, little-endian and in row-major order: for copying a tensor without rounding. Borrowed if
    /// they are stored like that in the file.
    pub fn to_bytes(&self) -> Result<Cow<'a, [u8]>> {
        let content = self.content()?;
        if self.tensor.strides.is_none() && !self.tensor.big_endian {
            return Ok(content);
        }
        let width = self.element.bytes();
        let mut bytes = room(self.name, self.elements() * width, 1)?;
        self.rows(|first, count, stride| {
            for index in 0..count {
                let at = (first + index * stride) * width;
                bytes.extend_from_slice(&content[at..at + width]);
            }
        });
        if self.tensor.big_endian {
            bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        Ok(Cow::Owned(bytes))
    }

    /// Whether the elements are stored in this machine's native layout.
    fn is_native(&self) -> bool {
        self.tensor.strides.is_none() && self.tensor.big_endian == cfg!(target_endian = "big")
    }

    /// The bytes from the first element to the last, inflated if necessary.
    fn content(&self) -> Result<Cow<'a, [u8]>> {
        match &self.tensor.location {
            ByteRange::Stored(range) => Ok(Cow::Borrowed(&self.bytes[range.clone()])),
            ByteRange::Deflated(content, range) => {
                let mut inflated =
                    content.inflate(self.bytes).map_err(|fault| fault.in_tensor(self.name).in_file(self.file))?;
                inflated.truncate(range.end);
                inflated.drain(..range.start);
                Ok(Cow::Owned(inflated))
            }
        }
    }

    /// Calls `row(first, count, stride)`, in elements, for runs that make up the tensor in row-major order.
    fn rows(&self, mut row: impl FnMut(usize, usize, usize)) {
        if self.elements() == 0 {
            return;
        }
        let (Some(strides), Some((&count, outer))) = (&self.tensor.strides, self.shape.split_last()) else {
            return row(0, self.elements(), 1);
        };
        let mut index = vec![0; outer.len()];
        let mut first = 0;
        loop {
            row(first, count, strides[outer.len()]);
            let mut dimension = outer.len();
            loop {
                if dimension == 0 {
                    return;
                }
                dimension -= 1;
                index[dimension] += 1;
                first += strides[dimension];
                if index[dimension] < outer[dimension] {
                    break;
                }
                first -= index[dimension] * strides[dimension];
                index[dimension] = 0;
            }
        }
    }

    fn convert(&self, content: &[u8], numbers: &mut [f32]) {
        let big = self.tensor.big_endian;
        match self.element {
            ElementType::F16 if self.is_native() && bytemuck::try_cast_slice::<u8, f16>(content).is_ok() => {
                bytemuck::cast_slice::<u8, f16>(content).convert_to_f32_slice(numbers);
            }
            ElementType::F64 => self.each(content, numbers, |raw| number(raw, big, f64::from_le_bytes) as f32),
            ElementType::F32 => self.each(content, numbers, |raw| number(raw, big, f32::from_le_bytes)),
            ElementType::F16 => self.each(content, numbers, |raw| number(raw, big, f16::from_le_bytes).to_f32()),
            ElementType::Bf16 => self.each(content, numbers, |raw| number(raw, big, bf16::from_le_bytes).to_f32()),
            ElementType::I64 => self.each(content, numbers, |raw| number(raw, big, i64::from_le_bytes) as f32),
            ElementType::I32 => self.each(content, numbers, |raw| number(raw, big, i32::from_le_bytes) as f32),
            ElementType::I16 => self.each(content, numbers, |raw| number(raw, big, i16::from_le_bytes).into()),
            ElementType::I8 => self.each(content, numbers, |[byte]: [u8; 1]| f32::from(byte as i8)),
            ElementType::U8 => self.each(content, numbers, |[byte]: [u8; 1]| f32::from(byte)),
            ElementType::Blocks(format) => format.dequantise(content, numbers),
            ElementType::Bool => self.each(content, numbers, |[byte]: [u8; 1]| f32::from(u8::from(byte != 0))),
        }
    }

    fn each<const WIDTH: usize>(&self, content: &[u8], numbers: &mut [f32], convert: impl Fn([u8; WIDTH]) -> f32) {
        let (elements, _) = content.as_chunks::<WIDTH>();
        let mut done = 0;
        self.rows(|first, count, stride| {
            let row = &mut numbers[done..done + count];
            if stride == 1 {
                row.iter_mut().zip(&elements[first..first + count]).for_each(|(to, from)| *to = convert(*from));
            } else {
                row.iter_mut().enumerate().for_each(|(index, to)| *to = convert(elements[first + index * stride]));
            }
            done += count;
        });
    }
}

/// A number from bytes in either byte order.
#[inline(always)]
fn number<const WIDTH: usize, T>(mut raw: [u8; WIDTH], big_endian: bool, from_le: impl Fn([u8; WIDTH]) -> T) -> T {
    if big_endian {
        raw.reverse();
    }
    from_le(raw)
}

/// Numbers of two bytes, borrowed where they are aligned.
fn halves<T: bytemuck::Pod>(bytes: Cow<'_, [u8]>, read: fn([u8; 2]) -> T) -> Cow<'_, [T]> {
    if let Cow::Borrowed(bytes) = bytes
        && let Ok(numbers) = bytemuck::try_cast_slice(bytes)
    {
        return Cow::Borrowed(numbers);
    }
    Cow::Owned(bytes.chunks_exact(2).map(|two| read([two[0], two[1]])).collect())
}
