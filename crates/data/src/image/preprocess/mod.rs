//! Preprocessing: resize, crop, rescale, normalise.

mod hugging_face;
mod settings;
mod timm;

use crate::image::augment::Picture;
use crate::image::decode::{Channels, Image};
use crate::image::error::ImageError;
use crate::image::geometry::{Crop, Placement, Resize};
use crate::image::resample::{Interpolation, ResampleScratch, Span, resize_part};
use crate::image::view::View;

/// How an image is prepared for a model.
///
/// The image is resized and cropped as bytes; a byte `v` of channel `c` then becomes
/// `(v * rescale_factor + rescale_offset - mean[c]) / std[c]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocess {
    /// The size to which the image is resized first.
    pub resize: Resize,
    /// The resampling filter.
    pub interpolation: Interpolation,
    /// The centre crop; none keeps the whole image.
    pub crop: Option<Crop>,
    /// The factor of bytes, usually 1/255.
    pub rescale_factor: f64,
    /// What is added after that, usually 0.
    pub rescale_offset: f32,
    /// The mean of each channel, which is subtracted.
    pub mean: Vec<f32>,
    /// The standard deviation of each channel, which it is divided by.
    pub std: Vec<f32>,
    /// The channels of the model's input.
    pub channels: Channels,
}

/// Memory that [`Preprocess::apply`] and [`Augment::apply`](crate::image::augment::Augment::apply) reuse from image to image.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) resample: ResampleScratch,
    pub(crate) picture: Picture,
}

/// The value of each byte after rescaling and normalisation.
pub(crate) type Table = [f32; 256];

impl Preprocess {
    /// The preprocessing of a model without a configuration: that of `timm`'s Vision Transformers.
    ///
    /// The image is resized (bicubic) so that the model's input covers 0.9 of the shorter side, cropped at the centre, and scaled to -1..1
    /// (mean and standard deviation 0.5). The aspect ratio is kept because training crops keep it, too. Where the input is not square,
    /// `timm` resizes with a bilinear filter, and so does this.
    pub fn default_for(image_size: [usize; 2], channels: Channels) -> Preprocess {
        let half = vec![0.5; channels.count()];
        timm::center(image_size, 0.9, Interpolation::Bicubic, half.clone(), half, channels)
    }

    /// The same for a model that runs at another image size: resize and crop are scaled alike.
    ///
    /// Afterwards [`output_size`](Self::output_size) is `size`, even where the configuration has no fixed size.
    #[must_use]
    pub fn with_image_size(mut self, size: [usize; 2]) -> Preprocess {
        let size = size.map(|side| side.max(1));
        let old = self.crop.as_ref().map_or_else(|| self.resize.basis(), |crop| Some(crop.size));
        let Some(old) = old else {
            // Nothing is resized or cropped: there is no ratio to keep.
            self.resize = Resize::Exact(size);
            return self;
        };
        let by = |target: usize, length: usize, basis: usize| {
            let scaled = length as f64 * target as f64 / basis as f64;
            (scaled.round() as usize).max(1)
        };
        let same_shape = size[0] * old[1] == size[1] * old[0];
        self.resize = match self.resize {
            // One number cannot describe an input whose sides changed by different factors.
            Resize::ShorterSide(side) if !same_shape => {
                let covered = |axis: usize| by(size[axis], side, old[0].min(old[1]));
                Resize::Cover([covered(0), covered(1)])
            }
            resize => resize.scaled(|[height, width]| [by(size[0], height, old[0]), by(size[1], width, old[1])]),
        };
        match &mut self.crop {
            Some(crop) => crop.size = size,
            None if matches!(self.resize, Resize::Exact(_)) => {}
            None => {
                let fill = vec![0; self.channels.count()];
                self.crop = Some(Crop { size, placement: Placement::HuggingFace, fill });
            }
        }
        self
    }

    /// The same for a model that takes other channels than the configuration is for: grey is normalised by the mean of the colours'
    /// values, colour by the grey's.
    #[must_use]
    pub fn with_channels(mut self, channels: Channels) -> Preprocess {
        if self.channels == channels {
            return self;
        }
        let spread = |values: &[f32]| {
            let mean = values.iter().sum::<f32>() / values.len().max(1) as f32;
            vec![mean; channels.count()]
        };
        (self.mean, self.std) = (spread(&self.mean), spread(&self.std));
        if let Some(crop) = &mut self.crop {
            let fill: Vec<f32> = crop.fill.iter().map(|&value| f32::from(value)).collect();
            crop.fill = spread(&fill).into_iter().map(|value| value.round() as u8).collect();
        }
        self.channels = channels;
        self
    }

