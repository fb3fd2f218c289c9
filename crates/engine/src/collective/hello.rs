//! How processes find each other that were given an address in place of MPI (`MASTER_ADDR` and `MASTER_PORT`).
//!
//! Rank 0 listens there. Every other rank connects, says which version, rank and number of ranks it is and on which host, and gets a few
//! bytes in return, which is all that NCCL needs: everything else goes through NCCL. The connections stay open as [`Signs`] of life.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::signs::Signs;
use crate::error::{Error, Result};

/// How long ranks wait for each other: containers may start minutes apart.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// How long one who has connected may take to say hello. Strangers look at open ports, too.
const HELLO: Duration = Duration::from_secs(10);
/// Between two attempts to connect, and the longest that one may take.
const PAUSE: Duration = Duration::from_millis(100);
const ATTEMPT: Duration = Duration::from_secs(5);
/// How many who have not said hello yet are listened to at the same time, besides the ranks.
const STRANGERS: usize = 64;
/// What every message begins with.
const MAGIC: [u8; 8] = *b"vitreous";
/// The most bytes of a message, so that nobody makes this process take memory.
const MOST: usize = 4096;
/// What rank 0 answers.
const WELCOME: u8 = 1;
const REFUSED: u8 = 0;

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of this program.
    pub version: String,
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// The machine that it runs on.
    pub host: String,
}

impl Hello {
    /// Of this program.
    pub fn of(rank: usize, size: usize, host: String) -> Hello {
        Hello { version: env!("CARGO_PKG_VERSION").to_string(), rank, size, host }
    }

    fn to_line(&self) -> String {
        format!("{} {} {} {}", self.version, self.rank, self.size, self.host)
    }

    fn of_line(line: &str) -> Option<Hello> {
        let mut words = line.splitn(4, ' ');
        let version = words.next()?.to_string();
        let (rank, size) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Hello { version, rank, size, host: words.next()?.to_string() })
    }

    /// Why this rank cannot take part in what rank 0 has begun.
    fn refusal(&self, first: &Hello) -> Option<String> {
        let Hello { version, rank, size, host } = self;
        let what = match self {
            _ if *version != first.version => {
                format!("is version {version} of this program, and rank 0 {}", first.version)
            }
            _ if *size != first.size => {
                format!("was started as one of {size} (WORLD_SIZE), and rank 0 as one of {}", first.size)
            }
            _ if *rank == 0 || *rank >= *size => format!("has a number that cannot be, of {size}"),
            _ => return None,
        };
        Some(format!("rank {rank} (host {host}) {what}: start all ranks with the same program and WORLD_SIZE"))
    }
}

fn machine(text: String) -> Error {
    Error::Machine(text)
}

fn send(stream: &mut TcpStream, tag: u8, bytes: &[u8]) -> std::io::Result<()> {
    let mut message = MAGIC.to_vec();
    message.push(tag);
    message.extend((bytes.len() as u32).to_le_bytes());
    message.extend(bytes);
    stream.write_all(&message)
}

/// A message; an error of another kind if what comes is none of ours.
fn receive(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 13];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[9], head[10], head[11], head[12]]) as usize;
    if head[..8] != MAGIC || length > MOST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok((head[8], bytes))
}

/// Rank 0: waits at a port until all others are there, and gives them `secret`. What comes back are the connections.
pub fn wait_at(port: u16, own: &Hello, secret: &[u8], patience: Duration) -> Result<Signs> {
    // All addresses, of both kinds where the system has them.
    let bound = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    let listener = bound.map_err(|error| {
        machine(format!(
            "rank 0 cannot listen at port {port} (MASTER_PORT): {error}; set MASTER_PORT to a free port, on all ranks"
        ))
    })?;
    wait_on(listener, own, secret, patience)
}

