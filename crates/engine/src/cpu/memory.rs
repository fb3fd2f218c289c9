//! Memory views for kernels: values in either dtype, and buffers whose parts are written by different tiles.

use std::marker::PhantomData;
use std::ops::Range;

use half::bf16;

/// A buffer whose disjoint parts are written by different tiles.
#[derive(Clone, Copy)]
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `range`, whose caller guarantees that tiles use disjoint ranges.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Shares a slice among tiles.
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// # Safety
    /// `start` must be valid for `len` values for as long as `'a`, and not be accessed otherwise during that time.
    pub unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Shared { start, len, owner: PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Pointer to the first value.
    pub fn as_ptr(&self) -> *mut T {
        self.start
    }

    /// One part, mutable.
    ///
    /// # Safety
    /// No other reference into this range may be alive.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    #[inline]
    #[allow(clippy::mut_from_ref)] // the purpose of this type: the caller guarantees disjointness
    pub unsafe fn range(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: in bounds by the check above; unaliased as the caller guarantees.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Values in either dtype, for reading.
#[derive(Clone, Copy, Debug)]
pub enum FloatSlice<'a> {
    /// 32-bit.
    F32(&'a [f32]),
    /// 16-bit, widened to f32 on use.
    Bf16(&'a [bf16]),
}

impl<'a> FloatSlice<'a> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            FloatSlice::F32(values) => values.len(),
            FloatSlice::Bf16(values) => values.len(),
        }
    }

    /// The values of `range` as f32: borrowed, or widened into `buffer` (at least as long as the range).
    #[inline]
    pub fn read<'b>(&self, range: Range<usize>, buffer: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self {
            FloatSlice::F32(values) => &values[range],
            FloatSlice::Bf16(values) => {
                let buffer = &mut buffer[..range.len()];
                super::convert::widen(&values[range], buffer);
                buffer
            }
        }
    }

    /// Copies the values of `range` as f32 into `to`, which has the same length.
    #[inline]
    pub fn copy_to(&self, range: Range<usize>, to: &mut [f32]) {
        match self {
            FloatSlice::F32(values) => to.copy_from_slice(&values[range]),
            FloatSlice::Bf16(values) => super::convert::widen(&values[range], to),
        }
    }
}

/// Values in either dtype whose disjoint parts are written by different tiles.
#[derive(Clone, Copy)]
pub enum FloatShared<'a> {
    /// 32-bit.
    F32(Shared<'a, f32>),
    /// 16-bit, rounded to nearest even when written.
    Bf16(Shared<'a, bf16>),
}

impl FloatShared<'_> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            FloatShared::F32(values) => values.len(),
            FloatShared::Bf16(values) => values.len(),
        }
    }

    /// Writes `from` at `start`, rounding if necessary.
    ///
    /// # Safety
    /// No other reference into that part may be alive. `from` may be that very part: then nothing is written.
    #[inline]
    pub unsafe fn write(&self, start: usize, from: &[f32]) {
        match self {
            FloatShared::F32(values) => {
                let place = values.as_ptr().wrapping_add(start);
                if place.cast_const() != from.as_ptr() {
                    // SAFETY: guaranteed by the caller.
                    unsafe { values.range(start..start + from.len()) }.copy_from_slice(from);
                }
            }
            FloatShared::Bf16(values) => {
                // SAFETY: guaranteed by the caller.
                super::convert::narrow(from, unsafe { values.range(start..start + from.len()) });
            }
        }
    }
}
