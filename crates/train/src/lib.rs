//! Training: recipes, tasks, schedules, the loop, checkpoints that resume to the bit, metrics, evaluation.
//!
//! A [`Task`] brings the data, the graph of a batch with its loss, and the evaluation; [`train`] does the rest. A [`Recipe`] names its
//! task and has every setting. [`RunRecord`] reads what a run has written.
#![deny(unsafe_code)]

pub mod checkpoint;
mod error;
mod evaluation;
mod events;
mod finetuning;
pub mod fingerprint;
pub mod follow;
pub mod groups;
pub mod measures;
pub mod memory;
pub mod metrics;
mod observer;
pub mod ranks;
pub mod recipe;
pub mod record;
mod run_directory;
pub mod schedule;
mod scores;
mod sessions;
pub mod stepper;
mod task;
pub mod tasks;
pub mod tensorboard;
mod trainer;
pub mod watch;

pub use error::TrainError;
pub use evaluation::{Evaluation, EvaluationAbout};
pub use finetuning::PretrainedSettings;
pub use fingerprint::Fingerprint;
pub use observer::{CheckpointAverage, EpochSummary, Observer, Outcome, RunPlan};
pub use ranks::Ranks;
pub use recipe::{Recipe, RecipeError};
pub use record::{Fault, RunRecord};
pub use run_directory::RunDirectory;
pub use scores::{Direction, Format, LOSS, Metric, Report, Score, Scores};
pub use sessions::Session;
pub use stepper::StepResult;
pub use task::{
    Averaging, Chunked, ChunkedLoss, Correct, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting,
};
pub use tasks::TASKS;
pub use trainer::{RunOptions, RunTarget, train};