/// The same at a listener.
pub fn wait_on(listener: TcpListener, own: &Hello, secret: &[u8], patience: Duration) -> Result<Signs> {
    let mut there: Vec<Option<(String, TcpStream)>> = (0..own.size).map(|_| None).collect();
    let waited = wait_for_all(listener, own, patience, &mut there);
    let mut peers = Vec::new();
    for (rank, found) in there.into_iter().enumerate() {
        let Some((host, mut stream)) = found else { continue };
        let _ = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(HELLO)));
        let answered = match &waited {
            Ok(()) => send(&mut stream, WELCOME, secret),
            Err(error) => send(&mut stream, REFUSED, error.to_string().as_bytes()),
        };
        if let (Ok(()), Err(error)) = (&waited, answered) {
            return Err(Error::Lost {
                rank,
                what: format!("(host {host}) has ended before all ranks were there: {error}"),
            });
        }
        peers.push((rank, stream));
    }
    waited?;
    Signs::begin(peers)
}

fn wait_for_all(
    listener: TcpListener,
    own: &Hello,
    patience: Duration,
    there: &mut [Option<(String, TcpStream)>],
) -> Result<()> {
    let of = |error: std::io::Error| machine(format!("rank 0 cannot wait for the others: {error}"));
    listener.set_nonblocking(true).map_err(of)?;
    let (heard, hellos) = sync_channel(own.size + STRANGERS);
    let mut listened_to: Vec<thread::JoinHandle<()>> = Vec::new();
    let (end, mut looked) = (Instant::now() + patience, Instant::now());
    while there.iter().skip(1).any(Option::is_none) {
        if looked.elapsed() > PAUSE {
            looked = Instant::now();
            look_after(there)?;
        }
        listened_to.retain(|thread| !thread.is_finished());
        match listener.accept() {
            Ok((stream, _)) if listened_to.len() < own.size + STRANGERS => {
                listened_to.extend(listen(stream, heard.clone()))
            }
            // Too many at once: whoever belongs to us tries again.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(of(error)),
        }
        take_hellos(&hellos, own, there)?;
        if Instant::now() > end {
            let missing: Vec<String> =
                (1..own.size).filter(|&rank| there[rank].is_none()).map(|rank| rank.to_string()).collect();
            const SHOWN: usize = 8;
            let more = if missing.len() > SHOWN { ", .." } else { "" };
            return Err(machine(format!(
                "of {} ranks, {} did not come to rank 0 (host {}) within {} seconds: {}{more}; were they started, with the same MASTER_ADDR \
                 and MASTER_PORT, and can their hosts reach it?",
                own.size,
                missing.len(),
                own.host,
                patience.as_secs(),
                missing[..missing.len().min(SHOWN)].join(", ")
            )));
        }
    }
    Ok(())
}

/// Whether those who came are still there: an error names one who is not.
fn look_after(there: &[Option<(String, TcpStream)>]) -> Result<()> {
    for (rank, (host, stream)) in there.iter().enumerate().filter_map(|(rank, found)| Some((rank, found.as_ref()?))) {
        let ended = match stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        if ended {
            return Err(Error::Lost { rank, what: format!("(host {host}) has ended before all ranks were there") });
        }
    }
    Ok(())
}

/// Takes what was said since; each wait is short.
fn take_hellos(
    hellos: &Receiver<(Hello, TcpStream)>,
    own: &Hello,
    there: &mut [Option<(String, TcpStream)>],
) -> Result<()> {
    loop {
        let (hello, mut stream) = match hellos.recv_timeout(Duration::from_millis(5)) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if let Some(why) = hello.refusal(own) {
            // It says so itself, too.
            let _ = send(&mut stream, REFUSED, why.as_bytes());
            return Err(machine(why));
        }
        match &there[hello.rank] {
            Some((host, _)) => {
                let why =
                    format!("there is a rank {} already, on host {host}: each process needs its own RANK", hello.rank);
                let _ = send(&mut stream, REFUSED, why.as_bytes());
            }
            None if stream.set_nonblocking(true).is_ok() => there[hello.rank] = Some((hello.host, stream)),
            None => {}
        }
    }
}

/// Listens to one who has connected, in a thread of its own: a stranger may say nothing. Whoever says something else is left alone.
fn listen(mut stream: TcpStream, heard: SyncSender<(Hello, TcpStream)>) -> Option<thread::JoinHandle<()>> {
    let work = move || {
        let ready = stream.set_nonblocking(false).is_ok() && stream.set_read_timeout(Some(HELLO)).is_ok();
        let Some((_, bytes)) = ready.then(|| receive(&mut stream).ok()).flatten() else { return };
        if let Some(hello) = std::str::from_utf8(&bytes).ok().and_then(Hello::of_line) {
            let _ = heard.send((hello, stream));
        }
    };
    thread::Builder::new().name("hello".to_string()).spawn(work).ok()
}

