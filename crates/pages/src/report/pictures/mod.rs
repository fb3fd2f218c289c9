//! The pictures of a run's page, which are not in the run directory: of its mistakes, and of where its model looks.

mod attention;
mod mistakes;
pub mod samples;

use vitreous_data::dataset::Splits;
use vitreous_data::image::Image;
use vitreous_train::RunRecord;

use super::attention::AttentionExamples;
pub use attention::Effort;

/// The pictures. Where something is missing, the reason.
pub struct RunPictures {
    /// The images of the most confident mistakes, in the order of [`vitreous_train::tasks::classify::ClassifyReport::mistakes`].
    pub mistakes: Result<Vec<Result<Image, String>>, String>,
    /// Attention in some images; `None` for a model that sees no images.
    pub attention: Option<Result<AttentionExamples, String>>,
}

impl RunPictures {
    /// Of one run on this data, or with why that cannot be opened.
    pub fn of(run: &RunRecord, data: &Result<Splits, String>, threads: usize, effort: Effort) -> RunPictures {
        // A recipe that cannot be read may be one for images.
        let takes_images = run.recipe.as_ref().map_or(true, |recipe| {
            recipe.architecture().is_ok_and(|architecture| architecture.signature().images().is_some())
        });
        let attention = takes_images.then(|| attention::examples(run, data, threads, effort));
        RunPictures { mistakes: mistakes::images(run, data), attention }
    }
}

/// The images that a run learns from, or why there are none.
pub fn data(run: &RunRecord) -> Result<Splits, String> {
    match &run.recipe {
        Ok(_) if run.lacks("data.path") => Err("The recipe does not name it.".to_string()),
        Ok(recipe) => {
            let images = recipe.task.images(recipe);
            images.unwrap_or_else(|| Err("The data of this run are no images.".to_string()))
        }
        Err(_) => Err("The recipe, which names it, cannot be understood.".to_string()),
    }
}
