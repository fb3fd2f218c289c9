//! Messages of ranks that have no MPI: through the memory of their GPUs, by NCCL.

use std::sync::Arc;

use super::communicator::Communicator;
use super::library::{Id, version};
use crate::collective::Collective;
use crate::collective::hello::{self, Hello};
use crate::collective::launch::host_name;
use crate::collective::signs::Signs;
use crate::cuda::device::Device;
use crate::cuda::memory::{DeviceBuffer, HostBuffer};
use crate::cuda::stream::{Event, Stream, while_nothing_is_recorded};
use crate::error::{Error, Result};

/// The most bytes of a message that travel at a time.
const MOST_BYTES: usize = 16 << 20;
/// Parts of the memory begin at multiples of this.
const ALIGNMENT: usize = 256;

/// This process among the others.
struct Link {
    rank: usize,
    size: usize,
    version: String,
    sending: Staging,
    receiving: Staging,
    done: Event,
    signs: Option<Signs>,
    stream: Stream,
    communicator: Communicator,
    device: Arc<Device>,
}

/// Memory of the host and of the device, of the same size: messages go through both.
struct Staging {
    host: HostBuffer,
    device: DeviceBuffer,
}

/// A part of a message, and where it lies in the memory.
struct Part<'m> {
    peer: usize,
    bytes: &'m [u8],
    byte: usize,
}

impl Staging {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Staging> {
        Ok(Staging { host: HostBuffer::zeroed(device, bytes)?, device: DeviceBuffer::new(device, bytes)? })
    }

    /// At least so large. Nothing may use it now.
    fn grow(&mut self, device: &Arc<Device>, bytes: usize) -> Result<()> {
        if self.device.bytes() < bytes {
            *self = Staging::new(device, bytes.next_power_of_two())?;
        }
        Ok(())
    }
}

/// Finds the others at an address, and begins with NCCL. To be called once, by the thread that makes all further calls.
pub(crate) fn open(
    (rank, size): (usize, usize),
    (address, port): (&str, u16),
    device: &Arc<Device>,
) -> Result<Box<dyn Collective>> {
    // Before others wait for a process that cannot take part.
    version().map_err(|why| {
        Error::Machine(format!(
            "this process was started with others by RANK and WORLD_SIZE, and their GPUs find each other with NCCL: {why}; install it \
             (`pip install nvidia-nccl-cu13` or -cu12, its lib folder in LD_LIBRARY_PATH), or start processes with `mpirun`"
        ))
    })?;
    let own = Hello::of(rank, size, host_name());
    let (id, mut signs) = match rank {
        0 => {
            let id = Communicator::new_id()?;
            let signs = hello::wait_at(port, &own, &id.0, hello::PATIENCE)?;
            (id, signs)
        }
        _ => {
            let (secret, signs) = hello::come_to(address, port, &own, hello::PATIENCE)?;
            let id = <[u8; Id::BYTES]>::try_from(&secret[..]);
            (Id(id.map_err(|_| Error::Machine("rank 0 has sent no id of NCCL's".to_string()))?), signs)
        }
    };
    let communicator = Communicator::begin(device, id, rank, size, &mut || look(&mut signs))?;
    Ok(Box::new(Link::new(device, communicator, (rank, size), Some(signs))?))
}

/// One rank, which can send bytes to itself alone: to try out the way that they take.
pub(crate) fn alone(device: &Arc<Device>) -> Result<Box<dyn Collective>> {
    let communicator = Communicator::begin(device, Communicator::new_id()?, 0, 1, &mut || Ok(()))?;
    Ok(Box::new(Link::new(device, communicator, (0, 1), None)?))
}

/// Looks after the others. Where one of them ends all, this process ends, too.
fn look(signs: &mut Signs) -> Result<()> {
    match signs.look()? {
        None => Ok(()),
        Some(code) => {
            // Those that only this one knows are told, too; whoever began it has said why.
            signs.end_all(code);
            end_process(i32::from(code))
        }
    }
}

/// Ends this process at once: what usually happens at the end would wait for a GPU that waits for others.
fn end_process(code: i32) -> ! {
    unsafe extern "C" {
        fn _exit(code: std::ffi::c_int) -> !;
    }
    // SAFETY: the C library's function, which never returns.
    unsafe { _exit(code) }
}

impl Link {
    fn new(
        device: &Arc<Device>,
        communicator: Communicator,
        (rank, size): (usize, usize),
        signs: Option<Signs>,
    ) -> Result<Link> {
        device.bind()?;
        Ok(Link {
            rank,
            size,
            version: version().map_err(Error::Machine)?,
            sending: Staging::new(device, ALIGNMENT)?,
            receiving: Staging::new(device, ALIGNMENT)?,
            done: Event::new()?,
            signs,
            stream: Stream::new()?,
            communicator,
            device: Arc::clone(device),
        })
    }

