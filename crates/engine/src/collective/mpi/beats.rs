//! Signs of life. Every rank sends rank 0 one a second, and rank 0 sends one to every rank: a rank that is stopped, whose machine is
//! frozen, or whose network is gone is noticed by its silence.

use std::time::{Duration, Instant};

use super::abi::Handle;
use super::link::{BEAT, Mpi};
use crate::collective::{OWN_PAUSE, SIGN_INTERVAL, SILENCE};
use crate::error::{Error, Result};

/// The byte of a sign of life, and that of the last one.
const ALIVE: u8 = 1;
const BYE: u8 = 2;

/// What goes to and comes from one other rank.
struct Peer<H> {
    rank: usize,
    /// In boxes, because MPI writes there while they may move.
    incoming: Box<[u8; 1]>,
    outgoing: Box<[u8; 1]>,
    receiving: Option<H>,
    sending: Option<H>,
    heard: Instant,
    has_ended: bool,
}

/// The signs of life of a rank.
pub(super) struct Beats<H> {
    peers: Vec<Peer<H>>,
    sent: Instant,
    looked: Instant,
    /// Whether this rank has said goodbye: nobody receives what would come behind it.
    has_left: bool,
}

impl<H: Handle> Beats<H> {
    pub fn begin(mpi: &Mpi<H>) -> Result<Beats<H>> {
        let now = Instant::now();
        let others = if mpi.rank == 0 { 1..mpi.size } else { 0..1 };
        let mut peers: Vec<Peer<H>> = others
            .map(|rank| Peer {
                rank,
                incoming: Box::new([0]),
                outgoing: Box::new([ALIVE]),
                receiving: None,
                sending: None,
                heard: now,
                has_ended: false,
            })
            .collect();
        for peer in &mut peers {
            peer.receiving = Some(mpi.start_receive(peer.rank, &mut peer.incoming[..], BEAT)?);
        }
        Ok(Beats { peers, sent: now, looked: now, has_left: false })
    }

    /// Sends and receives what is due. An error names a rank that is silent.
    pub fn look(&mut self, mpi: &Mpi<H>) -> Result<()> {
        let now = Instant::now();
        // Often enough to see a sign in time, and rarely enough not to matter.
        if now.duration_since(self.looked) < SIGN_INTERVAL / 20 {
            return Ok(());
        }
        let paused = now.duration_since(self.looked) > OWN_PAUSE;
        self.looked = now;
        let sends = now.duration_since(self.sent) >= SIGN_INTERVAL;
        if sends {
            self.sent = now;
        }
        for peer in &mut self.peers {
            peer.receive(mpi, now)?;
            if sends && !self.has_left && !peer.has_ended {
                peer.send(mpi, ALIVE)?;
            }
            if paused {
                peer.heard = now;
            }
            if !peer.has_ended && now.duration_since(peer.heard) > SILENCE {
                return Err(Error::Lost {
                    rank: peer.rank,
                    what: format!(
                        "has given no sign of life for {} seconds: it was stopped, or its machine or the network hangs",
                        SILENCE.as_secs()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Says goodbye, and waits until the others have: all requests are complete then.
    pub fn end(&mut self, mpi: &Mpi<H>) -> Result<()> {
        // Rank 0 answers when all have said it, so nobody goes before the last one.
        if mpi.rank == 0 {
            self.hear_all(mpi)?;
            self.say_bye(mpi)
        } else {
            self.say_bye(mpi)?;
            self.hear_all(mpi)
        }
    }

    fn say_bye(&mut self, mpi: &Mpi<H>) -> Result<()> {
        self.has_left = true;
        for peer in &mut self.peers {
            peer.finish_sending(mpi)?;
            peer.send(mpi, BYE)?;
            peer.finish_sending(mpi)?;
        }
        Ok(())
    }

    fn hear_all(&mut self, mpi: &Mpi<H>) -> Result<()> {
        while self.peers.iter().any(|peer| !peer.has_ended) {
            self.look(mpi)?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl<H: Handle> Peer<H> {
    fn receive(&mut self, mpi: &Mpi<H>, now: Instant) -> Result<()> {
        while let Some(mut request) = self.receiving.take() {
            if !mpi.is_complete(&mut request)? {
                self.receiving = Some(request);
                break;
            }
            self.heard = now;
            if self.incoming[0] == BYE {
                self.has_ended = true;
                break;
            }
            self.receiving = Some(mpi.start_receive(self.rank, &mut self.incoming[..], BEAT)?);
        }
        Ok(())
    }

    /// Sends a sign, unless the one before is still on its way.
    fn send(&mut self, mpi: &Mpi<H>, sign: u8) -> Result<()> {
        if let Some(mut request) = self.sending.take()
            && !mpi.is_complete(&mut request)?
        {
            self.sending = Some(request);
            return Ok(());
        }
        self.outgoing[0] = sign;
        self.sending = Some(mpi.start_send(self.rank, &self.outgoing[..], BEAT)?);
        Ok(())
    }

    fn finish_sending(&mut self, mpi: &Mpi<H>) -> Result<()> {
        while let Some(mut request) = self.sending.take() {
            if !mpi.is_complete(&mut request)? {
                self.sending = Some(request);
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}
