//! Fine-tuning on pairs: translations, questions with answers, articles with summaries.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::Value as Json;
use vitreous_data::loader::BatchSource;
use vitreous_data::text::{self, EncodedPairs, Pair, PairBatches, PairForm, TokeniserError};
use vitreous_engine::{Device, State, WeightView};
use vitreous_models::Architecture;
use vitreous_models::generate::{SearchOptions, TargetRules, TranslateOptions, Translator};

use super::evaluate::{METRICS, Seq2SeqReport};
use super::model::PairModel;
use super::rouge::rouge;
use super::settings::{Seq2SeqDataSettings, Seq2SeqSettings, WritingSettings, pair_options};
use super::{Evaluation, PairTask};
use crate::error::TrainError;
use crate::fingerprint::Mark;
use crate::ranks::{Parcel, Ranks};
use crate::recipe::{Recipe, RecipeError};
use crate::scores::{Metric, Scores};
use crate::task::{Averaging, Task, TaskContext, TaskFacts, TaskType, Weighting, absolute, pretrained, thousands};
use crate::tasks::text::finetuning_recipe;
use crate::tasks::translate::scores::{ScoreError, bleu, chrf};
use crate::tasks::translate::{ShownTranslation, one_line};

/// Texts that are written at a time, so that progress can be shown.
const WRITTEN_AT_ONCE: usize = 256;

/// Fine-tuning on pairs.
#[derive(Debug)]
pub struct Seq2Seq;

impl TaskType for Seq2Seq {
    fn name(&self) -> &'static str {
        "seq2seq"
    }

    fn metrics(&self) -> &'static [&'static Metric] {
        &METRICS
    }

    fn defaults(&self) -> Recipe {
        finetuning_recipe(&Seq2Seq, &Seq2SeqSettings::default(), 3, 0.02)
    }

    fn usual_family(&self) -> &'static str {
        "t5"
    }

    fn check_model(&self, architecture: &dyn Architecture) -> Result<(), String> {
        super::pretrain::check_pairs(architecture)
    }

    fn normalise(&self, recipe: &mut Recipe) -> Result<(), RecipeError> {
        let own: Seq2SeqSettings = recipe.own()?;
        recipe.set_own(&own);
        Ok(())
    }

    fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        recipe.own::<Seq2SeqSettings>()?.check(recipe.output.keep)
    }

    fn complete(&self, recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        if !recipe.data.path.is_empty() {
            recipe.data.path = absolute(&recipe.data.path)?;
        }
        let mut settings: Seq2SeqSettings = recipe.own()?;
        if !settings.finetune.init.is_empty() {
            settings.finetune.init = pretrained(&settings.finetune.init)?;
            recipe.set_own(&settings);
        }
        Ok(())
    }

    fn open(&self, recipe: Recipe, context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        let settings: Seq2SeqSettings = recipe.own()?;
        if recipe.data.path.is_empty() {
            let what = "there is no data: name pairs with `vitreous train seq2seq --init MODEL --data PAIRS`";
            return Err(TrainError::Data(what.to_string()));
        }
        if settings.finetune.init.is_empty() {
            let what = "no pretrained model was named: `--init MODEL` names a directory with an encoder-decoder and its tokenizer";
            return Err(TrainError::Data(what.to_string()));
        }
        open(recipe, settings, context).map(|task| Box::new(task) as Box<dyn Task>)
    }

    fn read_scores(&self, evaluation: &Json) -> Option<Result<Scores, String>> {
        Some(Seq2SeqReport::read(evaluation)?.map(Seq2SeqReport::into_scores))
    }
}

