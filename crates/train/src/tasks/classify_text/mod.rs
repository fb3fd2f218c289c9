//! Text classification: texts, or pairs of texts, to one class, several labels or a number, from a pretrained encoder.

mod measure;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::loader::{ArraySpec, Batch, BatchSource};
use vitreous_data::text::{
    EncodedTexts, Encoding, LabelledSplits, LabelledText, TextBatches, TextTargets, open_labelled,
};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, Shape, State, Value, WeightView};
use vitreous_models::encode::{EncoderOutput, EncoderRunner, TextTokens};
use vitreous_models::{Architecture, Call, Head};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::recipe::{Recipe, RecipeError, ScheduleKind};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Correct, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
};
use crate::tasks::classify::is_first;
use crate::tasks::text::TrainedEncoder;

pub use measure::{LabelReport, Predicted, TextClassReport, TextMistake, measure};
pub use settings::{
    ClassifyTextSettings, LabelChoice, LabelledDataSettings, TextLengthSettings, TextTrainSettings, labelled_options,
};

/// Texts whose logits are computed at a time in evaluations.
const EVALUATED_AT_ONCE: usize = 4096;

/// Text classification.
#[derive(Debug)]
pub struct TextClassification;

impl TaskType for TextClassification {
    fn name(&self) -> &'static str {
        "text-classification"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&TextClassification, &ClassifyTextSettings::default());
        recipe.train.epochs = 2;
        recipe.data.validation_share = 0.1;
        (recipe.optimizer.lr, recipe.optimizer.weight_decay, recipe.optimizer.clip) = (5e-5, 0.01, 1.0);
        recipe.schedule.kind = ScheduleKind::Linear;
        recipe.schedule.warmup_epochs = 0.1;
        recipe
    }

    fn usual_family(&self) -> &'static str {
        "bert"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match signature.tokens() {
            Some(_) => Ok(()),
            None => Err(format!("this is {}, but classification of texts needs an encoder of texts", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: ClassifyTextSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        recipe.own::<ClassifyTextSettings>()?.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: ClassifyTextSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            let what =
                "there is no data: name labelled texts with `vitreous train classify-text --init MODEL --data DIR`";
            return Err(TrainError::Data(what.to_string()));
        }
        let splits = open_labelled(Path::new(&recipe.data.path), &labelled_options(&recipe, &[]))
            .map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(ClassifyTextTask::new(recipe, splits, context.device)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TextClassReport::read(evaluation)?.map(TextClassReport::into_scores))
    }
}

/// A text classifier that is trained.
pub struct ClassifyTextTask {
    recipe: Recipe,
    settings: ClassifyTextSettings,
    facts: TaskFacts,
    splits: LabelledSplits,
    predicted: Predicted,
    encoder: TrainedEncoder,
    batches: Arc<TextBatches>,
    validation: Vec<Encoding>,
    device: Device,
}

