//! One loader for every kind of sample: batches of named arrays, prepared by threads ahead of the model.
//!
//! - A [`BatchSource`] knows the samples and makes batches of them. Images
//!   ([`image::ImageBatches`](crate::image::ImageBatches)) and sentence pairs
//!   ([`text::PairBatches`](crate::text::PairBatches)) are the two sources here.
//! - A [`Batch`] is a list of [`NamedArray`]s. The names are those of the graph's inputs, so a training step copies each
//!   array to the input of its name and needs to know nothing else:
//!
//!   | source | arrays |
//!   |---|---|
//!   | images, prepared | `images` f32 `[batch, channels, height, width]`, `targets` |
//!   | images, raw | `pixels` i32 `[batch, words]`, `draws` i32 `[batch, words]`, `targets` |
//!   | sentence pairs | `source` i32 `[batch, source]`, `source_lengths` i32 `[batch]`, `target` and `wanted` i32 `[batch, target]` |
//!
//!   `targets` is i32 `[batch]` (class indices) or f32 `[batch, classes]` (probabilities, or one per label).
//! - Batches may come in several shapes. [`BatchSource::groups`] lists them before any batch is made, so that a plan can be
//!   made for each; [`Batch::group`] says which of them a batch has.
//! - A [`Loader`] runs a source from any [`BatchPosition`] on. Which samples a batch has, and how each is augmented, is a
//!   function of (seed, epoch, position) alone: a run resumes at any batch, and the number of threads changes nothing.
//!
//! ```
//! use std::sync::Arc;
//! use vitreous_data::loader::{ArrayValues, BatchPosition, BatchSource, Loader};
//! use vitreous_data::text::{EncodedPairs, PairBatches};
//!
//! let pairs = EncodedPairs::from_tokens([(&[5, 6][..], &[7][..]), (&[8], &[9, 10])]);
//! let source = Arc::new(PairBatches::new(pairs, 64, 7)?);
//! for group in source.groups() {
//!     // One plan per group: `group[i].name`, `.shape` and `.element` are the inputs of its graph.
//!     assert_eq!(group[0].name, "source");
//! }
//! let mut loader = Loader::start(source, BatchPosition::default(), 1, 2);
//! while let Some(batch) = loader.next().transpose()? {
//!     for array in &batch.arrays {
//!         match &array.values {
//!             ArrayValues::F32(_values) => {} // executor.input(array.name)?.copy_from_slice(_values)
//!             ArrayValues::I32(_values) => {} // executor.input_i32(array.name)?.copy_from_slice(_values)
//!         }
//!     }
//!     loader.give_back(batch); // its memory is used again
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vitreous_engine::DType;

use crate::ordered::OrderedMap;
use crate::random::Random;

/// Makes the batches of every epoch. Its methods are called by several threads at once.
pub trait BatchSource: Send + Sync {
    /// The shapes in which batches come: for each group, the arrays of its batches, in the order of [`Batch::arrays`].
    fn groups(&self) -> &[Vec<ArraySpec>];

    /// Batches per epoch: the same in every epoch.
    fn batches_per_epoch(&self) -> usize;

    /// Which samples each batch of an epoch has: a function of the seed and the epoch alone.
    fn order(&self, epoch: u64) -> EpochOrder;

    /// Fills a batch of this order: [`Batch::position`], [`Batch::group`] and the arrays' names and shapes are set. The arrays'
    /// values are those of an earlier batch, so every element must be written. `samples` and `units` are empty and zero.
    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError>;

    /// The samples that could not be read so far.
    fn broken(&self) -> Vec<BrokenSample> {
        Vec::new()
    }

    /// Makes one batch here and now, without a loader.
    fn batch(&self, order: &EpochOrder, index: usize) -> Result<Batch, LoadError> {
        let mut batch = Batch::default();
        batch.reset(order, index, self.groups());
        self.fill(order, &mut batch)?;
        Ok(batch)
    }
}

/// What an array of a batch looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// The name of the graph's input.
    pub name: &'static str,
    /// Its axes; the first is the batch.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub element: ElementType,
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 32-bit floats.
    F32,
    /// 32-bit integers.
    I32,
}

impl From<ElementType> for DType {
    fn from(element: ElementType) -> DType {
        match element {
            ElementType::F32 => DType::F32,
            ElementType::I32 => DType::I32,
        }
    }
}

