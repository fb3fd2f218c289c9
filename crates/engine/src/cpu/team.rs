//! The thread pool that runs a plan: threads are started once, and a kernel hands them numbered tiles.
//!
//! This is not rayon because running a plan must not allocate (rayon's injector does) and because a training step runs
//! some hundred kernels of tens of microseconds each: here, a job is handed over by an atomic counter that workers poll
//! for a moment before they sleep.
//!
//! A job ends when its tiles are done, whichever threads did them: a thread that the system has not scheduled is not
//! waited for, so that several programs on one machine slow each other down by no more than their share.
//!
//! Which thread runs which tile is unspecified; so that results do not depend on it, a tile's result may depend on its
//! index alone, and the number of tiles on shapes alone.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::buffer::Floats;
use crate::error::{Error, Result};

/// The work of a kernel: called once per tile, with the thread's scratch memory.
type Work<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// How long an idle thread polls for work before it sleeps. Waking a thread takes tens of microseconds, as long as a
/// small kernel, and within a plan the next kernel follows at once; after the last one, the cores are free within this
/// time.
const PATIENCE: Duration = Duration::from_micros(500);

/// Polls between two reads of the clock.
const LOOKS_A_TURN: u32 = 64;

struct Job {
    /// A `*const &Work`, valid while the job's `run` call has not returned.
    work: AtomicPtr<()>,
    tiles: AtomicUsize,
    /// Floats of its scratch memory that each thread hands to the work.
    lent: AtomicUsize,
    /// Remaining tiles in the low half, the job's number in the high half: a worker that comes late to a finished job
    /// takes no tile of the next one. A worker that has taken a tile keeps the job alive until it is done.
    left: AtomicU64,
    /// Number of finished tiles.
    done: AtomicUsize,
    /// Number of workers that have allocated their memory and wait for the first job.
    started: AtomicUsize,
    number: AtomicU32,
    stop: AtomicBool,
    panicked: AtomicBool,
    /// How long to poll before sleeping: not at all if threads outnumber cores, since polling would keep a core from a
    /// thread that has work.
    patience: Duration,
    /// Number of workers that sleep or are about to; waking is a system call, and mostly unnecessary.
    sleeping: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Job {
    /// Publishes the number of a new job and wakes sleeping workers. A worker counts itself as sleeping before its last
    /// check of the number, and this publishes before it checks the count: one of the two sees the other.
    fn publish(&self, number: u32) {
        self.number.store(number, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            let _guard = self.sleep.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.wake.notify_all();
        }
    }
}

/// A thread's scratch memory.
enum Scratch<'a> {
    Own(Floats),
    Lent(&'a mut [f32]),
}

impl Scratch<'_> {
    fn as_mut_slice(&mut self) -> &mut [f32] {
        match self {
            Scratch::Own(floats) => floats.as_mut_slice(),
            Scratch::Lent(floats) => floats,
        }
    }
}

/// A thread pool, including the calling thread.
pub struct Team<'a> {
    /// `None` if the caller is the only thread.
    job: Option<Arc<Job>>,
    workers: Vec<JoinHandle<()>>,
    scratch: Scratch<'a>,
    /// Floats of it that the next kernel gets.
    lent: usize,
}

impl<'a> Team<'a> {
    /// The calling thread alone, with the scratch memory that it already has: for kernels inside a tile.
    pub fn alone(scratch: &'a mut [f32]) -> Self {
        Team { job: None, workers: Vec::new(), lent: scratch.len(), scratch: Scratch::Lent(scratch) }
    }

