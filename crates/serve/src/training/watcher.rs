//! What runs write while somebody listens. All listeners of a run share one watcher, which looks at the size of a file a few times in a
//! second; it ends when the last of them is gone.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use vitreous_train::RunRecord;
use vitreous_train::follow::MetricsFollower;

use super::folder::{RunError, RunFolder, Stamp};
use super::summary::RunSummary;

/// How often a watcher looks at its run.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// How often the watcher of the folder looks at all runs.
const BETWEEN_LISTS: Duration = Duration::from_millis(1000);
/// At each so many of these looks it is told that a run went on, too.
const LOOKS_PER_PROGRESS: u32 = 5;
/// Events that a slow listener may be behind; one that is further behind is told that it missed some.
const MOST_BEHIND: usize = 256;
/// The most listeners of all runs together.
const MOST_LISTENERS: usize = 256;

/// Something new of a run or of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    /// `metrics` (a line of metrics.jsonl), `state`, or `runs` (the list has changed).
    pub name: &'static str,
    /// The number of the line, from 1.
    pub line: Option<u64>,
    /// JSON in one line.
    pub data: String,
    /// Whether no other follows: the run is no longer there.
    pub is_last: bool,
}

/// Too many listen already.
#[derive(Debug, thiserror::Error)]
#[error("{MOST_LISTENERS} others listen to training runs already; ask again when one has left")]
pub struct TooManyListeners;

/// The watchers of a folder's runs.
pub struct RunWatchers {
    folder: Arc<RunFolder>,
    places: Arc<Semaphore>,
    /// By name; that of the folder itself has an empty name.
    watchers: Mutex<HashMap<String, Weak<Watcher>>>,
}

struct Watcher {
    sender: broadcast::Sender<Arc<RunEvent>>,
    /// What a new listener is told first.
    state: Mutex<Arc<RunEvent>>,
}

/// Somebody who listens. It leaves by being dropped.
pub struct Listener {
    watcher: Arc<Watcher>,
    receiver: broadcast::Receiver<Arc<RunEvent>>,
    is_new: bool,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    /// The next event: the state first. `None` when there will be no more, because the run is no longer there.
    pub async fn next(&mut self) -> Option<Arc<RunEvent>> {
        if self.is_over {
            return None;
        }
        let event = match std::mem::take(&mut self.is_new) {
            true => self.watcher.state(),
            false => match self.receiver.recv().await {
                Ok(event) => event,
                // It asks for what it missed when it hears how far the run is.
                Err(RecvError::Lagged(_)) => self.watcher.state(),
                Err(RecvError::Closed) => return None,
            },
        };
        self.is_over = event.is_last;
        Some(event)
    }
}

impl Watcher {
    fn new(state: RunEvent) -> Arc<Watcher> {
        Arc::new(Watcher { sender: broadcast::channel(MOST_BEHIND).0, state: Mutex::new(Arc::new(state)) })
    }

    fn state(&self) -> Arc<RunEvent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells all listeners, and whoever comes later.
    fn tell_state(&self, state: RunEvent) {
        let state = Arc::new(state);
        let before = std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), state.clone());
        if before != state {
            let _ = self.sender.send(state);
        }
    }
}

impl RunWatchers {
    /// Of a folder.
    pub fn new(folder: Arc<RunFolder>) -> RunWatchers {
        RunWatchers { folder, places: Arc::new(Semaphore::new(MOST_LISTENERS)), watchers: Mutex::default() }
    }

    /// The folder.
    pub fn folder(&self) -> &Arc<RunFolder> {
        &self.folder
    }

    /// Listens to a run: a `state` now, then `metrics` for every new line, and `state` when that changes.
    pub async fn listen(&self, name: &str) -> Result<Result<Listener, TooManyListeners>, RunError> {
        let path = self.folder.run(name)?;
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Ok(Err(TooManyListeners)) };
        if let Some(watcher) = self.watcher(name) {
            return Ok(Ok(watcher.listener(place)));
        }
        let (folder, run) = (self.folder.clone(), name.to_string());
        let opened = tokio::task::spawn_blocking(move || {
            let watch = RunWatch::new(&run, path);
            folder.read(&run).map(|record| (watch, state_event(&run, &record)))
        });
        let (mut watch, state) = opened.await.map_err(|_| RunError::Missing(name.to_string()))??;
        let start = |watcher: Arc<Watcher>| {
            let weak = Arc::downgrade(&watcher);
            every(BETWEEN_LOOKS, weak, move |watcher| watch.look(watcher));
        };
        Ok(Ok(self.begin(name, state, start).listener(place)))
    }

    /// Listens to the folder: `runs` now and whenever a run begins, goes on, ends or is removed.
    pub fn listen_to_all(&self) -> Result<Listener, TooManyListeners> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| TooManyListeners)?;
        if let Some(watcher) = self.watcher("") {
            return Ok(watcher.listener(place));
        }
        let mut watch = ListWatch { folder: self.folder.clone(), before: None, looks: 0, changes: 0 };
        let start = |watcher: Arc<Watcher>| {
            every(BETWEEN_LISTS, Arc::downgrade(&watcher), move |watcher| watch.look(watcher));
        };
        Ok(self.begin("", list_event(0), start).listener(place))
    }

    fn watcher(&self, name: &str) -> Option<Arc<Watcher>> {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a run that was removed and is there again, another is begun.
        let is_used = |watcher: &Weak<Watcher>| watcher.upgrade().is_some_and(|watcher| !watcher.state().is_last);
        watchers.retain(|_, watcher| is_used(watcher));
        watchers.get(name).and_then(Weak::upgrade)
    }

    /// A new watcher, unless another listener was faster.
    fn begin(&self, name: &str, state: RunEvent, start: impl FnOnce(Arc<Watcher>)) -> Arc<Watcher> {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = watchers.get(name).and_then(Weak::upgrade) {
            return watcher;
        }
        let watcher = Watcher::new(state);
        watchers.insert(name.to_string(), Arc::downgrade(&watcher));
        start(watcher.clone());
        watcher
    }
}

