//! The metrics of a translator on sentence pairs: the loss, and BLEU and chrF of its translations.

use std::collections::BTreeMap;

use vitreous_data::loader::{BatchSource, EpochOrder};
use vitreous_data::text::{
    BatchShape, END, EncodedPairs, Limits, PADDING, Pair, PairBatches, START, Tokenisers, TooFewTokens,
};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, Graph, Mode, Parameter, Plan, Precision, SharedWeights, Value,
    WeightView,
};
use vitreous_models::generate::{SearchOptions, SpecialTokens, TranslateOptions, Translator};
use vitreous_models::{Architecture, Call};

use super::scores::{Bleu, Chrf, ScoreError, bleu, chrf};
use crate::error::TrainError;
use crate::ranks::{Parcel, Ranks};

/// The most tokens of a translation beyond those of its source.
const EXTRA_TOKENS: usize = 50;
/// Tokens of a side of a batch for the loss on a GPU, at least: few large batches, as each shape is planned for itself.
const GPU_TOKENS: usize = 1 << 15;
/// How many sentences the translator gets at a time: so that progress can be shown, and ranks can share them out.
const SENTENCES_AT_ONCE: usize = 256;

/// The special tokens of our tokenisers.
pub const SPECIAL: SpecialTokens = SpecialTokens { padding: PADDING, start: START, end: END, forced_end: None };

/// The options of decoding, in evaluations and elsewhere.
pub fn translate_options(search: SearchOptions, precision: Precision) -> TranslateOptions {
    TranslateOptions { search, slots: None, extra_tokens: EXTRA_TOKENS, precision }
}

/// A translator to evaluate.
pub struct TranslatorTest<'w> {
    /// The model.
    pub model: &'w dyn Architecture,
    /// The tokenisers of source and target.
    pub tokenisers: &'w Tokenisers,
    /// The values of a parameter, by its name.
    pub weights: &'w dyn Fn(&str) -> vitreous_engine::Result<WeightView<'w>>,
    /// How tokens are chosen.
    pub search: SearchOptions,
    /// The most tokens per side of a batch for the loss, with padding; more if one pair has more.
    pub tokens: usize,
    /// Pairs with more tokens on a side are left out of the loss.
    pub max_tokens: usize,
    /// What it is run on.
    pub device: &'w Device,
    /// The precision to compute in.
    pub precision: Precision,
    /// The processes that share the pairs out.
    pub ranks: &'w Ranks,
}

/// The metrics of a translator.
#[derive(Clone, Debug)]
pub struct TranslatorScores {
    /// The mean cross-entropy per token, in nats, without label smoothing; NaN if no pair is short enough.
    pub loss: f64,
    /// The number of tokens that it is the mean over.
    pub tokens: u64,
    /// The number of pairs that were too long for it.
    pub left_out: usize,
    /// The translations, in the order of the pairs.
    pub translations: Vec<String>,
    /// BLEU of the translations.
    pub bleu: Bleu,
    /// chrF of the translations.
    pub chrf: Chrf,
}

/// The most tokens per side of a pair for which a model can compute the loss: a batch has the start or end token, too, and its length is
/// rounded up by at most a sixteenth.
pub fn longest_side(model: &dyn Architecture) -> usize {
    let longest = model.signature().pairs().map_or(0, |(source, target)| source.longest.min(target.longest));
    (longest * 16 / 17).saturating_sub(3).max(1)
}

