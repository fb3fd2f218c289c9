//! What a server is started with.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use subtle::{Choice, ConstantTimeEq};
use vitreous_engine::{Device, Precision};
use vitreous_models::model::{BUILTIN, builtin_name};

use crate::log::LogFormat;

/// A model and the name that clients call it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// The name.
    pub name: String,
    /// A model directory, a run directory or a file.
    pub path: PathBuf,
}

/// Names that are addresses under `/glass`.
const TAKEN: [&str; 4] = ["app", "events", "models", "runs"];

impl NamedModel {
    /// Reads `NAME=PATH`, or a path, whose last part is the name then.
    pub fn parse(text: &str) -> Result<NamedModel, String> {
        let (name, path) = match text.split_once('=') {
            // A path may have a `=` in it, but what names a model has no slash.
            Some((name, path)) if !name.contains(['/', '\\']) && !Path::new(text).exists() => {
                (name.to_string(), PathBuf::from(path))
            }
            _ => (name_of(Path::new(text)), PathBuf::from(text)),
        };
        if TAKEN.contains(&name.as_str()) {
            return Err(format!(
                "`{name}` cannot name a model, because the server's page is asked for it at /glass/{name}: give it another name, as in my-model={}",
                path.display()
            ));
        }
        let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "._-:".contains(letter);
        match !name.is_empty() && name.len() <= 100 && name.chars().all(is_usual) {
            true => Ok(NamedModel { name, path }),
            false => Err(format!(
                "`{name}` cannot name a model: use letters, digits, `.`, `_`, `-` and `:`, as in my-model={}",
                path.display()
            )),
        }
    }
}

/// The last part of a path that says something: not `model` of a run directory, and not the extension of a file. Of a built-in model, its
/// name.
fn name_of(path: &Path) -> String {
    if let Some(name) = builtin_name(path) {
        return name.trim_start_matches(BUILTIN).to_string();
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = if path.is_file() { path.file_stem() } else { path.file_name() };
    name.map(|name| name.to_string_lossy().replace([' ', '='], "-")).unwrap_or_default()
}

/// How models are made ready.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// What to compute on.
    pub device: Device,
    /// Precision of matrix multiplications.
    pub precision: Precision,
    /// Texts that a language model writes at once; `None`: 8, on a GPU 64, fewer if the memory does not suffice.
    pub slots: Option<usize>,
    /// The most tokens of a text, prompt included; `None`: 4096, or what the model reads if that is less.
    pub context: Option<usize>,
    /// Tokens of all texts that a language model writes whose keys and values there is memory for; `None`: as many as its slots can have.
    pub cache_tokens: Option<usize>,
    /// The most images or texts of a batch; `None`: as many as keep the device busy.
    pub batch: Option<usize>,
}

/// What a request and all of them together may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of the bodies of all requests that are read or answered.
    pub bodies: usize,
    /// Pixels of an image.
    pub pixels: u64,
    /// Seconds of a recording.
    pub audio_seconds: f64,
    /// Texts, images or tensors of one request.
    pub inputs: usize,
    /// Requests that a model works on or that wait for it.
    pub queue: usize,
    /// Connections.
    pub connections: usize,
    /// How long the head of a request may take, and an idle connection is kept.
    pub head: Duration,
    /// How long a body may take.
    pub upload: Duration,
    /// How long a client may take none of an answer.
    pub stalled: Duration,
    /// How long an answer may take.
    pub answer: Duration,
    /// How long requests under way may take when the server ends.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body: 32 << 20,
            bodies: 1 << 30,
            pixels: 50_000_000,
            audio_seconds: 1800.0,
            inputs: 2048,
            queue: 1024,
            connections: 4096,
            head: Duration::from_secs(30),
            upload: Duration::from_secs(60),
            stalled: Duration::from_secs(30),
            answer: Duration::from_secs(600),
            drain: Duration::from_secs(30),
        }
    }
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with those between it and a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The keys of which a client must have one.
#[derive(Clone)]
pub struct ApiKeys(Vec<Vec<u8>>);

impl ApiKeys {
    /// One per line; empty lines and those that begin with `#` are none. `None` if there is no key.
    pub fn parse(text: &str) -> Option<ApiKeys> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
        (!keys.is_empty()).then_some(ApiKeys(keys))
    }

    /// Whether this is one of them. How long that takes tells nothing about the keys but their lengths.
    pub fn allow(&self, given: &[u8]) -> bool {
        let is_same = |key: &Vec<u8>| key.ct_eq(given);
        self.0.iter().map(is_same).fold(Choice::from(0), |any, same| any | same).into()
    }
}

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The models.
    pub models: Vec<NamedModel>,
    /// A folder of training runs to show.
    pub runs: Option<PathBuf>,
    /// Whether the models of the latest of these runs are served, too.
    pub serves_runs: bool,
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 is any that is free.
    pub port: u16,
    /// How models are made ready.
    pub settings: ModelSettings,
    /// Limits.
    pub limits: Limits,
    /// Keys, if clients need one.
    pub keys: Option<ApiKeys>,
    /// Pages of these origins may ask; `*` is all.
    pub origins: Vec<String>,
    /// HTTPS in place of HTTP.
    pub tls: Option<TlsFiles>,
    /// How requests are logged.
    pub log: LogFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_or_the_last_part_of_a_path() {
        let parsed = |text: &str| NamedModel::parse(text).map(|model| (model.name, model.path));
        assert_eq!(parsed("vit=runs/small-1"), Ok(("vit".into(), "runs/small-1".into())));
        assert_eq!(parsed("builtin:small"), Ok(("small".into(), "builtin:small".into())));
        assert_eq!(parsed("/nowhere/a b=c"), Ok(("a-b-c".into(), "/nowhere/a b=c".into())));
        assert_eq!(parsed("./x=y/model.gguf"), Ok(("model.gguf".into(), "./x=y/model.gguf".into())));
        for taken in ["runs=x", "/nowhere/models", "app=x"] {
            assert!(parsed(taken).is_err_and(|told| told.contains("another name")), "{taken}");
        }
        for wrong in ["a/b=", "=x", "sch\u{f6}n=x", ""] {
            assert!(wrong == "a/b=" || parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_lines() {
        let keys = ApiKeys::parse("# mine\n\n secret \nother\n").expect("keys");
        assert!(keys.allow(b"secret") && keys.allow(b"other"));
        for wrong in [&b""[..], b"secre", b"secret ", b"# mine", b"secretsecret"] {
            assert!(!keys.allow(wrong));
        }
        assert!(ApiKeys::parse("# none\n").is_none());
        assert_eq!(format!("{keys:?}"), "2 keys");
    }
}
