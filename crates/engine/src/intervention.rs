//! Interventions: named values of a model that are zeroed, multiplied, added to, clamped or replaced while its graph is built.
//!
//! [`Graph::with_interventions`] edits a value where it gets its name: whatever reads it afterwards reads the edited one. An edit is made of
//! ordinary ops, so every executor runs it and gradients flow through it; a value that is replaced is not computed, nor is what only it
//! needed. A graph without interventions has no trace of them.
//!
//! Names are paths: those given by [`Graph::name`] (`blocks.3`, `blocks.3.mlp`), those of ops, and of each attention `heads`, its result,
//! `heads.5`, the columns of one head, `weights [batch, heads, queries, keys]`, and `heads.5.weights`.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::ops::{Attention, AttentionWeights, Op};
use crate::types::Shape;

/// What is done with a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// It is zero.
    Zero,
    /// It is multiplied by a number.
    Scale(f32),
    /// It is multiplied by numbers.
    Multiply(EditValues),
    /// Numbers are added to it.
    Add(EditValues),
    /// Numbers below `low` become `low`, those above `high` become `high`.
    Clamp {
        /// The least number.
        low: f32,
        /// The greatest number.
        high: f32,
    },
    /// It is replaced.
    Replace(EditValues),
}

/// The numbers of an edit.
#[derive(Clone, Debug, PartialEq)]
pub enum EditValues {
    /// As many as the value's last axes have, repeated over the others; or a single one.
    Numbers(Arc<[f32]>),
    /// An input of this name, of the value's shape, given in each run.
    Input(String),
}

/// An edit of one named value.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervention {
    /// The value's path.
    pub path: String,
    /// What is done with it.
    pub edit: Edit,
    /// The tokens that it is done for; `None` for all. Of attention weights, the tokens that attend.
    pub tokens: Option<Vec<usize>>,
}

impl Intervention {
    /// An edit of all of a value.
    pub fn new(path: impl Into<String>, edit: Edit) -> Intervention {
        Intervention { path: path.into(), edit, tokens: None }
    }

    /// The value is replaced by an input.
    pub fn input(path: impl Into<String>, name: impl Into<String>) -> Intervention {
        Intervention::new(path, Edit::Replace(EditValues::Input(name.into())))
    }

    /// The same for these tokens alone.
    pub fn at(self, tokens: Vec<usize>) -> Intervention {
        Intervention { tokens: Some(tokens), ..self }
    }
}

/// Interventions that a graph is being built with.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    list: Vec<Intervention>,
    met: Vec<bool>,
}

/// A part of a value: a range of one axis.
type Part = Option<(usize, Range<usize>)>;

impl Graph {
    /// Builds with interventions. One whose path no value has is an error that names those most like it. Where this is nested, the inner
    /// interventions are done first.
    pub fn with_interventions<T>(
        &mut self,
        interventions: &[Intervention],
        build: impl FnOnce(&mut Graph) -> Result<T>,
    ) -> Result<T> {
        let (result, unmet) = self.with_some_interventions(interventions, build)?;
        match unmet.into_iter().next() {
            Some(path) => Err(self.unknown_path(path)),
            None => Ok(result),
        }
    }

    /// The same for a part of a model: gives the paths that this part does not have.
    pub fn with_some_interventions<T>(
        &mut self,
        interventions: &[Intervention],
        build: impl FnOnce(&mut Graph) -> Result<T>,
    ) -> Result<(T, Vec<String>)> {
        self.pending.push(Pending { list: interventions.to_vec(), met: vec![false; interventions.len()] });
        let result = build(self);
        let pending = self.pending.pop();
        let unmet = pending.into_iter().flat_map(|pending| pending.list.into_iter().zip(pending.met));
        let unmet = unmet.filter(|(_, met)| !met).map(|(intervention, _)| intervention.path).collect();
        Ok((result?, unmet))
    }

    /// The error for a path that no value has.
    pub fn unknown_path(&self, path: String) -> Error {
        let mut known = self.editable_paths();
        let distance = |known: &String| (edit_distance(known, &path), known.clone());
        known.sort_by_cached_key(distance);
        known.truncate(6);
        Error::Unknown { what: "value", name: path, known }
    }

    /// The paths of all values that can be edited.
    pub fn editable_paths(&self) -> Vec<String> {
        let computed = |value: &Value| !self.nodes[value.node()].op.is_leaf() && self.type_of(*value).dtype.is_float();
        let names = self.names().filter(|(_, value)| computed(value)).map(|(name, _)| name.to_string());
        let mut paths: Vec<String> = names.filter(|name| !name.contains(EDITED)).collect();
        for node in self.nodes() {
            if let (Op::Attention(op), Some((scope, _))) = (&node.op, node.path.rsplit_once('.')) {
                paths.extend((0..op.heads).map(|head| format!("{scope}.heads.{head}")));
                paths.extend((0..op.heads).map(|head| format!("{scope}.heads.{head}.weights")));
                paths.push(format!("{scope}.weights"));
            }
        }
        paths.sort();
        paths.dedup();
        paths
    }

