//! Vitreous' training: recipes, schedules, the loop, checkpoints that resume to the bit, metrics, evaluation.
#![deny(unsafe_code)]

pub mod checkpoint;
mod error;
mod evaluate;
pub mod evaluation;
mod events;
pub mod fits;
pub mod groups;
mod image_input;
mod images;
pub mod metrics;
pub mod recipe;
pub mod record;
mod run_directory;
pub mod schedule;
mod sittings;
pub mod step;
mod subject;
mod task;
pub mod tensorboard;
mod tested;
mod trainer;
pub mod translation;
pub mod translation_scores;

pub use error::TrainError;
pub use recipe::{AnyRecipe, Recipe, RecipeError, TranslationRecipe};
pub use record::{Fault, RunRecord};
pub use run_directory::RunDirectory;
pub use sittings::Sitting;
pub use step::StepResult;
pub use task::SpeedUnit;
pub use tested::{Tested, TestedAbout, TestedScores};
pub use trainer::{Observer, Orders, Outcome, Place, RunPlan, Work, train};