impl ClassifyTextTask {
    /// Fine-tunes a recipe's pretrained model on these texts.
    pub fn new(mut recipe: Recipe, splits: LabelledSplits, device: &Device) -> Result<ClassifyTextTask, TrainError> {
        let settings: ClassifyTextSettings = recipe.own()?;
        let predicted = match () {
            () if splits.is_regression => Predicted::Number,
            () if splits.several_labels => Predicted::Labels,
            () => Predicted::Class,
        };
        let head = match predicted {
            Predicted::Class => Head::Classes(splits.classes.len()),
            Predicted::Labels => Head::Labels(splits.classes.len()),
            Predicted::Number => Head::Numbers(1),
        };
        let encoder = TrainedEncoder::open(&mut recipe, &settings.finetune.init, head, &splits.classes)?;
        let longest = settings.text.max_tokens.min(encoder.input.longest);
        let train = encode(&encoder, &splits.train, longest)?;
        let validation = encode(&encoder, &splits.validation, longest)?;
        let mut notes = splits.notes.clone();
        let truncated = train.iter().filter(|text| text.truncated).count();
        if truncated > 0 {
            let share = 100.0 * truncated as f64 / train.len() as f64;
            notes
                .push(format!("{share:.0} % of the training texts have more than {longest} tokens, and are truncated"));
        }
        let targets = match predicted {
            Predicted::Class => TextTargets::Classes(
                splits.train.iter().map(|text| text.labels.first().copied().unwrap_or(0)).collect(),
            ),
            Predicted::Labels => TextTargets::Labels {
                count: splits.classes.len(),
                labels: splits.train.iter().map(|text| text.labels.clone()).collect(),
            },
            Predicted::Number => {
                TextTargets::Numbers(splits.train.iter().map(|text| text.number.unwrap_or(0.0)).collect())
            }
        };
        let texts: EncodedTexts = train.iter().collect();
        let shape = (settings.train.batch, longest);
        let tokens = (encoder.input.token_types > 1, encoder.padding());
        let batches = Arc::new(TextBatches::new(texts, targets, shape, tokens, recipe.train.seed));
        let facts = facts(&settings, &splits, &batches, notes)?;
        let device = device.clone();
        Ok(ClassifyTextTask { recipe, settings, facts, splits, predicted, encoder, batches, validation, device })
    }

    /// The loss of logits `[rows, outputs]`.
    fn loss(&self, graph: &mut Graph, logits: Value, rows: usize) -> vitreous_engine::Result<Value> {
        let outputs = graph.shape_of(logits).columns();
        match self.predicted {
            Predicted::Class => {
                let targets = graph.input("targets", [rows], DType::I32)?;
                let label_smoothing = self.settings.loss.label_smoothing;
                graph.cross_entropy(logits, targets, CrossEntropyOptions { label_smoothing, ..Default::default() })
            }
            Predicted::Labels => {
                let targets = graph.input("targets", [rows, outputs], DType::F32)?;
                graph.binary_cross_entropy(logits, targets, false)
            }
            Predicted::Number => {
                // The mean of the squared differences.
                let targets = graph.input("targets", [rows, outputs], DType::F32)?;
                let negative = graph.scale(targets, -1.0)?;
                let logits = graph.cast(logits, DType::F32)?;
                let difference = graph.add(logits, negative)?;
                let squares = graph.multiply(difference, difference)?;
                let squares = graph.reshape(squares, [rows * outputs, 1])?;
                let mean = graph.mean_tokens(squares)?;
                graph.reshape(mean, Shape::scalar())
            }
        }
    }
}

fn encode(encoder: &TrainedEncoder, texts: &[LabelledText], longest: usize) -> Result<Vec<Encoding>, TrainError> {
    let inputs: Vec<(&str, Option<&str>)> =
        texts.iter().map(|text| (text.text.as_str(), text.pair.as_deref())).collect();
    encoder.encode(inputs, longest)
}

