//! The images of a run's most confident mistakes.

use vitreous_data::dataset::{Dataset, Splits};
use vitreous_data::image::Image;
use vitreous_train::RunRecord;
use vitreous_train::evaluation::Mistake;

/// One image per mistake, or why it cannot be shown.
pub fn images(run: &RunRecord, data: &Result<Splits, String>) -> Result<Vec<Result<Image, String>>, String> {
    let validation = data.as_ref().map_err(Clone::clone)?.validation.as_ref();
    let mistakes = run.tested.iter().flat_map(|tested| &tested.mistakes);
    Ok(mistakes.map(|mistake| image(mistake, validation)).collect())
}

fn image(mistake: &Mistake, data: &dyn Dataset) -> Result<Image, String> {
    if mistake.sample >= data.len() || data.name(mistake.sample) != mistake.name {
        return Err("no longer in the data".to_string());
    }
    data.image(mistake.sample, data.channels()).map_err(|error| error.to_string())
}
