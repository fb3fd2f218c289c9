//! What a stack of layers does with one input: what every layer would say, what each part adds to an output, and what happens without it.
//!
//! It works with every family whose layers are called `blocks.N` (see [`vitreous_engine::Intervention`]): language models, Vision Transformers,
//! encoders of texts. [`Inside::read`] runs a model once and keeps what every layer writes. The rest follows from these values, or from runs that
//! begin in the middle of the model: those compute the layers behind an edited value and nothing before it.

mod attribution;
mod effects;
mod lens;
mod nearest;
mod runs;
mod scores;
mod values;

use vitreous_engine::{Device, Executor, Graph, Intervention, Value};
use vitreous_models::{Call, Model, OnDevice, Outputs};

use crate::error::ExplainError;
use crate::inputs::{InputValues, fill};

pub use attribution::{Attribution, LayerParts};
pub(crate) use effects::of_logits;
pub use effects::{HeadEffects, PatchEffects};
pub use lens::{Reading, Said};
pub use nearest::NearestTokens;
pub use scores::{HeadScores, HeadSums, REPEATED_TOKENS, head_scores, repeated_tokens};
pub use values::value_of;

/// What a model is given.
#[derive(Clone, Debug)]
pub enum Given {
    /// Tokens, of a model of texts.
    Tokens(Vec<u32>),
    /// An image as the model takes it.
    Image(Vec<f32>),
}

/// A model with one input, and what its layers made of it.
pub struct Inside<'m> {
    model: &'m Model,
    /// Edits besides those of the model itself.
    edits: Vec<Intervention>,
    source: OnDevice<'m>,
    given: Given,
    /// Layers, and heads of each.
    layers: usize,
    heads: usize,
    /// Tokens, and numbers of a token.
    tokens: usize,
    dim: usize,
    /// The stream before the first layer, then after each: `[tokens, dim]`.
    streams: Vec<Vec<f32>>,
    /// Of each layer: what its heads give side by side, `[tokens, heads · head_dim]`.
    mixed: Vec<Vec<f32>>,
    /// What its attention and its MLP add to the stream: `[tokens, dim]`.
    attention: Vec<Vec<f32>>,
    mlp: Vec<Vec<f32>>,
}

/// The path of the stream before the first layer, or after one.
pub(crate) fn stream_path(place: usize) -> String {
    place.checked_sub(1).map_or("embedding".to_string(), |layer| format!("blocks.{layer}"))
}

fn part_path(layer: usize, part: &str) -> String {
    format!("blocks.{layer}.{part}")
}

/// The layers of a graph that are called `blocks.N`.
pub(crate) fn layer_count(graph: &Graph) -> usize {
    (0..).take_while(|layer| graph.find(&format!("blocks.{layer}")).is_ok()).count()
}

impl<'m> Inside<'m> {
    /// Runs a model on an input. It computes in f32.
    pub fn read(model: &'m Model, given: Given, device: &Device) -> Result<Inside<'m>, ExplainError> {
        let source = OnDevice::new(device, Box::new(model));
        Inside::read_on(model, Vec::new(), given, source).map_err(|failed| failed.0)
    }

    /// The same with edits, and with weights that are on the device already: they come back with an error, or by [`Inside::into_source`].
    pub fn read_on(
        model: &'m Model,
        edits: Vec<Intervention>,
        given: Given,
        mut source: OnDevice<'m>,
    ) -> Result<Inside<'m>, Box<(ExplainError, OnDevice<'m>)>> {
        match FirstRun::of(model, &edits, &given, &mut source) {
            Ok(FirstRun { layers, heads, tokens, dim, values: [streams, mixed, attention, mlp] }) => {
                Ok(Inside { model, edits, source, given, layers, heads, tokens, dim, streams, mixed, attention, mlp })
            }
            Err(error) => Err(Box::new((error, source))),
        }
    }

    /// The weights on the device.
    pub fn into_source(self) -> OnDevice<'m> {
        self.source
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Heads of every layer.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Tokens, those that stand for no patch or word included.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The stream before the first layer (place 0) or after layer `place - 1`: `[tokens, dim]`.
    pub fn stream(&self, place: usize) -> &[f32] {
        &self.streams[place]
    }

    /// The model for a batch, with interventions.
    fn build(&self, graph: &mut Graph, batch: usize, edits: &[Intervention]) -> Result<Outputs, ExplainError> {
        let tokens = if let Given::Tokens(tokens) = &self.given { tokens.len() } else { 1 };
        let call = Call::whole(batch).tokens(tokens);
        self.build_call(graph, &call, edits)
    }

