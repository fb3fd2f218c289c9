//! A parallel map with results in order, ahead of the consumer: for decoding while the model runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The results of a function over items, computed by several threads ahead of the consumer, in the items' order. Dropping it stops the
/// threads after their current items.
pub struct OrderedMap<R> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    /// Results that were not taken yet, by index.
    done: BTreeMap<usize, R>,
    /// The index of the next result to be taken.
    next: usize,
    /// The number of items, once it is known.
    total: Option<usize>,
    /// The consumer is gone.
    stopped: bool,
    /// A thread panicked, so some result will never come.
    panicked: bool,
}

/// No result came in time; one may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet;

/// The items, and how many of them were handed out.
struct Items<I> {
    iterator: I,
    given: usize,
}

/// Locks, ignoring poison: the state under these locks is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R> Shared<R> {
    fn wait<'a>(&self, state: MutexGuard<'a, State<R>>) -> MutexGuard<'a, State<R>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until<'a>(&self, state: MutexGuard<'a, State<R>>, end: Instant) -> MutexGuard<'a, State<R>> {
        let left = end.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Changes the state and wakes those that wait for it.
    fn change(&self, change: impl FnOnce(&mut State<R>)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits until a result is wanted; false if none will be.
    fn has_room(&self, ahead: usize) -> bool {
        let mut state = lock(&self.state);
        while !state.stopped && state.done.len() >= ahead {
            state = self.wait(state);
        }
        !state.stopped
    }
}

impl<R: Send + 'static> OrderedMap<R> {
    /// Starts `threads` threads; each calls `worker` for a function of its own. While `ahead` results wait to be taken, the threads
    /// pause.
    pub fn new<I, W>(items: I, threads: usize, ahead: usize, worker: impl Fn() -> W) -> Self
    where
        I: Iterator + Send + 'static,
        W: FnMut(I::Item) -> R + Send + 'static,
    {
        let (threads, ahead) = (threads.max(1), ahead.max(1));
        let state = State { done: BTreeMap::new(), next: 0, total: None, stopped: false, panicked: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        // They have a lock of their own, because the next one may block, e.g. on standard input.
        let items = Arc::new(Mutex::new(Items { iterator: items, given: 0 }));
        for _ in 0..threads {
            let (shared, items, work) = (shared.clone(), items.clone(), worker());
            std::thread::spawn(move || {
                let watch = PanicWatch(&shared);
                work_through(&items, &shared, ahead, work);
                std::mem::forget(watch);
            });
        }
        OrderedMap { shared }
    }
}

fn work_through<I: Iterator, R>(
    items: &Mutex<Items<I>>,
    shared: &Shared<R>,
    ahead: usize,
    mut work: impl FnMut(I::Item) -> R,
) {
    while shared.has_room(ahead) {
        let mut items = lock(items);
        let Some(item) = items.iterator.next() else {
            return shared.change(|state| state.total = Some(items.given));
        };
        let index = items.given;
        items.given += 1;
        drop(items);
        let result = work(item);
        shared.change(|state| {
            state.done.insert(index, result);
        });
    }
}

/// Tells the consumer if its thread panics.
struct PanicWatch<'a, R>(&'a Shared<R>);

impl<R> Drop for PanicWatch<'_, R> {
    fn drop(&mut self) {
        self.0.change(|state| state.panicked = true);
    }
}

impl<R> OrderedMap<R> {
    /// Waits for the next result, up to a time limit.
    ///
    /// # Panics
    /// Panics if one of the threads did.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<R>, NotYet> {
        self.next_until(Some(Instant::now() + patience))
    }

    fn next_until(&mut self, end: Option<Instant>) -> Result<Option<R>, NotYet> {
        let mut state = lock(&self.shared.state);
        loop {
            let next = state.next;
            if let Some(result) = state.done.remove(&next) {
                state.next += 1;
                self.shared.changed.notify_all();
                return Ok(Some(result));
            }
            if state.total.is_some_and(|total| next >= total) {
                return Ok(None);
            }
            assert!(!state.panicked, "a thread that prepares data panicked");
            state = match end {
                Some(end) if Instant::now() >= end => return Err(NotYet),
                Some(end) => self.shared.wait_until(state, end),
                None => self.shared.wait(state),
            };
        }
    }
}

impl<R> Iterator for OrderedMap<R> {
    type Item = R;

    /// Waits for the next result.
    ///
    /// # Panics
    /// Panics if one of the threads did.
    fn next(&mut self) -> Option<R> {
        // Without a deadline there is no timeout.
        self.next_until(None).unwrap_or(None)
    }
}

impl<R> Drop for OrderedMap<R> {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopped = true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_come_in_order_whatever_each_takes() {
        for (threads, ahead) in [(1, 1), (2, 1), (3, 2), (4, 64)] {
            let slow = |item: u64| {
                std::thread::sleep(Duration::from_micros((item * 37) % 500));
                item * item
            };
            let results: Vec<u64> = OrderedMap::new(0..200, threads, ahead, || slow).collect();
            assert_eq!(
                results,
                (0..200).map(|item| item * item).collect::<Vec<u64>>(),
                "{threads} threads, {ahead} ahead"
            );
        }
        assert_eq!(OrderedMap::new(0..0, 2, 2, || |item: i32| item).next(), None);
    }

    #[test]
    fn threads_pause_when_enough_results_wait() {
        let computed = Arc::new(AtomicUsize::new(0));
        let counter = computed.clone();
        let mut map = OrderedMap::new(0.., 2, 4, move || {
            let counter = counter.clone();
            move |item: usize| {
                counter.fetch_add(1, Ordering::SeqCst);
                item
            }
        });
        assert_eq!(map.next(), Some(0));
        std::thread::sleep(Duration::from_millis(50));
        // Those that wait, the one that was taken, and one per thread in progress.
        assert!(computed.load(Ordering::SeqCst) <= 4 + 1 + 2);
    }

    #[test]
    fn patience_ends_where_no_item_comes() {
        let (send, items) = mpsc::channel::<usize>();
        let mut map = OrderedMap::new(items.into_iter(), 2, 4, || |item: usize| item + 1);
        assert_eq!(map.next_within(Duration::from_millis(1)), Err(NotYet));
        send.send(6).expect("a reader");
        assert_eq!(map.next_within(Duration::from_secs(60)), Ok(Some(7)));
        assert_eq!(map.next_within(Duration::ZERO), Err(NotYet));
        drop(send);
        assert_eq!(map.next_within(Duration::from_secs(60)), Ok(None));
        assert_eq!(map.next(), None);
    }

    #[test]
    #[should_panic(expected = "a thread that prepares data panicked")]
    fn a_panic_reaches_the_reader_instead_of_silence() {
        let fail = |item: usize| if item == 3 { panic!("as intended") } else { item };
        let _ = OrderedMap::new(0..8, 1, 2, || fail).count();
    }
}
