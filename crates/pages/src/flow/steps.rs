//! The steps of a model, read off its graph: what each computes, from which steps before it, and which tables and tokens join.

use std::collections::{HashMap, HashSet};

use vitreous_engine::ops::Op;
use vitreous_engine::{Graph, Node, Shape};
use vitreous_models::stages::stage_of;

use crate::folding::name_inside;

/// Ops of one stage that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStep {
    /// The path of its stage.
    pub stage: String,
    /// What it is made of.
    pub inside: Inside,
}

/// All of a step but its place: two blocks are the same if these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The ops' names, in their order.
    pub operations: Vec<String>,
    /// The numbers of those ops that captions describe.
    pub details: Vec<Detail>,
    /// The shape of what leaves it last.
    pub shape: Shape,
    /// Its trained numbers. A parameter belongs to the step that first reads it.
    pub parameters: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// What comes from the steps before.
    pub inputs: Vec<Edge>,
    /// What joins from the side: tables and tokens that are no weight of an op.
    pub joining: Vec<Joining>,
}

/// The numbers of an op that a caption describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Images are cut into patches: rows and columns of patches, height and width of a patch in pixels.
    Patches { grid: [usize; 2], patch: [usize; 2] },
    /// A linear layer: width of its input and of its output.
    Linear { inputs: usize, outputs: usize },
    /// Attention: number of heads, width of a head, tokens that each token attends to.
    Attention { heads: usize, width: usize, keys: usize },
    /// One token of a sequence is taken.
    OneToken,
    /// The mean over so many tokens.
    Mean { tokens: usize },
    /// The maximum over so many tokens.
    Max { tokens: usize },
}

/// What a step takes of one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// How many steps before.
    pub back: usize,
    /// Of what shape.
    pub shape: Shape,
    /// How many values of that shape.
    pub values: usize,
}

/// A trained or fixed value that joins the flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Its name within its block.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Whether it is trained, else fixed.
    pub trained: bool,
}

/// The steps of a graph, its inputs first.
pub fn steps(graph: &Graph) -> Vec<FlowStep> {
    let mut reader =
        Reader { graph, steps: Vec::new(), step_of: HashMap::new(), taken: HashSet::new(), leaves: HashMap::new() };
    for index in 0..graph.nodes().len() {
        reader.read(index);
    }
    reader.steps
}

struct Reader<'a> {
    graph: &'a Graph,
    steps: Vec<FlowStep>,
    /// Which step computes the value of a path.
    step_of: HashMap<&'a str, usize>,
    /// The paths that each step took already: query, key and value are of one.
    taken: HashSet<(usize, &'a str)>,
    /// The parameters and constants, by their paths.
    leaves: HashMap<&'a str, Leaf>,
}

struct Leaf {
    shape: Shape,
    trained: bool,
    read: bool,
}

impl<'a> Reader<'a> {
    fn read(&mut self, index: usize) {
        let node = &self.graph.nodes()[index];
        let shape = node.outputs.first().map_or_else(Shape::scalar, |output| output.shape.clone());
        match node.op {
            Op::Input(_) => {
                self.step_of.insert(&node.path, self.steps.len());
                self.steps.push(FlowStep::new(&node.path, shape));
                return;
            }
            Op::Parameter(_) | Op::Constant(_) => {
                let trained = matches!(node.op, Op::Parameter(_));
                self.leaves.insert(&node.path, Leaf { shape, trained, read: false });
                return;
            }
            _ => {}
        }
        let stage = stage_of(&node.path);
        if self.steps.last().is_none_or(|step| step.stage != stage) {
            self.steps.push(FlowStep::new(stage, shape.clone()));
        }
        let here = self.steps.len() - 1;
        self.step_of.insert(&node.path, here);
        let step = &mut self.steps[here].inside;
        step.operations.push(node.label());
        step.details.extend(detail(self.graph, node));
        step.shape = shape;
        step.flops += self.graph.node_flops(index);
        for &input in &node.inputs {
            let path = self.graph.path(input);
            if let Some(leaf) = self.leaves.get_mut(path) {
                step.take(path, leaf);
            } else if let Some(&from) = self.step_of.get(path).filter(|&&from| from != here)
                && self.taken.insert((here, path))
            {
                step.take_from(here - from, self.graph.shape_of(input));
            }
        }
    }
}

