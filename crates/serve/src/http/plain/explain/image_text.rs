//! An image and captions, as the page that `vitreous explain` writes or as JSON.

use vitreous_engine::Device;
use vitreous_pages::explain_image_text::{ImageTextPage, page};
use vitreous_pages::explained::image_text::{PicturesAndCaptions, object};
use vitreous_runtime::ImageTextModel;

use super::{Explained, Shown, failed};
use crate::http::Input;
use crate::models::PreparedImage;
use crate::refusal::Refusal;
use crate::work::WorkError;

/// Each word of a caption is looked at by itself.
const MOST_CAPTIONS: usize = 16;

/// The captions of a request, one per line.
pub fn captions(input: &mut Input) -> Result<Vec<String>, Refusal> {
    let text = input.text.take().unwrap_or_default();
    let captions: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_string).collect();
    match captions.len() {
        0 => {
            let what = "this model compares an image with texts: send a form with `image`, and captions as `text`, one per line";
            Err(Refusal::field("text", what))
        }
        count if count > MOST_CAPTIONS => {
            Err(Refusal::field("text", format!("at most {MOST_CAPTIONS} captions are explained at once, not {count}")))
        }
        _ => Ok(captions),
    }
}

/// Where the image supports each caption.
pub fn explained(
    model: &ImageTextModel,
    device: &Device,
    image: &PreparedImage,
    captions: &[String],
    shown: &Shown,
) -> Result<Explained, WorkError> {
    let mut both = PicturesAndCaptions::new(model, captions, vitreous_runtime::threads(), device)?;
    let vector = both.vector(&image.numbers)?;
    let captions = both.explain(&image.numbers, &vector)?;
    if shown.as_json {
        return Ok(Explained::Json(object("image", &captions)));
    }
    let size = model.images.input.size;
    let seen = model.images.preprocess.undo(&image.numbers, [size.height, size.width]).map_err(failed)?;
    let html = page(&ImageTextPage {
        path: "image",
        model: &shown.name,
        seen: &seen,
        grid: both.grid(),
        captions: &captions,
        is_sigmoid: model.scores.bias.is_some(),
        similarity: &[("image".to_string(), both.cosines(&vector))],
    });
    Ok(Explained::Page(html.map_err(failed)?))
}
