//! How probable a language model finds given tokens: for perplexity, for choosing the likeliest of several answers, and for validation
//! while training.
//!
//! Only the positions that are scored get logits, a portion of them at a time: the logits of a whole batch would need far more memory
//! than the model itself where vocabularies are large.

mod windows;

use std::time::{Duration, Instant};

use vitreous_engine::ops::Op;
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Error, Executor, Graph, Mode, Plan, Precision, Result, Value,
};

use crate::call::{Call, Outputs};
use crate::encode::batches::{Shape, TextBatch, batches};
use crate::encode::fill_rows;
use crate::family::Architecture;
use crate::generate::{TokenLogprob, likeliest};
use crate::on_device::{OnDevice, Weights};
use crate::signature::TokenInput;
pub use windows::{Window, windows};

/// The most bytes of logits at a time.
const MOST_LOGITS: usize = 64 << 20;
/// Executors that are kept on a GPU, where making one takes longer than running it.
const MOST_KEPT: usize = 24;

/// Tokens, of which the last are scored.
#[derive(Clone, Copy, Debug)]
pub struct ScoredTokens<'t> {
    /// The tokens.
    pub ids: &'t [u32],
    /// The first one that is scored: at least 1, since the first of all has nothing before it.
    pub from: usize,
}

/// A language model made ready to score tokens.
pub struct TokenScorer<'m> {
    architecture: &'m dyn Architecture,
    input: TokenInput,
    vocabulary: usize,
    precision: Precision,
    /// Positions whose logits are computed at a time.
    at_once: usize,
    /// How many of the likeliest tokens are told for each position.
    top: usize,
    source: OnDevice<'m>,
    kept: Vec<Ready>,
    /// Time spent computing.
    pub computing: Duration,
}

struct Ready {
    shape: Shape,
    rows: usize,
    executor: Executor,
    portions: Vec<Portion>,
}

/// Scored positions whose logits are computed at a time.
#[derive(Clone, Copy, Debug)]
struct Portion {
    rows: usize,
    /// log Σ e^logit of each: `[rows]`.
    log_sums: Value,
    /// The logits of the tokens that are there: `[rows, 1]`.
    targets: Value,
    /// All logits, where the likeliest tokens are told: `[rows, vocabulary]`.
    logits: Option<Value>,
}

/// A position that was scored.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The natural logarithm of the probability of the token that is there.
    pub logprob: f64,
    /// The likeliest tokens there, if they were asked for.
    pub top: Vec<TokenLogprob>,
}

/// A scored position of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Where the token before it is in the batch.
    row: usize,
    /// The token that is there.
    token: u32,
}

