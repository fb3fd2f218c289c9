//! Images of the data that a run learned from, for who has none at hand.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use vitreous_data::image::{Preprocess, Scratch};
use vitreous_train::RunRecord;

use super::names::safe;
use crate::commands::eval::run_of;
use crate::failure::Failure;
use crate::prepared::{self, Prepared};
use vitreous_pages::report::pictures::samples::{shown_part, spread};

/// A few test images of a run's data, called like `test-800-Shirt`. `model` is the run's directory, or the model in it.
pub fn images(model: &Path, count: usize, preprocess: &Preprocess, floats: usize) -> Result<Vec<Prepared>, Failure> {
    let Some(directory) = run_of(model) else {
        return Err(Failure::input(anyhow!(
            "no image was named; without one, give the directory of a run, as in `vitreous explain runs/small-1`: \
             test images of its data are explained; a translator takes --text"
        )));
    };
    let run = RunRecord::read(&directory).map_err(Failure::input)?;
    let hint = "name images to explain";
    let name = directory.display();
    let recipe = run.recipe.map_err(|error| Failure::input(anyhow!("{name}/recipe.toml: {error}; {hint}")))?;
    let Some(data) = recipe.task.images(&recipe) else {
        return Err(Failure::input(anyhow!("{name}: this run trains a translator; give it a sentence: --text '..'")));
    };
    let data = data.map_err(|error| Failure::input(anyhow!("{name}: its data: {error}; {hint}")))?;
    let (part, part_name) = shown_part(&data);
    let mut scratch = Scratch::default();
    let prepared = |sample: usize| {
        let class = part.labels(sample).first().and_then(|&class| data.classes.get(class as usize));
        let class = class.map(|class| format!("-{}", safe(class))).unwrap_or_default();
        let decoded = part.image(sample, preprocess.channels).map_err(|error| error.to_string());
        let pixels = decoded.and_then(|image| prepared::prepare(&image, preprocess, floats, &mut scratch));
        Prepared { path: PathBuf::from(format!("{part_name}-{sample}{class}")), pixels }
    };
    Ok(spread(part, data.classes.len(), count).into_iter().map(prepared).collect())
}
