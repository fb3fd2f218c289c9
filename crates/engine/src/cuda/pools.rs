//! Sums over leading axes, pooling over tokens, and their gradients.

use super::launch::{Argument, Building, Launch, blocks, c_type, source};
use super::norms::rows::vector_of;
use super::steps::float;
use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::types::{DType, Shape};

/// Threads per block.
const BLOCK: usize = 256;
/// Target number of blocks for a sum over many rows, and the least rows per thread.
const SPREAD: usize = 132 * 4;
const LEAST_ROWS: usize = 4;

/// Rows in groups, each of which becomes one row: see `kernels/columns.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    rows: usize,
    columns: usize,
    /// Rows per group; the last may have fewer.
    group: usize,
    vector: usize,
    /// Threads along a row.
    lanes: usize,
}

impl Groups {
    fn new(rows: usize, columns: usize, group: usize, vector: usize) -> Groups {
        Groups { rows, columns, group, vector, lanes: (columns / vector).next_power_of_two().min(32) }
    }

    /// Threads that share the rows of a group.
    fn slices(&self) -> usize {
        BLOCK / self.lanes
    }

    /// Blocks that share the columns of a group.
    fn tiles(&self) -> usize {
        self.columns.div_ceil(self.lanes * self.vector)
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.group)
    }

    fn constants(&self) -> Vec<(&'static str, String)> {
        vec![
            ("COLUMNS", self.columns.to_string()),
            ("VECTOR", self.vector.to_string()),
            ("LANES", self.lanes.to_string()),
            ("SLICES", self.slices().to_string()),
        ]
    }

    /// A launch with one block per group and tile. The last arguments are the numbers of rows, of all and of a group.
    fn launch(&self, source: String, entry: &'static str, mut arguments: Vec<Argument>) -> Launch {
        arguments.extend([self.rows, self.group].map(|count| Argument::U64(count as u64)));
        let grid = [(self.count() * self.tiles()) as u32, 1, 1];
        Launch { source, entry, grid, block: BLOCK as u32, shared_bytes: 0, arguments }
    }

    /// A launch of `sum_rows`, with each group's sum multiplied by a factor.
    fn sum(&self, from: Argument, dtype: DType, to: Argument, factor: f32) -> Launch {
        let mut constants = self.constants();
        let turns = self.group.div_ceil(self.slices());
        constants.extend([("X_TYPE", c_type(dtype)), ("FACTOR", float(factor)), ("TURNS", turns.to_string())]);
        let kernel = format!("{}{}", include_str!("kernels/columns.cu"), include_str!("kernels/pool.cu"));
        self.launch(source(&constants, "", &kernel), "sum_rows", vec![from, to])
    }
}

/// The first kernel of a sum: with enough groups to keep the device busy.
fn leading_groups(graph: &Graph, node: &Node, columns: usize) -> Groups {
    let rows = graph.shape_of(node.inputs[0]).elements() / columns;
    let whole = Groups::new(rows, columns, rows, vector_of(graph, node, columns));
    let most = rows.div_ceil(whole.slices() * LEAST_ROWS);
    let count = (SPREAD / whole.tiles()).clamp(1, most);
    Groups { group: rows.div_ceil(count), ..whole }
}

/// Bytes between the two kernels of a sum: the sums of groups.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    match &node.op {
        Op::SumLeading(op) => row_sum_bytes(graph, node, op.shape.elements()),
        _ => 0,
    }
}

/// Bytes between the two kernels of [`row_sum`].
pub(super) fn row_sum_bytes(graph: &Graph, node: &Node, columns: usize) -> usize {
    match leading_groups(graph, node, columns).count() {
        1 => 0,
        groups => 4 * groups * columns,
    }
}

/// The launches of a sum, a pooling, or a pooling's gradient.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    match &building.node().op {
        Op::SumLeading(op) => row_sum(building, op.shape.elements(), building.output(0), building.workspace()),
        Op::MeanTokens(_) => vec![mean_tokens(building)],
        Op::MaxTokens(_) => vec![max_tokens(building)],
        Op::MeanTokensGradient(op) => vec![gradient(building, op.tokens, "mean_tokens_gradient")],
        Op::MaxTokensGradient(op) => vec![gradient(building, op.tokens, "max_tokens_gradient")],
        _ => unreachable!("a sum or a pooling"),
    }
}

/// Sums the rows of the node's first input.
pub(super) fn row_sum(building: &Building, columns: usize, to: Argument, workspace: Argument) -> Vec<Launch> {
    let groups = leading_groups(building.graph(), building.node(), columns);
    let dtype = building.input_type(0).dtype;
    if groups.count() == 1 {
        return vec![groups.sum(building.input(0), dtype, to, 1.0)];
    }
    // Few columns per block: many threads share the groups.
    let again = Groups::new(groups.count(), columns, groups.count(), 1);
    vec![groups.sum(building.input(0), dtype, workspace, 1.0), again.sum(workspace, DType::F32, to, 1.0)]
}

