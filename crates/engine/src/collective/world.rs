//! This process among the others: a thread that does all communication, and what is known of all ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::peers::{Neighbours, Process};
use super::progress::Progress;
use super::{Collective, Launch, Launcher, gather_all, mpi, nccl};
use crate::cuda;
use crate::error::{Error, Result};

/// How often the others are looked at while there is nothing to do.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a thread waits, for what will not come, to be ended with the whole run.
const LAST_WAIT: Duration = Duration::from_secs(20);

/// How long the others may take to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(600);
/// How long a library may take to end all processes, or communication, before this process ends by itself.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Something that the thread does with the others.
type Job = Box<dyn FnOnce(&mut dyn Collective) -> Result<()> + Send>;

/// Told of a fault before all processes are ended: the sentence for the user.
pub type OnFault = Box<dyn Fn(&str) + Send>;

/// What the thread is asked to do.
enum Order {
    Do(Job),
    Abort(i32),
    Finish(Sender<Result<()>>),
}

/// This process among the others.
pub struct World {
    rank: usize,
    local_rank: usize,
    local_size: usize,
    core_sharers: usize,
    hosts: Vec<String>,
    progress: Arc<Progress>,
    name: String,
    orders: Sender<Order>,
    /// Nanoseconds that others were waited for.
    waited: AtomicU64,
}

/// A result that is on its way.
#[must_use]
pub struct Pending<T>(Receiver<T>);

impl World {
    /// Joins the processes that a launcher has started with this one. Where one of them is lost later, or a message cannot be
    /// delivered, `on_fault` gets the sentence that says so, and then all processes are ended.
    pub fn join(launch: &Launch, on_fault: OnFault) -> Result<World> {
        World::join_with(launch, None, on_fault)
    }

    /// As [`World::join`], with the GPU that this process computes on: without MPI, messages go from GPU to GPU.
    pub fn join_with(launch: &Launch, device: Option<&Arc<cuda::Device>>, on_fault: OnFault) -> Result<World> {
        let (own, device) = (launch.clone(), device.cloned());
        let world = World::with(move || open(&own, device.as_ref()), on_fault)?;
        if world.size() != launch.size {
            return Err(Error::Machine(format!(
                "the launcher says that there are {} processes, but {} finds {}: they are not of the same MPI (`vitreous doctor` says what \
                 was found)",
                launch.size,
                world.name,
                world.size()
            )));
        }
        Ok(world)
    }

