//! What an encoder of texts does inside with one text: who attends to whom, which tokens speak for its answer, and what each layer would
//! fill in.
//!
//! [`EncoderExplainer::read`] runs the model once on a text, with a tap on every layer. All that is asked of the [`TextPass`] then follows
//! from these taps, from gradients, or from the head with other vectors in front of it. The text is computed alone, without padding.

mod fillings;
mod integrated;
mod quadrature;
mod target;

use std::mem::Discriminant;

use vitreous_engine::{Device, Graph, State, Value};
use vitreous_models::encode::TextTokens;
use vitreous_models::{Call, Model, POOLED, Pooling, Signature, TokenInput, pool};

use crate::backward::{Backward, SEED};
use crate::error::ExplainError;
use crate::forward::Forward;
use crate::heads::Heads;
use crate::inputs::InputValues::{self, Floats, Integers};
use crate::relevance::through_layers;
use crate::settings::{Choice, Structure};
use crate::taps::{Tap, layer_outputs};
use crate::text::{AttentionKeeper, TextAttention};
use crate::tokens::check_tokens;

pub use fillings::LayerFillings;
use integrated::PathPass;
pub(crate) use integrated::WordLookup;
pub use integrated::{Attributions, Steps};
pub use quadrature::gauss_legendre;
use target::DIRECTION;
pub use target::Target;

/// How texts are explained.
#[derive(Clone, Debug)]
pub struct EncoderSettings {
    /// Whose attention weights are kept.
    pub choice: Choice,
    /// How tokens become the text's vector.
    pub pooling: Pooling,
    /// Points of the integral of integrated gradients.
    pub steps: Steps,
    /// Threads for what is done on the processor, whatever the model runs on, at least 1. They change no bit.
    pub threads: usize,
    /// Bytes of attention weights that are held at once, besides those that are kept.
    pub memory: usize,
}

impl EncoderSettings {
    /// Everything of attention, the mean of all tokens, as many steps as are needed.
    pub fn usual(model: Structure, threads: usize) -> EncoderSettings {
        let (choice, pooling, steps) = (Choice::all(model), Pooling::Mean, Steps::AsNeeded);
        EncoderSettings { choice, pooling, steps, threads, memory: 256 << 20 }
    }
}

/// An encoder made ready to be explained, one text after the other. It computes in f32.
pub struct EncoderExplainer<'m> {
    model: &'m Model,
    device: Device,
    settings: EncoderSettings,
    signature: Signature,
    input: TokenInput,
    words: WordLookup,
    /// Made when it is first needed: the model's weights once more.
    state: Option<State>,
}

impl<'m> EncoderExplainer<'m> {
    /// Refuses models that take no texts, and settings that are not for this model.
    pub fn new(model: &'m Model, settings: EncoderSettings, device: &Device) -> Result<Self, ExplainError> {
        let signature = model.architecture.signature();
        let input = signature.tokens().ok_or(ExplainError::NoTexts { what: signature.what() })?;
        let structure = Structure::of(model.architecture.as_ref())?;
        let Choice { layers, heads } = &settings.choice;
        let choice = Choice::of(structure, Some(layers), Some(heads))?;
        let settings = EncoderSettings { choice, threads: settings.threads.max(1), ..settings };
        let mut graph = Graph::for_inference();
        model.architecture.plain().build(&mut graph, &Call::whole(1))?;
        let words = WordLookup::of(&graph)?;
        Ok(EncoderExplainer { model, device: device.clone(), settings, signature, input, words, state: None })
    }

