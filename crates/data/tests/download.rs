//! Downloads from a server on this machine that cuts, corrupts, refuses and falls silent.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use vitreous_data::download::{
    Archive, DownloadError, DownloadOptions, KNOWN_NAMES, KnownDataset, Progress, RemoteFile, download,
};

/// What the server does with one request.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// All that was asked for.
    Whole,
    /// The head says all, but only so many bytes come.
    CutAfter(usize),
    /// As if no range had been asked for.
    IgnoreRange,
    /// As if no range had been asked for, and cut.
    IgnoreRangeAndCutAfter(usize),
    /// Another part than was asked for.
    OtherPart,
    /// Only this status.
    Status(u16),
    /// Nothing at all comes.
    Silent,
    /// So many bytes, then nothing.
    SilentAfter(usize),
}

/// A server of one file that takes its turns one after the other; the last one is taken for ever.
struct Server {
    address: String,
    /// Each request's range, as it was asked for.
    ranges: Arc<Mutex<Vec<Option<usize>>>>,
}

impl Server {
    fn new(content: Vec<u8>, turns: Vec<Turn>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut number) = (ranges.clone(), 0);
        std::thread::spawn(move || {
            // Connections that say nothing more must stay open.
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(range) = asked_range(&stream) else { continue };
                seen.lock().expect("ranges").push(range);
                let turn = turns[number.min(turns.len() - 1)];
                number += 1;
                // The client may be gone.
                let _ = answer(&mut stream, turn, &content, range.unwrap_or(0), range.is_some());
                if matches!(turn, Turn::Silent | Turn::SilentAfter(_)) {
                    open.push(stream);
                }
            }
        });
        Server { address, ranges }
    }

    fn ranges(&self) -> Vec<Option<usize>> {
        self.ranges.lock().expect("ranges").clone()
    }
}

/// Reads a request's head: the start of the range that it asks for. None if there is no request.
fn asked_range(stream: &TcpStream) -> Option<Option<usize>> {
    let mut range = None;
    let mut lines = BufReader::new(stream).lines();
    lines.next()?.ok()?;
    for line in lines {
        let line = line.ok()?.to_ascii_lowercase();
        if line.is_empty() {
            return Some(range);
        }
        if let Some(start) = line.strip_prefix("range: bytes=") {
            range = start.trim_end_matches('-').parse().ok();
        }
    }
    None
}

