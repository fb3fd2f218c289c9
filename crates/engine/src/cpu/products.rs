//! Matrix products of the graph: linear layers, their gradients, and batched products.

use std::ops::Range;

use super::gemm::{self, Operand, Product};
use super::kernel::Kernel;
use super::memory::{FloatShared, FloatSlice, Shared};
use super::quantised;
use super::reductions;
use super::steps::Steps;
use super::team::Team;
use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::precision::Precision;
use crate::types::Shape;
use crate::weights::WeightView;

/// A product's sizes and how its operands are stored.
struct ProductLayout {
    shape: gemm::Shape,
    precision: Precision,
    /// Row and column stride of A and of B.
    a: [usize; 2],
    b: [usize; 2],
}

impl ProductLayout {
    fn of(graph: &Graph, node: &Node) -> Option<ProductLayout> {
        let shape = |index: usize| node.inputs.get(index).map(|&input| graph.shape_of(input));
        ProductLayout::of_shapes(&node.op, shape(0)?, shape(1)?)
    }

    fn of_shapes(op: &Op, first: &Shape, second: &Shape) -> Option<ProductLayout> {
        let (rows, columns) = (first.rows(), first.columns());
        let one =
            |rows, columns, depth| gemm::Shape { rows, columns, depth, batch: 1, shared_b: true, prepacked: false };
        Some(match op {
            Op::Linear(op) => {
                let (out, depth) = (second.rows(), second.columns());
                ProductLayout { shape: one(rows, out, depth), precision: op.precision, a: [depth, 1], b: [1, depth] }
            }
            Op::LinearInputGradient(op) => {
                let (out, into) = (second.rows(), second.columns());
                ProductLayout { shape: one(rows, into, out), precision: op.precision, a: [out, 1], b: [into, 1] }
            }
            Op::LinearWeightGradient(op) => {
                let (out, into) = (columns, second.columns());
                ProductLayout { shape: one(out, into, rows), precision: op.precision, a: [1, out], b: [into, 1] }
            }
            Op::MatMul(op) => {
                let (batch, m, n, k) = op.sizes(first, second)?;
                let (rows, columns, depth, shared_b) = (m, n, k, batch == 1);
                let shape = gemm::Shape { rows, columns, depth, batch, shared_b, prepacked: false };
                let a = if op.transpose_a { [1, m] } else { [k, 1] };
                let b = if op.transpose_b { [1, k] } else { [n, 1] };
                ProductLayout { shape, precision: op.precision, a, b }
            }
            _ => return None,
        })
    }

    /// The same, with a second operand that was packed when the weights were taken in.
    fn prepacked(self) -> ProductLayout {
        ProductLayout { shape: gemm::Shape { prepacked: true, ..self.shape }, ..self }
    }

    /// Whether the product is one of great depth: a weight gradient, which has no steps.
    fn divides_depth(&self, op: &Op) -> bool {
        matches!(op, Op::LinearWeightGradient(_)) && gemm::deep::suits(&self.shape)
    }
}

/// Whether a product rounds its operands to bf16.
pub(super) fn rounds_operands(op: &Op, first: &Shape, second: &Shape, packs_few_rows: bool) -> bool {
    let layout = ProductLayout::of_shapes(op, first, second);
    let layout = match op {
        Op::Linear(_) if packs_few_rows => layout.map(ProductLayout::prepacked),
        _ => layout,
    };
    layout.is_some_and(|layout| gemm::rounds_operands(&layout.shape, layout.precision))
}

/// Floats of workspace: packed B, and behind it the partial sums of a bias gradient.
pub(super) fn workspace_floats(graph: &Graph, node: &Node) -> usize {
    let product = ProductLayout::of(graph, node).map_or(0, |layout| match layout.divides_depth(&node.op) {
        true => gemm::deep::workspace_floats(&layout.shape, layout.precision),
        false => gemm::workspace_floats(&layout.shape, layout.precision),
    });
    product.next_multiple_of(16) + bias_workspace(graph, node)
}