impl<'m> TokenScorer<'m> {
    /// Makes a model ready on a device.
    pub fn new(
        architecture: &'m dyn Architecture,
        precision: Precision,
        device: &Device,
        weights: Weights<'m>,
    ) -> Result<TokenScorer<'m>> {
        let signature = architecture.signature();
        let (input, vocabulary) = signature.language()?;
        let source = OnDevice::new(device, weights);
        Ok(TokenScorer {
            architecture,
            input,
            vocabulary,
            precision,
            at_once: (MOST_LOGITS / (4 * vocabulary.max(1))).max(16),
            top: 0,
            source,
            kept: Vec::new(),
            computing: Duration::ZERO,
        })
    }

    /// Has the `count` likeliest tokens of each position told, too. The logits of a whole batch are then there at once.
    pub fn tell_top(&mut self, count: usize) {
        if (count > 0) != (self.top > 0) {
            self.kept.clear();
        }
        self.top = count;
    }

    /// The most tokens that it is given at once; one more can be scored behind them.
    pub fn longest(&self) -> usize {
        self.input.longest
    }

    /// Scores texts. `answer` is told the index of a text and the score of each scored token, in the order of the batches, not of the
    /// texts.
    pub fn run<E: From<Error>>(
        &mut self,
        texts: &[ScoredTokens],
        mut answer: impl FnMut(usize, &[TokenScore]) -> Result<(), E>,
    ) -> Result<(), E> {
        for text in texts {
            self.check(text)?;
        }
        // The last token of a text is scored, but nothing behind it.
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len() - 1).collect();
        for batch in batches(&lengths, self.input.longest, self.source.device().is_gpu()) {
            let start = Instant::now();
            self.run_batch(&batch, texts, &mut answer)?;
            self.computing += start.elapsed();
        }
        Ok(())
    }

    fn check(&self, text: &ScoredTokens) -> Result<()> {
        let (tokens, longest) = (text.ids.len(), self.input.longest);
        if text.from == 0 || text.from >= tokens {
            return Err(Error::Machine(format!("token {} of {tokens} cannot be the first that is scored", text.from)));
        }
        if tokens - 1 > longest {
            return Err(Error::Machine(format!("a text has {} tokens, but the model reads {longest}", tokens - 1)));
        }
        match text.ids.iter().find(|id| **id as usize >= self.vocabulary) {
            Some(id) => Err(Error::Machine(format!("token {id} is not in the vocabulary of {}", self.vocabulary))),
            None => Ok(()),
        }
    }

    fn run_batch<E: From<Error>>(
        &mut self,
        TextBatch { shape, texts: chosen }: &TextBatch,
        texts: &[ScoredTokens],
        answer: &mut impl FnMut(usize, &[TokenScore]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (vocabulary, top) = (self.vocabulary, self.top);
        let mut positions: Vec<Position> = Vec::new();
        for (index, &text) in chosen.iter().enumerate() {
            let ScoredTokens { ids, from } = texts[text];
            let of_text = (from..ids.len()).map(|at| Position { row: index * shape.length + at - 1, token: ids[at] });
            positions.extend(of_text);
        }
        // On a GPU a few sizes: the rest of the rows are computed for nothing.
        let rows = if self.source.device().is_gpu() { positions.len().next_power_of_two() } else { positions.len() };
        positions.resize(rows, Position::default());
        let ready = self.make_ready(*shape, rows)?;
        let executor = &mut ready.executor;
        let inputs = chosen.iter().map(|&text| &texts[text].ids[..texts[text].ids.len() - 1]);
        fill_rows(executor.input_i32("tokens")?, shape.length, 0, inputs);
        // A row without a text has one token, so that attention has one to go to.
        let lengths = executor.input_i32("lengths")?;
        lengths.fill(1);
        lengths.iter_mut().zip(chosen).for_each(|(to, &text)| *to = (texts[text].ids.len() - 1) as i32);
        let mut rest = &positions[..];
        for (number, portion) in ready.portions.iter().enumerate() {
            let (some, others) = rest.split_at(portion.rows);
            let mut fill = |name: &str, value: &dyn Fn(usize, &Position) -> usize| -> Result<()> {
                let to = executor.input_i32(&input_name(name, number))?;
                to.iter_mut().zip(some).enumerate().for_each(|(index, (to, at))| *to = value(index, at) as i32);
                Ok(())
            };
            fill(ROWS, &|_, at| at.row)?;
            fill(TARGETS, &|_, at| at.token as usize)?;
            fill(PLACES, &|index, at| index * vocabulary + at.token as usize)?;
            rest = others;
        }
        executor.infer()?;
        executor.finish()?;
        let mut scores: Vec<TokenScore> = Vec::with_capacity(rows);
        for portion in &ready.portions {
            let log_sums = executor.output_slice(portion.log_sums)?.to_vec();
            let targets = executor.output_slice(portion.targets)?;
            let logprob = |(&logit, &sum): (&f32, &f32)| f64::from(logit) - f64::from(sum);
            let first = scores.len();
            scores.extend(
                targets.iter().zip(&log_sums).map(|pair| TokenScore { logprob: logprob(pair), top: Vec::new() }),
            );
            let Some(logits) = portion.logits else { continue };
            let rows = executor.output_slice(logits)?.chunks_exact(vocabulary);
            for ((score, row), &sum) in scores[first..].iter_mut().zip(rows).zip(&log_sums) {
                score.top = likeliest(row, f64::from(sum), top);
            }
        }
        let mut rest = &scores[..];
        for &text in chosen {
            let (own, others) = rest.split_at(texts[text].ids.len() - texts[text].from);
            answer(text, own)?;
            rest = others;
        }
        Ok(())
    }

    /// What is ready for a shape.
    fn make_ready(&mut self, shape: Shape, rows: usize) -> Result<&mut Ready> {
        let on_gpu = self.source.device().is_gpu();
        if let Some(there) = self.kept.iter().position(|ready| ready.shape == shape && ready.rows == rows) {
            let ready = self.kept.remove(there);
            self.kept.push(ready);
        } else {
            let (plan, portions) = self.plan(shape, rows)?;
            let there = if on_gpu { None } else { self.kept.pop().map(|ready| ready.executor) };
            if self.kept.len() == MOST_KEPT {
                self.kept.remove(0);
            }
            let executor = self.source.executor("scoring texts", there, plan)?;
            self.kept.push(Ready { shape, rows, executor, portions });
        }
        self.kept.last_mut().ok_or_else(|| Error::Machine("no executor was made".to_string()))
    }

    fn plan(&self, shape: Shape, rows: usize) -> Result<(Plan, Vec<Portion>)> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let built = self.architecture.build(&mut graph, &Call::whole(shape.batch).tokens(shape.length))?;
        let portions = portions(&mut graph, &built, rows, self.at_once, self.top > 0)?;
        let of = |portion: &Portion| [Some(portion.log_sums), Some(portion.targets), portion.logits];
        let outputs: Vec<Value> = portions.iter().flat_map(of).flatten().collect();
        Ok((self.source.plan(&mut graph, &outputs)?, portions))
    }
}

