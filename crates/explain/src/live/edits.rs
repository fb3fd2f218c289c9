//! Edits of values inside a model that is watched, in two kinds.
//!
//! Zeroing, scaling and taking over from another input are `x · factor + offset` with numbers for every place of the value, which are inputs
//! of the plan: one plan does them all, and without an edit (1 and −0) it computes the same bits as a plan without. A [`Switch`] is a value
//! with such inputs. Where numbers are clamped, the plan is another one for each clamp.

use std::ops::Range;
use std::sync::Arc;

use vitreous_engine::{Edit, EditValues, Intervention};

use super::plan::Skeleton;
use crate::error::ExplainError;

/// What is done with a value.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveChange {
    /// It is zero.
    Zero,
    /// It is multiplied.
    Scale(f32),
    /// Its numbers are limited.
    Clamp {
        /// The least.
        low: f32,
        /// The greatest.
        high: f32,
    },
    /// It is that of another run: the numbers of the value that the path names.
    From(Arc<[f32]>),
}

/// An edit of a named value.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEdit {
    /// Its path, as of [`vitreous_engine::Intervention`].
    pub path: String,
    /// What is done.
    pub change: LiveChange,
    /// For which tokens; `None`: all.
    pub tokens: Option<Vec<usize>>,
}

impl LiveEdit {
    /// The same as the command does it.
    pub fn intervention(&self) -> Intervention {
        let edit = match &self.change {
            LiveChange::Zero => Edit::Zero,
            LiveChange::Scale(factor) => Edit::Scale(*factor),
            LiveChange::Clamp { low, high } => Edit::Clamp { low: *low, high: *high },
            LiveChange::From(values) => Edit::Replace(EditValues::Numbers(values.clone())),
        };
        Intervention { path: self.path.clone(), edit, tokens: self.tokens.clone() }
    }

    /// The command does edits in this order, whatever the order of its options.
    pub(crate) fn rank(&self) -> usize {
        match self.change {
            LiveChange::Zero => 0,
            LiveChange::Scale(_) => 1,
            LiveChange::Clamp { .. } => 2,
            LiveChange::From(_) => 3,
        }
    }
}

/// A part of a whole value: all of it, or what belongs to one head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path of the whole value.
    pub whole: String,
    /// Which of how many heads: of weights the axis before the tokens, else a part of the columns.
    pub head: Option<(usize, usize)>,
    pub is_weights: bool,
}

impl Place {
    /// Where a path lies in a model. One that it does not have is an error that names those most like it.
    pub fn of(skeleton: &Skeleton, path: &str) -> Result<Place, ExplainError> {
        let unknown = || ExplainError::from(skeleton.graph.unknown_path(path.to_string()));
        let heads_of = |scope: &str| {
            let found = skeleton.attentions.iter().find(|one| one.scope == scope);
            found.map(|one| one.tap.op.heads)
        };
        let (rest, is_weights) = path.strip_suffix(".weights").map_or((path, false), |rest| (rest, true));
        if let Some((scope, number)) = rest.rsplit_once(".heads.")
            && let Some(heads) = heads_of(scope)
        {
            let head = number.parse::<usize>().ok().filter(|head| *head < heads).ok_or_else(unknown)?;
            let whole = format!("{scope}.{}", if is_weights { "weights" } else { "heads" });
            return Ok(Place { whole, head: Some((head, heads)), is_weights });
        }
        if is_weights && heads_of(rest).is_some() {
            return Ok(Place { whole: path.to_string(), head: None, is_weights: true });
        }
        match skeleton.editable.binary_search_by(|known| known.as_str().cmp(path)) {
            Ok(_) => Ok(Place { whole: path.to_string(), head: None, is_weights: false }),
            Err(_) => Err(unknown()),
        }
    }

    /// The places of the numbers of this part and of some tokens in a value of this shape, token by token: `f(place in the value, place in the
    /// part)`.
    pub fn each(
        &self,
        path: &str,
        shape: &[usize],
        tokens: Option<&[usize]>,
        mut f: impl FnMut(usize, usize),
    ) -> Result<(), ExplainError> {
        let refused =
            |rule: String| ExplainError::from(vitreous_engine::Error::Intervention { path: path.to_string(), rule });
        let columns = shape.last().copied().unwrap_or(1);
        let rows = shape.len().checked_sub(2).map_or(1, |axis| shape[axis]);
        let blocks = shape.iter().product::<usize>() / (rows * columns).max(1);
        if let Some(tokens) = tokens {
            if shape.len() < 3 {
                return Err(refused(format!("it is {shape:?} and has no tokens to choose from")));
            }
            if let Some(token) = tokens.iter().find(|&&token| token >= rows) {
                return Err(refused(format!("there is no token {token}: there are {rows}, counted from 0")));
            }
        }
        let (of_blocks, of_columns): (Range<usize>, Range<usize>) = match self.head {
            Some((head, _)) if self.is_weights => (head..head + 1, 0..columns),
            Some((head, heads)) => {
                let width = columns / heads.max(1);
                (0..blocks, head * width..(head + 1) * width)
            }
            None => (0..blocks, 0..columns),
        };
        let mut part = 0;
        for block in of_blocks {
            for row in 0..rows {
                let is_edited = tokens.is_none_or(|tokens| tokens.contains(&row));
                for column in of_columns.clone() {
                    if is_edited {
                        f((block * rows + row) * columns + column, part);
                    }
                    part += 1;
                }
            }
        }
        Ok(())
    }
}

/// A value with inputs for its edits.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    /// The value's path.
    pub path: String,
    /// Whether its inputs are other than 1 and −0 since the last run.
    pub is_set: bool,
}

impl Switch {
    pub fn new(path: &str) -> Switch {
        // Inputs begin as zeros.
        Switch { path: path.to_string(), is_set: true }
    }

    pub fn factor(&self) -> String {
        format!("factor of {}", self.path)
    }

    pub fn offset(&self) -> String {
        format!("offset of {}", self.path)
    }

    /// The ops that a graph is built with.
    pub fn interventions(&self) -> [Intervention; 2] {
        let input = |name: String| EditValues::Input(name);
        [
            Intervention::new(&self.path, Edit::Multiply(input(self.factor()))),
            Intervention::new(&self.path, Edit::Add(input(self.offset()))),
        ]
    }
}

/// Numbers of a switch: those of no edit, with edits done one after the other.
pub(crate) fn set(factor: &mut f32, offset: &mut f32, change: &LiveChange, part: usize) {
    match change {
        LiveChange::Zero => (*factor, *offset) = (0.0, 0.0),
        LiveChange::Scale(by) => {
            *factor *= by;
            *offset *= by;
        }
        LiveChange::From(values) => (*factor, *offset) = (0.0, values.get(part).copied().unwrap_or(0.0)),
        LiveChange::Clamp { .. } => {}
    }
}
