//! Language models: decoders that learn to predict the next token of text, or of the answers in chats.

mod data;
mod measure;
mod settings;
mod tokenizer;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use serde_json::json;
use vitreous_data::loader::{ArraySpec, BatchSource};
use vitreous_data::text::{
    IGNORED, PlainTexts, SequenceBatches, SequenceOptions, TextTokenizer, TokenSequences, are_chats, open_plain,
};
use vitreous_engine::{CrossEntropyOptions, Device, Graph, Group, Parameter, Role, State};
use vitreous_files::open::read_bounded;
use vitreous_models::{
    Architecture, Call, Initialisation, Model, SaveOptions, Settings, TokenInput, WeightType, initialise,
};

use crate::error::TrainError;
use crate::finetuning::{Finetuning, open_pretrained};
use crate::fingerprint::Mark;
use crate::groups::block_count;
use crate::ranks::Ranks;
use crate::recipe::rules::Checked;
use crate::recipe::{Recipe, ScheduleKind};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
};
use data::LanguageData;
use measure::LanguageTest;

pub use data::{ChatTokens, chat_tokens};
pub use measure::LanguageReport;
pub use settings::{
    DocumentChoice, LanguageDataSettings, LanguageLossSettings, LanguageSettings, LanguageTestSettings,
    LanguageTextSettings, LanguageVocabularyChoice,
};
pub use tokenizer::{tokenizer_of, vocabulary_beside, vocabulary_of};

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others.
const KEPT_SETTINGS: [&str; 3] = ["dropout", "attention_dropout", "embedding_dropout"];

/// The most bytes of a `generation_config.json` that are read.
const MOST_SETTINGS_BYTES: u64 = 1 << 20;

/// Next-token prediction.
#[derive(Debug)]
pub struct Language;

