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
pub mod record;
mod run_directory;
pub mod schedule;
mod sittings;
pub mod step;
mod subject;
pub mod tensorboard;
mod tested;
mod trainer;

pub use error::TrainError;
pub use recipe::{Recipe, RecipeError};
pub use record::{Fault, RunRecord};
pub use run_directory::RunDirectory;
pub use sittings::Sitting;
pub use step::StepResult;
pub use tested::{Tested, TestedAbout, TestedScores};
pub use trainer::{Job, Observer, Outcome, Place, RunPlan, train};
