//! `machine.json`: where, when and for how long a run was trained, with one entry for each time that it was started or resumed.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use vitreous_engine::Device;
use vitreous_engine::machine::Machine;

use vitreous_files::open::read_bounded;

use crate::error::TrainError;
use crate::run_directory::{MOST_JSON, write_whole};

/// A process that trained the run, and its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// When it began: UTC, in ISO 8601.
    pub started: String,
    /// Seconds that it trained, as of the last write.
    pub seconds: f64,
    /// The step after which it began.
    pub first_step: u64,
    /// The last step, as of the last write.
    pub step: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// Parameters of the model.
    pub parameters: usize,
    /// The version of Vitreous.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The CPU.
    pub cpu: String,
    /// Hardware threads of the CPU.
    pub cores: usize,
    /// Threads that were used, by each rank.
    pub threads: usize,
    /// Processes that trained together.
    #[serde(skip_serializing_if = "is_one")]
    pub ranks: usize,
    /// The GPU, if one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Bytes of memory, if the system tells.
    pub memory: Option<u64>,
    /// The instruction set of the kernels.
    pub instruction_set: String,
    /// The data type of matrix products.
    pub precision: String,
    /// The operating system.
    pub system: String,
    /// In what recipe and data differed from those of the checkpoint, if it was resumed nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_changes: Vec<String>,
}

fn is_one(ranks: &usize) -> bool {
    *ranks <= 1
}

impl Session {
    /// A session that begins now, on this machine.
    pub fn now(command: Vec<String>, device: &Device, threads: usize) -> Session {
        let Machine { cpu, cores, memory, instruction_set, system } = Machine::this();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Session {
            started: utc(since.as_secs()),
            version: env!("CARGO_PKG_VERSION").to_string(),
            instruction_set: instruction_set.to_string(),
            command,
            cpu,
            cores,
            threads,
            gpu: match device {
                Device::Cpu { .. } => None,
                Device::Cuda(gpu) => Some(gpu.gpu().name.clone()),
            },
            memory,
            system,
            ..Session::default()
        }
    }
}

/// The file.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// None on a rank that does not write.
    path: Option<PathBuf>,
    all: Vec<Session>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(rename = "sittings")]
    sessions: Vec<Session>,
}

impl Sessions {
    /// Adds one to those in a file. Those in a file that cannot be read are lost: no run should fail for them.
    pub fn begin(path: &Path, session: Session) -> Result<Sessions, TrainError> {
        let mut all = Sessions::read(path).ok().flatten().unwrap_or_default();
        all.push(session);
        let sessions = Sessions { path: Some(path.to_path_buf()), all };
        sessions.write()?;
        Ok(sessions)
    }

    /// That of a rank that does not write.
    pub fn nowhere() -> Sessions {
        Sessions { path: None, all: Vec::new() }
    }

    /// Notes how far the last one has come.
    pub fn reached(&mut self, step: u64, seconds: f64) -> Result<(), TrainError> {
        if let Some(last) = self.all.last_mut() {
            (last.step, last.seconds) = (step, seconds);
        }
        self.write()
    }

    /// Those in a file; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Vec<Session>>, String> {
        let bytes = match read_bounded(path, MOST_JSON) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Ok(Some(content.sessions))
    }

    fn write(&self) -> Result<(), TrainError> {
        let Some(path) = &self.path else { return Ok(()) };
        let content = Content { sessions: self.all.clone() };
        let text = serde_json::to_string_pretty(&content).expect("plain data");
        write_whole(path, format!("{text}\n").as_bytes())
    }
}

/// Seconds since 1970 as `2026-07-31T18:05:09Z`.
fn utc(seconds: u64) -> String {
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// As `date -u -d @SECONDS +%FT%TZ` writes them.
    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_785_521_109), "2026-07-31T18:05:09Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn each_time_that_a_run_is_resumed_is_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("machine.json");
        assert_eq!(Sessions::read(&path), Ok(None));
        for number in 1..=3 {
            let session = Session {
                steps: 9,
                ..Session::now(vec!["vitreous".to_string()], &Device::Cpu { threads: number }, number)
            };
            let mut sessions = Sessions::begin(&path, session).expect("written");
            sessions.reached(number as u64, 0.5).expect("written");
        }
        let read = Sessions::read(&path).expect("read").expect("there");
        assert_eq!(
            read.iter().map(|session| (session.step, session.threads)).collect::<Vec<_>>(),
            [(1, 1), (2, 2), (3, 3)]
        );
        assert!(read.iter().all(|session| session.started.ends_with('Z') && session.seconds == 0.5));
        // A file that is no longer one does not keep a run from going on.
        fs::write(&path, "{").expect("written");
        assert!(Sessions::read(&path).is_err());
        Sessions::begin(&path, Session::default()).expect("written");
        assert_eq!(Sessions::read(&path), Ok(Some(vec![Session::default()])));
    }
}