    /// Runs the model on a text.
    pub fn read(&mut self, text: TextTokens) -> Result<TextPass<'_, 'm>, ExplainError> {
        if text.ids.is_empty() {
            return Err(ExplainError::NoTokens);
        }
        check_tokens("text", text.ids, self.input)?;
        let tokens = text.ids.len();
        let mut graph = Graph::for_inference();
        let built = self.model.architecture.build(&mut graph, &Call::whole(1).tokens(tokens))?;
        let taps = Tap::all(&graph)?;
        let is_masked = self.signature.masked_tokens().is_some();
        // Of masked tokens, logits are those of the last layer's fillings: for all tokens at once they would take much memory.
        let logits = built.get("logits").filter(|_| !is_masked);
        let stream = if is_masked { layer_outputs(&graph)? } else { Vec::new() };
        let vectors = built.need("tokens")?;
        let lengths = graph.find("lengths")?;
        let vector = pool(&mut graph, self.settings.pooling, vectors, lengths)?;
        let outputs: Vec<Value> = [vectors, vector].into_iter().chain(logits).chain(stream.iter().copied()).collect();
        let mut forward = Forward::new(self.model, &graph, taps, &outputs, "explaining a text", &self.device)?;
        // A model has a layer at least, and all are alike.
        let heads = Heads::new(&forward.taps[0], tokens, self.settings.memory, &self.device)?;
        let types = if text.types.len() == tokens { text.types.to_vec() } else { vec![0; tokens] };
        let inputs = PreparedInputs::of_text(text.ids, &types, self.settings.pooling, 1);
        forward.run(&inputs.given())?;
        let (ids, values) = (text.ids.to_vec(), PassOutputs { logits, vector, vectors });
        Ok(TextPass { explainer: self, ids, types, forward, heads, values, stream, relevance: None, path: None })
    }

    /// The parameters that backward passes run with.
    fn state_for_gradients(&mut self) -> Result<&mut State, ExplainError> {
        match &mut self.state {
            Some(state) => Ok(state),
            none => {
                let mut graph = Graph::for_inference();
                self.model.architecture.plain().build(&mut graph, &Call::whole(1))?;
                Ok(none.insert(Backward::state(self.model, &graph, &self.device)?))
            }
        }
    }
}

/// A text that a model has read.
pub struct TextPass<'e, 'm> {
    explainer: &'e mut EncoderExplainer<'m>,
    ids: Vec<u32>,
    types: Vec<u32>,
    forward: Forward,
    heads: Heads,
    values: PassOutputs,
    /// The vectors before the first layer and after each, of models that fill in masked tokens.
    stream: Vec<Value>,
    /// The backward pass of the last kind of target.
    relevance: Option<(Discriminant<Target>, Backward)>,
    /// The same for integrated gradients.
    path: Option<(Discriminant<Target>, PathPass)>,
}

/// What is asked of the model.
struct PassOutputs {
    logits: Option<Value>,
    vector: Value,
    vectors: Value,
}

impl TextPass<'_, '_> {
    fn len(&self) -> usize {
        self.ids.len()
    }

    /// The logits of a head for classes, labels, numbers, tokens or spans.
    pub fn logits(&self) -> Result<Option<Vec<f32>>, ExplainError> {
        self.values.logits.map(|logits| self.forward.output(logits)).transpose()
    }

    /// The text's vector, pooled from its tokens.
    pub fn vector(&self) -> Result<Vec<f32>, ExplainError> {
        self.forward.output(self.values.vector)
    }

    /// The attention weights of the chosen layers and heads.
    pub fn attention(&mut self) -> Result<Vec<TextAttention>, ExplainError> {
        let one_head = self.len().pow(2);
        let Choice { layers, heads: chosen } = &self.explainer.settings.choice;
        let mut kept = Vec::with_capacity(layers.len());
        for &layer in layers {
            let mut keeper = AttentionKeeper::new(layer, chosen, one_head);
            self.heads.of_layer(&self.forward, layer, |heads, weights| {
                keeper.add(heads, weights);
                Ok(())
            })?;
            kept.push(keeper.finish());
        }
        Ok(kept)
    }

