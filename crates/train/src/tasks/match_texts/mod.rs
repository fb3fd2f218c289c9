//! Sentence embeddings from pairs of texts that belong together: each text must find its own among the others of its batch ("multiple
//! negatives ranking" of sentence-transformers, InfoNCE).

mod measure;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use vitreous_data::loader::BatchSource;
use vitreous_data::text::{EncodedTexts, Encoding, MatchedBatches, OpenPairs, Pair, PairSplits, open};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Parameter, Value};
use vitreous_files::open::read_text;
use vitreous_files::partial;
use vitreous_models::encode::{EncoderOutput, EncoderRunner};
use vitreous_models::{Head, Outputs, Pooling, pool};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::recipe::rules::{Checked, POSITIVE, is_positive, refuse};
use crate::scores::{Metric, Scores};
use crate::task::{Objective, Task, TaskContext};
use crate::tasks::text::{
    TextData, TextFinetuneSettings, TextLengthSettings, TextObjective, TextTask, TextTaskSettings, TextTaskType,
    TextTrainSettings, TrainedEncoder, finetuning_recipe, run_texts,
};

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

impl TextTaskSettings for MatchTextsSettings {
    fn check(&self) -> Checked {
        let EmbeddingSettings { pooling, scale } = self.embedding;
        match () {
            () if self.train.batch < 2 => {
                refuse("train.batch", &self.train.batch, "it must be at least 2: texts are told from each other")
            }
            () if !is_positive(scale) => refuse("embedding.scale", &scale, POSITIVE),
            () if !matches!(pooling, Pooling::Cls | Pooling::Mean) => {
                refuse("embedding.pooling", &format!("{pooling:?}").to_lowercase(), "it must be \"cls\" or \"mean\"")
            }
            () => Ok(()),
        }?;
        self.text.check()?;
        self.finetune.parts().check()
    }

    fn init(&mut self) -> &mut String {
        &mut self.finetune.init
    }
}

/// Sentence embeddings.
#[derive(Debug)]
pub struct SentenceEmbedding;

impl TextTaskType for SentenceEmbedding {
    type Settings = MatchTextsSettings;

    const NAME: &'static str = "sentence-embedding";
    const METRICS: &'static [&'static Metric] = &measure::METRICS;
    const NEEDS: &'static str = "sentence embeddings need";
    const NO_DATA: &'static str = "name pairs of texts with `vitreous train embeddings --init MODEL --data FILE`";

    fn default_recipe() -> Recipe {
        finetuning_recipe(&SentenceEmbedding, &MatchTextsSettings::default(), 1, 0.05)
    }

    fn open_data(recipe: Recipe, path: &Path, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let options = OpenPairs { languages: None, validation_share: recipe.data.validation_share };
        let splits = open(path, &options).map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(MatchTextsTask::new(recipe, splits, context.device)?))
    }

    fn scores_of(evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(EmbeddingReport::read(evaluation)?.map(EmbeddingReport::into_scores))
    }
}

/// An encoder whose embeddings are trained.
pub type MatchTextsTask = TextTask<MatchingPairs>;

/// Finding the text that belongs to another among all of its batch.
pub struct MatchingPairs {
    splits: PairSplits,
    embedding: EmbeddingSettings,
    batch: usize,
    /// The most tokens of a text.
    longest: usize,
    /// The parameters that vectors depend on; a head over the first token alone is not one of them.
    trained: Vec<String>,
    batches: Arc<MatchedBatches>,
    /// The first texts of validation pairs, then the second ones.
    validation: Vec<Encoding>,
}

impl MatchTextsTask {
    /// Fine-tunes a recipe's pretrained model on these pairs.
    pub fn new(mut recipe: Recipe, mut splits: PairSplits, device: &Device) -> Result<MatchTextsTask, TrainError> {
        let settings: MatchTextsSettings = recipe.own()?;
        check_modules(Path::new(&settings.finetune.init))?;
        splits.validation.truncate(MOST_EVALUATED);
        let encoder = TrainedEncoder::open(&mut recipe, &settings.finetune.init, Head::None, &[])?;
        let (batch, rows) = (settings.train.batch, encoder.rows(settings.text.max_tokens));
        let encode = |pairs: &[Pair], side: fn(&Pair) -> &str| {
            let texts: Vec<(&str, Option<&str>)> = pairs.iter().map(|pair| (side(pair), None)).collect();
            encoder.encode(texts, rows.longest)
        };
        let source: fn(&Pair) -> &str = |pair| &pair.source;
        let target: fn(&Pair) -> &str = |pair| &pair.target;
        let first: EncodedTexts = encode(&splits.train, source)?.iter().collect();
        let second: EncodedTexts = encode(&splits.train, target)?.iter().collect();
        let mut validation = encode(&splits.validation, source)?;
        validation.extend(encode(&splits.validation, target)?);
        let batches = MatchedBatches::new((first, second), batch, rows, recipe.train.seed);
        let data = TextData {
            name: Path::new(&recipe.data.path).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            samples: [splits.train.len(), splits.validation.len()],
            unit: "pairs",
            more: String::new(),
            notes: splits.notes.clone(),
            batches: &batches,
            batch,
            texts_per_sample: 2,
        };
        let facts = data.facts()?;
        let (embedding, longest, trained) = (settings.embedding, rows.longest, Vec::new());
        let objective =
            MatchingPairs { splits, embedding, batch, longest, trained, batches: Arc::new(batches), validation };
        let (finetuning, device) = (settings.finetune.parts(), device.clone());
        let mut task = TextTask { recipe, finetuning, facts, encoder, objective, device };
        let mut graph = Graph::for_training();
        let arrays = task.batches().groups().first().cloned().unwrap_or_default();
        let Objective { loss, .. } = task.build(&mut graph, &arrays)?;
        task.objective.trained = graph.parameters_behind(loss).into_iter().map(str::to_string).collect();
        Ok(task)
    }
}

