//! Sentence embeddings from pairs of texts that belong together: each text must find its own among the others of its batch ("multiple
//! negatives ranking" of sentence-transformers, InfoNCE).

mod measure;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use vitreous_data::loader::{ArraySpec, Batch, BatchSource};
use vitreous_data::text::{EncodedTexts, Encoding, MatchedBatches, OpenPairs, Pair, PairSplits, open};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, State, WeightView};
use vitreous_files::partial;
use vitreous_models::encode::{EncoderOutput, EncoderRunner, TextTokens};
use vitreous_models::{Architecture, Call, Head, Pooling, pool};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::recipe::rules::{POSITIVE, is_positive, refuse};
use crate::recipe::{Recipe, RecipeError, ScheduleKind};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Correct, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
};
use crate::tasks::classify::is_first;
use crate::tasks::classify_text::{TextLengthSettings, TextTrainSettings};
use crate::tasks::text::{TextFinetuneSettings, TrainedEncoder};

pub use measure::{EmbeddingReport, measure};

/// The most validation pairs: each text is compared with all others.
const MOST_EVALUATED: usize = 2000;

/// The keys that only this task has, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MatchTextsSettings {
    /// The batch.
    pub train: TextTrainSettings,
    /// How much of a text is read.
    pub text: TextLengthSettings,
    /// How tokens become a vector, and how vectors are compared.
    pub embedding: EmbeddingSettings,
    /// Fine-tuning of a pretrained model.
    pub finetune: TextFinetuneSettings,
}

/// How tokens become a vector, and how vectors are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddingSettings {
    /// "cls" or "mean".
    pub pooling: Pooling,
    /// Cosine similarities are multiplied by this before the softmax.
    pub scale: f64,
}

impl Default for EmbeddingSettings {
    fn default() -> Self {
        EmbeddingSettings { pooling: Pooling::Mean, scale: 20.0 }
    }
}

/// Sentence embeddings.
#[derive(Debug)]
pub struct SentenceEmbedding;

impl TaskType for SentenceEmbedding {
    fn name(&self) -> &'static str {
        "sentence-embedding"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&SentenceEmbedding, &MatchTextsSettings::default());
        recipe.train.epochs = 1;
        recipe.data.validation_share = 0.05;
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
            None => Err(format!("this is {}, but sentence embeddings need an encoder of texts", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: MatchTextsSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let settings: MatchTextsSettings = recipe.own()?;
        let pooling = settings.embedding.pooling;
        match () {
            () if settings.train.batch < 2 => {
                refuse("train.batch", &settings.train.batch, "it must be at least 2: texts are told from each other")
            }
            () if settings.text.max_tokens < 4 => {
                refuse("text.max_tokens", &settings.text.max_tokens, "it must be at least 4: special tokens count, too")
            }
            () if !is_positive(settings.embedding.scale) => {
                refuse("embedding.scale", &settings.embedding.scale, POSITIVE)
            }
            () if !matches!(pooling, Pooling::Cls | Pooling::Mean) => {
                refuse("embedding.pooling", &format!("{pooling:?}").to_lowercase(), "it must be \"cls\" or \"mean\"")
            }
            () => Ok(()),
        }?;
        settings.finetune.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: MatchTextsSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            let what =
                "there is no data: name pairs of texts with `vitreous train embeddings --init MODEL --data FILE`";
            return Err(TrainError::Data(what.to_string()));
        }
        let options = OpenPairs { languages: None, validation_share: recipe.data.validation_share };
        let splits =
            open(Path::new(&recipe.data.path), &options).map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(MatchTextsTask::new(recipe, splits, context.device)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(EmbeddingReport::read(evaluation)?.map(EmbeddingReport::into_scores))
    }
}

/// An encoder whose embeddings are trained.
pub struct MatchTextsTask {
    recipe: Recipe,
    settings: MatchTextsSettings,
    facts: TaskFacts,
    splits: PairSplits,
    encoder: TrainedEncoder,
    longest: usize,
    /// The parameters that vectors depend on; a head over the first token alone is not one of them.
    trained: Vec<String>,
    batches: Arc<MatchedBatches>,
    /// The first texts of validation pairs, then the second ones.
    validation: Vec<Encoding>,
    device: Device,
}

