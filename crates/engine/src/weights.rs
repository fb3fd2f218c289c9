//! A model's weights as they are stored, and weights that several executors share.

use std::borrow::Cow;
use std::ops::Range;

use half::{bf16, f16};

use crate::blocks::BlockFormat;
use crate::cpu;
use crate::cuda;
use crate::executor::Device;

/// A parameter's values in the format that they are stored in: a view of a mapped file, or numbers of one's own.
///
/// Whoever takes weights in reads them from here in pieces, so that a file of bf16 is never widened to f32 as a whole.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WeightView<'w> {
    /// 32-bit floats.
    F32(Cow<'w, [f32]>),
    /// IEEE half precision.
    F16(Cow<'w, [f16]>),
    /// The upper half of 32-bit floats.
    Bf16(Cow<'w, [bf16]>),
    /// Quantised blocks, rows of whole blocks one after another.
    Blocks(BlockFormat, Cow<'w, [u8]>),
}

impl<'w> WeightView<'w> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            WeightView::F32(values) => values.len(),
            WeightView::F16(values) => values.len(),
            WeightView::Bf16(values) => values.len(),
            WeightView::Blocks(format, bytes) => bytes.len() / format.bytes() * format.values(),
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the values take as they are stored.
    pub fn bytes(&self) -> usize {
        match self {
            WeightView::F32(values) => 4 * values.len(),
            WeightView::F16(values) => 2 * values.len(),
            WeightView::Bf16(values) => 2 * values.len(),
            WeightView::Blocks(_, bytes) => bytes.len(),
        }
    }

    /// The values from `start` on as f32, as many as `to` has room for. Floats widen exactly.
    ///
    /// # Panics
    /// Panics if there are not so many, or if they begin or end within a quantised block.
    pub fn read_into(&self, start: usize, to: &mut [f32]) {
        let range = start..start + to.len();
        match self {
            WeightView::F32(values) => to.copy_from_slice(&values[range]),
            WeightView::F16(values) => {
                values[range].iter().zip(to).for_each(|(from, to)| *to = from.to_f32());
            }
            WeightView::Bf16(values) => cpu::widen(&values[range], to),
            WeightView::Blocks(format, bytes) => format.dequantise(&bytes[block_bytes(*format, range)], to),
        }
    }

    /// Some of the values: a view of what is lent, or a copy.
    ///
    /// # Panics
    /// Panics if there are not so many, or if they begin or end within a quantised block.
    pub fn into_part(self, range: Range<usize>) -> WeightView<'w> {
        fn part<T: Copy>(values: Cow<'_, [T]>, range: Range<usize>) -> Cow<'_, [T]> {
            match values {
                Cow::Borrowed(values) => Cow::Borrowed(&values[range]),
                Cow::Owned(values) => Cow::Owned(values[range].to_vec()),
            }
        }
        match self {
            WeightView::F32(values) => WeightView::F32(part(values, range)),
            WeightView::F16(values) => WeightView::F16(part(values, range)),
            WeightView::Bf16(values) => WeightView::Bf16(part(values, range)),
            WeightView::Blocks(format, bytes) => WeightView::Blocks(format, part(bytes, block_bytes(format, range))),
        }
    }

    /// All values as f32: themselves, or widened.
    pub fn into_f32(self) -> Cow<'w, [f32]> {
        match self {
            WeightView::F32(values) => values,
            other => {
                let mut values = vec![0.0; other.len()];
                other.read_into(0, &mut values);
                Cow::Owned(values)
            }
        }
    }
}

/// The bytes of a range of values, which must be whole blocks: a row is.
fn block_bytes(format: BlockFormat, values: Range<usize>) -> Range<usize> {
    let at = |value: usize| {
        assert!(value.is_multiple_of(format.values()), "value {value} is within a block of {}", format.name());
        value / format.values() * format.bytes()
    };
    at(values.start)..at(values.end)
}

impl<'w> From<Cow<'w, [f32]>> for WeightView<'w> {
    fn from(values: Cow<'w, [f32]>) -> Self {
        WeightView::F32(values)
    }
}

impl<'w> From<&'w [f32]> for WeightView<'w> {
    fn from(values: &'w [f32]) -> Self {
        WeightView::F32(Cow::Borrowed(values))
    }
}

impl From<Vec<f32>> for WeightView<'_> {
    fn from(values: Vec<f32>) -> Self {
        WeightView::F32(Cow::Owned(values))
    }
}

/// A model's weights on a device, taken in once for all executors that are made with it: see
/// [`crate::Executor::with_shared_weights`]. They stay until this and all of those executors are gone.
pub struct SharedWeights {
    pub(crate) of: OnDevice,
}

pub(crate) enum OnDevice {
    Cpu(cpu::SharedWeights),
    Cuda(cuda::SharedWeights),
}

impl SharedWeights {
    /// None yet.
    pub fn new(device: &Device) -> SharedWeights {
        SharedWeights {
            of: match device {
                Device::Cpu { .. } => OnDevice::Cpu(cpu::SharedWeights::default()),
                Device::Cuda(device) => OnDevice::Cuda(cuda::SharedWeights::new(device)),
            },
        }
    }

    /// Bytes of the device's memory that were taken so far.
    pub fn bytes(&self) -> usize {
        match &self.of {
            OnDevice::Cpu(weights) => weights.bytes(),
            OnDevice::Cuda(weights) => weights.bytes(),
        }
    }
}
