//! Vitreous' training: recipes, schedules, the loop, checkpoints that resume to the bit, metrics, evaluation.
#![deny(unsafe_code)]

pub mod checkpoint;
mod error;
mod evaluate;
pub mod evaluation;
mod events;
pub mod groups;
pub mod metrics;
pub mod recipe;
mod run_directory;
pub mod schedule;
pub mod step;
mod subject;
pub mod tensorboard;
mod trainer;
pub mod translation_scores;

pub use error::TrainError;
pub use recipe::{Recipe, RecipeError};
pub use run_directory::RunDirectory;
pub use step::StepResult;
pub use trainer::{Job, Observer, Outcome, Place, RunPlan, train};
