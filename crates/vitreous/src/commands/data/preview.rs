//! `vitreous data --preview`: a picture of what a model sees in training.

use std::path::Path;

use anyhow::{Context, anyhow};
use vitreous_data::dataset::Splits;
use vitreous_data::image::Channels;
use vitreous_data::image::augment::contact_sheet;
use vitreous_train::tasks::classify::augmentation;

use crate::commands::train;
use crate::failure::Failure;

/// Rows and columns of augmented images.
const SHEET: [usize; 2] = [6, 8];
/// Images with a longer side than this are shown with the recipe of larger models.
const SMALL: usize = 64;

/// Writes the picture.
pub fn write(file: &Path, splits: &Splits, recipe: Option<&str>, changes: &[String]) -> Result<(), Failure> {
    if splits.train.is_empty() {
        return Err(Failure::input(anyhow!("there are no training images, so there is nothing to preview")));
    }
    let name = recipe.unwrap_or_else(|| match first_size(splits) {
        Some(side) if side > SMALL => "imagenet-s16",
        _ => "cifar10-strong",
    });
    let (recipe, _) = train::read(name, changes)?;
    let Some(augmentation) = augmentation(&recipe) else {
        return Err(Failure::input(anyhow!("`{name}` is a recipe for {}: it has no images", recipe.task.name())));
    };
    let (augment, mixer) = augmentation.map_err(Failure::input)?;
    let seed = recipe.train.seed;
    let sheet = contact_sheet(splits.train.as_ref(), &splits.classes, &augment, mixer.as_ref(), seed, SHEET);
    let sheet = sheet.map_err(Failure::work)?;
    sheet.save_png(file).with_context(|| file.display().to_string()).map_err(Failure::Work)?;
    say!("{}: the first column as in validation, the others as recipe `{name}` augments them", file.display());
    Ok(())
}

/// The longer side of the first image that can be read.
fn first_size(splits: &Splits) -> Option<usize> {
    let images = (0..splits.train.len().min(100)).filter_map(|index| splits.train.image(index, Channels::Rgb).ok());
    images.map(|image| image.width().max(image.height())).next()
}
