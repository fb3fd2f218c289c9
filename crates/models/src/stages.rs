//! The stages of a model, derived from its graph: what each computes, its parameters and its cost. Nothing is run or
//! allocated.

use std::collections::{HashMap, HashSet};

use vitreous_engine::{Graph, Op, Plan, Shape, Value};

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

/// A part of a stage that is computed at one go. A stage that other stages are computed in between of has several: a layer's stream is
/// added to behind its attention, and again behind its MLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is and what it costs. The last step of a stage has its name, those before it the path of their result.
    pub own: Stage,
    /// The stage that it belongs to.
    pub stage: String,
    /// The path of its result: the largest value that leaves it, the last of several.
    pub result: String,
    /// The steps whose values it reads, by name, in the order in which it does, and inputs by their paths.
    pub reads: Vec<String>,
    /// Whether it begins by adding two of them, as a residual stream does.
    pub joins: bool,
    /// Its nodes in the graph.
    pub nodes: Vec<usize>,
}

/// The stages in order of first appearance. A parameter belongs to the first stage that reads it.
pub fn stages(graph: &Graph, plan: &Plan) -> Vec<Stage> {
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let groups = Groups::of(graph, |index| {
        let count = by_name.len();
        *by_name.entry(stage_of(&graph.nodes()[index].path)).or_insert(count)
    });
    groups.stages(graph, Some(plan))
}

/// The steps of a model in the order in which they are computed; what kernels write is told where there is a plan.
pub fn steps(graph: &Graph, plan: Option<&Plan>) -> Vec<Step> {
    let groups = Groups::in_order(graph);
    let results = groups.results(graph);
    let own = groups.stages(graph, plan);
    let of_stage: Vec<String> =
        groups.nodes.iter().map(|nodes| stage_of(&graph.nodes()[nodes[0]].path).to_string()).collect();
    let is_last = |step: usize| !of_stage[step + 1..].contains(&of_stage[step]);
    let names: Vec<String> = (0..own.len())
        .map(|step| if is_last(step) { of_stage[step].clone() } else { graph.nodes()[results[step]].path.clone() })
        .collect();
    let step = |(index, own): (usize, Stage)| {
        let nodes = groups.nodes[index].clone();
        let sources = |node: usize| {
            let inputs = graph.nodes()[node].inputs.iter().copied();
            inputs.filter_map(|value| {
                let source = groups.place_of(graph, value)?;
                match (groups.of[source], &graph.nodes()[source].op) {
                    (Some(step), _) => (step != index).then(|| names[step].clone()),
                    (None, Op::Input(_)) => Some(graph.nodes()[source].path.clone()),
                    (None, _) => None,
                }
            })
        };
        let mut reads: Vec<String> = Vec::new();
        for name in nodes.iter().flat_map(|&node| sources(node)) {
            if !reads.contains(&name) {
                reads.push(name);
            }
        }
        let first = nodes[0];
        let joins = graph.nodes()[first].label() == "add" && sources(first).collect::<HashSet<_>>().len() == 2;
        let result = graph.nodes()[results[index]].path.clone();
        let own = Stage { name: names[index].clone(), ..own };
        Step { own, stage: of_stage[index].clone(), result, reads, joins, nodes }
    };
    own.into_iter().enumerate().map(step).collect()
}

/// Nodes that belong together, leaves left out.
struct Groups {
    /// Of each node its group.
    of: Vec<Option<usize>>,
    /// Of each group its nodes, in order.
    nodes: Vec<Vec<usize>>,
    /// The places of nodes by their paths.
    places: HashMap<String, usize>,
}

impl Groups {
    /// Groups by number; new ones come in order.
    fn of(graph: &Graph, mut group_of: impl FnMut(usize) -> usize) -> Groups {
        let mut groups = Groups { of: vec![None; graph.nodes().len()], nodes: Vec::new(), places: HashMap::new() };
        for (index, node) in graph.nodes().iter().enumerate() {
            groups.places.insert(node.path.clone(), index);
            if node.op.is_leaf() {
                continue;
            }
            let group = group_of(index);
            groups.nodes.resize_with(groups.nodes.len().max(group + 1), Vec::new);
            groups.of[index] = Some(group);
            groups.nodes[group].push(index);
        }
        groups
    }

    /// One for each run of nodes of a stage; but a run goes to the one before it of the same stage, where it reads nothing that was computed
    /// in between.
    fn in_order(graph: &Graph) -> Groups {
        let stage = |index: usize| stage_of(&graph.nodes()[index].path);
        let places: HashMap<&str, usize> =
            graph.nodes().iter().enumerate().map(|(index, node)| (node.path.as_str(), index)).collect();
        let order: Vec<usize> = (0..graph.nodes().len()).filter(|&index| !graph.nodes()[index].op.is_leaf()).collect();
        let mut group_of: HashMap<usize, usize> = HashMap::new();
        // Of each stage its last group, and the last group of all when it was begun.
        let mut last: HashMap<&str, usize> = HashMap::new();
        let mut count = 0;
        for run in order.chunk_by(|&a, &b| stage(a) == stage(b)) {
            let inputs = run.iter().flat_map(|&node| &graph.nodes()[node].inputs);
            let latest = inputs.filter_map(|&input| group_of.get(places.get(graph.path(input))?)).max();
            let group = match last.get(stage(run[0])) {
                Some(&group) if latest.is_none_or(|&latest| latest <= group) => group,
                _ => {
                    count += 1;
                    count - 1
                }
            };
            last.insert(stage(run[0]), group);
            group_of.extend(run.iter().map(|&node| (node, group)));
        }
        Groups::of(graph, |index| group_of[&index])
    }

    fn place_of(&self, graph: &Graph, value: Value) -> Option<usize> {
        self.places.get(graph.path(value)).copied()
    }

