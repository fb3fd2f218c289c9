//! `vitreous data get`: downloads a known data set.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_data::download::{DownloadOptions, KNOWN_NAMES, Known, Progress, download};

use crate::failure::Failure;
use vitreous_pages::format;

/// Another place that has the same files; the sums are the same. For tests, and for those who may not go outside.
const MIRROR: &str = "VITREOUS_DATA_MIRROR";

/// Download a known data set: checked by its sum, resumed after a cut
#[derive(Args)]
pub struct Get {
    /// Which
    #[arg(value_parser = KNOWN_NAMES)]
    name: String,
    /// The folder to write to; by default data/NAME
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Get {
    pub fn run(self) -> Result<(), Failure> {
        let known = Known::named(&self.name).ok_or_else(|| Failure::input(anyhow!("{}: not known", self.name)))?;
        let to = self.to.unwrap_or_else(|| PathBuf::from("data").join(&self.name));
        let mirror = std::env::var(MIRROR).ok().filter(|mirror| !mirror.is_empty());
        let options = DownloadOptions { mirror, ..DownloadOptions::default() };
        let mut teller = Teller::new();
        let result = download(&known, &to, &options, &mut |progress| teller.tell(progress));
        teller.bar.finish_and_clear();
        result.map_err(Failure::work)?;
        say!("{} is in {}; try: vitreous data {}", self.name, to.display(), to.display());
        Ok(())
    }
}

/// Tells how far it is: a bar on a terminal, else a line now and then.
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
                let from = if have > 0 { format!(", from {} on", format::bytes(have as usize)) } else { String::new() };
                self.bar.set_length(total.unwrap_or(0));
                self.bar.set_position(have);
                self.bar.reset_eta();
                self.bar.set_message(file.clone());
                // The bar says the same.
                if !self.on_terminal {
                    say!("{file}{of}{from}");
                }
            }
            Progress::Again { reason, wait } => {
                self.line(&format!("{reason}; trying again in {} s", wait.as_secs_f64()));
            }
            Progress::AlreadyThere(path) => self.line(&format!("{}: already there", path.display())),
            Progress::Checking => self.bar.set_message("checking"),
            Progress::Unpacking => self.line("unpacking"),
            Progress::Finished(path) => self.line(&format!("{}: complete", path.display())),
        }
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }
}
