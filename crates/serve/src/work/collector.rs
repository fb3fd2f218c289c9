//! Batching: jobs of one moment are computed together.
//!
//! A thread owns the work. It takes the first job and all others that wait. If more are being prepared, it waits for them, at most
//! [`CollectorSettings::patience`]; where nobody else is on the way, nobody waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use vitreous_runtime::Error;

use super::{WorkError, caught};

/// What a thread does with batches of jobs.
pub trait BatchWork {
    /// A job.
    type Job: Send + 'static;
    /// Its answer.
    type Answer: Send + 'static;

    /// How much of a batch a job takes.
    fn cost(job: &Self::Job) -> usize;

    /// The answers to jobs, in their order.
    fn run(&mut self, jobs: &[Self::Job]) -> Result<Vec<Self::Answer>, WorkError>;
}

/// How jobs are collected.
#[derive(Clone)]
pub struct CollectorSettings {
    /// The name of the thread.
    pub name: String,
    /// The most that the jobs of a batch cost together; one job may cost more.
    pub most: usize,
    /// How long a batch waits for jobs that are on their way.
    pub patience: Duration,
    /// Told the cost of each batch and the seconds that it took.
    pub observe: Arc<dyn Fn(usize, f64) + Send + Sync>,
    /// Told what failed.
    pub complain: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Sends jobs to the thread. When all of them are gone, the thread ends.
pub struct Collector<J, A> {
    jobs: mpsc::Sender<Waiting<J, A>>,
    arriving: Arc<AtomicUsize>,
}

impl<J, A> Clone for Collector<J, A> {
    fn clone(&self) -> Self {
        Collector { jobs: self.jobs.clone(), arriving: self.arriving.clone() }
    }
}

/// A job in the queue.
struct Waiting<J, A> {
    job: Kept<J>,
    answer: oneshot::Sender<Result<A, WorkError>>,
}

/// A job until the thread takes it, or whoever asked leaves: nothing is kept for those who have left, however long the batch before it takes.
struct Kept<J>(Arc<Mutex<Option<J>>>);

impl<J> Kept<J> {
    fn take(&self) -> Option<J> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<J> Drop for Kept<J> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A job that is computed, and where its answer goes.
struct Taken<J, A> {
    job: J,
    answer: oneshot::Sender<Result<A, WorkError>>,
}

/// A job that is being prepared: batches wait a moment for it.
pub struct Arrival(Arc<AtomicUsize>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<J: Send + 'static, A: Send + 'static> Collector<J, A> {
    /// Starts the thread. `body` makes the work and hands it to the function that it is given, which returns when the thread is to end;
    /// work that panicked is made again. Gives an error if it cannot be made the first time.
    pub fn start(
        settings: CollectorSettings,
        body: impl FnOnce(&mut Jobs<J, A>) + Send + 'static,
    ) -> Result<Collector<J, A>, Error> {
        let failed = |error: std::io::Error| Error::input(format!("no thread can be started: {error}"));
        let (send, receive) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let arriving = Arc::new(AtomicUsize::new(0));
        let mut jobs = Jobs { receive, arriving: arriving.clone(), ready: Some(ready), settings };
        let name = jobs.settings.name.clone();
        std::thread::Builder::new().name(name).spawn(move || body(&mut jobs)).map_err(failed)?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Collector { jobs: send, arriving }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::input("the model's worker ended before it was ready")),
        }
    }

    /// Says that a job is on its way.
    pub fn arrive(&self) -> Arrival {
        self.arriving.fetch_add(1, Ordering::Relaxed);
        Arrival(self.arriving.clone())
    }

    /// The answer to a job.
    pub async fn ask(&self, job: J, arrival: Arrival) -> Result<A, WorkError> {
        let (answer, answered) = oneshot::channel();
        let gone = || WorkError::Failed("the worker has ended".to_string());
        let job = Arc::new(Mutex::new(Some(job)));
        let _asked = Kept(job.clone());
        self.jobs.send(Waiting { job: Kept(job), answer }).map_err(|_| gone())?;
        drop(arrival);
        answered.await.map_err(|_| gone())?
    }
}

/// The thread's end of the queue.
pub struct Jobs<J, A> {
    receive: Receiver<Waiting<J, A>>,
    arriving: Arc<AtomicUsize>,
    ready: Option<mpsc::Sender<Result<(), Error>>>,
    settings: CollectorSettings,
}

impl<J: Send + 'static, A: Send + 'static> Jobs<J, A> {
    /// Computes jobs until nobody can send any more. `make` makes the work, and again after a panic.
    pub fn work<W: BatchWork<Job = J, Answer = A>>(&mut self, mut make: impl FnMut() -> Result<W, Error>) {
        let mut work = match make() {
            Ok(work) => Some(work),
            Err(error) => {
                self.ready.take().map(|ready| ready.send(Err(error)));
                return;
            }
        };
        self.ready.take().map(|ready| ready.send(Ok(())));
        while let Some(batch) = self.next_batch::<W>() {
            let ready = match work.take() {
                Some(ready) => Ok(ready),
                None => caught(&mut make).and_then(|made| made.map_err(WorkError::from)),
            };
            work = match ready {
                Ok(ready) => self.compute(ready, batch),
                Err(why) => {
                    (self.settings.complain)(&format!("the model could not be made ready again: {why}"));
                    let why = WorkError::Failed("the model could not be made ready again".to_string());
                    batch.into_iter().for_each(|taken| drop(taken.answer.send(Err(why.clone()))));
                    None
                }
            };
        }
    }

