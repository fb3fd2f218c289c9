//! Vitreous as a library: what an application does with a model, and what the `vitreous` command is made of.
//!
//! ```no_run
//! use std::path::Path;
//! use vitreous_runtime::{Classifier, ClassifierOptions};
//!
//! let mut classifier = Classifier::open(Path::new("runs/small-1"), &ClassifierOptions::default())?;
//! for answer in classifier.classify_file(Path::new("photo.jpg"))?.top(5) {
//!     println!("{:5.1} %  {}", 100.0 * answer.score, answer.label);
//! }
//! # Ok::<(), vitreous_runtime::Error>(())
//! ```
#![deny(unsafe_code)]

pub mod classes;
mod classifier;
pub mod device;
mod error;
pub mod image_model;
pub mod image_text;
mod interventions;
pub mod language;
pub mod locate;
pub mod runner;
pub mod scale;
pub mod scores;
pub mod sequences;
pub mod speech;
pub mod text;
pub mod training_graph;
pub mod translator;

pub use classifier::{Answer, Classifier, ClassifierOptions, Prediction};
pub use device::{DeviceChoice, described};
pub use error::Error;
pub use image_model::ImageModel;
pub use image_text::ImageTextModel;
pub use interventions::Intervene;
pub use locate::{architecture, open_model};
pub use runner::{OutputName, Runner};
pub use translator::{TextTranslator, TranslatorModel};
pub use vitreous_data::text::chat_template;
pub use vitreous_engine::{Edit, EditValues, Intervention};

/// As many threads as the machine has cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
