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
        match kind(&node.op) {
            Kind::Product => products::workspace_bytes(graph, node),
            Kind::Norm => norms::workspace_bytes(graph, node),
            Kind::Loss => losses::workspace_bytes(graph, node),
            Kind::Pool => pools::workspace_bytes(graph, node),
            Kind::Attention => attention::workspace_bytes(graph, node),
            Kind::Update => updates::workspace_bytes(graph, node),
            Kind::Nothing | Kind::Pointwise | Kind::Move | Kind::Table | Kind::Images => 0,
            Kind::TopK(_) | Kind::Rotary | Kind::Unfold => 0,
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
enum Kind {
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

fn kind(op: &Op) -> Kind {
    match op {
        Op::Input(_) | Op::Parameter(_) | Op::Constant(_) | Op::Cache(_) | Op::StoredGradient(_) | Op::Reshape(_) => {
            Kind::Nothing
        }
        Op::Linear(_) | Op::LinearInputGradient(_) | Op::LinearWeightGradient(_) | Op::MatMul(_) => Kind::Product,
        Op::Pointwise(_) => Kind::Pointwise,
        Op::Broadcast(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Patchify(_)
        | Op::Unpatchify(_) => Kind::Move,
        Op::Embedding(_) | Op::EmbeddingGradient(_) | Op::WriteRows(_) => Kind::Table,
        Op::PrepareImages(_) => Kind::Images,
        Op::LayerNorm(_) | Op::LayerNormGradient(_) | Op::RmsNorm(_) | Op::RmsNormGradient(_) => Kind::Norm,
        Op::Softmax(_)
        | Op::SoftmaxGradient(_)
        | Op::CrossEntropy(_)
        | Op::CrossEntropyGradient(_)
        | Op::BinaryCrossEntropy(_)
        | Op::BinaryCrossEntropyGradient(_) => Kind::Loss,
        Op::TopK(op) => Kind::TopK(op.k),
        Op::SumLeading(_)
        | Op::MeanTokens(_)
        | Op::MeanTokensGradient(_)
        | Op::MaxTokens(_)
        | Op::MaxTokensGradient(_) => Kind::Pool,
        Op::Rotary(_) => Kind::Rotary,
        Op::Unfold(_) | Op::Fold(_) => Kind::Unfold,
        Op::Attention(_) | Op::AttentionWeights(_) | Op::AttentionGradient(_) => Kind::Attention,
        Op::GradientNorm(_) | Op::AdamW(_) | Op::Sgd(_) | Op::Lamb(_) | Op::Ema(_) | Op::AccumulateGradient(_) => {
            Kind::Update
        }
    }
}

/// Whether a node is a matrix product.
pub(super) fn is_product(op: &Op) -> bool {
    matches!(kind(op), Kind::Product)
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
        let launches = match kind(&node.op) {
            Kind::Nothing => Vec::new(),
            Kind::Product => match products::build(&building, choice)? {
                products::Work::Product { product, after } => {
                    all.push(Task { node: index, built: Built::Product(product) });
                    after
                }
                products::Work::Kernel(kernel) => vec![kernel],
            },
            Kind::Pointwise => pointwise::build(&building),
            Kind::Move => moves::build(&building),
            Kind::Table => tables::build(&building),
            Kind::Images => prepare_images::build(&building),
            Kind::Norm => norms::build(&building),
            Kind::Loss => losses::build(&building),
            Kind::TopK(k) => top_k::build(&building, k),
            Kind::Pool => pools::build(&building),
            Kind::Rotary => rotary::build(&building),
            Kind::Unfold => unfold::build(&building),
            Kind::Attention => attention::build(&building, choice.chip()),
            Kind::Update => updates::build(&building, &mut tables, narrow),
        };
        all.extend(launches.into_iter().map(|launch| Task { node: index, built: Built::Launch(launch) }));
    }
    Ok((all, tables.bytes))
}