fn answer(stream: &mut TcpStream, turn: Turn, content: &[u8], start: usize, ranged: bool) -> std::io::Result<()> {
    let (start, ranged) = match turn {
        Turn::IgnoreRange | Turn::IgnoreRangeAndCutAfter(_) => (0, false),
        Turn::OtherPart => (start / 2, ranged),
        _ => (start, ranged),
    };
    if let Turn::Status(status) = turn {
        return write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n");
    }
    if matches!(turn, Turn::Silent) {
        return Ok(());
    }
    let total = content.len();
    if ranged && start >= total {
        return write!(
            stream,
            "HTTP/1.1 416 No\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let part = &content[start..];
    let (status, range) = match ranged {
        true => ("206 Partial Content", format!("Content-Range: bytes {start}-{}/{total}\r\n", total - 1)),
        false => ("200 OK", String::new()),
    };
    write!(stream, "HTTP/1.1 {status}\r\n{range}Content-Length: {}\r\nConnection: close\r\n\r\n", part.len())?;
    let count = match turn {
        Turn::CutAfter(count) | Turn::IgnoreRangeAndCutAfter(count) | Turn::SilentAfter(count) => count.min(part.len()),
        _ => part.len(),
    };
    stream.write_all(&part[..count])
}

fn sum(content: &[u8]) -> String {
    Md5::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// More than one buffer of the client, and without a period.
fn content() -> Vec<u8> {
    (0..200_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn known(content: &[u8], archive: Option<Archive>) -> KnownDataset {
    let address = "http://official.invalid/folder/file.gz".to_string();
    KnownDataset {
        name: "test".to_string(),
        files: vec![RemoteFile { address, md5: sum(content), archive }],
        classes: vec![],
    }
}

fn options(server: &Server) -> DownloadOptions {
    DownloadOptions {
        mirror: Some(server.address.clone()),
        attempts: 3,
        wait: Duration::from_millis(1),
        patience: Duration::from_millis(300),
    }
}

/// Downloads from a server that takes these turns; the result, and what was told.
fn run(turns: Vec<Turn>, to: &Path) -> (Result<(), DownloadError>, Vec<Progress>, Vec<Option<usize>>) {
    let server = Server::new(content(), turns);
    let mut told = Vec::new();
    let result = download(&known(&content(), None), to, &options(&server), &mut |progress| {
        if !matches!(progress, Progress::Received(_)) {
            told.push(progress);
        }
    });
    (result, told, server.ranges())
}

fn is_complete(to: &Path) {
    assert!(std::fs::read(to.join("file.gz")).expect("the file") == content(), "the bytes differ");
    assert!(!to.join("file.gz.partial").exists());
}

#[test]
fn a_file_comes_whole_and_is_not_downloaded_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("deep/er");
    let (result, told, ranges) = run(vec![Turn::Whole], &to);
    result.expect("a download");
    is_complete(&to);
    assert_eq!(ranges, [None]);
    assert_eq!(told.last(), Some(&Progress::Finished(to.join("file.gz"))));
    let (result, told, ranges) = run(vec![Turn::Status(500)], &to);
    result.expect("nothing to do");
    assert_eq!((told, ranges.len()), (vec![Progress::AlreadyThere(to.join("file.gz"))], 0));
    // Another file of that name is not touched.
    std::fs::write(to.join("file.gz"), "mine").expect("a file");
    let error = run(vec![Turn::Whole], &to).0.expect_err("another file").to_string();
    assert!(error.contains("a file of this name is there"), "{error}");
    assert_eq!(std::fs::read(to.join("file.gz")).expect("the file"), b"mine");
}

#[test]
fn a_cut_is_resumed_as_often_as_it_gets_further() {
    let folder = tempfile::tempdir().expect("a folder");
    let turns = vec![
        Turn::CutAfter(30_000),
        Turn::CutAfter(30_000),
        Turn::CutAfter(30_000),
        Turn::CutAfter(30_000),
        Turn::Whole,
    ];
    let (result, told, ranges) = run(turns, folder.path());
    result.expect("a download");
    is_complete(folder.path());
    assert_eq!(ranges, [None, Some(30_000), Some(60_000), Some(90_000), Some(120_000)]);
    let again = told.iter().filter(|progress| matches!(progress, Progress::Again { .. })).count();
    assert_eq!(again, 4);
    let begun = |have| Progress::Begun { file: "file.gz".to_string(), have, total: Some(200_000) };
    assert!(told.contains(&begun(0)) && told.contains(&begun(120_000)), "{told:?}");
}

#[test]
fn a_later_run_goes_on_where_an_earlier_one_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = run(vec![Turn::CutAfter(50_000), Turn::Status(503)], folder.path()).0.expect_err("given up");
    assert!(matches!(&error, DownloadError::GivenUp { have: 50_000, attempts: 3, .. }), "{error}");
    assert!(error.to_string().contains("503") && error.to_string().contains("50000 bytes are kept"), "{error}");
    assert!(!folder.path().join("file.gz").exists());
    let (result, _, ranges) = run(vec![Turn::Whole], folder.path());
    result.expect("a download");
    assert_eq!(ranges, [Some(50_000)]);
    is_complete(folder.path());
}

#[test]
fn a_whole_partial_file_only_gets_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file.gz.partial"), content()).expect("a file");
    run(vec![Turn::Whole], folder.path()).0.expect("a download");
    is_complete(folder.path());
    // One that is too long starts over.
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file.gz.partial"), vec![1; 300_000]).expect("a file");
    let (result, _, ranges) = run(vec![Turn::Whole], folder.path());
    result.expect("a download");
    assert_eq!(ranges, [Some(300_000), None]);
    is_complete(folder.path());
}

#[test]
fn a_server_that_ignores_ranges_starts_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let (result, _, ranges) = run(vec![Turn::CutAfter(70_000), Turn::IgnoreRange], folder.path());
    result.expect("a download");
    assert_eq!(ranges, [None, Some(70_000)]);
    is_complete(folder.path());
    // One that also cuts at the same place each time gets no further: it is given up.
    let folder = tempfile::tempdir().expect("a folder");
    let (result, _, ranges) = run(vec![Turn::IgnoreRangeAndCutAfter(70_000)], folder.path());
    assert!(matches!(result, Err(DownloadError::GivenUp { .. })));
    assert_eq!(ranges.len(), 3);
    let folder = tempfile::tempdir().expect("a folder");
    run(vec![Turn::CutAfter(70_000), Turn::OtherPart, Turn::Whole], folder.path()).0.expect("a download");
    is_complete(folder.path());
}

#[test]
fn a_wrong_sum_is_refused_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut corrupted = content();
    corrupted[100_000] ^= 1;
    let server = Server::new(corrupted.clone(), vec![Turn::Whole]);
    let error =
        download(&known(&content(), None), folder.path(), &options(&server), &mut |_| {}).expect_err("corrupted");
    let text = error.to_string();
    assert!(text.contains(&sum(&content())) && text.contains(&sum(&corrupted)) && text.contains("removed"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn refusals_end_at_once_and_failures_are_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (result, _, ranges) = run(vec![Turn::Status(404)], folder.path());
    let error = result.expect_err("not found");
    assert!(matches!(error, DownloadError::Refused { status: 404, .. }), "{error}");
    assert!(error.to_string().contains("/file.gz: the server answered 404"), "{error}");
    assert_eq!(ranges.len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let (result, told, ranges) = run(vec![Turn::Status(500), Turn::Status(429), Turn::Whole], folder.path());
    result.expect("a download");
    assert_eq!(ranges.len(), 3);
    assert!(matches!(&told[0], Progress::Again { reason, .. } if reason.contains("500")), "{told:?}");
    is_complete(folder.path());
}

#[test]
fn silence_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let (result, _, ranges) = run(vec![Turn::Silent, Turn::SilentAfter(40_000), Turn::Whole], folder.path());
    result.expect("a download");
    assert_eq!(ranges, [None, None, Some(40_000)]);
    is_complete(folder.path());
    // Nobody listens at all.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server =
        Server { address: format!("http://{}", listener.local_addr().expect("an address")), ranges: Arc::default() };
    drop(listener);
    let folder = tempfile::tempdir().expect("a folder");
    let error = download(&known(&content(), None), folder.path(), &options(&server), &mut |_| {}).expect_err("nobody");
    assert!(matches!(error, DownloadError::GivenUp { have: 0, .. }), "{error}");
}

/// The names of what a folder holds.
fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_failed_download_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("data/set");
    // Refused, nobody answers, not the right file.
    let mut corrupted = content();
    corrupted[7] ^= 1;
    for (content, turns) in [
        (content(), Turn::Status(404)),
        (content(), Turn::Status(503)),
        (content(), Turn::Silent),
        (corrupted, Turn::Whole),
    ] {
        let server = Server::new(content, vec![turns]);
        let known = known(&self::content(), None);
        download(&known, &to, &options(&server), &mut |_| {}).expect_err("no download");
        assert_eq!(entries(folder.path()), [""; 0], "{turns:?}");
    }
    // Folders that were there before stay, and so do those of others.
    std::fs::create_dir_all(&to).expect("folders");
    run(vec![Turn::Status(404)], &to).0.expect_err("no download");
    assert_eq!(entries(&folder.path().join("data")), ["set"]);
    // What can be resumed stays, and nothing else.
    run(vec![Turn::CutAfter(1000), Turn::Status(503)], &to).0.expect_err("no download");
    assert_eq!(entries(&to), ["file.gz.partial"]);
}

/// A disk without room: what was written is removed, so that there is room again.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("file.gz.partial")).expect("a link");
    let error = run(vec![Turn::Whole], folder.path()).0.expect_err("no room").to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[test]
fn half_of_a_data_set_never_has_the_names_of_a_whole_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let remote = |name: &str| RemoteFile {
        address: format!("http://official.invalid/{name}"),
        md5: sum(&content()),
        archive: None,
    };
    let known = KnownDataset {
        name: "test".to_string(),
        files: vec![remote("a.gz"), remote("b.gz")],
        classes: vec!["cat".to_string()],
    };
    let server = Server::new(content(), vec![Turn::Whole, Turn::Status(404)]);
    download(&known, folder.path(), &options(&server), &mut |_| {}).expect_err("the second is not found");
    assert_eq!(entries(folder.path()), ["a.gz.partial"]);
    let server = Server::new(content(), vec![Turn::Whole]);
    download(&known, folder.path(), &options(&server), &mut |_| {}).expect("a download");
    assert_eq!(entries(folder.path()), ["a.gz", "b.gz", "classes.txt"]);
    assert_eq!(server.ranges(), [Some(200_000), None], "the first was there already");
}

