//! Training runs: the list, one run, two beside each other, and events while a run goes on.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use vitreous_train::RunDirectory;

use crate::client::*;

const RECIPE: &str = include_str!("../../../train/recipes/small.toml");

/// A folder of runs, and a server that shows it.
struct Folder {
    path: PathBuf,
    server: Running,
    _root: tempfile::TempDir,
}

fn folder(runs: &[&str]) -> Folder {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("runs");
    fs::create_dir(&path).expect("created");
    for name in runs {
        drop(begin(&path.join(name)));
        add(&path.join(name), &line(10, 2.0));
    }
    // What a name must not lead to.
    drop(begin(&root.path().join("outside")));
    let mut options = options(vec![named("vit", fixture("tiny_vit"))]);
    options.runs = Some(path.clone());
    Folder { path, server: start_with(options, None), _root: root }
}

/// A run that is in progress as long as the result lives.
fn begin(path: &Path) -> RunDirectory {
    RunDirectory::create(path, RECIPE).expect("a run")
}

fn line(step: u64, loss: f64) -> String {
    let line = json!({"step": step, "epoch": step as f64 / 100.0, "loss": loss, "top1": 0.5, "lr": 1e-3, "grad_norm": 1.0,
        "images_per_second": 1000.0, "data_wait": 0.0, "peak_share": 0.5, "seconds": 1.0});
    format!("{line}\n")
}

fn add(run: &Path, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(run.join("metrics.jsonl"));
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
}

/// A stream of server-sent events.
struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    fn open(address: SocketAddr, path: &str) -> Events {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        stream.write_all(&request("GET", path, &[], b"")).expect("sent");
        Events { stream, text: String::new() }
    }

    /// The status of the answer, which has begun.
    fn status(&mut self) -> u16 {
        while !self.text.contains("\r\n\r\n") {
            assert!(self.more(), "the answer ended: {}", self.text);
        }
        self.text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer).unwrap_or(0);
        self.text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        count > 0
    }

    /// The next event of a name; others before it are passed over.
    fn next(&mut self, name: &str) -> Value {
        let begins = format!("event: {name}\n");
        loop {
            if let Some(at) = self.text.find(&begins)
                && let Some(end) = self.text[at..].find("\n\n")
            {
                let event = self.text[at..at + end].to_string();
                self.text.drain(..at + end);
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
                return serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {event}"));
            }
            assert!(self.more(), "the stream ended: {}", self.text);
        }
    }

    /// Reads to the end.
    fn rest(mut self) -> String {
        while self.more() {
            if self.text.ends_with("0\r\n\r\n") {
                break;
            }
        }
        self.text
    }
}

#[test]
fn the_list_says_how_far_runs_are_and_how_good() {
    let folder = folder(&["one", "two"]);
    let running = begin(&folder.path.join("three"));
    let list = get(folder.server.address, "/glass/runs").ok();
    let runs = list["runs"].as_array().expect("a list");
    // What is being trained comes first.
    assert_eq!(runs.iter().map(|run| &run["name"]).next(), Some(&json!("three")), "{list}");
    let of = |name: &str| runs.iter().find(|run| run["name"] == name).expect("the run");
    assert_eq!((&of("three")["state"], &of("one")["state"]), (&json!("running"), &json!("stopped")));
    assert_eq!(
        (&of("one")["task"], &of("one")["step"], &of("one")["epochs"]),
        (&json!("classification"), &json!(10), &json!(15))
    );
    assert_eq!(of("one")["model"], Value::Null);
    assert!(!list.to_string().contains(&folder.path.display().to_string()), "paths of the server are not told");
    drop(running);
    folder.server.finish().expect("a clean end");
}

#[test]
fn a_run_has_the_sections_of_its_report() {
    let folder = folder(&["one", "two"]);
    let run = get(folder.server.address, "/glass/runs/one").ok();
    let ids: Vec<&str> =
        run["sections"].as_array().expect("sections").iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, ["curves", "validation", "gradients", "recipe", "machine"]);
    assert!(run["sections"][0]["html"].as_str().expect("HTML").contains("aria-label=\"Loss"), "{run}");
    // Without an evaluation there is no picture.
    assert_eq!(get(folder.server.address, "/glass/runs/one/pictures").ok(), json!({"sections": []}));
    get(folder.server.address, "/glass/runs/none/pictures").refused(404);
    let both = get(folder.server.address, "/glass/runs/one/beside/two").ok();
    assert_eq!(both["sections"][0]["id"], "numbers");
    assert!(get(folder.server.address, "/glass/runs/one/beside/none").refused(404).contains("there is no run `none`"));
    folder.server.finish().expect("a clean end");
}

