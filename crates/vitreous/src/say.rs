//! All text for people goes through here: results on stdout, notes and errors on stderr. Names from files of strangers reach it, so
//! control characters are escaped.

use std::io::{self, StdoutLock, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use vitreous_files::printable::{PrintableWriter, printable};

static QUIET: AtomicBool = AtomicBool::new(false);

/// With `-q`, only errors are told from now on.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only errors are told: no notes, no progress.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Standard output, for results.
pub fn stdout() -> PrintableWriter<StdoutLock<'static>> {
    PrintableWriter::new(io::stdout().lock())
}

/// Writes a line to stderr. Whether anybody hears it changes nothing: a full disk under `2>log` must not end the work.
pub fn write_to_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// The help, the version, or what is wrong with the arguments; gives the exit code.
pub fn show_usage(answer: &clap::Error) -> ExitCode {
    if answer.use_stderr() {
        // Arguments may be names of files, by a pattern.
        write_to_stderr(answer.render().to_string().trim_end());
    } else {
        let _ = answer.print();
    }
    ExitCode::from(answer.exit_code() as u8)
}

/// An error, as `eprintln!`.
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::say::write_to_stderr(&format!($($text)*))
    };
}

/// A note, or how something went: as `complain!`, but not with `-q`.
macro_rules! say {
    ($($text:tt)*) => {{
        if !$crate::say::is_quiet() {
            complain!($($text)*);
        }
    }};
}