#[test]
fn two_downloads_of_one_file_do_not_mix() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(folder.path().join("file.gz.partial")).expect("a file");
    file.lock().expect("a lock");
    let (result, _, ranges) = run(vec![Turn::Whole], folder.path());
    assert!(matches!(result, Err(DownloadError::Busy(_))));
    assert!(ranges.is_empty());
}

/// A `.tar.gz` of these files.
fn archive_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        // As it is: the usual way refuses what leads outside.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, content.as_bytes()).expect("a file in an archive");
    }
    tar.into_inner().and_then(GzEncoder::finish).expect("an archive")
}

fn unpacked(content: &[u8], to: &Path) -> (Result<(), DownloadError>, usize) {
    let archive = Archive { folder: "set".to_string(), files: vec!["a.bin".to_string(), "b.txt".to_string()] };
    let server = Server::new(content.to_vec(), vec![Turn::Whole]);
    let result = download(&known(content, Some(archive)), to, &options(&server), &mut |_| {});
    (result, server.ranges().len())
}

#[test]
fn archives_are_unpacked_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path();
    // What an earlier run left when it was killed.
    std::fs::create_dir_all(to.join(".set.partial/set/old")).expect("folders");
    let content = archive_of(&[("set/a.bin", "A"), ("set/b.txt", "B"), ("set/deep/c", "C")]);
    assert!(matches!(unpacked(&content, to), (Ok(()), 1)));
    assert_eq!(std::fs::read_to_string(to.join("set/deep/c")).expect("a file"), "C");
    let left: Vec<_> = std::fs::read_dir(to).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["set"]);
    assert!(matches!(unpacked(&content, to), (Ok(()), 0)));
    std::fs::remove_file(to.join("set/b.txt")).expect("removed");
    let error = unpacked(&content, to).0.expect_err("not whole").to_string();
    assert!(error.contains("lacks b.txt"), "{error}");
}

