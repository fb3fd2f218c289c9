//! Aligned f32 buffers: the arena of a plan and the flat buffers of a model.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::error::{Error, Result};

/// Alignment of every buffer in bytes: a cache line, which is also the widest vector register.
const ALIGNMENT: usize = 64;

/// Buffers of at least this many bytes get their own memory mapping, with huge pages where available: memory-bound
/// kernels are up to a third faster with them, and pages that are never touched take no memory.
const MAPPED_FROM: usize = 1 << 20;

/// Memory is given back in multiples of so many bytes: a page of most systems, or several of them.
#[cfg(all(feature = "mmap", target_os = "linux"))]
const PAGE: usize = if cfg!(target_arch = "aarch64") { 1 << 16 } else { 1 << 12 };

/// Memory that is mapped by itself.
#[cfg(feature = "mmap")]
type Mapping = memmap2::MmapMut;
/// Memory that is mapped by itself: there is none in a build without the feature `mmap`.
#[cfg(not(feature = "mmap"))]
type Mapping = std::convert::Infallible;

/// The pages that a mapped buffer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Huge ones where available: for memory that is used as a whole.
    Huge,
    /// Small ones: memory is taken, and given back, in small parts.
    Small,
}

/// Zeroed memory of its own; `Some(None)` if the system refuses it, `None` if this build takes it from the allocator.
#[cfg(feature = "mmap")]
fn map(bytes: usize, pages: Pages) -> Option<Option<(NonNull<f32>, Mapping)>> {
    let mut options = memmap2::MmapOptions::new();
    options.len(bytes);
    if pages == Pages::Small {
        // There may be far more of it than is ever used.
        options.no_reserve_swap();
    }
    let mut mapping = match options.map_anon() {
        Ok(mapping) => mapping,
        Err(_) => return Some(None),
    };
    // Advice only: where it is not taken, the system's usual pages do.
    #[cfg(target_os = "linux")]
    let _ = mapping.advise(match pages {
        Pages::Huge => memmap2::Advice::HugePage,
        Pages::Small => memmap2::Advice::NoHugePage,
    });
    Some(NonNull::new(mapping.as_mut_ptr().cast()).map(|start| (start, mapping)))
}

#[cfg(not(feature = "mmap"))]
fn map(_bytes: usize, _pages: Pages) -> Option<Option<(NonNull<f32>, Mapping)>> {
    None
}

/// A fixed-size buffer of f32, zeroed, aligned to a cache line.
pub struct Floats {
    start: NonNull<f32>,
    len: usize,
    /// The mapping that the buffer lies in; `None` if it is from the allocator.
    mapping: Option<Mapping>,
}

// SAFETY: the buffer is owned, and f32 may be sent and shared.
unsafe impl Send for Floats {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Floats {}

impl Floats {
    /// A buffer of `len` zeros, or an error if there is not enough memory.
    pub fn zeroed(len: usize) -> Result<Self> {
        Floats::zeroed_in(len, Pages::Huge)
    }

    /// A buffer of `len` zeros whose memory is taken page by page as it is written, and can be given back in parts.
    pub fn zeroed_in_parts(len: usize) -> Result<Self> {
        Floats::zeroed_in(len, Pages::Small)
    }

    fn zeroed_in(len: usize, pages: Pages) -> Result<Self> {
        if len == 0 {
            return Ok(Floats { start: NonNull::dangling(), len, mapping: None });
        }
        let refused = || {
            let bytes = 4.0 * len as f64 / f64::from(1 << 20);
            Error::Machine(format!("the machine refused {bytes:.0} MiB of memory; take a smaller batch or model"))
        };
        let layout = Self::layout(len).ok_or_else(refused)?;
        if let Some(mapped) = (layout.size() >= MAPPED_FROM).then(|| map(layout.size(), pages)).flatten() {
            let (start, mapping) = mapped.ok_or_else(refused)?;
            return Ok(Floats { start, len, mapping: Some(mapping) });
        }
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<f32>()).ok_or_else(refused)?;
        Ok(Floats { start, len, mapping: None })
    }

    /// A buffer initialised with a copy of `values`.
    pub fn holding(values: &[f32]) -> Result<Self> {
        let mut buffer = Floats::zeroed(values.len())?;
        buffer.as_mut_slice().copy_from_slice(values);
        Ok(buffer)
    }

    /// Gives the memory of bytes that are not needed any more back to the system, as far as it can take it: those of whole pages. What
    /// is read there afterwards is not what was written.
    #[cfg_attr(
        not(all(feature = "mmap", target_os = "linux")),
        expect(unused_variables, clippy::needless_pass_by_ref_mut)
    )]
    pub fn give_back(&mut self, bytes: std::ops::Range<usize>) {
        #[cfg(all(feature = "mmap", target_os = "linux"))]
        if let Some(mapping) = &self.mapping {
            let end = bytes.end.min(self.len * 4) / PAGE * PAGE;
            let start = bytes.start.next_multiple_of(PAGE);
            if start < end {
                // SAFETY: this memory is the buffer's own and borrowed mutably; pages that are given back read as zeros.
                let _ =
                    unsafe { mapping.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
    }

    fn layout(len: usize) -> Option<Layout> {
        Layout::array::<f32>(len).and_then(|layout| layout.align_to(ALIGNMENT)).ok()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values.
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `len` initialised values start there (dangling only for zero of them).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The values, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Floats {
    fn drop(&mut self) {
        if let (true, None, Some(layout)) = (self.len > 0, &self.mapping, Self::layout(self.len)) {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
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
            let mut floats = Floats::zeroed(len).unwrap();
            assert_eq!(floats.len(), len);
            assert!(len == 0 || floats.as_slice().as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert!(floats.as_slice().iter().all(|&x| x == 0.0));
            floats.as_mut_slice().fill(1.5);
            assert_eq!(floats.as_slice().iter().sum::<f32>(), 1.5 * len as f32);
        }
        assert!(Floats::zeroed(1 << 46).is_err());
        assert!(Floats::zeroed(usize::MAX).is_err());
    }

    #[test]
    #[cfg(all(feature = "mmap", target_os = "linux"))]
    fn memory_that_is_given_back_is_whole_pages_of_the_range() {
        let len = 4 * PAGE.max(MAPPED_FROM / 4);
        let mut floats = Floats::zeroed_in_parts(len).unwrap();
        floats.as_mut_slice().fill(1.0);
        floats.give_back(PAGE + 4..4 * PAGE + 8);
        let per_page = PAGE / 4;
        let values = floats.as_slice();
        assert!(values[..2 * per_page].iter().all(|&x| x == 1.0), "the page that the range begins in");
        assert!(values[2 * per_page..4 * per_page].iter().all(|&x| x == 0.0), "the pages within");
        assert!(values[4 * per_page..].iter().all(|&x| x == 1.0), "the page that it ends in");
        // It can be written again; ranges of no whole page, and behind the end, change nothing.
        floats.as_mut_slice().fill(2.0);
        floats.give_back(10..20);
        floats.give_back(len * 4..len * 8);
        assert!(floats.as_slice().iter().all(|&x| x == 2.0));
    }
}