fn open(mut recipe: Recipe, settings: Seq2SeqSettings, context: &TaskContext) -> Result<PairTask, TrainError> {
    let path = Path::new(&recipe.data.path).to_path_buf();
    let splits =
        text::open(&path, &pair_options(&recipe, &settings)).map_err(|error| TrainError::Data(error.to_string()))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    if splits.train.is_empty() {
        return Err(TrainError::Data(format!("{name}: there are no training pairs")));
    }
    let init = settings.finetune.init.clone();
    let model = PairModel::open(&mut recipe, &init, context.resumed)?;
    let encoder = PairEncoder::new(&model, &settings)?;
    let (train, truncated) = encoder.encode(&model, &splits.train)?;
    let (validation, _) = encoder.encode(&model, &splits.validation)?;
    let of_pairs = |pairs: &EncodedPairs| {
        let tokens = (0..pairs.len()).flat_map(|index| [pairs.source(index), pairs.target(index)]);
        Mark::of(tokens.map(|tokens| tokens.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()))
    };
    let marks =
        vec![("training pairs".to_string(), of_pairs(&train)), ("validation pairs".to_string(), of_pairs(&validation))];
    let train = Arc::new(train);
    let batches = encoder.batches(train.clone(), settings.train.tokens, recipe.train.seed)?;
    let mut notes = splits.notes;
    notes.extend((truncated > 0).then(|| {
        format!("{} have more than text.max_source or text.max_target tokens, and were truncated", thousands(truncated))
    }));
    let facts = facts(&settings, (name, splits.validation.len(), notes), &train, &batches);
    let evaluation = PairEvaluation {
        pairs: splits.validation,
        encoded: Arc::new(validation),
        encoder,
        tokens: settings.train.tokens,
        writing: settings.test,
    };
    Ok(PairTask {
        recipe,
        model,
        facts,
        batches: Arc::new(batches),
        marks,
        label_smoothing: settings.loss.label_smoothing,
        finetuning: settings.finetune.parts(),
        evaluation: Box::new(evaluation),
        device: context.device.clone(),
    })
}

fn facts(
    settings: &Seq2SeqSettings,
    (name, validation, notes): (String, usize, Vec<String>),
    train: &EncodedPairs,
    batches: &PairBatches,
) -> TaskFacts {
    TaskFacts {
        summary: format!(
            "{name}: {} training pairs, {} validation pairs; {} batches per epoch, {:.1} % padding",
            thousands(train.len()),
            thousands(validation),
            thousands(batches.batches_per_epoch()),
            100.0 * batches.padding_share()
        ),
        data: name,
        notes,
        samples: train.len(),
        unit: "tokens",
        units_per_epoch: train.tokens().1 as u64,
        // Tokens are quickly put into batches.
        loader_threads: 1,
        weighting: Weighting::ByUnits,
        batch_size: ("train.tokens", settings.train.tokens),
        row_sizes: batches.shapes().iter().map(|shape| shape.source.max(shape.target)).collect(),
        averaging: Averaging { checkpoints: settings.train.average, ..Averaging::default() },
    }
}

/// How pairs become tokens.
struct PairEncoder {
    data: Seq2SeqDataSettings,
    /// The most tokens of a source and of a target.
    longest: (usize, usize),
    /// The most that the model reads.
    most: (usize, usize),
    padding: u32,
    /// What a target begins with.
    start: u32,
}

impl PairEncoder {
    fn new(model: &PairModel, settings: &Seq2SeqSettings) -> Result<PairEncoder, TrainError> {
        let data = settings.data.clone();
        let to = named(&data.to);
        let start = model.tokenizer.start(to)?.unwrap_or(model.special.start);
        let room = |wanted: usize, longest: usize| wanted.min(longest).max(2);
        let longest =
            (room(settings.text.max_source, model.longest.0), room(settings.text.max_target, model.longest.1));
        Ok(PairEncoder { data, longest, most: model.longest, padding: model.special.padding, start })
    }

    fn source(&self, model: &PairModel, text: &str) -> Result<Vec<u32>, TokeniserError> {
        let (from, to) = (named(&self.data.from), named(&self.data.to));
        match self.data.prefix.is_empty() {
            true => model.tokenizer.encode_source(text, from, to),
            false => model.tokenizer.encode_source(&format!("{}{text}", self.data.prefix), from, to),
        }
    }

    /// The tokens of pairs, and how many had to be truncated.
    fn encode(&self, model: &PairModel, pairs: &[Pair]) -> Result<(EncodedPairs, usize), TrainError> {
        let encode = |pair: &Pair| {
            let source = self.source(model, &pair.source)?;
            let target = model.tokenizer.encode_target(&pair.target, named(&self.data.to))?;
            Ok((source, target))
        };
        let mut all: Vec<(Vec<u32>, Vec<u32>)> = pairs.par_iter().map(encode).collect::<Result<_, TokeniserError>>()?;
        let mut truncated = 0;
        for (source, target) in &mut all {
            let is_long = source.len() > self.longest.0 || target.len() > self.longest.1;
            truncated += usize::from(is_long);
            model.tokenizer.truncate(source, self.longest.0);
            model.tokenizer.truncate(target, self.longest.1);
        }
        Ok((EncodedPairs::from_tokens(all.iter().map(|(source, target)| (&source[..], &target[..]))), truncated))
    }

