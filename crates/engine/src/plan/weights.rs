//! Weights that do not change, kept as kernels want them: a matrix that its product wants packed is packed once, when the weights
//! are taken in, and not in each run; what other kernels read is kept as it is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use super::place::ALIGNMENT;
use super::{Chain, Target, seen};
use crate::graph::Graph;
use crate::ops::Op;
use crate::types::Shape;

/// Where each weight lies in the buffer that an executor keeps for them, in floats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FixedWeights {
    /// By parameter: its values as they are; `None` if no kernel reads those.
    pub plain: Vec<Option<usize>>,
    /// By node: its second input, packed.
    pub packed: Vec<Option<Range<usize>>>,
    /// Floats of all together.
    pub floats: usize,
}

impl FixedWeights {
    /// Gives each weight its place; `None` if they do not fit any memory.
    pub fn new(graph: &Graph, chains: &[Chain], target: &dyn Target) -> Option<Self> {
        let nodes = graph.nodes();
        let mut places =
            FixedWeights { plain: vec![None; graph.parameters().len()], packed: vec![None; nodes.len()], floats: 0 };
        // Products that share a matrix share its packed form, unless one of them sees it in another shape.
        let mut packed: HashMap<(usize, &Shape, usize), Range<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let seen = seen(graph, chains, index);
            let wanted = target.packed_weight_floats(seen, &seen.nodes()[index]);
            for (input, value) in node.inputs.iter().enumerate() {
                let Op::Parameter(parameter) = &nodes[graph.root_of(*value).node()].op else { continue };
                match (input, wanted) {
                    (1, Some(floats)) => {
                        let place = match packed.entry((parameter.index, graph.shape_of(*value), floats)) {
                            Entry::Occupied(shared) => shared.get().clone(),
                            Entry::Vacant(new) => new.insert(places.take(floats)?).clone(),
                        };
                        places.packed[index] = Some(place);
                    }
                    _ if places.plain[parameter.index].is_none() => {
                        places.plain[parameter.index] = Some(places.take(parameter.shape.elements())?.start);
                    }
                    _ => {}
                }
            }
        }
        Some(places)
    }

    fn take(&mut self, floats: usize) -> Option<Range<usize>> {
        let start = self.floats;
        let end = start.checked_add(floats)?.checked_next_multiple_of(ALIGNMENT / 4)?;
        self.floats = Some(end).filter(|&end| end <= isize::MAX as usize / 4)?;
        Some(start..start + floats)
    }
}