impl ArraySpec {
    /// An array of 32-bit floats.
    pub fn f32(name: &'static str, shape: impl Into<Vec<usize>>) -> ArraySpec {
        ArraySpec { name, shape: shape.into(), element: ElementType::F32 }
    }

    /// An array of 32-bit integers.
    pub fn i32(name: &'static str, shape: impl Into<Vec<usize>>) -> ArraySpec {
        ArraySpec { name, shape: shape.into(), element: ElementType::I32 }
    }
}

/// An array of a batch, by the name of the graph's input.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray {
    /// The name of the graph's input.
    pub name: &'static str,
    /// Its axes; the first is the batch.
    pub shape: Vec<usize>,
    /// Its elements, row by row.
    pub values: ArrayValues,
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrayValues {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 32-bit integers.
    I32(Vec<i32>),
}

/// The batches of an epoch: the order in which samples are visited, and where it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochOrder {
    epoch: u64,
    samples: Vec<u32>,
    /// The group of each batch, and its part of `samples`.
    batches: Vec<(usize, Range<usize>)>,
}

/// A batch's epoch, and its index in the epoch: where training is, and where it resumes. The default is the very first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchPosition {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch in the epoch, from 0.
    pub index: usize,
}

/// Some samples, ready for a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Where in training it comes.
    pub position: BatchPosition,
    /// Which of [`BatchSource::groups`] its arrays' shapes are.
    pub group: usize,
    /// What a model is given. Rows without a sample, if there are any, are the last, and hold zeros (padding).
    pub arrays: Vec<NamedArray>,
    /// The index in the data set of each row's sample.
    pub samples: Vec<usize>,
    /// What throughput counts: images, or target tokens without padding.
    pub units: usize,
}

/// A sample that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokenSample {
    /// Its path, or its file and number.
    pub name: String,
    /// Why it could not be read.
    pub reason: String,
}

/// Why there is no batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Every sample is broken.
    #[error("none of the {samples} samples can be read; the first: {}: {}", .first.name, .first.reason)]
    AllBroken {
        /// How many there are.
        samples: usize,
        /// One of them.
        first: BrokenSample,
    },
}

impl EpochOrder {
    /// The order of an epoch: `samples` as they are visited, and for each batch its group and its part of them. Samples that
    /// are in no batch are not seen in this epoch.
    pub fn new(epoch: u64, samples: Vec<u32>, batches: Vec<(usize, Range<usize>)>) -> EpochOrder {
        EpochOrder { epoch, samples, batches }
    }

    /// The order of an epoch whose batches are given one after the other: the group and the samples of each.
    pub fn of_batches(epoch: u64, batches: impl IntoIterator<Item = (usize, Vec<u32>)>) -> EpochOrder {
        let mut order = EpochOrder::new(epoch, Vec::new(), Vec::new());
        for (group, samples) in batches {
            let start = order.samples.len();
            order.samples.extend(samples);
            order.batches.push((group, start..order.samples.len()));
        }
        order
    }

    /// The order of an epoch in which so many samples are shuffled and visited in batches of one size and group. Those that are left over
    /// are not seen in this epoch.
    pub fn shuffled(epoch: u64, seed: u64, samples: usize, batch: usize) -> EpochOrder {
        let mut order: Vec<u32> = (0..samples as u32).collect();
        Random::new(seed, epoch, 0).shuffle(&mut order);
        EpochOrder::of_batches(epoch, order.chunks_exact(batch).map(|rows| (0, rows.to_vec())))
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there are no batches.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Which of [`BatchSource::groups`] a batch is of.
    pub fn group(&self, index: usize) -> usize {
        self.batches[index].0
    }

    /// The samples of a batch.
    pub fn samples(&self, index: usize) -> &[u32] {
        &self.samples[self.batches[index].1.clone()]
    }

    /// Where a batch's samples begin in [`EpochOrder::all_samples`].
    pub fn start(&self, index: usize) -> usize {
        self.batches[index].1.start
    }

    /// All samples in the order in which they are visited, those that are in no batch included.
    pub fn all_samples(&self) -> &[u32] {
        &self.samples
    }
}

impl Batch {
    /// Number of samples; at most the first axis of each array.
    pub fn count(&self) -> usize {
        self.samples.len()
    }

    /// The array of this name, if there is one.
    pub fn array(&self, name: &str) -> Option<&NamedArray> {
        self.arrays.iter().find(|array| array.name == name)
    }