    /// A pool of `threads` threads (at least one: the caller), each with `scratch_floats` of scratch memory.
    pub fn new(threads: usize, scratch_floats: usize) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let job = Arc::new(Job {
            work: AtomicPtr::new(std::ptr::null_mut()),
            tiles: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            left: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            number: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            patience: if threads <= cores { PATIENCE } else { Duration::ZERO },
            sleeping: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let scratch = Scratch::Own(Floats::zeroed(scratch_floats)?);
        let mut team = Team { job: Some(Arc::clone(&job)), workers: Vec::new(), scratch, lent: scratch_floats };
        for index in 1..threads.max(1) {
            let job = Arc::clone(&job);
            let scratch = Floats::zeroed(scratch_floats)?;
            let worker = std::thread::Builder::new()
                .name(format!("vitreous-{index}"))
                .spawn(move || worker_loop(&job, scratch))
                .map_err(|error| Error::Machine(format!("cannot start {threads} threads: {error}; ask for fewer")))?;
            team.workers.push(worker);
        }
        // Threads allocate their memory before the first job, so that running allocates nothing.
        while job.started.load(Ordering::Acquire) < team.workers.len() {
            std::thread::yield_now();
        }
        Ok(team)
    }

    /// Number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Takes other threads where these have less scratch memory.
    pub fn grow(&mut self, scratch_floats: usize) -> Result<()> {
        if scratch_floats > self.scratch.as_mut_slice().len() {
            *self = Team::new(self.threads(), scratch_floats)?;
        }
        Ok(())
    }

    /// How much of the scratch memory the next kernels get: no more than they said that they need, so that a kernel which says
    /// too little fails in every plan, and not only in those where no other kernel needs more.
    ///
    /// # Panics
    /// Panics if there is less.
    pub fn lend(&mut self, floats: usize) {
        assert!(floats <= self.scratch.as_mut_slice().len(), "there is less scratch memory than {floats} floats");
        self.lent = floats;
    }

    /// Calls `work` once for each tile in `0..tiles`, on all threads, and returns when all are done.
    ///
    /// # Panics
    /// Panics if `work` panicked for some tile.
    pub fn run(&mut self, tiles: usize, work: &Work) {
        let job = match &self.job {
            Some(job) if tiles != 1 && !self.workers.is_empty() => &**job,
            _ => {
                for tile in 0..tiles {
                    work(tile, &mut self.scratch.as_mut_slice()[..self.lent]);
                }
                return;
            }
        };
        let number = job.number.load(Ordering::Relaxed).wrapping_add(1);
        let fat: &Work = work;
        // The reference is fat, so workers get a pointer to it; it outlives the wait at the end of this call.
        job.work.store((&raw const fat).cast_mut().cast(), Ordering::Relaxed);
        job.tiles.store(tiles, Ordering::Relaxed);
        job.lent.store(self.lent, Ordering::Relaxed);
        job.done.store(0, Ordering::Relaxed);
        assert!(u32::try_from(tiles).is_ok(), "{tiles} tiles are more than can be counted");
        job.left.store(u64::from(number) << 32 | tiles as u64, Ordering::Release);
        job.publish(number);
        take_tiles(job, number, self.scratch.as_mut_slice());
        // The others have at most one tile each to finish, so this does not sleep.
        while !look(job.patience, || job.done.load(Ordering::Acquire) == tiles) {
            std::thread::yield_now();
        }
        assert!(!job.panicked.swap(false, Ordering::Relaxed), "a kernel panicked");
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        let Some(job) = &self.job else { return };
        job.stop.store(true, Ordering::Relaxed);
        job.publish(job.number.load(Ordering::Relaxed).wrapping_add(1));
        for worker in self.workers.drain(..) {
            // A worker's panic was already reported by `run`.
            let _ = worker.join();
        }
    }
}

/// Takes tiles of a job until none is left.
fn take_tiles(job: &Job, number: u32, scratch: &mut [f32]) {
    let one_less = |left: u64| (left >> 32 == u64::from(number) && left as u32 > 0).then(|| left - 1);
    while let Ok(left) = job.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less) {
        let tile = job.tiles.load(Ordering::Relaxed) - (left as u32) as usize;
        // SAFETY: `run` stored a pointer to a live `&Work` before it handed out tiles, and does not return before this
        // one is done.
        let work: &Work = unsafe { *job.work.load(Ordering::Relaxed).cast::<&Work>() };
        let lent = job.lent.load(Ordering::Relaxed);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(tile, &mut scratch[..lent]))).is_err() {
            job.panicked.store(true, Ordering::Relaxed);
        }
        job.done.fetch_add(1, Ordering::Release);
    }
}

fn worker_loop(job: &Job, mut scratch: Floats) {
    let mut seen = 0;
    job.started.fetch_add(1, Ordering::Release);
    loop {
        seen = wait_for_job(job, seen);
        if job.stop.load(Ordering::Relaxed) {
            return;
        }
        take_tiles(job, seen, scratch.as_mut_slice());
    }
}

/// Polls until a condition holds or the time is up; returns whether it holds.
fn look(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS_A_TURN {
            if is_so() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= patience {
            return is_so();
        }
    }
}

fn wait_for_job(job: &Job, seen: u32) -> u32 {
    if !look(job.patience, || job.number.load(Ordering::Acquire) != seen) {
        let mut guard = job.sleep.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        job.sleeping.fetch_add(1, Ordering::SeqCst);
        while job.number.load(Ordering::SeqCst) == seen {
            guard = job.wake.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        job.sleeping.fetch_sub(1, Ordering::SeqCst);
    }
    job.number.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_runs_once() {
        for threads in [1, 2, 4, 7] {
            let mut team = Team::new(threads, 16).unwrap();
            for tiles in [0, 1, 2, 3, 100, 1000] {
                let counts: Vec<AtomicUsize> = (0..tiles).map(|_| AtomicUsize::new(0)).collect();
                team.run(tiles, &|tile, scratch| {
                    assert_eq!(scratch.len(), 16);
                    counts[tile].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_kernel_gets_the_scratch_that_it_was_lent() {
        for threads in [1, 3] {
            let mut team = Team::new(threads, 64).unwrap();
            for floats in [16, 0, 64] {
                team.lend(floats);
                team.run(100, &|_, scratch| assert_eq!(scratch.len(), floats));
            }
        }
        let mut floats = [0.0; 32];
        let mut alone = Team::alone(&mut floats);
        alone.lend(8);
        alone.run(2, &|_, scratch| assert_eq!(scratch.len(), 8));
    }

    #[test]
    fn many_teams_on_few_cores_run_every_tile_once() {
        let teams = (0..4).map(|seed| {
            std::thread::spawn(move || {
                let mut team = Team::new(3, 1).unwrap();
                for round in 0..3000 {
                    let tiles = 2 + (round * 7 + seed) % 13;
                    let counts: [AtomicUsize; 15] = std::array::from_fn(|_| AtomicUsize::new(0));
                    team.run(tiles, &|tile, _| {
                        counts[tile].fetch_add(1, Ordering::Relaxed);
                    });
                    let sums = counts.map(AtomicUsize::into_inner);
                    assert!(sums[..tiles].iter().all(|&sum| sum == 1) && sums[tiles..].iter().all(|&sum| sum == 0));
                }
            })
        });
        teams.collect::<Vec<_>>().into_iter().for_each(|team| team.join().expect("no lost tile"));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let mut team = Team::new(3, 0).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.run(64, &|tile, _| assert!(tile != 40, "tile 40"));
        }));
        assert!(result.is_err());
        let count = AtomicUsize::new(0);
        team.run(64, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 64);
    }
}