#[test]
fn archives_cannot_write_elsewhere() {
    for name in ["../outside", "/tmp/vitreous-outside", "set/../../outside"] {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("to");
        let content = archive_of(&[("set/a.bin", "A"), (name, "out"), ("set/b.txt", "B")]);
        let error = unpacked(&content, &to).0.expect_err("leads out").to_string();
        assert!(error.contains("leads out of the folder"), "{error}");
        assert!(!folder.path().join("outside").exists() && !to.join("set").exists());
        assert_eq!(entries(folder.path()), [""; 0]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let content = archive_of(&[("set/a.bin", "A"), ("set/b.txt", "B")]);
    let error = unpacked(&content[..content.len() / 2], folder.path()).0.expect_err("cut").to_string();
    assert!(error.contains("cannot be unpacked"), "{error}");
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[test]
fn every_known_set_has_sums_and_addresses() {
    for name in KNOWN_NAMES {
        let known = KnownDataset::named(name).expect(name);
        assert!(!known.files.is_empty());
        for remote in known.files {
            assert!(remote.md5.len() == 32 && remote.md5.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert!(remote.address.starts_with("http") && remote.file_name().ends_with(".gz"), "{}", remote.address);
        }
    }
    assert!(KnownDataset::named("imagenet").is_none());
}
