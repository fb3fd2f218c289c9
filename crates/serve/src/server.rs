//! The server: starts, loads models, swaps them, and ends in an orderly way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::connection::{Connections, accept, tls_acceptor};
use crate::http::{App, Reloaded, router};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::{LoadError, ModelSet, Models, Surroundings};
use crate::options::ServeOptions;
use crate::training::{RunFolder, RunWatchers};

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{0}")]
    Tls(String),
    /// A model cannot be opened.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system refuses something else.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Opens models: where they come from may be somewhere else than a disk.
pub type Loader = Arc<dyn Fn(&Surroundings) -> Result<ModelSet, LoadError> + Send + Sync>;

/// A server that listens.
pub struct Server {
    options: ServeOptions,
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    reloads: mpsc::Receiver<Reloaded>,
    loader: Loader,
    around: Surroundings,
}

/// What a running server is told from outside.
#[derive(Clone)]
pub struct Handle {
    app: Arc<App>,
    end: mpsc::Sender<()>,
}

impl Handle {
    /// Ends the server after the requests that are under way.
    pub fn end(&self) {
        let _ = self.end.try_send(());
    }

    /// Loads all models again; an error is the name of one that cannot be opened.
    pub async fn reload(&self) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        self.app.reload.send(answer).await.map_err(|_| "the server has ended".to_string())?;
        answered.await.unwrap_or_else(|_| Err("the server has ended".to_string()))
    }
}

impl Server {
    /// Listens. Models are loaded by [`Server::run`].
    pub async fn bind(options: ServeOptions) -> Result<Server, ServeError> {
        let models = options.models.clone();
        let folder = options.runs.clone().filter(|_| options.serves_runs).map(|path| RunFolder::new(&path));
        let loader = move |around: &Surroundings| {
            let found = folder.as_ref().map(RunFolder::models).unwrap_or_default();
            ModelSet::open(&models, &found, around)
        };
        Server::bind_with(options, Arc::new(loader)).await
    }

    /// As [`Server::bind`], with models that `loader` opens.
    pub async fn bind_with(options: ServeOptions, loader: Loader) -> Result<Server, ServeError> {
        let address = SocketAddr::new(options.host, options.port);
        let failed = |error| ServeError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (reload, reloads) = mpsc::channel(4);
        let metrics = Arc::new(Metrics::default());
        let log = Log(options.log);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let app = Arc::new(App {
            models: Models::default(),
            limits: options.limits,
            keys: options.keys.clone(),
            origins: options.origins.clone(),
            metrics: metrics.clone(),
            log,
            runs: options.runs.as_deref().map(|path| RunWatchers::new(Arc::new(RunFolder::new(path)))),
            is_local: options.host.is_loopback(),
            is_draining: AtomicBool::new(false),
            reload,
            body_room: Arc::new(Semaphore::new(options.limits.bodies.min(Semaphore::MAX_PERMITS))),
            ids: (since.as_nanos() as u64, AtomicU64::new(0)),
        });
        let around = Surroundings { settings: options.settings.clone(), limits: options.limits, metrics, log };
        Ok(Server { options, listener, address, app, reloads, loader, around })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until a signal or the handle ends it: SIGTERM and SIGINT finish what is under way, SIGHUP loads models again. `started` is
    /// called when the models can answer.
    pub async fn run(self, started: impl FnOnce(&Handle, &ModelSet)) -> Result<(), ServeError> {
        let tls = self.options.tls.as_ref().map(tls_acceptor).transpose().map_err(ServeError::Tls)?;
        let (end, mut ends) = mpsc::channel(1);
        let (open, mut all_closed) = mpsc::channel(1);
        let (ending, is_ending) = watch::channel(false);
        let mut signals = Signals::new()?;
        let router = router(self.app.clone());
        let connections = Connections { app: self.app.clone(), router, tls, ending: is_ending, _open: open };
        let accepting = tokio::spawn(accept(self.listener, connections));
        let handle = Handle { app: self.app.clone(), end };
        // Probes are answered while models are loaded.
        let loading = load(&self.loader, &self.around);
        let loaded = tokio::select! {
            loaded = loading => loaded,
            () = signals.end() => return Ok(()),
        };
        self.app.models.swap(loaded?);
        if let Some(models) = self.app.models.now() {
            started(&handle, &models);
        }
        // By a task of its own, so that the server can be told to end meanwhile.
        let reloading = tokio::spawn(reload_when_asked(self.reloads, self.app.clone(), self.loader, self.around));
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    Told::End => break,
                    Told::Reload => {
                        self.app.log.note("SIGHUP: the models are loaded again");
                        // If others wait already, theirs is after this signal, too.
                        let _ = self.app.reload.try_send(oneshot::channel().0);
                    }
                },
                _ = ends.recv() => break,
            }
        }
        // Whoever waits for models to be loaded again is told that the server ends.
        reloading.abort();
        self.app.log.note("ending: no new connections; requests under way are finished");
        self.app.is_draining.store(true, Ordering::Relaxed);
        let _ = ending.send(true);
        let _ = accepting.await;
        // Until the last connection has dropped its end.
        let closed = tokio::time::timeout(self.app.limits.drain, all_closed.recv());
        tokio::select! {
            closed = closed => {
                if closed.is_err() {
                    let seconds = self.app.limits.drain.as_secs();
                    self.app.log.error(&format!("connections that were open after {seconds} s were cut off"));
                }
            }
            () = signals.end() => self.app.log.note("ending at once"),
        }
        Ok(())
    }
}