    /// Sends some parts and receives others. What was received is in the memory of the host then.
    fn send_parts(
        &mut self,
        sends: &[Part],
        receives: &[(usize, std::ops::Range<usize>)],
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        for part in sends {
            self.sending.host.bytes_mut()[part.byte..part.byte + part.bytes.len()].copy_from_slice(part.bytes);
        }
        let Link { sending, receiving, stream, communicator, done, signs, .. } = self;
        {
            // NCCL may take memory for a connection that is new.
            let _together = while_nothing_is_recorded();
            for part in sends {
                let to = sending.device.start() + part.byte as u64;
                // SAFETY: nothing writes there until the event below.
                unsafe { sending.host.send(part.byte, part.bytes.len(), to, stream)? };
            }
            communicator.group(|| {
                for part in sends {
                    let from = sending.device.start() + part.byte as u64;
                    // SAFETY: as above.
                    unsafe { communicator.send(from, part.bytes.len(), part.peer, stream)? };
                }
                for (peer, place) in receives {
                    let to = receiving.device.start() + place.start as u64;
                    // SAFETY: the place lies inside the memory, which nothing else uses until the event below.
                    unsafe { communicator.receive(to, place.len(), *peer, stream)? };
                }
                Ok(())
            })?;
            for (_, place) in receives {
                let from = receiving.device.start() + place.start as u64;
                // SAFETY: nobody reads there until the event below.
                unsafe { receiving.host.fetch(place.start, place.len(), from, stream)? };
            }
            done.record(stream)?;
        }
        communicator.wait_for(done, &mut || {
            signs.as_mut().map_or(Ok(()), look)?;
            idle()
        })
    }
}

/// Where parts of these lengths lie, one behind the other, and where the last ends.
fn places(lengths: impl Iterator<Item = usize>) -> (Vec<std::ops::Range<usize>>, usize) {
    let mut byte = 0;
    let each = lengths.map(|length| {
        let place = byte..byte + length;
        byte = place.end.next_multiple_of(ALIGNMENT);
        place
    });
    (each.collect(), byte)
}

/// The part of a message that travels in a round; empty behind its end.
fn part_of(length: usize, round: usize) -> std::ops::Range<usize> {
    (round * MOST_BYTES).min(length)..((round + 1) * MOST_BYTES).min(length)
}

impl Collective for Link {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn name(&self) -> String {
        format!("NCCL {}", self.version)
    }

    fn host(&self) -> String {
        host_name()
    }

    fn exchange_while(
        &mut self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.device.bind()?;
        let lengths = sends.iter().map(|(_, bytes)| bytes.len()).chain(receives.iter().map(|(_, bytes)| bytes.len()));
        let rounds = lengths.max().unwrap_or(0).div_ceil(MOST_BYTES);
        // Both sides of a message know its length, and so in which rounds it travels.
        for round in 0..rounds {
            let going = sends.iter().map(|(to, bytes)| (*to, &bytes[part_of(bytes.len(), round)]));
            let going: Vec<(usize, &[u8])> = going.filter(|(_, bytes)| !bytes.is_empty()).collect();
            let coming: Vec<usize> =
                (0..receives.len()).filter(|&index| !part_of(receives[index].1.len(), round).is_empty()).collect();
            let (from, sent) = places(going.iter().map(|(_, bytes)| bytes.len()));
            let (to, received) = places(coming.iter().map(|&index| part_of(receives[index].1.len(), round).len()));
            self.sending.grow(&self.device, sent)?;
            self.receiving.grow(&self.device, received)?;
            let parts: Vec<Part> = going
                .iter()
                .zip(&from)
                .map(|(&(peer, bytes), place)| Part { peer, bytes, byte: place.start })
                .collect();
            let expected: Vec<(usize, std::ops::Range<usize>)> =
                coming.iter().zip(&to).map(|(&index, place)| (receives[index].0, place.clone())).collect();
            self.send_parts(&parts, &expected, idle)?;
            for (&index, place) in coming.iter().zip(to) {
                let part = part_of(receives[index].1.len(), round);
                receives[index].1[part].copy_from_slice(&self.receiving.host.bytes()[place]);
            }
        }
        Ok(())
    }

    fn watch(&mut self) -> Result<()> {
        self.signs.as_mut().map_or(Ok(()), look)
    }

    fn abort(&mut self, code: i32) {
        let Some(signs) = &mut self.signs else { return };
        signs.end_all(u8::try_from(code).unwrap_or(1));
        end_process(code)
    }

    fn finish(&mut self) -> Result<()> {
        let Some(signs) = &mut self.signs else { return Ok(()) };
        match signs.say_goodbye()? {
            None => Ok(()),
            Some(code) => end_process(i32::from(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_travel_in_parts() {
        assert_eq!(part_of(5, 0), 0..5);
        assert!(part_of(5, 1).is_empty() && part_of(0, 0).is_empty());
        let parts: Vec<usize> = (0..4).map(|round| part_of(2 * MOST_BYTES + 7, round).len()).collect();
        assert_eq!(parts, [MOST_BYTES, MOST_BYTES, 7, 0]);
        assert_eq!(places([3, 0, 300].into_iter()), (vec![0..3, 256..256, 256..556], 768));
    }
}
