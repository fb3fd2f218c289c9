//! Signs of life over connections, where there is no MPI that carries them: every rank sends rank 0 one a second, and rank 0 sends one to
//! every rank. A rank that has ended closes its connection; one that is stopped, or whose host or network is gone, is silent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{OWN_PAUSE, SIGN_INTERVAL, SILENCE};
use crate::error::{Error, Result};

/// A sign of life, the last one, and the end of all, behind which the exit code stands.
const ALIVE: u8 = 1;
const BYE: u8 = 2;
const END: u8 = 3;
/// How long the goodbye of others is waited for.
const GOODBYE: Duration = Duration::from_secs(20);

/// A connection to another rank.
struct Peer {
    rank: usize,
    stream: TcpStream,
    heard: Instant,
    has_ended: bool,
    /// The first byte of what comes in two.
    begun: bool,
}

/// The signs of life of a rank.
pub struct Signs {
    peers: Vec<Peer>,
    sent: Instant,
    looked: Instant,
    silence: Duration,
}

impl Signs {
    /// Over these connections.
    pub fn begin(connections: Vec<(usize, TcpStream)>) -> Result<Signs> {
        let now = Instant::now();
        let peer = |(rank, stream): (usize, TcpStream)| {
            let of = |error| Error::Machine(format!("the connection to rank {rank} fails: {error}"));
            stream.set_nonblocking(true).map_err(of)?;
            stream.set_nodelay(true).map_err(of)?;
            Ok(Peer { rank, stream, heard: now, has_ended: false, begun: false })
        };
        let peers: Result<Vec<Peer>> = connections.into_iter().map(peer).collect();
        Ok(Signs { peers: peers?, sent: now, looked: now, silence: SILENCE })
    }

    /// The ranks at the other ends.
    #[cfg(test)]
    pub fn peers(&self) -> Vec<usize> {
        self.peers.iter().map(|peer| peer.rank).collect()
    }

    /// Sends and receives what is due. An error names a rank that has ended or is silent; a number is the exit code that another rank
    /// ends all with.
    pub fn look(&mut self) -> Result<Option<u8>> {
        let now = Instant::now();
        if now.duration_since(self.looked) < SIGN_INTERVAL / 20 {
            return Ok(None);
        }
        let paused = now.duration_since(self.looked) > OWN_PAUSE;
        self.looked = now;
        let sends = now.duration_since(self.sent) >= SIGN_INTERVAL;
        if sends {
            self.sent = now;
        }
        for peer in &mut self.peers {
            if let Some(code) = peer.receive(now)? {
                return Ok(Some(code));
            }
            if sends && !peer.has_ended {
                peer.send(&[ALIVE]);
            }
            if paused {
                peer.heard = now;
            }
            if !peer.has_ended && now.duration_since(peer.heard) > self.silence {
                return Err(Error::Lost {
                    rank: peer.rank,
                    what: format!(
                        "has given no sign of life for {} seconds: it was stopped, or its machine or the network hangs",
                        self.silence.as_secs()
                    ),
                });
            }
        }
        Ok(None)
    }

    /// Tells the others to end with this code; rank 0 tells all whom the sender cannot reach.
    pub fn end_all(&mut self, code: u8) {
        for peer in &mut self.peers {
            // A byte that cannot be sent is of a rank that is full of them: it has ended or hangs.
            peer.send(&[END, code]);
            let _ = peer.stream.flush();
        }
    }

    /// Says goodbye, and waits until the others have. A number: see [`Signs::look`].
    pub fn say_goodbye(&mut self) -> Result<Option<u8>> {
        let is_first = self.peers.iter().any(|peer| peer.rank != 0);
        if !is_first {
            self.peers.iter_mut().for_each(|peer| peer.send(&[BYE]));
        }
        let end = Instant::now() + GOODBYE;
        // Rank 0 answers when all have said it, so nobody goes before the last one.
        while self.peers.iter().any(|peer| !peer.has_ended) && Instant::now() < end {
            if let Some(code) = self.look()? {
                return Ok(Some(code));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if is_first {
            self.peers.iter_mut().for_each(|peer| peer.send(&[BYE]));
        }
        Ok(None)
    }
}

impl Peer {
    fn receive(&mut self, now: Instant) -> Result<Option<u8>> {
        let mut bytes = [0; 64];
        while !self.has_ended {
            let count = match self.stream.read(&mut bytes) {
                Ok(0) => return Err(self.gone()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(self.gone()),
            };
            self.heard = now;
            for &byte in &bytes[..count] {
                match byte {
                    code if self.begun => return Ok(Some(code)),
                    END => self.begun = true,
                    BYE => self.has_ended = true,
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn gone(&self) -> Error {
        let what = "has ended without a word: it was killed, ran out of memory, or its host is gone".to_string();
        Error::Lost { rank: self.rank, what }
    }

    /// What cannot be sent now is not waited for: reading says what is wrong.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The two ends of a connection between rank 0 and this rank.
    fn ends(rank: usize) -> [Signs; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let there = TcpStream::connect(listener.local_addr().expect("an address")).expect("a listener");
        let (here, _) = listener.accept().expect("a connection");
        [vec![(rank, here)], vec![(0, there)]].map(|peers| Signs::begin(peers).expect("connections"))
    }

    /// Looks until there is something to see.
    fn watched(signs: &mut Signs) -> Result<Option<u8>> {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            match signs.look() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                seen => return seen,
            }
        }
        Ok(None)
    }

    #[test]
    fn a_rank_that_has_ended_is_named_at_once() {
        let [mut first, other] = ends(7);
        assert_eq!(first.look(), Ok(None));
        drop(other);
        let before = Instant::now();
        let seen = watched(&mut first);
        assert!(matches!(&seen, Err(Error::Lost { rank: 7, what }) if what.contains("has ended")), "{seen:?}");
        assert!(before.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_rank_that_is_silent_is_named() {
        let [mut first, mut other] = ends(3);
        first.silence = Duration::from_secs(3);
        // As long as it gives signs, all is well.
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            assert_eq!((first.look(), other.look()), (Ok(None), Ok(None)));
            std::thread::sleep(Duration::from_millis(20));
        }
        let seen = watched(&mut first);
        assert!(matches!(&seen, Err(Error::Lost { rank: 3, what }) if what.contains("no sign of life")), "{seen:?}");
    }

    #[test]
    fn who_ends_all_tells_the_others_before_it_goes() {
        let [mut first, mut other] = ends(1);
        other.end_all(4);
        drop(other);
        assert_eq!(watched(&mut first), Ok(Some(4)));
    }

    #[test]
    fn who_says_goodbye_is_not_missed() {
        let [mut first, mut other] = ends(1);
        let (first, other) = std::thread::scope(|scope| {
            let first = scope.spawn(move || (first.say_goodbye(), first));
            let other = scope.spawn(move || (other.say_goodbye(), other));
            (first.join().expect("no panic"), other.join().expect("no panic"))
        });
        assert_eq!((first.0, other.0), (Ok(None), Ok(None)));
        let mut left = first.1;
        drop(other.1);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(left.look(), Ok(None));
    }
}
