//! Augmentation of training images, and mixing of batches.
//!
//! The peers are `timm`, `torchvision` and Pillow. Everything random is a function of the given [`Random`], so that a run can be repeated
//! and resumed anywhere. The order is `timm`'s:
//!
//! 1. a crop of the image ([`CropKind`]), resized;
//! 2. horizontal and vertical flips;
//! 3. the policy: RandAugment or 3-Augment;
//! 4. colour jitter, grey, blur;
//! 5. normalisation;
//! 6. Random Erasing;
//! 7. for the whole batch: Mixup or CutMix ([`Mixer`]).

mod affine;
mod blur;
mod check;
mod contact_sheet;
mod crop;
mod enhance;
mod erase;
mod jitter;
mod mix;
mod normalise;
mod operation;
mod picture;
mod policy;
mod settings;
#[cfg(test)]
mod tests;
mod tone;

pub use contact_sheet::contact_sheet;
pub use mix::Mixer;
pub(crate) use picture::Picture;
pub use settings::{AugmentSettings, CropKind, EraseMode, MixMode};

use vitreous_engine::ops::ImageDrawsMut;
use vitreous_engine::ops::image_draws::Laying;

use crate::image::decode::Image;
use crate::image::error::{ConfigError, ImageError};
use crate::image::preprocess::{Placed, Preprocess, Scratch, Table};
use crate::image::resample::{ResampleScratch, Span, resize_part};
use crate::image::view::View;
use crate::random::Random;
use erase::Erase;
use normalise::normalise;
use policy::Policy;

/// Prepares training images.
#[derive(Clone, Debug)]
pub struct Augment {
    settings: AugmentSettings,
    preprocess: Preprocess,
    size: [usize; 2],
    policy: Policy,
    erase: Option<Erase>,
    /// The mean colour, which fills what a policy moves in from outside of the picture.
    mean: Vec<u8>,
    /// For each channel, the normalised value of each byte.
    tables: Vec<Table>,
}

impl Augment {
    /// Augmentation of images whose preprocessing for validation is this one; its output size must be fixed.
    pub fn new(settings: &AugmentSettings, preprocess: &Preprocess) -> Result<Augment, ConfigError> {
        let size = preprocess.output_size().ok_or_else(|| {
            let why = "augmentation needs images of a fixed size, but the preprocessing has none";
            ConfigError::Unsupported(why.to_string())
        })?;
        let channels = preprocess.channels.count();
        if preprocess.mean.len() != channels || preprocess.std.len() != channels {
            let why =
                format!("the preprocessing needs a mean and a standard deviation for each of {channels} channels");
            return Err(ConfigError::Unsupported(why));
        }
        check::scale("scale", settings.scale)?;
        check::ratio("ratio", settings.ratio)?;
        if settings.crop == CropKind::Padded {
            check::padding("padding", settings.padding, size)?;
        }
        let probabilities = [
            ("flip", settings.flip),
            ("vertical_flip", settings.vertical_flip),
            ("color_jitter", settings.color_jitter),
            ("grey", settings.grey),
            ("blur", settings.blur),
            ("erase", settings.erase),
        ];
        probabilities.into_iter().try_for_each(|(key, value)| check::probability(key, value))?;
        check::count("erase_count", settings.erase_count, 100)?;
        let erase = Erase { probability: settings.erase, mode: settings.erase_mode, count: settings.erase_count };
        Ok(Augment {
            policy: Policy::parse(&settings.policy)?,
            erase: (settings.erase > 0.0).then_some(erase),
            mean: preprocess.mean.iter().map(|mean| (255.0 * mean).round_ties_even() as u8).collect(),
            tables: (0..channels).map(|channel| preprocess.table(channel)).collect(),
            settings: settings.clone(),
            preprocess: preprocess.clone(),
            size,
        })
    }

    /// The preprocessing for validation.
    pub fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    /// Height and width of the output.
    pub fn output_size(&self) -> [usize; 2] {
        self.size
    }

    /// Prepares an image. `out` has `channels * height * width` elements, channels first.
    pub fn apply(
        &self,
        image: &Image,
        random: &mut Random,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), ImageError> {
        self.preprocess.check(image, out.len())?;
        let (picture, laying) = self.picture(image, random, scratch)?;
        normalise(picture, laying, &self.tables, self.size, out);
        if let Some(erase) = &self.erase {
            erase.apply(out, self.shape(), random);
        }
        Ok(())
    }

    /// Does what needs the whole picture, and records the rest: `pixels` has `height * width * channels` bytes, `draws` is the image's row,
    /// cleared. [`Graph::prepare_images`](vitreous_engine::Graph::prepare_images) of both gives the same as [`apply`](Self::apply).
    pub(crate) fn apply_raw(
        &self,
        image: &Image,
        random: &mut Random,
        scratch: &mut Scratch,
        pixels: &mut [u8],
        draws: &mut ImageDrawsMut,
    ) -> Result<(), ImageError> {
        self.preprocess.check(image, pixels.len())?;
        let (picture, laying) = self.picture(image, random, scratch)?;
        picture.copy_to(pixels);
        draws.lay(laying);
        if let Some(erase) = &self.erase {
            erase.note(self.shape(), draws, random);
        }
        Ok(())
    }

