//! The report of a run in progress, written again after each epoch.

use std::path::Path;

use vitreous_data::dataset::Splits;
use vitreous_train::RunRecord;

use crate::failure::Failure;
use vitreous_pages::report::pictures::Effort;
use vitreous_pages::report::{FILE, RunPictures, page};
use vitreous_pages::write::write_page;

/// Writes the report of a run.
pub struct LiveReport {
    data: Result<Splits, String>,
    threads: usize,
    told: bool,
}

impl LiveReport {
    /// Of a run on these images, which are open already, or on other data.
    pub fn new(images: Option<&Splits>, threads: usize) -> LiveReport {
        let data = images.cloned().ok_or_else(|| "The data of this run are no images.".to_string());
        LiveReport { data, threads, told: false }
    }

    /// Writes it. A report that cannot be written is no reason to stop: that is noted, and only once.
    pub fn write(&mut self, directory: &Path, effort: Effort) -> Option<String> {
        let written = RunRecord::read(directory).map_err(Failure::work).and_then(|run| {
            write_page(&directory.join(FILE), &page(&run, &RunPictures::of(&run, &self.data, self.threads, effort)))
                .map_err(Failure::from)
        });
        let failure = written.err().filter(|_| !self.told)?;
        self.told = true;
        Some(format!("note: the report cannot be written: {}", failure.text()))
    }
}
