//! Direct logit attribution: what the embedding, each head and each MLP add to a logit, with the final norm's scale kept as it is.
//!
//! With pre-norm, the stream after the last layer is a sum: `x = embedding + Σ heads + Σ biases + Σ MLPs`. The final norm divides it by a number
//! (its standard deviation, or its root mean square); with that number kept, everything behind the stream is linear, so a logit is `Σ d · part`
//! plus the biases of norm and head, with one direction `d` for all parts. The parts sum to the logit. (Elhage et al., 2021; Wang et al., 2022.)

use vitreous_engine::{DType, GradientOptions, Graph, Intervention, Op, Value};
use vitreous_models::Call;

use super::{Given, Inside, fill_given, part_path, stream_path};
use crate::error::ExplainError;
use crate::inputs::{InputValues, fill};

/// What the parts of a layer add to a logit.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerParts {
    /// Each head.
    pub heads: Vec<f64>,
    /// The bias behind the heads.
    pub attention_bias: f64,
    /// The MLP.
    pub mlp: f64,
}

/// What all parts of a model add to a logit.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution {
    /// The logit.
    pub logit: f64,
    /// Token and position embeddings.
    pub embedding: f64,
    /// The layers.
    pub layers: Vec<LayerParts>,
    /// The biases of the final norm and of the head.
    pub bias: f64,
}

impl Attribution {
    /// All parts together: the logit, to rounding.
    pub fn sum(&self) -> f64 {
        let layer = |layer: &LayerParts| layer.heads.iter().sum::<f64>() + layer.attention_bias + layer.mlp;
        self.embedding + self.layers.iter().map(layer).sum::<f64>() + self.bias
    }
}

/// The final norm at one input.
struct FrozenNorm {
    /// Its result and its input, `[rows, dim]`.
    output: Vec<f32>,
    input: Vec<f32>,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    eps: f32,
    /// Whether the mean is taken off.
    centres: bool,
}

const SEED: &str = "seed";

