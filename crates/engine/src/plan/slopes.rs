//! Keeps an activation's derivative times its dropout mask for the backward pass, instead of the activation's input.
//!
//! Both take the same memory, but the backward pass then only multiplies: it neither draws the mask again nor computes
//! the derivative while it waits for memory. Done where nothing else reads the activation's input, and in f32, where
//! storing the product of derivative and mask loses no precision.

use std::collections::HashSet;

use super::fuse::Fused;
use crate::graph::{Graph, Node, Value};
use crate::ops::{Activation, Drop, Step};
use crate::types::DType;

/// Rewrites the steps of all nodes that can store the derivative.
pub(super) fn keep_slopes(fused: &mut Fused) {
    let mut turned = HashSet::new();
    for backward in 0..fused.graph.nodes.len() {
        let Some((place, value)) = gradient_steps(&fused.graph, backward) else { continue };
        let wanted = fused.outputs.contains(&value) || fused.graph.parameter_gradients.contains(&Some(value));
        if wanted || readers(&fused.graph, value) != 1 {
            continue;
        }
        let steps = &fused.graph.nodes[backward].steps;
        let [Step::Dropout(drop), Step::ActivationGradient { activation, input }] = steps[place..place + 2] else {
            continue;
        };
        if share_slope(&mut fused.graph.nodes[value.node()], value.output(), activation, drop) {
            fused.graph.nodes[backward].steps.splice(place..place + 2, [Step::Multiply { input }]);
            turned.insert(value);
        }
    }
    // The activation's input is no longer stored there.
    fused.map.retain(|_, value| !turned.contains(value));
}

/// Finds a node whose steps are the gradients of dropout and of the activation before it: their index, and the
/// activation's f32 input.
fn gradient_steps(graph: &Graph, node: usize) -> Option<(usize, Value)> {
    let node = &graph.nodes[node];
    let pairs = node.steps.windows(2).enumerate();
    pairs.into_iter().find_map(|(place, pair)| match *pair {
        [Step::Dropout(_), Step::ActivationGradient { input, .. }] => {
            let value = node.inputs[input];
            (graph.type_of(value).dtype == DType::F32).then_some((place, value))
        }
        _ => None,
    })
}

/// Number of times that nodes read a value.
fn readers(graph: &Graph, value: Value) -> usize {
    graph.nodes.iter().flat_map(|node| &node.inputs).filter(|&&input| input == value).count()
}

/// Makes the node that stores an activation's input as `output`, then applies activation and dropout, store the
/// derivative there instead.
fn share_slope(node: &mut Node, output: usize, activation: Activation, drop: Drop) -> bool {
    let forward = [Step::Store { output }, Step::Activation(activation), Step::Dropout(drop)];
    let place = node.steps.windows(3).position(|steps| steps == forward);
    if let Some(place) = place {
        node.steps.splice(place..place + 3, [Step::DroppedActivation { activation, drop, slope: output }]);
    }
    place.is_some()
}
