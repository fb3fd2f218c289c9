//! Token classification: a class for each word of a sentence, such as the names in it, from a pretrained encoder.

mod measure;

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use vitreous_data::loader::BatchSource;
use vitreous_data::text::{
    EncodedTexts, Encoding, IGNORED, TaggedSentence, TaggedSplits, TextBatches, TextTargets, TextTokenizer, open_tagged,
};
use vitreous_engine::{CrossEntropyOptions, Device, Graph, Value};
use vitreous_models::encode::EncoderRunner;
use vitreous_models::{Head, Outputs};

use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::measures::{cross_entropy, largest};
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::recipe::rules::Checked;
use crate::scores::{Metric, Scores};
use crate::task::{Objective, Task, TaskContext};
use crate::tasks::text::{
    TextData, TextFinetuneSettings, TextLengthSettings, TextObjective, TextTask, TextTaskSettings, TextTaskType,
    TextTrainSettings, TrainedEncoder, finetuning_recipe, run_texts,
};

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

impl TextTaskSettings for TagTokensSettings {
    fn check(&self) -> Checked {
        self.train.check()?;
        self.text.check()?;
        self.finetune.parts().check()
    }

    fn init(&mut self) -> &mut String {
        &mut self.finetune.init
    }
}

/// Token classification.
#[derive(Debug)]
pub struct TokenClassification;

impl TextTaskType for TokenClassification {
    type Settings = TagTokensSettings;

    const NAME: &'static str = "token-classification";
    const METRICS: &'static [&'static Metric] = &measure::METRICS;
    const NEEDS: &'static str = "classification of tokens needs";
    const NO_DATA: &'static str = "name tagged sentences with `vitreous train classify-tokens --init MODEL --data DIR`";

    fn default_recipe() -> Recipe {
        finetuning_recipe(&TokenClassification, &TagTokensSettings::default(), 3, 0.1)
    }

    fn open_data(recipe: Recipe, path: &Path, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let splits = open_tagged(path, recipe.data.validation_share);
        let splits = splits.map_err(|error| TrainError::Data(error.to_string()))?;
        Ok(Box::new(TagTokensTask::new(recipe, splits, context.device)?))
    }

    fn scores_of(evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(TagReport::read(evaluation)?.map(TagReport::into_scores))
    }
}

/// A token classifier that is trained.
pub type TagTokensTask = TextTask<TokenClasses>;

/// Predicting the tag of each word.
pub struct TokenClasses {
    splits: TaggedSplits,
    batches: Arc<TextBatches>,
    /// Validation sentences with the tags of their tokens.
    validation: Vec<(Encoding, Vec<i32>)>,
}

impl TagTokensTask {
    /// Fine-tunes a recipe's pretrained model on these sentences.
    pub fn new(mut recipe: Recipe, splits: TaggedSplits, device: &Device) -> Result<TagTokensTask, TrainError> {
        let settings: TagTokensSettings = recipe.own()?;
        let head = Head::TokenClasses(splits.tags.len());
        let encoder = TrainedEncoder::open(&mut recipe, &settings.finetune.init, head, &splits.tags)?;
        let (batch, rows) = (settings.train.batch, encoder.rows(settings.text.max_tokens));
        let train = encode_all(&encoder.tokenizer, &splits.train, rows.longest)?;
        let validation = encode_all(&encoder.tokenizer, &splits.validation, rows.longest)?;
        let mut notes = splits.notes.clone();
        let truncated = train.iter().filter(|(text, _)| text.truncated).count();
        if truncated > 0 {
            let most = rows.longest;
            notes.push(format!("{truncated} training sentences have more than {most} tokens, and are truncated"));
        }
        let texts: EncodedTexts = train.iter().map(|(text, _)| text).collect();
        let targets = TextTargets::Tags(train.into_iter().map(|(_, tags)| tags).collect());
        let batches = TextBatches::new(texts, targets, batch, rows, recipe.train.seed);
        let data = TextData {
            name: splits.name.clone(),
            samples: [splits.train.len(), splits.validation.len()],
            unit: "sentences",
            more: format!(", {} tags; {:.1} % padding", splits.tags.len(), 100.0 * batches.padding_share()),
            notes,
            batches: &batches,
            batch,
            texts_per_sample: 1,
        };
        let facts = data.facts()?;
        let objective = TokenClasses { splits, batches: Arc::new(batches), validation };
        let (finetuning, device) = (settings.finetune.parts(), device.clone());
        Ok(TextTask { recipe, finetuning, facts, encoder, objective, device })
    }
}

/// Sentences as tokens with their tags, by all threads.
fn encode_all(
    tokenizer: &TextTokenizer,
    sentences: &[TaggedSentence],
    longest: usize,
) -> Result<Vec<(Encoding, Vec<i32>)>, TrainError> {
    sentences.par_iter().map(|sentence| encode(tokenizer, sentence, longest)).collect()
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

impl TextObjective for TokenClasses {
    fn batches(&self) -> Arc<dyn BatchSource> {
        self.batches.clone()
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

    /// The mean loss over words.
    fn loss(&self, graph: &mut Graph, given: &Outputs, targets: Value) -> vitreous_engine::Result<Objective> {
        let options = CrossEntropyOptions { ignored_index: Some(IGNORED), ..CrossEntropyOptions::default() };
        Ok(Objective { loss: graph.cross_entropy(given.need("logits")?, targets, options)?, outputs: Vec::new() })
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
        Ok(tag(runner, ranks, &self.validation, &self.splits.tags, progress)?.into_scores())
    }
}

/// Measures how sentences, given as tokens with their tags, are tagged.
fn tag(
    runner: &mut EncoderRunner,
    ranks: &Ranks,
    sentences: &[(Encoding, Vec<i32>)],
    tags: &[String],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TagReport, TrainError> {
    let mut words = vec![TaggedWords::default(); sentences.len()];
    let texts = sentences.iter().map(|(text, _)| text);
    run_texts(runner, ranks, texts, progress, |sentence, logits| {
        words[sentence] = tagged_words(logits, &sentences[sentence].1);
    })?;
    measure(&words, tags).map_err(TrainError::Data)
}

/// How well a model with these tags tags sentences, of which at most so many tokens are read.
pub fn evaluate_tags(
    runner: &mut EncoderRunner,
    ranks: &Ranks,
    tokenizer: &TextTokenizer,
    tags: &[String],
    sentences: &[TaggedSentence],
    longest: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TagReport, TrainError> {
    tag(runner, ranks, &encode_all(tokenizer, sentences, longest)?, tags, progress)
}

/// The words of a sentence by the logits of its tokens and their tags, of which those of words count.
fn tagged_words(logits: &[f32], tags: &[i32]) -> TaggedWords {
    let classes = logits.len() / tags.len().max(1);
    let mut words = TaggedWords::default();
    for (row, &tag) in logits.chunks_exact(classes.max(1)).zip(tags).filter(|(_, tag)| **tag != IGNORED) {
        words.loss += cross_entropy(row, tag as usize);
        words.expected.push(tag as u32);
        words.predicted.push(largest(row) as u32);
    }
    words
}
