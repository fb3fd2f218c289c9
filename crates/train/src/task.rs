//! What a model can be trained for. A task brings the data, the graph of a batch with its loss, and the evaluation; the training
//! loop, the stepper and everything that is written know no task.
//!
//! A new task is a folder in `tasks/` and one entry in [`TASKS`](crate::tasks::TASKS).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::dataset::Splits;
use vitreous_data::loader::{ArraySpec, Batch, BatchSource, BrokenSample};
use vitreous_engine::{Device, Graph, Group, Parameter, State, Value};
use vitreous_models::Architecture;
use vitreous_models::model::builtin_name;

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::{Recipe, RecipeError};
use crate::record::RunRecord;
use crate::run_directory::MODEL;
use crate::scores::{Metric, Scores};

/// A task before it has data: its name, its recipes, its metrics, and how it is opened.
pub trait TaskType: fmt::Debug + Sync {
    /// What recipes call it.
    fn name(&self) -> &'static str;

    /// All numbers that its evaluations can have.
    fn metrics(&self) -> &'static [&'static Metric];

    /// Keys that runs of earlier versions do not have, and the values that those runs were made with.
    fn values_of_old_runs(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// A recipe with the default of every key.
    fn defaults(&self) -> Recipe;

    /// The family of a recipe that names none.
    fn usual_family(&self) -> &'static str;

    /// Refuses a model that it cannot train, by its signature.
    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String>;

    /// Reads the keys that only this task has, and writes them back in their usual form.
    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError>;

    /// Refuses values of its own keys that make no sense, and models that cannot be built. The common keys were checked before.
    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError>;

    /// Completes a new recipe: makes its paths absolute, so that its run can be resumed from anywhere, and refuses overrides that
    /// would have no effect.
    fn complete(&self, recipe: &mut Recipe, overrides: &[String]) -> Result<(), TrainError>;

    /// Opens data and model.
    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError>;

    /// Opens the images of a recipe, for pages that show some; `None` if it has no images.
    fn images(&self, _recipe: &Recipe) -> Option<Result<Splits, String>> {
        None
    }

    /// Reads what `evaluation.json` says of an evaluation; `None` if it is not one of this task.
    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>>;
}

/// Where a task is trained.
#[derive(Clone, Debug)]
pub struct TaskContext<'c> {
    /// The device that computes.
    pub device: &'c Device,
    /// Threads for the work that is done on the CPU.
    pub threads: usize,
    /// The directory of the run, if it is resumed from a checkpoint.
    pub resumed: Option<&'c Path>,
}

/// What the training loop must know of a task's data and batches.
#[derive(Clone, Debug)]
pub struct TaskFacts {
    /// What the data is, in a few words.
    pub data: String,
    /// The same in a line, with the numbers of samples.
    pub summary: String,
    /// What a user should know about the data, each said once.
    pub notes: Vec<String>,
    /// Training samples. A run can be resumed only with the same number, because the order of an epoch follows from it.
    pub samples: usize,
    /// What speed is measured in: "images", "tokens".
    pub unit: &'static str,
    /// How many of them an epoch has.
    pub units_per_epoch: u64,
    /// Threads that prepare batches.
    pub loader_threads: usize,
    /// What batches count in an update of several.
    pub weighting: Weighting,
    /// The key that sets the size of a batch, and its value: (`train.batch`, 128).
    pub batch_size: (&'static str, usize),
    /// What a row of each group of batches counts towards that size: 1 image, or the tokens of the longer side.
    pub row_sizes: Vec<usize>,
    /// Averages of the parameters.
    pub averaging: Averaging,
}

/// Averages of the parameters, which are evaluated and saved in their place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Averaging {
    /// Decay of an exponential moving average; 0 for none.
    pub ema: f64,
    /// Whether it starts with a small decay: at most (1 + step) / (10 + step).
    pub ema_warmup: bool,
    /// The model at the end may be the mean of this many checkpoints; 1 for the last alone.
    pub checkpoints: usize,
}

/// No average.
impl Default for Averaging {
    fn default() -> Self {
        Averaging { ema: 0.0, ema_warmup: false, checkpoints: 1 }
    }
}

/// How much a batch counts in an update of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// All the same: the gradient is the mean over batches.
    Equal,
    /// By its units: the gradient is the mean over all units of all batches, as if they were one batch.
    ByUnits,
}

/// The loss of a batch.
#[derive(Clone, Debug)]
pub struct Objective {
    /// The mean loss of the batch, a single number.
    pub loss: Value,
    /// Values that [`Task::correct`] reads.
    pub outputs: Vec<Value>,
}

/// A loss over a whole batch whose rows go through the model in chunks (gradient caching): batches may then be larger than
/// what fits into memory.
pub trait ChunkedLoss {
    /// Rows of a chunk; it divides those of a batch.
    fn chunk_rows(&self) -> usize;

