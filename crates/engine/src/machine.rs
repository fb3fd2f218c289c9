//! Properties of the machine, and how much memory is available.

use crate::cpu::instruction_set;
use crate::error::{Error, Result};

/// A description of the machine, to accompany timings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name, or its architecture if the system does not report a name.
    pub cpu: String,
    /// Number of hardware threads.
    pub cores: usize,
    /// The most memory in bytes that this process may use; `None` if unknown.
    pub memory: Option<u64>,
    /// The instruction set that the kernels use here.
    pub instruction_set: &'static str,
    /// The operating system.
    pub system: String,
}

impl Machine {
    /// The machine that this runs on.
    pub fn this() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let architecture = std::env::consts::ARCH;
        let cpu = read("/proc/cpuinfo").and_then(|text| field_of(&text, "model name", ':'));
        let release = read("/etc/os-release").and_then(|text| field_of(&text, "PRETTY_NAME", '='));
        let total = read("/proc/meminfo").and_then(|text| value_of(&text, "MemTotal:")).map(|kib| kib * 1024);
        let limit = |path: &str| read(path)?.trim().parse::<u64>().ok();
        let limits =
            ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"].into_iter().filter_map(limit);
        Machine {
            cpu: cpu.unwrap_or_else(|| architecture.to_string()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory: total.into_iter().chain(limits).min(),
            instruction_set: instruction_set(),
            system: format!("{}, {architecture}", release.as_deref().unwrap_or(std::env::consts::OS)),
        }
    }
}

/// The value of a key on a line of its own: `model name : Some CPU`, `PRETTY_NAME="Some Linux"`.
fn field_of(text: &str, key: &str, separator: char) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(separator));
    let value = pairs.into_iter().find(|(name, _)| name.trim() == key)?.1.trim().trim_matches('"');
    (!value.is_empty()).then(|| value.to_string())
}

/// Bytes that can be allocated before the system starts swapping or killing: Linux's `MemAvailable`, within the limits
/// of the control groups of this process. `None` if unknown.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| available_of(&text));
    let group = |folder: &str, limit: &str, used: &str, cache: &str| {
        let number = |file: &str| read(&format!("{folder}/{file}"))?.trim().parse::<u64>().ok();
        let cached = read(&format!("{folder}/memory.stat")).and_then(|text| value_of(&text, cache)).unwrap_or(0);
        // Cached files can be evicted.
        Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(cached)))
    };
    let second = group("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file");
    let first = group("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
    [machine, first, second].into_iter().flatten().min()
}

/// An error if an allocation would not fit, before anything is allocated: a system that runs out of memory kills the
/// process instead of refusing. `what` names what needs the bytes, e.g. "training with batch 512".
pub fn check_memory(what: &str, bytes: usize) -> Result<()> {
    if bytes < ALWAYS_THERE {
        return Ok(());
    }
    match available_memory() {
        Some(available) => fits(what, bytes as u64, available),
        None => Ok(()),
    }
}

/// Fewer bytes than this are not worth asking the system for what is available.
const ALWAYS_THERE: usize = 1 << 20;

pub(crate) fn fits(what: &str, bytes: u64, available: u64) -> Result<()> {
    match bytes <= available {
        true => Ok(()),
        false => Err(refusal(what, bytes, available, "take a smaller batch, image or model")),
    }
}

/// The error for `what` needing more bytes than are available, with advice.
pub fn refusal(what: &str, bytes: u64, available: u64, advice: &str) -> Error {
    Error::Memory(format!(
        "{what} needs {} ({bytes} bytes) of memory, but {} are available; {advice}",
        size_in_words(bytes),
        size_in_words(available)
    ))
}

/// `200 MiB`, `3.0 GiB`.
pub fn size_in_words(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        small if small < 1024.0 => format!("{small:.0} MiB"),
        large => format!("{:.1} GiB", large / 1024.0),
    }
}

/// `MemAvailable:   123 kB`.
fn available_of(meminfo: &str) -> Option<u64> {
    value_of(meminfo, "MemAvailable:")?.checked_mul(1024)
}

/// The number after a word at the start of a line.
fn value_of(text: &str, key: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.next()?.parse().ok()).flatten()
    };
    text.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let text = "MemTotal:       24615440 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\nBuffers: 7 kB\n";
        assert_eq!(available_of(text), Some(20_480_000_000));
        assert_eq!(available_of("MemTotal: 5 kB\n"), None);
        assert_eq!(value_of("cache 1\ninactive_file 4096\n", "inactive_file"), Some(4096));
        assert_eq!(value_of("inactive_file many\n", "inactive_file"), None);
    }

    #[test]
    fn the_machine_is_described() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: another\nflags\t:\n";
        assert_eq!(field_of(text, "model name", ':').as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(field_of(text, "flags", ':'), None);
        assert_eq!(
            field_of("NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n", "PRETTY_NAME", '=').as_deref(),
            Some("Some Linux 1")
        );
        let machine = Machine::this();
        assert!(machine.cores > 0 && !machine.cpu.is_empty() && !machine.system.is_empty(), "{machine:?}");
    }

    #[test]
    fn too_much_is_refused_with_both_numbers() {
        assert_eq!(fits("training", 100, 100), Ok(()));
        let refusal = fits("training with batch 9", 3 << 30, 200 << 20).expect_err("too much").to_string();
        for part in ["training with batch 9 needs 3.0 GiB (3221225472 bytes)", "200 MiB are available", "smaller batch"]
        {
            assert!(refusal.contains(part), "{refusal}");
        }
        assert_eq!(check_memory("nothing", 0), Ok(()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_refuses_more_than_it_has() {
        assert!(available_memory().is_some_and(|bytes| bytes > 0));
        assert!(check_memory("too much", usize::MAX).is_err());
    }
}
