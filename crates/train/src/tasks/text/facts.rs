//! What the training loop must know of batches of texts.

use vitreous_data::loader::BatchSource;

use crate::error::TrainError;
use crate::task::{Averaging, TaskFacts, Weighting, thousands};

/// The data of a task of texts in words and numbers.
pub(crate) struct TextData<'d> {
    /// The name of the file or folder.
    pub name: String,
    /// Training and validation samples.
    pub samples: [usize; 2],
    /// What a sample is: "texts", "pairs".
    pub unit: &'static str,
    /// What else there is to say of it in a line, after a comma or a semicolon.
    pub more: String,
    /// What a user should know about it.
    pub notes: Vec<String>,
    /// The batches.
    pub batches: &'d dyn BatchSource,
    /// Samples per batch.
    pub batch: usize,
    /// What a sample counts in the size of a batch: 2 texts of a pair.
    pub texts_per_sample: usize,
}

impl TextData<'_> {
    /// What the training loop must know. Speed is measured in samples, and all batches count the same.
    pub fn facts(self) -> Result<TaskFacts, TrainError> {
        let TextData { name, samples: [samples, validation], unit, more, notes, batches, batch, .. } = self;
        let per_epoch = batches.batches_per_epoch();
        if per_epoch == 0 {
            let what = format!("a batch of {batch} is more than the {samples} training {unit}; lower train.batch");
            return Err(TrainError::Data(what));
        }
        let (train, held_out) = (thousands(samples), thousands(validation));
        Ok(TaskFacts {
            summary: format!("{name}: {train} training {unit}, {held_out} validation {unit}{more}"),
            data: name,
            notes,
            samples,
            unit,
            units_per_epoch: (per_epoch * batch) as u64,
            // Tokens are quickly put into batches.
            loader_threads: 1,
            weighting: Weighting::Equal,
            batch_size: ("train.batch", batch),
            row_sizes: vec![self.texts_per_sample; batches.groups().len()],
            averaging: Averaging::default(),
        })
    }
}
