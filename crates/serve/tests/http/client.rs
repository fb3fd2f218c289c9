//! Servers on free ports, and a client that can also misbehave.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use vitreous_engine::{Device, Precision};
use vitreous_serve::{
    Handle, Limits, Loader, LogFormat, ModelSettings, NamedModel, ServeError, ServeOptions, Server, runtime,
};

use crate::tiny;

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The fixtures of the command's tests.
pub fn fixture(name: &str) -> PathBuf {
    repository("crates/vitreous/tests/fixtures").join(name)
}

/// A language model, and what its peer writes.
pub fn language(name: &str) -> (PathBuf, Value) {
    let path = repository("crates/models/tests/fixtures/generate").join(name);
    let expected = read_json(&path.join("expected.json"));
    (path, expected)
}

pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON")
}

/// A server that runs.
pub struct Running {
    pub address: SocketAddr,
    pub handle: Handle,
    pub thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    /// Ends it, and waits for that.
    pub fn finish(mut self) -> Result<(), ServeError> {
        self.handle.end();
        self.thread.take().expect("a thread").join().expect("no panic")
    }
}

pub fn named(name: &str, path: PathBuf) -> NamedModel {
    NamedModel { name: name.to_string(), path }
}

pub fn options(models: Vec<NamedModel>) -> ServeOptions {
    ServeOptions {
        models,
        runs: None,
        serves_runs: false,
        host: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        settings: ModelSettings {
            device: Device::Cpu { threads: 2 },
            precision: Precision::F32,
            slots: Some(4),
            context: None,
            cache_tokens: None,
            batch: None,
        },
        limits: Limits { head: Duration::from_secs(5), ..Limits::default() },
        keys: None,
        origins: Vec::new(),
        tls: None,
        log: LogFormat::Errors,
    }
}

/// Starts a server, with models of its own or those of a loader.
pub fn start_with(options: ServeOptions, loader: Option<Loader>) -> Running {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().expect("a runtime").block_on(async move {
            let server = match loader {
                Some(loader) => Server::bind_with(options, loader).await?,
                None => Server::bind(options).await?,
            };
            let address = server.address();
            server.run(move |handle, _| send.send((address, handle.clone())).expect("a receiver")).await
        })
    });
    let Ok((address, handle)) = receive.recv_timeout(Duration::from_secs(120)) else {
        panic!("the server does not start: {:?}", thread.is_finished().then(|| thread.join()));
    };
    Running { address, handle, thread: Some(thread) }
}

pub fn start(models: Vec<NamedModel>) -> Running {
    start_with(options(models), None)
}

/// One server with a model of every kind, for all tests that leave it as it is.
pub fn shared() -> SocketAddr {
    static SERVER: OnceLock<Running> = OnceLock::new();
    let of = |name: &str| named(name, fixture(&format!("texts/{name}")));
    SERVER
        .get_or_init(|| {
            // Kept until the process ends, since models may be read again.
            let folder = tempfile::tempdir().expect("a folder").keep();
            let tiny = |name: &str, write: fn(&Path)| {
                write(&folder.join(name));
                named(name, folder.join(name))
            };
            start(vec![
                named("vit", fixture("tiny_vit")),
                of("bert_classes"),
                of("bert_tokens"),
                of("bert_masked"),
                of("bert_answers"),
                of("sentence_mean"),
                named("llama", language("llama").0),
                named("qwen3", language("qwen3").0),
                tiny("clip", tiny::clip),
                tiny("byt5", tiny::byt5),
                tiny("ear", tiny::whisper),
            ])
        })
        .address
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// The JSON of an answer that succeeded.
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// The message of a refusal with this status.
    pub fn refused(self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        let error = &self.json()["error"];
        error.as_str().or(error["message"].as_str()).expect("a message").to_string()
    }

    /// The JSON of all events of a stream, without the last, `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert!(self.header("content-type").expect("a type").starts_with("text/event-stream"));
        let text = self.text();
        let mut events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        let json = |event: &str| serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON");
        events.into_iter().map(json).collect()
    }
}

/// Connects, sends bytes as they are, and reads until the connection is closed or an answer is whole. `None` if none came.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    // It may be refused before all of it is sent.
    let _ = stream.write_all(bytes);
    read_answer(&mut stream)
}

/// Reads one answer.
pub fn read_answer(stream: &mut impl Read) -> Option<Answer> {
    let mut all = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        if let Some(answer) = parse_answer(&all, false) {
            return Some(answer);
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return parse_answer(&all, true),
            Ok(count) => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn parse_answer(all: &[u8], is_closed: bool) -> Option<Answer> {
    let head_end = all.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&all[..head_end]).expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_string()));
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let get = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let rest = &all[head_end + 4..];
    let body = match (get("content-length"), get("transfer-encoding")) {
        (Some(length), _) => {
            let length: usize = length.parse().expect("a length");
            rest.get(..length)?.to_vec()
        }
        (None, Some(_)) => unchunked(rest)?,
        (None, None) if is_closed || status == 204 => rest.to_vec(),
        (None, None) => return None,
    };
    Some(Answer { status, headers, body })
}

/// The body of chunks, if all of them are there.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        let chunk = rest.get(end + 2..end + 2 + size)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk);
        rest = rest.get(end + 2 + size + 2..)?;
    }
}

/// A request with headers and a body.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str("\r\n");
    [bytes.as_bytes(), body].concat()
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    raw(address, &request("GET", path, &[], b"")).expect("an answer")
}

pub fn post(address: SocketAddr, path: &str, kind: &str, body: &[u8]) -> Answer {
    raw(address, &request("POST", path, &[("Content-Type", kind)], body)).expect("an answer")
}

pub fn post_json(address: SocketAddr, path: &str, body: &Value) -> Answer {
    post(address, path, "application/json", body.to_string().as_bytes())
}

/// A form of fields, of which files have a name.
pub fn form(fields: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, value) in fields {
        let file = if *name == "file" || *name == "image" { "; filename=\"x\"" } else { "" };
        body.extend(format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes());
        body.extend(*value);
        body.extend(b"\r\n");
    }
    body.extend(b"--edge--\r\n");
    ("multipart/form-data; boundary=edge".to_string(), body)
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

pub fn assert_close(ours: &[f64], theirs: &[f64], limit: f64) {
    assert_eq!(ours.len(), theirs.len());
    let largest = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest <= limit, "{largest:e}: {ours:?} and {theirs:?}");
}

/// Waits until something holds, at most half a minute.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} did not happen");
}

/// The value of a line of `/metrics` that begins so.
pub fn metric(address: SocketAddr, begins: &str) -> f64 {
    let text = get(address, "/metrics").text();
    let line = text.lines().find(|line| line.starts_with(begins));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

/// A loader of these models.
pub fn loader(make: impl Fn() -> Vec<Arc<vitreous_serve::models::Served>> + Send + Sync + 'static) -> Loader {
    Arc::new(move |_| Ok(vitreous_serve::models::ModelSet::new(make())))
}
