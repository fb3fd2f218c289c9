//! The images of a run's most confident mistakes.

use vitreous_data::dataset::{Dataset, Splits};
use vitreous_data::image::Image;
use vitreous_train::RunRecord;
use vitreous_train::tasks::classify::ClassifyReport;
use vitreous_train::tasks::classify::metrics::Mistake;

/// One image per mistake, or why it cannot be shown.
pub fn images(run: &RunRecord, data: &Result<Splits, String>) -> Result<Vec<Result<Image, String>>, String> {
    let validation = data.as_ref().map_err(Clone::clone)?.validation.as_ref();
    let report = run.evaluation.as_ref().and_then(|evaluation| evaluation.scores.report::<ClassifyReport>());
    let mistakes = report.map_or(&[][..], |report| &report.mistakes);
    Ok(mistakes.iter().map(|mistake| image(mistake, validation)).collect())
}

fn image(mistake: &Mistake, data: &dyn Dataset) -> Result<Image, String> {
    if mistake.sample >= data.len() || data.name(mistake.sample) != mistake.name {
        return Err("no longer in the data".to_string());
    }
    data.image(mistake.sample, data.channels()).map_err(|error| error.to_string())
}