    /// The same over anything that carries messages; it is opened by the thread that uses it.
    pub fn with(
        open: impl FnOnce() -> Result<Box<dyn Collective>> + Send + 'static,
        on_fault: OnFault,
    ) -> Result<World> {
        let (orders, inbox) = channel();
        let (ready, opened) = sync_channel(1);
        let progress = Arc::new(Progress::new());
        let of_thread = progress.clone();
        let communicate = move || {
            let mut link = match open() {
                Ok(link) => link,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let known = processes(link.as_mut()).map(|all| (link.rank(), link.name(), all));
            let rank = link.rank();
            let Ok((_, _, all)) = &known else {
                drop(ready.send(known));
                // Whoever has joined already waits for this one.
                thread::sleep(PAUSE);
                end_soon(1);
                return link.abort(1);
            };
            let (hosts, neighbours) = (all.iter().map(|p| p.host.clone()).collect(), Neighbours::of(all, rank));
            drop(ready.send(known));
            Communicator { link, inbox, neighbours, hosts, progress: of_thread, on_fault }.run();
        };
        let started = thread::Builder::new().name("communication".to_string()).spawn(communicate);
        started.map_err(|error| Error::Machine(format!("the system refuses a thread: {error}")))?;
        let (rank, name, all) = match opened.recv_timeout(BEGIN_LIMIT) {
            Ok(found) => found?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Machine("communication with the other processes could not begin".to_string()));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(Error::Machine(format!(
                    "the other processes have not begun after {} seconds: one of them was stopped, or runs another command",
                    BEGIN_LIMIT.as_secs()
                )));
            }
        };
        let on_this = |process: &&Process| process.host == all[rank].host;
        Ok(World {
            rank,
            local_rank: all[..rank].iter().filter(on_this).count(),
            local_size: all.iter().filter(on_this).count(),
            core_sharers: all.iter().filter(|process| process.shares_cores_with(&all[rank])).count(),
            hosts: all.iter().map(|process| process.host.clone()).collect(),
            progress,
            name,
            orders,
            waited: AtomicU64::new(0),
        })
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.hosts.len()
    }

    /// Its number among those on its machine.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// How many there are on its machine.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// How many processes have the same cores of its machine between them, with itself: fewer than all where the launcher has bound them.
    pub fn core_sharers(&self) -> usize {
        self.core_sharers
    }

    /// The machine of each rank.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The library that carries messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rank, and where it runs: "rank 3 (host b)".
    pub fn name_of(&self, rank: usize) -> String {
        name_of(&self.hosts, rank)
    }

    /// Has something done with the others while this thread goes on. All ranks ask for the same, in the same order.
    pub fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Collective) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        self.progress.note();
        let (give, take) = sync_channel(1);
        let job = move |link: &mut dyn Collective| {
            let result = work(link)?;
            drop(give.send(result));
            Ok(())
        };
        // Where the thread has ended, whoever waits for the result is told.
        drop(self.orders.send(Order::Do(Box::new(job))));
        Pending(take)
    }

    /// Waits for something that was started.
    pub fn wait<T>(&self, pending: Pending<T>) -> Result<T> {
        if let Ok(ready) = pending.0.try_recv() {
            return Ok(ready);
        }
        let before = Instant::now();
        let result = self.progress.while_waiting(|| pending.0.recv());
        self.waited.fetch_add(before.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result.map_err(|_| {
            // The thread says what happened, and ends the process.
            thread::sleep(LAST_WAIT);
            Error::Machine("communication with the other processes has ended".to_string())
        })
    }

    /// Starts something and waits for it.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Collective) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.wait(self.start(work))
    }

    /// What every rank says, by rank.
    pub fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.ask(move |link| gather_all(link, &own))
    }

    /// Waits for all ranks to come here.
    pub fn barrier(&self) -> Result<()> {
        self.gather(Vec::new()).map(|_| ())
    }

    /// The bytes of rank 0, on all ranks; the others' may be empty.
    pub fn from_first(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        let is_first = self.rank == 0;
        self.ask(move |link| {
            let mut length = (own.len() as u64).to_le_bytes();
            super::broadcast(link, 0, &mut length)?;
            let mut bytes = if is_first { own } else { vec![0; u64::from_le_bytes(length) as usize] };
            super::broadcast(link, 0, &mut bytes)?;
            Ok(bytes)
        })
    }

    /// How long others were waited for, since this was asked before.
    pub fn take_waited(&self) -> Duration {
        Duration::from_nanos(self.waited.swap(0, Ordering::Relaxed))
    }

    /// From now on this process must come further within a limit, or it ends all: see [`World::note_progress`].
    pub fn expect_progress(&self, limit: Duration) {
        self.progress.expect(limit);
    }

    /// This process comes further. Whatever it asks of the others says so, too, and waiting for them is no standstill.
    pub fn note_progress(&self) {
        self.progress.note();
    }

    /// Ends all processes. Returns only if that fails.
    pub fn abort(&self, code: i32) {
        drop(self.orders.send(Order::Abort(code)));
        thread::sleep(LAST_WAIT);
    }

    /// Waits for all ranks to come here, and ends communication. Nothing may be asked afterwards.
    pub fn finish(&self) -> Result<()> {
        let (give, take) = channel();
        drop(self.orders.send(Order::Finish(give)));
        take.recv().unwrap_or(Ok(()))?;
        // Some libraries hang at their end (MPICH with UCX between hosts); nothing is left to do.
        take.recv_timeout(LAST_WORDS).unwrap_or(Ok(()))
    }
}

