//! What the machine can spare.

use crate::error::{Error, Result};

/// Bytes that can be taken without making the system swap or kill: what Linux calls available, within the limits of the control
/// groups that this process is in. `None` where the system does not tell.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| available_of(&text));
    let group = |folder: &str, limit: &str, used: &str, cache: &str| {
        let number = |file: &str| read(&format!("{folder}/{file}"))?.trim().parse::<u64>().ok();
        let cached = read(&format!("{folder}/memory.stat")).and_then(|text| value_of(&text, cache)).unwrap_or(0);
        // Files that are cached can go.
        Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(cached)))
    };
    let second = group("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file");
    let first = group("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
    [machine, first, second].into_iter().flatten().min()
}

/// Refuses what would not fit, before anything is taken for it: a system that runs out of memory kills instead of refusing.
/// `what` is what needs the bytes, as in "training with batch 512".
pub fn check_memory(what: &str, bytes: usize) -> Result<()> {
    match available_memory() {
        Some(available) => fits(what, bytes as u64, available),
        None => Ok(()),
    }
}

fn fits(what: &str, bytes: u64, available: u64) -> Result<()> {
    if bytes <= available {
        return Ok(());
    }
    let size = |bytes: u64| match bytes as f64 / f64::from(1 << 20) {
        small if small < 1024.0 => format!("{small:.0} MiB"),
        large => format!("{:.1} GiB", large / 1024.0),
    };
    Err(Error::Machine(format!(
        "{what} needs {} ({bytes} bytes) of memory, but {} are available; take a smaller batch, image or model",
        size(bytes),
        size(available)
    )))
}

/// `MemAvailable:   123 kB`.
fn available_of(meminfo: &str) -> Option<u64> {
    value_of(meminfo, "MemAvailable:")?.checked_mul(1024)
}

/// The number behind a word at the start of a line.
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