/// What a caption says about a node's op, where it says anything.
fn detail(graph: &Graph, node: &Node) -> Option<Detail> {
    let axes = |input: usize| node.inputs.get(input).map_or(&[][..], |&value| graph.shape_of(value).axes());
    let columns = node.outputs.first().map_or(0, |output| output.shape.columns());
    let tokens = |axes: &[usize]| axes.len().checked_sub(2).map_or(1, |axis| axes[axis]);
    match &node.op {
        Op::Patchify(op) => match axes(0) {
            [_, _, height, width] => {
                Some(Detail::Patches { grid: [height / op.patch[0], width / op.patch[1]], patch: op.patch })
            }
            _ => None,
        },
        Op::Linear(_) => axes(0).last().map(|&inputs| Detail::Linear { inputs, outputs: columns }),
        Op::Attention(op) => {
            let keys = tokens(axes(if op.packed { 0 } else { 1 }));
            Some(Detail::Attention { heads: op.heads, width: columns / op.heads.max(1), keys })
        }
        Op::Slice(op) if op.end == op.start + 1 => Some(Detail::OneToken),
        Op::MeanTokens(_) => Some(Detail::Mean { tokens: tokens(axes(0)) }),
        Op::MaxTokens(_) => Some(Detail::Max { tokens: tokens(axes(0)) }),
        _ => None,
    }
}

impl FlowStep {
    fn new(stage: &str, shape: Shape) -> FlowStep {
        let (operations, details, inputs, joining) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        FlowStep {
            stage: stage.to_string(),
            inside: Inside { operations, details, shape, parameters: 0, flops: 0, inputs, joining },
        }
    }
}

impl Inside {
    /// A leaf is counted where it is first read, and shown where it is no weight of an op.
    fn take(&mut self, path: &str, leaf: &mut Leaf) {
        if leaf.trained && !std::mem::replace(&mut leaf.read, true) {
            self.parameters += leaf.shape.elements();
        }
        let name = name_inside(path);
        let joining = Joining { name: name.to_string(), shape: leaf.shape.clone(), trained: leaf.trained };
        if !name.contains('.') && !self.joining.contains(&joining) {
            self.joining.push(joining);
        }
    }

    fn take_from(&mut self, back: usize, shape: &Shape) {
        match self.inputs.iter_mut().find(|edge| edge.back == back && edge.shape == *shape) {
            Some(edge) => edge.values += 1,
            None => self.inputs.push(Edge { back, shape: shape.clone(), values: 1 }),
        }
    }

    /// Whether it only adds what came before, scaled or not: a residual sum.
    pub fn is_residual(&self) -> bool {
        self.inputs.len() > 1 && self.operations.iter().all(|name| name == "add" || name == "multiply")
    }
}

#[cfg(test)]
mod tests {
    use vitreous_models::{Call, preset};

    use super::*;
    use crate::folding::block_of;

    fn of(name: &str) -> (Graph, Vec<FlowStep>) {
        let mut graph = Graph::for_inference();
        preset(name).expect(name).build(&mut graph, &Call::whole(1)).expect("builds");
        let steps = steps(&graph);
        (graph, steps)
    }

    /// The first block's steps, each with how far back its inputs are.
    fn first_block(name: &str) -> Vec<(String, Vec<usize>)> {
        let inside = |step: &FlowStep| step.inside.inputs.iter().map(|edge| edge.back).collect();
        let of_block = |step: &FlowStep| (name_inside(&step.stage).to_string(), inside(step));
        of(name).1.iter().filter(|step| block_of(&step.stage) == Some("blocks.0")).map(of_block).collect()
    }

    fn expected(steps: [(&str, &[usize]); 6]) -> Vec<(String, Vec<usize>)> {
        steps.map(|(name, back)| (name.to_string(), back.to_vec())).to_vec()
    }

    #[test]
    fn residual_sums_go_around_what_the_order_of_norms_says() {
        let norm_first = [
            ("norm1", &[1][..]),
            ("attention", &[1]),
            ("residual", &[3, 1]),
            ("norm2", &[1]),
            ("mlp", &[1]),
            ("residual", &[3, 1]),
        ];
        assert_eq!(first_block("vit_base_patch16_224"), expected(norm_first));
        let norm_last = [
            ("attention", &[1][..]),
            ("residual", &[2, 1]),
            ("norm1", &[1]),
            ("mlp", &[1]),
            ("residual", &[2, 1]),
            ("norm2", &[1]),
        ];
        assert_eq!(first_block("vit_cifar"), expected(norm_last));
    }

    #[test]
    fn tokens_and_positions_join_and_nothing_is_counted_twice() {
        for name in ["vit_base_patch16_224", "vit_small_patch14_reg4_dinov2", "deit_tiny_distilled_patch16_224"] {
            let (graph, steps) = of(name);
            let all: usize = graph.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
            assert_eq!(steps.iter().map(|step| step.inside.parameters).sum::<usize>(), all, "{name}");
            assert_eq!(steps.iter().map(|step| step.inside.flops).sum::<u64>(), graph.flops(), "{name}");
        }
        let (_, steps) = of("vit_small_patch14_reg4_dinov2");
        let joining = |stage: &str| {
            let step = steps.iter().find(|step| step.stage == stage).expect(stage);
            step.inside.joining.iter().map(|joining| joining.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(joining("position_embedding"), ["positions"]);
        assert_eq!(joining("prefix_tokens"), ["class_token", "register_tokens"]);
        assert_eq!(joining("blocks.3"), ["layer_scale1"]);
        assert!(joining("blocks.3.attention").is_empty());
    }
}