    /// Height and width of the output, if they are the same for all images.
    pub fn output_size(&self) -> Option<[usize; 2]> {
        match (&self.crop, self.resize) {
            (Some(crop), _) => Some(crop.size),
            (None, Resize::Exact(size)) => Some(size),
            (None, _) => None,
        }
    }

    /// Height and width of the output for this image.
    pub fn output_size_for(&self, image: &Image) -> [usize; 2] {
        self.output_size().unwrap_or_else(|| self.resize.size_for([image.height(), image.width()]))
    }

    /// How many of the image's own rows and columns are in the output, padding not counted: all of them, unless a crop cuts some off.
    pub fn rows_and_columns_seen(&self, image: &Image) -> [usize; 2] {
        let Placed { resized, rows, columns } = self.place(image);
        let seen = |kept: usize, resized: usize, all: usize| (kept * all).div_ceil(resized.max(1)).min(all);
        [seen(rows.source.length, resized[0], image.height()), seen(columns.source.length, resized[1], image.width())]
    }

    /// Prepares an image. `out` has `channels * height * width` elements, channels first.
    pub fn apply(&self, image: &Image, scratch: &mut Scratch, out: &mut [f32]) -> Result<(), ImageError> {
        let count = self.channels.count();
        let [height, width] = self.check(image, out.len())?;
        let Placed { resized, rows, columns } = self.place(image);
        let scratch = &mut scratch.resample;
        resize_part(View::of(image), resized, self.interpolation, rows.source, columns.source, scratch)?;
        for channel in 0..count {
            let table = self.table(channel);
            let fill = self.crop.as_ref().and_then(|crop| crop.fill.get(channel)).copied().unwrap_or(0);
            let plane = &mut out[channel * height * width..][..height * width];
            if rows.source.length < height || columns.source.length < width {
                plane.fill(table[usize::from(fill)]);
            }
            let lines = scratch.resized.chunks_exact((columns.source.length * count).max(1));
            let places = plane.chunks_exact_mut(width).skip(rows.before);
            for (line, place) in lines.zip(places) {
                let bytes = line[channel..].iter().step_by(count);
                for (number, &byte) in place[columns.before..].iter_mut().zip(bytes) {
                    *number = table[usize::from(byte)];
                }
            }
        }
        Ok(())
    }

