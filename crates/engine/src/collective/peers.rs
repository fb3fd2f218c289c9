//! The processes of this machine that belong together. One that ends without a word (killed, or out of memory) is noticed here at
//! once, where its silence would take longer.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// A process, as all ranks know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub host: String,
    pub id: u32,
    /// When it began, as the system counts: another process may get the same number later, or have it in another container.
    pub began: u64,
}

impl Process {
    /// This one.
    pub fn this(host: String) -> Process {
        let id = std::process::id();
        Process { host, id, began: began(id).unwrap_or(0) }
    }

    /// As a line of text.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.id, self.began, self.host)
    }

    /// From a line of text.
    pub fn of_line(line: &str) -> Option<Process> {
        let mut words = line.splitn(3, ' ');
        let (id, began, host) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.to_string());
        Some(Process { host, id, began })
    }

    fn is_alive(&self) -> bool {
        began(self.id) == Some(self.began)
    }
}

/// When a process began; `None` if it has ended, or if the system does not say.
fn began(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in brackets, may have spaces: what counts is behind it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let state = *fields.first()?;
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

    /// An error names one that has ended.
    pub fn look(&mut self) -> Result<()> {
        if self.looked.elapsed() < INTERVAL {
            return Ok(());
        }
        self.looked = Instant::now();
        match self.watched.iter().find(|(_, process)| !process.is_alive()) {
            None => Ok(()),
            Some((rank, process)) => Err(Error::Lost {
                rank: *rank,
                what: format!("has ended without a word: process {} was killed, or ran out of memory", process.id),
            }),
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
        let elsewhere = Process { host: "b".to_string(), id: 1, began: 1 };
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
}
