//! The part of a [`Task`] that all tasks of texts have in common: an encoder that is trained for an objective.

use std::path::Path;
use std::sync::Arc;

use vitreous_data::loader::{ArraySpec, Batch, BatchSource};
use vitreous_engine::{Device, Graph, Group, Parameter, State, Value, WeightView};
use vitreous_models::encode::{EncoderOutput, EncoderRunner};
use vitreous_models::{Call, Outputs};

use super::encoder::TrainedEncoder;
use crate::error::TrainError;
use crate::finetuning::Finetuning;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::scores::Scores;
use crate::task::{Correct, Objective, Task, TaskFacts};

/// An encoder of texts that is trained for an objective.
pub struct TextTask<O> {
    pub(crate) recipe: Recipe,
    pub(crate) finetuning: Finetuning,
    pub(crate) facts: TaskFacts,
    pub(crate) encoder: TrainedEncoder,
    pub(crate) objective: O,
    /// What it is evaluated on.
    pub(crate) device: Device,
}

/// What is learnt from texts: batches, their loss, and the evaluation.
pub(crate) trait TextObjective {
    /// The training batches: the arrays that an encoder reads, perhaps `masked`, and `targets`.
    fn batches(&self) -> Arc<dyn BatchSource>;

    /// Checksums of aspects of the data.
    fn data_marks(&self) -> Vec<(String, Mark)>;

    /// The mean loss of a batch, by what the encoder gives for it and by its `targets`.
    fn loss(&self, graph: &mut Graph, given: &Outputs, targets: Value) -> vitreous_engine::Result<Objective>;

    /// Whether a parameter is trained, as far as the objective decides it.
    fn trains(&self, _parameter: &Parameter) -> bool {
        true
    }

    /// How many samples there are to evaluate.
    fn validation_samples(&self) -> usize;

    /// What evaluations ask of the encoder.
    fn evaluated_output(&self) -> EncoderOutput {
        EncoderOutput::Logits
    }

    /// Evaluates an encoder on the validation data, which ranks share out.
    fn evaluate(
        &self,
        runner: &mut EncoderRunner,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Scores, TrainError>;

    /// Writes what the model directory has besides the model and its tokenizer.
    fn save(&self, _directory: &Path, _encoder: &TrainedEncoder) -> Result<(), TrainError> {
        Ok(())
    }

    /// Files that the run directory gets when a run begins.
    fn files(&self, _encoder: &TrainedEncoder) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(Vec::new())
    }
}

impl<O: TextObjective> Task for TextTask<O> {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        self.objective.data_marks()
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.objective.batches()
    }

    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let array = |name: &str| arrays.iter().find(|array| array.name == name);
        let (Some(tokens), Some(targets)) = (array("tokens"), array("targets")) else {
            return Err(TrainError::Data("a batch of texts has no tokens or no targets".to_string()));
        };
        let &[rows, length] = &tokens.shape[..] else {
            return Err(TrainError::Data("the tokens of a batch are no rows of one length".to_string()));
        };
        let masked = array("masked").map_or(0, |array| array.shape.iter().product());
        let adapters = self.finetuning.adapters();
        let call = Call::whole(rows).tokens(length).masked(masked).adapters(adapters.as_ref());
        let given = self.encoder.model.architecture.build(graph, &call)?;
        let targets = graph.input("targets", &targets.shape[..], targets.element.into())?;
        Ok(self.objective.loss(graph, &given, targets)?)
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        match self.objective.trains(parameter) {
            true => self.finetuning.group(&self.recipe.optimizer, self.encoder.blocks, parameter),
            false => None,
        }
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        self.encoder.initialise(self.recipe.train.seed, state)
    }

    fn correct(&self, batch: &Batch, outputs: &[&[f32]]) -> Option<Correct> {
        Correct::by_largest_logits(batch.i32("targets")?, outputs.first()?)
    }

    fn evaluate(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        if self.objective.validation_samples() == 0 {
            return Ok(None);
        }
        let weights = Box::new(|name: &str| state.parameter(name).map(WeightView::from));
        let (architecture, output) = (self.encoder.model.architecture.as_ref(), self.objective.evaluated_output());
        let precision = self.recipe.train.precision.into();
        let mut runner = EncoderRunner::new(architecture, output, precision, &self.device, weights)?;
        self.objective.evaluate(&mut runner, ranks, progress).map(Some)
    }

    fn shares_evaluation(&self) -> bool {
        true
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.finetuning.merged(self.encoder.model.architecture.as_ref(), state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.encoder.save(directory, state)?;
        self.objective.save(directory, &self.encoder)
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        self.objective.files(&self.encoder)
    }
}
