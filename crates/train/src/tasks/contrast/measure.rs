//! The scores of models of images and texts: classes that are only named, or whether images and captions find each other.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::scores::{Direction, Format, LOSS, Metric, Report, Score, Scores, nan_if_null, read_report};

const fn percent(key: &'static str, label: &'static str, decides: bool) -> Metric {
    Metric { key, label, format: Format::Percent, direction: Direction::HigherIsBetter, decides }
}

static ZERO_SHOT: Metric = percent("zero_shot", "zero-shot accuracy", true);
static IMAGE_1: Metric = percent("image_to_text_r1", "image to text recall@1", true);
static IMAGE_5: Metric = percent("image_to_text_r5", "image to text recall@5", false);
static TEXT_1: Metric = percent("text_to_image_r1", "text to image recall@1", false);
static TEXT_5: Metric = percent("text_to_image_r5", "text to image recall@5", false);

pub(super) static METRICS: [&Metric; 6] = [&LOSS, &ZERO_SHOT, &IMAGE_1, &IMAGE_5, &TEXT_1, &TEXT_5];

/// The report of an evaluation of a model of images and texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContrastReport {
    /// The number of pairs.
    pub image_text_pairs: u64,
    /// The mean loss, with batches as in training.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// How often an image is nearest to the description of its class, where the data has classes.
    #[serde(default)]
    pub zero_shot: Option<f64>,
    /// Where it has none: how often a right caption is the nearest, or among the five nearest; then the same for images.
    #[serde(default)]
    pub recall: Option<Recall>,
}

/// How often the right one is the nearest, or among the five nearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recall {
    /// Of an image the captions, at 1 and at 5.
    pub image_to_text: [f64; 2],
    /// Of a caption the images.
    pub text_to_image: [f64; 2],
}

/// The share of rows with a right column among the nearest one, and among the nearest five. `is_right(row, column)`.
fn recall(rows: &[&[f32]], columns: &[&[f32]], is_right: impl Fn(usize, usize) -> bool) -> [f64; 2] {
    let mut found = [0_u64; 2];
    for (index, row) in rows.iter().enumerate() {
        let cosines: Vec<f32> =
            columns.iter().map(|column| row.iter().zip(*column).map(|(a, b)| a * b).sum()).collect();
        let rights = cosines.iter().enumerate().filter(|&(column, _)| is_right(index, column));
        let best = rights.map(|(_, &cosine)| cosine).fold(f32::NEG_INFINITY, f32::max);
        let better = cosines.iter().enumerate().filter(|&(column, &c)| c > best && !is_right(index, column)).count();
        found[0] += u64::from(better < 1);
        found[1] += u64::from(better < 5);
    }
    found.map(|count| count as f64 / rows.len().max(1) as f64)
}

/// Recall in both directions of vectors of length 1; a caption that occurs more than once is right for all of its images.
pub fn recalls(images: &[&[f32]], texts: &[&[f32]], captions: &[&str]) -> Recall {
    let same = |a: usize, b: usize| captions[a] == captions[b];
    Recall { image_to_text: recall(images, texts, same), text_to_image: recall(texts, images, same) }
}

/// How often the class with the largest cosine is an image's own.
pub fn zero_shot(images: &[&[f32]], classes: &[Vec<f32>], own: &[u32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let is_right = |(image, own): &(&&[f32], &u32)| {
        let cosines: Vec<f32> = classes.iter().map(|class| dot(image, class)).collect();
        let right = cosines[**own as usize];
        cosines.iter().enumerate().all(|(class, &cosine)| cosine < right || class == **own as usize)
    };
    images.iter().zip(own).filter(is_right).count() as f64 / images.len().max(1) as f64
}

impl ContrastReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let mut all = vec![(&LOSS, self.loss)];
        all.extend(self.zero_shot.map(|share| (&ZERO_SHOT, share)));
        if let Some(Recall { image_to_text, text_to_image }) = self.recall {
            all.extend([(&IMAGE_1, image_to_text[0]), (&IMAGE_5, image_to_text[1])]);
            all.extend([(&TEXT_1, text_to_image[0]), (&TEXT_5, text_to_image[1])]);
        }
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<ContrastReport, String>> {
        read_report(value, "image_text_pairs")
    }
}

impl Report for ContrastReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.image_text_pairs, "pairs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_find_captions_and_captions_images() {
        let images: [&[f32]; 3] = [&[1.0, 0.0], &[0.0, 1.0], &[0.6, 0.8]];
        let texts: [&[f32]; 3] = [&[1.0, 0.0], &[0.8, 0.6], &[0.0, 1.0]];
        let found = recalls(&images, &texts, &["a", "b", "c"]);
        // The first image finds its own; the second is nearer to the third caption, and the third image to the second.
        assert_eq!(found.image_to_text, [1.0 / 3.0, 1.0]);
        assert_eq!(found.text_to_image, [1.0 / 3.0, 1.0]);
        // Where the last two captions are the same text, either is right.
        assert_eq!(recalls(&images, &texts, &["a", "b", "b"]).image_to_text, [1.0, 1.0]);
        let classes = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
        assert!((zero_shot(&images, &classes, &[0, 1, 0]) - 2.0 / 3.0).abs() < 1e-12);
    }
}
