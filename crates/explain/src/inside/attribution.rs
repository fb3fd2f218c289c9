//! Direct logit attribution: what the embedding, each head and each MLP add to a logit, with the final norm's scale kept as it is.
//!
//! With pre-norm, the stream after the last layer is a sum: `x = embedding + Σ heads + Σ biases + Σ MLPs`. The final norm divides it by a number
//! (its standard deviation, or its root mean square); with that number kept, everything behind the stream is linear, so a logit is `Σ d · part`
//! plus the biases of norm and head, with one direction `d` for all parts. The parts sum to the logit. (Elhage et al., 2021; Wang et al., 2022.)
//!
//! With post-norm, `x = norm(y + MLP(y)), y = norm(x + heads(x))`, what a part adds goes through the norms of its own layer and of all
//! layers behind it. With their scales kept, each of them is linear, too: the direction is another before each norm, and the biases of
//! the norms are parts as well. A head that is not linear (BERT's with its pooler) is taken as its tangent: what that leaves is in `bias`.

use vitreous_engine::{DType, Executor, GradientOptions, Graph, Intervention, Op, Value};
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
    /// The biases of norms and of the head.
    pub bias: f64,
}

impl Attribution {
    /// All parts together: the logit, to rounding.
    pub fn sum(&self) -> f64 {
        let layer = |layer: &LayerParts| layer.heads.iter().sum::<f64>() + layer.attention_bias + layer.mlp;
        self.embedding + self.layers.iter().map(layer).sum::<f64>() + self.bias
    }
}

/// A norm of a graph.
struct NormNode {
    input: Value,
    weight: Value,
    bias: Option<Value>,
    eps: f32,
    centres: bool,
}

