//! Learning to translate: sentence pairs through an encoder and a decoder, by teacher forcing.

mod data;
mod measure;
mod step;
mod test;

use std::path::Path;
use std::time::{Duration, Instant};

use vitreous_data::loader::Broken;
use vitreous_data::text::{EpochOrder, PairBatch};
use vitreous_engine::{Device, Run, State};
use vitreous_models::TextModel;
use vitreous_models::initial::initialise_transformer;

use crate::error::TrainError;
use crate::recipe::TranslationRecipe;
use crate::subject::of_saving;
use crate::task::{Found, LoopSettings, SpeedUnit, Task, TaskSize, Update};

pub use data::PairData;
pub use measure::{SPECIAL, TranslatorScores, TranslatorTest, longest_side, one_line, translate_options};
pub use test::{ShownTranslation, TranslationReport};

use step::PairStepper;

/// A recipe's model, its pairs, and how it learns them.
pub(crate) struct TranslationTask {
    recipe: TranslationRecipe,
    data: PairData,
    stepper: PairStepper,
    size: TaskSize,
    /// What it is trained and tested on.
    device: Device,
    /// The epoch whose order is known, and the order.
    order: Option<(u64, EpochOrder)>,
    step: u64,
}

impl TranslationTask {
    /// Plans a recipe's updates, and makes the state that they change.
    pub fn new(
        mut recipe: TranslationRecipe,
        data: PairData,
        device: &Device,
    ) -> Result<(TranslationTask, State), TrainError> {
        let tokenisers = &data.tokenisers;
        recipe.model.source_vocabulary = tokenisers.source.vocabulary_size();
        recipe.model.target_vocabulary = tokenisers.target.vocabulary_size();
        recipe.check()?;
        let (stepper, state) = PairStepper::new(&recipe, data.batches.shapes(), device)?;
        let batches = data.batches.batches_per_epoch() as u64;
        let per_step = batches.min(recipe.train.accumulate as u64);
        let (_, target_tokens) = data.train.tokens();
        let steps_per_epoch = batches.div_ceil(per_step);
        let size = TaskSize {
            samples: data.train.len(),
            steps_per_epoch,
            units_per_step: ((target_tokens + data.train.len()) as u64 / steps_per_epoch) as usize,
            bytes: stepper.bytes(),
            flops: stepper.largest_flops() * per_step,
        };
        Ok((TranslationTask { recipe, data, stepper, size, device: device.clone(), order: None, step: 0 }, state))
    }

    /// What the loop needs of the recipe, which is complete now.
    pub fn settings(&self) -> LoopSettings {
        let TranslationRecipe { train, optimizer, schedule, output, .. } = &self.recipe;
        LoopSettings {
            seed: train.seed,
            epochs: train.epochs,
            precision: train.precision,
            ema: 0.0,
            ema_warmup: false,
            average: train.average,
            lr: optimizer.lr,
            clip: optimizer.clip,
            schedule: schedule.clone(),
            output: output.clone(),
            toml: self.recipe.to_toml(),
        }
    }

    /// The batches of the next update; an epoch's last may have fewer.
    fn next_batches(&mut self) -> Vec<PairBatch> {
        let (epoch, place) = (self.step / self.size.steps_per_epoch, self.step % self.size.steps_per_epoch);
        if self.order.as_ref().is_none_or(|(of, _)| *of != epoch) {
            self.order = Some((epoch, self.data.batches.epoch(epoch)));
        }
        let (_, order) = self.order.as_ref().expect("just made");
        let first = place as usize * self.recipe.train.accumulate;
        let end = (first + self.recipe.train.accumulate).min(order.len());
        (first..end).map(|index| order.batch(index, &self.data.train)).collect()
    }
}

impl Task for TranslationTask {
    fn size(&self) -> TaskSize {
        self.size
    }

    fn unit(&self) -> SpeedUnit {
        SpeedUnit::Tokens
    }

    fn data(&self) -> &str {
        &self.data.kind
    }

    fn names(&self) -> &[String] {
        &[]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        self.data.tokeniser_files()
    }

    fn start(&self, state: &mut State) -> Result<(), TrainError> {
        Ok(initialise_transformer(state, self.recipe.train.seed)?)
    }

    fn begin(&mut self, step: u64) {
        self.step = step;
    }

    fn update(&mut self, state: &mut State, rate: f64, _ema: Option<f64>, run: Run) -> Result<Update, TrainError> {
        let before = Instant::now();
        let batches = self.next_batches();
        let waited: Duration = before.elapsed();
        let result = self.stepper.step(state, &batches, rate, run)?;
        self.step += 1;
        let units = batches.iter().map(|batch| batch.tokens as u64).sum();
        let flops = batches.iter().map(|batch| self.stepper.flops(batch.shape)).sum();
        Ok(Update { result, asked: 0, units, flops, waited })
    }

    fn evaluate(&mut self, state: &State, tell: &mut dyn FnMut(usize, usize)) -> Result<Option<Found>, TrainError> {
        let report = test::test(&self.recipe, &self.data, state, &self.device, tell)?;
        Ok(report.map(|report| Found { scores: report.into(), mistakes: Vec::new() }))
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.data.tokeniser_files()?;
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        TextModel::save(directory, &self.recipe.model, state, &files).map_err(of_saving)
    }

    fn broken(&self) -> Vec<Broken> {
        Vec::new()
    }
}