    /// The next jobs whose askers are still there; `None` if no more can come.
    fn next_batch<W: BatchWork<Job = J>>(&self) -> Option<Vec<Taken<J, A>>> {
        let taken = |waiting: Waiting<J, A>| Some(Taken { job: waiting.job.take()?, answer: waiting.answer });
        loop {
            let Some(first) = taken(self.receive.recv().ok()?) else { continue };
            let until = Instant::now() + self.settings.patience;
            let mut cost = W::cost(&first.job);
            let mut batch = vec![first];
            while cost < self.settings.most {
                let next = match self.receive.try_recv() {
                    Ok(next) => next,
                    Err(TryRecvError::Disconnected) => break,
                    Err(TryRecvError::Empty) => {
                        let left = until.saturating_duration_since(Instant::now());
                        if self.arriving.load(Ordering::Relaxed) == 0 || left.is_zero() {
                            break;
                        }
                        // In steps, because whoever was on the way may have left.
                        match self.receive.recv_timeout(left.min(Duration::from_micros(200))) {
                            Ok(next) => next,
                            Err(RecvTimeoutError::Timeout) => continue,
                            Err(RecvTimeoutError::Disconnected) => break,
                        }
                    }
                };
                if let Some(next) = taken(next) {
                    cost += W::cost(&next.job);
                    batch.push(next);
                }
            }
            batch.retain(|taken| !taken.answer.is_closed());
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    /// Answers a batch; gives the work if it is still good.
    fn compute<W: BatchWork<Job = J, Answer = A>>(&self, mut work: W, batch: Vec<Taken<J, A>>) -> Option<W> {
        let start = Instant::now();
        let (jobs, answers): (Vec<J>, Vec<_>) = batch.into_iter().map(|taken| (taken.job, taken.answer)).unzip();
        let cost = jobs.iter().map(W::cost).sum();
        let found = caught(|| work.run(&jobs));
        (self.settings.observe)(cost, start.elapsed().as_secs_f64());
        match found {
            Ok(Ok(found)) if found.len() == answers.len() => {
                found.into_iter().zip(answers).for_each(|(found, answer)| drop(answer.send(Ok(found))));
                Some(work)
            }
            // One of them may be to blame: the others are answered.
            Ok(Err(error)) if jobs.len() > 1 => {
                if error.is_ours() {
                    (self.settings.complain)(&format!("a batch failed, its jobs are computed one by one: {error}"));
                }
                let mut good = Some(work);
                for (job, answer) in jobs.iter().zip(answers) {
                    let one = match &mut good {
                        Some(work) => caught(|| work.run(std::slice::from_ref(job))),
                        None => Err(WorkError::Failed("skipped".to_string())),
                    };
                    let _ = answer.send(match one {
                        Ok(found) => found.and_then(|mut found| found.pop().ok_or_else(no_answer)),
                        Err(panic) => {
                            good = None;
                            Err(panic)
                        }
                    });
                }
                good
            }
            Ok(found) => {
                let error = found.err().unwrap_or_else(no_answer);
                if error.is_ours() {
                    (self.settings.complain)(&error.to_string());
                }
                answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone()))));
                Some(work)
            }
            Err(panic) => {
                (self.settings.complain)(&panic.to_string());
                answers.into_iter().for_each(|answer| drop(answer.send(Err(panic.clone()))));
                // What a panic left half done is thrown away with the work; not even that may end the thread.
                let _ = caught(|| drop(work));
                None
            }
        }
    }
}

