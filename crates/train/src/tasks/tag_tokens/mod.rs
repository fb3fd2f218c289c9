//! Token classification: a class for each word of a sentence, such as the names in it, from a pretrained encoder.

mod measure;

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use vitreous_data::loader::{ArraySpec, BatchSource};
use vitreous_data::text::{
    EncodedTexts, Encoding, IGNORED, TaggedSentence, TaggedSplits, TextBatches, TextTargets, TextTokenizer, open_tagged,
};
use vitreous_engine::{CrossEntropyOptions, DType, Device, Graph, Group, Parameter, State, WeightView};
use vitreous_models::encode::{EncoderOutput, EncoderRunner, TextTokens};
use vitreous_models::{Architecture, Call, Head};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::recipe::rules::{POSITIVE, refuse};
use crate::recipe::{Recipe, RecipeError, ScheduleKind};
use crate::scores::{Metric, Scores};
use crate::task::{
    Averaging, Objective, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands,
};
use crate::tasks::classify_text::{TextLengthSettings, TextTrainSettings};
use crate::tasks::text::{TextFinetuneSettings, TrainedEncoder};

pub use measure::{EntityTypeReport, TagReport, TaggedWords, measure};

/// The keys that only token classification has, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagTokensSettings {
    /// The batch.
    pub train: TextTrainSettings,
    /// How much of a sentence is read.
    pub text: TextLengthSettings,
    /// Fine-tuning of a pretrained model.
    pub finetune: TextFinetuneSettings,
}

/// Token classification.
#[derive(Debug)]
pub struct TokenClassification;

impl TaskType for TokenClassification {
    fn name(&self) -> &'static str {
        "token-classification"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &measure::METRICS
    }

    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&TokenClassification, &TagTokensSettings::default());
        recipe.train.epochs = 3;
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
            None => {
                Err(format!("this is {}, but classification of tokens needs an encoder of texts", signature.what()))
            }
        }
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: TagTokensSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let settings: TagTokensSettings = recipe.own()?;
        match () {
            () if settings.train.batch == 0 => refuse("train.batch", &settings.train.batch, POSITIVE),
            () if settings.text.max_tokens < 4 => {
                refuse("text.max_tokens", &settings.text.max_tokens, "it must be at least 4: special tokens count, too")
            }
            () => Ok(()),
        }?;
        settings.finetune.check()
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: TagTokensSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        if recipe.data.path.is_empty() {
            let what =
                "there is no data: name tagged sentences with `vitreous train classify-tokens --init MODEL --data DIR`";
            return Err(TrainError::Data(what.to_string()));
        }
        let splits = open_tagged(Path::new(&recipe.data.path), recipe.data.validation_share)
            .map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(TagTokensTask::new(recipe, splits, context.device)?))
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TagReport::read(evaluation)?.map(TagReport::into_scores))
    }
}

/// A token classifier that is trained.
pub struct TagTokensTask {
    recipe: Recipe,
    settings: TagTokensSettings,
    facts: TaskFacts,
    splits: TaggedSplits,
    encoder: TrainedEncoder,
    batches: Arc<TextBatches>,
    /// Validation sentences with the tags of their tokens.
    validation: Vec<(Encoding, Vec<i32>)>,
    device: Device,
}

impl TagTokensTask {
    /// Fine-tunes a recipe's pretrained model on these sentences.
    pub fn new(mut recipe: Recipe, splits: TaggedSplits, device: &Device) -> Result<TagTokensTask, TrainError> {
        let settings: TagTokensSettings = recipe.own()?;
        let head = Head::TokenClasses(splits.tags.len());
        let encoder = TrainedEncoder::open(&mut recipe, &settings.finetune.init, head, &splits.tags)?;
        let longest = settings.text.max_tokens.min(encoder.input.longest);
        let encode = |sentences: &[TaggedSentence]| -> Result<Vec<(Encoding, Vec<i32>)>, TrainError> {
            sentences.par_iter().map(|sentence| encode(&encoder.tokenizer, sentence, longest)).collect()
        };
        let train = encode(&splits.train)?;
        let validation = encode(&splits.validation)?;
        let texts: EncodedTexts = train.iter().map(|(text, _)| text).collect();
        let truncated = train.iter().filter(|(text, _)| text.truncated).count();
        let targets = TextTargets::Tags(train.into_iter().map(|(_, tags)| tags).collect());
        let tokens = (encoder.input.token_types > 1, encoder.padding());
        let shape = (settings.train.batch, longest);
        let batches = Arc::new(TextBatches::new(texts, targets, shape, tokens, recipe.train.seed));
        let facts = facts(&settings, &splits, &batches, truncated)?;
        let device = device.clone();
        Ok(TagTokensTask { recipe, settings, facts, splits, encoder, batches, validation, device })
    }
}

/// A sentence's tokens, and their tags: the first token of a word has the word's, the others none.
fn encode(
    tokenizer: &TextTokenizer,
    sentence: &TaggedSentence,
    longest: usize,
) -> Result<(Encoding, Vec<i32>), TrainError> {
    let words: Vec<&str> = sentence.words.iter().map(String::as_str).collect();
    let encoding = tokenizer.encode_words(&words, longest)?;
    let mut tags = vec![IGNORED; encoding.len()];
    let mut before = None;
    for (tag, &word) in tags.iter_mut().zip(&encoding.words) {
        if let Some(word) = word.filter(|_| word != before) {
            *tag = sentence.tags.get(word as usize).map_or(IGNORED, |&tag| tag as i32);
        }
        before = word;
    }
    Ok((encoding, tags))
}

