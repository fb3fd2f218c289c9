//! Ranks that are threads of one process: for tests, which need no library for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::Collective;
use crate::error::{Error, Result};

/// A rank that is a thread.
pub struct Together {
    rank: usize,
    /// To each rank, and from each.
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// So many ranks that know each other.
pub fn ranks(size: usize) -> Vec<Together> {
    let mut all: Vec<Together> = (0..size).map(|rank| Together { rank, to: Vec::new(), from: Vec::new() }).collect();
    for sender in 0..size {
        for receiver in 0..size {
            let (to, from) = channel();
            all[sender].to.push(to);
            // In the order of the senders, as each is asked in turn.
            all[receiver].from.push(from);
        }
    }
    all
}

/// Runs the same in so many ranks. What each gives, by rank.
///
/// # Panics
/// Panics if one of them does.
pub fn together<T: Send>(size: usize, work: impl Fn(&mut dyn Collective) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = ranks(size).into_iter().map(|mut rank| scope.spawn(move || work(&mut rank))).collect();
        started.into_iter().map(|rank| rank.join().expect("a rank that does not panic")).collect()
    })
}

impl Collective for Together {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn name(&self) -> String {
        "threads".to_string()
    }

    fn host(&self) -> String {
        super::launch::host_name()
    }

    fn exchange_while(
        &mut self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        _idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let gone = |rank: usize| Error::Machine(format!("rank {rank} has ended"));
        for &(to, bytes) in sends {
            self.to[to].send(bytes.to_vec()).map_err(|_| gone(to))?;
        }
        for (from, bytes) in receives {
            let received = self.from[*from].recv().map_err(|_| gone(*from))?;
            if received.len() != bytes.len() {
                let what = format!("rank {from} has sent {} bytes in place of {}", received.len(), bytes.len());
                return Err(Error::Machine(what));
            }
            bytes.copy_from_slice(&received);
        }
        Ok(())
    }

    fn watch(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self, _code: i32) {}

    fn finish(&mut self) -> Result<()> {
        super::gather_all(self, &[]).map(|_| ())
    }
}
