//! What the loop asks of what is learned: images and their classes, or sentences and their translations.

use std::path::Path;
use std::time::Duration;

use vitreous_data::loader::BrokenSample;
use vitreous_engine::{Run, State};

use crate::error::TrainError;
use crate::evaluation::Mistake;
use crate::recipe::{OutputSettings, PrecisionChoice, ScheduleSettings};
use crate::step::StepResult;
use crate::tested::TestedScores;

/// What of a recipe the loop itself needs.
#[derive(Clone, Debug)]
pub(crate) struct LoopSettings {
    pub seed: u64,
    pub epochs: u64,
    pub precision: PrecisionChoice,
    pub ema: f64,
    pub ema_warmup: bool,
    /// The model at the end is the mean of so many of the last checkpoints.
    pub average: usize,
    pub lr: f64,
    pub clip: f64,
    pub schedule: ScheduleSettings,
    pub output: OutputSettings,
    /// The whole recipe, as it is written into the run directory.
    pub toml: String,
}

/// What is counted by the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedUnit {
    /// Images.
    Images,
    /// Words of targets.
    Tokens,
}

/// The size of what is learned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskSize {
    /// Samples to learn from: the order of an epoch follows from it.
    pub samples: usize,
    /// Updates in an epoch.
    pub steps_per_epoch: u64,
    /// Images or tokens of an update, about.
    pub units_per_step: usize,
    /// Memory of the plans.
    pub bytes: usize,
    /// Arithmetic of an update, about.
    pub flops: u64,
}

/// An update that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    pub result: StepResult,
    /// Answers that were asked for, of which `result.right` are right; 0 where none is the right one.
    pub asked: u64,
    /// Images or tokens.
    pub units: u64,
    pub flops: u64,
    /// Time spent waiting for data.
    pub waited: Duration,
}

/// What a test found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub scores: TestedScores,
    /// The most confident mistakes.
    pub mistakes: Vec<Mistake>,
}

/// Something that can be learned.
pub(crate) trait Task {
    fn size(&self) -> TaskSize;

    fn unit(&self) -> SpeedUnit;

    /// What the data was found to be, in words.
    fn data(&self) -> &str;

    /// Names of classes.
    fn names(&self) -> &[String];

    /// Files that go into the run directory when it is made.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(Vec::new())
    }

    /// Puts initial values into a state.
    fn start(&self, state: &mut State) -> Result<(), TrainError>;

    /// Makes ready for updates from this one on.
    fn begin(&mut self, step: u64);

    /// Makes the next update, at this rate.
    fn update(&mut self, state: &mut State, rate: f64, ema_decay: Option<f64>, run: Run) -> Result<Update, TrainError>;

    /// Tests with the state's parameters; `None` if there is nothing to test with.
    fn evaluate(&mut self, state: &State, tell: &mut dyn FnMut(usize, usize)) -> Result<Option<Found>, TrainError>;

    /// What is tested and saved in place of a state, if not itself.
    fn to_be_saved(&self, _state: &State) -> Result<Option<State>, TrainError> {
        Ok(None)
    }

    /// Writes a model directory.
    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError>;

    /// Samples that could not be read.
    fn broken(&self) -> Vec<BrokenSample>;
}