    /// The values of the array of this name, if there is one and it is of floats.
    pub fn f32(&self, name: &str) -> Option<&[f32]> {
        match &self.array(name)?.values {
            ArrayValues::F32(values) => Some(values),
            ArrayValues::I32(_) => None,
        }
    }

    /// The values of the array of this name, if there is one and it is of integers.
    pub fn i32(&self, name: &str) -> Option<&[i32]> {
        match &self.array(name)?.values {
            ArrayValues::I32(values) => Some(values),
            ArrayValues::F32(_) => None,
        }
    }

    /// Makes a new or a used batch ready to be filled.
    fn reset(&mut self, order: &EpochOrder, index: usize, groups: &[Vec<ArraySpec>]) {
        self.position = BatchPosition { epoch: order.epoch, index };
        self.group = order.group(index);
        self.samples.clear();
        self.units = 0;
        let specs = &groups[self.group];
        self.arrays.truncate(specs.len());
        for (place, spec) in specs.iter().enumerate() {
            match self.arrays.get_mut(place) {
                Some(array) => array.reset(spec),
                None => self.arrays.push(NamedArray::new(spec)),
            }
        }
    }
}

impl NamedArray {
    /// An array of zeros.
    pub fn new(spec: &ArraySpec) -> NamedArray {
        let length = spec.shape.iter().product();
        let values = match spec.element {
            ElementType::F32 => ArrayValues::F32(vec![0.0; length]),
            ElementType::I32 => ArrayValues::I32(vec![0; length]),
        };
        NamedArray { name: spec.name, shape: spec.shape.clone(), values }
    }

