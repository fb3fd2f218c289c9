//! Many processes that train one model: what they send each other.
//!
//! - [`Launch`]: whether a launcher (`mpirun`, `srun`, `torchrun`) has started this process with others. Without one nothing here is
//!   used, and no library is loaded.
//! - [`Collective`]: what a rank can do with the others, all of it made of one exchange of messages. There are [`Alone`] for one
//!   process, [`mpi`] for whichever MPI library the launcher belongs to, found when it is needed, NCCL for GPUs, and [`threads`] for
//!   tests.
//! - [`World`]: this process among the others. A thread of its own does all communication, in the order in which it was asked for, so
//!   that gradients travel while the next ones are computed, and that a rank which no longer answers is noticed.
//! - [`Buckets`] and [`Sums`]: sums over ranks in a fixed order, whatever library carries them.

mod alone;
mod buckets;
pub(crate) mod hello;
pub(crate) mod launch;
pub mod mpi;
pub mod nccl;
mod peers;
mod progress;
pub(crate) mod signs;
mod sums;
pub mod threads;
mod world;

pub use alone::Alone;
pub use buckets::{Bucket, Buckets};
pub use launch::{Launch, Launcher};
pub use sums::{Sums, Wire, gather_parts};
pub use world::{Pending, World};

use std::time::Duration;

use crate::error::Result;

/// Between two signs of life.
const SIGN_INTERVAL: Duration = Duration::from_secs(1);
/// How long a rank may be silent.
const SILENCE: Duration = Duration::from_secs(20);
/// A process that was itself stopped for this long must not blame the others.
const OWN_PAUSE: Duration = Duration::from_secs(5);

/// What a rank does with the others. Every method but [`Collective::watch`] and [`Collective::abort`] is called by all ranks, in the
/// same order.
pub trait Collective: Send {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// The library that carries the messages, in a few words.
    fn name(&self) -> String;

    /// The machine that this process runs on.
    fn host(&self) -> String;

    /// Sends to some ranks and receives from some, other than itself; at most one message each way for each. Returns when all of
    /// them are there and the sent bytes may change. Lengths are known to both sides.
    fn exchange(&mut self, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.exchange_while(sends, receives, &mut || Ok(()))
    }

    /// The same; `idle` is called while it waits, and its error ends the waiting.
    fn exchange_while(
        &mut self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()>;

    /// Shows the others that this rank is alive, and looks whether they are: an error names the one that is silent. Called at least
    /// every second.
    fn watch(&mut self) -> Result<()>;

    /// Ends all processes.
    fn abort(&mut self, code: i32);

    /// Waits for all ranks to come here; nothing but [`Collective::finish`] follows.
    fn say_goodbye(&mut self) -> Result<()> {
        Ok(())
    }

    /// Ends communication.
    fn finish(&mut self) -> Result<()>;
}

/// What every rank says, by rank. The texts may have any lengths.
pub fn gather_all(link: &mut dyn Collective, own: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (rank, size) = (link.rank(), link.size());
    let others: Vec<usize> = (0..size).filter(|&other| other != rank).collect();
    let length = (own.len() as u64).to_le_bytes();
    let mut lengths = vec![[0; 8]; size];
    lengths[rank] = length;
    let sends: Vec<(usize, &[u8])> = others.iter().map(|&other| (other, &length[..])).collect();
    let mut receives: Vec<(usize, &mut [u8])> =
        lengths.iter_mut().map(|length| &mut length[..]).enumerate().filter(|(other, _)| *other != rank).collect();
    link.exchange(&sends, &mut receives)?;
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; u64::from_le_bytes(*length) as usize]).collect();
    all[rank].copy_from_slice(own);
    let sends: Vec<(usize, &[u8])> = others.iter().filter(|_| !own.is_empty()).map(|&other| (other, own)).collect();
    let mut receives: Vec<(usize, &mut [u8])> = all
        .iter_mut()
        .map(|bytes| &mut bytes[..])
        .enumerate()
        .filter(|(other, bytes)| *other != rank && !bytes.is_empty())
        .collect();
    link.exchange(&sends, &mut receives)?;
    Ok(all)
}

/// The bytes of one rank, which all others take: `bytes` has the right length everywhere.
pub fn broadcast(link: &mut dyn Collective, root: usize, bytes: &mut [u8]) -> Result<()> {
    // A binomial tree, with ranks counted from the root: in each round, those who have the bytes send them to as many others.
    let (rank, size) = (link.rank(), link.size());
    let place = (rank + size - root) % size;
    let mut holders = 1;
    while holders < size {
        let rank_of = |place: usize| (place + root) % size;
        match place {
            sender if sender < holders && sender + holders < size => {
                link.exchange(&[(rank_of(sender + holders), bytes)], &mut [])?;
            }
            receiver if (holders..2 * holders).contains(&receiver) => {
                link.exchange(&[], &mut [(rank_of(receiver - holders), &mut *bytes)])?;
            }
            _ => {}
        }
        holders *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::threads::together;
    use super::*;

    #[test]
    fn everybody_hears_what_each_rank_says() {
        for size in 1..=5 {
            let heard = together(size, |link| {
                let own = vec![link.rank() as u8; link.rank() * 3 % 7];
                gather_all(link, &own).expect("an exchange")
            });
            let said: Vec<Vec<u8>> = (0..size).map(|rank| vec![rank as u8; rank * 3 % 7]).collect();
            assert!(heard.iter().all(|heard| *heard == said), "{size}: {heard:?}");
        }
    }

    #[test]
    fn all_take_the_bytes_of_the_root() {
        for size in 1..=9 {
            for root in 0..size {
                let heard = together(size, |link| {
                    let mut bytes = [link.rank() as u8; 5];
                    broadcast(link, root, &mut bytes).expect("an exchange");
                    bytes
                });
                assert!(heard.iter().all(|bytes| *bytes == [root as u8; 5]), "{size} {root}: {heard:?}");
            }
        }
    }
}