/// Inputs of a portion: the rows of the batch that are scored, the tokens behind them, and where in the logits these are.
const ROWS: &str = "scored_rows";
const TARGETS: &str = "scored_tokens";
const PLACES: &str = "scored_places";

fn input_name(name: &str, portion: usize) -> String {
    format!("{name}.{portion}")
}

/// The scores of `rows` positions, with logits for at most `at_once` of them at a time in place of the logits that were built, which
/// nothing needs then.
fn portions(
    graph: &mut Graph,
    built: &Outputs,
    rows: usize,
    at_once: usize,
    tells_logits: bool,
) -> Result<Vec<Portion>> {
    let (hidden, logits) = (built.need("tokens")?, built.need("logits")?);
    let head = graph.node(logits);
    let (Op::Linear(_), Some(&matrix)) = (&head.op, head.inputs.get(1)) else {
        return Err(Error::Machine("the logits of this model do not come from a linear layer".to_string()));
    };
    let (dim, vocabulary) = (graph.shape_of(hidden).columns(), graph.shape_of(logits).columns());
    let hidden = graph.reshape(hidden, [graph.shape_of(hidden).rows(), dim])?;
    let mut portions = Vec::new();
    for begin in (0..rows).step_by(at_once) {
        let rows = at_once.min(rows - begin);
        let mut input = |name: &str| graph.input(&input_name(name, portions.len()), [rows], DType::I32);
        let (chosen, tokens, places) = (input(ROWS)?, input(TARGETS)?, input(PLACES)?);
        let chosen = graph.embedding(hidden, chosen)?; // [rows, dim]
        let logits = graph.linear(chosen, matrix, None)?; // [rows, vocabulary]
        let (_, log_sums) = graph.cross_entropy_and_log_sums(logits, tokens, CrossEntropyOptions::default())?;
        let told = tells_logits.then(|| graph.cast(logits, DType::F32)).transpose()?;
        let logits = graph.reshape(logits, [rows * vocabulary, 1])?;
        let targets = graph.embedding(logits, places)?;
        let targets = graph.cast(targets, DType::F32)?; // [rows, 1]
        portions.push(Portion { rows, log_sums, targets, logits: told });
    }
    Ok(portions)
}

#[cfg(test)]
mod tests;
