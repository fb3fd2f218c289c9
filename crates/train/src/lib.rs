//! Vitreous' training: recipes, schedules, the loop, checkpoints that resume to the bit, metrics, evaluation.
#![deny(unsafe_code)]

pub mod evaluation;
pub mod tensorboard;
