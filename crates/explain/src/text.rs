//! What a Transformer of encoder and decoder does inside with a sentence and its translation: who looks at whom, and how sure it is.
//!
//! One run with teacher forcing, with a tap on every attention. A row of weights belongs to what is computed there: in the encoder
//! to a token that is read, in the decoder to the token that is written next. So a decoder's row `t` writes `written[t]`, and has
//! `read[..=t]` before it.

mod alignment;
mod attention;
mod words;

use vitreous_engine::{Device, Executor, Graph, Mode, Op, Parameter, Precision, Value};
use vitreous_models::generate::{SpecialTokens, Weights};
use vitreous_models::{Architecture, Call};

use crate::error::ExplainError;
use crate::tokens::check_tokens;

pub use alignment::{Link, align, usual_layer};
pub(crate) use attention::AttentionKeeper;
pub use attention::TextAttention;
pub use words::by_words;

/// The layers and heads whose weights are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextChoice {
    /// Layers of the encoder, from 0, each once, the first first.
    pub encoder_layers: Vec<usize>,
    /// Layers of the decoder.
    pub decoder_layers: Vec<usize>,
    /// Heads, the same ones of every layer.
    pub heads: Vec<usize>,
}

/// What of a model of pairs can be chosen from, read off its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStructure {
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder.
    pub decoder_layers: usize,
    /// Heads of each.
    pub heads: usize,
}

impl TextStructure {
    /// That of a model.
    pub fn of(model: &dyn Architecture) -> Result<TextStructure, ExplainError> {
        let mut graph = Graph::for_inference();
        model.plain().build(&mut graph, &Call::whole(1))?;
        // Where the sides have different numbers of heads, those that both have can be chosen.
        let heads = graph.nodes().iter().filter_map(|node| match &node.op {
            Op::Attention(attention) => Some(attention.heads),
            _ => None,
        });
        let heads = heads.min();
        let taps = taps(&mut graph)?;
        let count = |stack: Stack| taps.iter().filter(|tap| tap.stack == stack).count();
        Ok(TextStructure {
            encoder_layers: count(Stack::Encoder),
            decoder_layers: count(Stack::Decoder),
            heads: heads.unwrap_or(0),
        })
    }
}

impl TextChoice {
    /// All of a model's.
    pub fn all(model: TextStructure) -> TextChoice {
        TextChoice {
            encoder_layers: (0..model.encoder_layers).collect(),
            decoder_layers: (0..model.decoder_layers).collect(),
            heads: (0..model.heads).collect(),
        }
    }

    /// Refuses what the model has not, and says what it has.
    pub fn check(&self, model: TextStructure) -> Result<(), ExplainError> {
        let parts = [
            ("layer of the encoder", &self.encoder_layers, model.encoder_layers),
            ("layer of the decoder", &self.decoder_layers, model.decoder_layers),
            ("head", &self.heads, model.heads),
        ];
        for (what, numbers, count) in parts {
            if let Some(&asked) = numbers.iter().find(|&&number| number >= count) {
                return Err(ExplainError::NotThere { what, asked, count });
            }
        }
        Ok(())
    }
}

/// What the model makes of a sentence and its translation.
#[derive(Clone, Debug, PartialEq)]
pub struct TextExplanation {
    /// What the encoder reads: the source and its end.
    pub source: Vec<u32>,
    /// What the decoder reads: the start and the target.
    pub read: Vec<u32>,
    /// What it is asked to write: the target and its end.
    pub written: Vec<u32>,
    /// How likely each of these was to the model, with all before it given.
    pub probabilities: Vec<f32>,
    /// The most probable token at each position, and its probability.
    pub likeliest: Vec<(u32, f32)>,
    /// Attention of the source to itself, a kept layer each: `[heads, source, source]`.
    pub encoder: Vec<TextAttention>,
    /// Attention of the target to what was written before, a kept layer each: `[heads, written, read]`. What is ahead has exactly 0.
    pub decoder: Vec<TextAttention>,
    /// Attention of the target to the source, a kept layer each: `[heads, written, source]`.
    pub cross: Vec<TextAttention>,
    /// Attention of the target to the source, the mean over all heads, of all layers of the decoder: `[written, source]`.
    pub cross_means: Vec<Vec<f32>>,
}

/// Takes a source and a target, both without start and end, through a model on a device. It computes in f32.
pub fn explain_text(
    model: &dyn Architecture,
    weights: &Weights,
    special: SpecialTokens,
    [source, target]: [&[u32]; 2],
    choice: &TextChoice,
    device: &Device,
) -> Result<TextExplanation, ExplainError> {
    let source = source.iter().copied().chain([special.end]).collect();
    let written = target.iter().copied().chain([special.end]).collect();
    explain_tokens(model, weights, special.start, [source, written], choice, device)
}

