//! Where the decoder listens while it writes a given text.

use vitreous_engine::{DType, Device, Executor, Graph, Mode, Op, Parameter, Precision, Value, WeightView};
use vitreous_models::Call;

use super::model::SpeechModel;
use crate::error::Error;

/// Lengths of texts are rounded up to multiples of this, so that plans are used again.
const STEP: usize = 32;

/// Runs a window and its text through a model, with a tap on the decoder's attention to the audio.
pub struct Listening<'m> {
    model: &'m SpeechModel,
    device: Device,
    ready: Option<Ready>,
}

struct Ready {
    length: usize,
    executor: Executor,
    logits: Value,
    /// Of each decoder layer: `[1, heads, length, positions]`.
    weights: Vec<Value>,
}

/// What the decoder does with a text.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Attention of each decoder layer to the audio: `[heads, tokens, positions]`.
    pub weights: Vec<Vec<f32>>,
    /// Heads of a layer.
    pub heads: usize,
    /// Tokens of the text.
    pub tokens: usize,
    /// Positions of the audio.
    pub positions: usize,
    /// Logits behind each token: `[tokens, vocabulary]`.
    pub logits: Vec<f32>,
}

impl Heard {
    /// The attention of one head: `[tokens, positions]`, of the first `positions` positions only, and of those 1 in all.
    pub fn head(&self, (layer, head): (usize, usize), positions: usize) -> Vec<f32> {
        let rows = self.weights[layer][head * self.tokens * self.positions..][..self.tokens * self.positions]
            .chunks_exact(self.positions);
        rows.flat_map(|row| {
            let kept = &row[..positions.min(row.len())];
            let sum: f32 = kept.iter().sum::<f32>().max(f32::MIN_POSITIVE);
            kept.iter().map(move |weight| weight / sum)
        })
        .collect()
    }
}

impl<'m> Listening<'m> {
    /// Nothing is computed yet.
    pub fn new(model: &'m SpeechModel, device: &Device) -> Listening<'m> {
        Listening { model, device: device.clone(), ready: None }
    }

    /// Computes what the decoder does with a window and a text, in f32.
    pub fn hear(&mut self, window: &[f32], tokens: &[u32]) -> Result<Heard, Error> {
        let model = self.model;
        let length = tokens.len().next_multiple_of(STEP).min(model.input.target.longest).max(tokens.len());
        if self.ready.as_ref().is_none_or(|ready| ready.length != length) {
            self.ready = None;
            self.ready = Some(self.prepare(length)?);
        }
        let Some(ready) = &mut self.ready else { return Err(Error::input("nothing to listen with")) };
        ready.executor.input("mel")?.copy_from_slice(window);
        let to = ready.executor.input_i32("target")?;
        to.fill(0);
        to.iter_mut().zip(tokens).for_each(|(to, &token)| *to = token as i32);
        ready.executor.infer()?;
        let (count, positions) = (tokens.len(), model.input.positions);
        let mut weights = Vec::new();
        let mut heads = 0;
        for &value in &ready.weights {
            let all = ready.executor.output(value)?;
            heads = all.len() / (length * positions);
            let of_head = all.chunks_exact(length * positions);
            weights.push(of_head.flat_map(|head| head[..count * positions].iter().copied()).collect());
        }
        let logits = ready.executor.output(ready.logits)?[..count * model.input.target.vocabulary].to_vec();
        Ok(Heard { weights, heads, tokens: count, positions, logits })
    }

    fn prepare(&self, length: usize) -> Result<Ready, Error> {
        let mut graph = Graph::new(Mode::Inference, Precision::F32);
        let outputs = self.model.model.architecture.build(&mut graph, &Call::whole(1).target(length))?;
        let logits = graph.cast(outputs.need("logits")?, DType::F32)?;
        let cross: Vec<String> = graph
            .nodes()
            .iter()
            .filter(|node| matches!(node.op, Op::Attention(_)) && node.path.contains(".cross_attention"))
            .map(|node| node.path.clone())
            .collect();
        let mut weights = Vec::new();
        for path in cross {
            let attention = graph.find(&path)?;
            weights.push(graph.attention_weights(attention)?);
        }
        let wanted: Vec<Value> = weights.iter().copied().chain([logits]).collect();
        let plan = self.device.plan_with_fixed_weights(&graph, &wanted)?;
        let lend = |parameter: &Parameter| -> vitreous_engine::Result<WeightView<'_>> {
            self.model.model.weight(&parameter.name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
        };
        let executor = Executor::with_weights(plan, &self.device, lend)?;
        Ok(Ready { length, executor, logits, weights })
    }
}
