//! The picture of an input as the model sees it.

use vitreous_data::image::{Channels, Image};
use vitreous_explain::live::LiveInput;

use super::{Watched, WatchedInput, WatchedModel};
use crate::work::WorkError;

impl Watched {
    /// An image at the model's size, or the spectrogram of a recording with low tones below, as a PNG; `None` of texts.
    pub fn picture(&self, input: &WatchedInput) -> Result<Option<Vec<u8>>, WorkError> {
        let broken = |error: vitreous_data::image::ImageError| WorkError::Failed(error.to_string());
        let image = match (&self.model, &input.live) {
            (WatchedModel::Image(model) | WatchedModel::ImageText(model), LiveInput::Image(pixels)) => {
                let size = model.input.size;
                model.preprocess.undo(pixels, [size.height, size.width]).map_err(broken)?
            }
            (WatchedModel::Speech(model), LiveInput::Audio { mel, .. }) => {
                let (frames, bins) = (model.input.frames, model.input.bins);
                let (low, high) =
                    mel.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
                let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
                let grey = |at: usize| ((mel[at % frames * bins + bins - 1 - at / frames] - low) * scale) as u8;
                Image::new(frames, bins, Channels::Grey, (0..frames * bins).map(grey).collect()).map_err(broken)?
            }
            _ => return Ok(None),
        };
        image.to_png().map(Some).map_err(broken)
    }
}
