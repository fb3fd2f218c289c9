//! Talk, on stderr.

use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);

/// With `-q`, only errors are told from now on.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only errors are told: no notes, no progress.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// An error, as `eprintln!`, but whether anybody hears it changes nothing: a full disk under `2>log` must not end the work.
macro_rules! complain {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}

/// A note, or how something went: as `complain!`, but not with `-q`.
macro_rules! say {
    ($($text:tt)*) => {{
        if !$crate::say::is_quiet() {
            complain!($($text)*);
        }
    }};
}