impl TaskType for Language {
    fn name(&self) -> &'static str {
        "language"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&Language, &LanguageSettings::default());
        recipe.train.epochs = 1;
        recipe.data.validation_share = 0.01;
        let optimizer = &mut recipe.optimizer;
        (optimizer.lr, optimizer.betas, optimizer.weight_decay) = (6e-4, [0.9, 0.95], 0.1);
        (recipe.schedule.kind, recipe.schedule.warmup_epochs) = (ScheduleKind::Cosine, 0.02);
        recipe
    }

    fn usual_family(&self) -> &'static str {
        "gpt2"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        let signature = architecture.signature();
        match (signature.next_token(), signature.tokens()) {
            (Some(_), Some(_)) => Ok(()),
            _ => Err(format!("this is {}, but text is learnt by a language model", signature.what())),
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Checked {
        let own: LanguageSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Checked {
        recipe.own::<LanguageSettings>()?.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: LanguageSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
        }
        for path in &mut settings.data.more {
            *path = absolute(path)?;
        }
        for path in [&mut settings.text.tokenizer_from, &mut settings.text.chat_template] {
            if !path.is_empty() {
                *path = absolute(path)?;
            }
        }
        recipe.set_own(&settings);
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            let what = "there is no data: name a text file, chats (JSON lines with `messages`) or a folder of them with `--data FILE`";
            return Err(TrainError::Data(what.to_string()));
        }
        let more = recipe.own::<LanguageSettings>()?.data.more;
        let open = |path: &str| open_plain(Path::new(path)).map_err(|error| TrainError::Data(error.to_string()));
        let mut texts = open(&recipe.data.path)?;
        for path in &more {
            texts = texts.and(open(path)?);
        }
        // A run that is resumed keeps its vocabulary.
        let tokenizer = context.resumed.map(TextTokenizer::open).transpose()?;
        Ok(Box::new(LanguageTask::new(recipe, &texts, tokenizer, context.device)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(LanguageReport::read(evaluation)?.map(LanguageReport::into_scores))
    }
}

/// A language model that is trained.
pub struct LanguageTask {
    recipe: Recipe,
    settings: LanguageSettings,
    finetuning: Finetuning,
    model: Model,
    tokenizer: TextTokenizer,
    facts: TaskFacts,
    files: Vec<(String, u64)>,
    train: Arc<TokenSequences>,
    validation: TokenSequences,
    batches: Arc<SequenceBatches>,
    /// The most documents in a sequence, if they are kept apart.
    documents: usize,
    /// Bytes of each token.
    bytes: Vec<u32>,
    /// Blocks of the model, for layer-wise learning rates.
    blocks: usize,
    /// What it is evaluated on.
    device: Device,
}

impl LanguageTask {
    /// Trains a recipe's model on texts or chats, with a tokenizer that is given, or that of the model to go on from, or one that is
    /// learnt.
    pub fn new(
        mut recipe: Recipe,
        texts: &PlainTexts,
        tokenizer: Option<TextTokenizer>,
        device: &Device,
    ) -> Result<LanguageTask, TrainError> {
        let settings: LanguageSettings = recipe.own()?;
        let is_chat = are_chats(texts).map_err(|error| TrainError::Data(error.to_string()))?;
        let (model, tokenizer) = open_model(&mut recipe, &settings, texts, is_chat, tokenizer.as_ref())?;
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let input = model.architecture.signature().tokens();
        let input = input.ok_or_else(|| TrainError::Data("this model takes no single texts".to_string()))?;
        check_sizes(&settings, &tokenizer, &input)?;
        let length = settings.text.max_tokens;
        let LanguageData { mut sequences, chats, notes } = match is_chat {
            true => data::of_chats(texts, &tokenizer, length)?,
            false => data::of_texts(texts, settings.data.documents.into(), &tokenizer, length)?,
        };
        let held_out = (sequences.len() as f64 * recipe.data.validation_share).round() as usize;
        let validation = sequences.split_off(held_out);
        let train = Arc::new(sequences);
        let documents = if settings.data.apart { train.most_documents() } else { 0 };
        let options = SequenceOptions {
            batch: settings.train.batch,
            documents: documents > 0,
            positions: documents > 0 && takes_positions(model.architecture.as_ref())?,
            padding: tokenizer.special().padding.or(tokenizer.special().end).unwrap_or(0),
            seed: recipe.train.seed,
        };
        let batches = Arc::new(SequenceBatches::new(train.clone(), options));
        let facts = facts(&recipe, &settings, &tokenizer, (&train, &validation), chats, notes)?;
        Ok(LanguageTask {
            finetuning: settings.finetune.parts(),
            bytes: bytes_of_tokens(&tokenizer),
            blocks: block_count(model.parameters()),
            files: texts.files().iter().map(|file| (file.name.clone(), file.bytes)).collect(),
            device: device.clone(),
            recipe,
            settings,
            model,
            tokenizer,
            facts,
            train,
            validation,
            batches,
            documents,
        })
    }

    /// The tokens that end a text.
    fn ends(&self) -> Vec<u32> {
        let mut ends: Vec<u32> =
            self.tokenizer.special().end.into_iter().chain(self.tokenizer.end_tokens().iter().copied()).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// What `config.json` says of special tokens.
    fn special_tokens(&self) -> [(&'static str, Json); 2] {
        let special = self.tokenizer.special();
        [("bos_token_id", json!(special.begin.or(special.end))), ("eos_token_id", json!(special.end))]
    }

    /// The files of the tokenizer, and what tells `transformers` how the model writes.
    fn model_files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        const NAME: &str = "generation_config.json";
        let mut files = self.tokenizer.files()?;
        let there = self.model.assets.files.iter().find(|(name, _)| name == NAME);
        files.push(match there {
            Some((_, path)) => {
                let settings =
                    read_bounded(path, MOST_SETTINGS_BYTES).map_err(TrainError::io(path, "cannot be read"))?;
                (NAME.to_string(), settings)
            }
            None => self.tokenizer.generation_config()?,
        });
        Ok(files)
    }
}

/// The model with its tokenizer: one to go on from, or a new one. `tokenizer` is that of a run that is resumed.
fn open_model(
    recipe: &mut Recipe,
    settings: &LanguageSettings,
    texts: &PlainTexts,
    is_chat: bool,
    tokenizer: Option<&TextTokenizer>,
) -> Result<(Model, TextTokenizer), TrainError> {
    let init = settings.finetune.init.as_str();
    if let ("", Some(tokenizer)) = (init, tokenizer) {
        return Ok((new_model(recipe, tokenizer)?, tokenizer.clone()));
    }
    let (model, tokenizer) = match init {
        "" if is_chat && settings.text.tokenizer_from.is_empty() => {
            let what = "chats are learnt by a model that knows its language already: name one with --init MODEL. A new model \
                        learns from plain text, or with the tokenizer of another: text.tokenizer_from=MODEL";
            return Err(TrainError::Data(what.to_string()));
        }
        "" => {
            let tokenizer = tokenizer::chosen(&settings.text, texts, settings.data.documents.into())?;
            (new_model(recipe, &tokenizer)?, tokenizer)
        }
        init => {
            if !settings.text.tokenizer_from.is_empty() {
                let what = "text.tokenizer_from has no effect with --init: a pretrained model brings its tokenizer";
                return Err(TrainError::Data(what.to_string()));
            }
            let path = Path::new(init);
            let model = open_pretrained(path, recipe, &KEPT_SETTINGS, |_| None)?;
            let tokenizer = tokenizer_of(&model, path)?;
            (model, tokenizer)
        }
    };
    Ok((model, tokenizer::with_template(tokenizer, &settings.text.chat_template)?))
}

/// The recipe's model with as many tokens as the tokenizer.
fn new_model(recipe: &mut Recipe, tokenizer: &TextTokenizer) -> Result<Model, TrainError> {
    let size = Settings::from_iter([("vocabulary".to_string(), tokenizer.vocabulary_size().into())]);
    recipe.change_model(&size)?;
    Ok(Model::new(recipe.architecture()?, Vec::new())?)
}

/// Refuses a tokenizer and a length that do not fit the model.
fn check_sizes(settings: &LanguageSettings, tokenizer: &TextTokenizer, input: &TokenInput) -> Result<(), TrainError> {
    let (length, longest) = (settings.text.max_tokens, input.longest);
    if length > longest {
        let what = match settings.finetune.init.is_empty() {
            true => "lower it, or raise model.max_length",
            false => "lower it",
        };
        return Err(TrainError::Data(format!(
            "text.max_tokens is {length}, but the model reads {longest} at most: {what}"
        )));
    }
    match tokenizer.vocabulary_size() > input.vocabulary {
        true => Err(TrainError::Data(format!(
            "the tokenizer has {} tokens, but the model's vocabulary has {}: they do not belong to one model",
            tokenizer.vocabulary_size(),
            input.vocabulary
        ))),
        false => Ok(()),
    }
}

/// How many bytes of text each token is.
fn bytes_of_tokens(tokenizer: &TextTokenizer) -> Vec<u32> {
    let bytes = |id: u32| tokenizer.token_bytes(id).map_or(0, |bytes| bytes.len() as u32);
    (0..tokenizer.vocabulary_size() as u32).map(bytes).collect()
}

/// Whether a model that keeps documents apart must be told where each token is in its document.
fn takes_positions(architecture: &dyn Architecture) -> Result<bool, TrainError> {
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1).tokens(1).documents(1))?;
    Ok(graph.find("positions").is_ok())
}