fn no_answer() -> WorkError {
    WorkError::Failed("the model gave no answer".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds 1; remembers batches. 13 panics, 7 is refused.
    struct Adding(Arc<Mutex<Vec<usize>>>);

    impl BatchWork for Adding {
        type Job = u32;
        type Answer = u32;

        fn cost(_: &u32) -> usize {
            1
        }

        fn run(&mut self, jobs: &[u32]) -> Result<Vec<u32>, WorkError> {
            self.0.lock().expect("a lock").push(jobs.len());
            assert!(!jobs.contains(&13), "unlucky");
            if jobs.contains(&7) {
                return Err(WorkError::Input("no sevens".to_string()));
            }
            Ok(jobs.iter().map(|job| job + 1).collect())
        }
    }

    fn settings(most: usize) -> CollectorSettings {
        CollectorSettings {
            name: "adding".to_string(),
            most,
            patience: Duration::from_millis(200),
            observe: Arc::new(|_, _| ()),
            complain: Arc::new(|_| ()),
        }
    }

    fn adding(most: usize) -> (Collector<u32, u32>, Arc<Mutex<Vec<usize>>>) {
        let batches = Arc::new(Mutex::new(Vec::new()));
        let seen = batches.clone();
        let started = Collector::start(settings(most), move |jobs| jobs.work(|| Ok(Adding(seen.clone()))));
        (started.expect("a thread"), batches)
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn jobs_of_a_moment_are_one_batch() {
        let (collector, batches) = adding(3);
        block_on(async {
            // All are on their way before the first is asked for.
            let arrivals: Vec<Arrival> = (0..5).map(|_| collector.arrive()).collect();
            let asked = arrivals.into_iter().zip(0..).map(|(arrival, job)| collector.ask(job, arrival));
            let answers = futures_util::future::join_all(asked).await;
            assert_eq!(answers, [1, 2, 3, 4, 5].map(Ok));
        });
        assert_eq!(*batches.lock().expect("a lock"), [3, 2]);
    }

    #[test]
    fn one_bad_job_does_not_spoil_the_others() {
        let (collector, _) = adding(3);
        block_on(async {
            let arrivals: Vec<Arrival> = (0..3).map(|_| collector.arrive()).collect();
            let asked = arrivals.into_iter().zip(6..).map(|(arrival, job)| collector.ask(job, arrival));
            let answers = futures_util::future::join_all(asked).await;
            assert_eq!(answers, [Ok(7), Err(WorkError::Input("no sevens".to_string())), Ok(9)]);
        });
    }

    #[test]
    fn after_a_panic_the_work_goes_on() {
        let (collector, _) = adding(3);
        block_on(async {
            let failed = collector.ask(13, collector.arrive()).await;
            assert_eq!(failed, Err(WorkError::Failed("a worker panicked: unlucky".to_string())));
            assert_eq!(collector.ask(1, collector.arrive()).await, Ok(2));
        });
    }

    #[test]
    fn work_that_cannot_be_made_again_is_tried_at_the_next_request() {
        let made = AtomicUsize::new(0);
        let make = move || {
            let count = made.fetch_add(1, Ordering::Relaxed);
            assert!(count != 1, "no luck this time");
            Ok(Adding(Arc::default()))
        };
        let started = Collector::start(settings(3), move |jobs| jobs.work(make));
        let collector = started.expect("a thread");
        block_on(async {
            assert!(collector.ask(13, collector.arrive()).await.is_err());
            let failed = collector.ask(1, collector.arrive()).await;
            assert_eq!(failed, Err(WorkError::Failed("the model could not be made ready again".to_string())));
            assert_eq!(collector.ask(1, collector.arrive()).await, Ok(2));
        });
    }

    /// Takes as long as the test does not let it go on; counts jobs that are there.
    struct Holding(Receiver<()>);

    impl BatchWork for Holding {
        type Job = Arc<()>;
        type Answer = ();

        fn cost(_: &Arc<()>) -> usize {
            1
        }

        fn run(&mut self, jobs: &[Arc<()>]) -> Result<Vec<()>, WorkError> {
            self.0.recv().expect("the test goes on");
            Ok(vec![(); jobs.len()])
        }
    }

    #[test]
    fn nothing_is_kept_for_those_who_leave_while_others_are_computed() {
        let (go_on, held) = mpsc::channel();
        let mut held = Some(held);
        let make = move || Ok(Holding(held.take().expect("made once")));
        let collector = Collector::start(settings(1), move |jobs| jobs.work(make)).expect("a thread");
        block_on(async {
            let first = collector.ask(Arc::new(()), collector.arrive());
            let job = Arc::new(());
            let second = collector.ask(job.clone(), collector.arrive());
            let (mut first, mut second) = (Box::pin(first), Box::pin(second));
            let both = futures_util::future::join(&mut first, &mut second);
            assert!(tokio::time::timeout(Duration::from_millis(1), both).await.is_err());
            assert_eq!(Arc::strong_count(&job), 2, "it waits");
            drop(second);
            assert_eq!(Arc::strong_count(&job), 1, "it is still kept");
            go_on.send(()).expect("a worker");
            assert_eq!(first.await, Ok(()));
        });
    }

    #[test]
    fn who_leaves_is_not_computed() {
        let (collector, batches) = adding(8);
        block_on(async {
            let other = collector.arrive();
            let asked = collector.ask(1, collector.arrive());
            let left = tokio::time::timeout(Duration::from_millis(1), asked).await;
            assert!(left.is_err());
            assert_eq!(collector.ask(2, other).await, Ok(3));
        });
        assert_eq!(*batches.lock().expect("a lock"), [1]);
    }
}
