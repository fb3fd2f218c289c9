//! Values of a run as matrices, made as small as somebody can see.

use vitreous_engine::Graph;

use super::Pass;
use super::attention::AttentionRead;
use crate::error::ExplainError;
use crate::taps::Projection;

/// Numbers with their shape.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveValue {
    /// Two axes, or three of attention weights: heads, queries, keys.
    pub shape: Vec<usize>,
    /// The numbers.
    pub numbers: Vec<f32>,
}

/// What a value is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveRange {
    /// The smallest number.
    pub low: f32,
    /// The largest.
    pub high: f32,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

impl LiveRange {
    /// Of numbers; masked scores and what is no number are left out.
    pub fn of(numbers: &[f32]) -> LiveRange {
        let known = || numbers.iter().copied().filter(|x| x.is_finite() && *x > super::attention::MASKED);
        let count = known().count().max(1) as f64;
        let mean = known().map(f64::from).sum::<f64>() / count;
        let square = known().map(|x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        let (low, high) = known().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        match low <= high {
            true => LiveRange { low, high, mean, deviation: square.sqrt() },
            false => LiveRange { low: 0.0, high: 0.0, mean: 0.0, deviation: 0.0 },
        }
    }
}

impl LiveValue {
    /// A value as a matrix: its last axis are the columns, and a batch of one is no axis.
    pub fn matrix(shape: &[usize], numbers: Vec<f32>) -> LiveValue {
        let columns = shape.last().copied().unwrap_or(1).max(1);
        LiveValue { shape: vec![numbers.len() / columns, columns], numbers }
    }

    /// Some rows of a matrix.
    pub fn rows(self, [from, to]: [usize; 2]) -> Result<LiveValue, ExplainError> {
        let [rows, columns] = self.shape[..] else { return Ok(self) };
        if from >= to || to > rows {
            return Err(ExplainError::NotThere { what: "row", asked: to.saturating_sub(1), count: rows });
        }
        Ok(LiveValue { shape: vec![to - from, columns], numbers: self.numbers[from * columns..to * columns].to_vec() })
    }

    /// At most so many rows and columns, each the mean of those that it stands for.
    pub fn fit(self, [most_rows, most_columns]: [usize; 2]) -> LiveValue {
        let axes = self.shape.len();
        let (rows, columns) = (self.shape[axes - 2], self.shape[axes - 1]);
        let (to_rows, to_columns) = (rows.min(most_rows.max(1)), columns.min(most_columns.max(1)));
        if (to_rows, to_columns) == (rows, columns) {
            return self;
        }
        let mut numbers = Vec::with_capacity(self.numbers.len() / (rows * columns).max(1) * to_rows * to_columns);
        for matrix in self.numbers.chunks_exact((rows * columns).max(1)) {
            shrink(matrix, [rows, columns], [to_rows, to_columns], &mut numbers);
        }
        let mut shape = self.shape;
        (shape[axes - 2], shape[axes - 1]) = (to_rows, to_columns);
        LiveValue { shape, numbers }
    }
}

/// Means of the parts of a matrix. A masked score is left out of a mean, unless all of the part are masked.
fn shrink(matrix: &[f32], [rows, columns]: [usize; 2], [to_rows, to_columns]: [usize; 2], to: &mut Vec<f32>) {
    for row in 0..to_rows {
        let of_rows = row * rows / to_rows..((row + 1) * rows / to_rows).max(row * rows / to_rows + 1);
        for column in 0..to_columns {
            let first = column * columns / to_columns;
            let of_columns = first..((column + 1) * columns / to_columns).max(first + 1);
            let (mut sum, mut count) = (0.0f64, 0usize);
            for row in of_rows.clone() {
                for &number in &matrix[row * columns..][of_columns.clone()] {
                    if number > super::attention::MASKED {
                        sum += f64::from(number);
                        count += 1;
                    }
                }
            }
            to.push(if count == 0 { super::attention::MASKED } else { (sum / count as f64) as f32 });
        }
    }
}

/// A part of an attention that has no value of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttentionPart {
    Query,
    Key,
    Value,
    Scores,
    Weights,
    Heads,
}

impl Pass<'_, '_> {
    /// A value by its path, whole, as a matrix; of an attention also `query`, `key`, `value`, `scores`, `weights` and `heads`, of one head where that is named.
    pub fn value(&mut self, path: &str, head: Option<usize>) -> Result<LiveValue, ExplainError> {
        let (path, head) = match split_head(path) {
            Some((path, in_path)) => (path, Some(in_path)),
            None => (path.to_string(), head),
        };
        if let Some((scope, part)) = part_of(&path)
            && let Some(index) = self.ready().attentions.iter().position(|one| one.scope == scope)
        {
            return self.attention_part(index, part, head);
        }
        match self.ready().value(&path) {
            Some((numbers, shape)) => Ok(LiveValue::matrix(shape, numbers.to_vec())),
            None => Err(unknown(&self.skeleton().graph, &path)),
        }
    }

