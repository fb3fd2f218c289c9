//! The k largest numbers of each row, one block per row.

use super::launch::{Building, Launch, c_type, source};

/// Rows of at least so many numbers have blocks of so many threads: a thread that gave its best looks through its share again.
const THREADS: [(usize, u32); 2] = [(8192, 1024), (0, 256)];

/// The launch of a node.
pub(super) fn build(building: &Building, k: usize) -> Vec<Launch> {
    let shape = &building.input_type(0).shape;
    let columns = shape.columns();
    let threads = THREADS.iter().find(|(least, _)| columns >= *least).map_or(256, |(_, threads)| *threads);
    let constants = [
        ("FROM", c_type(building.input_type(0).dtype)),
        ("COLUMNS", columns.to_string()),
        ("K", k.to_string()),
        ("THREADS", threads.to_string()),
    ];
    let arguments = vec![building.input(0), building.output(0), building.output(1)];
    vec![Launch {
        source: source(&constants, "", include_str!("kernels/top_k.cu")),
        entry: "top_k",
        grid: [shape.rows() as u32, 1, 1],
        block: threads,
        shared_bytes: 0,
        arguments,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::norms::testing::check;
    use crate::graph::Graph;
    use crate::ops::Op;
    use crate::types::DType;

    #[test]
    fn top_k_compiles_for_every_length_of_rows_and_format() {
        for (columns, k) in [(1, 1), (10, 3), (8191, 2), (32_000, 8)] {
            for dtype in [DType::F32, DType::Bf16] {
                let mut graph = Graph::for_inference();
                let x = graph.input("x", [3, columns], dtype).unwrap();
                let (values, indices) = graph.top_k(x, k).unwrap();
                let takes = |op: &Op| matches!(op, Op::TopK(_));
                let checked = check(&graph, &[values, indices], &takes, &|_, _| 0, &|building| build(building, k));
                assert_eq!(checked.launches, 1);
            }
        }
    }
}