/// Any other rank: connects to rank 0. What comes back is what that gives, and the connection.
pub fn come_to(address: &str, port: u16, own: &Hello, patience: Duration) -> Result<(Vec<u8>, Signs)> {
    let end = Instant::now() + patience;
    let mut stream = connect(address, port, end, patience)?;
    let what = |what: String| Error::Lost { rank: 0, what: format!("(MASTER_ADDR={address}, port {port}) {what}") };
    let gone = |error: std::io::Error| {
        match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            what(format!("was silent for {} seconds: do all ranks start?", patience.as_secs()))
        }
        ErrorKind::InvalidData => what(
            "is not this program: something else listens there, as torchrun itself does at its own port; set MASTER_PORT to a free port"
                .to_string(),
        ),
        _ => what(format!("has ended, or has sent this process away, before all ranks were there ({error})")),
    }
    };
    // Rank 0 gives up first, and says why.
    stream.set_read_timeout(Some(patience + HELLO)).map_err(gone)?;
    send(&mut stream, WELCOME, own.to_line().as_bytes()).map_err(gone)?;
    match receive(&mut stream).map_err(gone)? {
        (WELCOME, secret) => Ok((secret, Signs::begin(vec![(0, stream)])?)),
        (_, why) => Err(machine(String::from_utf8_lossy(&why).into_owned())),
    }
}

