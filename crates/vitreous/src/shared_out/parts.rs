//! Finished chunks on disk: a directory that all ranks see, with one file for each chunk, which appears whole or not at all.
//!
//!     DIR/job.json           what the parts belong to
//!     DIR/0000/17.part       chunk 17: a line of JSON, and then its answers
//!     DIR/rank-3.alive       written by rank 3 every other second

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vitreous_files::partial;

use super::key::Key;
use crate::failure::Failure;

/// The job that parts belong to.
pub const JOB: &str = "job.json";
/// The most bytes of a job, and of the first line of a part.
const MOST_HEADER: u64 = 1 << 16;
/// Chunks of a folder: to write a file, all of its folder are looked at.
const OF_FOLDER: usize = 256;

/// What parts belong to. Those of another job are of no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The version of the program.
    pub version: String,
    /// The command with its options, but for those that do not change answers.
    pub command: Vec<String>,
    /// The key of the model, and of files that options name.
    pub model: String,
}

/// The first line of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// The job's key.
    job: String,
    chunk: usize,
    /// The key of its inputs.
    inputs: String,
    /// How many inputs it has.
    count: usize,
    /// How many of them have no answer.
    failed: usize,
    /// Bytes of its answers, and their key.
    bytes: u64,
    answers: String,
}

/// A chunk, by its place and its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its place among all chunks.
    pub index: usize,
    /// How many inputs come before it.
    pub first: usize,
    /// How many it has.
    pub count: usize,
    /// The key of its inputs.
    pub key: u64,
}

/// A directory of parts.
#[derive(Debug)]
pub struct Parts {
    directory: PathBuf,
    job: String,
}

fn hex(key: u64) -> String {
    format!("{key:016x}")
}

fn key_of_bytes(bytes: &[u8]) -> String {
    let mut key = Key::default();
    key.add(bytes);
    hex(key.number())
}

impl Job {
    /// Its key.
    pub fn key(&self) -> String {
        key_of_bytes(json!(self).to_string().as_bytes())
    }

    /// In what it differs from the job of parts that are there.
    fn difference_from(&self, there: &Job) -> &'static str {
        match (self.version == there.version, self.model == there.model) {
            (false, _) => "another version of vitreous",
            (true, false) => "another model, or another file that an option names",
            (true, true) => "another command or other options",
        }
    }
}

impl Parts {
    /// Opens a directory, or makes it. That of another job is refused.
    pub fn open(directory: &Path, job: &Job) -> Result<Parts, Failure> {
        let name = directory.display();
        let failed = |error: std::io::Error| Failure::work(anyhow!("{name}: parts cannot be kept there: {error}"));
        fs::create_dir_all(directory).map_err(failed)?;
        let path = directory.join(JOB);
        match read_bounded(&path) {
            Ok(text) => {
                let there: Option<Job> = serde_json::from_str(&text).ok();
                let Some(there) = there else {
                    return Err(Failure::input(anyhow!("{}: this is not what vitreous writes there", path.display())));
                };
                if there != *job {
                    return Err(Failure::input(anyhow!(
                        "{name} has parts of {}: run that again, name another directory with --parts, or remove this one",
                        job.difference_from(&there)
                    )));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut entries = fs::read_dir(directory).map_err(failed)?.flatten();
                let visible = |entry: fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
                // Another rank may just have written its job.
                if entries.any(visible) && !path.exists() {
                    return Err(Failure::input(anyhow!(
                        "{name} has other files: name an empty directory with --parts"
                    )));
                }
                partial::write(&path, json!(job).to_string().as_bytes()).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Parts { directory: directory.to_path_buf(), job: job.key() })
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, index: usize) -> PathBuf {
        self.directory.join(format!("{:04}", index / OF_FOLDER)).join(format!("{index}.part"))
    }

    /// Whether a chunk is there, whole by its length, and of these inputs.
    pub fn has(&self, chunk: &Chunk) -> bool {
        self.open_part(chunk).is_ok_and(|part| part.is_some())
    }

    /// Writes a chunk's answers.
    pub fn write(&self, chunk: &Chunk, answers: &[u8], failed: usize) -> Result<(), Failure> {
        let header = Header {
            job: self.job.clone(),
            chunk: chunk.index,
            inputs: hex(chunk.key),
            count: chunk.count,
            failed,
            bytes: answers.len() as u64,
            answers: key_of_bytes(answers),
        };
        let path = self.path(chunk.index);
        let mut bytes = json!(header).to_string().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(answers);
        let written = fs::create_dir_all(partial::directory_of(&path)).and_then(|()| partial::write(&path, &bytes));
        written.map_err(|error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display())))
    }

