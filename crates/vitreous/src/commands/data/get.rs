//! `vitreous data get`: downloads a well-known data set.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_data::download::{Download, DownloadError, DownloadOptions, KNOWN_NAMES, KnownDataset, Progress};

use crate::failure::Failure;
use vitreous_pages::format;

/// Where to download the same files from instead of the official addresses, for tests and for machines without access to these. The
/// checksums are the same.
const MIRROR: &str = "VITREOUS_DATA_MIRROR";

/// Download a well-known data set: checksum-verified; interrupted downloads resume
#[derive(Args)]
pub struct Get {
    /// The data set
    #[arg(value_parser = KNOWN_NAMES)]
    name: String,
    /// The folder to write to [default: data/NAME]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Get {
    pub fn run(self) -> Result<(), Failure> {
        let dataset =
            KnownDataset::named(&self.name).ok_or_else(|| Failure::input(anyhow!("{}: not known", self.name)))?;
        let to = self.to.unwrap_or_else(|| PathBuf::from("data").join(&self.name));
        let mirror = std::env::var(MIRROR).ok().filter(|mirror| !mirror.is_empty());
        let options = DownloadOptions { mirror, ..DownloadOptions::default() };
        let download = Arc::new(Download::new(dataset, &to, options));
        let teller = Teller::new();
        let bar = teller.bar.clone();
        let result = until_interrupted(&download, teller);
        bar.finish_and_clear();
        match result? {
            Some(result) => result.map_err(Failure::work)?,
            None => {
                match download.clean_up() {
                    0 => say!("interrupted; nothing was kept"),
                    kept => say!("interrupted; {} are kept: the same command resumes", format::bytes(kept as usize)),
                }
                return Err(Failure::Interrupted);
            }
        }
        say!("{} is in {}; try: vitreous data {}", self.name, to.display(), to.display());
        Ok(())
    }
}

/// Downloads on another thread, because that may wait for a silent server. `None` if Ctrl-C came first.
fn until_interrupted(
    download: &Arc<Download>,
    mut teller: Teller,
) -> Result<Option<Result<(), DownloadError>>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::work)?;
    }
    let (send, done) = mpsc::channel();
    let of_thread = download.clone();
    std::thread::spawn(move || send.send(of_thread.run(&mut |progress| teller.tell(progress))));
    loop {
        match done.recv_timeout(Duration::from_millis(50)) {
            Ok(result) => return Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::work(anyhow!("the download ended unexpectedly")));
            }
        }
    }
}

/// Shows the progress: a bar on a terminal, else a line now and then.
struct Teller {
    bar: ProgressBar,
    on_terminal: bool,
}

impl Teller {
    fn new() -> Teller {
        let on_terminal = std::io::stderr().is_terminal();
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template(
            "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left",
        );
        Teller { bar: style.map(|style| bar.clone().with_style(style)).unwrap_or(bar), on_terminal }
    }

    fn tell(&mut self, progress: Progress) {
        match progress {
            Progress::Received(have) => self.bar.set_position(have),
            Progress::Begun { file, have, total } => {
                let of = total.map(|total| format!(", {}", format::bytes(total as usize))).unwrap_or_default();
                let from =
                    if have > 0 { format!(", resumed at {}", format::bytes(have as usize)) } else { String::new() };
                self.bar.set_length(total.unwrap_or(0));
                self.bar.set_position(have);
                self.bar.reset_eta();
                self.bar.set_message(file.clone());
                // The bar shows the same.
                if !self.on_terminal {
                    say!("{file}{of}{from}");
                }
            }
            Progress::Again { reason, wait } => {
                self.line(&format!("{reason}; next attempt in {} s", wait.as_secs_f64()));
            }
            Progress::AlreadyThere(path) => self.line(&format!("{}: already complete", path.display())),
            Progress::Checking => self.bar.set_message("verifying the checksum"),
            Progress::Unpacking => self.line("unpacking"),
            Progress::Finished(path) => self.line(&format!("{}: complete", path.display())),
        }
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }
}