    /// Builds what the loss needs of a chunk with these arrays.
    fn build_chunk(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Chunked, TrainError>;

    /// The loss of the vectors of all chunks, `[batch, width]` each, and of the numbers.
    fn build_loss(&self, graph: &mut Graph, vectors: &[Value], numbers: &[Value]) -> Result<Objective, TrainError>;
}

/// What a loss over the whole batch needs of a chunk.
#[derive(Clone, Debug)]
pub struct Chunked {
    /// One row for each of the chunk's: `[rows, width]`.
    pub vectors: Vec<Value>,
    /// Values that are the same for all chunks, such as a learned temperature.
    pub numbers: Vec<Value>,
}

/// How many answers a model gave while training, and how many were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correct {
    /// Right answers.
    pub right: u64,
    /// All answers.
    pub total: u64,
}

impl Correct {
    /// Of classes: an answer is right where the class of a row has a greater logit than all others.
    pub(crate) fn by_largest_logits(classes: &[i32], logits: &[f32]) -> Option<Correct> {
        let rows = logits.chunks_exact(logits.len().checked_div(classes.len())?.max(1));
        let is_right = |&(row, &class): &(&[f32], &i32)| {
            let own = row[class as usize];
            row.iter().enumerate().all(|(other, &logit)| logit < own || other == class as usize)
        };
        let right = rows.zip(classes).filter(is_right).count() as u64;
        Some(Correct { right, total: classes.len() as u64 })
    }
}

/// A task with its data and its model.
pub trait Task {
    /// The recipe, completed with what follows from the data and from the model to start from.
    fn recipe(&self) -> &Recipe;

    /// What the training loop must know.
    fn facts(&self) -> &TaskFacts;

    /// The training batches.
    fn batches(&self) -> Arc<dyn BatchSource>;

    /// Checksums of aspects of its data ("labels of training images"), by which a run that is resumed with other data is noticed.
    fn data_marks(&self) -> Vec<(String, Mark)> {
        Vec::new()
    }

    /// Builds the graph of a training batch: inputs with the names and shapes of its arrays, and the loss. The arrays are those of one
    /// of the groups of [`Task::batches`], or the same with another number of rows.
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError>;

    /// How batches are run in chunks; `None` if each is run as one.
    fn chunked(&self) -> Option<&dyn ChunkedLoss> {
        None
    }

    /// Weight decay and learning rate of a parameter; `None` freezes it.
    fn group(&self, parameter: &Parameter) -> Option<Group>;

    /// Sets the initial values of the parameters.
    fn initialise(&self, state: &mut State) -> Result<(), TrainError>;

    /// Counts right answers of a batch by the objective's outputs; `None` if no answer is the right one.
    fn correct(&self, _batch: &Batch, _outputs: &[&[f32]]) -> Option<Correct> {
        None
    }

    /// Bytes of the device's memory that evaluations take beside the training plans, with batches of this many rows.
    fn evaluation_bytes(&self, _rows: usize) -> Result<usize, TrainError> {
        Ok(0)
    }

    /// Evaluates the state's parameters on the validation data, if there is any. `progress` is told how many samples are done, of
    /// how many. The ranks are those that share the work out.
    fn evaluate(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError>;

    /// Whether [`Task::evaluate`] shares its work out with [`Ranks::share_out`]: all ranks call it then. Otherwise rank 0 does, as if it
    /// were alone.
    fn shares_evaluation(&self) -> bool {
        false
    }

    /// The parameters of the model that is evaluated and saved, where they are not those of the state itself.
    fn exported(&self, _state: &State) -> Result<Option<State>, TrainError> {
        Ok(None)
    }

    /// Writes a model directory.
    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError>;

    /// Files that the run directory gets when a run begins: name and content.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(Vec::new())
    }

    /// Samples that evaluations could not read.
    fn unreadable(&self) -> Vec<BrokenSample> {
        Vec::new()
    }

    /// The images that it is trained on and evaluated with, for pages that show some.
    fn images(&self) -> Option<&Splits> {
        None
    }
}

/// A path of a recipe made absolute, so that a run can be resumed from anywhere.
pub(crate) fn absolute(path: &str) -> Result<String, TrainError> {
    let failed = |what: String| TrainError::Data(format!("{path}: {what}"));
    let absolute = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
    absolute.into_os_string().into_string().map_err(|_| failed("the path is not UTF-8".to_string()))
}

/// The absolute path of a pretrained model: of a run, the model in it. A built-in model is opened by its name from anywhere.
pub(crate) fn pretrained(init: &str) -> Result<String, TrainError> {
    let path = Path::new(init);
    if let Some(name) = builtin_name(path) {
        return Ok(name.to_string());
    }
    if path.exists() {
        let model = if RunRecord::is_run(path) { path.join(MODEL) } else { path.to_path_buf() };
        return absolute(&model.to_string_lossy());
    }
    // Names on the Hugging Face Hub are `organisation/model`.
    let hint = match init.split('/').collect::<Vec<_>>()[..] {
        [owner, name] if !owner.is_empty() && !name.is_empty() && !owner.starts_with(['.', '~']) => format!(
            ". If it is a model on the Hugging Face Hub, download it first, with `hf download {init} --local-dir {name}` or `git clone \
             https://huggingface.co/{init}`, then use --init {name}"
        ),
        _ => String::new(),
    };
    Err(TrainError::Data(format!("{init}: there is no such model file or directory{hint}")))
}

/// A number with commas between thousands.
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let all = [0, 999, 1000, 1_234_567].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "1,234,567"]);
    }
}
