//! Integrated gradients: how much each token's embedding adds to a number, on the way from a text that says nothing.
//!
//! After "Axiomatic Attribution for Deep Networks" (Sundararajan, Taly and Yan, 2017). With the word embeddings `x` of a text, those of a
//! baseline `b` (the same sequence, with padding in place of what the text says), and the number `f`,
//!
//! ```text
//! attribution of token t = Σ_d (x_td - b_td) ∫ ∂f/∂x_td (b + a (x - b)) da        a from 0 to 1
//! Σ_t attribution of t   = f(x) - f(b)                                              completeness
//! ```
//!
//! Positions and token types stay as they are on the whole way. The integral is a sum over a few points (`quadrature.rs`), so completeness
//! holds nearly: how nearly tells whether there were enough. MiniLM misses 0.01 % with 32 points; a model whose answer jumps on the way may
//! need hundreds.

use vitreous_engine::{DType, Graph, Op};
use vitreous_models::Call;

use super::quadrature::gauss_legendre;
use super::target::Target;
use super::{PreparedInputs, TextPass};
use crate::backward::Backward;
use crate::error::ExplainError;
use crate::inputs::InputValues::Floats;
use crate::tokens::check_tokens;

/// The input that stands in place of the embeddings of words.
const WORDS: &str = "word_embeddings";
/// So many tokens are computed together: enough to keep a machine busy, few enough that their activations fit into little memory.
const TOKENS_AT_ONCE: usize = 512;

/// The fewest points where as many are taken as are needed, and the most.
const FEWEST_STEPS: usize = 32;
const MOST_STEPS: usize = 512;
/// So many tokens are computed at most for one number, unless the fewest points take more: 512 points of 128 tokens.
const MOST_TOKENS: usize = 1 << 16;
/// The share of the difference that may be missed.
const ENOUGH: f64 = 0.01;

/// Points of the integral.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// So many, at least 1.
    Exactly(usize),
    /// 32, and twice as many while completeness is missed by more than a hundredth of the difference; at most 512, fewer for texts of
    /// more than 128 tokens.
    AsNeeded,
}

/// What each token adds to a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Attributions {
    /// One per token; they may be negative.
    pub tokens: Vec<f32>,
    /// The number for the text.
    pub value: f64,
    /// The number for the baseline.
    pub baseline: f64,
    /// Points of the integral.
    pub steps: usize,
}

impl Attributions {
    /// What all tokens add together.
    pub fn sum(&self) -> f64 {
        self.tokens.iter().map(|&token| f64::from(token)).sum()
    }

    /// By how much completeness is missed: `|Σ - (f(x) - f(b))|`.
    pub fn error(&self) -> f64 {
        (self.sum() - (self.value - self.baseline)).abs()
    }

    /// The same as a share of the difference; 0 where nothing is missed.
    pub fn error_share(&self) -> f64 {
        let (error, difference) = (self.error(), (self.value - self.baseline).abs());
        if error == 0.0 { 0.0 } else { error / difference }
    }
}

/// The op that looks up the embeddings of tokens.
#[derive(Clone, Debug)]
pub(crate) struct WordLookup {
    /// Its path.
    path: String,
    /// The table.
    pub parameter: String,
    /// Numbers of an embedding.
    pub width: usize,
}

impl WordLookup {
    /// The one that reads the input `tokens`.
    pub fn of(graph: &Graph) -> Result<WordLookup, ExplainError> {
        let tokens = graph.find("tokens")?;
        let reads = |node: &&vitreous_engine::Node| matches!(node.op, Op::Embedding(_)) && node.inputs[1] == tokens;
        let Some(node) = graph.nodes().iter().find(reads) else {
            let message = "the model's graph looks up no embeddings of tokens".to_string();
            return Err(vitreous_engine::Error::Machine(message).into());
        };
        let table = node.inputs[0];
        let width = graph.shape_of(table).columns();
        Ok(WordLookup { path: node.path.clone(), parameter: graph.path(table).to_string(), width })
    }
}

/// The passes of integrated gradients for one text and kind of target.
pub(super) struct PathPass {
    backward: Backward,
    batch: usize,
}

