//! Event files that TensorBoard opens.
//!
//! A file is a row of records, each `length (u64), masked CRC-32C of it, bytes, masked CRC-32C of them`, all little-endian. The
//! bytes of a record are an `Event` in protobuf's encoding; the few messages that are needed are written by hand:
//!
//! ```text
//! Event      { 1: wall_time (double), 2: step (int64), one of 3: file_version (string), 5: Summary, 7: SessionLog }
//! Summary    { 1: repeated Value { 1: tag, 2: simple_value (float), 8: TensorProto, 9: SummaryMetadata } }
//! SessionLog { 1: status, 1 is START }
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What every event file begins with.
const VERSION: &[u8] = b"brain.Event:2";
/// `DT_STRING` of TensorFlow's types.
const STRINGS: u64 = 7;
/// `START` of a session's statuses.
const START: u64 = 1;

/// Writes one event file. A run that is resumed writes another: TensorBoard reads them in the order of their names.
#[derive(Debug)]
pub struct EventWriter {
    out: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// A new file `events.out.tfevents.SECONDS.HOST.SUFFIX` in this directory, which is made if it is not there.
    pub fn create(directory: &Path, suffix: &str) -> io::Result<EventWriter> {
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        std::fs::create_dir_all(directory)?;
        let name = format!("events.out.tfevents.{:010}.{}.{suffix}", wall_time as u64, host());
        let mut path = directory.join(&name);
        let mut number = 0;
        loop {
            match EventWriter::open(path, wall_time) {
                // Two in one second: the later name must sort behind the earlier.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                    number += 1;
                    path = directory.join(format!("{name}.{number:03}"));
                }
                result => return result,
            }
        }
    }

    fn open(path: PathBuf, wall_time: f64) -> io::Result<EventWriter> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let mut writer = EventWriter { out: BufWriter::new(file), path };
        let mut version = Message::default();
        version.bytes(3, VERSION);
        writer.event(0, wall_time, &version)?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the run starts here (again): TensorBoard forgets what earlier files say of this step and of later ones.
    pub fn start(&mut self, step: u64, wall_time: f64) -> io::Result<()> {
        let mut log = Message::default();
        log.number(1, START);
        let mut event = Message::default();
        event.message(7, &log);
        self.event(step, wall_time, &event)
    }

    /// Numbers of one step: `(name, value)`. `wall_time` is in seconds since 1970.
    pub fn scalars(&mut self, step: u64, wall_time: f64, values: &[(&str, f32)]) -> io::Result<()> {
        let mut summary = Message::default();
        for (tag, number) in values {
            let mut value = Message::default();
            value.bytes(1, tag.as_bytes());
            value.float(2, *number);
            summary.message(1, &value);
        }
        self.summary(step, wall_time, &summary)
    }

    /// A text, which TensorBoard shows as Markdown.
    pub fn text(&mut self, step: u64, wall_time: f64, tag: &str, markdown: &str) -> io::Result<()> {
        let mut plugin = Message::default();
        plugin.bytes(1, b"text");
        let mut metadata = Message::default();
        metadata.message(1, &plugin);
        let mut axis = Message::default();
        axis.number(1, 1);
        let mut shape = Message::default();
        shape.message(2, &axis);
        let mut tensor = Message::default();
        tensor.number(1, STRINGS);
        tensor.message(2, &shape);
        tensor.bytes(8, markdown.as_bytes());
        let mut value = Message::default();
        value.bytes(1, tag.as_bytes());
        value.message(8, &tensor);
        value.message(9, &metadata);
        let mut summary = Message::default();
        summary.message(1, &value);
        self.summary(step, wall_time, &summary)
    }

    /// Hands all events to the system, so that TensorBoard sees them.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn summary(&mut self, step: u64, wall_time: f64, summary: &Message) -> io::Result<()> {
        let mut event = Message::default();
        event.message(5, summary);
        self.event(step, wall_time, &event)
    }

    /// Writes a record: time and step, then what the event has to tell.
    fn event(&mut self, step: u64, wall_time: f64, content: &Message) -> io::Result<()> {
        let mut event = Message::default();
        event.double(1, wall_time);
        // Zero is what a number is that is not there.
        if step > 0 {
            event.number(2, step);
        }
        event.0.extend_from_slice(&content.0);
        let length = (event.0.len() as u64).to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&masked_checksum(&length).to_le_bytes())?;
        self.out.write_all(&event.0)?;
        self.out.write_all(&masked_checksum(&event.0).to_le_bytes())
    }
}

/// A protobuf message: fields one behind the other, each begun by `number << 3 | kind`.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, kind: u64) {
        self.variable(field << 3 | kind);
    }

    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    fn variable(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.variable(value);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.variable(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn message(&mut self, field: u64, value: &Message) {
        self.bytes(field, &value.0);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.key(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }
}

/// CRC-32C, turned and shifted, because a checksum of bytes that hold their own checksum is weak.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The machine's name, with nothing in it that a file's name cannot have.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).ok())
        .unwrap_or_default();
    let kept = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    match name.chars().filter(kept).take(64).collect::<String>() {
        name if name.is_empty() => "localhost".to_string(),
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        std::fs::read(path).expect("a fixture")
    }

    /// What the writer leaves in its file.
    fn written(wall_time: f64, write: impl FnOnce(&mut EventWriter) -> io::Result<()>) -> Vec<u8> {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("events");
        let mut writer = EventWriter::open(path.clone(), wall_time).expect("a file");
        write(&mut writer).expect("written");
        writer.flush().expect("flushed");
        std::fs::read(path).expect("the file")
    }

    /// `make_events.py` wrote the fixtures with TensorBoard's own messages, and read them back.
    #[test]
    fn bytes_are_those_of_tensorboard() {
        let run = written(1_700_000_000.25, |events| {
            events.text(0, 1_700_000_000.5, "recipe", "    epochs = 30 # \u{dc}bung")?;
            events.scalars(0, 1_700_000_001.0, &[("loss", 2.5), ("lr", 0.0)])?;
            events.scalars(100, 1_700_000_002.0, &[("loss", 1.25), ("lr", 1e-3), ("val/top1", 0.5)])?;
            events.scalars(200, 1_700_000_003.0, &[("loss", f32::NAN)])?;
            events.scalars(300, 1_700_000_004.0, &[("loss", f32::INFINITY)])
        });
        assert_eq!(run, fixture("run.tfevents"));
        let resumed = written(1_700_000_100.0, |events| {
            events.start(130, 1_700_000_100.0)?;
            events.scalars(130, 1_700_000_101.0, &[("loss", 1.125)])?;
            events.scalars(5_000_000_000, 1_700_000_102.0, &[("loss", 0.5)])
        });
        assert_eq!(resumed, fixture("resumed.tfevents"));
    }

    #[test]
    fn a_run_resumed_within_a_second_gets_a_file_that_sorts_behind() {
        let directory = tempfile::tempdir().expect("a folder");
        let inside = directory.path().join("made/on the way");
        let paths: Vec<PathBuf> =
            (0..12).map(|_| EventWriter::create(&inside, "vitreous").expect("a file").path().to_path_buf()).collect();
        assert!(paths.is_sorted_by(|a, b| a < b), "{paths:?}");
        let name = paths[0].file_name().expect("a name").to_string_lossy();
        assert!(name.starts_with("events.out.tfevents.") && name.ends_with(".vitreous"), "{name}");
    }
}
