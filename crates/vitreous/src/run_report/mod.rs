//! The report of a run: the pictures that its page needs besides the run's own files.

mod attention;
mod live;
mod mistakes;

use vitreous_data::dataset::Splits;
use vitreous_pages::report::{self, RunPictures};
use vitreous_train::RunRecord;

pub use attention::Effort;
pub use live::LiveReport;

/// The page of one run on this data, or with why that cannot be opened.
pub fn page(run: &RunRecord, data: &Result<Splits, String>, threads: usize, effort: Effort) -> String {
    // A recipe that cannot be read may be one for images.
    let takes_images = run.recipe.as_ref().map_or(true, |recipe| {
        recipe.architecture().is_ok_and(|architecture| architecture.signature().images().is_some())
    });
    let attention = takes_images.then(|| attention::examples(run, data, threads, effort));
    report::page(run, &RunPictures { mistakes: mistakes::images(run, data), attention })
}
