//! The loader: batches, prepared by threads of its own ahead of the model, in an order that is a function of (seed, epoch).
//!
//! Which samples a batch has, and how each is augmented, follows from seed, epoch and place alone. So a run can be taken up
//! at any batch, and the number of threads changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vitreous_engine::ops::{ImageDrawsMut, PrepareImages};

use crate::dataset::Dataset;
use crate::image::ImageError;
use crate::image::augment::{Augment, Mixer};
use crate::image::{Channels, Image};
use crate::image::{Preprocess, Scratch};
use crate::ordered::OrderedMap;
use crate::random::Random;

/// Places of random numbers that are not a sample's.
const ORDER: u64 = u64::MAX;
const MIXING: u64 = u64::MAX - 1;

/// How an image becomes numbers.
#[derive(Clone, Debug)]
pub enum Preparation {
    /// The same each time: for testing.
    Plain(Preprocess),
    /// Changed at random: for learning.
    Augmented(Box<Augment>),
}

/// How far images are prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Wholly: a batch has the numbers that a model sees.
    #[default]
    Prepared,
    /// As far as it takes a whole picture: a batch has bytes, and what is still to be done with them. That is for a device that does
    /// it faster; [`LoaderOptions::images_of_raw`] adds it to a graph. The images are the same.
    Raw,
}

/// What a batch says of its images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetKind {
    /// The number of the class.
    Class,
    /// A share for each class, of which `smoothing` is spread over all.
    Shares {
        /// The share that is spread.
        smoothing: f32,
    },
    /// For each class whether it is there; smoothing brings 1 and 0 closer to a half.
    Each {
        /// Twice how much closer.
        smoothing: f32,
    },
}

/// What a loader loads.
#[derive(Clone)]
pub struct LoaderOptions {
    /// The samples.
    pub dataset: Arc<dyn Dataset>,
    /// How images become numbers.
    pub preparation: Preparation,
    /// How far.
    pub form: Form,
    /// How samples of a batch are mixed; needs targets that are shares.
    pub mixer: Option<Mixer>,
    /// Channels, height and width of a prepared image.
    pub shape: [usize; 3],
    /// Number of classes.
    pub classes: usize,
    /// What a batch says of its images.
    pub targets: TargetKind,
    /// Images in a batch.
    pub batch: usize,
    /// Decides order, augmentation and mixing.
    pub seed: u64,
    /// Whether each epoch has an order of its own, and only whole batches. Otherwise all samples come in their own order,
    /// and the last batch may have fewer.
    pub shuffle: bool,
    /// Threads that prepare.
    pub threads: usize,
}

/// Some samples, prepared.
#[derive(Debug, Default)]
pub struct Batch {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The place in the epoch, from 0.
    pub index: usize,
    /// `[batch, channels, height, width]`; where there are fewer samples, zeros follow. Empty in the raw form.
    pub images: Vec<f32>,
    /// In the raw form: the pictures' bytes, four a word; where there are fewer samples, black pictures follow.
    pub pixels: Vec<i32>,
    /// In the raw form: for each picture a row of [`ImageDraws`](vitreous_engine::ops::ImageDraws).
    pub draws: Vec<i32>,
    /// The class of each sample, where targets are classes or shares.
    pub labels: Vec<i32>,
    /// `[batch, classes]`, where targets are no classes.
    pub targets: Vec<f32>,
    /// Which samples these are, by their place in the data set.
    pub samples: Vec<usize>,
    /// How many samples there are.
    pub count: usize,
}

/// A sample that could not be read, with the reason.
pub type Broken = (String, String);

