//! What the tasks of texts have in common: an encoder with its tokenizer, pretrained or not, that is trained for an objective.
//!
//! A task of texts is a [`TextTaskType`] with its settings, and a `TextObjective`: batches, loss, evaluation. The rest is here.

mod encoder;
mod facts;
mod settings;
mod task;
mod task_type;

pub(crate) use encoder::{KEPT_SETTINGS, TrainedEncoder, run_texts};
pub(crate) use facts::TextData;
pub use settings::{TextFinetuneSettings, TextLengthSettings, TextTrainSettings};
pub(crate) use task::TextObjective;
pub use task::TextTask;
pub(crate) use task_type::finetuning_recipe;
pub use task_type::{TextTaskSettings, TextTaskType};

/// The first words of a text, for messages and pages.
pub(crate) fn beginning(text: &str, characters: usize) -> String {
    let mut short: String = text.chars().take(characters).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