    /// Of each group the node of its result: the largest value that another group reads, or that none does; the last of several.
    fn results(&self, graph: &Graph) -> Vec<usize> {
        let mut is_read = vec![[false; 2]; self.of.len()];
        for (index, node) in graph.nodes().iter().enumerate() {
            for source in node.inputs.iter().filter_map(|&input| self.place_of(graph, input)) {
                is_read[source][usize::from(self.of[source] != self.of[index])] = true;
            }
        }
        let leaves = |&&node: &&usize| is_read[node][1] || !is_read[node][0];
        let elements =
            |&&node: &&usize| graph.nodes()[node].outputs.first().map_or(0, |output| output.shape.elements());
        self.nodes
            .iter()
            .map(|nodes| nodes.iter().filter(leaves).max_by_key(elements).copied().unwrap_or(nodes[0]))
            .collect()
    }

    fn stages(&self, graph: &Graph, plan: Option<&Plan>) -> Vec<Stage> {
        let shape =
            |node: usize| graph.nodes()[node].outputs.first().map_or(Shape::scalar(), |output| output.shape.clone());
        let mut stages: Vec<Stage> = self
            .results(graph)
            .into_iter()
            .map(|result| Stage {
                name: stage_of(&graph.nodes()[result].path).to_string(),
                shape: shape(result),
                parameters: 0,
                flops: 0,
                activation_bytes: 0,
            })
            .collect();
        let mut counted = vec![false; graph.parameters().len()];
        let by_parameter: HashMap<&str, usize> =
            graph.parameters().iter().enumerate().map(|(index, parameter)| (parameter.name.as_str(), index)).collect();
        for (index, node) in graph.nodes().iter().enumerate() {
            let Some(group) = self.of[index] else { continue };
            stages[group].flops += graph.node_flops(index);
            for &input in &node.inputs {
                let Some(&parameter) = by_parameter.get(graph.path(input)) else { continue };
                if !std::mem::replace(&mut counted[parameter], true) {
                    stages[group].parameters += graph.parameters()[parameter].shape.elements();
                }
            }
        }
        // Kernels have the path of a node that they compute; what a plan adds belongs to the stage that it is in.
        let by_stage: HashMap<&str, usize> = (0..self.of.len())
            .filter_map(|index| Some((stage_of(&graph.nodes()[index].path), self.of[index]?)))
            .collect();
        for node in plan.iter().flat_map(|plan| plan.graph().nodes()).filter(|node| !node.op.is_leaf()) {
            let own = self.places.get(&node.path).and_then(|&place| self.of[place]);
            if let Some(group) = own.or_else(|| by_stage.get(stage_of(&node.path)).copied()) {
                stages[group].activation_bytes += node.outputs.iter().map(|output| output.bytes()).sum::<usize>();
            }
        }
        stages
    }
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
    fn steps_come_in_the_order_of_computation_and_cost_what_stages_cost() {
        for name in ["vit_base_patch16_224", "vit_cifar", "transformer_tiny"] {
            let mut g = Graph::for_inference();
            let model = preset(name).expect("known");
            let logits = model.build_result(&mut g, &Call::whole(1).tokens(5).target(4)).expect("builds");
            let plan = Plan::for_cpu_with_fixed_weights(&g, &[logits]).expect("plans");
            let (stages, steps) = (stages(&g, &plan), steps(&g, Some(&plan)));
            let mut known: HashSet<&str> =
                g.nodes().iter().filter(|node| node.op.is_leaf()).map(|node| node.path.as_str()).collect();
            for step in &steps {
                assert_eq!(&step.own.shape, g.shape_of(g.find(&step.result).expect("a value")), "{name}: {step:?}");
                assert!(step.reads.iter().all(|read| known.contains(read.as_str())), "{name}: {step:?}");
                assert!(known.insert(&step.own.name), "{name}: {} twice", step.own.name);
            }
            let sums = |parts: &[Stage]| {
                let sum = |of: fn(&Stage) -> u64| parts.iter().map(of).sum::<u64>();
                [sum(|part| part.parameters as u64), sum(|part| part.flops), sum(|part| part.activation_bytes as u64)]
            };
            let owns: Vec<Stage> = steps.iter().map(|step| step.own.clone()).collect();
            assert_eq!(sums(&owns), sums(&stages), "{name}");
            let mut names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
            names.retain(|name| !steps.iter().any(|step| step.own.name == **name));
            assert!(names.is_empty(), "{name}: no step is called {names:?}");
        }
    }

    #[test]
    fn a_stream_is_a_step_behind_each_part_that_is_added_to_it() {
        let mut g = Graph::for_inference();
        let model = preset("vit_base_patch16_224").expect("known");
        model.build_result(&mut g, &Call::whole(1)).expect("builds");
        let steps = steps(&g, None);
        let of_block: Vec<&Step> = steps.iter().filter(|step| step.stage.split('.').nth(1) == Some("1")).collect();
        let names: Vec<&str> = of_block.iter().map(|step| step.own.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "blocks.1.norm1",
                "blocks.1.attention",
                of_block[2].result.as_str(),
                "blocks.1.norm2",
                "blocks.1.mlp",
                "blocks.1"
            ]
        );
        assert_eq!((of_block[2].stage.as_str(), of_block[5].stage.as_str()), ("blocks.1", "blocks.1"));
        assert_eq!(of_block[2].reads, ["blocks.0", "blocks.1.attention"]);
        assert_eq!(of_block[5].reads, [of_block[2].result.as_str(), "blocks.1.mlp"]);
        assert_eq!(
            of_block.iter().map(|step| step.joins).collect::<Vec<_>>(),
            [false, false, true, false, false, true]
        );
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
