//! Aligned buffers of f32: the arena of a plan, and the flat buffers of a model.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;

/// Bytes that every buffer starts at a multiple of: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// From this many bytes on a buffer is mapped by itself, in huge pages where the system has them: kernels that only pass
/// over memory are up to a third faster for it, and pages that are never touched take no memory.
const MAPPED_FROM: usize = 1 << 20;

/// Mapped buffers start at different places in their pages, so many bytes apart: a kernel that walks several buffers in
/// step would otherwise meet itself in the same cache sets and memory banks all the time.
const STAGGER: usize = 17 * ALIGNMENT;
/// After so many buffers the places repeat.
const STAGGERED: usize = 7;
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// A fixed-size buffer of f32, zeroed, aligned to a cache line.
pub struct Floats {
    start: NonNull<f32>,
    len: usize,
    /// The mapping that the buffer lies in; `None` if it is from the allocator.
    mapping: Option<MmapMut>,
}

// SAFETY: the buffer is owned, and f32 may be sent and shared.
unsafe impl Send for Floats {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Floats {}

impl Floats {
    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Floats { start: NonNull::dangling(), len, mapping: None };
        }
        let layout = Self::layout(len);
        if layout.size() >= MAPPED_FROM {
            return Self::mapped(len, layout);
        }
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) }.cast::<f32>();
        match NonNull::new(start) {
            Some(start) => Floats { start, len, mapping: None },
            None => handle_alloc_error(layout),
        }
    }

    fn mapped(len: usize, layout: Layout) -> Self {
        let lead = MAPPED.fetch_add(1, Ordering::Relaxed) % STAGGERED * STAGGER;
        let Ok(mut mapping) = MmapMut::map_anon(layout.size() + lead) else { handle_alloc_error(layout) };
        // Advice only: where it is not taken, small pages do.
        #[cfg(target_os = "linux")]
        let _ = mapping.advise(memmap2::Advice::HugePage);
        let start = NonNull::new(mapping[lead..].as_mut_ptr().cast()).expect("a mapping is never at address 0");
        Floats { start, len, mapping: Some(mapping) }
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
        if self.len > 0 && self.mapping.is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_zeroed_aligned_and_writable() {
        for len in [0, 1, 17, MAPPED_FROM / 4 - 1, MAPPED_FROM / 4, 3 * MAPPED_FROM / 4 + 5] {
            let mut floats = Floats::zeroed(len);
            assert_eq!(floats.len(), len);
            assert!(len == 0 || floats.as_slice().as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert!(floats.as_slice().iter().all(|&x| x == 0.0));
            floats.as_mut_slice().fill(1.5);
            assert_eq!(floats.as_slice().iter().sum::<f32>(), 1.5 * len as f32);
        }
    }
}