fn bias_workspace(graph: &Graph, node: &Node) -> usize {
    let divided = ProductLayout::of(graph, node).is_some_and(|layout| layout.divides_depth(&node.op));
    match &node.op {
        Op::LinearWeightGradient(op) if op.bias && !divided => {
            let dy = &graph.type_of(node.inputs[0]).shape;
            reductions::sum_workspace(dy.rows(), dy.columns())
        }
        _ => 0,
    }
}

/// Floats of scratch: the product's own, and behind them a piece of a row for the steps; or those of a bias gradient, which
/// comes after the product.
pub(super) fn scratch_floats(graph: &Graph, node: &Node, packs_few_rows: bool) -> usize {
    let layout = match packs_few_rows && has_fixed_weight(graph, node) {
        true => ProductLayout::of(graph, node).map(ProductLayout::prepacked),
        false => ProductLayout::of(graph, node),
    };
    let Some(ProductLayout { shape, precision, .. }) = layout else { return 0 };
    match &node.op {
        Op::LinearWeightGradient(_) if gemm::deep::suits(&shape) => gemm::deep::scratch_floats(&shape, precision),
        Op::LinearWeightGradient(op) if op.bias => {
            gemm::scratch_floats(&shape, precision).max(reductions::sum_scratch(shape.rows))
        }
        _ if node.steps.is_empty() => gemm::scratch_floats(&shape, precision),
        _ => gemm::scratch_floats(&shape, precision) + gemm::piece_columns(&shape, precision),
    }
}

/// The weight gradient, and the bias gradient if it was fused in.
pub(super) fn weight_gradient(kernel: &Kernel, team: &mut Team) {
    let layout = ProductLayout::of(kernel.graph, kernel.node).expect("a product");
    let bias = kernel.node.outputs.len() > 1;
    if layout.divides_depth(&kernel.node.op) {
        let product = product_of(&layout, kernel.input(0), kernel.input(1), kernel.output(0));
        let workspace = kernel.workspace();
        // SAFETY: this kernel alone has its workspace.
        let workspace = unsafe { workspace.range(0..workspace.len()) };
        let bias = bias.then(|| kernel.output_raw(1));
        return gemm::deep::multiply(team, &product, kernel.output_raw(0), bias, workspace);
    }
    multiply(kernel, team);
    if bias {
        let dy = &kernel.input_type(0).shape;
        let workspace = kernel.workspace();
        let own = workspace.len() - reductions::sum_workspace(dy.rows(), dy.columns());
        // SAFETY: the part of the workspace behind packed B, which this kernel alone has.
        let partial = unsafe { workspace.range(own..workspace.len()) };
        reductions::sum_rows(team, kernel.input(0), dy.rows(), dy.columns(), partial, kernel.output_raw(1));
    }
}

/// A node's product of given operands into an output.
fn product_of<'a>(
    layout: &ProductLayout,
    a: FloatSlice<'a>,
    b: FloatSlice<'a>,
    output: FloatShared<'a>,
) -> Product<'a> {
    let operand = |values: FloatSlice<'a>, [row_stride, column_stride]: [usize; 2]| Operand {
        values,
        offset: 0,
        row_stride,
        column_stride,
    };
    let shape = layout.shape;
    Product {
        rows: shape.rows,
        columns: shape.columns,
        depth: shape.depth,
        a: operand(a, layout.a),
        b: operand(b, layout.b),
        precision: layout.precision,
        output,
        batch: shape.batch,
        a_batch_stride: shape.rows * shape.depth,
        b_batch_stride: if shape.batch == 1 { 0 } else { shape.depth * shape.columns },
        prepacked: shape.prepacked,
    }
}

