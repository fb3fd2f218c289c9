//! Signals that would end the process without a word.

/// A file that is too large for `ulimit -f` is an error of writing, which is reported, and not a signal. A mapped file that became
/// shorter ends the process, as nothing else can be done, but with a sentence and the exit code of failed work.
#[cfg(unix)]
pub fn explain_deadly_ones() {
    let handler: extern "C" fn(libc::c_int) = say_that_a_file_changed;
    // SAFETY: the handler calls only functions that are safe in handlers.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGBUS, handler as libc::sighandler_t);
    }
}

/// Elsewhere there are no such signals.
#[cfg(not(unix))]
pub fn explain_deadly_ones() {}

#[cfg(unix)]
extern "C" fn say_that_a_file_changed(_: libc::c_int) {
    const TEXT: &str = "error: a file could not be read to its end: it became shorter while it was in use, or its disk failed. \
                        Run the command again when nothing else writes to it\n";
    // SAFETY: `write` and `_exit` may be called in handlers, and the text is as long as it says.
    unsafe {
        libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
        libc::_exit(1);
    }
}