    /// The nodes of all inputs, if values were edited. They stay inputs of a plan even where an edit leaves nothing that reads them: whoever
    /// runs a model gives it the same inputs with interventions as without.
    pub(crate) fn inputs_of_edited(&self) -> impl Iterator<Item = usize> {
        let inputs = self.nodes().iter().enumerate().filter(|(_, node)| matches!(node.op, Op::Input(_)));
        inputs.filter(|_| self.edited).map(|(index, _)| index)
    }

    /// A value with a new name, after the interventions for it.
    pub(crate) fn intervened(&mut self, path: &str, value: Value) -> Result<Value> {
        if self.pending.is_empty() {
            return Ok(value);
        }
        self.edit_parts(value, |_, asked| (asked == path).then_some(None))
    }

    /// The result of an attention, after the interventions for its weights, its heads and itself.
    pub(crate) fn intervened_attention(&mut self, attention: Value) -> Result<Value> {
        if self.pending.is_empty() {
            return Ok(attention);
        }
        let Op::Attention(op) = self.node(attention).op.clone() else { return Ok(attention) };
        let scope = self.path_of("");
        let head_of = |asked: &str, end: &str| -> Option<usize> {
            let head = asked.strip_prefix(scope.as_str())?.strip_prefix("heads.")?.strip_suffix(end)?.parse().ok()?;
            (head < op.heads).then_some(head)
        };
        let weights = |asked: &str| match head_of(asked, ".weights") {
            Some(head) => Some(Some((1, head..head + 1))),
            None => (asked.strip_prefix(scope.as_str()) == Some("weights")).then_some(None),
        };
        let asked: Vec<Intervention> = self.pending.iter().flat_map(|pending| pending.list.clone()).collect();
        let asked: Vec<Intervention> = asked.into_iter().filter(|asked| weights(&asked.path).is_some()).collect();
        let mixed = match asked.is_empty() {
            true => attention,
            false => {
                self.check_cached_weights(attention, &asked)?;
                self.attention_by_weights(attention, &op, |graph, value| graph.edit_parts(value, |_, p| weights(p)))?
            }
        };
        let width = self.shape_of(mixed).columns() / op.heads;
        self.edit_parts(mixed, |graph, asked| match head_of(asked, "") {
            Some(head) => Some(Some((graph.shape_of(mixed).rank() - 1, head * width..(head + 1) * width))),
            None => (asked.strip_prefix(scope.as_str()) == Some("heads")).then_some(None),
        })
    }

    /// Does the interventions whose path `part` knows, the innermost first.
    fn edit_parts(&mut self, value: Value, part: impl Fn(&Graph, &str) -> Option<Part>) -> Result<Value> {
        let mut now = value;
        for group in (0..self.pending.len()).rev() {
            for index in 0..self.pending[group].list.len() {
                let Some(part) = part(self, &self.pending[group].list[index].path) else { continue };
                let intervention = self.pending[group].list[index].clone();
                self.pending[group].met[index] = true;
                self.edited = true;
                // What an edit is made of has names of its own, which nobody intervenes in.
                let pending = std::mem::take(&mut self.pending);
                let outer = self.scope_for_edit(&intervention.path);
                let edited = self.edit(now, &part, &intervention);
                self.leave_scope(outer);
                self.pending = pending;
                now = edited?;
            }
        }
        Ok(now)
    }

    fn edit(&mut self, x: Value, part: &Part, intervention: &Intervention) -> Result<Value> {
        let dtype = self.type_of(x).dtype;
        if !dtype.is_float() {
            return self.refuse(intervention, "only floats can be edited".to_string());
        }
        let edited = match (part, &intervention.edit, &intervention.tokens) {
            (None, ..) => self.edit_tokens(x, intervention)?,
            // Of columns, a mask fuses with what reads them.
            (Some((axis, range)), Edit::Zero, None) if *axis + 1 == self.shape_of(x).rank() => {
                self.scale_columns(x, range, 0.0)?
            }
            (Some((axis, range)), Edit::Scale(factor), None) if *axis + 1 == self.shape_of(x).rank() => {
                self.scale_columns(x, range, *factor)?
            }
            (Some((axis, range)), ..) => {
                let cut = self.slice(x, *axis, range.start, range.end)?;
                let cut = self.edit_tokens(cut, intervention)?;
                self.with_range(x, cut, *axis, range.clone())?
            }
        };
        if self.type_of(edited).dtype == dtype { Ok(edited) } else { self.cast(edited, dtype) }
    }

