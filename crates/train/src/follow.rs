//! Follows `metrics.jsonl` of a run while another process writes it.
//!
//! Whoever follows asks now and then; each time it gets the lines that are whole since the last time. A file that became shorter, or is
//! another one, was rewritten (a run that is resumed drops the lines behind its checkpoint), and is followed from its beginning again.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use vitreous_files::open::open_regular;

use crate::run_directory::METRICS;

/// The most bytes that are read at once; what is beyond comes with the next question.
const MOST_BYTES: u64 = 4 << 20;
/// The longest line. The gradient norms of ten thousand parameters take half of it.
const LONGEST_LINE: usize = 1 << 20;

/// A place in the metrics of a run.
#[derive(Debug)]
pub struct MetricsFollower {
    path: PathBuf,
    file: Option<FileId>,
    offset: u64,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
    /// Whether the rest of a line that is too long is passed over.
    passing: bool,
    lines: u64,
}

/// What is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewLines {
    /// Lines without their ends, each a JSON object. Damaged ones are left out.
    pub lines: Vec<String>,
    /// Whether these begin the file anew: what was read before is no longer in it.
    pub rewritten: bool,
}

/// Which file has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> FileId {
        use std::os::unix::fs::MetadataExt;
        FileId(metadata.dev(), metadata.ino())
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> FileId {
        let created = metadata.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        FileId(0, created.map_or(0, |since| since.as_nanos() as u64))
    }
}

impl MetricsFollower {
    /// Of a run directory, from the first line.
    pub fn new(run: &Path) -> MetricsFollower {
        let path = run.join(METRICS);
        MetricsFollower { path, file: None, offset: 0, begun: Vec::new(), passing: false, lines: 0 }
    }

    /// How many lines there were so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// What was written since the last time. A run without metrics has nothing new.
    pub fn read(&mut self) -> io::Result<NewLines> {
        let mut file = match open_regular(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let rewritten = self.lines > 0;
                self.restart(None);
                return Ok(NewLines { lines: Vec::new(), rewritten });
            }
            other => other?,
        };
        let metadata = file.metadata()?;
        let id = FileId::of(&metadata);
        let is_other = self.file.is_some_and(|known| known != id) || metadata.len() < self.offset;
        let rewritten = is_other && self.lines > 0;
        if is_other || self.file.is_none() {
            self.restart(Some(id));
        }
        if metadata.len() == self.offset {
            return Ok(NewLines { lines: Vec::new(), rewritten });
        }
        let bytes = self.new_bytes(&mut file)?;
        let lines = self.whole_lines(&bytes);
        Ok(NewLines { lines, rewritten })
    }

    fn restart(&mut self, file: Option<FileId>) {
        let path = std::mem::take(&mut self.path);
        *self = MetricsFollower { file, ..MetricsFollower::new(Path::new("")) };
        self.path = path;
    }

    fn new_bytes(&mut self, file: &mut File) -> io::Result<Vec<u8>> {
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    fn whole_lines(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = part.ends_with(b"\n");
            if !self.passing {
                self.begun.extend_from_slice(part);
            }
            if self.begun.len() > LONGEST_LINE {
                self.begun = Vec::new();
                self.passing = true;
            }
            if !is_whole {
                continue;
            }
            self.passing = false;
            let line = std::mem::take(&mut self.begun);
            let is_object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&line).is_ok();
            match String::from_utf8(line) {
                Ok(line) if is_object => lines.push(line.trim_end().to_string()),
                _ => {}
            }
        }
        self.lines += lines.len() as u64;
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    fn add(run: &Path, text: &str) {
        let file = OpenOptions::new().create(true).append(true).open(run.join(METRICS));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    }

    fn new(follower: &mut MetricsFollower) -> (Vec<String>, bool) {
        let NewLines { lines, rewritten } = follower.read().expect("read");
        (lines, rewritten)
    }

    #[test]
    fn lines_come_once_and_whole() {
        let run = tempfile::tempdir().expect("a directory");
        let mut follower = MetricsFollower::new(run.path());
        assert_eq!(new(&mut follower), (vec![], false));
        add(run.path(), "{\"step\": 1}\n{\"step\"");
        assert_eq!(new(&mut follower), (vec!["{\"step\": 1}".to_string()], false));
        assert_eq!(new(&mut follower), (vec![], false));
        add(run.path(), ": 2}\r\nno json\n[3]\n{\"step\": 4}\n");
        assert_eq!(new(&mut follower).0, ["{\"step\": 2}", "{\"step\": 4}"]);
        assert_eq!(follower.lines(), 3);
    }

    #[test]
    fn a_file_that_was_cut_removed_or_replaced_begins_anew() {
        let run = tempfile::tempdir().expect("a directory");
        let mut follower = MetricsFollower::new(run.path());
        let file = run.path().join(METRICS);
        add(run.path(), "{\"step\": 1}\n{\"step\": 2}\n");
        assert_eq!(new(&mut follower).0.len(), 2);
        fs::write(&file, "{\"step\": 1}\n").expect("written");
        assert_eq!(new(&mut follower), (vec!["{\"step\": 1}".to_string()], true));
        // Another file of the same length.
        fs::write(run.path().join("other"), "{\"step\": 9}\n").expect("written");
        fs::rename(run.path().join("other"), &file).expect("renamed");
        assert_eq!(new(&mut follower), (vec!["{\"step\": 9}".to_string()], true));
        fs::remove_file(&file).expect("removed");
        assert_eq!(new(&mut follower), (vec![], true));
        assert_eq!(new(&mut follower), (vec![], false));
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let run = tempfile::tempdir().expect("a directory");
        let mut follower = MetricsFollower::new(run.path());
        add(run.path(), &"x".repeat(LONGEST_LINE + 10));
        assert_eq!(new(&mut follower).0.len(), 0);
        assert!(follower.begun.is_empty() && follower.passing);
        add(run.path(), "x\n{\"step\": 1}\n");
        assert_eq!(new(&mut follower).0, ["{\"step\": 1}"]);
    }
}
