//! How a command ends when it does not succeed.

use std::io;
use std::process::ExitCode;

use vitreous_pages::explained::ExplainedError;
use vitreous_pages::write::WriteError;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or bad input: exit code 2.
    Input(anyhow::Error),
    /// The work failed: exit code 1.
    Work(anyhow::Error),
    /// The work failed in parts, each of which was reported when it happened: exit code 1.
    Reported,
    /// Stopped by Ctrl-C, after what was to be saved was saved: exit code 130, as is usual for that.
    Interrupted,
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

    /// What happened, in one line.
    pub fn text(&self) -> String {
        match self {
            Failure::Input(error) | Failure::Work(error) => chain(error),
            Failure::Reported | Failure::Interrupted | Failure::OutputClosed => "the work ended early".to_string(),
        }
    }

    /// The exit code.
    pub fn exit_number(&self) -> u8 {
        match self {
            Failure::OutputClosed => 0,
            Failure::Work(_) | Failure::Reported => 1,
            Failure::Input(_) => 2,
            Failure::Interrupted => 130,
        }
    }

    /// Says what happened, on stderr, and gives the exit code.
    pub fn report(self) -> ExitCode {
        if let Failure::Input(error) | Failure::Work(error) = &self {
            complain!("error: {}", chain(error));
        }
        ExitCode::from(self.exit_number())
    }

    /// The same, where one of several processes has failed.
    pub fn report_of(self, whom: &str) -> ExitCode {
        if let Failure::Input(error) | Failure::Work(error) = &self {
            complain!("error: {whom}: {}", chain(error));
        }
        ExitCode::from(self.exit_number())
    }
}

/// An error and its causes in one line. Many errors tell their cause themselves: it is not told twice.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// An error of the runtime: what other input would mend is bad input.
impl From<vitreous_runtime::Error> for Failure {
    fn from(error: vitreous_runtime::Error) -> Failure {
        match error.is_input() {
            true => Failure::input(error),
            false => Failure::work(error),
        }
    }
}

/// An input that is not explained.
impl From<ExplainedError> for Failure {
    fn from(error: ExplainedError) -> Failure {
        match error.is_input() {
            true => Failure::input(error),
            false => Failure::work(error),
        }
    }
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

/// A page or another file that is not written.
impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        match error {
            WriteError::Refused(_) => Failure::input(error),
            WriteError::Io { .. } => Failure::work(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let full = || anyhow::anyhow!("disk full");
        assert_eq!(chain(&full().context("writing")), "writing: disk full");
        assert_eq!(chain(&full().context("cannot write: disk full")), "cannot write: disk full");
        // Also where a hint follows.
        assert_eq!(chain(&full().context("cannot write: disk full. Make room")), "cannot write: disk full. Make room");
    }
}