#[test]
fn lines_arrive_whole_as_they_are_written() {
    let folder = folder(&["one"]);
    let run = folder.path.join("two");
    let running = begin(&run);
    add(&run, &line(10, 2.0));
    let mut events = Events::open(folder.server.address, "/glass/runs/two/events");
    assert_eq!(events.status(), 200);
    let state = events.next("state");
    assert_eq!((&state["state"], &state["step"]), (&json!("running"), &json!(10)));
    let next = line(20, 1.5);
    add(&run, &next[..30]);
    std::thread::sleep(Duration::from_millis(500));
    add(&run, &next[30..]);
    add(&run, "damaged\n");
    add(&run, &line(30, 1.25));
    assert_eq!(events.next("metrics")["loss"], 1.5);
    assert_eq!(events.next("metrics")["loss"], 1.25);
    // It has not all of its steps.
    drop(running);
    assert_eq!(events.next("state")["state"], "stopped");
    folder.server.finish().expect("a clean end, though somebody listens");
}

#[test]
fn a_run_that_goes_back_to_a_checkpoint_is_told_anew() {
    let folder = folder(&["one"]);
    let run = folder.path.join("one");
    let mut events = Events::open(folder.server.address, "/glass/runs/one/events");
    assert_eq!(events.next("state")["step"], 10);
    add(&run, &line(20, 1.5));
    assert_eq!(events.next("metrics")["step"], 20);
    fs::write(run.join("metrics.jsonl"), line(5, 3.0)).expect("written");
    assert_eq!(events.next("state")["step"], 5);
    add(&run, &line(15, 2.5));
    assert_eq!(events.next("metrics")["step"], 15);
    folder.server.finish().expect("a clean end");
}

#[test]
fn a_run_that_is_removed_ends_its_stream() {
    let folder = folder(&["one", "two"]);
    let mut removed = Events::open(folder.server.address, "/glass/runs/one/events");
    let mut moved = Events::open(folder.server.address, "/glass/runs/two/events");
    removed.next("state");
    moved.next("state");
    fs::remove_dir_all(folder.path.join("one")).expect("removed");
    fs::rename(folder.path.join("two"), folder.path.join("three")).expect("moved");
    for mut events in [removed, moved] {
        // A directory that is half removed may be looked at, too.
        let is_removed =
            std::iter::repeat_with(|| events.next("state")["state"].clone()).take(4).any(|state| state == "removed");
        assert!(is_removed);
        assert!(events.rest().ends_with("0\r\n\r\n"), "the answer is over");
    }
    let why = get(folder.server.address, "/glass/runs/one/events").refused(404);
    assert!(why.contains("there is no run `one`"), "{why}");
    // One that is there again is told of again.
    drop(begin(&folder.path.join("one")));
    assert_eq!(Events::open(folder.server.address, "/glass/runs/one/events").next("state")["state"], "stopped");
    folder.server.finish().expect("a clean end");
}

#[test]
fn the_list_is_told_of_new_runs() {
    let folder = folder(&["one"]);
    let mut events = Events::open(folder.server.address, "/glass/events");
    assert_eq!(events.next("runs")["changes"], 0);
    // The first look only sees what is there.
    std::thread::sleep(Duration::from_millis(300));
    let running = begin(&folder.path.join("two"));
    assert_eq!(events.next("runs")["changes"], 1);
    drop(running);
    folder.server.finish().expect("a clean end");
}

#[test]
fn names_lead_nowhere_else() {
    let folder = folder(&["one"]);
    let outside = [
        "..",
        "%2e%2e",
        "..%2foutside",
        "..%2Foutside",
        "%2e%2e%2foutside",
        "one%2f..",
        "..%5coutside",
        "%00",
        "one%00",
    ];
    for name in outside {
        for end in ["", "/events", "/beside/one"] {
            let answer = get(folder.server.address, &format!("/glass/runs/{name}{end}"));
            assert!([400, 404].contains(&answer.status), "{name}{end}: {}", answer.text());
            assert!(!answer.text().contains("sections"), "{name}{end}");
        }
    }
    let absolute = folder.path.join("one").display().to_string().replace('/', "%2f");
    assert_eq!(get(folder.server.address, &format!("/glass/runs/{absolute}")).status, 400);
    folder.server.finish().expect("a clean end");
}

#[test]
fn listeners_are_bounded_and_free_their_places() {
    let folder = folder(&["one"]);
    let mut listening = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        let mut events = Events::open(folder.server.address, "/glass/runs/one/events");
        match events.status() {
            200 => listening.push(events),
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((listening.len(), refused), (256, 744));
    // All hear of a line, by one watcher.
    add(&folder.path.join("one"), &line(20, 1.5));
    for events in &mut listening {
        assert_eq!(events.next("metrics")["step"], 20);
    }
    drop(listening);
    add(&folder.path.join("one"), &line(30, 1.25));
    until("a place is free", || Events::open(folder.server.address, "/glass/runs/one/events").status() == 200);
    folder.server.finish().expect("a clean end");
}

#[test]
fn a_server_without_a_folder_says_so() {
    let server = start(vec![named("vit", fixture("tiny_vit"))]);
    assert_eq!(get(server.address, "/glass/runs").ok(), json!({"folder": false, "runs": []}));
    assert!(get(server.address, "/glass/runs/one").refused(404).contains("--runs DIR"));
    assert!(get(server.address, "/glass/events").refused(404).contains("--runs DIR"));
    server.finish().expect("a clean end");
}
