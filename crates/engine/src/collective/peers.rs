//! The processes of this machine that belong together. One that ends without a word (killed, or out of memory) is noticed here at
//! once, where its silence would take longer.

use std::time::{Duration, Instant};

use super::launch::cores_of;
use crate::error::{Error, Result};

/// Between two looks: launchers end all processes within some milliseconds of the first.
const INTERVAL: Duration = Duration::from_millis(5);
/// How long the ends of others are waited for, when one has ended: the first is not always the one that is seen first.
const OTHERS_END: Duration = Duration::from_millis(150);
/// How long a process that has failed, and said so, has to end all others.
const OWN_WORDS: Duration = Duration::from_secs(2);

/// A process, as all ranks know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub host: String,
    pub id: u32,
    /// When it began, as the system counts: another process may get the same number later, or have it in another container.
    pub began: u64,
    /// The cores that it may use, as the system lists them: `0-3,8`. Empty where it does not say.
    pub cores: String,
}

impl Process {
    /// This one.
    pub fn this(host: String) -> Process {
        let id = std::process::id();
        Process { host, id, began: began(id).unwrap_or(0), cores: cores_of("self").unwrap_or_default() }
    }

    /// As a line of text.
    pub fn to_line(&self) -> String {
        format!("{} {} {} {}", self.id, self.began, self.cores, self.host)
    }

    /// From a line of text.
    pub fn of_line(line: &str) -> Option<Process> {
        let mut words = line.splitn(4, ' ');
        let (id, began) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (cores, host) = (words.next()?.to_string(), words.next()?.to_string());
        Some(Process { host, id, began, cores })
    }

    /// Whether two processes have the same cores between them.
    pub fn shares_cores_with(&self, other: &Process) -> bool {
        (&self.host, &self.cores) == (&other.host, &other.cores)
    }

    fn is_alive(&self) -> bool {
        began(self.id) == Some(self.began)
    }

    /// How it has ended, as long as its parent has not asked.
    fn end(&self) -> End {
        let code = fields(self.id).and_then(|fields| fields.get(49)?.parse::<i32>().ok());
        match code {
            Some(code) if code & 0x7f != 0 => End::Killed,
            Some(code) if code != 0 => End::Failed,
            _ => End::Unknown,
        }
    }
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By a signal.
    Killed,
    /// By itself, with an exit code that is not 0: it has said why.
    Failed,
    Unknown,
}

/// What the system says of a process behind its name: its state, and so on.
fn fields(id: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in brackets, may have spaces.
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_string).collect())
}

/// When a process began; `None` if it has ended, or if the system does not say.
fn began(id: u32) -> Option<u64> {
    let fields = fields(id)?;
    let state = fields.first()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The others on this machine.
#[derive(Debug)]
pub(super) struct Neighbours {
    watched: Vec<(usize, Process)>,
    looked: Instant,
}

impl Neighbours {
    /// Those of all processes, by rank, that this one can see.
    pub fn of(all: &[Process], own: usize) -> Neighbours {
        let on_this = |(rank, process): &(usize, Process)| {
            *rank != own && process.began > 0 && Some(&process.host) == all.get(own).map(|own| &own.host)
        };
        let watched = all.iter().cloned().enumerate().filter(on_this).filter(|(_, process)| process.is_alive());
        Neighbours { watched: watched.collect(), looked: Instant::now() }
    }

    /// An error names those that have ended.
    pub fn look(&mut self) -> Result<()> {
        if self.looked.elapsed() < INTERVAL {
            return Ok(());
        }
        self.looked = Instant::now();
        match self.watched.iter().any(|(_, process)| !process.is_alive()) {
            false => Ok(()),
            true => Err(self.gone()),
        }
    }

    /// Names those that have ended, where one of them has.
    fn gone(&self) -> Error {
        // What is known of an end is lost when a parent asks for it.
        let mut ends: Vec<Option<End>> = vec![None; self.watched.len()];
        let begin = Instant::now();
        while begin.elapsed() < OTHERS_END {
            for (end, (_, process)) in ends.iter_mut().zip(&self.watched).filter(|(end, _)| end.is_none()) {
                *end = (!process.is_alive()).then(|| process.end());
            }
            // One that was killed while all others live is the first. It is named at once: MPICH's launcher leaves little time for it.
            if ends.iter().flatten().eq([&End::Killed]) {
                break;
            }
            std::thread::sleep(INTERVAL);
        }
        if ends.contains(&Some(End::Failed)) {
            // It speaks for itself, and ends all; whoever was ended by that is not to blame.
            std::thread::sleep(OWN_WORDS);
        }
        let is_killed = ends.contains(&Some(End::Killed)) && !ends.contains(&Some(End::Failed));
        let named = |end: &Option<End>| match end {
            Some(End::Killed) => true,
            Some(_) => !is_killed,
            None => false,
        };
        let mut gone = self
            .watched
            .iter()
            .zip(&ends)
            .filter(|(_, end)| named(end))
            .map(|((rank, process), _)| (*rank, process.id));
        let (rank, id) = gone.next().unwrap_or((0, 0));
        let others: String = gone.map(|(rank, id)| format!("; so has rank {rank}, process {id}")).collect();
        Error::Lost {
            rank,
            what: format!("has ended without a word: process {id} was killed, or ran out of memory{others}"),
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_was_killed_is_noticed() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let this = Process::this("a host with spaces".to_string());
        assert_eq!(Process::of_line(&this.to_line()), Some(this.clone()));
        let other = Process { id: child.id(), began: began(child.id()).expect("it runs"), ..this.clone() };
        let elsewhere = Process { host: "b".to_string(), id: 1, began: 1, cores: "0".to_string() };
        // What only has the same number as a process that is seen here is in another container.
        let unseen = Process { began: other.began + 1, ..other.clone() };
        let mut neighbours = Neighbours::of(&[this, other, elsewhere, unseen], 0);
        assert_eq!(neighbours.watched.len(), 1);
        std::thread::sleep(INTERVAL);
        assert_eq!(neighbours.look(), Ok(()));
        child.kill().expect("killed");
        // It is dead before anybody has asked for its exit code.
        let mut found = Ok(());
        while found.is_ok() {
            std::thread::sleep(INTERVAL);
            found = neighbours.look();
        }
        child.wait().expect("ended");
        assert!(matches!(found, Err(Error::Lost { rank: 1, .. })), "{found:?}");
    }

    #[test]
    fn processes_share_the_cores_that_they_have_in_common() {
        let of =
            |host: &str, cores: &str| Process { host: host.to_string(), id: 1, began: 1, cores: cores.to_string() };
        assert!(of("a", "0-3").shares_cores_with(&of("a", "0-3")));
        assert!(!of("a", "0-3").shares_cores_with(&of("a", "4-7")), "bound by the launcher");
        assert!(!of("a", "0-3").shares_cores_with(&of("b", "0-3")));
        let this = Process::this("a host".to_string());
        assert!(!this.cores.is_empty() && this.shares_cores_with(&this.clone()));
    }
}
