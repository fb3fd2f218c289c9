//! Work that falls into pieces, on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `work` gives for 0 to `count`, in this order. Which thread takes which piece changes nothing.
pub(crate) fn pieces<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.min(count);
    if threads < 2 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= count {
                        break;
                    }
                    let result = work(piece);
                    done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((piece, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_unstable_by_key(|(piece, _)| *piece);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn results_stand_in_order() {
        let expected: Vec<usize> = (0..100).map(|piece| piece * piece).collect();
        for threads in [0, 1, 3, 200] {
            assert_eq!(pieces(100, threads, |piece| piece * piece), expected);
        }
        assert!(pieces(0, 2, |piece| piece).is_empty());
    }
}
