//! How good a translator is on pairs, wherever its parameters are: the loss on them, and how its translations compare with theirs.

use std::collections::BTreeMap;

use vitreous_data::loader::{BatchSource, EpochOrder};
use vitreous_data::text::{
    BatchShape, END, EncodedPairs, Limits, PADDING, Pair, PairBatches, START, Tokenisers, TooFewTokens,
};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, Graph, Mode, Parameter, Precision, SharedWeights, WeightView,
};
use vitreous_models::generate::{SearchOptions, SpecialTokens, TranslateOptions, Translator};
use vitreous_models::{Architecture, Call};

use super::scores::{Bleu, Chrf, ScoreError, bleu, chrf};
use crate::error::TrainError;

/// The most tokens of a translation beyond those of its source.
const EXTRA_TOKENS: usize = 50;
/// Tokens of a side of a batch for the loss on a GPU, at least: few large batches, as each shape is planned for itself.
const GPU_TOKENS: usize = 1 << 15;
/// How many sentences go to the translator at a time, so that progress can be told.
const SENTENCES_AT_ONCE: usize = 1024;

/// The special tokens of our tokenisers.
pub const SPECIAL: SpecialTokens = SpecialTokens { padding: PADDING, start: START, end: END };

/// How sentences are translated, in tests and elsewhere.
pub fn translate_options(search: SearchOptions, precision: Precision) -> TranslateOptions {
    TranslateOptions { search, slots: None, extra_tokens: EXTRA_TOKENS, precision }
}

/// A translator that is to be tested.
pub struct TranslatorTest<'w> {
    /// What it is.
    pub model: &'w dyn Architecture,
    /// By which texts become tokens.
    pub tokenisers: &'w Tokenisers,
    /// A parameter's values, by its name.
    pub weights: &'w dyn Fn(&str) -> vitreous_engine::Result<WeightView<'w>>,
    /// How words are chosen.
    pub search: SearchOptions,
    /// The most tokens of a side of a batch for the loss, with padding; more if one pair has more.
    pub tokens: usize,
    /// The loss leaves out pairs with a side of more tokens.
    pub max_tokens: usize,
    /// What it is run on.
    pub device: &'w Device,
    /// The precision to compute in.
    pub precision: Precision,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct TranslatorScores {
    /// Mean cross-entropy a token, in nats, without smoothing; NaN if no pair is short enough.
    pub loss: f64,
    /// How many tokens it is the mean over.
    pub tokens: u64,
    /// How many pairs were too long for it.
    pub left_out: usize,
    /// A line each.
    pub translations: Vec<String>,
    /// BLEU of the translations.
    pub bleu: Bleu,
    /// chrF of the translations.
    pub chrf: Chrf,
}

/// The most tokens that a side of a pair can have for a model to measure its loss: a batch has the start or the end, too, and its length
/// is rounded up, by at most a sixteenth.
pub fn longest_side(model: &dyn Architecture) -> usize {
    let longest = model.signature().pairs().map_or(0, |(source, target)| source.longest.min(target.longest));
    (longest * 16 / 17).saturating_sub(3).max(1)
}

impl<'w> TranslatorTest<'w> {
    /// Tests with pairs: the loss on all, translations of the first `sentences`. `tell` is called with how many are translated, of
    /// how many.
    pub fn run(
        &self,
        pairs: &[Pair],
        sentences: usize,
        tell: &mut dyn FnMut(usize, usize),
    ) -> Result<TranslatorScores, TrainError> {
        let (loss, tokens, left_out) = self.mean_loss(pairs)?;
        let pairs = &pairs[..sentences.min(pairs.len())];
        let translations = self.translate(pairs, tell)?;
        let references: Vec<&str> = pairs.iter().map(|pair| pair.target.as_str()).collect();
        let failed = |error: ScoreError| TrainError::Data(error.to_string());
        let bleu = bleu(&translations, &references).map_err(failed)?;
        let chrf = chrf(&translations, &references).map_err(failed)?;
        Ok(TranslatorScores { loss, tokens, left_out, translations, bleu, chrf })
    }

    /// The mean loss a token, over how many, and how many pairs were left out.
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
            .map_err(|error| TrainError::Data(format!("what is tested with: {error}")))?;
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

    /// The sum of the losses of batches of one shape, and their tokens. The executor of the shape before is used on, if it can be.
    fn loss_of(
        &self,
        shape: BatchShape,
        order: &EpochOrder,
        indices: &[usize],
        batches: &PairBatches,
        (executor, shared): (&mut Option<Executor>, &mut SharedWeights),
    ) -> Result<(f64, u64), TrainError> {
        let BatchShape { batch, source, target } = shape;
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let call = Call::whole(batch).tokens(source).target(target);
        let logits = self.model.build(&mut graph, &call)?.need("logits")?;
        let wanted = graph.input("wanted", [batch, target], DType::I32)?;
        let options = CrossEntropyOptions { ignored_index: Some(PADDING as i32), ..CrossEntropyOptions::default() };
        let loss = graph.cross_entropy(logits, wanted, options)?;
        let plan = self.device.plan_with_fixed_weights(&graph, &[loss])?;
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
        for &index in indices {
            let batch = batches.batch(order, index)?;
            for array in &batch.arrays {
                executor.input_i32(array.name)?.copy_from_slice(batch.i32(array.name).unwrap_or_default());
            }
            executor.infer()?;
            sum += f64::from(executor.number(loss)?) * batch.units as f64;
            tokens += batch.units as u64;
        }
        Ok((sum, tokens))
    }

    /// The translations of the sources of some pairs.
    fn translate(&self, pairs: &[Pair], tell: &mut dyn FnMut(usize, usize)) -> Result<Vec<String>, TrainError> {
        let options = translate_options(self.search, self.precision);
        let mut translator = Translator::new(self.model, SPECIAL, options, self.device, Box::new(self.weights))?;
        let mut translations = Vec::new();
        for some in pairs.chunks(SENTENCES_AT_ONCE) {
            let sources: Result<Vec<Vec<u32>>, _> =
                some.iter().map(|pair| self.tokenisers.source.encode(&pair.source)).collect();
            for hypotheses in translator.translate(&sources?)? {
                let tokens = hypotheses.first().map_or(&[][..], |best| &best.tokens);
                translations.push(one_line(&self.tokenisers.target.decode(tokens)?));
            }
            tell(translations.len(), pairs.len());
        }
        Ok(translations)
    }
}

/// A translation as a line: a model may write any byte, a line break too. Scores are of lines, so that who reads them from a file finds
/// the same.
pub fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