impl Task for TagTokensTask {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    fn data_marks(&self) -> Vec<(String, Mark)> {
        let mut marks = vec![("tag names".to_string(), Mark::of(&self.splits.tags))];
        for (which, sentences) in [("training", &self.splits.train), ("validation", &self.splits.validation)] {
            let words = sentences.iter().flat_map(|sentence| &sentence.words);
            marks.push((format!("{which} words"), Mark::of(words)));
            let tags = sentences.iter().flat_map(|sentence| sentence.tags.iter().map(|tag| tag.to_le_bytes()));
            marks.push((format!("tags of {which} words"), Mark::of(tags)));
        }
        marks
    }

    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
    }

    /// The mean loss over words.
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let tokens = arrays.iter().find(|array| array.name == "tokens").map(|array| &array.shape[..]);
        let &[rows, length] = tokens.unwrap_or_default() else {
            return Err(TrainError::Data("a batch of sentences has no tokens".to_string()));
        };
        let adapters = self.settings.finetune.adapters();
        let call = Call::whole(rows).tokens(length).adapters(adapters.as_ref());
        let logits = self.encoder.model.architecture.build(graph, &call)?.need("logits")?;
        let targets = graph.input("targets", [rows, length], DType::I32)?;
        let options = CrossEntropyOptions { ignored_index: Some(IGNORED), ..CrossEntropyOptions::default() };
        Ok(Objective { loss: graph.cross_entropy(logits, targets, options)?, outputs: Vec::new() })
    }

    fn group(&self, parameter: &Parameter) -> Option<Group> {
        self.settings.finetune.group(&self.recipe.optimizer, self.encoder.blocks, parameter)
    }

    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        self.encoder.initialise(self.recipe.train.seed, state)
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
        let mut runner = EncoderRunner::new(architecture, EncoderOutput::Logits, precision, &self.device, weights)?;
        let report = tag(&mut runner, &self.validation, &self.splits.tags, progress)?;
        Ok(Some(report.into_scores()))
    }

    fn exported(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.encoder.without_adapters(self.settings.finetune.adapters(), state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.encoder.save(directory, state)
    }
}

/// Measures how sentences, given as tokens with their tags, are tagged.
fn tag(
    runner: &mut EncoderRunner,
    sentences: &[(Encoding, Vec<i32>)],
    tags: &[String],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TagReport, TrainError> {
    let tokens: Vec<TextTokens> = (sentences.iter())
        .map(|(text, _)| TextTokens { ids: &text.ids, types: &text.token_types, masked: &[] })
        .collect();
    let mut words = vec![TaggedWords::default(); tokens.len()];
    let mut done = 0;
    runner.run::<TrainError>(&tokens, |sentence, logits| {
        words[sentence] = tagged_words(logits, &sentences[sentence].1);
        done += 1;
        progress(done, tokens.len());
        Ok(())
    })?;
    measure(&words, tags).map_err(TrainError::Data)
}

/// How well a model with these tags tags sentences, of which at most so many tokens are read.
pub fn evaluate_tags(
    runner: &mut EncoderRunner,
    tokenizer: &TextTokenizer,
    tags: &[String],
    sentences: &[TaggedSentence],
    longest: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TagReport, TrainError> {
    let encode = |sentence: &TaggedSentence| encode(tokenizer, sentence, longest);
    let encoded: Vec<(Encoding, Vec<i32>)> = sentences.par_iter().map(encode).collect::<Result<_, _>>()?;
    tag(runner, &encoded, tags, progress)
}

/// The words of a sentence by the logits of its tokens and their tags, of which those of words count.
fn tagged_words(logits: &[f32], tags: &[i32]) -> TaggedWords {
    let classes = logits.len() / tags.len().max(1);
    let mut words = TaggedWords::default();
    for (row, &tag) in logits.chunks_exact(classes.max(1)).zip(tags).filter(|(_, tag)| **tag != IGNORED) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
        let best = (0..row.len()).fold(0, |best, class| if row[class] > row[best] { class } else { best });
        words.loss += sum.ln() - f64::from(row[tag as usize] - largest);
        words.expected.push(tag as u32);
        words.predicted.push(best as u32);
    }
    words
}

fn facts(
    settings: &TagTokensSettings,
    splits: &TaggedSplits,
    batches: &TextBatches,
    truncated: usize,
) -> Result<TaskFacts, TrainError> {
    let (count, batch, samples) = (batches.batches_per_epoch(), settings.train.batch, splits.train.len());
    if count == 0 {
        let what = format!("a batch of {batch} is more than the {samples} training sentences; lower train.batch");
        return Err(TrainError::Data(what));
    }
    let mut notes = splits.notes.clone();
    if truncated > 0 {
        let most = settings.text.max_tokens;
        notes.push(format!("{truncated} training sentences have more than {most} tokens, and are truncated"));
    }
    Ok(TaskFacts {
        data: splits.name.clone(),
        summary: format!(
            "{}: {} training sentences, {} validation sentences, {} tags; {:.1} % padding",
            splits.name,
            thousands(samples),
            thousands(splits.validation.len()),
            splits.tags.len(),
            100.0 * batches.padding_share()
        ),
        notes,
        samples,
        unit: "sentences",
        units_per_epoch: (count * batch) as u64,
        loader_threads: 1,
        weighting: Weighting::Equal,
        batch_size: ("train.batch", batch),
        row_sizes: vec![1; batches.lengths().len()],
        averaging: Averaging::default(),
    })
}