/// A norm at one input.
struct FrozenNorm {
    /// Its input, `[rows, dim]`.
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
        let stream = graph.find(&stream_path(self.layers))?;
        // A post-norm model has no norm behind its layers.
        let end = graph.find("norm").unwrap_or(stream);
        let last = match end == stream {
            true => None,
            false => Some(NormNode::of(&mut graph, end)?.ok_or(EDITED_NORM)?),
        };
        let of_layers: Vec<Option<[NormNode; 2]>> =
            (0..self.layers).map(|layer| self.norms_of(&mut graph, layer)).collect::<Result<_, _>>()?;
        let seed = graph.input(SEED, [1, outputs], DType::F32)?;
        let behind = graph.gradients_from(logits, seed, &[end], GradientOptions::default())?[0];
        let norms = of_layers.iter().flatten().flatten().chain(&last);
        let wanted: Vec<Value> = [logits, end, behind].into_iter().chain(norms.flat_map(NormNode::values)).collect();
        let plan = self.source.plan(&mut graph, &wanted)?;
        let mut executor = self.source.executor("attribution", None, plan)?;
        fill_given(&mut executor, &self.given, 1)?;
        let mut one = vec![0.0; outputs];
        one[output] = 1.0;
        fill(&mut executor, &[(SEED, InputValues::Floats(&one))])?;
        executor.infer()?;
        let (logit, behind) = (f64::from(executor.output(logits)?[output]), executor.output(behind)?);
        let mut bias = logit - dot(&behind, &executor.output(end)?);
        let frozen = last.as_ref().map(|norm| norm.frozen(&executor)).transpose()?;
        let of_layers: Vec<Option<[FrozenNorm; 2]>> = of_layers
            .iter()
            .map(|norms| match norms {
                Some([first, second]) => Ok(Some([first.frozen(&executor)?, second.frozen(&executor)?])),
                None => Ok(None),
            })
            .collect::<Result<_, ExplainError>>()?;
        drop(executor);
        let mut direction = match (frozen, last) {
            (Some(norm), Some(node)) => {
                bias += norm.bias_part(&behind);
                let at_norm = norm.direction(&behind);
                if node.input == stream { at_norm } else { self.before_pooling(&at_norm)? }
            }
            _ => behind,
        };
        // From the last layer to the first: the directions of what its attention and its MLP add.
        let mut directions = Vec::with_capacity(self.layers);
        for norms in of_layers.iter().rev() {
            let of_mlp = match norms {
                Some([first, second]) => {
                    bias += second.bias_part(&direction);
                    let of_mlp = second.direction(&direction);
                    bias += first.bias_part(&of_mlp);
                    direction = first.direction(&of_mlp);
                    of_mlp
                }
                None => direction.clone(),
            };
            directions.push([direction.clone(), of_mlp]);
        }
        directions.reverse();
        let layers = self.layer_parts(&directions)?;
        let parts = Attribution { logit, embedding: dot(&direction, &self.streams[0]), layers, bias };
        match (parts.sum() - logit).abs() <= 1e-2 * logit.abs().max(1.0) {
            true => Ok(parts),
            false => Err(NOT_A_SUM),
        }
    }

    /// The norms that a post-norm layer puts behind its attention and behind its MLP; `None` of a layer that adds to the stream as it is.
    fn norms_of(&self, graph: &mut Graph, layer: usize) -> Result<Option<[NormNode; 2]>, ExplainError> {
        let after = graph.find(&stream_path(layer + 1))?;
        let Some(second) = NormNode::of(graph, after)? else { return Ok(None) };
        // Each norm's input is the sum of the stream and of what was added to it.
        let other = |graph: &Graph, sum: Value, added: Value| {
            let node = graph.node(sum);
            let is_sum = matches!(node.op, Op::Pointwise(_)) && node.inputs.len() == 2 && node.inputs.contains(&added);
            node.inputs.iter().copied().find(|input| *input != added).filter(|_| is_sum)
        };
        let (mlp, attention) = (graph.find(&part_path(layer, "mlp"))?, graph.find(&part_path(layer, "attention"))?);
        let between = other(graph, second.input, mlp).ok_or(NOT_A_SUM)?;
        let first = NormNode::of(graph, between)?.ok_or(NOT_A_SUM)?;
        match other(graph, first.input, attention) == Some(graph.find(&stream_path(layer))?) {
            true => Ok(Some([first, second])),
            false => Err(NOT_A_SUM),
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

    /// What heads and MLPs of each layer add along its directions `[tokens, dim]`. The part of a head is what attention adds with that head
    /// alone, less what it adds with none.
    fn layer_parts(&mut self, directions: &[[Vec<f32>; 2]]) -> Result<Vec<LayerParts>, ExplainError> {
        // A language model's direction is that of one token, and whatever is behind heads treats tokens one by one.
        let rows: Vec<usize> = match &self.given {
            Given::Tokens(_) => {
                let is_used = |row: &usize| {
                    let of_row = |[direction, _]: &[Vec<f32>; 2]| {
                        direction[row * self.dim..(row + 1) * self.dim].iter().any(|&x| x != 0.0)
                    };
                    directions.iter().any(of_row)
                };
                (0..self.tokens).filter(is_used).collect()
            }
            Given::Image(_) => (0..self.tokens).collect(),
        };
        let pick = |values: &[f32]| -> Vec<f32> {
            let width = values.len() / self.tokens;
            rows.iter().flat_map(|row| values[row * width..(row + 1) * width].iter().copied()).collect()
        };
        let (heads, batch) = (self.heads, self.heads + 1);
        let edits: Vec<Intervention> = (0..self.layers)
            .map(|layer| Intervention::input(part_path(layer, "attention.heads"), format!("heads.{layer}")))
            .collect();
        let mut graph = Graph::for_inference();
        let call = Call::whole(batch).tokens(rows.len().max(1));
        self.build_call(&mut graph, &call, &edits)?;
        let added: Vec<Value> = (0..self.layers)
            .map(|layer| graph.find(&part_path(layer, "attention")))
            .collect::<vitreous_engine::Result<_>>()?;
        let plan = self.source.plan(&mut graph, &added)?;
        let mut executor = self.source.executor("attribution to heads", None, plan)?;
        for layer in 0..self.layers {
            let mixed = pick(&self.mixed[layer]);
            // Nobody reads the heads of an attention that an edit of the model replaces.
            let Ok(to) = executor.input(&format!("heads.{layer}")) else { continue };
            let width = mixed.len() / rows.len().max(1) / heads;
            for (sample, to) in to.chunks_exact_mut(mixed.len().max(1)).enumerate() {
                let is_own = |at: usize| sample < heads && at % (heads * width) / width == sample;
                to.iter_mut().zip(&mixed).enumerate().for_each(|(at, (to, x))| *to = if is_own(at) { *x } else { 0.0 });
            }
        }
        executor.infer()?;
        let mut parts = Vec::with_capacity(self.layers);
        for (layer, (&added, [direction, of_mlp])) in added.iter().zip(directions).enumerate() {
            let picked = pick(direction);
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
            parts.push(LayerParts { heads, attention_bias, mlp: dot(of_mlp, &self.mlp[layer]) });
        }
        Ok(parts)
    }
}

const NOT_A_SUM: ExplainError = ExplainError::NotAttributable {
    why: "a logit is a sum of its parts only where layers add to one stream, which norms before or behind each of them may scale",
};
const EDITED_NORM: ExplainError = ExplainError::NotAttributable { why: "its final norm is edited" };

impl NormNode {
    /// A value of a graph as a norm, if it is one. Its parameters become values that a run can give, by being computed with.
    fn of(graph: &mut Graph, value: Value) -> Result<Option<NormNode>, ExplainError> {
        let node = graph.node(value).clone();
        let (eps, centres) = match &node.op {
            Op::LayerNorm(op) => (op.eps, true),
            Op::RmsNorm(op) => (op.eps, false),
            _ => return Ok(None),
        };
        let weight = graph.scale(node.inputs[1], 1.0)?;
        let bias = node.inputs.get(2).map(|&bias| graph.scale(bias, 1.0)).transpose()?;
        Ok(Some(NormNode { input: node.inputs[0], weight, bias, eps, centres }))
    }

    fn values(&self) -> impl Iterator<Item = Value> {
        [self.input, self.weight].into_iter().chain(self.bias)
    }

    /// The norm as a run has it.
    fn frozen(&self, executor: &Executor) -> Result<FrozenNorm, ExplainError> {
        Ok(FrozenNorm {
            input: executor.output(self.input)?,
            weight: executor.output(self.weight)?,
            bias: self.bias.map(|bias| executor.output(bias)).transpose()?,
            eps: self.eps,
            centres: self.centres,
        })
    }
}

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
