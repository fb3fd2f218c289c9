//! Decoded images that are cached in memory, up to a budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::Dataset;
use crate::image::ImageError;
use crate::image::{Channels, Image};

/// Bytes that may still be used; the splits of one data set share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<AtomicU64>);

impl MemoryBudget {
    /// This many bytes.
    pub fn new(bytes: u64) -> MemoryBudget {
        MemoryBudget(Arc::new(AtomicU64::new(bytes)))
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A data set whose images are decoded once, when they are first asked for, and kept while the budget lasts. The others are decoded
/// each time.
pub struct CachedImages {
    inner: Arc<dyn Dataset>,
    budget: MemoryBudget,
    images: Vec<OnceLock<Box<Image>>>,
}

impl CachedImages {
    /// Caches the images of a data set within this budget.
    pub fn new(inner: Arc<dyn Dataset>, budget: MemoryBudget) -> CachedImages {
        let images = std::iter::repeat_with(OnceLock::new).take(inner.len()).collect();
        CachedImages { inner, budget, images }
    }
}

impl Dataset for CachedImages {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        let slot = &self.images[index];
        if let Some(image) = slot.get().filter(|image| image.channels() == channels) {
            return Ok(Image::clone(image));
        }
        let image = self.inner.image(index, channels)?;
        let bytes = image.pixels().len() as u64;
        // Two threads may have decoded the same image: the second gives its bytes back.
        if slot.get().is_none() && self.budget.take(bytes) && slot.set(Box::new(image.clone())).is_err() {
            self.budget.give_back(bytes);
        }
        Ok(image)
    }

    fn labels(&self, index: usize) -> &[u32] {
        self.inner.labels(index)
    }

    fn content_mark(&self, index: usize) -> u64 {
        self.inner.content_mark(index)
    }

    fn name(&self, index: usize) -> String {
        self.inner.name(index)
    }

    fn channels(&self) -> Channels {
        self.inner.channels()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is asked for an image; sample 3 is broken.
    struct Counted(AtomicUsize);

    impl Dataset for Counted {
        fn len(&self) -> usize {
            8
        }

        fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            if index == 3 {
                return Err(ImageError::Empty);
            }
            Image::new(2, 2, channels, vec![index as u8; 4 * channels.count()])
        }

        fn labels(&self, _: usize) -> &[u32] {
            &[0]
        }

        fn name(&self, index: usize) -> String {
            index.to_string()
        }
    }

    #[test]
    fn images_are_decoded_once_while_the_budget_lasts() {
        let counted = Arc::new(Counted(AtomicUsize::new(0)));
        // Enough for two and a half images of 12 bytes.
        let budget = MemoryBudget::new(30);
        let cached = CachedImages::new(counted.clone(), budget.clone());
        let all = || {
            for index in [0, 1, 2, 4] {
                let image = cached.image(index, Channels::Rgb).expect("an image");
                assert_eq!(image.pixels(), [index as u8; 12]);
            }
        };
        all();
        assert_eq!((counted.0.load(Ordering::SeqCst), budget.left()), (4, 6));
        all();
        assert_eq!(counted.0.load(Ordering::SeqCst), 6, "two are cached, two are decoded again");
        assert!(cached.image(3, Channels::Rgb).is_err());
        assert_eq!(
            cached.image(0, Channels::Grey).expect("an image").pixels(),
            [0; 4],
            "other channels are decoded anew"
        );
        assert_eq!(budget.left(), 6);
    }

    #[test]
    fn threads_pay_once_for_an_image() {
        let (budget, counted) = (MemoryBudget::new(1 << 20), Arc::new(Counted(AtomicUsize::new(0))));
        let cached = CachedImages::new(counted, budget.clone());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for index in [0, 1, 2, 4, 5, 6, 7] {
                        cached.image(index, Channels::Rgb).expect("an image");
                    }
                });
            }
        });
        assert_eq!(budget.left(), (1 << 20) - 7 * 12);
    }
}