/// As [`explain_text`], of a source and a target with all their special tokens, but for the start of the target.
pub fn explain_tokens(
    model: &dyn Architecture,
    weights: &Weights,
    start: u32,
    [source, written]: [Vec<u32>; 2],
    choice: &TextChoice,
    device: &Device,
) -> Result<TextExplanation, ExplainError> {
    let structure = TextStructure::of(model)?;
    choice.check(structure)?;
    let signature = model.signature();
    let (of_source, of_target) = signature.pairs().ok_or(ExplainError::NoPairs { what: signature.what() })?;
    let before = &written[..written.len().saturating_sub(1)];
    let read: Vec<u32> = [start].into_iter().chain(before.iter().copied()).collect();
    check_tokens("source", &source, of_source)?;
    check_tokens("target", &read, of_target)?;

    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    let call = Call::whole(1).tokens(source.len()).target(read.len());
    let logits = model.build(&mut graph, &call)?.need("logits")?;
    let probabilities = graph.softmax(logits)?;
    let taps = taps(&mut graph)?;
    let outputs: Vec<Value> = [probabilities].into_iter().chain(taps.iter().map(|tap| tap.weights)).collect();
    let plan = device.plan_with_fixed_weights(&graph, &outputs)?;
    device.check_memory("explaining a sentence", device.bytes_needed_with_weights(&plan))?;
    let lend = |parameter: &Parameter| weights.weight(&parameter.name);
    let mut executor = Executor::with_weights(plan, device, lend)?;
    for (name, tokens) in [("source", &source), ("target", &read), ("source_lengths", &vec![source.len() as u32])] {
        let numbers = executor.input_i32(name)?;
        numbers.iter_mut().zip(tokens).for_each(|(number, &token)| *number = token as i32);
    }
    executor.infer()?;

    let scores = executor.output_slice(probabilities)?;
    let rows = || scores.chunks_exact(of_target.vocabulary);
    let likeliest = |row: &[f32]| {
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
        (best as u32, row[best])
    };
    let mut explanation = TextExplanation {
        probabilities: rows().zip(&written).map(|(row, &token)| row[token as usize]).collect(),
        likeliest: rows().map(likeliest).collect(),
        source,
        read,
        written,
        encoder: Vec::new(),
        decoder: Vec::new(),
        cross: Vec::new(),
        cross_means: Vec::new(),
    };
    for tap in taps {
        explanation.take(&tap, executor.output_slice(tap.weights)?, choice);
    }
    Ok(explanation)
}

impl TextExplanation {
    /// Keeps what is chosen of one layer's weights.
    fn take(&mut self, tap: &Tap, weights: &[f32], choice: &TextChoice) {
        let heads = tap.heads;
        let mut keeper = AttentionKeeper::new(tap.layer, &choice.heads, weights.len() / heads);
        keeper.add(0..heads, weights);
        let attention = keeper.finish();
        let (layers, to) = match tap.stack {
            Stack::Encoder => (&choice.encoder_layers, &mut self.encoder),
            Stack::Decoder => (&choice.decoder_layers, &mut self.decoder),
            Stack::Cross => {
                self.cross_means.push(attention.mean.clone());
                (&choice.decoder_layers, &mut self.cross)
            }
        };
        if layers.contains(&tap.layer) {
            to.push(attention);
        }
    }
}

/// Whose attention, to whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    /// The source's, to itself.
    Encoder,
    /// The target's, to itself.
    Decoder,
    /// The target's, to the source.
    Cross,
}

/// Where the weights of a layer come out.
struct Tap {
    stack: Stack,
    layer: usize,
    heads: usize,
    /// `[1, heads, queries, keys]`.
    weights: Value,
}

/// Taps all attention of a graph, in its order, which is that of the layers.
fn taps(graph: &mut Graph) -> Result<Vec<Tap>, ExplainError> {
    let paths: Vec<String> =
        graph.nodes().iter().filter(|node| matches!(node.op, Op::Attention(_))).map(|node| node.path.clone()).collect();
    let mut taps: Vec<Tap> = Vec::new();
    for path in paths {
        // `encoder.3.attention.attention`, `decoder.3.cross_attention.attention`.
        let stack = match (path.starts_with("encoder."), path.contains(".cross_attention.")) {
            (true, _) => Stack::Encoder,
            (false, false) => Stack::Decoder,
            (false, true) => Stack::Cross,
        };
        let attention = graph.find(&path)?;
        let weights = graph.attention_weights(attention)?;
        let layer = taps.iter().filter(|tap| tap.stack == stack).count();
        let heads = graph.shape_of(weights).axes()[1];
        taps.push(Tap { stack, layer, heads, weights });
    }
    Ok(taps)
}