async fn load(loader: &Loader, around: &Surroundings) -> Result<ModelSet, ServeError> {
    let (loader, around) = (loader.clone(), around.clone());
    let loaded = tokio::task::spawn_blocking(move || loader(&around)).await;
    let loaded = loaded.map_err(|panic| std::io::Error::other(format!("a model could not be opened: {panic}")))?;
    Ok(loaded?)
}

async fn reload_when_asked(mut asked: mpsc::Receiver<Reloaded>, app: Arc<App>, loader: Loader, around: Surroundings) {
    while let Some(answer) = asked.recv().await {
        let _ = answer.send(reload(&app, &loader, &around).await);
    }
}

/// Swaps models for those that are on the disk now. Where one cannot be opened, the old ones go on.
async fn reload(app: &App, loader: &Loader, around: &Surroundings) -> Result<(), String> {
    match load(loader, around).await {
        Ok(models) => {
            app.models.swap(models);
            app.metrics.reloads.fetch_add(1, Ordering::Relaxed);
            app.log.note("the models were loaded again");
            Ok(())
        }
        Err(error) => {
            app.log.error(&format!("the models could not be loaded again, the old ones go on: {error}"));
            match error {
                ServeError::Load(LoadError { name, .. }) => Err(name),
                _ => Err("one of them".to_string()),
            }
        }
    }
}

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    End,
    #[cfg_attr(not(unix), allow(dead_code))]
    Reload,
}

/// Signals of the system.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    #[cfg(not(unix))]
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {})
    }

    #[cfg(unix)]
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> Told {
        let _ = tokio::signal::ctrl_c().await;
        Told::End
    }

    /// Until the server is to end.
    async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// Threads for what takes seconds, so that it does not keep those that decode and tokenise.
const LONG_WORK: usize = 16;

/// A runtime for a server: few threads, because models have their own.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let threads = vitreous_runtime::threads();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.clamp(2, 8))
        // Images are decoded and texts are tokenised by these; a model that is loaded or explained keeps one for seconds.
        .max_blocking_threads(threads.clamp(4, 64) + LONG_WORK)
        .thread_keep_alive(Duration::from_secs(60))
        .thread_name("http")
        .enable_all()
        .build()
}
