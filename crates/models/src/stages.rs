//! The stages of a model, derived from its graph: what each computes, its parameters and its cost. Nothing is run or
//! allocated.

use std::collections::{HashMap, HashSet};

use vitreous_engine::{Graph, Plan, Shape};

/// A named part of a model: `patch_embedding`, `blocks.3.attention`, `head`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its path.
    pub name: String,
    /// The shape of its output; of the largest, if there are several.
    pub shape: Shape,
    /// Number of scalar parameters.
    pub parameters: usize,
    /// Floating-point operations of the forward pass.
    pub flops: u64,
    /// Bytes written by its kernels, after fusion.
    pub activation_bytes: usize,
}

/// Of each stage, in order of first appearance, its name and the path of its result: the largest value that leaves it, the last of several.
pub fn results(graph: &Graph) -> Vec<(String, String)> {
    let leaving = leaving(graph);
    let mut found: Vec<(String, String, usize)> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for node in graph.nodes().iter().filter(|node| !node.op.is_leaf()) {
        let name = stage_of(&node.path);
        let Some(output) = node.outputs.first() else { continue };
        let index = *by_name.entry(name).or_insert_with(|| {
            found.push((name.to_string(), node.path.clone(), 0));
            found.len() - 1
        });
        let elements = output.shape.elements();
        if leaving.contains(node.path.as_str()) && elements >= found[index].2 {
            found[index] = (name.to_string(), node.path.clone(), elements);
        }
    }
    found.into_iter().map(|(name, path, _)| (name, path)).collect()
}

/// The stages in order of first appearance. A parameter belongs to the first stage that reads it.
pub fn stages(graph: &Graph, plan: &Plan) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let leaving = leaving(graph);
    let mut counted = vec![false; graph.parameters().len()];
    let by_parameter: HashMap<&str, usize> =
        graph.parameters().iter().enumerate().map(|(index, parameter)| (parameter.name.as_str(), index)).collect();
    for (index, node) in graph.nodes().iter().enumerate().filter(|(_, node)| !node.op.is_leaf()) {
        let name = stage_of(&node.path);
        let stage = *by_name.entry(name.to_string()).or_insert_with(|| {
            let (name, shape) = (name.to_string(), Shape::scalar());
            stages.push(Stage { name, shape, parameters: 0, flops: 0, activation_bytes: 0 });
            stages.len() - 1
        });
        let stage = &mut stages[stage];
        stage.flops += graph.node_flops(index);
        if let Some(output) = node.outputs.first().filter(|_| leaving.contains(node.path.as_str()))
            && output.shape.elements() >= stage.shape.elements()
        {
            stage.shape = output.shape.clone();
        }
        for &input in &node.inputs {
            let Some(&parameter) = by_parameter.get(graph.path(input)) else { continue };
            if !std::mem::replace(&mut counted[parameter], true) {
                stage.parameters += graph.parameters()[parameter].shape.elements();
            }
        }
    }
    for node in plan.graph().nodes().iter().filter(|node| !node.op.is_leaf()) {
        if let Some(&stage) = by_name.get(stage_of(&node.path)) {
            stages[stage].activation_bytes += node.outputs.iter().map(|output| output.bytes()).sum::<usize>();
        }
    }
    stages
}

/// The paths of the nodes whose result is read by another stage, or by none at all.
fn leaving(graph: &Graph) -> HashSet<&str> {
    let mut leaving: HashSet<&str> = graph.nodes().iter().map(|node| node.path.as_str()).collect();
    for node in graph.nodes() {
        let inside =
            node.inputs.iter().map(|&input| graph.path(input)).filter(|path| stage_of(path) == stage_of(&node.path));
        inside.for_each(|path| {
            leaving.remove(path);
        });
    }
    for node in graph.nodes() {
        let outside =
            node.inputs.iter().map(|&input| graph.path(input)).filter(|path| stage_of(path) != stage_of(&node.path));
        leaving.extend(outside);
    }
    leaving
}

