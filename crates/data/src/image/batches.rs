//! Batches of labelled images, prepared or raw: a [`BatchSource`] for the loader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vitreous_engine::ops::{ImageDrawsMut, PrepareImages};

use super::augment::{Augment, Mixer};
use super::{Channels, Image, ImageError, Preprocess, Scratch};
use crate::dataset::Dataset;
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, BrokenSample, EpochOrder, LoadError, NamedArray};
use crate::random::Random;

/// Positions of random sequences that belong to no sample. `MIXING - i` is that of batch `i`.
const ORDER: u64 = u64::MAX;
const MIXING: u64 = u64::MAX - 1;

/// How an image becomes a tensor.
#[derive(Clone, Debug)]
pub enum Preparation {
    /// The same in every epoch: for validation.
    Plain(Preprocess),
    /// Augmented at random: for training.
    Augmented(Box<Augment>),
}

/// How much of the preparation is done by the loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageForm {
    /// All of it: a batch has `images`, the numbers that a model takes.
    #[default]
    Prepared,
    /// Only what needs the whole picture (decoding, resizing, colour): a batch has `pixels` (bytes) and `draws` (the random
    /// choices of what is left to do). A GPU does the rest faster, by the op that [`ImageBatchOptions::images_of_raw`] adds to
    /// a graph. The images are the same.
    Raw,
}

/// What the `targets` of a batch are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ImageTargets {
    /// The class index of each image: i32 `[batch]`.
    Class,
    /// A probability for each class: f32 `[batch, classes]`, with label smoothing `(1 - smoothing) * target + smoothing / classes`.
    Probabilities {
        /// The smoothing.
        smoothing: f32,
    },
    /// For each class whether it is present: f32 `[batch, classes]`, with `(1 - smoothing) * target + smoothing / 2`.
    MultiLabel {
        /// The smoothing.
        smoothing: f32,
    },
}

/// Which images make up batches, and how they are prepared.
#[derive(Clone)]
pub struct ImageBatchOptions {
    /// The samples.
    pub dataset: Arc<dyn Dataset>,
    /// How images become tensors.
    pub preparation: Preparation,
    /// How much of that is done here.
    pub form: ImageForm,
    /// How the samples of a batch are mixed; needs targets that are not class indices.
    pub mixer: Option<Mixer>,
    /// Channels, height and width of a prepared image.
    pub shape: [usize; 3],
    /// Number of classes.
    pub classes: usize,
    /// What the `targets` are.
    pub targets: ImageTargets,
    /// Images per batch.
    pub batch: usize,
    /// Decides order, augmentation and mixing.
    pub seed: u64,
    /// Training: every epoch has an order of its own, and full batches only; images that are left over are not seen in that
    /// epoch. Otherwise all images come in the data set's order, and the last batch may have fewer.
    pub shuffle: bool,
}

impl ImageBatchOptions {
    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> usize {
        match self.shuffle {
            true => self.dataset.len() / self.batch,
            false => self.dataset.len().div_ceil(self.batch),
        }
    }

    /// Images that no batch of an epoch has, because batches are full. They are others in each epoch.
    pub fn unseen_per_epoch(&self) -> usize {
        if self.shuffle { self.dataset.len() % self.batch } else { 0 }
    }

    /// The arrays of a batch: those of the image first, `targets` last.
    fn arrays(&self, rest: &PrepareImages) -> Vec<ArraySpec> {
        let [channels, height, width] = self.shape;
        let mut arrays = match self.form {
            ImageForm::Prepared => vec![ArraySpec::f32("images", [self.batch, channels, height, width])],
            ImageForm::Raw => vec![
                ArraySpec::i32("pixels", [self.batch, rest.pixel_words()]),
                ArraySpec::i32("draws", [self.batch, rest.draws_length()]),
            ],
        };
        arrays.push(match self.targets {
            ImageTargets::Class => ArraySpec::i32("targets", [self.batch]),
            _ => ArraySpec::f32("targets", [self.batch, self.classes]),
        });
        arrays
    }
}

