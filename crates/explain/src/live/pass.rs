//! A run of a model that is watched, and what is read from it.

use super::attention::{AttentionGroup, AttentionRead, LiveWeights};
use super::edits::{LiveChange, LiveEdit, Place};
use super::input::{Lengths, LiveInput};
use super::plan::{Ready, Skeleton};
use super::tail::{Tail, TailEnd, TailKey, rows_for};
use super::{Live, MOST_PLANS};
use crate::error::ExplainError;
use crate::inside::{Said, of_logits};

/// A run, with its values in memory.
pub struct Pass<'l, 'm> {
    pub(super) live: &'l mut Live<'m>,
    pub(super) input: LiveInput,
    pub(super) edits: Vec<LiveEdit>,
    /// Where the edits are.
    pub(super) places: Vec<Place>,
}

/// What a layer would say.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSays {
    /// Which layer, from 0; `None` for the stream before the first.
    pub layer: Option<usize>,
    /// One for each token that was asked about, or a single one where the model has one answer.
    pub said: Vec<Said>,
}

/// The logits of a layer in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerLogits {
    /// Which layer, from 0; `None` for the stream before the first.
    pub layer: Option<usize>,
    /// One for every output.
    pub logits: Vec<f32>,
}

/// What the end of a model whose answer is a vector makes of a layer's stream.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerEnds {
    /// Which layer, from 0; `None` for the stream before the first.
    pub layer: Option<usize>,
    /// A vector of each token, or a single one where the model pools them itself.
    pub vectors: super::LiveValue,
}

impl Pass<'_, '_> {
    pub(super) fn ready(&self) -> &Ready {
        // A pass is made of the plan that was used last.
        let last = self.live.plans.len() - 1;
        &self.live.plans[last].0
    }

    pub(super) fn skeleton(&self) -> &Skeleton {
        let last = self.live.plans.len() - 1;
        &self.live.plans[last].1
    }

    /// The stages of the model in order, by name.
    pub fn stages(&self) -> Vec<String> {
        self.skeleton().stages.iter().map(|(stage, _)| stage.clone()).collect()
    }

    /// The result of a stage; `None` where it is not kept: logits of all tokens of a language model.
    pub fn stage(&self, name: &str) -> Option<super::LiveValue> {
        let (_, path) = self.skeleton().stages.iter().find(|(stage, _)| stage == name)?;
        let (numbers, shape) = self.ready().value(path)?;
        Some(super::LiveValue::matrix(shape, numbers.to_vec()))
    }

    /// An output of the model: `logits`, `features`, `tokens`, `memory`.
    pub fn output(&self, name: &str) -> Option<(&[f32], &[usize])> {
        self.ready().value(&format!("output {name}"))
    }

    /// The number of layers of a group, and heads of each.
    pub fn layers_of(&self, group: AttentionGroup) -> Option<(usize, usize)> {
        let of_group = || self.ready().attentions.iter().filter(|one| one.group == group);
        Some((of_group().count(), of_group().next()?.tap.op.heads))
    }

    /// The attention weights of a layer of a group: `[heads, queries, keys]`, with queries and keys.
    pub fn attention(&mut self, group: AttentionGroup, layer: usize) -> Result<(Vec<f32>, [usize; 2]), ExplainError> {
        let count = self.layers_of(group).map_or(0, |(layers, _)| layers);
        let at = self.ready().attentions.iter().position(|one| one.group == group && one.layer == layer);
        let at = at.ok_or(ExplainError::NotThere { what: "layer", asked: layer, count })?;
        let one = &self.ready().attentions[at];
        let sizes = [one.queries, one.keys];
        Ok((self.weights(at)?, sizes))
    }

    /// The weights of all heads of an attention, as they are after edits.
    pub(super) fn weights(&mut self, at: usize) -> Result<Vec<f32>, ExplainError> {
        let last = self.live.plans.len() - 1;
        let Live { plans, weights: made, device, .. } = &mut *self.live;
        let (ready, skeleton) = &plans[last];
        let attention = &ready.attentions[at];
        if !made.iter().any(|one| one.fits(attention)) {
            let graph = &skeleton.graph;
            let bias = skeleton.attentions.get(at).and_then(|one| one.bias).map(|bias| graph.shape_of(bias).clone());
            let fresh = LiveWeights::new(attention, bias.as_ref(), device)?;
            if made.len() >= MOST_PLANS {
                made.remove(0);
            }
            made.push(fresh);
        }
        let read = AttentionRead { attention, executor: &ready.executor };
        let Some(weights) = made.iter_mut().find(|one| one.fits(attention)) else { return Ok(Vec::new()) };
        let mut weights = weights.of(&read)?.to_vec();
        let shape = [1, attention.tap.op.heads, attention.queries, attention.keys];
        let whole = format!("{}.weights", attention.scope);
        for (edit, place) in self.edits.iter().zip(&self.places).filter(|(_, place)| place.whole == whole) {
            place.each(&edit.path, &shape, edit.tokens.as_deref(), |at, part| {
                weights[at] = match &edit.change {
                    LiveChange::Zero => 0.0,
                    LiveChange::Scale(factor) => weights[at] * factor,
                    LiveChange::Clamp { low, high } => weights[at].max(*low).min(*high),
                    LiveChange::From(values) => values.get(part).copied().unwrap_or(0.0),
                };
            })?;
        }
        Ok(weights)
    }

