//! Standard input that may never end, such as a microphone's: Ctrl-C ends it, and what came before is still worked on.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are read at once, and how many such parts are read ahead: minutes of speech, while a machine is busy.
const PART: usize = 1 << 14;
const AHEAD: usize = 1 << 10;
/// How often it is looked whether input is to end.
const LOOK: Duration = Duration::from_millis(100);
/// How long after Ctrl-C the program before us in a pipe may still give what it has.
const LAST: Duration = Duration::from_secs(1);

/// Reads from standard input until it ends, or until a flag is set.
pub struct LiveInput {
    parts: Mutex<Receiver<io::Result<Vec<u8>>>>,
    part: Vec<u8>,
    place: usize,
    stop: Arc<AtomicBool>,
    /// When nothing more is waited for.
    deadline: Option<Instant>,
}

impl LiveInput {
    /// Begins to read, on a thread of its own: a signal does not end a read that waits.
    pub fn new(stop: Arc<AtomicBool>) -> LiveInput {
        LiveInput::of(io::stdin(), stop)
    }

    fn of(mut source: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> LiveInput {
        let (sender, parts) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            loop {
                let mut part = vec![0; PART];
                let read = match source.read(&mut part) {
                    Ok(0) => return,
                    Ok(count) => {
                        part.truncate(count);
                        Ok(part)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if sender.send(read).is_err() || failed {
                    return;
                }
            }
        });
        LiveInput { parts: Mutex::new(parts), part: Vec::new(), place: 0, stop, deadline: None }
    }

    /// The next part; empty at the end.
    fn next_part(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if self.deadline.is_none() && self.stop.load(Ordering::Relaxed) {
                self.deadline = Some(Instant::now() + LAST);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Vec::new());
            }
            let parts = self.parts.get_mut().unwrap_or_else(PoisonError::into_inner);
            match parts.recv_timeout(LOOK) {
                Ok(part) => return part,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            }
        }
    }
}

impl Read for LiveInput {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.place == self.part.len() {
            (self.part, self.place) = (self.next_part()?, 0);
        }
        let count = to.len().min(self.part.len() - self.place);
        to[..count].copy_from_slice(&self.part[self.place..self.place + count]);
        self.place += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes, then waits forever, as a microphone in a silent pipe.
    struct Endless(&'static [u8]);

    impl Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                loop {
                    std::thread::park();
                }
            }
            self.0.read(to)
        }
    }

    #[test]
    fn what_came_before_the_stop_is_read() {
        let stop = Arc::new(AtomicBool::new(true));
        let mut found = Vec::new();
        LiveInput::of(Endless(b"some audio"), stop).read_to_end(&mut found).expect("ends");
        assert_eq!(found, b"some audio");
    }

    #[test]
    fn what_ends_by_itself_is_read_whole() {
        let all: Vec<u8> = (0..100_000u32).map(|number| (number % 251) as u8).collect();
        let mut found = Vec::new();
        let source = io::Cursor::new(all.clone());
        LiveInput::of(source, Arc::default()).read_to_end(&mut found).expect("ends");
        assert!(found == all);
    }
}