fn connect(address: &str, port: u16, end: Instant, patience: Duration) -> Result<TcpStream> {
    loop {
        let tried = (address, port).to_socket_addrs().and_then(|all| connect_to_any(all.collect()));
        match tried {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > end => {
                return Err(Error::Lost {
                    rank: 0,
                    what: format!(
                        "cannot be reached at {address}:{port} (MASTER_ADDR, MASTER_PORT) for {} seconds: {error}; was it started, and is \
                         that its host?",
                        patience.as_secs()
                    ),
                });
            }
            // It may not have begun to listen, or have no name in the network yet.
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn connect_to_any(all: Vec<SocketAddr>) -> std::io::Result<TcpStream> {
    let mut last = ErrorKind::AddrNotAvailable.into();
    for address in all {
        match TcpStream::connect_timeout(&address, ATTEMPT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn hello(rank: usize, size: usize) -> Hello {
        Hello::of(rank, size, format!("host {rank}"))
    }

    /// A listener of this machine, and its port.
    fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        (listener, port)
    }

    /// What rank 0 gets, and the others that say these hellos, while `strangers` connect, too.
    #[expect(clippy::type_complexity)]
    fn meet(
        size: usize,
        others: &[Hello],
        patience: Duration,
        strangers: impl FnOnce(u16),
    ) -> (Result<Signs>, Vec<Result<(Vec<u8>, Signs)>>) {
        let (listener, port) = listener();
        strangers(port);
        thread::scope(|scope| {
            let first = scope.spawn(move || wait_on(listener, &hello(0, size), b"the secret", patience));
            let come = |other: &Hello| {
                let other = other.clone();
                scope.spawn(move || come_to("127.0.0.1", port, &other, patience))
            };
            let others: Vec<_> = others.iter().map(come).collect();
            let others = others.into_iter().map(|other| other.join().expect("no panic")).collect();
            (first.join().expect("no panic"), others)
        })
    }

    #[test]
    fn ranks_find_each_other_and_hear_the_secret() {
        for size in [2, 3, 5] {
            let others: Vec<Hello> = (1..size).map(|rank| hello(rank, size)).collect();
            let (first, others) = meet(size, &others, SOON, |_| ());
            assert_eq!(first.expect("all came").peers(), (1..size).collect::<Vec<_>>());
            for other in others {
                let (secret, signs) = other.expect("rank 0 was there");
                assert_eq!((&secret[..], signs.peers()), (&b"the secret"[..], vec![0]));
            }
        }
    }

    #[test]
    fn another_version_or_number_of_ranks_is_refused_on_both_sides() {
        let old = Hello { version: "0.0.1".to_string(), ..hello(1, 2) };
        for (other, part) in
            [(old, "is version 0.0.1 of this program"), (hello(1, 3), "one of 3 (WORLD_SIZE), and rank 0 as one of 2")]
        {
            let (first, others) = meet(2, &[other], SOON, |_| ());
            for said in [first.map(drop), others.into_iter().next().expect("one").map(drop)] {
                let said = said.expect_err("refused").to_string();
                assert!(said.contains("rank 1 (host host 1)") && said.contains(part), "{said}");
            }
        }
    }

    #[test]
    fn two_with_one_number_are_told_apart() {
        let (listener, port) = listener();
        let second = thread::scope(|scope| {
            let first = scope.spawn(move || wait_on(listener, &hello(0, 3), b"", SOON));
            let came = scope.spawn(move || come_to("127.0.0.1", port, &hello(1, 3), SOON));
            thread::sleep(Duration::from_millis(300));
            let second = come_to("127.0.0.1", port, &hello(1, 3), SOON);
            come_to("127.0.0.1", port, &hello(2, 3), SOON).expect("rank 2 is new");
            assert!(first.join().expect("no panic").is_ok() && came.join().expect("no panic").is_ok());
            second
        });
        let said = second.map(drop).expect_err("refused").to_string();
        assert!(said.contains("there is a rank 1 already"), "{said}");
    }

    #[test]
    fn strangers_who_send_garbage_or_nothing_are_left_alone() {
        let mut silent = Vec::new();
        let (first, others) = meet(2, &[hello(1, 2)], SOON, |port| {
            for words in [
                &b""[..],
                b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                b"vitreous\x01\xff\xff\xff\xff",
                b"vitreous\x01\x03\0\0\0a b",
            ] {
                let mut stranger = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
                stranger.write_all(words).expect("sent");
                silent.push(stranger);
            }
        });
        assert!(first.is_ok() && others.iter().all(Result::is_ok));
    }

    #[test]
    fn a_rank_that_dies_before_all_are_there_is_named() {
        let (listener, port) = listener();
        let first = thread::spawn(move || wait_on(listener, &hello(0, 3), b"", SOON));
        let mut second = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
        send(&mut second, WELCOME, hello(2, 3).to_line().as_bytes()).expect("sent");
        thread::sleep(Duration::from_millis(500));
        drop(second);
        let said = first.join().expect("no panic").map(drop).expect_err("rank 2 is gone");
        assert!(matches!(&said, Error::Lost { rank: 2, what } if what.contains("(host host 2) has ended")), "{said}");
    }

    #[test]
    fn who_is_missing_is_named() {
        let (first, others) = meet(3, &[hello(1, 3)], Duration::from_secs(1), |_| ());
        for said in [first.map(drop), others.into_iter().next().expect("one").map(drop)] {
            let said = said.expect_err("rank 2 did not come").to_string();
            assert!(said.contains("of 3 ranks, 1 did not come to rank 0 (host host 0) within 1 seconds: 2;"), "{said}");
        }
    }

    #[test]
    fn an_address_where_nobody_or_something_else_is_says_so() {
        let (silent, port) = listener();
        drop(silent);
        let said = come_to("127.0.0.1", port, &hello(1, 2), Duration::from_millis(200)).map(drop).expect_err("nobody");
        assert!(
            matches!(&said, Error::Lost { rank: 0, what } if what.contains("cannot be reached at 127.0.0.1")),
            "{said}"
        );
        let (other, port) = listener();
        let answer = thread::spawn(move || {
            let (mut stream, _) = other.accept().expect("a connection");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent");
            // Until the other side has read it.
            let _ = stream.read(&mut [0; 1024]);
            thread::sleep(Duration::from_millis(200));
        });
        let said = come_to("127.0.0.1", port, &hello(1, 2), SOON).map(drop).expect_err("a web server").to_string();
        assert!(said.contains("something else listens there"), "{said}");
        answer.join().expect("no panic");
    }
}
