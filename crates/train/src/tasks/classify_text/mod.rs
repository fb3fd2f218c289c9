//! Text classification: texts, or pairs of texts, to one class, several labels or a number, from a pretrained encoder.

mod measure;
mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::loader::BatchSource;
use vitreous_data::text::{
    EncodedTexts, Encoding, LabelledSplits, LabelledText, TextBatches, TextTargets, open_labelled,
};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Shape, Value};
use vitreous_models::encode::EncoderRunner;
use vitreous_models::{Head, Outputs};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::scores::{Metric, Scores};
use crate::task::{Objective, Task, TaskContext};
use crate::tasks::text::{
    TextData, TextObjective, TextTask, TextTaskType, TrainedEncoder, finetuning_recipe, run_texts,
};

pub use measure::{LabelReport, Predicted, TextClassReport, TextMistake, measure};
pub use settings::{ClassifyTextSettings, LabelChoice, LabelledDataSettings, labelled_options};

/// Text classification.
#[derive(Debug)]
pub struct TextClassification;

impl TextTaskType for TextClassification {
    type Settings = ClassifyTextSettings;

    const NAME: &'static str = "text-classification";
    const METRICS: &'static [&'static Metric] = &measure::METRICS;
    const NEEDS: &'static str = "classification of texts needs";
    const NO_DATA: &'static str = "name labelled texts with `vitreous train classify-text --init MODEL --data DIR`";

    fn default_recipe() -> Recipe {
        finetuning_recipe(&TextClassification, &ClassifyTextSettings::default(), 2, 0.1)
    }

    fn open_data(recipe: Recipe, path: &Path, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let splits = open_labelled(path, &labelled_options(&recipe, &[]));
        let splits = splits.map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(ClassifyTextTask::new(recipe, splits, context.device)?))
    }

    fn scores_of(evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TextClassReport::read(evaluation)?.map(TextClassReport::into_scores))
    }
}

/// A text classifier that is trained.
pub type ClassifyTextTask = TextTask<TextClasses>;

/// Predicting the class, the labels or the number of a text.
pub struct TextClasses {
    splits: LabelledSplits,
    predicted: Predicted,
    label_smoothing: f32,
    batches: Arc<TextBatches>,
    validation: Vec<Encoding>,
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
        let (batch, rows) = (settings.train.batch, encoder.rows(settings.text.max_tokens));
        let train = encode(&encoder, &splits.train, rows.longest)?;
        let validation = encode(&encoder, &splits.validation, rows.longest)?;
        let texts: EncodedTexts = train.iter().collect();
        let batches = TextBatches::new(texts, targets(predicted, &splits), batch, rows, recipe.train.seed);
        let kind = match predicted {
            Predicted::Class => format!("{} classes", splits.classes.len()),
            Predicted::Labels => format!("{} labels", splits.classes.len()),
            Predicted::Number => "a number each".to_string(),
        };
        let data = TextData {
            name: splits.name.clone(),
            samples: [splits.train.len(), splits.validation.len()],
            unit: "texts",
            more: format!(", {kind}; {:.1} % padding", 100.0 * batches.padding_share()),
            notes: notes(&splits, &train, batch, rows.longest),
            batches: &batches,
            batch,
            texts_per_sample: 1,
        };
        let facts = data.facts()?;
        let label_smoothing = settings.loss.label_smoothing;
        let objective = TextClasses { splits, predicted, label_smoothing, batches: Arc::new(batches), validation };
        let (finetuning, device) = (settings.finetune.parts(), device.clone());
        Ok(TextTask { recipe, finetuning, facts, encoder, objective, device })
    }
}

fn encode(encoder: &TrainedEncoder, texts: &[LabelledText], longest: usize) -> Result<Vec<Encoding>, TrainError> {
    let inputs: Vec<(&str, Option<&str>)> =
        texts.iter().map(|text| (text.text.as_str(), text.pair.as_deref())).collect();
    encoder.encode(inputs, longest)
}

fn targets(predicted: Predicted, splits: &LabelledSplits) -> TextTargets {
    let texts = splits.train.iter();
    match predicted {
        Predicted::Class => TextTargets::Classes(texts.map(|text| text.labels.first().copied().unwrap_or(0)).collect()),
        Predicted::Labels => {
            TextTargets::Labels { count: splits.classes.len(), labels: texts.map(|text| text.labels.clone()).collect() }
        }
        Predicted::Number => TextTargets::Numbers(texts.map(|text| text.number.unwrap_or(0.0)).collect()),
    }
}

/// What a user should know: also how much of the texts is not seen.
fn notes(splits: &LabelledSplits, train: &[Encoding], batch: usize, longest: usize) -> Vec<String> {
    let mut notes = splits.notes.clone();
    let samples = train.len();
    let truncated = train.iter().filter(|text| text.truncated).count();
    if truncated > 0 {
        let share = 100.0 * truncated as f64 / samples as f64;
        notes.push(format!("{share:.0} % of the training texts have more than {longest} tokens, and are truncated"));
    }
    let unseen = samples % batch;
    if unseen > 0 {
        notes.push(format!(
            "{unseen} of {samples} training texts are not seen in each epoch, others each time, because train.batch={batch} does not \
             divide {samples}: an epoch has whole batches only"
        ));
    }
    notes
}

impl TextObjective for TextClasses {
    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
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

    fn loss(&self, graph: &mut Graph, given: &Outputs, targets: Value) -> vitreous_engine::Result<Objective> {
        // [batch, outputs]
        let logits = given.need("logits")?;
        let loss = match self.predicted {
            Predicted::Class => {
                let label_smoothing = self.label_smoothing;
                graph.cross_entropy(logits, targets, CrossEntropyOptions { label_smoothing, ..Default::default() })?
            }
            Predicted::Labels => graph.binary_cross_entropy(logits, targets, false)?,
            Predicted::Number => {
                // The mean of the squared differences.
                let negative = graph.scale(targets, -1.0)?;
                let logits = graph.cast(logits, DType::F32)?;
                let difference = graph.add(logits, negative)?;
                let squares = graph.multiply(difference, difference)?;
                let count = graph.shape_of(squares).elements();
                let squares = graph.reshape(squares, [count, 1])?;
                let mean = graph.mean_tokens(squares)?;
                graph.reshape(mean, Shape::scalar())?
            }
        };
        Ok(Objective { loss, outputs: vec![logits] })
    }

    fn validation_samples(&self) -> usize {
        self.validation.len()
    }

    fn evaluate(
        &self,
        runner: &mut EncoderRunner,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Scores, TrainError> {
        let logits = classify(runner, ranks, &self.validation, progress)?;
        Ok(measure(self.predicted, &self.splits.classes, &self.splits.validation, &logits).into_scores())
    }
}

/// The logits of each text.
pub fn classify(
    runner: &mut EncoderRunner,
    ranks: &Ranks,
    texts: &[Encoding],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Vec<f32>>, TrainError> {
    let mut logits = vec![Vec::new(); texts.len()];
    run_texts(runner, ranks, texts, progress, |text, row| logits[text] = row.to_vec())?;
    Ok(logits)
}
