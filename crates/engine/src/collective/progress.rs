//! Whether the thread that trains comes further. Signs of life come from the thread that communicates, which goes on where the other hangs:
//! in a file system that no longer answers, or in a driver. Its own process notices that, and names itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// When the thread that trains was last seen to work.
#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    /// Milliseconds until the last step forward, and how many may pass until the next one; 0: as many as it takes.
    last: AtomicU64,
    limit: AtomicU64,
    /// How many threads wait for other ranks, which is no fault of this one.
    waiting: AtomicUsize,
}

impl Progress {
    pub fn new() -> Progress {
        Progress {
            began: Instant::now(),
            last: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// It came further.
    pub fn note(&self) {
        self.last.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// From now on it must come further within this time.
    pub fn expect(&self, limit: Duration) {
        self.note();
        self.limit.store(limit.as_millis() as u64, Ordering::Relaxed);
    }

    /// It waits for other ranks meanwhile.
    pub fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        self.note();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// An error if it has not, and does not wait for others.
    pub fn check(&self, rank: usize) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let since = (self.began.elapsed().as_millis() as u64).saturating_sub(self.last.load(Ordering::Relaxed));
        if limit == 0 || since <= limit || self.waiting.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        Err(Error::Lost {
            rank,
            what: format!(
                "has come no further for {} seconds, although its process is alive: it hangs while it reads data, computes or writes; \
                 look at its file systems",
                limit / 1000
            ),
        })
    }
}
