//! How a command ends when it does not succeed.

use std::io;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or bad input: exit code 2.
    Input(anyhow::Error),
    /// The work failed: exit code 1.
    Work(anyhow::Error),
    /// The work failed in parts, each of which was reported when it happened: exit code 1.
    Reported,
    /// Nobody reads our output any more, as in `vitreous .. | head`: nothing to complain about.
    OutputClosed,
}

impl Failure {
    /// Bad input.
    pub fn input(error: impl Into<anyhow::Error>) -> Failure {
        Failure::Input(error.into())
    }

    /// Failed work.
    pub fn work(error: impl Into<anyhow::Error>) -> Failure {
        Failure::Work(error.into())
    }

    /// Says what happened, on stderr, and gives the exit code.
    pub fn report(self) -> ExitCode {
        let (error, code) = match self {
            Failure::OutputClosed => return ExitCode::SUCCESS,
            Failure::Reported => return ExitCode::from(1),
            Failure::Input(error) => (error, 2),
            Failure::Work(error) => (error, 1),
        };
        eprintln!("error: {}", in_one_line(&error));
        ExitCode::from(code)
    }
}

/// The whole chain of causes, less those that the error before already tells.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// An error of writing results.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Work(anyhow::Error::new(error).context("writing the results")),
        }
    }
}
