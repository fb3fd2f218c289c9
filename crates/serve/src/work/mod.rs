//! Threads that own a model and compute what they are asked for. They know nothing of HTTP.

mod collector;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use collector::{Arrival, BatchWork, Collector, CollectorSettings};
pub use writer::{WriteEvent, WriteRequest, Writer, WriterGauges, WriterSettings};

/// Why work gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// Other input would be answered.
    #[error("{0}")]
    Input(String),
    /// Less would be answered.
    #[error("{0}")]
    TooLarge(String),
    /// There is not enough memory for it now, for a reason that is told in the log.
    #[error("{0}")]
    Memory(String),
    /// Too much is waiting.
    #[error("too many requests are waiting")]
    Busy,
    /// It failed, for a reason that is told in the log.
    #[error("{0}")]
    Failed(String),
}

impl From<vitreous_runtime::Error> for WorkError {
    fn from(error: vitreous_runtime::Error) -> WorkError {
        match error {
            // For a command that is input, since another model or batch would fit; clients choose neither.
            vitreous_runtime::Error::Engine(vitreous_engine::Error::Memory(what)) => WorkError::Memory(what),
            error if error.is_input() => WorkError::Input(error.to_string()),
            error => WorkError::Failed(error.to_string()),
        }
    }
}

impl WorkError {
    /// Whether the server is to blame, so that its log says what happened. What is wrong with a request is told to whoever sent it.
    pub fn is_ours(&self) -> bool {
        matches!(self, WorkError::Failed(_) | WorkError::Memory(_))
    }
}

/// What `work` gives, or what its panic said. What it left half done is to be thrown away.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, WorkError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| WorkError::Failed(panic_text(panic.as_ref())))
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("a worker panicked: {}", text.unwrap_or("without a message"))
}
