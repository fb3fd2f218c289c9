//! Whether the other ranks still work: each shows it in a file, and the one that puts the parts together looks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::parts::{JOB, alive_path, read_bounded};

/// How often a rank shows that it is alive.
const BEAT: Duration = Duration::from_secs(2);
/// A rank that is silent for so long is gone.
pub const SILENCE: Duration = Duration::from_secs(25);
/// A rank that was never heard of may still be starting, for so long.
const START: Duration = Duration::from_secs(600);
/// What a rank leaves that ended with an error, before the time.
const FAILED: &str = "failed";
/// Clocks of hosts may differ by so much.
const SKEW: u64 = 2;

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Shows that this rank is alive, until it is dropped.
pub struct Heart {
    path: PathBuf,
    host: String,
    stop: Option<(Sender<()>, JoinHandle<()>)>,
    succeeded: bool,
}

impl Heart {
    /// Begins to show it.
    pub fn new(directory: &Path, rank: usize) -> Heart {
        let (path, host) = (alive_path(directory, rank), host_name());
        let (sender, receiver) = channel::<()>();
        let (to, name) = (path.clone(), host.clone());
        let thread = std::thread::spawn(move || {
            // Two runs write different numbers, so that a file that a killed one left is not taken for a sign of life.
            let mut beats = u64::from(std::process::id()) << 32;
            loop {
                let _ = std::fs::write(&to, format!("{name} {beats}"));
                beats += 1;
                match receiver.recv_timeout(BEAT) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Heart { path, host, stop: Some((sender, thread)), succeeded: false }
    }

    /// The work here is done.
    pub fn succeed(&mut self) {
        self.succeeded = true;
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.stop.take() {
            drop(sender);
            let _ = thread.join();
        }
        if !self.succeeded {
            let _ = std::fs::write(&self.path, format!("{} {FAILED} {}", self.host, seconds_now()));
            return;
        }
        let _ = std::fs::remove_file(&self.path);
        // Rank 0 may have removed all but this file meanwhile.
        if let Some(directory) = self.path.parent().filter(|directory| !directory.join(JOB).exists()) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Looks after ranks that are waited for.
pub struct Watch {
    /// When this run began: failures before it are of another one.
    began: u64,
    /// What each showed last, since when, and whether it ever showed something new.
    seen: HashMap<usize, (Option<String>, Instant, bool)>,
}

impl Watch {
    /// Begins with the run.
    pub fn new() -> Watch {
        Watch { began: seconds_now(), seen: HashMap::new() }
    }

    /// Why a rank is not waited for any longer; `None` while it may still come.
    pub fn lost(&mut self, directory: &Path, rank: usize) -> Option<String> {
        self.lost_at(Instant::now(), read_bounded(&alive_path(directory, rank)).ok(), rank)
    }

    fn lost_at(&mut self, now: Instant, shown: Option<String>, rank: usize) -> Option<String> {
        let mut words = shown.as_deref().unwrap_or_default().split(' ');
        let host = words.next().filter(|host| !host.is_empty()).unwrap_or("an unknown host").to_string();
        let failed_at = match (words.next(), words.next().and_then(|time| time.parse::<u64>().ok())) {
            (Some(FAILED), Some(time)) => Some(time),
            _ => None,
        };
        if failed_at.is_some_and(|time| time + SKEW >= self.began) {
            return Some(format!("rank {rank} on {host} has failed"));
        }
        // What another run left says nothing of this one.
        let shown = shown.filter(|_| failed_at.is_none());
        let (last, since, is_known) = self.seen.entry(rank).or_insert_with(|| (shown.clone(), now, false));
        if *last != shown {
            (*last, *since, *is_known) = (shown, now, true);
            return None;
        }
        let patience = if *is_known || shown.is_some() { SILENCE } else { START };
        let silent = now.duration_since(*since);
        (silent > patience)
            .then(|| format!("rank {rank} on {host} has not been heard of for {} seconds", silent.as_secs()))
    }
}

fn host_name() -> String {
    let system = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = system.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let name: String = name.trim().chars().filter(|letter| !letter.is_whitespace()).collect();
    if name.is_empty() { "this-host".to_string() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_lost_when_it_fails_or_is_silent() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let shown = |text: &str| Some(text.to_string());
        let mut watch = Watch::new();
        assert_eq!(watch.lost_at(at(0), shown("node7 1"), 1), None);
        assert_eq!(watch.lost_at(at(20), shown("node7 2"), 1), None);
        assert_eq!(watch.lost_at(at(44), shown("node7 2"), 1), None);
        let lost = watch.lost_at(at(46), shown("node7 2"), 1).expect("silent");
        assert_eq!(lost, "rank 1 on node7 has not been heard of for 26 seconds");
        // One that starts late.
        assert_eq!(watch.lost_at(at(0), None, 2), None);
        assert_eq!(watch.lost_at(at(500), None, 2), None);
        assert!(watch.lost_at(at(601), None, 2).is_some());
        // One that failed; and one that failed in an earlier run and may be starting.
        let failed = |time: u64| shown(&format!("node8 failed {time}"));
        assert_eq!(watch.lost_at(at(0), failed(seconds_now()), 3), shown("rank 3 on node8 has failed"));
        assert_eq!(watch.lost_at(at(0), failed(seconds_now() - 100), 4), None);
        assert_eq!(watch.lost_at(at(100), failed(seconds_now() - 100), 4), None);
    }

    #[test]
    fn a_heart_beats_until_it_is_dropped_and_says_how_it_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let shown = || read_bounded(&alive_path(directory.path(), 4)).expect("a file");
        let mut heart = Heart::new(directory.path(), 4);
        while !alive_path(directory.path(), 4).exists() {
            std::thread::yield_now();
        }
        drop(Heart::new(directory.path(), 4));
        assert!(shown().contains(FAILED));
        std::fs::write(directory.path().join(JOB), "{}").expect("written");
        heart.succeed();
        drop(heart);
        assert!(!alive_path(directory.path(), 4).exists() && directory.path().exists());
    }
}
