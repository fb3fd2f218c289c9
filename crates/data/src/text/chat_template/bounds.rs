//! What a template may take.
//!
//! Steps are counted by the engine (its fuel), but a step can double a text. So each operation that makes a longer value of others is
//! one of ours and refuses values that are too large, and all that is written counts against one sum. Values can be nested as deeply as
//! there are steps; reading and freeing them is recursive, for which the stack is large enough.

use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::{Error, ErrorKind};

use super::ChatTemplateError;

/// The longest template. Those of models have up to 20 kB.
pub(super) const MOST_SOURCE_BYTES: usize = 1 << 18;
/// The longest text that a template can make: a million tokens. A step may read all of it, so that this also bounds the time.
pub(super) const MOST_TEXT_BYTES: usize = 1 << 22;
/// The most that a template writes, into its output and into variables.
const MOST_WRITTEN_BYTES: usize = 1 << 24;
/// The longest list that a template can make or compare.
pub(super) const MOST_ITEMS: usize = 1 << 16;
/// How deeply a value is nested that is written or compared.
pub(super) const MOST_DEPTH: usize = 64;
/// Steps of a template without messages, and for each message. A message takes about a hundred.
const STEPS: u64 = 20_000;
const STEPS_PER_MESSAGE: u64 = 500;
const MOST_STEPS: u64 = 500_000;
/// A step nests a value by one level at most, and a level takes less than this to read or free.
const STACK_PER_STEP: usize = 512;

/// The steps that a template may take. Its own text is written without being counted, but one step writes only one part of it.
pub(super) fn fuel(messages: usize, source: &str) -> u64 {
    let parts = source.split("%}").flat_map(|part| part.split("}}"));
    let longest = parts.map(|part| part.find("{%").unwrap_or(part.len())).max().unwrap_or(0).max(1);
    let written = (2 * MOST_WRITTEN_BYTES / longest) as u64;
    (STEPS + STEPS_PER_MESSAGE * messages as u64).min(MOST_STEPS).min(written)
}

/// Runs something on a stack that suffices for the most steps. It is virtual memory, of which only what is used is taken.
pub(super) fn on_large_stack<T: Send>(
    run: impl FnOnce() -> Result<T, ChatTemplateError> + Send,
) -> Result<T, ChatTemplateError> {
    let size = MOST_STEPS as usize * STACK_PER_STEP;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(size).spawn_scoped(scope, run);
        let failed = |reason: &str| ChatTemplateError(format!("the chat template cannot be run: {reason}"));
        match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(failed("the template engine failed"))),
            Err(error) => Err(failed(&error.to_string())),
        }
    })
}

/// An error of a template that makes too much.
pub(super) fn too_large(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("it makes {what} that is too large"))
}

/// How much has been written.
#[derive(Default)]
pub(super) struct Written(AtomicUsize);

impl Written {
    /// Counts what is to be written.
    pub(super) fn add(&self, bytes: usize) -> Result<(), Error> {
        match self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MOST_WRITTEN_BYTES {
            true => Ok(()),
            false => Err(too_large("a text")),
        }
    }
}