    /// The logits of some tokens, one row after the other, and how many numbers a row has; where the model has one answer, its logits.
    pub fn logits(&mut self, tokens: &[usize]) -> Result<(Vec<f32>, usize), ExplainError> {
        if let Some((logits, shape)) = self.output("logits") {
            let columns = shape.last().copied().unwrap_or(1);
            let rows = logits.len() / columns.max(1);
            let is_one = shape.len() < 3;
            if is_one {
                return Ok((logits.to_vec(), columns));
            }
            let mut found = Vec::with_capacity(tokens.len() * columns);
            for &asked in tokens {
                if asked >= rows {
                    return Err(ExplainError::NotThere { what: "token", asked, count: rows });
                }
                found.extend_from_slice(&logits[asked * columns..(asked + 1) * columns]);
            }
            return Ok((found, columns));
        }
        let Some((_, last)) = self.skeleton().streams.last().cloned() else {
            let what = self.live.model.architecture.signature().what();
            return Err(ExplainError::NoTarget { what, target: "a class" });
        };
        let stream = self.stream(&last)?;
        self.rows_behind(&stream, tokens)
    }

    /// The log-probability of what is written: of each token behind the one that the decoder reads in its place, all added up.
    pub fn log_probability(&mut self, written: &[u32]) -> Result<f64, ExplainError> {
        let rows: Vec<usize> = (0..written.len()).collect();
        let (logits, outputs) = self.logits(&rows)?;
        let of_token = |(logits, &id): (&[f32], &u32)| match (id as usize) < outputs {
            true => Ok(of_logits(logits, id as usize)[1]),
            false => Err(ExplainError::NotThere { what: "token", asked: id as usize, count: outputs }),
        };
        logits.chunks_exact(outputs.max(1)).zip(written).map(of_token).sum()
    }

    /// The stream of a path: `[tokens, dim]`.
    fn stream(&self, path: &str) -> Result<super::LiveValue, ExplainError> {
        let found = self.ready().value(path).map(|(numbers, shape)| super::LiveValue::matrix(shape, numbers.to_vec()));
        found.ok_or_else(|| self.skeleton().graph.unknown_path(path.to_string()).into())
    }

    /// What the end of a model makes of some rows of a stream.
    fn rows_behind(&mut self, stream: &super::LiveValue, tokens: &[usize]) -> Result<(Vec<f32>, usize), ExplainError> {
        let &[count, dim] = &stream.shape[..] else { return Ok((Vec::new(), 1)) };
        if let Some(&asked) = tokens.iter().find(|&&token| token >= count) {
            return Err(ExplainError::NotThere { what: "token", asked, count });
        }
        let edits = self.tail_edits();
        // An edit of single tokens, or with numbers for each, needs all of them in their places.
        let is_placed = edits.iter().any(|edit| edit.tokens.is_some() || matches!(edit.change, LiveChange::From(_)));
        let rows = if is_placed { count } else { rows_for(tokens.len(), self.longest()) };
        let at = self.tail(rows, &edits, TailEnd::Result)?;
        let outputs = self.live.tails[at].outputs();
        let mut found = Vec::with_capacity(tokens.len() * outputs);
        if is_placed {
            let logits = self.live.tails[at].run(&stream.numbers)?;
            tokens.iter().for_each(|&token| found.extend_from_slice(&logits[token * outputs..(token + 1) * outputs]));
            return Ok((found, outputs));
        }
        for some in tokens.chunks(rows) {
            // Beyond the last, one is computed again.
            let places = (0..rows).map(|row| some.get(row).or(some.last()).copied().unwrap_or(0));
            let given: Vec<f32> =
                places.flat_map(|place| stream.numbers[place * dim..(place + 1) * dim].iter().copied()).collect();
            let logits = self.live.tails[at].run(&given)?;
            found.extend_from_slice(&logits[..some.len() * outputs]);
        }
        Ok((found, outputs))
    }

    /// Edits of what is behind the last stream.
    fn tail_edits(&self) -> Vec<LiveEdit> {
        let skeleton = self.skeleton();
        let is_behind = |edit: &&LiveEdit| skeleton.tail.contains(&edit.path);
        self.edits.iter().filter(is_behind).cloned().collect()
    }

    fn longest(&self) -> usize {
        use vitreous_models::Takes;
        match self.live.model.architecture.signature().takes {
            Takes::Tokens(tokens) => tokens.longest,
            Takes::Pairs { target, .. } => target.longest,
            Takes::Audio(audio) => audio.target.longest,
            Takes::Images(_) | Takes::ImagesAndTexts { .. } => usize::MAX,
        }
    }

