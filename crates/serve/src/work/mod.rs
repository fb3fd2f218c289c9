//! Threads that own a model and compute what they are asked for. They know nothing of HTTP.

mod collector;
mod writer;

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
    /// Too much is waiting.
    #[error("too many requests are waiting")]
    Busy,
    /// It failed, for a reason that is told in the log.
    #[error("{0}")]
    Failed(String),
}

impl From<vitreous_runtime::Error> for WorkError {
    fn from(error: vitreous_runtime::Error) -> WorkError {
        match error.is_input() {
            true => WorkError::Input(error.to_string()),
            false => WorkError::Failed(error.to_string()),
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("a worker panicked: {}", text.unwrap_or("without a message"))
}