/// Batches of images.
pub struct ImageBatches {
    options: ImageBatchOptions,
    groups: [Vec<ArraySpec>; 1],
    channels: Channels,
    /// What is left to be done with raw images.
    rest: PrepareImages,
    broken: Mutex<BTreeMap<usize, BrokenSample>>,
    /// Memory that threads use from batch to batch.
    scratch: Mutex<Vec<Scratch>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the next image of a batch goes.
enum ImageRow<'a> {
    Prepared(&'a mut [f32]),
    Raw { pixels: &'a mut [i32], draws: &'a mut [i32] },
}

impl ImageBatches {
    /// Batches as the options say.
    pub fn new(options: ImageBatchOptions) -> ImageBatches {
        let channels = Channels::from_count(options.shape[0]).unwrap_or(Channels::Rgb);
        let rest = options.rest();
        let groups = [options.arrays(&rest)];
        ImageBatches { options, groups, channels, rest, broken: Mutex::default(), scratch: Mutex::default() }
    }

    /// What they were made from.
    pub fn options(&self) -> &ImageBatchOptions {
        &self.options
    }

    fn rows(&self, order: &EpochOrder, batch: &mut Batch, scratch: &mut Scratch) -> Result<(), LoadError> {
        let index = batch.position.index;
        for (place, &sample) in (order.start(index)..).zip(order.samples(index)) {
            let sample = match self.options.shuffle {
                true => Some(self.readable_sample(order, place, batch, scratch)?),
                false => Some(sample as usize).filter(|&sample| self.sample(order, sample, batch, scratch)),
            };
            if let Some(sample) = sample {
                self.write_target(sample, batch);
                batch.samples.push(sample);
            }
        }
        Ok(())
    }

    /// Prepares, as the batch's next row, the sample at a place of the epoch's order, or, if it is broken, the next one that is not.
    fn readable_sample(
        &self,
        order: &EpochOrder,
        place: usize,
        batch: &mut Batch,
        scratch: &mut Scratch,
    ) -> Result<usize, LoadError> {
        let samples = order.all_samples();
        for step in 0..samples.len() {
            let sample = samples[(place + step) % samples.len()] as usize;
            if self.sample(order, sample, batch, scratch) {
                return Ok(sample);
            }
        }
        let unknown = || BrokenSample { name: String::new(), reason: String::new() };
        let first = lock(&self.broken).values().next().cloned().unwrap_or_else(unknown);
        Err(LoadError::AllBroken { samples: samples.len(), first })
    }

    /// Prepares a sample as the batch's next row; false if it is broken.
    fn sample(&self, order: &EpochOrder, sample: usize, batch: &mut Batch, scratch: &mut Scratch) -> bool {
        if lock(&self.broken).contains_key(&sample) {
            return false;
        }
        let dataset = &self.options.dataset;
        let random = Random::new(self.options.seed, order.epoch(), sample as u64);
        let prepared = dataset
            .image(sample, self.channels)
            .and_then(|image| self.image(&image, random, self.next_row(batch), scratch));
        if let Err(error) = &prepared {
            let broken = BrokenSample { name: dataset.name(sample), reason: error.to_string() };
            lock(&self.broken).insert(sample, broken);
        }
        prepared.is_ok()
    }