impl PathPass {
    fn new(pass: &TextPass, target: &Target, points: usize) -> Result<PathPass, ExplainError> {
        let (tokens, lookup) = (pass.len(), &pass.explainer.words);
        let model = &pass.explainer.model;
        let batch = (TOKENS_AT_ONCE / tokens).clamp(1, points);
        let masked = if target.is_masked(&pass.explainer.signature) { batch } else { 0 };
        let mut graph = Graph::for_inference();
        let words = graph.input(WORDS, [batch, tokens, lookup.width], DType::F32)?;
        let built = model.architecture.build(&mut graph, &Call::whole(batch).tokens(tokens).masked(masked))?;
        graph.replace(graph.find(&lookup.path)?, words)?;
        let objective = target.objective(&mut graph, &built, pass.explainer.settings.pooling)?;
        let device = &pass.explainer.device;
        let backward = Backward::new(&mut graph, objective, &[words], "integrated gradients", device)?;
        Ok(PathPass { backward, batch })
    }
}

/// The attributions of a text's tokens, with `baseline` tokens in their place at the beginning of the way.
pub(super) fn attributions(
    pass: &mut TextPass,
    target: &Target,
    baseline: &[u32],
) -> Result<Attributions, ExplainError> {
    let mut steps = match pass.explainer.settings.steps {
        Steps::Exactly(steps) => return with_steps(pass, target, baseline, steps.max(1)),
        Steps::AsNeeded => FEWEST_STEPS,
    };
    let most = (MOST_TOKENS / pass.len()).clamp(FEWEST_STEPS, MOST_STEPS);
    loop {
        let found = with_steps(pass, target, baseline, steps)?;
        // What is no number does not get better.
        let is_missed = found.error_share() > ENOUGH && found.error_share().is_finite();
        if !is_missed || 2 * steps > most {
            return Ok(found);
        }
        steps *= 2;
    }
}

fn with_steps(
    pass: &mut TextPass,
    target: &Target,
    baseline: &[u32],
    steps: usize,
) -> Result<Attributions, ExplainError> {
    let tokens = pass.len();
    if baseline.len() != tokens {
        return Err(ExplainError::Baseline { got: baseline.len(), expected: tokens });
    }
    check_tokens("text", baseline, pass.explainer.input)?;
    let (model, width) = (pass.explainer.model, pass.explainer.words.width);
    let table = model.parameter(&pass.explainer.words.parameter)?;
    let rows = |ids: &[u32]| -> Vec<f32> {
        ids.iter().flat_map(|&id| &table[id as usize * width..][..width]).copied().collect()
    };
    let (from, to) = (rows(baseline), rows(&pass.ids));
    // Both ends of the way are computed, too, and count nothing in the integral.
    let points: Vec<(f64, f64)> = [(0.0, 0.0), (1.0, 0.0)].into_iter().chain(gauss_legendre(steps)).collect();
    let mut path = match pass.path.take() {
        Some((kind, path)) if kind == std::mem::discriminant(target) => path,
        _ => PathPass::new(pass, target, points.len())?,
    };
    let inputs = PreparedInputs::new(pass, target, path.batch);
    let size = tokens * width;
    let mut words = vec![0.0; path.batch * size];
    let mut integral = vec![0.0f64; size];
    let mut values = Vec::with_capacity(points.len());
    for chunk in points.chunks(path.batch) {
        for (words, &(share, _)) in words.chunks_exact_mut(size).zip(chunk) {
            for ((word, &from), &to) in words.iter_mut().zip(&from).zip(&to) {
                *word = (f64::from(from) + share * (f64::from(to) - f64::from(from))) as f32;
            }
        }
        let given: Vec<_> = inputs.given().into_iter().chain([(WORDS, Floats(&words))]).collect();
        let state = pass.explainer.state_for_gradients()?;
        path.backward.run(state, &given)?;
        values.extend(path.backward.objectives(path.batch, &inputs.seed)?.into_iter().take(chunk.len()));
        for (gradient, &(_, weight)) in path.backward.gradient(0)?.chunks_exact(size).zip(chunk) {
            integral.iter_mut().zip(gradient).for_each(|(sum, &gradient)| *sum += weight * f64::from(gradient));
        }
    }
    let product = |at: usize| (f64::from(to[at]) - f64::from(from[at])) * integral[at];
    let tokens =
        (0..tokens).map(|token| (token * width..(token + 1) * width).map(product).sum::<f64>() as f32).collect();
    pass.path = Some((std::mem::discriminant(target), path));
    Ok(Attributions { tokens, value: values[1], baseline: values[0], steps })
}