    /// The end of the model for so many rows, by its place.
    fn tail(&mut self, rows: usize, edits: &[LiveEdit], end: TailEnd) -> Result<usize, ExplainError> {
        let lengths = self.tail_lengths(rows);
        let last = self.skeleton().streams.last().map(|(_, path)| path.clone()).unwrap_or_default();
        let key = TailKey { lengths, last, edits: edits.iter().map(LiveEdit::intervention).collect(), end };
        if let Some(at) = self.live.tails.iter().position(|tail| tail.is_for(&key)) {
            return Ok(at);
        }
        if self.live.tails.len() >= MOST_PLANS {
            self.live.tails.remove(0);
        }
        let mut source = self.live.take_source();
        let tail = Tail::new(self.live.model, key, &mut source);
        self.live.source = Some(source);
        self.live.tails.push(tail?);
        Ok(self.live.tails.len() - 1)
    }

    /// The lengths of a graph whose last stream has so many rows.
    fn tail_lengths(&self, rows: usize) -> Lengths {
        match &self.input {
            LiveInput::Image(_) => Lengths { tokens: 1, target: 1, masked: 0 },
            LiveInput::Text { .. } => {
                let fills = self.live.model.architecture.signature().masked_tokens().is_some();
                Lengths { tokens: rows, target: 1, masked: if fills { rows } else { 0 } }
            }
            LiveInput::Pair { .. } | LiveInput::Audio { .. } => Lengths { tokens: 1, target: rows, masked: 0 },
        }
    }

    /// Whether every token has logits of its own, which are computed of its vector alone.
    fn is_by_token(&self) -> bool {
        use vitreous_models::Gives;
        let by_token = |gives: &Gives| {
            matches!(
                gives,
                Gives::NextToken(_)
                    | Gives::MaskedTokens(_)
                    | Gives::TokenClasses(_)
                    | Gives::Span
                    | Gives::Sequence(_)
            )
        };
        self.live.model.architecture.signature().gives.iter().any(by_token)
    }

    /// What each layer would say: the model's own end on the stream after each layer. `asked` is a class or a token of the vocabulary whose
    /// probability is looked for.
    pub fn lens(&mut self, tokens: &[usize], top: usize, asked: Option<u32>) -> Result<Vec<LayerSays>, ExplainError> {
        let streams = self.skeleton().streams.clone();
        let mut says = Vec::with_capacity(streams.len());
        for (layer, path) in streams {
            let (logits, outputs) = self.logits_after(&path, tokens)?;
            let said = logits.chunks_exact(outputs.max(1)).map(|row| Said::of(row, top, asked)).collect();
            says.push(LayerSays { layer, said });
        }
        Ok(says)
    }

    /// All logits that [`Pass::lens`] is read from, in one place: for each layer those of every output.
    pub fn lens_logits(&mut self, token: usize) -> Result<Vec<LayerLogits>, ExplainError> {
        let streams = self.skeleton().streams.clone();
        let logits =
            |(layer, path): (_, String)| Ok(LayerLogits { layer, logits: self.logits_after(&path, &[token])?.0 });
        streams.into_iter().map(logits).collect()
    }

    /// Of a model whose answer is a vector: what its end makes of the stream after each layer. `of_tokens` says whether that are the vectors
    /// of all tokens, which somebody else pools.
    pub fn lens_vectors(&mut self, of_tokens: bool) -> Result<Vec<LayerEnds>, ExplainError> {
        let streams = self.skeleton().streams.clone();
        let end = if of_tokens { TailEnd::Tokens } else { TailEnd::Result };
        let ends = |(layer, path): (_, String)| {
            let stream = self.stream(&path)?;
            let (numbers, columns) = self.whole_behind(&stream, end)?;
            Ok(LayerEnds { layer, vectors: super::LiveValue::matrix(&[columns], numbers) })
        };
        streams.into_iter().map(ends).collect()
    }

    /// What the model's end makes of a stream, and how many outputs there are.
    fn logits_after(&mut self, path: &str, tokens: &[usize]) -> Result<(Vec<f32>, usize), ExplainError> {
        let stream = self.stream(path)?;
        if self.is_by_token() {
            return self.rows_behind(&stream, tokens);
        }
        self.whole_behind(&stream, TailEnd::Result)
    }

    /// What the end of a model makes of all of a stream.
    fn whole_behind(&mut self, stream: &super::LiveValue, end: TailEnd) -> Result<(Vec<f32>, usize), ExplainError> {
        let edits = self.tail_edits();
        let at = self.tail(stream.shape[0], &edits, end)?;
        let outputs = self.live.tails[at].outputs();
        Ok((self.live.tails[at].run(&stream.numbers)?.to_vec(), outputs))
    }
}