    /// Prepares an image without normalising it. `pixels` has `height * width * channels` bytes, channels last.
    pub(crate) fn apply_raw(&self, image: &Image, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<(), ImageError> {
        let count = self.channels.count();
        let [height, width] = self.check(image, pixels.len())?;
        let Placed { resized, rows, columns } = self.place(image);
        let scratch = &mut scratch.resample;
        resize_part(View::of(image), resized, self.interpolation, rows.source, columns.source, scratch)?;
        if rows.source.length < height || columns.source.length < width {
            let fill =
                |channel: usize| self.crop.as_ref().and_then(|crop| crop.fill.get(channel)).copied().unwrap_or(0);
            pixels.iter_mut().enumerate().for_each(|(place, byte)| *byte = fill(place % count));
        }
        let length = columns.source.length * count;
        let lines = scratch.resized.chunks_exact(length.max(1));
        let places = pixels.chunks_exact_mut((width * count).max(1)).skip(rows.before);
        for (line, place) in lines.zip(places) {
            place[columns.before * count..][..length].copy_from_slice(line);
        }
        Ok(())
    }

    /// The image that a prepared tensor came from, for display: what a model sees.
    pub fn undo(&self, numbers: &[f32], [height, width]: [usize; 2]) -> Result<Image, ImageError> {
        let count = self.channels.count();
        let expected = height.saturating_mul(width).saturating_mul(count);
        if numbers.len() != expected || self.mean.len() != count || self.std.len() != count {
            return Err(ImageError::Output { expected, got: numbers.len() });
        }
        let plane = height * width;
        let bytes = (0..plane * count).map(|at| {
            let (pixel, channel) = (at / count, at % count);
            self.byte(numbers[channel * plane + pixel], channel)
        });
        Image::new(width, height, self.channels, bytes.collect())
    }

    /// The byte of a normalised value.
    pub(crate) fn byte(&self, number: f32, channel: usize) -> u8 {
        let rescaled = number * self.std[channel] + self.mean[channel] - self.rescale_offset;
        (f64::from(rescaled) / self.rescale_factor).round() as u8
    }

    /// Height and width of the output; an error if the image or the output does not match.
    pub(crate) fn check(&self, image: &Image, room: usize) -> Result<[usize; 2], ImageError> {
        let count = self.channels.count();
        if image.channels() != self.channels || self.mean.len() != count || self.std.len() != count {
            return Err(ImageError::Channels { expected: self.mean.len(), got: image.channels().count() });
        }
        let [height, width] = self.output_size_for(image);
        let expected = height.saturating_mul(width).saturating_mul(count);
        if room != expected {
            return Err(ImageError::Output { expected, got: room });
        }
        Ok([height, width])
    }

    /// The size after resizing, and the part of it that is kept.
    pub(crate) fn place(&self, image: &Image) -> Placed {
        let [height, width] = self.output_size_for(image);
        let resized = self.resize.size_for([image.height(), image.width()]);
        let start = |axis: usize, wanted: usize| match &self.crop {
            Some(crop) => crop.placement.start(resized[axis], wanted),
            None => 0,
        };
        let rows = Part::of(resized[0], start(0, height), height);
        let columns = Part::of(resized[1], start(1, width), width);
        Placed { resized, rows, columns }
    }

    /// Rounds where `transformers` does: to f32 after the factor, and after each step of the normalisation.
    pub(crate) fn table(&self, channel: usize) -> Table {
        let (mean, std) = (self.mean[channel], self.std[channel]);
        std::array::from_fn(|byte| {
            let rescaled = (byte as f64 * self.rescale_factor) as f32 + self.rescale_offset;
            (rescaled - mean) / std
        })
    }
}

/// The position of the output in the resized image.
pub(crate) struct Placed {
    pub resized: [usize; 2],
    pub rows: Part,
    pub columns: Part,
}

/// The part of a resized line that is used, and the padding before it.
pub(crate) struct Part {
    pub source: Span,
    pub before: usize,
}

impl Part {
    fn of(length: usize, start: isize, wanted: usize) -> Part {
        let before = start.min(0).unsigned_abs().min(wanted);
        let start = start.max(0).unsigned_abs().min(length);
        Part { source: Span { start, length: (length - start).min(wanted - before) }, before }
    }
}

impl Resize {
    /// The target size of this resize.
    fn basis(self) -> Option<[usize; 2]> {
        match self {
            Resize::None => None,
            Resize::Exact(size) | Resize::Within(size) | Resize::Cover(size) | Resize::Fit(size) => Some(size),
            Resize::ShorterSide(side) | Resize::ShorterSideWithin { shorter: side, .. } => Some([side, side]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_prepared_can_be_looked_at() {
        let bytes: Vec<u8> = (0..4 * 2 * 3).map(|at| (at * 37 % 256) as u8).collect();
        let image = Image::new(4, 2, Channels::Rgb, bytes).expect("an image");
        let mut preprocess = Preprocess::default_for([2, 4], Channels::Rgb);
        (preprocess.resize, preprocess.crop) = (Resize::None, None);
        (preprocess.mean, preprocess.std) = (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]);
        let mut numbers = vec![0.0; 4 * 2 * 3];
        preprocess.apply(&image, &mut Scratch::default(), &mut numbers).expect("prepared");
        assert_eq!(preprocess.undo(&numbers, [2, 4]).expect("a picture"), image);
        assert!(preprocess.undo(&numbers, [2, 5]).is_err());
    }

    #[test]
    fn how_much_of_an_image_is_seen_is_told_in_its_own_pixels() {
        let image = |height: usize, width: usize| {
            Image::new(width, height, Channels::Grey, vec![0; height * width]).expect("an image")
        };
        // A square of 0.9 of the shorter side.
        let mut preprocess = Preprocess::default_for([18, 18], Channels::Grey);
        assert_eq!(preprocess.rows_and_columns_seen(&image(40, 100)), [36, 36]);
        preprocess.resize = Resize::None;
        assert_eq!(preprocess.rows_and_columns_seen(&image(40, 100)), [18, 18]);
        assert_eq!(preprocess.rows_and_columns_seen(&image(10, 100)), [10, 18], "filling is not seen");
        (preprocess.resize, preprocess.crop) = (Resize::Exact([18, 18]), None);
        assert_eq!(preprocess.rows_and_columns_seen(&image(40, 100)), [40, 100]);
    }
}