    fn scale_columns(&mut self, x: Value, columns: &Range<usize>, factor: f32) -> Result<Value> {
        let width = self.shape_of(x).columns();
        let mask = (0..width).map(|column| if columns.contains(&column) { factor } else { 1.0 }).collect();
        let mask = self.constant("mask", [width], mask)?;
        self.multiply(x, mask)
    }

    /// `x` with a range of an axis replaced.
    fn with_range(&mut self, x: Value, new: Value, axis: usize, range: Range<usize>) -> Result<Value> {
        let size = self.shape_of(x).axes()[axis];
        let mut parts = Vec::new();
        if range.start > 0 {
            parts.push(self.slice(x, axis, 0, range.start)?);
        }
        parts.push(new);
        if range.end < size {
            parts.push(self.slice(x, axis, range.end, size)?);
        }
        if parts.len() == 1 { Ok(new) } else { self.concat(&parts, axis) }
    }

    /// The edit of all of a value, or of some of its tokens.
    fn edit_tokens(&mut self, x: Value, intervention: &Intervention) -> Result<Value> {
        let edited = self.edit_all(x, intervention)?;
        let Some(tokens) = &intervention.tokens else { return Ok(edited) };
        let rank = self.shape_of(x).rank();
        if rank < 3 {
            return self.refuse(intervention, format!("it is {} and has no tokens to choose from", self.type_of(x)));
        }
        let axis = rank - 2;
        let count = self.shape_of(x).axes()[axis];
        let mut tokens = tokens.clone();
        tokens.sort_unstable();
        tokens.dedup();
        if let Some(token) = tokens.iter().find(|&&token| token >= count) {
            return self.refuse(intervention, format!("there is no token {token}: there are {count}, counted from 0"));
        }
        let mut now = x;
        for token in tokens {
            let row = self.slice(edited, axis, token, token + 1)?;
            now = self.with_range(now, row, axis, token..token + 1)?;
        }
        Ok(now)
    }

    fn edit_all(&mut self, x: Value, intervention: &Intervention) -> Result<Value> {
        let shape = self.shape_of(x).clone();
        match &intervention.edit {
            Edit::Zero => {
                let zeros = self.constant("zeros", [shape.columns()], vec![0.0; shape.columns()])?;
                self.broadcast_to(zeros, shape)
            }
            Edit::Scale(factor) => self.scale(x, *factor),
            Edit::Multiply(values) => {
                let values = self.edit_values(intervention, values, &shape)?;
                self.multiply(x, values)
            }
            Edit::Add(values) => {
                let values = self.edit_values(intervention, values, &shape)?;
                self.add(x, values)
            }
            Edit::Replace(values) => {
                let values = self.edit_values(intervention, values, &shape)?;
                self.broadcast_to(values, shape)
            }
            Edit::Clamp { low, high } if low > high || low.is_nan() || high.is_nan() => {
                self.refuse(intervention, format!("numbers cannot be clamped between {low} and {high}"))
            }
            // x - relu(x - high) + relu(low - x): what is between the two keeps every bit.
            Edit::Clamp { low, high } => {
                let mut now = x;
                for (limit, sign) in [(*high, 1.0), (*low, -1.0f32)].into_iter().filter(|(limit, _)| limit.is_finite())
                {
                    let columns = shape.columns();
                    let limit = self.constant("limit", [columns], vec![-limit * sign; columns])?;
                    let signed = self.scale(x, sign)?;
                    let beyond = self.add(signed, limit)?;
                    let beyond = self.relu(beyond)?;
                    let beyond = self.scale(beyond, -sign)?;
                    now = self.add(now, beyond)?;
                }
                Ok(now)
            }
        }
    }

    /// The numbers of an edit as a value with the last axes of `shape`.
    fn edit_values(&mut self, intervention: &Intervention, values: &EditValues, shape: &Shape) -> Result<Value> {
        let numbers = match values {
            EditValues::Input(name) => {
                let outer = self.enter(String::new());
                let input = self.input(name, shape.clone(), crate::types::DType::F32);
                self.leave(outer);
                return input;
            }
            EditValues::Numbers(numbers) => numbers,
        };
        let suffix = (0..shape.rank()).rev().map(|axis| &shape.axes()[axis..]);
        let fits = |axes: &&[usize]| axes.iter().product::<usize>() == numbers.len();
        match (numbers.as_ref(), suffix.into_iter().find(fits)) {
            (_, Some(axes)) => self.constant("numbers", axes, numbers.to_vec()),
            ([one], None) => self.constant("numbers", [shape.columns()], vec![*one; shape.columns()]),
            _ => {
                let got = numbers.len();
                self.refuse(
                    intervention,
                    format!("it is {shape}, which {got} numbers do not fit: they must be its last axes"),
                )
            }
        }
    }

