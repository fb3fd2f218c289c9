//! Gradients that are accumulated as soon as they are computed, and told of, so that they can travel while the backward pass goes on.
//!
//! A plan accumulates all gradients at its end. Here each is accumulated right behind the node that has computed it, which changes
//! no number: its memory is kept until the end anyway.

use super::updates;
use crate::graph::Graph;
use crate::ops::Op;
use crate::plan::Plan;

/// Told the number of a parameter and its accumulated gradient.
pub type GradientNote<'n> = dyn FnMut(usize, &[f32]) + 'n;

/// When each gradient is there.
pub(super) struct Notes<'n> {
    /// By node: those that accumulate what is there after it.
    after: Vec<Vec<usize>>,
    /// By node: whether it runs behind another one.
    moved: Vec<bool>,
    note: &'n mut dyn FnMut(usize, &[f32]),
}

impl<'n> Notes<'n> {
    pub fn new(plan: &Plan, note: &'n mut GradientNote) -> Notes<'n> {
        let graph = plan.graph();
        let count = graph.nodes().len();
        let (mut after, mut moved) = (vec![Vec::new(); count], vec![false; count]);
        for (index, node) in graph.nodes().iter().enumerate() {
            if !matches!(node.op, Op::AccumulateGradient(_)) {
                continue;
            }
            let computed = node.inputs.iter().map(|&input| graph.root_of(input).node()).max().unwrap_or(index);
            // The nodes of a chain end together.
            let chain = plan.chains().iter().find(|chain| (chain.first..=chain.last).contains(&computed));
            after[chain.map_or(computed, |chain| chain.last)].push(index);
            moved[index] = true;
        }
        Notes { after, moved, note }
    }

    /// Whether a node has run behind another one.
    pub fn has_run(&self, node: usize) -> bool {
        self.moved[node]
    }

    /// The nodes that run behind a node.
    pub fn ready_after(&self, node: usize) -> &[usize] {
        &self.after[node]
    }

    /// Tells of the gradients that were accumulated behind a node.
    pub fn tell(&mut self, node: usize, graph: &Graph, buffers: Option<&updates::Buffers>) {
        let Some(buffers) = buffers else { return };
        for &ready in &self.after[node] {
            let Op::AccumulateGradient(op) = &graph.nodes()[ready].op else { continue };
            let parameter = &graph.parameters()[op.parameter];
            let Some(start) = parameter.gradient_offset else { continue };
            // SAFETY: the kernel has ended, and no other writes this gradient in this run.
            let gradient = unsafe { buffers.gradients.range(start..start + parameter.shape.elements()) };
            (self.note)(op.parameter, gradient);
        }
    }
}
