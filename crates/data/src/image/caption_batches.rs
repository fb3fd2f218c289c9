//! Batches of images with their captions: a [`BatchSource`] for models of images and texts.

use std::collections::HashMap;

use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, BrokenSample, EpochOrder, LoadError, NamedArray};

use super::{ImageBatchOptions, ImageBatches};

/// The tokens of captions, filled up to one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptionTokens {
    /// The tokens of each caption.
    pub ids: Vec<Vec<u32>>,
    /// Of each caption, the place of the token whose vector is the caption's; empty if that is always the last.
    pub places: Vec<usize>,
    /// What captions are filled up with.
    pub padding: u32,
    /// The length of every row.
    pub length: usize,
}

/// Which captions of a batch belong to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptionTargets {
    /// Its own alone: there is no array that says so.
    Own,
    /// All with the same tokens, each with the same share of 1.
    SharedBySame,
    /// All with the same tokens, each with 1.
    AllOfSame,
}

/// The arrays are those of [`ImageBatches`] but `targets`, and `tokens` i32 `[batch, length]` with, where captions have places, `pooled`
/// i32 `[batch]`: the places as indices in `batch * length`; and, unless only its own caption belongs to an image, `targets` f32
/// `[batch, batch]`. [`Batch::units`] counts pairs.
pub struct CaptionBatches {
    images: ImageBatches,
    captions: CaptionTokens,
    targets: CaptionTargets,
    /// A number for each caption, the same for those with the same tokens.
    same: Vec<u32>,
    groups: [Vec<ArraySpec>; 1],
}

impl CaptionBatches {
    /// Batches of the images of these options, with the captions in the same order.
    pub fn new(images: ImageBatchOptions, captions: CaptionTokens, targets: CaptionTargets) -> CaptionBatches {
        let batch = images.batch;
        let images = ImageBatches::new(images);
        let mut arrays = images.groups()[0].clone();
        arrays.retain(|array| array.name != "targets");
        arrays.push(ArraySpec::i32("tokens", [batch, captions.length]));
        if !captions.places.is_empty() {
            arrays.push(ArraySpec::i32("pooled", [batch]));
        }
        if targets != CaptionTargets::Own {
            arrays.push(ArraySpec::f32("targets", [batch, batch]));
        }
        let mut known: HashMap<&[u32], u32> = HashMap::new();
        let mut same = Vec::with_capacity(captions.ids.len());
        for ids in &captions.ids {
            let next = known.len() as u32;
            same.push(*known.entry(ids).or_insert(next));
        }
        drop(known);
        CaptionBatches { images, captions, targets, same, groups: [arrays] }
    }

    fn fill_captions(&self, batch: &mut Batch) {
        let CaptionTokens { ids, places, padding, length } = &self.captions;
        for array in &mut batch.arrays {
            let values = match &mut array.values {
                ArrayValues::I32(values) => values,
                ArrayValues::F32(values) if array.name == "targets" => {
                    self.fill_targets(values, &batch.samples);
                    continue;
                }
                ArrayValues::F32(_) => continue,
            };
            match array.name {
                "tokens" => {
                    values.fill(*padding as i32);
                    for (row, &sample) in values.chunks_exact_mut(*length).zip(&batch.samples) {
                        row.iter_mut().zip(&ids[sample]).for_each(|(to, &id)| *to = id as i32);
                    }
                }
                "pooled" => {
                    values.fill(0);
                    for (row, (to, &sample)) in values.iter_mut().zip(&batch.samples).enumerate() {
                        *to = (row * length + places[sample]) as i32;
                    }
                }
                _ => {}
            }
        }
    }
}

impl CaptionBatches {
    fn fill_targets(&self, targets: &mut [f32], samples: &[usize]) {
        targets.fill(0.0);
        for (row, &sample) in targets.chunks_exact_mut(samples.len()).zip(samples) {
            let belongs = |other: &usize| self.same[*other] == self.same[sample];
            let share = match self.targets {
                CaptionTargets::SharedBySame => 1.0 / samples.iter().filter(|other| belongs(other)).count() as f32,
                CaptionTargets::AllOfSame | CaptionTargets::Own => 1.0,
            };
            row.iter_mut().zip(samples).filter(|(_, other)| belongs(other)).for_each(|(to, _)| *to = share);
        }
    }
}

impl BatchSource for CaptionBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.images.batches_per_epoch()
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        self.images.order(epoch)
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        // The images' own source fills its arrays, among them the targets, which nobody needs.
        let own = self.images.groups()[0].len() - 1;
        let captions = batch.arrays.split_off(own);
        let targets = &self.images.groups()[0][own];
        let values = ArrayValues::I32(vec![0; targets.shape.iter().product()]);
        batch.arrays.push(NamedArray { name: targets.name, shape: targets.shape.clone(), values });
        let filled = self.images.fill(order, batch);
        batch.arrays.truncate(own);
        batch.arrays.extend(captions);
        filled?;
        self.fill_captions(batch);
        Ok(())
    }

    fn broken(&self) -> Vec<BrokenSample> {
        self.images.broken()
    }
}
