//! Linear layers and embeddings with quantised weights: they stay quantised in memory, and are multiplied as they are.
//!
//! Activations are quantised to bytes, 32 at a time, and dot products are sums of products of small integers, exact until they are
//! scaled. This is what llama.cpp does, too; what it rounds is in the order of a half percent of an activation.

mod activations;
mod dot;
mod lanes;
mod layout;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::memory::Shared;
use super::steps::Steps;
use super::team::Team;
use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::weights::WeightView;
use activations::RowLayout;
use dot::Tile;
use layout::{Layout, PANEL};

/// Rows of a tile, whole groups of all sizes, and panels: with many rows, all weights of a tile stay in a core's cache while its rows are taken through.
const TILE_ROWS: usize = 96;
const TILE_PANELS: usize = 8;
/// What rows of a tile are a multiple of: the largest group, behind which at most one of each smaller size follows, so that no tile
/// divides a group.
const ROW_STEP: usize = 12;
/// About the bytes of weights that a tile of few rows reads: enough that handing it over does not count.
const TILE_BYTES: usize = 32 << 10;
/// Up to so many rows, reading the weights takes longer than multiplying them.
const FEW_ROWS: usize = 8;

/// How a node's weight is kept, if it is quantised.
fn layout_of(graph: &Graph, node: &Node) -> Option<Layout> {
    let (format, shape) = graph.quantised_weight(node)?;
    Some(Layout { format, outputs: shape.rows(), inputs: shape.columns() })
}

/// Floats that a node's weight takes, if it is quantised.
pub(super) fn weight_floats(graph: &Graph, node: &Node) -> Option<usize> {
    Some(layout_of(graph, node)?.floats())
}

/// Brings a node's weight into the order that its kernels read.
pub(super) fn pack(team: &mut Team, graph: &Graph, node: &Node, weight: &WeightView, to: &mut [f32]) {
    if let Some(layout) = layout_of(graph, node) {
        layout.pack(team, weight, to);
    }
}

/// Floats of workspace: the activations as bytes.
pub(super) fn workspace_floats(graph: &Graph, node: &Node) -> Option<usize> {
    let layout = layout_of(graph, node)?;
    match node.op {
        Op::Linear(_) => Some(graph.shape_of(node.inputs[0]).rows() * RowLayout::of(&layout).bytes / 4),
        _ => Some(0),
    }
}

/// Floats of scratch: a row to be widened, or the sums of a tile and what their steps need.
pub(super) fn scratch_floats(graph: &Graph, node: &Node) -> Option<usize> {
    let layout = layout_of(graph, node)?;
    match node.op {
        Op::Linear(_) => {
            let tiles = Tiles::new(&layout, graph.shape_of(node.inputs[0]).rows());
            let columns = tiles.panels * PANEL;
            Some((tiles.rows * columns + columns).max(layout.inputs))
        }
        _ => Some(layout.inputs),
    }
}

/// How a product is divided; follows from its shape alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiles {
    /// Rows and panels of a tile, and how many tiles there are of each.
    rows: usize,
    panels: usize,
    row_tiles: usize,
    panel_tiles: usize,
}

impl Tiles {
    fn new(layout: &Layout, rows: usize) -> Tiles {
        let panels = match rows {
            0..=FEW_ROWS => (TILE_BYTES / layout.panel_bytes()).max(1),
            _ => TILE_PANELS,
        };
        let all_rows = rows;
        let row_tiles = rows.div_ceil(TILE_ROWS).max(1);
        let rows = rows.div_ceil(row_tiles).next_multiple_of(ROW_STEP);
        // As many as threads can share evenly.
        let panel_tiles = layout.panels().div_ceil(panels).next_multiple_of(2).min(layout.panels());
        let panels = layout.panels().div_ceil(panel_tiles);
        Tiles { rows, panels, row_tiles: all_rows.div_ceil(rows).max(1), panel_tiles: layout.panels().div_ceil(panels) }
    }
}

/// A linear layer, with its steps.
pub(super) fn multiply(kernel: &Kernel, team: &mut Team, packed: &[f32]) {
    let layout = layout_of(kernel.graph, kernel.node).expect("a quantised weight");
    let rows = kernel.input_type(0).shape.rows();
    let workspace = kernel.workspace();
    quantise_rows(kernel, team, &layout, rows, workspace);
    // SAFETY: no tile writes it any more.
    let quantised = unsafe { std::slice::from_raw_parts(workspace.as_ptr().cast_const(), workspace.len()) };
    let (activations, weights) = (bytemuck::cast_slice(quantised), bytemuck::cast_slice(packed));
    let tiles = Tiles::new(&layout, rows);
    let steps = Steps::new(kernel);
    let output = kernel.output(0);
    team.run(tiles.row_tiles * tiles.panel_tiles, &|index, scratch| {
        // Tiles of the same weights follow one another.
        let own_rows = tile_rows(index % tiles.row_tiles, tiles.rows, rows);
        let own_panels = tile_rows(index / tiles.row_tiles, tiles.panels, layout.panels());
        let width = own_panels.len() * PANEL;
        let (sums, spare) = scratch.split_at_mut(own_rows.len() * width);
        let (own, panels) = ((own_rows.start, own_rows.end), (own_panels.start, own_panels.end));
        dot::multiply(&Tile { layout: &layout, weights, activations, all_rows: rows, rows: own, panels }, sums);
        let first = own_panels.start * PANEL;
        let columns = width.min(layout.outputs - first);
        for (row, values) in own_rows.zip(sums.chunks_exact_mut(width)) {
            let values = &mut values[..columns];
            if !steps.is_empty() {
                steps.apply(row, first, values, spare);
            }
            // SAFETY: each tile writes its own rows and columns.
            unsafe { output.write(row * layout.outputs + first, values) };
        }
    });
}

fn quantise_rows(kernel: &Kernel, team: &mut Team, layout: &Layout, rows: usize, to: Shared<f32>) {
    let input = kernel.input(0);
    let (inputs, floats, most) = (layout.inputs, RowLayout::of(layout).bytes / 4, dot::most_rows());
    // A group's rows are written by one tile.
    let per_tile = rows_per_tile(rows, inputs).next_multiple_of(ROW_STEP);
    team.run(rows.div_ceil(per_tile), &|tile, scratch| {
        for row in tile_rows(tile, per_tile, rows) {
            let values = input.read(row * inputs..(row + 1) * inputs, scratch);
            let (first, size) = activations::group_of(row, rows, most);
            // SAFETY: each group is written by one tile.
            let group = unsafe { to.range(first * floats..(first + size) * floats) };
            activations::quantise_row(layout, values, row - first, size, bytemuck::cast_slice_mut(group));
        }
    });
}

/// Rows of a table.
pub(super) fn embedding(kernel: &Kernel, team: &mut Team, packed: &[f32]) {
    let layout = layout_of(kernel.graph, kernel.node).expect("a quantised table");
    let numbers = kernel.input_i32(1);
    let output = kernel.output(0);
    let per_tile = rows_per_tile(numbers.len(), layout.inputs);
    team.run(numbers.len().div_ceil(per_tile), &|tile, scratch| {
        for position in tile_rows(tile, per_tile, numbers.len()) {
            let Some(row) = usize::try_from(numbers[position]).ok().filter(|&row| row < layout.outputs) else {
                kernel.report_fault(position);
                continue;
            };
            let values = &mut scratch[..layout.inputs];
            layout.read_row(packed, row, values);
            // SAFETY: each row of the result is written by one tile only.
            unsafe { output.write(position * layout.inputs, values) };
        }
    });
}