/// The rows of `[.., tokens, columns]`, with the tokens of a sample as a group.
fn tokens_of(building: &Building) -> Groups {
    let shape: &Shape = &building.input_type(0).shape;
    let tokens = shape.axes()[shape.rank() - 2];
    let vector = vector_of(building.graph(), building.node(), shape.columns());
    Groups::new(shape.rows(), shape.columns(), tokens, vector)
}

fn mean_tokens(building: &Building) -> Launch {
    let tokens = tokens_of(building);
    tokens.sum(building.input(0), building.input_type(0).dtype, building.output(0), 1.0 / tokens.group as f32)
}

fn max_tokens(building: &Building) -> Launch {
    let tokens = tokens_of(building);
    let mut constants = tokens.constants();
    constants.push(("X_TYPE", c_type(building.input_type(0).dtype)));
    let kernel = format!("{}{}", include_str!("kernels/columns.cu"), include_str!("kernels/max_tokens.cu"));
    let arguments = vec![building.input(0), building.output(0), building.output(1)];
    tokens.launch(source(&constants, "", &kernel), "max_tokens", arguments)
}

/// The gradient of a pooling; the maximum's also reads the token indices.
fn gradient(building: &Building, tokens: usize, entry: &'static str) -> Launch {
    let dx = building.output_type(0);
    let columns = dx.shape.columns();
    let width = vector_of(building.graph(), building.node(), columns);
    let count = dx.shape.elements() / width;
    let constants = [
        ("COLUMNS", columns.to_string()),
        ("VECTOR", width.to_string()),
        ("COUNT", format!("{count}ull")),
        ("BLOCK", BLOCK.to_string()),
        ("TOKENS", format!("{tokens}ull")),
        ("FACTOR", float(1.0 / tokens as f32)),
        ("DY_TYPE", c_type(dx.dtype)),
    ];
    let mut arguments: Vec<Argument> = (0..building.node().inputs.len()).map(|index| building.input(index)).collect();
    arguments.push(building.output(0));
    Launch {
        source: source(&constants, "", include_str!("kernels/pool_gradient.cu")),
        entry,
        grid: [blocks(count, BLOCK), 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GradientOptions;
    use crate::cuda::launch::vector;
    use crate::cuda::norms::testing::check;

    fn is_own(op: &Op) -> bool {
        matches!(
            op,
            Op::SumLeading(_)
                | Op::MeanTokens(_)
                | Op::MeanTokensGradient(_)
                | Op::MaxTokens(_)
                | Op::MaxTokensGradient(_)
        )
    }

    #[test]
    fn sums_compile_and_long_ones_take_two_kernels() {
        let shapes: [(&[usize], &[usize], usize); 6] = [
            (&[3, 5, 7], &[], 1),
            (&[5000, 10], &[10], 2),
            (&[8, 197, 64], &[197, 64], 1),
            (&[15, 3000, 768], &[768], 2),
            (&[2, 3, 100], &[100], 1),
            (&[100_000], &[], 2),
        ];
        for (from, to, launches) in shapes {
            for dtype in [DType::F32, DType::Bf16] {
                let mut graph = Graph::for_training();
                let x = graph.input("x", from, dtype).unwrap();
                let sum = graph.sum_leading(x, to).unwrap();
                let checked = check(&graph, &[sum], &is_own, &workspace_bytes, &build);
                assert_eq!(checked.launches, launches, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn pooling_and_its_gradients_compile() {
        for (tokens, columns) in [(1, 1), (5, 3), (197, 768), (64, 100), (3, 2000)] {
            for dtype in [DType::F32, DType::Bf16] {
                let mut graph = Graph::for_training();
                let x = graph.input("x", [2, 3, tokens, columns], dtype).unwrap();
                let mean = graph.mean_tokens(x).unwrap();
                let max = graph.max_tokens(x).unwrap();
                let seed = graph.input("seed", [2, 3, columns], dtype).unwrap();
                let mut outputs = vec![mean, max];
                outputs.extend(graph.gradients_from(mean, seed, &[x], GradientOptions::default()).unwrap());
                outputs.extend(graph.gradients_from(max, seed, &[x], GradientOptions::default()).unwrap());
                assert_eq!(check(&graph, &outputs, &is_own, &workspace_bytes, &build).launches, 4);
            }
        }
    }

    #[test]
    fn groups_have_all_rows_and_columns_once() {
        for (rows, columns, group) in [(1, 1, 1), (50_432, 768, 96), (7, 33, 3), (591, 768, 197), (9, 25_000_000, 9)] {
            let groups = Groups::new(rows, columns, group, vector(columns));
            assert_eq!(groups.lanes * groups.slices(), BLOCK);
            assert!(columns.is_multiple_of(groups.vector));
            assert!((groups.count() - 1) * group < rows && groups.count() * group >= rows);
            assert!(groups.tiles() * groups.lanes * groups.vector >= columns);
        }
    }
}