fn facts(
    recipe: &Recipe,
    settings: &LanguageSettings,
    tokenizer: &TextTokenizer,
    (train, validation): (&TokenSequences, &TokenSequences),
    chats: bool,
    notes: Vec<String>,
) -> Result<TaskFacts, TrainError> {
    let batch = settings.train.batch;
    let batches = train.len() / batch;
    if batches == 0 {
        return Err(TrainError::Data(format!(
            "a batch of {batch} is more than the {} training sequences of {} tokens; lower train.batch or text.max_tokens",
            train.len(),
            thousands(train.length())
        )));
    }
    let path = Path::new(&recipe.data.path);
    let mut data = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    if !settings.data.more.is_empty() {
        data.push_str(&format!(" and {} more", settings.data.more.len()));
    }
    let targets = train.targets();
    let of = if chats { "of answers in chats" } else { "of text" };
    let summary = format!(
        "{data}: {} tokens {of} to learn, {} for validation, in sequences of {}; vocabulary size {}",
        thousands(targets),
        thousands(validation.targets()),
        thousands(train.length()),
        thousands(tokenizer.vocabulary_size())
    );
    Ok(TaskFacts {
        data,
        summary,
        notes,
        samples: train.len(),
        unit: "tokens",
        units_per_epoch: (targets as f64 * (batches * batch) as f64 / train.len() as f64).round() as u64,
        // Tokens are quickly put into batches.
        loader_threads: 1,
        weighting: Weighting::ByUnits,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1],
        averaging: Averaging::default(),
    })
}

