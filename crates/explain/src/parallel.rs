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
    use super::*;

    #[test]
    fn results_stand_in_order() {
        let expected: Vec<usize> = (0..100).map(|piece| piece * piece).collect();
        for threads in [0, 1, 3, 200] {
            assert_eq!(pieces(100, threads, |piece| piece * piece), expected);
        }
        assert!(pieces(0, 2, |piece| piece).is_empty());
    }

    #[test]
    fn a_piece_that_takes_long_keeps_its_place() {
        let finished = AtomicUsize::new(0);
        let results = pieces(10, 2, |piece| {
            // The other thread has handed in all but the last of these eight.
            while piece == 0 && finished.load(Ordering::SeqCst) < 8 {
                std::thread::yield_now();
            }
            finished.fetch_add(1, Ordering::SeqCst);
            piece
        });
        assert_eq!(results, (0..10).collect::<Vec<_>>());
    }
}
