//! What kernels on the device need, and which node becomes which work.

use super::few_rows::{self, FewRows};
use super::launch::{Building, Launch};
use super::token_rows::TokenRows;
use super::{
    attention, losses, moves, norms, pointwise, pools, prepare_images, products, tables, top_k, unfold, updates,
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
            Lowering::Table => tables::workspace_bytes(graph, node),
            Lowering::Nothing | Lowering::Pointwise | Lowering::Move | Lowering::Images => 0,
            Lowering::TopK(_) | Lowering::TokenRows | Lowering::Unfold => 0,
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
    TokenRows,
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
        Op::Embedding(_) | Op::EmbeddingGradient(_) => Lowering::Table,
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
        Op::Rotary(_) | Op::WriteRows(_) => Lowering::TokenRows,
        Op::Unfold(_) | Op::Fold(_) => Lowering::Unfold,
        Op::Attention(_) | Op::AttentionWeights(_) | Op::AttentionGradient(_) => Lowering::Attention,
        Op::GradientNorm(_)
        | Op::AdamW(_)
        | Op::Sgd(_)
        | Op::Lamb(_)
        | Op::MuonDirection(_)
        | Op::MuonUpdate(_)
        | Op::Ema(_)
        | Op::AccumulateGradient(_) => Lowering::Update,
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

/// What a node becomes before neighbours are joined: in decoding, a launch takes longer than what it does.
enum Piece {
    Built(Built),
    FewRows(FewRows),
    TokenRows(TokenRows),
}

impl Piece {
    /// Both in one, if that is possible; `building` is the second's node.
    fn join(&self, next: &Piece, building: &Building) -> Option<Piece> {
        match (self, next) {
            (Piece::FewRows(one), Piece::FewRows(next)) => one.join(next).map(Piece::FewRows),
            (Piece::TokenRows(one), Piece::TokenRows(next)) => one.join(next, building).map(Piece::TokenRows),
            _ => None,
        }
    }

    fn finish(self) -> Vec<Built> {
        match self {
            Piece::Built(built) => vec![built],
            Piece::FewRows(few) => vec![Built::Launch(few.launch())],
            Piece::TokenRows(rows) if rows.can_be_one() => vec![Built::Launch(rows.launch())],
            Piece::TokenRows(rows) => rows.separate().iter().map(|part| Built::Launch(part.launch())).collect(),
        }
    }
}

/// The work of a whole plan in order, and the tables that it looks up. `choice` says which products can be done.
pub(super) fn work_of(plan: &Plan, choice: &dyn products::Choice) -> Result<(Vec<Task>, Vec<u8>)> {
    let mut tables = updates::Tables::default();
    let mut all: Vec<(usize, Piece)> = Vec::new();
    for index in 0..plan.graph().nodes().len() {
        let building = Building { plan, index };
        for piece in pieces_of(&building, choice, &mut tables)? {
            match all.last_mut().and_then(|(_, last)| Some((last.join(&piece, &building)?, last))) {
                Some((joined, last)) => *last = joined,
                None => all.push((index, piece)),
            }
        }
    }
    let tasks =
        all.into_iter().flat_map(|(node, piece)| piece.finish().into_iter().map(move |built| Task { node, built }));
    Ok((tasks.collect(), tables.bytes))
}

fn pieces_of(building: &Building, choice: &dyn products::Choice, tables: &mut updates::Tables) -> Result<Vec<Piece>> {
    let narrow = building.graph().precision() == Precision::Bf16;
    let launches = match lowering(&building.node().op) {
        Lowering::Nothing => Vec::new(),
        Lowering::Product => match products::build(building, choice)? {
            products::Work::Product { before, product, after } => {
                let built = before.into_iter().map(Built::Launch).chain([Built::Product(product)]);
                return Ok(built.chain(after.into_iter().map(Built::Launch)).map(Piece::Built).collect());
            }
            products::Work::Kernel(kernel) => vec![kernel],
            products::Work::FewRows(few) => return Ok(vec![Piece::FewRows(few)]),
        },
        Lowering::TokenRows => return Ok(vec![Piece::TokenRows(TokenRows::new(building))]),
        Lowering::Pointwise => pointwise::build(building),
        Lowering::Move => moves::build(building),
        Lowering::Table => tables::build(building),
        Lowering::Images => prepare_images::build(building),
        Lowering::Norm if few_rows::absorbs_norm(building) => Vec::new(),
        Lowering::Norm => norms::build(building),
        Lowering::Loss => losses::build(building),
        Lowering::TopK(k) => top_k::build(building, k),
        Lowering::Pool => pools::build(building),
        Lowering::Unfold => unfold::build(building),
        Lowering::Attention => attention::build(building, choice.chip()),
        Lowering::Update => updates::build(building, tables, narrow),
    };
    Ok(launches.into_iter().map(Built::Launch).map(Piece::Built).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cuda::products::testing::All;
    use crate::types::DType;
    use crate::{AttentionInputs, AttentionOptions, GradientOptions, Mode};

    /// The kernels' texts of training some layers with dropout on sequences.
    fn texts(layers: usize, batch: usize, precision: Precision) -> HashSet<String> {
        let mut graph = Graph::new(Mode::Training, precision);
        let numbers = graph.input("numbers", [batch, 32], DType::I32).unwrap();
        let table = graph.parameter("table", [1000, 64]).unwrap();
        let mut x = graph.embedding(table, numbers).unwrap();
        let mut wanted = vec![table];
        for layer in 0..layers {
            let mut parameter =
                |name: &str, shape: &[usize]| graph.parameter(&format!("{layer}.{name}"), shape).unwrap();
            let (gamma, beta) = (parameter("gamma", &[64]), parameter("beta", &[64]));
            let [first, second] = [parameter("first", &[192, 64]), parameter("second", &[64, 64])];
            wanted.extend([gamma, beta, first, second]);
            let normed = graph.layer_norm(x, gamma, beta, 1e-6).unwrap();
            let qkv = graph.linear(normed, first, None).unwrap();
            let options = AttentionOptions { heads: 4, dropout: 0.1, ..AttentionOptions::default() };
            let y = graph.attention(AttentionInputs::Packed(qkv), &options).unwrap();
            let y = graph.linear(y, second, None).unwrap();
            let y = graph.dropout(y, 0.1).unwrap();
            x = graph.add(x, y).unwrap();
        }
        let logits = graph.linear(x, table, None).unwrap();
        let targets = graph.input("targets", [batch, 32], DType::I32).unwrap();
        let loss = graph.cross_entropy(logits, targets, Default::default()).unwrap();
        let outputs = graph.gradients(loss, &wanted, GradientOptions::default()).unwrap();
        let plan = Plan::for_cuda(&graph, &outputs).unwrap();
        let (work, _) = work_of(&plan, &All).unwrap();
        let text = |task: Task| match task.built {
            Built::Launch(launch) => Some(launch.source),
            Built::Product(_) => None,
        };
        work.into_iter().filter_map(text).collect()
    }

    /// Compiling takes a fraction of a second per text, and a training run on sentences has dozens of shapes.
    #[test]
    fn layers_and_batches_of_any_size_share_their_kernels() {
        for precision in [Precision::F32, Precision::Bf16] {
            let some = texts(3, 256, precision);
            assert!(some.len() > 5);
            // Not compared with `assert_eq`, which would print all texts.
            assert!(texts(5, 256, precision) == some, "more layers have other kernels in {precision:?}");
            assert!(texts(3, 512, precision) == some, "larger batches have other kernels in {precision:?}");
        }
    }
}