impl Watcher {
    fn listener(self: Arc<Watcher>, place: OwnedSemaphorePermit) -> Listener {
        let receiver = self.sender.subscribe();
        Listener { watcher: self, receiver, is_new: true, is_over: false, _place: place }
    }
}

/// Looks again and again, on a thread that may wait for disks, while somebody listens and `look` says that there may be more.
fn every(pause: Duration, watcher: Weak<Watcher>, look: impl FnMut(&Watcher) -> bool + Send + 'static) {
    tokio::spawn(async move {
        let mut look = Some(look);
        loop {
            let (Some(mut now), Some(alive)) = (look.take(), watcher.upgrade()) else { return };
            let looked = tokio::task::spawn_blocking(move || {
                let goes_on = now(&alive);
                (now, goes_on)
            });
            match looked.await {
                Ok((again, true)) => look = Some(again),
                Ok((_, false)) | Err(_) => return,
            }
            tokio::time::sleep(pause).await;
        }
    });
}

/// All runs, which are watched for what a list of them shows.
struct ListWatch {
    folder: Arc<RunFolder>,
    before: Option<BTreeMap<String, Stamp>>,
    looks: u32,
    changes: u64,
}

impl ListWatch {
    /// Tells that runs began, ended, were evaluated or removed; more rarely that they went on, as the list is read again by all who hear it.
    fn look(&mut self, watcher: &Watcher) -> bool {
        let now: BTreeMap<String, Stamp> = self.folder.stamps().into_iter().collect();
        self.looks += 1;
        let goes_on = self.looks.is_multiple_of(LOOKS_PER_PROGRESS);
        let is_same = |before: &BTreeMap<String, Stamp>| match goes_on {
            true => *before == now,
            false => before.len() == now.len() && before.iter().zip(&now).all(|(a, b)| a.0 == b.0 && a.1.is_like(b.1)),
        };
        match self.before.as_ref().map(is_same) {
            Some(true) => {}
            None => self.before = Some(now),
            Some(false) => {
                self.before = Some(now);
                self.changes += 1;
                watcher.tell_state(list_event(self.changes));
            }
        }
        true
    }
}

fn list_event(changes: u64) -> RunEvent {
    RunEvent { name: "runs", line: None, data: json!({ "changes": changes }).to_string(), is_last: false }
}

/// A run that is watched.
struct RunWatch {
    name: String,
    path: PathBuf,
    follower: MetricsFollower,
    in_progress: bool,
}

impl RunWatch {
    /// From now on: the lines that are there are known.
    fn new(name: &str, path: PathBuf) -> RunWatch {
        let mut follower = MetricsFollower::new(&path);
        while follower.read().is_ok_and(|new| !new.lines.is_empty()) {}
        let in_progress = Stamp::of(&path).in_progress;
        RunWatch { name: name.to_string(), path, follower, in_progress }
    }

    /// Tells what is new; `false` when the run is gone.
    fn look(&mut self, watcher: &Watcher) -> bool {
        if !RunRecord::is_run(&self.path) {
            let data = json!({ "state": "removed", "name": self.name }).to_string();
            watcher.tell_state(RunEvent { name: "state", line: None, data, is_last: true });
            return false;
        }
        // Before the lines are read: the last ones are told before the end.
        let in_progress = Stamp::of(&self.path).in_progress;
        // What cannot be read now may be readable later.
        let new = self.follower.read().unwrap_or_default();
        let first = self.follower.lines() - new.lines.len() as u64 + 1;
        if !new.rewritten {
            for (line, data) in (first..).zip(new.lines) {
                let event = RunEvent { name: "metrics", line: Some(line), data, is_last: false };
                let _ = watcher.sender.send(Arc::new(event));
            }
        }
        if (new.rewritten || in_progress != self.in_progress)
            && let Ok(run) = RunRecord::read(&self.path)
        {
            watcher.tell_state(state_event(&self.name, &run));
        }
        self.in_progress = in_progress;
        true
    }
}

/// How far a run is.
fn state_event(name: &str, run: &RunRecord) -> RunEvent {
    RunEvent { name: "state", line: None, data: RunSummary::of(name, run).json().to_string(), is_last: false }
}