impl Inside<'_> {
    /// What each part adds to the logit of an output in the place of a token.
    pub fn attribution(&mut self, token: usize, output: usize) -> Result<Attribution, ExplainError> {
        let mut graph = Graph::for_inference();
        let built = self.build(&mut graph, 1, &[])?;
        let logits = self.logits(&mut graph, &built, token)?;
        let outputs = graph.shape_of(logits).columns();
        if output >= outputs {
            return Err(ExplainError::NotThere { what: "class", asked: output, count: outputs });
        }
        let named = graph.find("norm").map_err(|_| NOT_PRE_NORM)?;
        let node = graph.node(named).clone();
        let (eps, centres) = match &node.op {
            Op::LayerNorm(op) => (op.eps, true),
            Op::RmsNorm(op) => (op.eps, false),
            _ => return Err(ExplainError::NotAttributable { why: "its final norm is edited" }),
        };
        let stream = graph.find(&stream_path(self.layers))?;
        let input = node.inputs[0];
        // Parameters become results by being computed with.
        let weight = graph.scale(node.inputs[1], 1.0)?;
        let bias = node.inputs.get(2).map(|&bias| graph.scale(bias, 1.0)).transpose()?;
        let seed = graph.input(SEED, [1, outputs], DType::F32)?;
        let behind = graph.gradients_from(logits, seed, &[named], GradientOptions::default())?[0];
        let wanted: Vec<Value> = [logits, named, input, weight, behind].into_iter().chain(bias).collect();
        let plan = self.source.plan(&mut graph, &wanted)?;
        let mut executor = self.source.executor("attribution", None, plan)?;
        fill_given(&mut executor, &self.given, 1)?;
        let mut one = vec![0.0; outputs];
        one[output] = 1.0;
        fill(&mut executor, &[(SEED, InputValues::Floats(&one))])?;
        executor.infer()?;
        let norm = FrozenNorm {
            output: executor.output(named)?,
            input: executor.output(input)?,
            weight: executor.output(weight)?,
            bias: bias.map(|bias| executor.output(bias)).transpose()?,
            eps,
            centres,
        };
        let (logit, behind) = (f64::from(executor.output(logits)?[output]), executor.output(behind)?);
        drop(executor);
        let at_norm = norm.direction(&behind);
        let direction = match input == stream {
            true => at_norm,
            false => self.before_pooling(&at_norm)?,
        };
        let bias = norm.bias_part(&behind) + logit - dot(&behind, &norm.output);
        let layers = self.layer_parts(&direction)?;
        let parts = Attribution { logit, embedding: dot(&direction, &self.streams[0]), layers, bias };
        // A head that is not linear, or a norm between layers, is seen by its result.
        match (parts.sum() - logit).abs() <= 1e-2 * logit.abs().max(1.0) {
            true => Ok(parts),
            false => Err(NOT_PRE_NORM),
        }
    }

    /// Where the norm is behind the pooling: the direction in the stream.
    fn before_pooling(&mut self, at_norm: &[f32]) -> Result<Vec<f32>, ExplainError> {
        let mut graph = Graph::for_inference();
        self.build(&mut graph, 1, &[])?;
        let stream = graph.find(&stream_path(self.layers))?;
        let input = graph.node(graph.find("norm")?).inputs[0];
        let seed = graph.input(SEED, graph.shape_of(input).clone(), DType::F32)?;
        let direction = graph.gradients_from(input, seed, &[stream], GradientOptions::default())?[0];
        let plan = self.source.plan(&mut graph, &[direction])?;
        let mut executor = self.source.executor("attribution", None, plan)?;
        fill_given(&mut executor, &self.given, 1)?;
        fill(&mut executor, &[(SEED, InputValues::Floats(at_norm))])?;
        executor.infer()?;
        Ok(executor.output(direction)?)
    }

    /// What heads and MLPs add along a direction `[tokens, dim]`. The part of a head is what attention adds with that head alone, less what
    /// it adds with none.
    fn layer_parts(&mut self, direction: &[f32]) -> Result<Vec<LayerParts>, ExplainError> {
        // A language model's direction is that of one token, and whatever is behind heads treats tokens one by one.
        let rows: Vec<usize> = match &self.given {
            Given::Tokens(_) => {
                let is_used = |row: &usize| direction[row * self.dim..(row + 1) * self.dim].iter().any(|&x| x != 0.0);
                (0..self.tokens).filter(is_used).collect()
            }
            Given::Image(_) => (0..self.tokens).collect(),
        };
        let pick = |values: &[f32]| -> Vec<f32> {
            let width = values.len() / self.tokens;
            rows.iter().flat_map(|row| values[row * width..(row + 1) * width].iter().copied()).collect()
        };
        let picked = pick(direction);
        let (heads, batch) = (self.heads, self.heads + 1);
        let edits: Vec<Intervention> = (0..self.layers)
            .map(|layer| Intervention::input(part_path(layer, "attention.heads"), format!("heads.{layer}")))
            .collect();
        let mut graph = Graph::for_inference();
        let call = Call::whole(batch).tokens(rows.len().max(1));
        graph.with_interventions(&edits, |graph| self.model.architecture.build(graph, &call))?;
        let added: Vec<Value> = (0..self.layers)
            .map(|layer| graph.find(&part_path(layer, "attention")))
            .collect::<vitreous_engine::Result<_>>()?;
        let plan = self.source.plan(&mut graph, &added)?;
        let mut executor = self.source.executor("attribution to heads", None, plan)?;
        for layer in 0..self.layers {
            let mixed = pick(&self.mixed[layer]);
            let to = executor.input(&format!("heads.{layer}"))?;
            let width = mixed.len() / rows.len().max(1) / heads;
            for (sample, to) in to.chunks_exact_mut(mixed.len().max(1)).enumerate() {
                let is_own = |at: usize| sample < heads && at % (heads * width) / width == sample;
                to.iter_mut().zip(&mixed).enumerate().for_each(|(at, (to, x))| *to = if is_own(at) { *x } else { 0.0 });
            }
        }
        executor.infer()?;
        let mut parts = Vec::with_capacity(self.layers);
        for (layer, &added) in added.iter().enumerate() {
            let along: Vec<f64> = executor
                .output_slice(added)?
                .chunks_exact(picked.len().max(1))
                .map(|added| dot(&picked, added))
                .collect();
            let (alone, none) = along.split_at(heads.min(along.len()));
            let none = none.first().copied().unwrap_or(0.0);
            let heads: Vec<f64> = alone.iter().map(|alone| alone - none).collect();
            let attention = dot(direction, &self.attention[layer]);
            let attention_bias = attention - heads.iter().sum::<f64>();
            parts.push(LayerParts { heads, attention_bias, mlp: dot(direction, &self.mlp[layer]) });
        }
        Ok(parts)
    }
}

const NOT_PRE_NORM: ExplainError = ExplainError::NotAttributable {
    why: "a logit is a sum of its parts only where layers add to one stream that is normalised before each of them (pre-norm), and where the head is linear",
};

impl FrozenNorm {
    fn dim(&self) -> usize {
        self.weight.len().max(1)
    }

    /// A direction behind the norm as one before it, row by row, with the scale kept.
    fn direction(&self, behind: &[f32]) -> Vec<f32> {
        let dim = self.dim();
        let rows = behind.chunks_exact(dim).zip(self.input.chunks_exact(dim));
        rows.flat_map(|(behind, input)| {
            let mean = if self.centres { input.iter().map(|&x| f64::from(x)).sum::<f64>() / dim as f64 } else { 0.0 };
            let square = input.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / dim as f64;
            let scale = 1.0 / (square + f64::from(self.eps)).sqrt();
            let weighted: Vec<f64> =
                behind.iter().zip(&self.weight).map(|(a, w)| f64::from(*a) * f64::from(*w) * scale).collect();
            let shift = if self.centres { weighted.iter().sum::<f64>() / dim as f64 } else { 0.0 };
            weighted.into_iter().map(move |x| (x - shift) as f32)
        })
        .collect()
    }

    /// What the norm's bias adds.
    fn bias_part(&self, behind: &[f32]) -> f64 {
        let Some(bias) = &self.bias else { return 0.0 };
        behind.chunks_exact(self.dim()).map(|row| dot(row, bias)).sum()
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
