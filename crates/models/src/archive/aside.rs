//! Temporary files for writing: `NAME` is written as `.NAME.PROCESS-COUNT.partial` in the same directory.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No write takes longer.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A new file in the same directory, so that the rename is atomic. Leftovers of dead writers there are removed.
pub(crate) fn create_aside(path: &Path) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    remove_left_behind(directory_of(path));
    loop {
        let mut aside = std::ffi::OsString::from(".");
        aside.push(name);
        aside.push(format!(".{}-{}.partial", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let aside = path.with_file_name(aside);
        match OpenOptions::new().write(true).read(true).create_new(true).open(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|file| (file, aside)),
        }
    }
}

/// The directory of a file.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes unfinished files of processes that have ended. Errors are ignored: leftovers do no harm.
fn remove_left_behind(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Some(process) = writer_of(&entry.file_name()) else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
        if metadata.is_file() && process != std::process::id() && (is_gone(process) || age > LONGEST) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that writes a temporary file, from the file's name.
fn writer_of(name: &OsStr) -> Option<u32> {
    let (name, numbers) = name.to_str()?.strip_prefix('.')?.strip_suffix(".partial")?.rsplit_once('.')?;
    let (process, count) = numbers.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!name.is_empty() && digits(process) && digits(count)).then(|| process.parse().ok())?
}

/// Whether a process has certainly ended; where this is unknown, age decides.
fn is_gone(process: u32) -> bool {
    cfg!(target_os = "linux") && Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{process}")).exists()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_our_own_names_have_a_writer() {
        let writer = |name: &str| writer_of(OsStr::new(name));
        assert_eq!(writer(".model.safetensors.123-4.partial"), Some(123));
        for other in
            ["model.123-4.partial", ".model.partial", ".123-4.partial", ".m.123-.partial", ".m.+1-0.partial", ".m.1-0"]
        {
            assert_eq!(writer(other), None, "{other}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_dead_writers_left_is_removed_and_nothing_else() {
        let mut ended = std::process::Command::new("true").spawn().expect("starts");
        ended.wait().expect("ends");
        let (dead, living, ours) = (ended.id(), std::os::unix::process::parent_id(), std::process::id());
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: String| {
            let path = directory.path().join(name);
            File::create(&path).map(|file| (file, path)).expect("a file")
        };
        let (old, old_path) = file(format!(".model.npz.{living}-0.partial"));
        old.set_modified(SystemTime::now() - 2 * LONGEST).expect("an old file");
        let (_, dead_path) = file(format!(".model.safetensors.{dead}-3.partial"));
        let kept = [
            file(format!(".model.safetensors.{living}-1.partial")).1,
            file(format!(".model.safetensors.{ours}-9000000.partial")).1,
            file(format!("{dead}-3.partial")).1,
            file(".notes.partial".to_string()).1,
        ];
        let (_, aside) = create_aside(&directory.path().join("model.safetensors")).expect("a file");
        assert!(!old_path.exists() && !dead_path.exists());
        assert!(kept.iter().all(|path| path.exists()) && aside.exists());
        assert_eq!(writer_of(aside.file_name().expect("a name")), Some(ours));
    }
}
