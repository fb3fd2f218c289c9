//! Aligned buffers of f32: the arena of a plan, and the flat buffers of a model.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes that every buffer starts at a multiple of: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// A fixed-size buffer of f32, zeroed, aligned to a cache line.
pub struct Floats {
    start: NonNull<f32>,
    len: usize,
}

// SAFETY: the buffer is owned, and f32 may be sent and shared.
unsafe impl Send for Floats {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Floats {}

impl Floats {
    /// A buffer of `len` zeros. Pages that are never touched cost no memory.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Floats { start: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) }.cast::<f32>();
        match NonNull::new(start) {
            Some(start) => Floats { start, len },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::array::<f32>(len)
            .and_then(|layout| layout.align_to(ALIGNMENT))
            .expect("a buffer's size was checked when its plan was made")
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values.
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `len` initialised values start there (dangling only for zero of them).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The values, to write.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Floats {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) }
        }
    }
}

impl std::fmt::Debug for Floats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Floats({})", self.len)
    }
}
