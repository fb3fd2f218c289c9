//! How much memory a rank may take: the ranks of a host have it between them.

use vitreous_engine::Device;

use super::Ranks;
use crate::error::TrainError;

/// What a rank may take of the memory of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShare {
    /// Bytes; `None` where the system does not tell.
    pub available: Option<u64>,
    /// How many ranks have as much each.
    pub sharers: usize,
}

impl MemoryShare {
    /// Of a device, before any rank has taken what is asked about. All ranks call this.
    pub fn of(ranks: &Ranks, device: &Device) -> Result<MemoryShare, TrainError> {
        let available = device.available_memory()?;
        let Some(world) = ranks.world() else { return Ok(MemoryShare { available, sharers: 1 }) };
        // Each rank has looked before any goes on and takes some.
        let seen = ranks.gather(available)?;
        // Ranks have a GPU each.
        Ok(if device.is_gpu() {
            MemoryShare { available, sharers: 1 }
        } else {
            share(&seen, world.hosts(), ranks.rank())
        })
    }

    /// What needs memory, and that others on the host need as much: "training with train.batch=512 on each of 2 ranks of this host".
    pub fn purpose(&self, what: &str) -> String {
        match self.sharers {
            1 => what.to_string(),
            sharers => format!("{what} on each of {sharers} ranks of this host, which share its memory,"),
        }
    }
}

/// An equal part of the least that a rank of the same host has seen.
fn share(seen: &[Option<u64>], hosts: &[String], rank: usize) -> MemoryShare {
    let on_host: Vec<Option<u64>> =
        seen.iter().zip(hosts).filter(|(_, host)| **host == hosts[rank]).map(|(seen, _)| *seen).collect();
    let sharers = on_host.len();
    MemoryShare { available: on_host.into_iter().flatten().min().map(|bytes| bytes / sharers as u64), sharers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_a_host_have_its_memory_between_them() {
        let hosts = ["a", "a", "b", "a"].map(str::to_string);
        let seen = [Some(900), Some(1000), Some(500), Some(1100)];
        assert_eq!(share(&seen, &hosts, 1), MemoryShare { available: Some(300), sharers: 3 });
        assert_eq!(share(&seen, &hosts, 2), MemoryShare { available: Some(500), sharers: 1 });
        assert_eq!(share(&[None, None], &hosts[..2], 0), MemoryShare { available: None, sharers: 2 });
    }
}
