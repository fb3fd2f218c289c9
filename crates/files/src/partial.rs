//! Files that appear whole or not at all. `NAME` is written as `.NAME.PROCESS-COUNT.partial` in the same directory, synced,
//! and renamed.
//!
//! A writer holds a lock on its temporary file. Temporary files without a lock were left by writers that were killed, and the
//! next writer into the directory removes them. Process numbers say nothing about that: containers give the same ones
//! again, and those of other containers are not visible.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SUFFIX: &str = ".partial";
/// Before it is locked.
const BEGUN: &str = ".begun";
/// A file that was not locked for this long was left.
const LOCKING: Duration = Duration::from_secs(60);

/// Where a file system has no locks, files that were not written to for this long are left-overs.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A file that is being written. It is removed when it is dropped before [`PartialFile::finish`].
#[derive(Debug)]
pub struct PartialFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl PartialFile {
    /// Begins a file that will be at `path`. What killed writers left in its directory is removed.
    pub fn create(path: &Path) -> io::Result<PartialFile> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name =
            path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
        remove_left_behind(directory_of(path));
        loop {
            let mut temporary = OsString::from(".");
            temporary.push(name);
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            temporary.push(format!(".{}-{count}", std::process::id()));
            let [begun, temporary] = [BEGUN, SUFFIX].map(|suffix| {
                let mut name = temporary.clone();
                name.push(suffix);
                path.with_file_name(name)
            });
            let file = match OpenOptions::new().write(true).read(true).create_new(true).open(&begun) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            // It has this name only until it is locked: nobody may take it for one that was left.
            let locked = !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && is_at(&file, &begun);
            if locked && !temporary.exists() {
                fs::rename(&begun, &temporary)?;
                return Ok(PartialFile { file, temporary, path: path.to_path_buf(), is_finished: false });
            }
            let _ = fs::remove_file(&begun);
        }
    }

    /// The file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its path in the end.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file, and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        self.is_finished = true;
        // The rename is durable once the directory is synced; not every system can do that, and the file itself is complete.
        let _ = File::open(directory_of(&self.path)).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a file in one go.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut partial = PartialFile::create(path)?;
    partial.file().write_all(bytes)?;
    partial.finish()
}

/// The directory of a file.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes temporary files that nobody writes any more. Errors are ignored: left-overs do no harm.
pub fn remove_left_behind(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_begun = is_begun(&name);
        if !(is_begun || is_temporary(&name)) || !entry.file_type().is_ok_and(|entry_type| entry_type.is_file()) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = File::open(&path) else { continue };
        let is_left = match file.try_lock() {
            Ok(()) => !is_begun || is_older(&file, LOCKING),
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(_)) => is_older(&file, LONGEST),
        };
        if is_left {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_older(file: &File, than: Duration) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > than))
}

/// Whether a name is that of a file before it is locked.
fn is_begun(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_suffix(BEGUN));
    name.is_some_and(|name| is_temporary(OsStr::new(&format!("{name}{SUFFIX}"))))
}

/// Whether a name is one of our temporary ones, also of earlier versions: `.NAME.PROCESS-COUNT.partial`,
/// `NAME.html.PROCESS.partial`.
fn is_temporary(name: &OsStr) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((name, last)) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.rsplit_once('.')) else {
        return false;
    };
    match last.split_once('-') {
        Some((process, count)) => name.len() > 1 && name.starts_with('.') && digits(process) && digits(count),
        None => name.ends_with(".html") && digits(last),
    }
}

/// Whether a path still names an open file.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => place(file) == place(path),
        _ => false,
    }
}

/// Whether a path still names an open file.
#[cfg(not(unix))]
pub fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_ours_alone() {
        let ours = [".model.safetensors.123-4.partial", "report.html.1.partial", ".a.1-0.partial"];
        for name in ours {
            assert!(is_temporary(OsStr::new(name)), "{name}");
        }
        for name in [
            "model.123-4.partial",
            ".model.partial",
            ".123-4.partial",
            ".m.123-.partial",
            ".m.+1-0.partial",
            ".m.1-0",
            "notes.1.partial",
            "images.tar.partial",
        ] {
            assert!(!is_temporary(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn what_killed_writers_left_is_removed_whatever_their_number_and_living_ones_keep_theirs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        // Of a process that has our number, as the first process of every container has; of another; of an earlier version.
        let process = std::process::id();
        let left = [
            path(&format!(".model.safetensors.{process}-9000000.partial")),
            path(&format!(".model.safetensors.{}-3.partial", process + 1)),
            path(&format!("report.html.{process}.partial")),
        ];
        left.iter().for_each(|path| fs::write(path, "half").expect("written"));
        fs::write(path("notes.partial"), "mine").expect("written");
        // One that its writer has not locked yet, and one that nobody will.
        let begun = [path(".a.1-0.begun"), path(".b.1-0.begun")];
        begun.iter().for_each(|path| fs::write(path, "").expect("written"));
        let old = std::time::SystemTime::now() - 2 * LOCKING;
        File::options().write(true).open(&begun[1]).and_then(|file| file.set_modified(old)).expect("an old file");
        let living = PartialFile::create(&path("one.npz")).expect("begun");
        assert!(left.iter().all(|path| !path.exists()));
        assert_eq!(begun.each_ref().map(|path| path.exists()), [true, false]);
        let second = PartialFile::create(&path("two.npz")).expect("begun");
        assert!(living.temporary.exists() && second.temporary.exists() && path("notes.partial").exists());
    }

    #[test]
    fn files_appear_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        write(&path, b"one").expect("written");
        let mut partial = PartialFile::create(&path).expect("begun");
        partial.file().write_all(b"tw").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"one");
        drop(partial);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
        write(&path, b"two").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert!(write(&directory.path().join("no/file"), b"").is_err());
    }
}
