//! The report of a run that goes on, written again after each epoch.

use std::path::Path;

use vitreous_data::dataset::Splits;
use vitreous_train::RunRecord;

use super::{Effort, FILE, Sources, page};
use crate::failure::Failure;
use crate::pages::write::write_page;

/// Writes the report of a run.
pub struct LiveReport {
    sources: Sources,
    told: bool,
}

impl LiveReport {
    /// Of a run on this data, which is open already.
    pub fn new(splits: &Splits, threads: usize) -> LiveReport {
        LiveReport { sources: Sources { data: Ok(splits.clone()), threads }, told: false }
    }

    /// Writes it. A report that cannot be written is no reason to stop: that is noted, and only once.
    pub fn write(&mut self, directory: &Path, effort: Effort) -> Option<String> {
        let written = RunRecord::read(directory)
            .map_err(Failure::work)
            .and_then(|run| write_page(&directory.join(FILE), &page(&run, &self.sources, effort)));
        let failure = written.err().filter(|_| !self.told)?;
        self.told = true;
        Some(format!("note: the report cannot be written: {}", failure.text()))
    }
}