    fn broadcast_to(&mut self, x: Value, shape: Shape) -> Result<Value> {
        if *self.shape_of(x) == shape { Ok(x) } else { self.broadcast(x, shape) }
    }

    fn refuse<T>(&self, intervention: &Intervention, rule: String) -> Result<T> {
        Err(Error::Intervention { path: intervention.path.clone(), rule })
    }

    /// Refuses edits of weights that would make rows of a KV cache count which no token has come to yet. Their weights are 0: edits that
    /// leave 0 as it is are possible.
    fn check_cached_weights(&self, attention: Value, asked: &[Intervention]) -> Result<()> {
        let is_cache = |&input: &Value| matches!(self.node(self.root_of(input)).op, Op::Cache(_));
        if !self.node(attention).inputs.iter().any(is_cache) {
            return Ok(());
        }
        let keeps_zero = |edit: &Edit| match edit {
            Edit::Zero => true,
            Edit::Scale(factor) => factor.is_finite(),
            Edit::Clamp { low, high } => *low <= 0.0 && *high >= 0.0,
            Edit::Multiply(EditValues::Numbers(numbers)) => numbers.iter().all(|number| number.is_finite()),
            Edit::Multiply(EditValues::Input(_)) | Edit::Add(_) | Edit::Replace(_) => false,
        };
        match asked.iter().find(|asked| !keeps_zero(&asked.edit)) {
            None => Ok(()),
            Some(asked) => self.refuse(
                asked,
                "while tokens are generated, the KV cache has rows that no token has come to yet, and this edit would give them weight: attention weights can be set to 0, scaled, or clamped to a range with 0 in it".to_string(),
            ),
        }
    }

    /// Attention with its weights as a value of the graph: `edit` of them, times the values.
    fn attention_by_weights(
        &mut self,
        attention: Value,
        op: &Attention,
        edit: impl FnOnce(&mut Graph, Value) -> Result<Value>,
    ) -> Result<Value> {
        let (inputs, path) = (self.node(attention).inputs.clone(), self.node(attention).path.clone());
        let out = self.type_of(attention).clone();
        let weights =
            self.add_op_at(AttentionWeights { of: op.clone() }.into(), &inputs, Vec::new(), format!("{path}_weights"))?;
        let weights = edit(self, weights)?;
        let pending = std::mem::take(&mut self.pending);
        let outer = self.scope_for_edit(&path);
        let mixed = self.mix(weights, op, &inputs, &out.shape);
        self.leave_scope(outer);
        self.pending = pending;
        let mixed = mixed?;
        if self.type_of(mixed).dtype == out.dtype { Ok(mixed) } else { self.cast(mixed, out.dtype) }
    }

    /// Attention weights times values: `[batch, queries, heads · head_dim]`.
    fn mix(&mut self, weights: Value, op: &Attention, inputs: &[Value], shape: &Shape) -> Result<Value> {
        let &[batch, heads, queries, keys] = self.shape_of(weights).axes() else { return Ok(weights) };
        let width = shape.columns() / heads;
        let weights = self.dropout(weights, op.dropout.map_or(0.0, |drop| drop.rate))?;
        let v = match inputs {
            [packed, ..] if op.packed => self.slice(*packed, 2, 2 * heads * width, 3 * heads * width)?,
            _ => inputs[2],
        };
        let v = self.by_heads(v, [batch, keys, op.kv_heads, width])?;
        let weights = self.reshape(weights, [batch, op.kv_heads, heads / op.kv_heads * queries, keys])?;
        let mixed = self.matmul(weights, v, false, false)?;
        let mixed = self.reshape(mixed, [batch, heads, queries, width])?;
        let mixed = self.transpose(mixed, &[0, 2, 1, 3])?;
        self.reshape(mixed, shape.clone())
    }

    /// `[batch, tokens, heads · width]` as `[batch, heads, tokens, width]`.
    pub(crate) fn by_heads(&mut self, x: Value, [batch, tokens, heads, width]: [usize; 4]) -> Result<Value> {
        let x = self.reshape(x, [batch, tokens, heads, width])?;
        self.transpose(x, &[0, 2, 1, 3])
    }
}

/// The scope of what edits are made of.
pub(crate) const EDITED: &str = ".edited";

/// How many letters must be changed, added or left out to make one word of another.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::edit_distance;

    #[test]
    fn distances_of_words() {
        assert_eq!(
            [("", "abc"), ("blocks.3", "block.3"), ("mlp", "mlp"), ("ab", "ba")].map(|(a, b)| edit_distance(a, b)),
            [3, 1, 0, 2]
        );
    }
}
