//! Whether the GPUs of all ranks can work together. All ranks decide alike, and none waits for one that does not come.

use std::sync::Arc;

use super::communicator::Communicator;
use super::library::{Id, version};
use crate::collective::World;
use crate::cuda::device::Device;
use crate::error::{Error, Result};

/// What came of it.
pub(super) enum Meeting {
    Begun(Communicator),
    /// Why not, the same on all ranks.
    Not(String),
}

/// What a rank says before a communicator is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rank {
    /// The version of its library, and which GPU it has.
    Able {
        version: String,
        gpu: String,
    },
    Unable(String),
}

impl Rank {
    fn to_line(&self) -> String {
        match self {
            Rank::Able { version, gpu } => format!("able {version} {gpu}"),
            Rank::Unable(why) => format!("unable {why}"),
        }
    }

    fn of_line(line: &str) -> Option<Rank> {
        match line.split_once(' ')? {
            ("able", rest) => {
                let (version, gpu) = rest.split_once(' ')?;
                Some(Rank::Able { version: version.to_string(), gpu: gpu.to_string() })
            }
            ("unable", why) => Some(Rank::Unable(why.to_string())),
            _ => None,
        }
    }
}

/// Brings the GPUs of all ranks together. All ranks call this.
pub(super) fn meet(world: &World, device: &Arc<Device>) -> Result<Meeting> {
    let own = match (version(), device.identity()) {
        (Ok(version), Ok(gpu)) => Rank::Able { version, gpu },
        (Err(why), _) => Rank::Unable(why),
        (_, Err(error)) => Rank::Unable(error.to_string()),
    };
    let said = lines(world, &own.to_line())?;
    let ranks: Option<Vec<Rank>> = said.iter().map(|line| Rank::of_line(line)).collect();
    let ranks =
        ranks.ok_or_else(|| Error::Machine("the ranks are of different versions of this program".to_string()))?;
    if let Err(why) = decide(&ranks, &|rank| world.name_of(rank)) {
        return Ok(Meeting::Not(why));
    }
    let own = match world.rank() {
        0 => Communicator::new_id().map(|id| id.0.to_vec()).unwrap_or_default(),
        _ => Vec::new(),
    };
    let Ok(id) = <[u8; Id::BYTES]>::try_from(&world.from_first(own)?[..]) else {
        return Ok(Meeting::Not(format!("{}: NCCL gives no id", world.name_of(0))));
    };
    // The thread that communicates looks after the others meanwhile.
    let begun = Communicator::begin(device, Id(id), world.rank(), world.size(), &mut || Ok(()));
    let failed = begun.as_ref().err().map(Error::to_string).unwrap_or_default();
    let failures = lines(world, &failed)?;
    match (failures.iter().position(|failure| !failure.is_empty()), begun) {
        (None, Ok(communicator)) => Ok(Meeting::Begun(communicator)),
        (Some(rank), _) => Ok(Meeting::Not(format!("{}: {}", world.name_of(rank), failures[rank]))),
        (None, Err(error)) => Err(error),
    }
}

/// A line of every rank.
fn lines(world: &World, own: &str) -> Result<Vec<String>> {
    let said = world.gather(own.as_bytes().to_vec())?;
    Ok(said.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect())
}

/// Whether all can work together, before any begins: NCCL itself hangs where some cannot.
fn decide(ranks: &[Rank], name_of: &dyn Fn(usize) -> String) -> Result<(), String> {
    let mut seen: Vec<(usize, &str, &str)> = Vec::new();
    for (rank, said) in ranks.iter().enumerate() {
        match said {
            Rank::Unable(why) => {
                let everywhere = ranks.iter().all(|other| other == said);
                return Err(if everywhere { why.clone() } else { format!("{}: {why}", name_of(rank)) });
            }
            Rank::Able { version, gpu } => {
                if let Some((first, other, _)) = seen.iter().find(|(_, other, _)| other != version) {
                    return Err(format!("{} has NCCL {version}, and {} {other}", name_of(rank), name_of(*first)));
                }
                if let Some((first, ..)) = seen.iter().find(|(_, _, other)| other == gpu) {
                    return Err(format!("{} and {} have one GPU between them", name_of(*first), name_of(rank)));
                }
                seen.push((rank, version, gpu));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able(version: &str, gpu: &str) -> Rank {
        Rank::Able { version: version.to_string(), gpu: gpu.to_string() }
    }

    fn decided(ranks: &[Rank]) -> Result<(), String> {
        decide(ranks, &|rank| format!("rank {rank} (host a)"))
    }

    #[test]
    fn gpus_work_together_only_if_all_can() {
        assert_eq!(decided(&[able("2.28.3", "a"), able("2.28.3", "b")]), Ok(()));
        let none = Rank::Unable("NCCL was not found".to_string());
        assert_eq!(decided(&[none.clone(), none.clone()]), Err("NCCL was not found".to_string()));
        let one = decided(&[able("2.28.3", "a"), none]);
        assert_eq!(one, Err("rank 1 (host a): NCCL was not found".to_string()));
        let shared = decided(&[able("2.28.3", "a"), able("2.28.3", "b"), able("2.28.3", "a")]);
        assert_eq!(shared, Err("rank 0 (host a) and rank 2 (host a) have one GPU between them".to_string()));
        let old = decided(&[able("2.28.3", "a"), able("2.27.3", "b")]);
        assert_eq!(old, Err("rank 1 (host a) has NCCL 2.27.3, and rank 0 (host a) 2.28.3".to_string()));
    }

    #[test]
    fn what_ranks_say_is_read_as_it_was_said() {
        for rank in [able("2.28.3", "GPU 1 of a"), Rank::Unable("no such thing".to_string())] {
            assert_eq!(Rank::of_line(&rank.to_line()), Some(rank));
        }
        assert_eq!(Rank::of_line("something"), None);
    }
}
