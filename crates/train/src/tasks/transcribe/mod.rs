//! Fine-tuning of speech models (Whisper) on recordings with what is said in them. A recording is one window; the decoder is taught the
//! tokens of its text, behind a prompt that says language, task, and that there are no timestamps.

mod evaluate;
mod measure;
mod model;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::audio::{
    SpeechBatches, SpeechClips, SpeechTargets, TranscribedAudio, left_out_note, open_transcripts,
};
use vitreous_data::loader::{ArraySpec, BatchSource, BrokenSample};
use vitreous_engine::{Graph, Group, Parameter, State};
use vitreous_models::Architecture;

use crate::error::TrainError;
use crate::finetuning::Finetuning;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::{Recipe, RecipeError};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
};
use crate::tasks::text::finetuning_recipe;

use evaluate::Evaluation;
use model::SpeechModel;

pub use measure::{ShownTranscript, TranscribeReport};
pub use settings::{
    TranscribeDataSettings, TranscribeSettings, TranscribeTask, TranscribeTestSettings, TranscribeTrainSettings,
};

/// Fine-tuning of speech models.
#[derive(Debug)]
pub struct Transcribe;

impl TaskType for Transcribe {
    fn name(&self) -> &'static str {
        "transcribe"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = finetuning_recipe(&Transcribe, &TranscribeSettings::default(), 3, 0.1);
        recipe.optimizer.lr = 1e-5;
        recipe
    }

    fn usual_family(&self) -> &'static str {
        "whisper"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.audio() {
            Some(_) => Ok(()),
            None => Err(format!("this is {}, but recordings need a speech recognition model", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: TranscribeSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        recipe.own::<TranscribeSettings>()?.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: TranscribeSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let settings: TranscribeSettings = recipe.own()?;
        if recipe.data.path.is_empty() {
            let what = "there is no data: name a list of recordings and texts with `vitreous train transcribe --init MODEL --data FILE`";
            return Err(TrainError::Data(what.to_string()));
        }
        if settings.finetune.init.is_empty() {
            let what = "no pretrained model was named: `--init MODEL` names a directory with a speech model, or a file of OpenAI's";
            return Err(TrainError::Data(what.to_string()));
        }
        TranscribeRun::open(recipe, settings, context).map(|task| Box::new(task) as Box<dyn Task>)
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TranscribeReport::read(evaluation)?.map(TranscribeReport::into_scores))
    }
}

/// A speech model that is trained.
struct TranscribeRun {
    recipe: Recipe,
    model: SpeechModel,
    facts: TaskFacts,
    batches: Arc<SpeechBatches>,
    marks: Vec<(String, Mark)>,
    finetuning: Finetuning,
    evaluation: Evaluation,
}

/// Recordings with the tokens of their texts.
struct Recordings {
    clips: Arc<SpeechClips>,
    targets: Arc<SpeechTargets>,
}

impl Recordings {
    /// Reads recordings, without those that do not fit the model; a note says which those were.
    fn read(
        model: &SpeechModel,
        recordings: Vec<TranscribedAudio>,
        keep_bytes: u64,
        notes: &mut Vec<String>,
    ) -> Result<Recordings, TrainError> {
        let (mut clips, left_out) = SpeechClips::read(recordings, [model.input.frames, model.input.bins], keep_bytes);
        notes.extend(left_out_note(&left_out));
        let mut fits = Vec::with_capacity(clips.len());
        for recording in clips.recordings() {
            fits.push(!recording.text.is_empty() && model.has_room_for(&recording.text)?);
        }
        let (mut place, without) = (0, fits.iter().filter(|&&fits| !fits).count());
        clips.retain(|_| {
            place += 1;
            fits[place - 1]
        });
        notes.extend((without > 0).then(|| {
            format!(
                "{without} recordings are left out: their text is empty, or longer than the {} tokens that the model can write",
                model.input.target.longest
            )
        }));
        let targets = Arc::new(model.targets(clips.recordings())?);
        Ok(Recordings { clips: Arc::new(clips), targets })
    }

    /// By which other recordings, or other texts, are noticed.
    fn mark(&self) -> Mark {
        Mark::of(self.clips.recordings().iter().map(|recording| {
            let name = recording.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let bytes = recording.path.metadata().map_or(0, |metadata| metadata.len());
            format!("{name}\n{bytes}\n{}", recording.text)
        }))
    }
}

impl TranscribeRun {
    fn open(
        mut recipe: Recipe,
        settings: TranscribeSettings,
        context: &TaskContext,
    ) -> Result<TranscribeRun, TrainError> {
        let path = Path::new(&recipe.data.path).to_path_buf();
        let splits = open_transcripts(&path, recipe.data.validation_share).map_err(TrainError::Data)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let model = SpeechModel::open(&mut recipe, &settings.finetune.init, &settings.data)?;
        let (mut notes, keep) = (splits.notes, settings.data.keep_mib.saturating_mul(1 << 20));
        let train = Recordings::read(&model, splits.train, keep, &mut notes)?;
        let room = keep.saturating_sub(train.clips.kept_bytes());
        let validation = Recordings::read(&model, splits.validation, room, &mut notes)?;
        let marks = vec![
            ("training recordings".to_string(), train.mark()),
            ("validation recordings".to_string(), validation.mark()),
        ];
        let facts = facts(&settings, (name, notes), &train, &validation)?;
        let batches = SpeechBatches::training(
            train.clips,
            train.targets,
            settings.train.batch,
            recipe.train.seed,
            settings.augment.clone(),
        )
        .with_longest(model.input.target.longest);
        let evaluation = Evaluation {
            clips: validation.clips,
            targets: validation.targets,
            batch: settings.train.batch,
            test: settings.test.clone(),
            precision: recipe.train.precision.into(),
            device: context.device.clone(),
            unreadable: Vec::new(),
        };
        let finetuning = settings.finetune.parts();
        Ok(TranscribeRun { recipe, model, facts, batches: Arc::new(batches), marks, finetuning, evaluation })
    }
}

fn facts(
    settings: &TranscribeSettings,
    (name, notes): (String, Vec<String>),
    train: &Recordings,
    validation: &Recordings,
) -> Result<TaskFacts, TrainError> {
    let (batch, samples) = (settings.train.batch, train.clips.len());
    if samples < batch {
        let why = notes.last().map(|note| format!(" ({note})")).unwrap_or_default();
        let what = match samples {
            0 => format!("{name}: there are no training recordings{why}"),
            _ => format!("a batch of {batch} is more than the {samples} training recordings{why}; lower train.batch"),
        };
        return Err(TrainError::Data(what));
    }
    let minutes =
        |clips: &SpeechClips| format!("{} recordings of {:.1} minutes", thousands(clips.len()), clips.seconds() / 60.0);
    Ok(TaskFacts {
        summary: format!(
            "{name}: {} for training, {} for validation",
            minutes(&train.clips),
            minutes(&validation.clips)
        ),
        data: name,
        notes,
        samples,
        unit: "tokens",
        units_per_epoch: train.targets.tokens(),
        loader_threads: settings.loader_threads(),
        weighting: Weighting::ByUnits,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1],
        averaging: Averaging::default(),
    })
}

impl Task for TranscribeRun {
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
        let adapters = self.finetuning.adapters();
        let loss = self.model.loss(graph, (axis("mel", 0), axis("target", 1)), adapters.as_ref())?;
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
        self.evaluation.scores(&self.model, state, ranks, progress)
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

    fn unreadable(&self) -> Vec<BrokenSample> {
        self.evaluation.unreadable.clone()
    }
}