/// Ends this process if the library has not done so: it may wait for a launcher that cannot be reached.
fn end_soon(code: i32) {
    let end = move || {
        thread::sleep(LAST_WORDS);
        std::process::exit(code);
    };
    drop(thread::Builder::new().name("last words".to_string()).spawn(end));
}

fn open(launch: &Launch, device: Option<&Arc<cuda::Device>>) -> Result<Box<dyn Collective>> {
    match &launch.launcher {
        launcher @ (Launcher::OpenMpi | Launcher::Pmi | Launcher::Pmix) => mpi::open(launcher),
        Launcher::Rendezvous { .. } => nccl::open(launch, device),
    }
}

/// The processes of all ranks.
fn processes(link: &mut dyn Collective) -> Result<Vec<Process>> {
    let own = Process::this(link.host());
    let lines = gather_all(link, own.to_line().as_bytes())?;
    let read = |line: &Vec<u8>| std::str::from_utf8(line).ok().and_then(Process::of_line);
    let all: Option<Vec<Process>> = lines.iter().map(read).collect();
    all.ok_or_else(|| Error::Machine("the ranks are of different versions of this program".to_string()))
}

fn name_of(hosts: &[String], rank: usize) -> String {
    match hosts.get(rank) {
        Some(host) => format!("rank {rank} (host {host})"),
        None => format!("rank {rank}"),
    }
}

/// What the thread has.
struct Communicator {
    link: Box<dyn Collective>,
    inbox: Receiver<Order>,
    neighbours: Neighbours,
    hosts: Vec<String>,
    progress: Arc<Progress>,
    on_fault: OnFault,
}

impl Communicator {
    fn run(mut self) {
        if let Err(error) = self.work() {
            let sentence = match &error {
                Error::Lost { rank, what } => format!("{} {what}", name_of(&self.hosts, *rank)),
                other => format!("{}: {other}", name_of(&self.hosts, self.link.rank())),
            };
            (self.on_fault)(&sentence);
            end_soon(1);
            self.link.abort(1);
        }
    }

    fn work(&mut self) -> Result<()> {
        loop {
            match self.inbox.recv_timeout(PAUSE) {
                Ok(Order::Do(job)) => {
                    let Communicator { link, neighbours, progress, .. } = self;
                    let mut watched = Watched { link: link.as_mut(), neighbours, progress };
                    job(&mut watched)?;
                }
                Ok(Order::Abort(code)) => {
                    self.link.abort(code);
                    return Ok(());
                }
                Ok(Order::Finish(done)) => {
                    drop(done.send(self.link.say_goodbye()));
                    drop(done.send(self.link.finish()));
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.neighbours.look()?;
                    self.progress.check(self.link.rank())?;
                    self.link.watch()?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// A link whose neighbours are looked at while it waits.
struct Watched<'w> {
    link: &'w mut dyn Collective,
    neighbours: &'w mut Neighbours,
    progress: &'w Progress,
}

impl Collective for Watched<'_> {
    fn rank(&self) -> usize {
        self.link.rank()
    }

    fn size(&self) -> usize {
        self.link.size()
    }

    fn name(&self) -> String {
        self.link.name()
    }

    fn host(&self) -> String {
        self.link.host()
    }

    fn exchange_while(
        &mut self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.link.watch()?;
        let Watched { link, neighbours, progress } = self;
        let rank = link.rank();
        link.exchange_while(sends, receives, &mut || {
            neighbours.look()?;
            progress.check(rank)?;
            idle()
        })
    }

    fn watch(&mut self) -> Result<()> {
        self.neighbours.look()?;
        self.link.watch()
    }

    fn say_goodbye(&mut self) -> Result<()> {
        self.link.say_goodbye()
    }

    fn abort(&mut self, code: i32) {
        self.link.abort(code);
    }

    fn finish(&mut self) -> Result<()> {
        self.link.finish()
    }
}
