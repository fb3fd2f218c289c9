//! `machine.json`: where, when and for how long a run was trained, one entry each time that it was begun or taken up.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use vitreous_engine::Device;
use vitreous_engine::machine::Machine;

use crate::error::TrainError;
use crate::run_directory::write_whole;

/// A process that trained the run, on its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sitting {
    /// When it began, in UTC, as ISO 8601 writes it.
    pub started: String,
    /// Seconds that it trained, as far as they were written down.
    pub seconds: f64,
    /// The step after which it began.
    pub first_step: u64,
    /// The last step that was written down.
    pub step: u64,
    /// Steps that the run has in all.
    pub steps: u64,
    /// Parameters of the model.
    pub parameters: usize,
    /// The version of this program.
    pub version: String,
    /// How it was called.
    pub command: Vec<String>,
    /// The processor.
    pub cpu: String,
    /// Threads that the processor runs at once.
    pub cores: usize,
    /// Threads that computed.
    pub threads: usize,
    /// The GPU that computed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Bytes of memory, where the system tells.
    pub memory: Option<u64>,
    /// The instructions that kernels used.
    pub instruction_set: String,
    /// What products were computed in.
    pub precision: String,
    /// The operating system.
    pub system: String,
}

impl Sitting {
    /// One that begins now, on this machine.
    pub fn now(command: Vec<String>, device: &Device, threads: usize) -> Sitting {
        let Machine { cpu, cores, memory, instruction_set, system } = Machine::this();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Sitting {
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
            ..Sitting::default()
        }
    }
}

/// The file.
#[derive(Clone, Debug)]
pub struct Sittings {
    path: PathBuf,
    all: Vec<Sitting>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    sittings: Vec<Sitting>,
}

impl Sittings {
    /// Adds one to those of a file. Those of a file that cannot be read are lost, which no run should fail for.
    pub fn begin(path: &Path, sitting: Sitting) -> Result<Sittings, TrainError> {
        let mut all = Sittings::read(path).ok().flatten().unwrap_or_default();
        all.push(sitting);
        let sittings = Sittings { path: path.to_path_buf(), all };
        sittings.write()?;
        Ok(sittings)
    }

    /// Writes down how far the last one came.
    pub fn reached(&mut self, step: u64, seconds: f64) -> Result<(), TrainError> {
        if let Some(last) = self.all.last_mut() {
            (last.step, last.seconds) = (step, seconds);
        }
        self.write()
    }

    /// Those of a file; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Vec<Sitting>>, String> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Ok(Some(content.sittings))
    }

    fn write(&self) -> Result<(), TrainError> {
        let content = Content { sittings: self.all.clone() };
        let text = serde_json::to_string_pretty(&content).expect("plain data");
        write_whole(&self.path, format!("{text}\n").as_bytes())
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
    fn each_time_that_a_run_is_taken_up_is_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("machine.json");
        assert_eq!(Sittings::read(&path), Ok(None));
        for number in 1..=3 {
            let sitting = Sitting {
                steps: 9,
                ..Sitting::now(vec!["vitreous".to_string()], &Device::Cpu { threads: number }, number)
            };
            let mut sittings = Sittings::begin(&path, sitting).expect("written");
            sittings.reached(number as u64, 0.5).expect("written");
        }
        let read = Sittings::read(&path).expect("read").expect("there");
        assert_eq!(
            read.iter().map(|sitting| (sitting.step, sitting.threads)).collect::<Vec<_>>(),
            [(1, 1), (2, 2), (3, 3)]
        );
        assert!(read.iter().all(|sitting| sitting.started.ends_with('Z') && sitting.seconds == 0.5));
        // A file that is no longer one does not keep a run from going on.
        fs::write(&path, "{").expect("written");
        assert!(Sittings::read(&path).is_err());
        Sittings::begin(&path, Sitting::default()).expect("written");
        assert_eq!(Sittings::read(&path), Ok(Some(vec![Sitting::default()])));
    }
}