    /// The first row of the arrays that has no sample yet.
    fn next_row<'b>(&self, batch: &'b mut Batch) -> ImageRow<'b> {
        let row = batch.count();
        match &mut batch.arrays[..] {
            [NamedArray { values: ArrayValues::F32(images), .. }, _] => {
                let length = self.options.shape.iter().product();
                ImageRow::Prepared(&mut images[row * length..][..length])
            }
            [
                NamedArray { values: ArrayValues::I32(pixels), .. },
                NamedArray { values: ArrayValues::I32(draws), .. },
                _,
            ] => {
                let (words, length) = (self.rest.pixel_words(), self.rest.draws_length());
                ImageRow::Raw {
                    pixels: &mut pixels[row * words..][..words],
                    draws: &mut draws[row * length..][..length],
                }
            }
            _ => unreachable!("arrays are those of `ImageBatchOptions::arrays`"),
        }
    }

    fn image(&self, image: &Image, mut random: Random, row: ImageRow, scratch: &mut Scratch) -> Result<(), ImageError> {
        match row {
            ImageRow::Prepared(numbers) => match &self.options.preparation {
                Preparation::Plain(preprocess) => preprocess.apply(image, scratch, numbers),
                Preparation::Augmented(augment) => augment.apply(image, &mut random, scratch, numbers),
            },
            ImageRow::Raw { pixels, draws } => {
                let bytes = self.options.shape.iter().product();
                let pixels = &mut bytemuck::must_cast_slice_mut(pixels)[..bytes];
                let mut draws = ImageDrawsMut::new(draws, self.rest.channels);
                draws.clear();
                match &self.options.preparation {
                    Preparation::Plain(preprocess) => preprocess.apply_raw(image, scratch, pixels),
                    Preparation::Augmented(augment) => {
                        augment.apply_raw(image, &mut random, scratch, pixels, &mut draws)
                    }
                }
            }
        }
    }

    /// Writes the target of the batch's next row.
    fn write_target(&self, sample: usize, batch: &mut Batch) {
        let labels = self.options.dataset.labels(sample);
        let (row, classes) = (batch.count(), self.options.classes);
        let (base, rise) = match self.options.targets {
            ImageTargets::Class => (0.0, 0.0),
            ImageTargets::Probabilities { smoothing } => (smoothing / classes as f32, 1.0 - smoothing),
            ImageTargets::MultiLabel { smoothing } => (smoothing / 2.0, 1.0 - smoothing),
        };
        match batch.arrays.last_mut().map(|array| &mut array.values) {
            Some(ArrayValues::I32(targets)) => targets[row] = labels.first().map_or(0, |&label| label as i32),
            Some(ArrayValues::F32(targets)) => {
                let targets = &mut targets[row * classes..][..classes];
                targets.fill(base);
                labels.iter().for_each(|&label| targets[label as usize] += rise);
            }
            None => {}
        }
    }

    fn mix(&self, batch: &mut Batch) {
        let Some(mixer) = &self.options.mixer else { return };
        let [channels, height, width] = self.options.shape;
        let shape = [self.options.batch, channels, height, width];
        let position = batch.position;
        let mut random = Random::new(self.options.seed, position.epoch, MIXING - position.index as u64);
        match &mut batch.arrays[..] {
            [
                NamedArray { values: ArrayValues::F32(images), .. },
                NamedArray { values: ArrayValues::F32(targets), .. },
            ] => mixer.mix(images, shape, targets, &mut random),
            [
                _,
                NamedArray { values: ArrayValues::I32(draws), .. },
                NamedArray { values: ArrayValues::F32(targets), .. },
            ] => mixer.note(draws, shape, targets, &mut random),
            // Class indices cannot be mixed.
            _ => {}
        }
    }
}

impl BatchSource for ImageBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.options.batches_per_epoch()
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        let mut samples: Vec<u32> = (0..self.options.dataset.len() as u32).collect();
        if self.options.shuffle {
            Random::new(self.options.seed, epoch, ORDER).shuffle(&mut samples);
        }
        let (size, count) = (self.options.batch, samples.len());
        let batches = (0..self.batches_per_epoch()).map(|index| (0, index * size..((index + 1) * size).min(count)));
        EpochOrder::new(epoch, samples, batches.collect())
    }

    /// In training, a broken image is replaced by the next one of the epoch's order, so that batches are full; otherwise it is left
    /// out.
    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let mut scratch = lock(&self.scratch).pop().unwrap_or_default();
        let filled = self.rows(order, batch, &mut scratch);
        lock(&self.scratch).push(scratch);
        filled?;
        batch.units = batch.count();
        let count = batch.count();
        for array in &mut batch.arrays {
            let row: usize = array.shape[1..].iter().product();
            match &mut array.values {
                ArrayValues::F32(values) => values[count * row..].fill(0.0),
                ArrayValues::I32(values) => values[count * row..].fill(0),
            }
        }
        self.mix(batch);
        Ok(())
    }

    fn broken(&self) -> Vec<BrokenSample> {
        lock(&self.broken).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
