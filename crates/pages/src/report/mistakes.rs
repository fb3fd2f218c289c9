//! The mistakes with the highest confidence, with their images.

use crate::{escape, image};
use vitreous_data::image::{Image, ImageError, Interpolation, resize};
use vitreous_train::Evaluation;
use vitreous_train::tasks::classify::ClassifyReport;
use vitreous_train::tasks::classify::metrics::Mistake;

use super::of_evaluation;

/// The longer side of a thumbnail, in pixels.
const SIDE: usize = 112;

/// The section. Names and predictions are always there, images where the data can still be opened.
pub fn html(
    evaluation: &Evaluation,
    report: &ClassifyReport,
    images: &Result<Vec<Result<Image, String>>, String>,
) -> String {
    let mut html = of_evaluation(evaluation);
    if report.mistakes.is_empty() {
        html.push_str("<p>There are none: every prediction is right.</p>");
        return html;
    }
    html.push_str("<p>Wrong predictions with the highest confidence. Look here first for wrong labels, and for classes that look alike.</p>");
    if let Err(error) = images {
        html.push_str(&format!(
            "<p class=\"note warn\">Their images are not shown: the data cannot be opened. {}</p>",
            escape(error)
        ));
    }
    html.push_str("<div class=\"mistakes\">");
    for (place, mistake) in report.mistakes.iter().enumerate() {
        let image = images.as_ref().ok().and_then(|images| images.get(place));
        html.push_str(&one(mistake, &report.names, image));
    }
    html.push_str("</div>");
    html
}

fn one(mistake: &Mistake, names: &[String], picture: Option<&Result<Image, String>>) -> String {
    let [label, answer] = [mistake.label, mistake.answer].map(|class| &names[class as usize]);
    let said = format!("{label}, predicted as {answer}");
    let picture = match picture {
        None => String::new(),
        Some(Ok(picture)) => element(picture, &said).unwrap_or_else(|error| lost(&error.to_string())),
        Some(Err(why)) => lost(why),
    };
    format!(
        "<figure data-sample=\"{}\" data-label=\"{}\" data-answer=\"{}\">{picture}<figcaption><strong>{}</strong> predicted as <strong>{}</strong>, {:.1} %<span class=\"name\">{}</span></figcaption></figure>",
        mistake.sample,
        mistake.label,
        mistake.answer,
        escape(label),
        escape(answer),
        // Rounding must not make a mistake certain.
        (1000.0 * mistake.confidence).floor() / 10.0,
        escape(&mistake.name)
    )
}

fn lost(why: &str) -> String {
    format!("<span class=\"lost\">{}</span>", escape(why))
}

fn element(picture: &Image, alternative: &str) -> Result<String, ImageError> {
    image(&thumbnail(picture)?, alternative, "pixels")
}

/// An image no larger than a thumbnail.
fn thumbnail(image: &Image) -> Result<Image, ImageError> {
    let (width, height) = (image.width(), image.height());
    let longer = width.max(height);
    if longer <= SIDE {
        return Ok(image.clone());
    }
    let scaled = |side: usize| (side * SIDE / longer).max(1);
    resize(image, scaled(height), scaled(width), Interpolation::Box)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitreous_data::image::Channels;

    #[test]
    fn photographs_become_small_and_keep_their_form() {
        let size = |width: usize, height: usize| {
            let image = Image::new(width, height, Channels::Grey, vec![7; width * height]).expect("an image");
            let small = thumbnail(&image).expect("a thumbnail");
            assert!(small.pixels().iter().all(|&byte| byte == 7));
            [small.width(), small.height()]
        };
        assert_eq!(size(28, 28), [28, 28]);
        assert_eq!(size(448, 224), [112, 56]);
        assert_eq!(size(3, 2000), [1, 112]);
    }
}
