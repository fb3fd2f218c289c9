//! Batching: jobs of one moment are computed together.
//!
//! A thread owns the work. It takes the first job and all others that wait. If more are being prepared, it waits for them, at most
//! [`CollectorSettings::patience`]; where nobody else is on the way, nobody waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use vitreous_runtime::Error;

use super::{WorkError, panic_text};

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

struct Waiting<J, A> {
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
        self.jobs.send(Waiting { job, answer }).map_err(|_| gone())?;
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
            if work.is_none() {
                work = make().map_err(|error| (self.settings.complain)(&error.to_string())).ok();
            }
            let Some(ready) = &mut work else {
                let why = WorkError::Failed("the model could not be made ready again".to_string());
                batch.into_iter().for_each(|waiting| drop(waiting.answer.send(Err(why.clone()))));
                continue;
            };
            if !self.compute(ready, batch) {
                work = None;
            }
        }
    }

    /// The next jobs whose askers are still there; `None` if no more can come.
    fn next_batch<W: BatchWork<Job = J>>(&self) -> Option<Vec<Waiting<J, A>>> {
        loop {
            let first = self.receive.recv().ok()?;
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
                cost += W::cost(&next.job);
                batch.push(next);
            }
            batch.retain(|waiting| !waiting.answer.is_closed());
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    /// Answers a batch; gives whether the work is still good.
    fn compute<W: BatchWork<Job = J, Answer = A>>(&self, work: &mut W, batch: Vec<Waiting<J, A>>) -> bool {
        let start = Instant::now();
        let (jobs, answers): (Vec<J>, Vec<_>) = batch.into_iter().map(|waiting| (waiting.job, waiting.answer)).unzip();
        let cost = jobs.iter().map(W::cost).sum();
        let found = self.run(work, &jobs);
        (self.settings.observe)(cost, start.elapsed().as_secs_f64());
        match found {
            Ok(Ok(found)) if found.len() == answers.len() => {
                found.into_iter().zip(answers).for_each(|(found, answer)| drop(answer.send(Ok(found))));
                true
            }
            // One of them may be to blame: the others are answered.
            Ok(Err(error)) if jobs.len() > 1 => {
                if matches!(error, WorkError::Failed(_)) {
                    (self.settings.complain)(&format!("a batch failed, its jobs are computed one by one: {error}"));
                }
                let mut is_good = true;
                for (job, answer) in jobs.iter().zip(answers) {
                    let one =
                        if is_good { self.run(work, std::slice::from_ref(job)) } else { Err("skipped".to_string()) };
                    let _ = answer.send(match one {
                        Ok(found) => found.and_then(|mut found| found.pop().ok_or_else(no_answer)),
                        Err(panic) => {
                            is_good = false;
                            Err(WorkError::Failed(panic))
                        }
                    });
                }
                is_good
            }
            Ok(found) => {
                let error = found.err().unwrap_or_else(no_answer);
                // What is wrong with a request is told to whoever sent it.
                if matches!(error, WorkError::Failed(_)) {
                    (self.settings.complain)(&error.to_string());
                }
                answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone()))));
                true
            }
            Err(panic) => {
                (self.settings.complain)(&panic);
                let error = WorkError::Failed(panic);
                answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone()))));
                false
            }
        }
    }

    /// The work's answer, or what its panic said.
    fn run<W: BatchWork<Job = J, Answer = A>>(
        &self,
        work: &mut W,
        jobs: &[J],
    ) -> Result<Result<Vec<A>, WorkError>, String> {
        // What a panic left half done is thrown away with the work.
        catch_unwind(AssertUnwindSafe(|| work.run(jobs))).map_err(|panic| panic_text(panic.as_ref()))
    }
}

fn no_answer() -> WorkError {
    WorkError::Failed("the model gave no answer".to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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

    fn adding(most: usize) -> (Collector<u32, u32>, Arc<Mutex<Vec<usize>>>) {
        let batches = Arc::new(Mutex::new(Vec::new()));
        let settings = CollectorSettings {
            name: "adding".to_string(),
            most,
            patience: Duration::from_millis(200),
            observe: Arc::new(|_, _| ()),
            complain: Arc::new(|_| ()),
        };
        let seen = batches.clone();
        let started = Collector::start(settings, move |jobs| jobs.work(|| Ok(Adding(seen.clone()))));
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