    /// Takes another name, shape and type; the memory is used again if the type is the same.
    fn reset(&mut self, spec: &ArraySpec) {
        let length = spec.shape.iter().product();
        match (&mut self.values, spec.element) {
            (ArrayValues::F32(values), ElementType::F32) => values.resize(length, 0.0),
            (ArrayValues::I32(values), ElementType::I32) => values.resize(length, 0),
            (ArrayValues::F32(_), ElementType::I32) | (ArrayValues::I32(_), ElementType::F32) => {
                *self = NamedArray::new(spec);
            }
        }
        self.name = spec.name;
        self.shape.clone_from(&spec.shape);
    }
}

/// Batches, from any position in training on.
pub struct Loader {
    batches: OrderedMap<Result<Batch, LoadError>>,
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn BatchSource>,
    /// Used batches, to be filled again.
    spare: Mutex<Vec<Batch>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loader {
    /// Starts `threads` threads that prepare the batches from `first` to the end of the last of `epochs` epochs. They stay a few
    /// batches ahead of whoever takes them.
    pub fn start(source: Arc<dyn BatchSource>, first: BatchPosition, epochs: u64, threads: usize) -> Loader {
        Loader::of_some(source, first, epochs, threads, |_| true)
    }

    /// As [`Loader::start`], of those batches alone whose index in the epoch `is_wanted`: nothing of the others is read.
    pub fn of_some(
        source: Arc<dyn BatchSource>,
        first: BatchPosition,
        epochs: u64,
        threads: usize,
        is_wanted: impl Fn(usize) -> bool + Clone + Send + 'static,
    ) -> Loader {
        let threads = threads.max(1);
        let shared = Arc::new(Shared { source, spare: Mutex::default() });
        let of_epochs = shared.clone();
        let items = (first.epoch..epochs).flat_map(move |epoch| {
            let order = Arc::new(of_epochs.source.order(epoch));
            let start = if epoch == first.epoch { first.index } else { 0 };
            let is_wanted = is_wanted.clone();
            (start..order.len()).filter(move |&index| is_wanted(index)).map(move |index| (order.clone(), index))
        });
        let worker = || {
            let shared = shared.clone();
            move |(order, index): (Arc<EpochOrder>, usize)| shared.prepare(&order, index)
        };
        let batches = OrderedMap::new(items, threads, threads + 1, worker);
        Loader { batches, shared }
    }

    /// Takes a used batch back, so that its memory is used again.
    pub fn give_back(&self, batch: Batch) {
        lock(&self.shared.spare).push(batch);
    }

    /// The samples that could not be read so far.
    pub fn broken(&self) -> Vec<BrokenSample> {
        self.shared.source.broken()
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl Shared {
    fn prepare(&self, order: &EpochOrder, index: usize) -> Result<Batch, LoadError> {
        let mut batch = lock(&self.spare).pop().unwrap_or_default();
        batch.reset(order, index, self.source.groups());
        self.source.fill(order, &mut batch)?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 on, in batches of one to three that are of a group each.
    struct Numbers {
        groups: Vec<Vec<ArraySpec>>,
        count: u32,
    }

    fn numbers(count: u32) -> Arc<Numbers> {
        let group = |size: usize| match size {
            // The type of the first array changes from group to group.
            2 => vec![ArraySpec::f32("numbers", [size]), ArraySpec::i32("twice", [size])],
            _ => vec![ArraySpec::i32("numbers", [size])],
        };
        Arc::new(Numbers { groups: (1..=3).map(group).collect(), count })
    }

    impl BatchSource for Numbers {
        fn groups(&self) -> &[Vec<ArraySpec>] {
            &self.groups
        }
        fn batches_per_epoch(&self) -> usize {
            self.order(0).len()
        }
        fn order(&self, epoch: u64) -> EpochOrder {
            let samples: Vec<u32> = (0..self.count).map(|number| (number + epoch as u32) % self.count).collect();
            let mut batches = Vec::new();
            let mut start = 0;
            while start + batches.len() % 3 < samples.len() {
                let group = batches.len() % 3;
                batches.push((group, start..start + group + 1));
                start += group + 1;
            }
            EpochOrder::new(epoch, samples, batches)
        }
        fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
            let samples = order.samples(batch.position.index);
            for array in &mut batch.arrays {
                match &mut array.values {
                    ArrayValues::F32(values) => values.iter_mut().zip(samples).for_each(|(v, &s)| *v = s as f32),
                    ArrayValues::I32(values) => values.iter_mut().zip(samples).for_each(|(v, &s)| *v = s as i32),
                }
            }
            batch.samples.extend(samples.iter().map(|&sample| sample as usize));
            batch.units = samples.len();
            Ok(())
        }
    }

    #[test]
    fn batches_come_in_order_from_any_position_with_any_number_of_threads() {
        let all: Vec<Batch> = {
            let mut loader = Loader::start(numbers(13), BatchPosition::default(), 3, 1);
            std::iter::from_fn(|| loader.next().map(|batch| batch.expect("numbers load"))).collect()
        };
        let per_epoch = numbers(13).batches_per_epoch();
        assert_eq!(all.len(), 3 * per_epoch);
        for (place, batch) in all.iter().enumerate() {
            let position = BatchPosition { epoch: (place / per_epoch) as u64, index: place % per_epoch };
            assert_eq!(batch.position, position);
            assert_eq!((batch.count(), batch.units), (batch.group + 1, batch.group + 1));
            for threads in [1, 3] {
                let rest = Loader::start(numbers(13), position, 3, threads);
                let rest: Vec<Batch> = rest.map(|batch| batch.expect("numbers load")).collect();
                assert_eq!(rest, all[place..]);
            }
        }
        let order = numbers(13).order(2);
        assert_eq!(numbers(13).batch(&order, 1).expect("numbers load"), all[2 * per_epoch + 1]);
    }

    #[test]
    fn a_used_batch_takes_the_shape_and_type_of_the_next_one() {
        let mut loader = Loader::start(numbers(12), BatchPosition::default(), 4, 1);
        let mut seen = 0;
        while let Some(batch) = loader.next() {
            let batch = batch.expect("numbers load");
            let samples = || batch.samples.iter();
            assert_eq!(batch.arrays.len(), if batch.group == 1 { 2 } else { 1 });
            assert!(batch.arrays.iter().all(|array| array.shape == [batch.group + 1]));
            match batch.group {
                1 => {
                    assert_eq!(batch.f32("numbers"), Some(&samples().map(|&s| s as f32).collect::<Vec<_>>()[..]));
                    assert_eq!(batch.i32("twice"), Some(&samples().map(|&s| s as i32).collect::<Vec<_>>()[..]));
                    assert_eq!(batch.i32("numbers"), None);
                }
                _ => assert_eq!(batch.i32("numbers"), Some(&samples().map(|&s| s as i32).collect::<Vec<_>>()[..])),
            }
            seen += 1;
            loader.give_back(batch);
        }
        assert_eq!(seen, 4 * numbers(12).batches_per_epoch());
    }
}