/// Refuses a directory of sentence-transformers with modules that the directory of the run would not have.
fn check_modules(init: &Path) -> Result<(), TrainError> {
    let file = init.join("modules.json");
    let text = match read_text(&file, 1 << 20) {
        Ok(text) => text,
        // Any other encoder; one that is not there at all is reported when it is opened.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(TrainError::Data(format!("{}: {error}", file.display()))),
    };
    let modules: Json = serde_json::from_str(&text)
        .map_err(|error| TrainError::Data(format!("{}: this is not JSON: {error}", file.display())))?;
    let kinds = modules.as_array().into_iter().flatten().filter_map(|module| module.get("type")?.as_str());
    let mut kinds = kinds.map(|kind| kind.rsplit('.').next().unwrap_or(kind));
    match kinds.find(|kind| !["Transformer", "Pooling", "Normalize"].contains(kind)) {
        None => Ok(()),
        Some(kind) => Err(TrainError::Data(format!(
            "{}: its module {kind:?} cannot be trained here; with the file moved away, the encoder is trained without it",
            file.display()
        ))),
    }
}

impl TextObjective for MatchingPairs {
    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let texts = |pairs: &[Pair]| Mark::of(pairs.iter().flat_map(|pair| [pair.source.clone(), pair.target.clone()]));
        vec![
            ("training pairs".to_string(), texts(&self.splits.train)),
            ("validation pairs".to_string(), texts(&self.splits.validation)),
        ]
    }

    /// Scaled cosines of each first text with all second ones of the batch; its own is the right class.
    fn loss(&self, graph: &mut Graph, given: &Outputs, targets: Value) -> vitreous_engine::Result<Objective> {
        let lengths = graph.find("lengths")?;
        // [2 pairs, dim]
        let pooled = pool(graph, self.embedding.pooling, given.need("tokens")?, lengths)?;
        let pooled = graph.cast(pooled, DType::F32)?;
        // RMSNorm with 1 / √dim as its scale divides by the length.
        let dim = graph.shape_of(pooled).columns();
        let scale = graph.constant("unit", [dim], vec![1.0 / (dim as f32).sqrt(); dim])?;
        let unit = graph.rms_norm(pooled, scale, 1e-12)?;
        let rows = graph.shape_of(unit).rows();
        let (first, second) = (graph.slice(unit, 0, 0, rows / 2)?, graph.slice(unit, 0, rows / 2, rows)?);
        // [pairs, pairs]
        let cosines = graph.matmul(first, second, false, true)?;
        let logits = graph.scale(cosines, self.embedding.scale as f32)?;
        let loss = graph.cross_entropy(logits, targets, CrossEntropyOptions::default())?;
        Ok(Objective { loss, outputs: vec![logits] })
    }

    fn trains(&self, parameter: &Parameter) -> bool {
        self.trained.contains(&parameter.name)
    }

    fn validation_samples(&self) -> usize {
        self.splits.validation.len()
    }

    fn evaluated_output(&self) -> EncoderOutput {
        EncoderOutput::Pooled(self.embedding.pooling)
    }

    fn evaluate(
        &self,
        runner: &mut EncoderRunner,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Scores, TrainError> {
        let mut vectors = vec![Vec::new(); self.validation.len()];
        run_texts(runner, ranks, &self.validation, progress, |text, vector| vectors[text] = vector.to_vec())?;
        let (first, second) = vectors.split_at(vectors.len() / 2);
        Ok(measure(first, second, self.embedding.scale, self.batch).into_scores())
    }

    /// What sentence-transformers opens the directory with.
    fn save(&self, directory: &Path, encoder: &TrainedEncoder) -> Result<(), TrainError> {
        let is = |pooling: Pooling| self.embedding.pooling == pooling;
        let module = |index: usize, path: &str, kind: &str| json!({"idx": index, "name": index.to_string(), "path": path, "type": format!("sentence_transformers.models.{kind}")});
        let modules = json!([
            module(0, "", "Transformer"),
            module(1, "1_Pooling", "Pooling"),
            module(2, "2_Normalize", "Normalize")
        ]);
        let width = encoder.model.architecture.signature().token_vectors().unwrap_or_default();
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