impl MatchTextsTask {
    /// Fine-tunes a recipe's pretrained model on these pairs.
    pub fn new(mut recipe: Recipe, mut splits: PairSplits, device: &Device) -> Result<MatchTextsTask, TrainError> {
        let settings: MatchTextsSettings = recipe.own()?;
        splits.validation.truncate(MOST_EVALUATED);
        let encoder = TrainedEncoder::open(&mut recipe, &settings.finetune.init, Head::None, &[])?;
        let longest = settings.text.max_tokens.min(encoder.input.longest);
        let encode = |pairs: &[Pair], side: fn(&Pair) -> &str| {
            let texts: Vec<(&str, Option<&str>)> = pairs.iter().map(|pair| (side(pair), None)).collect();
            encoder.encode(texts, longest)
        };
        let source: fn(&Pair) -> &str = |pair| &pair.source;
        let target: fn(&Pair) -> &str = |pair| &pair.target;
        let first: EncodedTexts = encode(&splits.train, source)?.iter().collect();
        let second: EncodedTexts = encode(&splits.train, target)?.iter().collect();
        let mut validation = encode(&splits.validation, source)?;
        validation.extend(encode(&splits.validation, target)?);
        let tokens = (encoder.input.token_types > 1, encoder.padding());
        let shape = (settings.train.batch, longest);
        let (count, samples) = (splits.train.len() / settings.train.batch, splits.train.len());
        if count == 0 {
            let batch = settings.train.batch;
            let what = format!("a batch of {batch} is more than the {samples} training pairs; lower train.batch");
            return Err(TrainError::Data(what));
        }
        let batches = Arc::new(MatchedBatches::new((first, second), shape, tokens, recipe.train.seed));
        let name = Path::new(&recipe.data.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let facts = TaskFacts {
            summary: format!(
                "{name}: {} training pairs, {} validation pairs",
                thousands(samples),
                thousands(splits.validation.len())
            ),
            data: name,
            notes: splits.notes.clone(),
            samples,
            unit: "pairs",
            units_per_epoch: (count * settings.train.batch) as u64,
            loader_threads: 1,
            weighting: Weighting::Equal,
            batch_size: ("train.batch", settings.train.batch),
            row_sizes: vec![2; batches.lengths().len()],
            averaging: Averaging::default(),
        };
        let device = device.clone();
        let trained = Vec::new();
        let mut task =
            MatchTextsTask { recipe, settings, facts, splits, encoder, longest, trained, batches, validation, device };
        let mut graph = Graph::for_training();
        let arrays = task.batches.groups().first().cloned().unwrap_or_default();
        let Objective { loss, .. } = task.build(&mut graph, &arrays)?;
        task.trained = graph.parameters_behind(loss).into_iter().map(str::to_string).collect();
        Ok(task)
    }
}

impl Task for MatchTextsTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let texts = |pairs: &[Pair]| Mark::of(pairs.iter().flat_map(|pair| [pair.source.clone(), pair.target.clone()]));
        vec![
            ("training pairs".to_string(), texts(&self.splits.train)),
            ("validation pairs".to_string(), texts(&self.splits.validation)),
        ]
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    /// Scaled cosines of each first text with all second ones of the batch; its own is the right class.
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let tokens = arrays.iter().find(|array| array.name == "tokens").map(|array| &array.shape[..]);
        let &[rows, length] = tokens.unwrap_or_default() else {
            return Err(TrainError::Data("a batch of texts has no tokens".to_string()));
        };
        let adapters = self.settings.finetune.adapters();
        let call = Call::whole(rows).tokens(length).adapters(adapters.as_ref());
        let built = self.encoder.model.architecture.build(graph, &call)?;
        let lengths = graph.find("lengths")?;
        let pooled = pool(graph, self.settings.embedding.pooling, built.need("tokens")?, lengths)?;
        let pooled = graph.cast(pooled, DType::F32)?;
        // RMSNorm with 1 / √dim as its scale divides by the length.
        let dim = graph.shape_of(pooled).columns();
        let scale = graph.constant("unit", [dim], vec![1.0 / (dim as f32).sqrt(); dim])?;
        let unit = graph.rms_norm(pooled, scale, 1e-12)?;
        let pairs = rows / 2;
        let (first, second) = (graph.slice(unit, 0, 0, pairs)?, graph.slice(unit, 0, pairs, rows)?);
        let cosines = graph.matmul(first, second, false, true)?;
        let logits = graph.scale(cosines, self.settings.embedding.scale as f32)?;
        let targets = graph.input("targets", [pairs], DType::I32)?;
        let loss = graph.cross_entropy(logits, targets, CrossEntropyOptions::default())?;
        Ok(Objective { loss, outputs: vec![logits] })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        if !self.trained.contains(&parameter.name) {
            return None;
        }
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
        let (architecture, precision) = (self.encoder.model.architecture.as_ref(), self.recipe.train.precision.into());
        let output = EncoderOutput::Pooled(self.settings.embedding.pooling);
        let mut runner = EncoderRunner::new(architecture, output, precision, &self.device, weights)?;
        let tokens: Vec<TextTokens> = (self.validation.iter())
            .map(|text| TextTokens { ids: &text.ids, types: &text.token_types, masked: &[] })
            .collect();
        let mut vectors = vec![Vec::new(); tokens.len()];
        let mut done = 0;
        runner.run::<TrainError>(&tokens, |text, vector| {
            vectors[text] = vector.to_vec();
            done += 1;
            progress(done, tokens.len());
            Ok(())
        })?;
        let (first, second) = vectors.split_at(vectors.len() / 2);
        let EmbeddingSettings { scale, .. } = self.settings.embedding;
        Ok(Some(measure(first, second, scale, self.settings.train.batch).into_scores()))
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.encoder.without_adapters(self.settings.finetune.adapters(), state)
    }

    /// A directory that sentence-transformers opens, too.
    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.encoder.save(directory, state)?;
        let is = |pooling: Pooling| self.settings.embedding.pooling == pooling;
        let module = |index: usize, path: &str, kind: &str| json!({"idx": index, "name": index.to_string(), "path": path, "type": format!("sentence_transformers.models.{kind}")});
        let modules = json!([
            module(0, "", "Transformer"),
            module(1, "1_Pooling", "Pooling"),
            module(2, "2_Normalize", "Normalize")
        ]);
        let width = self.encoder.model.architecture.signature().token_vectors().unwrap_or_default();
        let pooling = json!({
            "word_embedding_dimension": width, "pooling_mode_cls_token": is(Pooling::Cls),
            "pooling_mode_mean_tokens": is(Pooling::Mean), "pooling_mode_max_tokens": false,
            "pooling_mode_mean_sqrt_len_tokens": false
        });
        let settings = json!({"max_seq_length": self.longest, "do_lower_case": false});
        for (name, content) in
            [("1_Pooling/config.json", pooling), ("sentence_bert_config.json", settings), ("modules.json", modules)]
        {
            let path = directory.join(name);
            let failed = |error: std::io::Error| TrainError::io(&path, "cannot be written")(error);
            if let Some(folder) = path.parent().filter(|folder| *folder != directory) {
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            partial::write(&path, format!("{content:#}\n").as_bytes()).map_err(failed)?;
        }
        Ok(())
    }
}
