//! The tasks that models can be trained for: a folder each, and this list.

pub mod classify;
pub mod translate;

use crate::task::TaskType;

/// All tasks. A recipe that names none is of the first.
pub static TASKS: [&dyn TaskType; 2] = [&classify::Classification, &translate::Translation];