    fn attention_part(
        &mut self,
        index: usize,
        part: AttentionPart,
        head: Option<usize>,
    ) -> Result<LiveValue, ExplainError> {
        let attention = &self.ready().attentions[index];
        let (heads, width) = (attention.tap.op.heads, attention.tap.head_width());
        let (queries, keys, scope) = (attention.queries, attention.keys, attention.scope.clone());
        if let Some(asked) = head.filter(|&head| head >= heads) {
            return Err(ExplainError::NotThere { what: "head", asked, count: heads });
        }
        let columns = head.map_or(0..heads, |head| head..head + 1);
        let projection = |projection: Projection, rows: usize| -> Result<LiveValue, ExplainError> {
            let read = AttentionRead { attention, executor: &self.ready().executor };
            let numbers = read.projection(projection, columns.clone())?;
            Ok(LiveValue { shape: vec![rows, numbers.len() / rows.max(1)], numbers })
        };
        match part {
            AttentionPart::Query => projection(Projection::Query, queries),
            AttentionPart::Key => projection(Projection::Key, keys),
            AttentionPart::Value => projection(Projection::Value, keys),
            AttentionPart::Scores => {
                let read = AttentionRead { attention, executor: &self.ready().executor };
                let numbers = read.scores(head.unwrap_or(0))?;
                Ok(LiveValue { shape: vec![queries, keys], numbers })
            }
            AttentionPart::Weights => {
                let weights = self.weights(index)?;
                Ok(match head {
                    Some(head) => LiveValue {
                        shape: vec![queries, keys],
                        numbers: weights[head * queries * keys..][..queries * keys].to_vec(),
                    },
                    None => LiveValue { shape: vec![heads, queries, keys], numbers: weights },
                })
            }
            AttentionPart::Heads => {
                let path = format!("{scope}.heads");
                let found = self.ready().value(&path);
                let (mixed, shape) = found.ok_or_else(|| unknown(&self.skeleton().graph, &path))?;
                let whole = LiveValue::matrix(shape, mixed.to_vec());
                let Some(head) = head else { return Ok(whole) };
                let rows = whole.numbers.chunks_exact(heads * width);
                let numbers = rows.flat_map(|row| row[head * width..(head + 1) * width].iter().copied()).collect();
                Ok(LiveValue { shape: vec![queries, width], numbers })
            }
        }
    }
}

fn unknown(graph: &Graph, path: &str) -> ExplainError {
    graph.unknown_path(path.to_string()).into()
}

/// `SCOPE.heads.5` and `SCOPE.heads.5.weights` as the path of all heads and a head.
fn split_head(path: &str) -> Option<(String, usize)> {
    let (rest, is_weights) = path.strip_suffix(".weights").map_or((path, false), |rest| (rest, true));
    let (scope, head) = rest.rsplit_once(".heads.")?;
    let head = head.parse().ok()?;
    Some((format!("{scope}.{}", if is_weights { "weights" } else { "heads" }), head))
}

/// The scope and the part of an attention that a path means. An op of that name (`SCOPE.query`, a linear layer) has another one: its path ends
/// with the op.
fn part_of(path: &str) -> Option<(&str, AttentionPart)> {
    let (scope, last) = path.rsplit_once('.')?;
    let part = match last {
        "query" => AttentionPart::Query,
        "key" => AttentionPart::Key,
        "value" => AttentionPart::Value,
        "scores" => AttentionPart::Scores,
        "weights" => AttentionPart::Weights,
        "heads" => AttentionPart::Heads,
        _ => return None,
    };
    Some((scope, part))
}

/// Whether a path is a part of an attention that every plan keeps.
pub(super) fn is_always_kept(path: &str, scopes: &[String]) -> bool {
    let whole = split_head(path).map_or_else(|| path.to_string(), |(whole, _)| whole);
    part_of(&whole).is_some_and(|(scope, _)| scopes.iter().any(|known| known == scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_made_smaller_by_means() {
        let value = LiveValue::matrix(&[1, 4, 2], (0..8).map(|x| x as f32).collect());
        assert_eq!(value.shape, [4, 2]);
        let small = value.clone().fit([2, 1]);
        assert_eq!((small.shape, small.numbers), (vec![2, 1], vec![1.5, 5.5]));
        assert_eq!(value.clone().fit([9, 9]), value);
        let three = value.clone().fit([3, 2]);
        assert_eq!(three.numbers, [0.0, 1.0, 2.0, 3.0, 5.0, 6.0]);
        assert_eq!(value.clone().rows([1, 2]).map(|rows| rows.numbers).ok(), Some(vec![2.0, 3.0]));
        assert!(value.rows([3, 5]).is_err());
    }

    #[test]
    fn masked_scores_are_no_part_of_means_and_ranges() {
        let masked = super::super::attention::MASKED;
        let value = LiveValue::matrix(&[2, 2], vec![1.0, masked, masked, masked]).fit([2, 1]);
        assert_eq!(value.numbers, [1.0, masked]);
        let range = LiveRange::of(&[1.0, 3.0, masked, f32::NAN]);
        assert_eq!((range.low, range.high, range.mean, range.deviation), (1.0, 3.0, 2.0, 1.0));
    }
}