    fn shape(&self) -> [usize; 3] {
        [self.tables.len(), self.size[0], self.size[1]]
    }

    /// The maximum number of erased boxes, and whether they are filled with noise.
    pub(crate) fn erasing(&self) -> (usize, bool) {
        self.erase.as_ref().map_or((0, false), |erase| (erase.count.max(1), erase.mode == EraseMode::Pixel))
    }

    /// The picture before it is normalised, and its position and flips in the output.
    fn picture<'a>(
        &self,
        image: &'a Image,
        random: &mut Random,
        scratch: &'a mut Scratch,
    ) -> Result<(View<'a>, Laying), ImageError> {
        let Scratch { resample, picture } = scratch;
        let (top, left) = match self.settings.crop {
            CropKind::Padded => crop::random_shift(self.settings.padding, random),
            CropKind::Center | CropKind::Resized => (0, 0),
        };
        let shown = if self.settings.crop == CropKind::Resized {
            let part =
                crop::random_part([image.height(), image.width()], self.settings.scale, self.settings.ratio, random);
            let part = View::of(image).part(part.top, part.left, [part.height, part.width]);
            let (rows, columns) = (Span::whole(self.size[0]), Span::whole(self.size[1]));
            resize_part(part, self.size, self.preprocess.interpolation, rows, columns, resample)?;
            View::packed(&resample.resized, self.size, image.channels())
        } else {
            self.picture_for_testing(image, resample, picture)?
        };
        let mirrored = self.settings.flip > 0.0 && random.chance(self.settings.flip);
        let upside_down = self.settings.vertical_flip > 0.0 && random.chance(self.settings.vertical_flip);
        if self.changes_colours() {
            picture.fill(self.size, image.channels(), &[0; 3][..image.channels().count()]);
            picture.paste(shown, top, left);
            if mirrored {
                picture.mirror();
            }
            if upside_down {
                picture.turn_upside_down();
            }
            self.change_picture(picture, random);
            return Ok((picture.view(), Laying::default()));
        }
        // Padding is at most a side of the picture.
        Ok((shown, Laying { top: top as i32, left: left as i32, mirrored, upside_down }))
    }

    /// Whether there is more to do than crops and flips, which need no intermediate picture.
    fn changes_colours(&self) -> bool {
        let settings = &self.settings;
        self.policy != Policy::Nothing || settings.color_jitter > 0.0 || settings.grey > 0.0 || settings.blur > 0.0
    }

    fn change_picture(&self, picture: &mut Picture, random: &mut Random) {
        let settings = &self.settings;
        self.policy.apply(picture, &self.mean, random);
        if settings.color_jitter > 0.0 {
            jitter::colour_jitter(picture, settings.color_jitter, random);
        }
        if settings.grey > 0.0 && random.chance(settings.grey) {
            picture.grey();
        }
        if settings.blur > 0.0 && random.chance(settings.blur) {
            picture.gaussian_blur(random.between(policy::BLUR[0], policy::BLUR[1]));
        }
    }

    /// The picture as it is prepared for validation.
    fn picture_for_testing<'a>(
        &self,
        image: &'a Image,
        resample: &'a mut ResampleScratch,
        picture: &mut Picture,
    ) -> Result<View<'a>, ImageError> {
        let Placed { resized, rows, columns } = self.preprocess.place(image);
        let covered = [rows.source.length, columns.source.length];
        let resizes = resized != [image.height(), image.width()];
        if resizes {
            let interpolation = self.preprocess.interpolation;
            resize_part(View::of(image), resized, interpolation, rows.source, columns.source, resample)?;
        }
        // Without resizing, the image's own pixels are used.
        let own = || View::of(image).part(rows.source.start, columns.source.start, covered);
        if covered == self.size && !resizes {
            return Ok(own());
        }
        if covered != self.size {
            let part = if resizes { View::packed(&resample.resized, covered, image.channels()) } else { own() };
            self.fill_up(part, rows.before, columns.before, picture);
            resample.resized.clear();
            resample.resized.extend_from_slice(&picture.bytes);
        }
        Ok(View::packed(&resample.resized, self.size, image.channels()))
    }

    /// The same for an image that does not cover the output, with padding.
    fn fill_up(&self, part: View, top: usize, left: usize, picture: &mut Picture) {
        let fill = self.preprocess.crop.as_ref().map_or(&[][..], |crop| &crop.fill);
        let colour = [0, 1, 2].map(|channel| fill.get(channel).copied().unwrap_or(0));
        picture.fill(self.size, part.channels, &colour[..part.channels.count()]);
        picture.paste(part, top as isize, left as isize);
    }
}