    /// The model for a call, with interventions behind its own edits.
    fn build_call(&self, graph: &mut Graph, call: &Call, edits: &[Intervention]) -> Result<Outputs, ExplainError> {
        build_edited(self.model, graph, call, &self.edits, edits)
    }

    /// The logits that are looked at, `[batch, outputs]`: of a model that has some for every token, those of one token.
    fn logits(&self, graph: &mut Graph, built: &Outputs, token: usize) -> Result<Value, ExplainError> {
        let logits = built.need("logits")?;
        let &[batch, tokens, outputs] = graph.shape_of(logits).axes() else { return Ok(logits) };
        if token >= tokens {
            return Err(ExplainError::NotThere { what: "token", asked: token, count: tokens });
        }
        let row = graph.slice(logits, 1, token, token + 1)?;
        Ok(graph.reshape(row, [batch, outputs])?)
    }
}

/// A model with its own edits, and behind them others.
fn build_edited(
    model: &Model,
    graph: &mut Graph,
    call: &Call,
    own: &[Intervention],
    others: &[Intervention],
) -> Result<Outputs, ExplainError> {
    let build = |graph: &mut Graph| graph.with_interventions(own, |graph| model.architecture.build(graph, call));
    Ok(graph.with_interventions(others, build)?)
}

/// What the first run of a model gives.
struct FirstRun {
    layers: usize,
    heads: usize,
    tokens: usize,
    dim: usize,
    /// Streams, heads, attention and MLPs.
    values: [Vec<Vec<f32>>; 4],
}

impl FirstRun {
    fn of(
        model: &Model,
        edits: &[Intervention],
        given: &Given,
        source: &mut OnDevice,
    ) -> Result<FirstRun, ExplainError> {
        let tokens = match given {
            Given::Tokens(tokens) if tokens.is_empty() => return Err(ExplainError::NoTokens),
            Given::Tokens(tokens) => tokens.len(),
            Given::Image(_) => 1,
        };
        let mut graph = Graph::for_inference();
        build_edited(model, &mut graph, &Call::whole(1).tokens(tokens), edits, &[])?;
        let layers = layer_count(&graph);
        if layers == 0 {
            return Err(ExplainError::NoLayers { what: model.architecture.signature().what() });
        }
        let of_layers = |part: &str| -> vitreous_engine::Result<Vec<Value>> {
            (0..layers).map(|layer| graph.find(&part_path(layer, part))).collect()
        };
        let streams: Vec<Value> =
            (0..=layers).map(|place| graph.find(&stream_path(place))).collect::<vitreous_engine::Result<_>>()?;
        let wanted = [streams, of_layers("attention.heads")?, of_layers("attention")?, of_layers("mlp")?];
        let heads = crate::taps::Tap::all(&graph)?.first().map_or(1, |tap| tap.op.heads);
        let (shape, dim) = (graph.shape_of(wanted[0][0]).axes().to_vec(), graph.shape_of(wanted[0][0]).columns());
        let plan = source.plan(&mut graph, &wanted.concat())?;
        let mut executor = source.executor("looking inside a model", None, plan)?;
        fill_given(&mut executor, given, 1)?;
        executor.infer()?;
        let mut values: [Vec<Vec<f32>>; 4] = Default::default();
        for (values, wanted) in values.iter_mut().zip(&wanted) {
            *values = wanted.iter().map(|&value| executor.output(value)).collect::<vitreous_engine::Result<_>>()?;
        }
        Ok(FirstRun { layers, heads, tokens: shape.get(1).copied().unwrap_or(1), dim, values })
    }
}

/// Gives the input to every sample of a batch.
fn fill_given(executor: &mut Executor, given: &Given, batch: usize) -> Result<(), ExplainError> {
    match given {
        Given::Image(pixels) => {
            let pixels: Vec<f32> = (0..batch).flat_map(|_| pixels).copied().collect();
            fill(executor, &[("images", InputValues::Floats(&pixels))])
        }
        Given::Tokens(ids) => {
            let tokens: Vec<i32> = (0..batch).flat_map(|_| ids).map(|&id| id as i32).collect();
            let (types, lengths) = (vec![0; tokens.len()], vec![ids.len() as i32; batch]);
            let inputs = [("tokens", &tokens), ("token_types", &types), ("lengths", &lengths)];
            fill(executor, &inputs.map(|(name, numbers)| (name, InputValues::Integers(numbers))))
        }
    }
}