/// Every sample is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("none of the {samples} images can be read; the first: {name}: {reason}")]
pub struct NothingToLoad {
    /// How many there are.
    pub samples: usize,
    /// The name of one.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Batches, from any place in training on.
pub struct Loader {
    batches: OrderedMap<Result<Batch, NothingToLoad>>,
    shared: Arc<Shared>,
}

struct Shared {
    options: LoaderOptions,
    channels: Channels,
    /// What is left to be done with raw images.
    rest: PrepareImages,
    broken: Mutex<BTreeMap<usize, Broken>>,
    /// Batches that were used, to be filled again.
    spare: Mutex<Vec<Batch>>,
}

/// A batch to prepare.
struct Order {
    epoch: u64,
    index: usize,
    permutation: Arc<[u32]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LoaderOptions {
    /// Batches in an epoch.
    pub fn batches(&self) -> usize {
        match self.shuffle {
            true => self.dataset.len() / self.batch,
            false => self.dataset.len().div_ceil(self.batch),
        }
    }

    /// The order of an epoch.
    fn permutation(&self, epoch: u64) -> Arc<[u32]> {
        let mut order: Vec<u32> = (0..self.dataset.len() as u32).collect();
        if self.shuffle {
            Random::new(self.seed, epoch, ORDER).shuffle(&mut order);
        }
        order.into()
    }
}

impl Loader {
    /// Starts to prepare batches from one batch of one epoch until the end of another epoch.
    pub fn start(options: LoaderOptions, first_epoch: u64, first_batch: usize, epochs: u64) -> Loader {
        let threads = options.threads.max(1);
        let batches = options.batches();
        let shared = Arc::new(Shared::new(options));
        let source = shared.clone();
        let orders = (first_epoch..epochs).flat_map(move |epoch| {
            let permutation = source.options.permutation(epoch);
            let first = if epoch == first_epoch { first_batch } else { 0 };
            (first..batches).map(move |index| Order { epoch, index, permutation: permutation.clone() })
        });
        let worker = || {
            let (shared, mut scratch) = (shared.clone(), Scratch::default());
            move |order| shared.prepare(&order, &mut scratch)
        };
        let batches = OrderedMap::new(orders, threads, threads + 1, worker);
        Loader { batches, shared }
    }

    /// Takes a used batch back, so that its memory is used again.
    pub fn give_back(&self, batch: Batch) {
        lock(&self.shared.spare).push(batch);
    }