impl Task for ClassifyTextTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let mut marks = vec![("class names".to_string(), Mark::of(&self.splits.classes))];
        for (which, texts) in [("training", &self.splits.train), ("validation", &self.splits.validation)] {
            let words = texts.iter().flat_map(|text| [text.text.as_str(), text.pair.as_deref().unwrap_or_default()]);
            marks.push((format!("{which} texts"), Mark::of(words)));
            let label = |text: &LabelledText| -> Vec<u8> {
                let labels = text.labels.iter().flat_map(|label| label.to_le_bytes());
                labels.chain(text.number.into_iter().flat_map(f32::to_le_bytes)).collect()
            };
            marks.push((format!("labels of {which} texts"), Mark::of(texts.iter().map(label))));
        }
        marks
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let tokens = arrays.iter().find(|array| array.name == "tokens").map(|array| &array.shape[..]);
        let &[rows, length] = tokens.unwrap_or_default() else {
            return Err(TrainError::Data("a batch of texts has no tokens".to_string()));
        };
        let adapters = self.settings.finetune.adapters();
        let call = Call::whole(rows).tokens(length).adapters(adapters.as_ref());
        let logits = self.encoder.model.architecture.build(graph, &call)?.need("logits")?;
        Ok(Objective { loss: self.loss(graph, logits, rows)?, outputs: vec![logits] })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        self.settings.finetune.group(&self.recipe.optimizer, self.encoder.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        self.encoder.initialise(self.recipe.train.seed, state)
    }

    fn correct(&self, batch: &Batch, outputs: &[&[f32]]) -> Option<Correct> {
        let (labels, logits) = (batch.i32("targets")?, outputs.first()?);
        let rows = logits.chunks_exact(logits.len() / labels.len());
        let right = rows.zip(labels).filter(|(row, label)| is_first(row, **label)).count() as u64;
        Some(Correct { right, total: labels.len() as u64 })
    }

    fn evaluate(
        &mut self,
        state: &State,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        if self.validation.is_empty() {
            return Ok(None);
        }
        let weights = Box::new(|name: &str| state.parameter(name).map(WeightView::from));
        let architecture = self.encoder.model.architecture.as_ref();
        let precision = self.recipe.train.precision.into();
        let mut runner = EncoderRunner::new(architecture, EncoderOutput::Logits, precision, &self.device, weights)?;
        let logits = classify(&mut runner, &self.validation, progress)?;
        let report = measure(self.predicted, &self.splits.classes, &self.splits.validation, &logits);
        Ok(Some(report.into_scores()))
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.encoder.without_adapters(self.settings.finetune.adapters(), state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.encoder.save(directory, state)
    }
}

/// The logits of each text.
pub fn classify(
    runner: &mut EncoderRunner,
    texts: &[Encoding],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Vec<f32>>, TrainError> {
    let mut logits = vec![Vec::new(); texts.len()];
    for (chunk, some) in texts.chunks(EVALUATED_AT_ONCE).enumerate() {
        let first = chunk * EVALUATED_AT_ONCE;
        let tokens: Vec<TextTokens> =
            some.iter().map(|text| TextTokens { ids: &text.ids, types: &text.token_types, masked: &[] }).collect();
        runner.run::<TrainError>(&tokens, |text, row| {
            logits[first + text] = row.to_vec();
            Ok(())
        })?;
        progress(first + some.len(), texts.len());
    }
    Ok(logits)
}

fn facts(
    settings: &ClassifyTextSettings,
    splits: &LabelledSplits,
    batches: &TextBatches,
    mut notes: Vec<String>,
) -> Result<TaskFacts, TrainError> {
    let (count, batch, samples) = (batches.batches_per_epoch(), settings.train.batch, splits.train.len());
    if count == 0 {
        let what = format!("a batch of {batch} is more than the {samples} training texts; lower train.batch");
        return Err(TrainError::Data(what));
    }
    let unseen = samples - count * batch;
    if unseen > 0 {
        notes.push(format!(
            "{unseen} of {samples} training texts are not seen in each epoch, others each time, because train.batch={batch} does not \
             divide {samples}: an epoch has whole batches only"
        ));
    }
    let kind = match () {
        () if splits.is_regression => "a number each".to_string(),
        () if splits.several_labels => format!("{} labels", splits.classes.len()),
        () => format!("{} classes", splits.classes.len()),
    };
    Ok(TaskFacts {
        data: splits.name.clone(),
        summary: format!(
            "{}: {} training texts, {} validation texts, {kind}; {:.1} % padding",
            splits.name,
            thousands(samples),
            thousands(splits.validation.len()),
            100.0 * batches.padding_share()
        ),
        notes,
        samples,
        unit: "texts",
        units_per_epoch: (count * batch) as u64,
        // Tokens are quickly put into batches.
        loader_threads: 1,
        weighting: Weighting::Equal,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1; batches.lengths().len()],
        averaging: Averaging::default(),
    })
}
