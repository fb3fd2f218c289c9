//! `vitreous serve` as a process: how it starts, what signals do, and how it ends. What it answers is tested in its crate.
#![cfg(all(unix, feature = "serve"))]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{fixtures, vitreous};
use serde_json::{Value, json};

/// A server that runs.
struct Server {
    child: Child,
    port: u16,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one on a free port, and waits until it serves.
    fn start(arguments: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
            .args(["serve", "--port", "0", "--device", "cpu", "--threads", "2"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let kept = lines.clone();
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).for_each(|line| kept.lock().expect("no panic").push(line));
        });
        let mut server = Server { child, port: 0, lines };
        let serving = server.line("serving on http://");
        let address = serving.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        server.port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        server
    }

    fn all_lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic").clone()
    }

    /// The first line that says this, waiting for it at most a minute.
    fn line(&self, says: &str) -> String {
        for _ in 0..1200 {
            if let Some(line) = self.all_lines().into_iter().find(|line| line.contains(says)) {
                return line;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("`{says}` is not in {:?}", self.all_lines());
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a limit");
        stream
    }

    /// The head and the body of an answer.
    fn get(&self, path: &str, header: &str) -> (String, String) {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n").expect("sent");
        let mut all = String::new();
        stream.read_to_string(&mut all).expect("an answer");
        let (head, body) = all.split_once("\r\n\r\n").expect("a head");
        (head.to_string(), body.to_string())
    }

    /// Waits for its end; gives its exit code.
    fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn llama() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/generate/llama");
    path.to_str().expect("UTF-8").to_string()
}

#[test]
fn signals_load_models_again_and_finish_what_is_under_way() {
    let server = Server::start(&[&format!("chat={}", llama()), "builtin:small"]);
    assert!(server.line("chat: ").contains("language model"));
    let models: Value = serde_json::from_str(&server.get("/v1/models", "").1).expect("JSON");
    let names: Vec<&str> =
        models["data"].as_array().expect("a list").iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(names, ["chat", "small"]);
    server.signal("-HUP");
    server.line("the models were loaded again");
    let body = json!({"model": "chat", "prompt": vec!["a"; 50], "max_tokens": 90, "ignore_eos": true, "stream": true});
    let body = body.to_string();
    let mut stream = server.connect();
    let length = body.len();
    write!(stream, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}").expect("sent");
    let mut first = [0; 256];
    stream.read_exact(&mut first).expect("it is under way");
    server.signal("-TERM");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the rest");
    assert!(rest.contains("data: [DONE]"), "it is cut off: {}", &rest[rest.len().saturating_sub(300)..]);
    assert_eq!(rest.matches("\"finish_reason\":\"length\"").count(), 50);
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn a_server_that_others_reach_warns_without_keys_and_asks_for_them() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("keys");
    std::fs::write(&file, "# whose\nsecret-1\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let open = Server::start(&["builtin:small", "--host", "0.0.0.0"]);
    assert!(open.line("warning: ").contains("there is no --api-key-file"));
    assert!(open.get("/v1/models", "").0.starts_with("HTTP/1.1 200"));
    let closed = Server::start(&["builtin:small", "--host", "0.0.0.0", "--api-key-file", file]);
    assert!(!closed.all_lines().iter().any(|line| line.contains("warning")), "{:?}", closed.all_lines());
    assert!(closed.get("/v1/models", "").0.starts_with("HTTP/1.1 401"));
    assert!(closed.get("/v1/models", "Authorization: Bearer secret-1\r\n").0.starts_with("HTTP/1.1 200"));
    assert!(closed.get("/v2/health/ready", "").0.starts_with("HTTP/1.1 200"));
    // Not even the log has it.
    assert!(!closed.all_lines().iter().any(|line| line.contains("secret")));
    let local = Server::start(&["builtin:small"]);
    assert!(!local.all_lines().iter().any(|line| line.contains("warning")), "{:?}", local.all_lines());
    std::fs::write(file, "# none\n").expect("written");
    vitreous(&["serve", "builtin:small", "--api-key-file", file]).failed(2, &["there is no key in this file"]);
}

#[test]
fn the_log_is_json_where_it_is_asked_for() {
    let server = Server::start(&[&format!("vit={}", fixtures().join("tiny_vit").display()), "--log", "json"]);
    let (head, _) = server.get("/v1/models/nobody", "X-Request-Id: mine-7\r\n");
    assert!(head.starts_with("HTTP/1.1 404") && head.contains("x-request-id: mine-7"), "{head}");
    let line: Value = serde_json::from_str(&server.line("mine-7")).expect("JSON");
    assert_eq!((&line["method"], &line["path"]), (&json!("GET"), &json!("/v1/models/nobody")));
    assert_eq!((&line["status"], &line["level"]), (&json!(404), &json!("info")));
    assert!(line["milliseconds"].is_number() && line["error"].as_str().is_some_and(|error| error.contains("nobody")));
    server.signal("-TERM");
    let ending: Value = serde_json::from_str(&server.line("ending")).expect("JSON");
    assert!(ending["time"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let same = ["serve", "a=builtin:small", "a=builtin:small-untrained"];
    vitreous(&same).failed(2, &["two models are called `a`"]);
    vitreous(&["serve", "a b=builtin:small"]).failed(2, &["cannot name a model"]);
    vitreous(&["serve", "/nowhere/model"]).failed(2, &["no such file"]);
}
