//! Batches of recordings with what is said in them: a [`BatchSource`] for speech models.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clips::SpeechClips;
use super::spec_augment::SpecAugment;
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, BrokenSample, EpochOrder, LoadError};
use crate::random::Random;
use crate::text::IGNORED;

/// Targets are filled up to a multiple of this.
const STEP: usize = 8;

/// The tokens of each recording's text, as a decoder takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechTargets {
    /// What all texts begin with: start, language, task.
    pub prompt: Vec<u32>,
    /// The text of each recording, with its end.
    pub texts: Vec<Vec<u32>>,
    /// What fills up a batch.
    pub padding: u32,
}

impl SpeechTargets {
    /// Tokens of the longest target that a decoder reads: the last one of a text is wanted, but not read.
    pub fn longest(&self) -> usize {
        self.prompt.len() + self.texts.iter().map(Vec::len).max().unwrap_or(1).saturating_sub(1)
    }

    /// Tokens that are wanted.
    pub fn tokens(&self) -> u64 {
        self.texts.iter().map(|text| text.len() as u64).sum()
    }

    /// Writes what the decoder reads for a recording, and what it is to write at each place: nothing before the last token of the prompt.
    fn write(&self, index: usize, target: &mut [i32], wanted: &mut [i32]) {
        target.fill(self.padding as i32);
        wanted.fill(IGNORED);
        let text = &self.texts[index];
        let read = self.prompt.iter().chain(&text[..text.len().saturating_sub(1)]);
        target.iter_mut().zip(read).for_each(|(to, &token)| *to = token as i32);
        let first = self.prompt.len().saturating_sub(1);
        wanted[first..].iter_mut().zip(text).for_each(|(to, &token)| *to = token as i32);
    }
}

/// The arrays are `mel` f32 `[batch, frames, bins]`, `target` and `wanted` i32 `[batch, tokens]`. [`Batch::units`] counts the tokens that are
/// wanted. All batches have one shape: the encoder, which always takes a whole window, is most of the work.
pub struct SpeechBatches {
    clips: Arc<SpeechClips>,
    targets: Arc<SpeechTargets>,
    groups: [Vec<ArraySpec>; 1],
    batch: usize,
    seed: u64,
    training: Option<SpecAugment>,
    broken: Mutex<BTreeMap<usize, BrokenSample>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpeechBatches {
    /// Training batches: each epoch has an order of its own and full batches, and what is masked is a function of (seed, epoch, recording).
    pub fn training(
        clips: Arc<SpeechClips>,
        targets: Arc<SpeechTargets>,
        batch: usize,
        seed: u64,
        augment: SpecAugment,
    ) -> SpeechBatches {
        SpeechBatches::new(clips, targets, batch, seed, Some(augment))
    }

    /// All recordings in their order, as they are; the last batch may have fewer.
    pub fn in_order(clips: Arc<SpeechClips>, targets: Arc<SpeechTargets>, batch: usize) -> SpeechBatches {
        SpeechBatches::new(clips, targets, batch, 0, None)
    }

    fn new(
        clips: Arc<SpeechClips>,
        targets: Arc<SpeechTargets>,
        batch: usize,
        seed: u64,
        training: Option<SpecAugment>,
    ) -> SpeechBatches {
        let [frames, bins] = clips.window_shape();
        let length = targets.longest().next_multiple_of(STEP);
        let groups = [vec![
            ArraySpec::f32("mel", [batch, frames, bins]),
            ArraySpec::i32("target", [batch, length]),
            ArraySpec::i32("wanted", [batch, length]),
        ]];
        SpeechBatches { clips, targets, groups, batch, seed, training, broken: Mutex::default() }
    }

    /// The same batches with targets of at most so many tokens, where a model has no room for the rounding.
    pub fn with_longest(mut self, longest: usize) -> SpeechBatches {
        for array in self.groups[0].iter_mut().filter(|array| array.name != "mel") {
            array.shape[1] = array.shape[1].min(longest.max(self.targets.longest()));
        }
        self
    }

    /// Writes a recording as the batch's next row; false if it can no longer be read.
    fn sample(&self, order: &EpochOrder, sample: usize, batch: &mut Batch) -> bool {
        if lock(&self.broken).contains_key(&sample) {
            return false;
        }
        let row = batch.samples.len();
        let [mel, target, wanted] = &mut batch.arrays[..] else { return false };
        let (ArrayValues::F32(mel), ArrayValues::I32(target), ArrayValues::I32(wanted)) =
            (&mut mel.values, &mut target.values, &mut wanted.values)
        else {
            return false;
        };
        let [frames, bins] = self.clips.window_shape();
        let window = &mut mel[row * frames * bins..][..frames * bins];
        let heard = match self.clips.window(sample, window) {
            Ok(heard) => heard,
            Err(error) => {
                let name = self.clips.recordings()[sample].path.display().to_string();
                lock(&self.broken).insert(sample, BrokenSample { name, reason: error.to_string() });
                return false;
            }
        };
        if let Some(augment) = &self.training {
            augment.apply(&mut Random::new(self.seed, order.epoch(), sample as u64), window, bins, heard);
        }
        let length = target.len() / self.batch;
        self.targets.write(sample, &mut target[row * length..][..length], &mut wanted[row * length..][..length]);
        batch.samples.push(sample);
        batch.units += self.targets.texts[sample].len();
        true
    }

    /// Writes the recording at a place of the epoch's order, or, if it can no longer be read, the next one that can.
    fn readable_sample(&self, order: &EpochOrder, place: usize, batch: &mut Batch) -> Result<(), LoadError> {
        let samples = order.all_samples();
        let tried = |step: usize| samples[(place + step) % samples.len()] as usize;
        if (0..samples.len()).any(|step| self.sample(order, tried(step), batch)) {
            return Ok(());
        }
        let unknown = || BrokenSample { name: String::new(), reason: String::new() };
        let first = lock(&self.broken).values().next().cloned().unwrap_or_else(unknown);
        Err(LoadError::AllBroken { samples: samples.len(), first })
    }
}

impl BatchSource for SpeechBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        match self.training {
            Some(_) => self.clips.len() / self.batch,
            None => self.clips.len().div_ceil(self.batch),
        }
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        match self.training {
            Some(_) => EpochOrder::shuffled(epoch, self.seed, self.clips.len(), self.batch),
            None => {
                let all: Vec<u32> = (0..self.clips.len() as u32).collect();
                EpochOrder::of_batches(epoch, all.chunks(self.batch).map(|rows| (0, rows.to_vec())))
            }
        }
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let index = batch.position.index;
        for (place, &sample) in (order.start(index)..).zip(order.samples(index)) {
            match self.training {
                Some(_) => self.readable_sample(order, place, batch)?,
                None => {
                    self.sample(order, sample as usize, batch);
                }
            }
        }
        let rows = batch.samples.len();
        for array in &mut batch.arrays {
            let row: usize = array.shape[1..].iter().product();
            match &mut array.values {
                ArrayValues::F32(values) => values[rows * row..].fill(0.0),
                ArrayValues::I32(values) if array.name == "wanted" => values[rows * row..].fill(IGNORED),
                ArrayValues::I32(values) => values[rows * row..].fill(self.targets.padding as i32),
            }
        }
        Ok(())
    }

    fn broken(&self) -> Vec<BrokenSample> {
        lock(&self.broken).values().cloned().collect()
    }
}
