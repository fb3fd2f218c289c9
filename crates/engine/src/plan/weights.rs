//! Weights that do not change, kept as kernels want them: a matrix that its product wants packed is packed once, when the weights
//! are taken in, and not in each run; what other kernels read is kept as it is.

use std::collections::HashMap;

use super::place::ALIGNMENT;
use super::{Chain, Target, seen};
use crate::blocks::BlockFormat;
use crate::graph::Graph;
use crate::ops::Op;
use crate::precision::Precision;
use crate::types::Shape;

/// What tells the forms of parameters apart: forms of one key are the same bytes, whichever plan wants them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WeightKey {
    /// The values as they are.
    Plain {
        /// The parameter's name.
        parameter: String,
        /// How many there are.
        floats: usize,
    },
    /// The second operand of a linear layer, in the order in which products read it.
    Packed {
        /// The parameter's name.
        parameter: String,
        /// The shape that the product sees.
        shape: Shape,
        /// The product's precision.
        precision: Precision,
        /// Floats of the packed form.
        floats: usize,
    },
    /// Quantised blocks, in the order in which products and embeddings read them.
    Quantised {
        /// The parameter's name.
        parameter: String,
        /// Their format.
        format: BlockFormat,
        /// Floats that they would fill.
        floats: usize,
    },
}

impl WeightKey {
    /// Floats that the form takes.
    pub fn floats(&self) -> usize {
        match self {
            WeightKey::Plain { floats, .. }
            | WeightKey::Packed { floats, .. }
            | WeightKey::Quantised { floats, .. } => *floats,
        }
    }
}

/// A form of a parameter that some kernel reads.
#[derive(Clone, Debug)]
pub(crate) struct WeightForm {
    pub key: WeightKey,
    /// The parameter, by its place in the graph.
    pub parameter: usize,
    /// A node whose kernel reads the packed or quantised form; `None` if it is plain.
    pub packed_for: Option<usize>,
}

/// The forms of parameters that a plan's kernels read.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixedWeights {
    /// Every form once.
    pub forms: Vec<WeightForm>,
    /// By parameter: its plain form; `None` if no kernel reads that.
    pub plain: Vec<Option<usize>>,
    /// By node: the packed or quantised form of its weight.
    pub packed: Vec<Option<usize>>,
    /// Floats of all forms together, each rounded up to a cache line.
    pub floats: usize,
}

impl FixedWeights {
    /// The forms that a graph's kernels want; `None` if they do not fit any memory.
    pub fn new(graph: &Graph, chains: &[Chain], target: &dyn Target) -> Option<Self> {
        let nodes = graph.nodes();
        let mut weights = FixedWeights {
            forms: Vec::new(),
            plain: vec![None; graph.parameters().len()],
            packed: vec![None; nodes.len()],
            floats: 0,
        };
        // Products that share a matrix share its packed form, unless one of them sees it in another shape.
        let mut known: HashMap<WeightKey, usize> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let seen = seen(graph, chains, index);
            let wanted = target.packed_weight_floats(seen, &seen.nodes()[index]);
            for (input, value) in node.inputs.iter().enumerate() {
                let Op::Parameter(op) = &nodes[graph.root_of(*value).node()].op else { continue };
                let (parameter, name) = (op.index, &graph.parameters()[op.index].name);
                let quantised = graph.quantised_weight(node).map(|(format, _)| format);
                let key = match (input, wanted, &node.op, quantised) {
                    (1, Some(floats), Op::Linear(_), Some(format))
                    | (0, Some(floats), Op::Embedding(_), Some(format)) => {
                        WeightKey::Quantised { parameter: name.clone(), format, floats }
                    }
                    (1, Some(floats), Op::Linear(linear), None) => WeightKey::Packed {
                        parameter: name.clone(),
                        shape: graph.shape_of(*value).clone(),
                        precision: linear.precision,
                        floats,
                    },
                    _ => WeightKey::Plain { parameter: name.clone(), floats: op.shape.elements() },
                };
                let packed_for = (!matches!(key, WeightKey::Plain { .. })).then_some(index);
                let form = match known.get(&key) {
                    Some(&form) => form,
                    None => {
                        known.insert(key.clone(), weights.forms.len());
                        weights.add(WeightForm { key, parameter, packed_for })?
                    }
                };
                match packed_for {
                    Some(node) => weights.packed[node] = Some(form),
                    None => weights.plain[parameter] = Some(form),
                }
            }
        }
        Some(weights)
    }

    fn add(&mut self, form: WeightForm) -> Option<usize> {
        let floats = form.key.floats().checked_next_multiple_of(ALIGNMENT / 4)?;
        self.floats = self.floats.checked_add(floats).filter(|&floats| floats <= isize::MAX as usize / 4)?;
        self.forms.push(form);
        Some(self.forms.len() - 1)
    }

    /// What distinguishes the forms, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &WeightKey> {
        self.forms.iter().map(|form| &form.key)
    }
}
