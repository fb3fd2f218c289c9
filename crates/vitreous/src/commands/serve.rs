//! `vitreous serve`: models over HTTP.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use vitreous_files::open::read_text;
use vitreous_models::model::BUILTIN_MODELS;
use vitreous_runtime::described;
use vitreous_serve::models::ModelSet;
use vitreous_serve::{
    ApiKeys, Limits, LogFormat, ModelSettings, NamedModel, ServeError, ServeOptions, Server, TlsFiles, runtime,
};
use vitreous_train::RunRecord;

use super::parse_count;
use crate::device_options::ComputeOptions;
use crate::failure::Failure;

/// The largest file of keys.
const MOST_KEY_BYTES: u64 = 1 << 20;
/// Where `vitreous train` puts runs.
const USUAL_RUNS: &str = "runs";

/// Serve models over HTTP: OpenAI's API, the Open Inference Protocol, and plain requests
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous serve                                 a page to look into a small model, at http://127.0.0.1:8000/
  vitreous serve MODEL
  vitreous serve chat=SmolLM2-135M-Instruct embed=all-MiniLM-L6-v2 vit=runs/small-1 --port 8000
  vitreous serve MODEL --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem

  http://127.0.0.1:8000/ in a browser            the models from the inside; /docs has a line of curl for each endpoint
  curl http://127.0.0.1:8000/classify/vit --data-binary @photo.jpg
  OPENAI_BASE_URL=http://127.0.0.1:8000/v1       for programs that use OpenAI's library

SIGTERM and Ctrl-C finish what is under way and end with exit code 0; SIGHUP and POST /admin/reload load the models again without
losing a request.")]
pub struct Serve {
    /// Models, each a directory or a file; NAME=MODEL gives it the name that clients use. Without any: the small image classifier that is
    /// in this program, the same before its training, and the models of the latest runs
    #[arg(value_name = "MODEL", value_parser = NamedModel::parse)]
    models: Vec<NamedModel>,
    /// A folder of training runs to show, also while they go on [default: runs, if it is there]
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// The port; 0 takes one that is free
    #[arg(long, value_name = "N", default_value = "8000")]
    port: u16,
    /// The address to listen on; 0.0.0.0 is all of this machine's
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    host: IpAddr,
    /// A file with one key per line, of which clients must send one: `Authorization: Bearer KEY`
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// An origin whose pages may ask from a browser, as in `https://example.org`; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    cors: Vec<String>,
    /// Serve HTTPS with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// How requests are logged, on standard error
    #[arg(long, value_enum, default_value = "text")]
    log: LogName,
    /// Texts that a language model writes at once [default: 8; on a GPU 64; fewer if memory is short]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    slots: Option<usize>,
    /// The most tokens of a text, prompt included [default: 4096, or what the model reads]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    context: Option<usize>,
    /// Tokens of all texts that a language model writes whose keys and values there is memory for; texts take it in blocks, as they grow,
    /// and wait for each other where it does not suffice; on CPUs [default: slots x context, or what fits]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    cache_tokens: Option<usize>,
    /// The most images or texts that are computed together [default: as many as keep the machine busy]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    batch: Option<usize>,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    compute: ComputeOptions,
}

/// What a request, and all of them together, may take.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
struct LimitOptions {
    /// Requests that a model works on or that wait for it; others are answered with 429
    #[arg(long, value_name = "N", default_value_t = Limits::default().queue, value_parser = parse_count)]
    queue: usize,
    /// Connections; others wait
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections, value_parser = parse_count)]
    max_connections: usize,
    /// The largest body of a request, in MiB
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().body >> 20, value_parser = parse_count)]
    max_body: usize,
    /// The bodies of all requests that are read or answered together, in MiB; others are answered with 429
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().bodies >> 20, value_parser = parse_count)]
    max_bodies: usize,
    /// The largest image, in millions of pixels
    #[arg(long, value_name = "N", default_value_t = (Limits::default().pixels / 1_000_000) as usize, value_parser = parse_count)]
    max_pixels: usize,
    /// The longest recording, in seconds
    #[arg(long, value_name = "S", default_value_t = Limits::default().audio_seconds as usize, value_parser = parse_count)]
    max_audio: usize,
    /// How long an answer may take, in seconds
    #[arg(long, value_name = "S", default_value_t = Limits::default().answer.as_secs() as usize, value_parser = parse_count)]
    timeout: usize,
    /// How long a body may take to arrive, in seconds
    #[arg(long, value_name = "S", default_value_t = Limits::default().upload.as_secs() as usize, value_parser = parse_count)]
    upload_timeout: usize,
    /// How long requests under way may take when the server ends, in seconds
    #[arg(long, value_name = "S", default_value_t = Limits::default().drain.as_secs() as usize, value_parser = parse_count)]
    drain: usize,
}

