//! Where the model looks in a few validation images.

use vitreous_data::image::{Image, ImageError};
use vitreous_explain::Reader;
use vitreous_models::Size;

use crate::explain::HARD_EDGES_BELOW;
use crate::explain::maps::{ROLLOUT_PERCENTILE, Scale, overlay};
use crate::explain::packed;
use crate::{escape, image};

/// Attention in some images.
pub struct AttentionExamples {
    /// The model directory, for the command that shows more.
    pub model: String,
    /// Whose attention is shown.
    pub reader: Reader,
    /// The images.
    pub images: Vec<AttentionExample>,
}

/// Attention in one image.
pub struct AttentionExample {
    /// Its classes.
    pub truth: String,
    /// What the model says.
    pub answer: String,
    /// The image as the model sees it.
    pub seen: Image,
    /// Rows and columns of patches.
    pub grid: Size,
    /// Attention to each patch in the last layer, the mean over heads.
    pub last_layer: Vec<f32>,
    /// Rollout, one value per patch.
    pub rollout: Vec<f32>,
}

/// The section; one sentence where there is nothing to show.
pub fn html(examples: &Result<AttentionExamples, String>) -> String {
    let examples = match examples {
        Ok(examples) if !examples.images.is_empty() => examples,
        Ok(_) => return "<p>No image could be read.</p>".to_string(),
        Err(why) => return format!("<p>{}</p>", escape(why)),
    };
    let reader = match examples.reader {
        Reader::ClassToken => "of the class token",
        Reader::MeanOfPatches => "of all patches together",
    };
    let mut html = format!(
        "<p>For each image: as the model sees it; the attention {reader} in the last layer, averaged over heads; and attention \
         rollout, which follows attention through all layers. <code>vitreous explain {} IMAGE</code> shows every layer and head \
         (without IMAGE, for validation images).</p><div class=\"attention\">",
        escape(&examples.model)
    );
    for example in &examples.images {
        match figure(example) {
            Ok(figure) => html.push_str(&figure),
            Err(error) => html.push_str(&format!("<p class=\"note\">{}</p>", escape(&error.to_string()))),
        }
    }
    html.push_str("</div>");
    html
}

fn figure(example: &AttentionExample) -> Result<String, ImageError> {
    let AttentionExample { truth, answer, seen, grid, last_layer, rollout } = example;
    let pictures = [
        ("image", None, seen.clone(), format!("The image, {truth}")),
        (
            "last layer",
            Some(last_layer),
            overlay(seen, *grid, last_layer, Scale::of(last_layer))?,
            format!("Attention in the last layer over the image, {truth}"),
        ),
        (
            "rollout",
            Some(rollout),
            overlay(seen, *grid, rollout, Scale::up_to(rollout, ROLLOUT_PERCENTILE))?,
            format!("Attention rollout over the image, {truth}"),
        ),
    ];
    let mut html = "<figure><div class=\"maps\">".to_string();
    for (name, values, picture, alternative) in pictures {
        let class = if picture.width() < HARD_EDGES_BELOW { "pixels" } else { "" };
        // The drawn numbers, as the pages of explanations have them: an overlay alone cannot be read back.
        let values = values.map(|values| format!(" data-map=\"{}\"", packed::floats(values))).unwrap_or_default();
        html.push_str(&format!("<div{values}>{}<span>{name}</span></div>", image(&picture, &alternative, class)?));
    }
    html.push_str(&format!(
        "</div><figcaption><strong>{}</strong>{}</figcaption></figure>",
        escape(truth),
        escape(answer)
    ));
    Ok(html)
}