impl Task for LanguageTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let names = self.files.iter().flat_map(|(name, size)| [name.clone().into_bytes(), size.to_le_bytes().to_vec()]);
        // A token and whether it is predicted.
        let tokens = |sequences: &TokenSequences| {
            Mark::of(sequences.iter().map(|row| {
                let both = (0..row.tokens.len()).flat_map(|place| [row.tokens[place], u32::from(row.counts(place))]);
                both.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
            }))
        };
        vec![
            ("names and sizes of text files".to_string(), Mark::of(names)),
            ("training text".to_string(), tokens(&self.train)),
            ("validation text".to_string(), tokens(&self.validation)),
        ]
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    /// The mean loss over the tokens that are predicted.
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let targets = arrays.iter().find(|array| array.name == "targets");
        let Some((targets, &[rows, length])) = targets.map(|array| (array, &array.shape[..])) else {
            return Err(TrainError::Data("a batch of text has no rows of targets".to_string()));
        };
        let adapters = self.finetuning.adapters();
        let call = Call::whole(rows).tokens(length).documents(self.documents).adapters(adapters.as_ref());
        let logits = self.model.architecture.build(graph, &call)?.need("logits")?;
        let targets = graph.input("targets", [rows, length], targets.element.into())?;
        let z_loss = self.settings.loss.z_loss;
        let options = CrossEntropyOptions { ignored_index: Some(IGNORED), z_loss, ..Default::default() };
        Ok(Objective { loss: graph.cross_entropy(logits, targets, options)?, outputs: Vec::new() })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        self.finetuning.group_with_own_head(&self.recipe.optimizer, self.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        if self.model.path.is_some() {
            self.model.load(state)?;
        }
        let is_new = |parameter: &Parameter| parameter.role() == Role::Adapter || self.model.is_new(&parameter.name);
        Ok(initialise(state, Initialisation::TruncatedNormal, self.recipe.train.seed, &is_new)?)
    }

    fn evaluate(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        if self.validation.is_empty() {
            return Ok(None);
        }
        let ends = self.ends();
        let test = LanguageTest {
            architecture: self.model.architecture.as_ref(),
            tokenizer: &self.tokenizer,
            state,
            precision: self.recipe.train.precision.into(),
            device: &self.device,
            apart: self.documents > 0,
            bytes: &self.bytes,
            ends: &ends,
            ranks,
        };
        Ok(Some(test.run(&self.validation, &self.settings.test, progress)?.into_scores()))
    }

    fn shares_evaluation(&self) -> bool {
        true
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.finetuning.merged(self.model.architecture.as_ref(), state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let (files, config) = (self.model_files()?, self.special_tokens());
        let options = SaveOptions {
            state: Some(state),
            weights: Some(WeightType::F32),
            files: &files,
            config: &config,
            ..SaveOptions::default()
        };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }

    /// The vocabulary, which a run that is resumed goes on with.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        Ok(self.tokenizer.files()?)
    }
}