    /// The samples so far that could not be read. Others were taken in their place where batches must be whole.
    pub fn broken(&self) -> Vec<Broken> {
        lock(&self.shared.broken).values().cloned().collect()
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, NothingToLoad>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl Shared {
    fn new(options: LoaderOptions) -> Shared {
        let channels = Channels::from_count(options.shape[0]).unwrap_or(Channels::Rgb);
        let rest = options.rest();
        Shared { options, channels, rest, broken: Mutex::default(), spare: Mutex::default() }
    }

    fn prepare(&self, order: &Order, scratch: &mut Scratch) -> Result<Batch, NothingToLoad> {
        let LoaderOptions { batch: size, classes, shuffle, .. } = self.options;
        let mut batch = lock(&self.spare).pop().unwrap_or_default();
        (batch.epoch, batch.index, batch.count) = (order.epoch, order.index, 0);
        self.make_room(&mut batch);
        batch.labels.clear();
        batch.targets.clear();
        batch.samples.clear();
        let first = order.index * size;
        let places = first..(first + size).min(order.permutation.len());
        for place in places {
            let sample = match shuffle {
                true => Some(self.sound_sample(order, place, scratch, &mut batch)?),
                false => Some(order.permutation[place] as usize)
                    .filter(|&index| self.sample(order, index, scratch, &mut batch)),
            };
            if let Some(index) = sample {
                self.add_target(index, &mut batch);
                batch.samples.push(index);
                batch.count += 1;
            }
        }
        self.clear_rest(&mut batch);
        batch.labels.resize(size, 0);
        if self.options.targets != TargetKind::Class {
            batch.targets.resize(size * classes, 0.0);
        }
        if let Some(mixer) = &self.options.mixer {
            let [channels, height, width] = self.options.shape;
            let mut random = Random::new(self.options.seed, order.epoch, MIXING - order.index as u64);
            let shape = [size, channels, height, width];
            match self.options.form {
                Form::Prepared => mixer.mix(&mut batch.images, shape, &mut batch.targets, &mut random),
                Form::Raw => mixer.note(&mut batch.draws, shape, &mut batch.targets, &mut random),
            }
        }
        Ok(batch)
    }

    fn make_room(&self, batch: &mut Batch) {
        let size = self.options.batch;
        match self.options.form {
            Form::Prepared => batch.images.resize(size * self.image_floats(), 0.0),
            Form::Raw => {
                batch.pixels.resize(size * self.rest.pixel_words(), 0);
                batch.draws.resize(size * self.rest.draws_length(), 0);
            }
        }
    }

    /// Clears what lies behind a batch's last image.
    fn clear_rest(&self, batch: &mut Batch) {
        match self.options.form {
            Form::Prepared => batch.images[batch.count * self.image_floats()..].fill(0.0),
            Form::Raw => {
                batch.pixels[batch.count * self.rest.pixel_words()..].fill(0);
                batch.draws[batch.count * self.rest.draws_length()..].fill(0);
            }
        }
    }

    fn image_floats(&self) -> usize {
        self.options.shape.iter().product()
    }

    /// Prepares, as the batch's next, the sample at a place, or, if it is broken, the next sound one of the epoch's order.
    fn sound_sample(
        &self,
        order: &Order,
        place: usize,
        scratch: &mut Scratch,
        batch: &mut Batch,
    ) -> Result<usize, NothingToLoad> {
        let samples = order.permutation.len();
        for step in 0..samples {
            let index = order.permutation[(place + step) % samples] as usize;
            if self.sample(order, index, scratch, batch) {
                return Ok(index);
            }
        }
        let (name, reason) = lock(&self.broken).values().next().cloned().unwrap_or_default();
        Err(NothingToLoad { samples, name, reason })
    }

    /// Prepares a sample as the batch's next; false if it is broken.
    fn sample(&self, order: &Order, index: usize, scratch: &mut Scratch, batch: &mut Batch) -> bool {
        if lock(&self.broken).contains_key(&index) {
            return false;
        }
        let dataset = &self.options.dataset;
        let prepared =
            dataset.image(index, self.channels).and_then(|image| self.image(order, index, &image, scratch, batch));
        if let Err(error) = &prepared {
            lock(&self.broken).insert(index, (dataset.name(index), error.to_string()));
        }
        prepared.is_ok()
    }

    fn image(
        &self,
        order: &Order,
        index: usize,
        image: &Image,
        scratch: &mut Scratch,
        batch: &mut Batch,
    ) -> Result<(), ImageError> {
        let floats = self.image_floats();
        let mut random = Random::new(self.options.seed, order.epoch, index as u64);
        if self.options.form == Form::Prepared {
            let room = &mut batch.images[batch.count * floats..][..floats];
            return match &self.options.preparation {
                Preparation::Plain(preprocess) => preprocess.apply(image, scratch, room),
                Preparation::Augmented(augment) => augment.apply(image, &mut random, scratch, room),
            };
        }
        let (words, length) = (self.rest.pixel_words(), self.rest.draws_length());
        let words = &mut batch.pixels[batch.count * words..][..words];
        let pixels = &mut bytemuck::must_cast_slice_mut(words)[..floats];
        let mut draws = ImageDrawsMut::new(&mut batch.draws[batch.count * length..][..length], self.rest.channels);
        draws.clear();
        match &self.options.preparation {
            Preparation::Plain(preprocess) => preprocess.apply_raw(image, scratch, pixels),
            Preparation::Augmented(augment) => augment.apply_raw(image, &mut random, scratch, pixels, &mut draws),
        }
    }

    fn add_target(&self, index: usize, batch: &mut Batch) {
        let labels = self.options.dataset.labels(index);
        let classes = self.options.classes;
        batch.labels.push(labels.first().map_or(0, |&label| label as i32));
        let (base, rise) = match self.options.targets {
            TargetKind::Class => return,
            TargetKind::Shares { smoothing } => (smoothing / classes as f32, 1.0 - smoothing),
            TargetKind::Each { smoothing } => (smoothing / 2.0, 1.0 - smoothing),
        };
        let start = batch.targets.len();
        batch.targets.resize(start + classes, base);
        for &label in labels {
            batch.targets[start + label as usize] += rise;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images of one pixel whose value is their number; some are broken.
    struct Numbers {
        labels: Vec<u32>,
        broken: Vec<usize>,
    }

    impl Dataset for Numbers {
        fn len(&self) -> usize {
            self.labels.len()
        }
        fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
            if self.broken.contains(&index) {
                return Err(ImageError::Empty);
            }
            Image::new(1, 1, channels, vec![index as u8; channels.count()])
        }
        fn labels(&self, index: usize) -> &[u32] {
            &self.labels[index..=index]
        }
        fn name(&self, index: usize) -> String {
            format!("number {index}")
        }
    }

    fn options(samples: u32, broken: &[usize]) -> LoaderOptions {
        let labels = (0..samples).map(|index| index % 3).collect();
        let mut preprocess = Preprocess::default_for([1, 1], Channels::Grey);
        (preprocess.resize, preprocess.crop) = (crate::image::Resize::Exact([1, 1]), None);
        (preprocess.mean, preprocess.std, preprocess.rescale_factor) = (vec![0.0], vec![1.0], 1.0);
        LoaderOptions {
            dataset: Arc::new(Numbers { labels, broken: broken.to_vec() }),
            preparation: Preparation::Plain(preprocess),
            form: Form::Prepared,
            mixer: None,
            shape: [1, 1, 1],
            classes: 3,
            targets: TargetKind::Class,
            batch: 4,
            seed: 7,
            shuffle: true,
            threads: 2,
        }
    }

    fn images(options: LoaderOptions, epoch: u64, batch: usize, epochs: u64) -> Vec<Vec<f32>> {
        Loader::start(options, epoch, batch, epochs).map(|batch| batch.expect("loads").images).collect()
    }

    #[test]
    fn each_epoch_has_all_samples_in_an_order_of_its_own_whatever_the_threads() {
        let two = images(options(12, &[]), 0, 0, 2);
        assert_eq!(two.len(), 6);
        let epoch = |range: std::ops::Range<usize>| {
            let mut all: Vec<f32> = two[range].concat();
            let order = all.clone();
            all.sort_by(f32::total_cmp);
            assert_eq!(all, (0..12).map(|number| number as f32).collect::<Vec<_>>());
            order
        };
        assert_ne!(epoch(0..3), epoch(3..6));
        assert_eq!(images(LoaderOptions { threads: 5, ..options(12, &[]) }, 0, 0, 2), two);
        assert_ne!(images(LoaderOptions { seed: 8, ..options(12, &[]) }, 0, 0, 2), two);
    }

    #[test]
    fn it_goes_on_at_any_batch() {
        let all = images(options(14, &[3]), 0, 0, 3);
        assert_eq!(all.len(), 9);
        for start in 0..9 {
            assert_eq!(images(options(14, &[3]), start as u64 / 3, start % 3, 3), all[start..]);
        }
    }

    #[test]
    fn broken_samples_are_replaced_while_learning_and_left_out_while_testing() {
        let mut loader = Loader::start(options(8, &[2, 5]), 0, 0, 1);
        let seen: Vec<f32> = loader.by_ref().flat_map(|batch| batch.expect("loads").images).collect();
        assert_eq!(seen.len(), 8);
        assert!(!seen.contains(&2.0) && !seen.contains(&5.0));
        assert_eq!(loader.broken().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["number 2", "number 5"]);

        let mut loader = Loader::start(LoaderOptions { shuffle: false, ..options(7, &[2, 5]) }, 0, 0, 1);
        let batches: Vec<Batch> = loader.by_ref().map(|batch| batch.expect("loads")).collect();
        assert_eq!(batches.iter().map(|batch| batch.count).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(batches[0].images, [0.0, 1.0, 3.0, 0.0]);
        assert_eq!(batches[1].labels[..2], [1, 0]);

        let error = Loader::start(options(4, &[0, 1, 2, 3]), 0, 0, 1).next().expect("an answer").unwrap_err();
        assert!(error.to_string().starts_with("none of the 4 images can be read"), "{error}");
    }

    #[test]
    fn targets_are_smoothed_as_they_are_meant() {
        let targets = |kind| {
            let options = LoaderOptions { shuffle: false, targets: kind, ..options(4, &[]) };
            Loader::start(options, 0, 0, 1).next().expect("a batch").expect("loads").targets
        };
        assert!(targets(TargetKind::Class).is_empty());
        let shares = targets(TargetKind::Shares { smoothing: 0.3 });
        assert!((shares[0] - 0.8).abs() < 1e-6 && (shares[1] - 0.1).abs() < 1e-6, "{shares:?}");
        let each = targets(TargetKind::Each { smoothing: 0.2 });
        assert!((each[0] - 0.9).abs() < 1e-6 && (each[1] - 0.1).abs() < 1e-6, "{each:?}");
    }

    #[test]
    fn each_sample_epoch_and_batch_has_chance_of_its_own() {
        use crate::image::augment::AugmentSettings;
        let settings = AugmentSettings { color_jitter: 0.9, mixup: 1.0, ..AugmentSettings::default() };
        let mut options = options(200, &[]);
        let Preparation::Plain(preprocess) = &options.preparation else { unreachable!("plain") };
        let augment = Augment::new(&settings, preprocess).expect("sound");
        options.preparation = Preparation::Augmented(Box::new(augment));
        // How bright a pixel became beside what it was.
        let change = |epoch: u64, index: usize| {
            let shared = Shared::new(options.clone());
            let mut batch = Batch { images: vec![0.0], ..Batch::default() };
            let order = Order { epoch, index: 0, permutation: shared.options.permutation(epoch) };
            assert!(shared.sample(&order, index, &mut Scratch::default(), &mut batch));
            batch.images[0] / index as f32
        };
        assert_eq!(change(0, 100), change(0, 100));
        assert!((change(0, 100) - change(1, 100)).abs() > 0.02);
        assert!((change(0, 100) - change(0, 101)).abs() > 0.02);

        let mixer = Mixer::new(&settings).expect("sound");
        let options = LoaderOptions { mixer, targets: TargetKind::Shares { smoothing: 0.0 }, ..options };
        let shares = |batch: Batch| batch.targets.into_iter().filter(|share| *share > 0.0).fold(1.0, f32::min);
        let found: Vec<f32> = Loader::start(options, 0, 0, 1).take(3).map(|b| shares(b.expect("loads"))).collect();
        assert!(found[0] != found[1] && found[1] != found[2], "{found:?}");
    }
}