/// The stage of a node's path: its scope up to the first component after a number.
pub fn stage_of(path: &str) -> &str {
    let Some((scope, _)) = path.rsplit_once('.') else { return path };
    let mut end = 0;
    let mut after_number = false;
    for part in scope.split('.') {
        let numbered = part.bytes().all(|byte| byte.is_ascii_digit());
        end += part.len() + usize::from(end > 0);
        if after_number && !numbered {
            break;
        }
        after_number = numbered;
    }
    &scope[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::families::preset;

    #[test]
    fn a_path_is_cut_to_what_a_reader_would_name() {
        assert_eq!(stage_of("blocks.3.attention.qkv.linear"), "blocks.3.attention");
        assert_eq!(stage_of("blocks.3.attention.attention"), "blocks.3.attention");
        assert_eq!(stage_of("blocks.3.add"), "blocks.3");
        assert_eq!(stage_of("head.linear"), "head");
        assert_eq!(stage_of("patchify"), "patchify");
    }

    #[test]
    fn a_stage_has_the_shape_of_the_largest_value_that_leaves_it() {
        let mut g = Graph::for_inference();
        let model = preset("vit_base_patch16_224").expect("known");
        let logits = model.build_result(&mut g, &Call::whole(1)).expect("builds");
        let plan = Plan::for_cpu_with_fixed_weights(&g, &[logits]).expect("plans");
        let stages = stages(&g, &plan);
        let shape = |name: &str| stages.iter().find(|stage| stage.name == name).expect(name).shape.axes().to_vec();
        // Both patches and the class token get a position, the class token last.
        assert_eq!(shape("position_embedding"), [1, 196, 768]);
        assert_eq!(shape("blocks.0.mlp"), [1, 197, 768], "not the wider layer inside");
        assert_eq!(shape("pooling"), [1, 768]);
    }

    #[test]
    fn the_result_of_a_stage_has_its_shape() {
        for name in ["vit_base_patch16_224", "vit_cifar", "transformer_tiny"] {
            let mut g = Graph::for_inference();
            let model = preset(name).expect("known");
            let logits = model.build_result(&mut g, &Call::whole(1).tokens(5).target(4)).expect("builds");
            let plan = Plan::for_cpu_with_fixed_weights(&g, &[logits]).expect("plans");
            let stages = stages(&g, &plan);
            let results = results(&g);
            assert_eq!(results.len(), stages.len(), "{name}");
            for (stage, (of, path)) in stages.iter().zip(&results) {
                assert_eq!(&stage.name, of);
                assert_eq!(&stage.shape, g.shape_of(g.find(path).expect("a value")), "{name}: {of}");
            }
        }
    }

    #[test]
    fn stages_of_the_small_model_have_the_counts_of_its_description() {
        let mut g = Graph::for_inference();
        let model = preset("vit_cifar").expect("known");
        let logits = model.build_result(&mut g, &Call::whole(1)).expect("builds");
        let plan = Plan::for_cpu_with_fixed_weights(&g, &[logits]).expect("plans");
        let stages = stages(&g, &plan);
        let parameters = |name: &str| stages.iter().find(|stage| stage.name == name).expect(name).parameters;
        assert_eq!(parameters("patch_embedding"), 24_704);
        for layer in 0..6 {
            let of = |part: &str| parameters(&format!("blocks.{layer}.{part}"));
            assert_eq!((of("attention"), of("mlp"), of("norm1") + of("norm2")), (66_048, 131_712, 512));
        }
        assert_eq!(parameters("head"), 1_290);
        assert_eq!(stages.iter().map(|stage| stage.parameters).sum::<usize>(), 1_215_626);
        assert_eq!(stages.iter().map(|stage| stage.flops).sum::<u64>(), g.flops());
        assert_eq!(stages.last().map(|stage| stage.shape.axes()), Some(&[1, 10][..]));
    }
}
