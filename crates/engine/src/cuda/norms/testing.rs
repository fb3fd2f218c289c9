//! For tests of row kernels: plans a graph, builds the launches of some of its nodes and compiles them.

use std::collections::HashSet;

use super::super::compile::testing::{ARCHITECTURES, compile_all};
use super::super::launch::{Argument, Buffer, Building, Launch};
use crate::graph::{Graph, Node, Value};
use crate::ops::Op;
use crate::plan::{Plan, Target};
use crate::types::Shape;

/// The result of a check.
pub(in crate::cuda) struct Checked {
    pub launches: usize,
    /// Labels of the nodes that became launches, with their steps.
    pub labels: Vec<String>,
}

struct TestTarget<'w> {
    workspace_bytes: &'w dyn Fn(&Graph, &Node) -> usize,
    narrow: bool,
}

impl Target for TestTarget<'_> {
    fn workspace_bytes(&self, graph: &Graph, node: &Node) -> usize {
        (self.workspace_bytes)(graph, node)
    }

    fn rounds_operands(&self, _op: &Op, _first: &Shape, _second: &Shape) -> bool {
        self.narrow
    }

    fn scratch_bytes(&self, _graph: &Graph, _node: &Node) -> usize {
        0
    }
}

/// Builds the launches of the nodes selected by `takes`, checks their sizes and compiles their sources.
pub(in crate::cuda) fn check(
    graph: &Graph,
    outputs: &[Value],
    takes: &dyn Fn(&Op) -> bool,
    workspace_bytes: &dyn Fn(&Graph, &Node) -> usize,
    build: &dyn Fn(&Building) -> Vec<Launch>,
) -> Checked {
    let own = |graph: &Graph, node: &Node| if takes(&node.op) { workspace_bytes(graph, node) } else { 0 };
    let narrow = graph.precision() == crate::Precision::Bf16;
    let plan = Plan::new(graph, outputs, &TestTarget { workspace_bytes: &own, narrow }).unwrap();
    let mut checked = Checked { launches: 0, labels: Vec::new() };
    let mut texts = HashSet::new();
    for (index, node) in plan.graph().nodes().iter().enumerate().filter(|(_, node)| takes(&node.op)) {
        checked.labels.push(node.label());
        for launch in build(&Building { plan: &plan, index }) {
            check_sizes(&plan, &launch);
            checked.launches += 1;
            texts.insert(launch.source);
        }
    }
    compile_all(&texts, &ARCHITECTURES);
    checked
}

fn check_sizes(plan: &Plan, launch: &Launch) {
    assert!(launch.block.is_multiple_of(32) && launch.block <= 1024, "{} has {} threads", launch.entry, launch.block);
    assert!(launch.grid[0] > 0 && launch.grid[1..] == [1, 1], "{} has the grid {:?}", launch.entry, launch.grid);
    assert!(launch.source.contains(&format!("{}(", launch.entry)), "{} is not in its text", launch.entry);
    for argument in &launch.arguments {
        if let Argument::Address(place) = argument
            && place.buffer == Buffer::Arena
        {
            assert!(place.byte < plan.arena_bytes(), "{} reaches past the arena", launch.entry);
        }
    }
}
