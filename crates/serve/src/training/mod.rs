//! Training runs of a folder: what they are, and what they write while they train. It knows no HTTP.

mod folder;
mod pictures;
mod summary;
mod watcher;

pub use folder::{RunError, RunFolder};
pub use summary::RunSummary;
pub use watcher::{Listener, RunEvent, RunWatchers, TooManyListeners};