    /// A chunk's answers, and how many of its inputs have none.
    pub fn read(&self, chunk: &Chunk) -> Result<(Vec<u8>, usize), Failure> {
        let path = self.path(chunk.index);
        let damaged = || Failure::work(anyhow!("{}: this part is damaged: remove it and run again", path.display()));
        let failed = |error| Failure::work(anyhow!("{}: cannot be read: {error}", path.display()));
        let (header, mut rest) = self.open_part(chunk).map_err(failed)?.ok_or_else(damaged)?;
        let mut answers = Vec::new();
        rest.read_to_end(&mut answers).map_err(failed)?;
        match key_of_bytes(&answers) == header.answers {
            true => Ok((answers, header.failed)),
            false => Err(damaged()),
        }
    }

    /// A part, behind its first line; `None` if it is of something else or too short.
    fn open_part(&self, chunk: &Chunk) -> std::io::Result<Option<(Header, BufReader<File>)>> {
        let file = File::open(self.path(chunk.index))?;
        let size = file.metadata()?.len();
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        let length = Read::by_ref(&mut reader).take(MOST_HEADER).read_until(b'\n', &mut line)? as u64;
        let Ok(header) = serde_json::from_slice::<Header>(&line) else { return Ok(None) };
        let is_same = header.job == self.job
            && header.chunk == chunk.index
            && header.inputs == hex(chunk.key)
            && length.checked_add(header.bytes) == Some(size);
        Ok(is_same.then_some((header, reader)))
    }

    /// Removes the parts of so many chunks and what belongs to them; nothing else, and the directory only if it is empty then. What cannot
    /// be removed stays.
    pub fn remove(self, chunks: usize) {
        for index in 0..chunks {
            let path = self.path(index);
            let _ = fs::remove_file(&path);
            if index % OF_FOLDER == OF_FOLDER - 1 || index + 1 == chunks {
                let folder = partial::directory_of(&path);
                remove_begun(folder);
                let _ = fs::remove_dir(folder);
            }
        }
        let _ = fs::remove_file(self.directory.join(JOB));
        let _ = fs::remove_file(self.directory.join(super::JOINING));
        remove_begun(&self.directory);
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Removes what killed ranks had begun to write, of parts and of the job alone, and the signs of life of ranks, of which an earlier run
/// may have had more. Nobody writes there any more.
fn remove_begun(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_ours = name.contains(".part.") || name.starts_with(".job.json.");
        let is_begun = name.starts_with('.') && is_ours && [".partial", ".begun"].iter().any(|end| name.ends_with(end));
        if is_begun || is_alive_name(&name) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is one of [`alive_path`].
fn is_alive_name(name: &str) -> bool {
    let number = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".alive"));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

/// The file by which a rank shows that it is alive.
pub fn alive_path(directory: &Path, rank: usize) -> PathBuf {
    directory.join(format!("rank-{rank}.alive"))
}

/// A short file.
pub fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_HEADER).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(command: &str) -> Job {
        Job { version: "1".into(), command: vec![command.into()], model: "m".into() }
    }

    #[test]
    fn a_part_is_of_its_inputs_or_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("parts");
        let parts = Parts::open(&folder, &job("embed")).expect("a directory");
        let chunk = Chunk { index: 300, first: 0, count: 3, key: 7 };
        assert!(!parts.has(&chunk));
        parts.write(&chunk, b"answers\nof three\n", 1).expect("written");
        assert!(parts.has(&chunk) && !parts.has(&Chunk { key: 8, ..chunk }));
        assert_eq!(parts.read(&chunk).expect("a part"), (b"answers\nof three\n".to_vec(), 1));
        // Cut short, or with other bytes.
        let path = parts.path(300);
        let bytes = fs::read(&path).expect("a part");
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
        assert!(!parts.has(&chunk));
        let mut other = bytes.clone();
        *other.last_mut().expect("bytes") ^= 1;
        fs::write(&path, &other).expect("written");
        assert!(parts.has(&chunk) && parts.read(&chunk).is_err());
    }

    #[test]
    fn parts_of_another_job_and_files_of_others_are_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        Parts::open(directory.path(), &job("embed")).expect("a directory");
        Parts::open(directory.path(), &job("embed")).expect("the same again");
        let refused = Parts::open(directory.path(), &job("predict")).expect_err("another").text();
        assert!(refused.contains("another command") && refused.contains("--parts"), "{refused}");
        let mine = tempfile::tempdir().expect("a directory");
        fs::write(mine.path().join("notes.txt"), "mine").expect("written");
        let refused = Parts::open(mine.path(), &job("embed")).expect_err("not empty").text();
        assert!(refused.contains("other files"), "{refused}");
    }

    #[test]
    fn only_parts_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("parts");
        let parts = Parts::open(&folder, &job("embed")).expect("a directory");
        for index in 0..300 {
            parts.write(&Chunk { index, first: index, count: 1, key: 1 }, b"", 0).expect("written");
        }
        fs::write(folder.join("notes.txt"), "mine").expect("written");
        // What killed ranks had begun.
        for name in ["rank-7.alive", "0000/.7.part.12-0.partial", "0001/.299.part.12-4.begun", ".job.json.12-0.partial"]
        {
            fs::write(folder.join(name), "{").expect("written");
        }
        parts.remove(300);
        let left: Vec<_> = fs::read_dir(&folder).expect("a directory").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }
}
