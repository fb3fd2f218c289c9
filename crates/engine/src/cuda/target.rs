//! What kernels on the device need, and which node becomes which work.

use super::launch::{Building, Launch};
use super::{
    attention, losses, moves, norms, pointwise, pools, prepare_images, products, rotary, tables, top_k, unfold, updates,
};
use crate::error::Result;
use crate::graph::{Graph, Node, Value};
use crate::ops::Op;
use crate::plan::{Plan, Target};
use crate::precision::Precision;
use crate::types::Shape;

/// The needs of the device's kernels.
struct CudaTarget;

impl Target for CudaTarget {
    fn workspace_bytes(&self, graph: &Graph, node: &Node) -> usize {
        match lowering(&node.op) {
            Lowering::Product => products::workspace_bytes(graph, node),
            Lowering::Norm => norms::workspace_bytes(graph, node),
            Lowering::Loss => losses::workspace_bytes(graph, node),
            Lowering::Pool => pools::workspace_bytes(graph, node),
            Lowering::Attention => attention::workspace_bytes(graph, node),
            Lowering::Update => updates::workspace_bytes(graph, node),
            Lowering::Nothing | Lowering::Pointwise | Lowering::Move | Lowering::Table | Lowering::Images => 0,
            Lowering::TopK(_) | Lowering::Rotary | Lowering::Unfold => 0,
        }
    }

    fn rounds_operands(&self, op: &Op, _first: &Shape, _second: &Shape) -> bool {
        let precision = match op {
            Op::Linear(op) => op.precision,
            Op::LinearInputGradient(op) => op.precision,
            Op::LinearWeightGradient(op) => op.precision,
            Op::MatMul(op) => op.precision,
            _ => return false,
        };
        precision == Precision::Bf16
    }

    fn scratch_bytes(&self, _graph: &Graph, _node: &Node) -> usize {
        0
    }

    fn forms_chains(&self) -> bool {
        false
    }

    fn rounds_once(&self) -> bool {
        true
    }
}

impl Plan {
    /// Plans for a GPU: see [`Plan::new`].
    pub fn for_cuda(graph: &Graph, outputs: &[Value]) -> Result<Plan> {
        Plan::new(graph, outputs, &CudaTarget)
    }
}

/// Ops by the file that builds them.
enum Lowering {
    Nothing,
    Product,
    Pointwise,
    Move,
    Table,
    Images,
    Norm,
    Loss,
    TopK(usize),
    Pool,
    Rotary,
    Unfold,
    Attention,
    Update,
}

fn lowering(op: &Op) -> Lowering {
    match op {
        Op::Input(_) | Op::Parameter(_) | Op::Constant(_) | Op::Cache(_) | Op::StoredGradient(_) | Op::Reshape(_) => {
            Lowering::Nothing
        }
        Op::Linear(_) | Op::LinearInputGradient(_) | Op::LinearWeightGradient(_) | Op::MatMul(_) => Lowering::Product,
        Op::Pointwise(_) => Lowering::Pointwise,
        Op::Broadcast(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Patchify(_)
        | Op::Unpatchify(_) => Lowering::Move,
        Op::Embedding(_) | Op::EmbeddingGradient(_) | Op::WriteRows(_) => Lowering::Table,
        Op::PrepareImages(_) => Lowering::Images,
        Op::LayerNorm(_) | Op::LayerNormGradient(_) | Op::RmsNorm(_) | Op::RmsNormGradient(_) => Lowering::Norm,
        Op::Softmax(_)
        | Op::SoftmaxGradient(_)
        | Op::CrossEntropy(_)
        | Op::CrossEntropyGradient(_)
        | Op::BinaryCrossEntropy(_)
        | Op::BinaryCrossEntropyGradient(_) => Lowering::Loss,
        Op::TopK(op) => Lowering::TopK(op.k),
        Op::SumLeading(_)
        | Op::MeanTokens(_)
        | Op::MeanTokensGradient(_)
        | Op::MaxTokens(_)
        | Op::MaxTokensGradient(_) => Lowering::Pool,
        Op::Rotary(_) => Lowering::Rotary,
        Op::Unfold(_) | Op::Fold(_) => Lowering::Unfold,
        Op::Attention(_) | Op::AttentionWeights(_) | Op::AttentionGradient(_) => Lowering::Attention,
        Op::GradientNorm(_) | Op::AdamW(_) | Op::Sgd(_) | Op::Lamb(_) | Op::Ema(_) | Op::AccumulateGradient(_) => {
            Lowering::Update
        }
    }
}

/// Whether a node is a matrix product.
pub(super) fn is_product(op: &Op) -> bool {
    matches!(lowering(op), Lowering::Product)
}

/// What a node becomes, a piece of it.
pub(super) struct Task {
    pub node: usize,
    pub built: Built,
}

/// What is run.
pub(super) enum Built {
    Launch(Launch),
    Product(Box<products::Product>),
}

/// The work of a whole plan in order, and the tables that it looks up. `choice` says which products can be done.
pub(super) fn work_of(plan: &Plan, choice: &dyn products::Choice) -> Result<(Vec<Task>, Vec<u8>)> {
    let mut tables = updates::Tables::default();
    let mut all = Vec::new();
    let narrow = plan.graph().precision() == Precision::Bf16;
    for (index, node) in plan.graph().nodes().iter().enumerate() {
        let building = Building { plan, index };
        let launches = match lowering(&node.op) {
            Lowering::Nothing => Vec::new(),
            Lowering::Product => match products::build(&building, choice)? {
                products::Work::Product { product, after } => {
                    all.push(Task { node: index, built: Built::Product(product) });
                    after
                }
                products::Work::Kernel(kernel) => vec![kernel],
            },
            Lowering::Pointwise => pointwise::build(&building),
            Lowering::Move => moves::build(&building),
            Lowering::Table => tables::build(&building),
            Lowering::Images => prepare_images::build(&building),
            Lowering::Norm => norms::build(&building),
            Lowering::Loss => losses::build(&building),
            Lowering::TopK(k) => top_k::build(&building, k),
            Lowering::Pool => pools::build(&building),
            Lowering::Rotary => rotary::build(&building),
            Lowering::Unfold => unfold::build(&building),
            Lowering::Attention => attention::build(&building, choice.chip()),
            Lowering::Update => updates::build(&building, &mut tables, narrow),
        };
        all.extend(launches.into_iter().map(|launch| Task { node: index, built: Built::Launch(launch) }));
    }
    Ok((all, tables.bytes))
}
