//! Several processes that train one model together.
//!
//! An update of `K` batches is shared out: rank `r` of `N` takes the batches `r`, `r + N`, `r + 2N` .. of it. What a batch has, and its
//! randomness, follows from its place alone, so the ranks need not agree on it. After every `N` batches the gradients are added in the
//! order of the batches ([`Reducer`]): the sums, and with them everything that follows, are the bits of one process that accumulates
//! the same `K` batches.
//!
//! All ranks have the same parameters. Rank 0 writes and prints.

mod agreement;
mod memory;
mod parcel;
mod reducer;
mod shards;

pub(crate) use agreement::{Facts, agree, agree_on_parameters, build};
pub(crate) use memory::MemoryShare;
pub use parcel::Parcel;
pub use reducer::Reducer;
pub(crate) use shards::{Link, Moments};

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use vitreous_engine::collective::World;

use crate::error::TrainError;

/// How long a rank may compute, read or write without a sign that it comes further: no batch, no tested sample, nothing that it asks of the
/// others. The longest is a checkpoint that rank 0 writes.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(3600);

/// The processes that train together; the default is one alone.
#[derive(Clone, Default)]
pub struct Ranks {
    world: Option<Arc<World>>,
}

impl Ranks {
    /// Those of a world.
    pub fn of(world: Arc<World>) -> Ranks {
        Ranks { world: Some(world).filter(|world| world.size() > 1) }
    }

    /// Those of a world, also if that has one process alone: to try out what several do.
    #[doc(hidden)]
    pub fn of_any(world: Arc<World>) -> Ranks {
        Ranks { world: Some(world) }
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.world.as_ref().map_or(0, |world| world.rank())
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.world.as_ref().map_or(1, |world| world.size())
    }

    /// Whether this is the process that writes and prints.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// The others; `None` for a process alone.
    pub fn world(&self) -> Option<&Arc<World>> {
        self.world.as_ref()
    }

    /// Whether a batch of an epoch is this rank's, where updates have so many batches.
    pub fn takes(&self, index: usize, accumulate: usize) -> bool {
        index % accumulate % self.size() == self.rank()
    }

    /// How many batches of an update are this rank's.
    pub fn own_batches(&self, of_update: usize) -> usize {
        of_update.saturating_sub(self.rank()).div_ceil(self.size())
    }

    /// What every rank says, by rank.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<Vec<T>, TrainError> {
        let Some(world) = &self.world else { return Ok(vec![own]) };
        let said = world.gather(serde_json::to_vec(&own).expect("plain data"))?;
        said.iter().enumerate().map(|(rank, bytes)| self.read(rank, bytes)).collect()
    }

    /// What rank 0 says; the others say nothing.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<T, TrainError> {
        match (&self.world, own) {
            (None, Some(own)) => Ok(own),
            (None, None) => Err(TrainError::Data("the first rank has nothing to say".to_string())),
            (Some(world), own) => {
                let bytes = own.map(|own| serde_json::to_vec(&own).expect("plain data")).unwrap_or_default();
                self.read(0, &world.from_first(bytes)?)
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, rank: usize, bytes: &[u8]) -> Result<T, TrainError> {
        let other = |error: serde_json::Error| {
            TrainError::Ranks(format!(
                "{} is of another version of this program ({error}); install the same on all hosts",
                self.name_of(rank)
            ))
        };
        serde_json::from_slice(bytes).map_err(other)
    }

    /// Work in parts that is shared out: `work` gives the result of a part on the rank whose part it is, and `take` gets the results of all
    /// parts, in their order, on all ranks.
    pub fn share_out(
        &self,
        parts: usize,
        mut work: impl FnMut(usize) -> Result<Parcel, TrainError>,
        mut take: impl FnMut(usize, &Parcel) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        for first in (0..parts).step_by(self.size()) {
            let own = first + self.rank();
            let own = if own < parts { work(own)? } else { Parcel::default() };
            let all = match &self.world {
                None => vec![own],
                Some(world) => world.gather(own.to_bytes())?.iter().map(|bytes| Parcel::of_bytes(bytes)).collect(),
            };
            for (index, parcel) in (first..parts).zip(&all) {
                take(index, parcel)?;
            }
        }
        Ok(())
    }

    /// Numbers of rank 0, which all others take over.
    pub fn numbers_from_first(&self, numbers: &mut [f32]) -> Result<(), TrainError> {
        let Some(world) = &self.world else { return Ok(()) };
        // In parts, so that no second copy of all of them is needed.
        for part in numbers.chunks_mut(1 << 22) {
            let own = if world.rank() == 0 { bytemuck::cast_slice(part).to_vec() } else { Vec::new() };
            let bytes = world.from_first(own)?;
            bytemuck::cast_slice_mut(part).copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// From now on each rank must come further within an hour, or it ends all with its name.
    pub fn expect_progress(&self) {
        if let Some(world) = &self.world {
            world.expect_progress(LONGEST_STANDSTILL);
        }
    }

    /// This rank comes further.
    pub fn note_progress(&self) {
        if let Some(world) = &self.world {
            world.note_progress();
        }
    }

    /// Waits for all to come here.
    pub fn meet(&self) -> Result<(), TrainError> {
        match &self.world {
            Some(world) => Ok(world.barrier()?),
            None => Ok(()),
        }
    }

    /// A rank and its host, for people.
    pub fn name_of(&self, rank: usize) -> String {
        self.world.as_ref().map_or_else(|| "this process".to_string(), |world| world.name_of(rank))
    }

    /// How long others were waited for, since this was asked before.
    pub fn take_waited(&self) -> Duration {
        self.world.as_ref().map_or(Duration::ZERO, |world| world.take_waited())
    }

    /// The machines and their ranks, and what carries the messages: `4 on 2 hosts (a: 0-1, b: 2-3), Open MPI v4.1.4`.
    pub fn summary(&self) -> Option<String> {
        let world = self.world.as_ref()?;
        let (mut hosts, mut begin) = (Vec::new(), 0);
        for rank in 1..=world.size() {
            if world.hosts().get(rank) != world.hosts().get(begin) {
                let range = if rank - begin > 1 { format!("{begin}-{}", rank - 1) } else { begin.to_string() };
                hosts.push(format!("{}: {range}", world.hosts()[begin]));
                begin = rank;
            }
        }
        const SHOWN: usize = 8;
        let more = hosts.len().saturating_sub(SHOWN);
        let all = hosts.len();
        hosts.truncate(SHOWN);
        if more > 0 {
            hosts.push(format!("{more} more"));
        }
        let on = if all == 1 { "1 host".to_string() } else { format!("{all} hosts") };
        Some(format!("{} on {on} ({}), {}", world.size(), hosts.join(", "), world.name()))
    }
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "rank {} of {}", self.rank(), self.size())
    }
}