impl<'w> TranslatorTest<'w> {
    /// Evaluates on pairs: the loss on all, translations of the first `sentences`. `progress` is told how many are translated, of how
    /// many.
    pub fn run(
        &self,
        pairs: &[Pair],
        sentences: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<TranslatorScores, TrainError> {
        let (loss, tokens, left_out) = self.mean_loss(pairs)?;
        let pairs = &pairs[..sentences.min(pairs.len())];
        let translations = self.translate(pairs, progress)?;
        let references: Vec<&str> = pairs.iter().map(|pair| pair.target.as_str()).collect();
        let failed = |error: ScoreError| TrainError::Data(error.to_string());
        let bleu = bleu(&translations, &references).map_err(failed)?;
        let chrf = chrf(&translations, &references).map_err(failed)?;
        Ok(TranslatorScores { loss, tokens, left_out, translations, bleu, chrf })
    }

    /// The mean loss per token, the number of tokens, and the number of pairs that were left out.
    fn mean_loss(&self, pairs: &[Pair]) -> Result<(f64, u64, usize), TrainError> {
        let limits = Limits { max_tokens: self.max_tokens, max_ratio: f64::INFINITY };
        let (pairs, dropped) = EncodedPairs::new(pairs, self.tokenisers, &limits)?;
        if pairs.is_empty() {
            return Ok((f64::NAN, 0, dropped.total()));
        }
        let tokens = if self.device.is_gpu() { self.tokens.max(GPU_TOKENS) } else { self.tokens };
        let pairs = std::sync::Arc::new(pairs);
        let batches = PairBatches::new(pairs.clone(), tokens, 0)
            .or_else(|TooFewTokens { longest, .. }| PairBatches::new(pairs, longest, 0))
            .map_err(|error| TrainError::Data(format!("the pairs to evaluate on: {error}")))?;
        let order = batches.order(0);
        let mut by_shape: BTreeMap<BatchShape, Vec<usize>> = BTreeMap::new();
        (0..order.len())
            .for_each(|index| by_shape.entry(batches.shapes()[order.group(index)]).or_default().push(index));
        let (mut sum, mut tokens) = (0.0, 0);
        let (mut executor, mut shared) = (None, SharedWeights::new(self.device));
        for (shape, indices) in by_shape {
            let (of_shape, count) = self.loss_of(shape, &order, &indices, &batches, (&mut executor, &mut shared))?;
            sum += of_shape;
            tokens += count;
        }
        Ok((sum / tokens as f64, tokens, dropped.total()))
    }

    /// The sum of the losses of batches of one shape, and their tokens. The executor of the shape before is reused if possible.
    fn loss_of(
        &self,
        shape: BatchShape,
        order: &EpochOrder,
        indices: &[usize],
        batches: &PairBatches,
        (executor, shared): (&mut Option<Executor>, &mut SharedWeights),
    ) -> Result<(f64, u64), TrainError> {
        let (plan, loss) = loss_plan(self.model, self.precision, shape, self.device)?;
        let ready = match executor.take() {
            Some(mut executor) if executor.can_change_to(&plan) => {
                executor.change_to(plan)?;
                executor
            }
            there => {
                // Its memory goes back before the new one takes its own.
                drop(there);
                let lend = |parameter: &Parameter| (self.weights)(&parameter.name);
                Executor::with_shared_weights(plan, self.device, shared, lend)?
            }
        };
        let executor = executor.insert(ready);
        let (mut sum, mut tokens) = (0.0, 0);
        let work = |index: usize| {
            let batch = batches.batch(order, indices[index])?;
            for array in &batch.arrays {
                executor.input_i32(array.name)?.copy_from_slice(batch.i32(array.name).unwrap_or_default());
            }
            executor.infer()?;
            Ok(Parcel::of_sum(f64::from(executor.number(loss)?) * batch.units as f64, batch.units as u64))
        };
        let take = |_: usize, parcel: &Parcel| {
            let (of_batch, count) = parcel.sum();
            sum += of_batch;
            tokens += count;
            Ok(())
        };
        self.ranks.share_out(indices.len(), work, take)?;
        Ok((sum, tokens))
    }

    /// The translations of the sources of some pairs.
    fn translate(&self, pairs: &[Pair], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<String>, TrainError> {
        let options = translate_options(self.search, self.precision);
        let mut translator = Translator::new(self.model, SPECIAL, options, self.device, Box::new(self.weights))?;
        let mut translations = Vec::new();
        let parts: Vec<&[Pair]> = pairs.chunks(SENTENCES_AT_ONCE).collect();
        let work = |part: usize| {
            let sources: Result<Vec<Vec<u32>>, _> =
                parts[part].iter().map(|pair| self.tokenisers.source.encode(&pair.source)).collect();
            let written = translator.translate(&sources?)?;
            let best = written.into_iter().map(|hypotheses| hypotheses.into_iter().next());
            Ok(Parcel::of_tokens(best.map(|best| best.map_or_else(Vec::new, |best| best.tokens))))
        };
        let take = |_: usize, parcel: &Parcel| {
            for tokens in parcel.tokens() {
                translations.push(one_line(&self.tokenisers.target.decode(&tokens)?));
            }
            progress(translations.len(), pairs.len());
            Ok(())
        };
        self.ranks.share_out(parts.len(), work, take)?;
        Ok(translations)
    }
}

/// The plan of the loss of batches of one shape.
fn loss_plan(
    model: &dyn Architecture,
    precision: Precision,
    BatchShape { batch, source, target }: BatchShape,
    device: &Device,
) -> Result<(Plan, Value), TrainError> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let call = Call::whole(batch).tokens(source).target(target);
    let logits = model.build(&mut graph, &call)?.need("logits")?;
    let wanted = graph.input("wanted", [batch, target], DType::I32)?;
    let options = CrossEntropyOptions { ignored_index: Some(PADDING as i32), ..CrossEntropyOptions::default() };
    let loss = graph.cross_entropy(logits, wanted, options)?;
    Ok((device.plan_with_fixed_weights(&graph, &[loss])?, loss))
}

/// Bytes of a GPU's memory that the loss takes on pairs of about this length. It takes more than decoding does.
pub(super) fn gpu_bytes(
    model: &dyn Architecture,
    precision: Precision,
    (tokens, longest): (usize, usize),
    device: &Device,
) -> Result<usize, TrainError> {
    let batch = (tokens.max(GPU_TOKENS) / longest.max(1)).max(1);
    let (plan, _) = loss_plan(model, precision, BatchShape { batch, source: longest, target: longest }, device)?;
    Ok(device.bytes_needed_with_weights(&plan))
}

/// A translation as one line: a model may write any byte, also a line break. Scores are of lines, so that they are the same for a file of
/// translations.
pub fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