    fn batches(&self, pairs: Arc<EncodedPairs>, tokens: usize, seed: u64) -> Result<PairBatches, TrainError> {
        let form = PairForm::Whole { padding: self.padding, start: self.start, longest: self.most };
        PairBatches::of_form(pairs, form, tokens, seed).map_err(|error| TrainError::Data(error.to_string()))
    }
}

fn named(code: &str) -> Option<&str> {
    Some(code).filter(|code| !code.is_empty())
}

/// Pairs to evaluate on.
struct PairEvaluation {
    pairs: Vec<Pair>,
    encoded: Arc<EncodedPairs>,
    encoder: PairEncoder,
    tokens: usize,
    writing: WritingSettings,
}

impl Evaluation for PairEvaluation {
    fn scores(
        &self,
        model: &PairModel,
        state: &State,
        recipe: &Recipe,
        (device, ranks): (&Device, &Ranks),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        if self.pairs.is_empty() {
            return Ok(None);
        }
        let precision = recipe.train.precision.into();
        let longest =
            (0..self.encoded.len()).map(|index| self.encoded.source(index).len().max(self.encoded.target(index).len()));
        let tokens = self.tokens.max(longest.max().unwrap_or(1) * 17 / 16 + 8);
        let batches = self.encoder.batches(self.encoded.clone(), tokens, 0)?;
        let loss = model.mean_loss(&batches, state, (device, ranks, precision), &mut |_, _| {})?;
        let most = if self.writing.sentences == 0 { usize::MAX } else { self.writing.sentences };
        let pairs = &self.pairs[..most.min(self.pairs.len())];
        let written = self.write(model, state, recipe, (device, ranks), pairs.len(), progress)?;
        let references: Vec<&str> = pairs.iter().map(|pair| pair.target.as_str()).collect();
        let failed = |error: ScoreError| TrainError::Data(error.to_string());
        let bleu = bleu(&written, &references).map_err(failed)?;
        let chrf = chrf(&written, &references).map_err(failed)?;
        let rouge = rouge(&written, &references);
        // Spread over the data, the same ones after every epoch.
        let (count, shown) = (written.len(), self.writing.shown.min(written.len()));
        let shown = (0..shown).map(|index| index * count / shown).map(|index| ShownTranslation {
            source: pairs[index].source.clone(),
            reference: pairs[index].target.clone(),
            translation: written[index].clone(),
        });
        Ok(Some(Seq2SeqReport::new(loss, count, (bleu, chrf, rouge), shown.collect()).into_scores()))
    }
}

impl PairEvaluation {
    /// What the model writes for the first so many sources.
    fn write(
        &self,
        model: &PairModel,
        state: &State,
        recipe: &Recipe,
        (device, ranks): (&Device, &Ranks),
        count: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<String>, TrainError> {
        let WritingSettings { beam, length_penalty, no_repeat, .. } = self.writing;
        let search = SearchOptions { beam, length_penalty };
        let precision = recipe.train.precision.into();
        let options = TranslateOptions { search, slots: None, extra_tokens: 0, precision };
        let weights = Box::new(|name: &str| state.parameter(name).map(WeightView::from));
        let mut special = model.special;
        special.start = self.encoder.start;
        let mut translator = Translator::new(model.model.architecture.as_ref(), special, options, device, weights)?;
        translator.set_rules(TargetRules {
            max_tokens: Some(self.encoder.longest.1),
            forced_first: model.tokenizer.forced_first(named(&self.encoder.data.to))?,
            forced_last: special.forced_end,
            no_repeat,
            ..TargetRules::ending_with(vec![special.end])
        });
        let mut written = Vec::new();
        let sources: Vec<Vec<u32>> = (0..count).map(|index| self.encoded.source(index).to_vec()).collect();
        let parts: Vec<&[Vec<u32>]> = sources.chunks(WRITTEN_AT_ONCE).collect();
        let work = |part: usize| {
            let best = translator.write(parts[part])?.into_iter().map(|hypotheses| hypotheses.into_iter().next());
            Ok(Parcel::of_tokens(best.map(|best| best.map_or_else(Vec::new, |best| best.tokens))))
        };
        let take = |_: usize, parcel: &Parcel| {
            for tokens in parcel.tokens() {
                written.push(one_line(&model.tokenizer.decode(&tokens)?));
            }
            progress(written.len(), count);
            Ok(())
        };
        ranks.share_out(parts.len(), work, take)?;
        Ok(written)
    }
}
