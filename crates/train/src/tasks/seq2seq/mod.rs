//! Sequences to sequences: fine-tuning of an encoder-decoder on pairs (translations, articles with their summaries), and its
//! pre-training on plain text by spans that are left out (T5) or by denoising (BART).

mod evaluate;
mod finetune;
mod model;
mod pretrain;
pub mod rouge;
mod settings;

use std::path::Path;
use std::sync::Arc;

use vitreous_data::loader::{ArraySpec, BatchSource};
use vitreous_engine::{Device, Graph, Group, Parameter, State};

use crate::error::TrainError;
use crate::finetuning::Finetuning;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::scores::Scores;
use crate::task::{Objective, Task, TaskFacts};

pub use evaluate::{CorruptedReport, Seq2SeqReport};
pub use finetune::Seq2Seq;
pub use pretrain::{Denoising, SpanCorruption};
pub use settings::{
    CorruptSettings, CorruptTextSettings, CorruptionSettings, PretrainVocabulary, Seq2SeqDataSettings, Seq2SeqSettings,
    Seq2SeqTextSettings, WritingSettings,
};

use model::PairModel;

/// How a model that is trained is evaluated.
trait Evaluation {
    /// The scores of a state's parameters; `None` without validation data.
    fn scores(
        &self,
        model: &PairModel,
        state: &State,
        recipe: &Recipe,
        on: (&Device, &Ranks),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError>;
}

/// An encoder-decoder that is trained.
struct PairTask {
    recipe: Recipe,
    model: PairModel,
    facts: TaskFacts,
    batches: Arc<dyn BatchSource>,
    marks: Vec<(String, Mark)>,
    label_smoothing: f32,
    finetuning: Finetuning,
    evaluation: Box<dyn Evaluation>,
    device: Device,
}

impl Task for PairTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        self.marks.clone()
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let axis = |name: &str, axis: usize| {
            let array = arrays.iter().find(|array| array.name == name);
            array.and_then(|array| array.shape.get(axis)).copied().unwrap_or(0)
        };
        let sizes = (axis("source", 0), axis("source", 1), axis("wanted", 1));
        let adapters = self.finetuning.adapters();
        let loss = self.model.loss(graph, sizes, self.label_smoothing, adapters.as_ref())?;
        Ok(Objective { loss, outputs: Vec::new() })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        self.finetuning.group_with_own_head(&self.recipe.optimizer, self.model.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        self.model.initialise(self.recipe.train.seed, state)
    }

    fn evaluate(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        self.evaluation.scores(&self.model, state, &self.recipe, (&self.device, ranks), progress)
    }

    fn shares_evaluation(&self) -> bool {
        true
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.finetuning.merged(self.model.model.architecture.as_ref(), state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.model.save(directory, state)
    }

    /// The tokenizer, which a run that is resumed goes on with.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(self.model.tokenizer.files())
    }
}