impl LimitOptions {
    fn limits(&self) -> Limits {
        let seconds = |seconds: usize| Duration::from_secs(seconds as u64);
        Limits {
            body: self.max_body.saturating_mul(1 << 20),
            // At least one has room.
            bodies: self.max_bodies.max(self.max_body).saturating_mul(1 << 20),
            pixels: (self.max_pixels as u64).saturating_mul(1_000_000),
            audio_seconds: self.max_audio as f64,
            queue: self.queue.min(1 << 20),
            connections: self.max_connections.min(1 << 20),
            answer: seconds(self.timeout),
            upload: seconds(self.upload_timeout),
            drain: seconds(self.drain),
            ..Limits::default()
        }
    }
}

/// How requests are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogName {
    /// One line per request
    Text,
    /// One JSON object per line
    Json,
    /// What failed
    Errors,
}

impl Serve {
    pub fn run(self) -> Result<(), Failure> {
        let mut names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("two models are called `{}`: give one another name, as in other={}", pair[0], pair[0]);
            return Err(Failure::input(anyhow!(what)));
        }
        let keys = self.keys()?;
        let runs = self.runs()?;
        let names_none = self.models.is_empty();
        if !self.host.is_loopback() && keys.is_none() {
            say!(
                "warning: {} can be reached by other machines, and there is no --api-key-file: whoever reaches it can use the models",
                self.host
            );
        }
        raise_open_files();
        let device = self.compute.device()?;
        let settings = ModelSettings {
            device: device.clone(),
            precision: self.compute.precision(),
            slots: self.slots,
            context: self.context,
            cache_tokens: self.cache_tokens,
            batch: self.batch,
        };
        let options = ServeOptions {
            host: self.host,
            port: self.port,
            settings,
            limits: self.limits.limits(),
            keys,
            origins: self.cors.clone(),
            tls: self
                .tls_cert
                .clone()
                .zip(self.tls_key.clone())
                .map(|(certificate, key)| TlsFiles { certificate, key }),
            log: match self.log {
                _ if crate::say::is_quiet() => LogFormat::Errors,
                LogName::Text => LogFormat::Text,
                LogName::Json => LogFormat::Json,
                LogName::Errors => LogFormat::Errors,
            },
            models: if names_none { builtin_models()? } else { self.models },
            runs,
            serves_runs: names_none,
        };
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let runtime = runtime().map_err(Failure::work)?;
        let result = runtime.block_on(async move {
            let server = Server::bind(options).await?;
            let address = server.address();
            let started = |_: &_, models: &ModelSet| {
                for model in models.all() {
                    say!("{}: {}", model.name, model.what);
                }
                say!("serving on {scheme}://{address}/ with {}; Ctrl-C ends", described(&device));
            };
            server.run(started).await
        });
        // Models that are still being loaded are not waited for.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result.map_err(|error| match error {
            ServeError::Load(ref load) if !load.error.is_input() => Failure::work(error),
            ServeError::System(_) => Failure::work(error),
            ServeError::Load(_) | ServeError::Listen { .. } | ServeError::Tls(_) => Failure::input(error),
        })
    }

    /// The folder of runs: the one that was named, or the usual one where it is.
    fn runs(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(folder) = &self.runs else {
            return Ok(Some(PathBuf::from(USUAL_RUNS)).filter(|usual| usual.is_dir()));
        };
        let refused = |what: &str| Err(Failure::input(anyhow!("--runs {}: {what}", folder.display())));
        match folder.is_dir() {
            false => refused("there is no such directory"),
            true if RunRecord::is_run(folder) => refused("this is a run itself; give the folder that it is in"),
            true => Ok(Some(folder.clone())),
        }
    }

    fn keys(&self) -> Result<Option<ApiKeys>, Failure> {
        let Some(file) = &self.api_key_file else { return Ok(None) };
        let text = read_text(file, MOST_KEY_BYTES).with_context(|| format!("--api-key-file {}", file.display()));
        match ApiKeys::parse(&text.map_err(Failure::Input)?) {
            Some(keys) => Ok(Some(keys)),
            None => Err(Failure::input(anyhow!("--api-key-file {}: there is no key in this file", file.display()))),
        }
    }
}

/// The models in this program.
fn builtin_models() -> Result<Vec<NamedModel>, Failure> {
    let parsed: Result<_, String> = BUILTIN_MODELS.into_iter().map(NamedModel::parse).collect();
    parsed.map_err(|error| Failure::input(anyhow!(error)))
}

/// Each connection is an open file, and the usual limit is about a thousand.
#[cfg(unix)]
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a limit that lives as long as they do.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max.min(1 << 16);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(not(unix))]
fn raise_open_files() {}