    /// How much each token speaks for a number, by attention weighted with its gradient; never negative. See `relevance.rs`. The number's own
    /// token has the identity's share of `R` left out: it is what reaches the number through attention.
    pub fn relevance(&mut self, target: &Target) -> Result<Vec<f32>, ExplainError> {
        target.check(&self.explainer.signature, self.len())?;
        let backward = match self.relevance.take() {
            Some((kind, backward)) if kind == std::mem::discriminant(target) => backward,
            _ => self.backward_pass(target)?,
        };
        let inputs = PreparedInputs::new(self, target, 1);
        let vectors = self.forward.output(self.values.vectors)?;
        let settings = &self.explainer.settings;
        let (pooling, threads) = (settings.pooling, settings.threads);
        let reading = target.reading(pooling, &vectors, self.len());
        let (_, backward) = self.relevance.insert((std::mem::discriminant(target), backward));
        backward.run(self.explainer.state_for_gradients()?, &inputs.given())?;
        let row = through_layers(reading.clone(), &self.forward, backward, &mut self.heads, threads)?;
        Ok(row.iter().zip(&reading).map(|(row, own)| (row - own) as f32).collect())
    }

    /// Gradients with respect to the output of every layer's attention.
    fn backward_pass(&self, target: &Target) -> Result<Backward, ExplainError> {
        let masked = usize::from(target.is_masked(&self.explainer.signature));
        let mut graph = Graph::for_inference();
        let call = Call::whole(1).tokens(self.len()).masked(masked);
        let built = self.explainer.model.architecture.build(&mut graph, &call)?;
        let outputs: Vec<Value> = Tap::all(&graph)?.iter().map(|tap| tap.output).collect();
        let objective = target.objective(&mut graph, &built, self.explainer.settings.pooling)?;
        Backward::new(&mut graph, objective, &outputs, "relevance of tokens", &self.explainer.device)
    }

    /// What each token adds to a number, by integrated gradients from `baseline`, one token for each of the text.
    pub fn attributions(&mut self, target: &Target, baseline: &[u32]) -> Result<Attributions, ExplainError> {
        target.check(&self.explainer.signature, self.len())?;
        integrated::attributions(self, target, baseline)
    }

    /// What each layer would fill in for each token, the `count` most probable tokens: of models with a masked-token head alone.
    pub fn fillings(&self, count: usize) -> Result<Vec<LayerFillings>, ExplainError> {
        fillings::fillings(self, count)
    }
}

/// The inputs of a model for one text, repeated for a batch.
struct PreparedInputs {
    tokens: Vec<i32>,
    types: Vec<i32>,
    lengths: Vec<i32>,
    pooled: Option<Vec<i32>>,
    masked: Vec<i32>,
    seed: Vec<f32>,
    direction: Vec<f32>,
}

impl PreparedInputs {
    fn of_text(ids: &[u32], types: &[u32], pooling: Pooling, batch: usize) -> PreparedInputs {
        let repeated = |numbers: &[u32]| -> Vec<i32> {
            (0..batch).flat_map(|_| numbers.iter().map(|&number| number as i32)).collect()
        };
        PreparedInputs {
            tokens: repeated(ids),
            types: repeated(types),
            lengths: vec![ids.len() as i32; batch],
            pooled: pooling.indices(&vec![ids.len(); batch], ids.len()),
            masked: Vec::new(),
            seed: Vec::new(),
            direction: Vec::new(),
        }
    }

    /// Those of a backward pass for a target.
    fn new(pass: &TextPass, target: &Target, batch: usize) -> PreparedInputs {
        let (explainer, tokens) = (&pass.explainer, pass.len());
        let mut inputs = PreparedInputs::of_text(&pass.ids, &pass.types, explainer.settings.pooling, batch);
        if let (Target::OfToken { token, .. }, true) = (target, target.is_masked(&explainer.signature)) {
            inputs.masked = (0..batch).map(|sample| (sample * tokens + token) as i32).collect();
        }
        inputs.seed = target.seed(&explainer.signature, [batch, tokens]);
        inputs.direction = target.direction();
        inputs
    }

    fn given(&self) -> Vec<(&'static str, InputValues<'_>)> {
        let mut given = vec![
            ("tokens", Integers(&self.tokens)),
            ("token_types", Integers(&self.types)),
            ("lengths", Integers(&self.lengths)),
            ("masked", Integers(&self.masked)),
            (SEED, Floats(&self.seed)),
            (DIRECTION, Floats(&self.direction)),
        ];
        given.extend(self.pooled.as_ref().map(|pooled| (POOLED, Integers(pooled))));
        given
    }
}