/// Packs B for all tiles of a chain, if the node is a product and B was not packed before.
pub(super) fn pack(kernel: &Kernel, team: &mut Team) {
    let Some(layout) = ProductLayout::of(kernel.graph, kernel.node) else { return };
    if kernel.memory.packed_weight(kernel.index).is_some() {
        return;
    }
    let workspace = kernel.workspace();
    // SAFETY: no tile runs yet, and this node alone has its workspace.
    pack_into(team, &layout, kernel.input(1), unsafe { workspace.range(0..workspace.len()) });
}

fn pack_into(team: &mut Team, layout: &ProductLayout, b: FloatSlice, packed: &mut [f32]) {
    let nothing = FloatShared::F32(Shared::new(&mut []));
    gemm::pack(team, &product_of(layout, FloatSlice::F32(&[]), b, nothing), packed);
}

/// Whether a node is a linear layer whose weight is a parameter.
fn has_fixed_weight(graph: &Graph, node: &Node) -> bool {
    let weight = node.inputs.get(1).map(|&weight| &graph.nodes()[graph.root_of(weight).node()].op);
    matches!((&node.op, weight), (Op::Linear(_), Some(Op::Parameter(_))))
}

/// Floats of a linear layer's packed weight, if it is a parameter and the product wants it packed.
pub(super) fn packed_weight_floats(graph: &Graph, node: &Node, packs_few_rows: bool) -> Option<usize> {
    let layout = ProductLayout::of(graph, node).filter(|_| has_fixed_weight(graph, node))?;
    let layout = if packs_few_rows { layout.prepacked() } else { layout };
    Some(gemm::workspace_floats(&layout.shape, layout.precision)).filter(|&floats| floats > 0)
}

/// Packs a linear layer's weight once for all runs.
pub(super) fn pack_weight(team: &mut Team, graph: &Graph, node: &Node, weight: &WeightView, packed: &mut [f32]) {
    let Some(layout) = ProductLayout::of(graph, node).map(ProductLayout::prepacked) else { return };
    match weight {
        WeightView::F32(values) => pack_into(team, &layout, FloatSlice::F32(values), packed),
        WeightView::Bf16(values) => pack_into(team, &layout, FloatSlice::Bf16(values), packed),
        WeightView::F16(_) | WeightView::Blocks(..) => {
            // Row i of the weight `[out, in]` is column i of B.
            let read = |rows: Range<usize>, to: &mut [f32]| weight.read_into(rows.start * layout.shape.depth, to);
            gemm::pack_columns(team, &layout.shape, layout.precision, read, packed);
        }
    }
}

/// Any product, with its steps.
pub(super) fn multiply(kernel: &Kernel, team: &mut Team) {
    if let Some(weight) = kernel.quantised_weight() {
        return quantised::multiply(kernel, team, weight);
    }
    let packed_weight = kernel.memory.packed_weight(kernel.index);
    let layout = ProductLayout::of(kernel.graph, kernel.node).expect("a product");
    let layout = if packed_weight.is_some() { layout.prepacked() } else { layout };
    let b = if packed_weight.is_some() { FloatSlice::F32(&[]) } else { kernel.input(1) };
    let product = product_of(&layout, kernel.input(0), b, kernel.output(0));
    let steps = Steps::new(kernel);
    let apply =
        |row: usize, column: usize, values: &mut [f32], spare: &mut [f32]| steps.apply(row, column, values, spare);
    let finish: Option<&gemm::Finish> = if steps.is_empty() { None } else { Some(&apply) };
    if let Some(packed) = packed_weight {
        return gemm::multiply_packed(team, &product, packed, finish);
    }
    if kernel.tile.is_some() {
        return gemm::multiply_packed(team, &product, kernel.memory.read_workspace(kernel.index), finish);
    }
    let packed = gemm::workspace_floats(&layout.shape, layout.precision);
    // SAFETY: this kernel alone has its workspace.
    let workspace = unsafe { kernel.workspace().range(0..packed) };
    gemm::multiply(team, &product, workspace, finish);
}
