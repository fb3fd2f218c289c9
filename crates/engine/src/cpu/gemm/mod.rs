//! Matrix multiplication (GEMM).
//!
//! B is packed once per multiplication, then tiles of the output are computed in any order by any thread: the tiling
//! follows from the shapes alone, so results do not depend on the number of threads. While the final sums of some rows
//! are in cache they go through an epilogue, [`Finish`] (bias, activation, residual ...), and are stored in the
//! output's dtype.
//!
//! We have our own GEMM because running a plan must not allocate, and because bf16 multiplication and fused epilogues
//! account for half of the time of a training step.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
pub mod deep;
mod few;
pub(super) mod micro;
pub(super) mod pack;
#[cfg(test)]
mod tests;
mod tile;

use std::ops::Range;

use super::memory::{FloatShared, FloatSlice, Shared};
use super::team::Team;
use crate::precision::Precision;
use micro::{MicroKernel, Sizes};

/// An operand: element (i, j) is `values[offset + i * row_stride + j * column_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    pub values: FloatSlice<'a>,
    pub offset: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

/// The sizes of a multiplication, or of a batch of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    /// Batch size, at least 1.
    pub batch: usize,
    /// Whether the whole batch shares one B.
    pub shared_b: bool,
    /// Whether B was packed once for many multiplications: then even one row is multiplied with packed B.
    pub prepacked: bool,
}

/// `output = a * b`, or a batch of them.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    /// rows x depth
    pub a: Operand<'a>,
    /// depth x columns
    pub b: Operand<'a>,
    pub precision: Precision,
    /// Row-major, rows x columns, one matrix after the other.
    pub output: FloatShared<'a>,
    /// Batch size, at least 1.
    pub batch: usize,
    pub a_batch_stride: usize,
    /// 0 if the whole batch shares one B.
    pub b_batch_stride: usize,
    /// As in [`Shape`].
    pub prepacked: bool,
}

/// The epilogue. Called once for each piece of an output row when its sums are complete, still in f32, before it is
/// stored in the output's dtype: (row counted over the whole batch, first column, values, the thread's scratch beyond
/// [`scratch_floats`]).
pub type Finish<'a> = dyn Fn(usize, usize, &mut [f32], &mut [f32]) + Sync + 'a;

/// Units of depth accumulated in registers before the sums go to memory: a block of B with the width of a tile stays in
/// the L2 cache.
const DEPTH_BLOCK: usize = 512;
/// Rows and columns of a tile. A small ViT's layers fit into one tile's columns, so that A is read once.
const TILE_ROWS: usize = 128;
const TILE_COLUMNS: usize = 528;
/// Columns of a tile if B has at least this many values: a block of a large B must leave room in the cache.
const LARGE_TILE_COLUMNS: usize = 384;
const LARGE_B: usize = 1 << 19;
/// Rows of a tile if there are hardly more rows than in two tiles (a single image), but much to compute: with fewer,
/// longer tiles one thread would wait for the other's last.
const SHORT_TILE_ROWS: usize = 48;
const SHORT_TILE_WORK: usize = 1 << 26;
/// Rows of A packed at once if they are adjacent in memory: whole cache lines are read.
const PACKED_ROWS: usize = 64;
/// A multiplication is split into at least this many tiles, if each then has `LEAST_TILE_WORK` multiply-adds.
const LEAST_TILES: usize = 8;
const LEAST_TILE_WORK: usize = 1 << 19;
/// Rows that a multiplication is counted as having at least.
const LEAST_ROWS: usize = 8;
/// Up to this many rows, packing B would cost more than it saves.
const FEW_ROWS: usize = 4;
/// In a batch of at least this many multiplications, each is computed by one thread with B packed in its scratch, if B
/// has at most this many units.
const WHOLE_PRODUCTS: usize = 8;
const WHOLE_PRODUCT_UNITS: usize = 1 << 16;

/// How a multiplication is computed; follows from its shape alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Nothing is packed.
    FewRows,
    /// A tile is one or more whole multiplications; each one's B is packed in scratch.
    WholeProducts,
    /// B is packed in the workspace; a tile is a part of one multiplication.
    Tiles,
}

/// How B is packed and how the output is tiled.
#[derive(Clone, Copy, Debug)]
struct Blocking {
    sizes: Sizes,
    rows: usize,
    columns: usize,
    /// Units of depth in total and per block (the last may be shorter), and the number of blocks.
    units: usize,
    block_units: usize,
    blocks: usize,
    /// Columns rounded up to whole vectors.
    padded_columns: usize,
    /// Register tiles per column and per row of the output.
    groups: usize,
    panels: usize,
    row_tiles: usize,
    column_tiles: usize,
}

impl Blocking {
    fn new(shape: &Shape, kind: MicroKernel) -> Self {
        let sizes = kind.sizes();
        let units = shape.depth.div_ceil(sizes.values);
        let blocks = units.div_ceil(DEPTH_BLOCK).max(1);
        // Whole cache lines, so that each block of packed B is aligned to one.
        let block_units = units.div_ceil(blocks).next_multiple_of(16);
        let blocks = units.div_ceil(block_units.max(1)).max(1);
        let groups = shape.rows.div_ceil(sizes.rows);
        let panels = shape.columns.div_ceil(sizes.columns);
        let batch = shape.batch.max(1);
        // Reading B takes as long as multiplying it with some rows.
        let work = batch * shape.rows.max(LEAST_ROWS) * shape.columns * shape.depth;
        let short = shape.rows <= 2 * TILE_ROWS && work >= SHORT_TILE_WORK;
        let large = shape.columns * shape.depth >= LARGE_B;
        let tile_columns = if large { LARGE_TILE_COLUMNS } else { TILE_COLUMNS };
        let mut row_tiles = shape.rows.div_ceil(if short { SHORT_TILE_ROWS } else { TILE_ROWS }).max(1);
        let mut column_tiles = panels.div_ceil(tile_columns / sizes.columns).max(1);
        let least = (work / LEAST_TILE_WORK).clamp(1, LEAST_TILES);
        // Split rows first: their tiles share packed B, while each tile may have to pack its part of A.
        row_tiles = row_tiles.max(least.div_ceil(column_tiles * batch).min(groups.div_ceil(2)));
        column_tiles = column_tiles.max(least.div_ceil(row_tiles * batch).min(panels));
        Blocking {
            sizes,
            rows: shape.rows,
            columns: shape.columns,
            units,
            block_units,
            blocks,
            padded_columns: shape.columns.next_multiple_of(sizes.lanes),
            groups,
            panels,
            row_tiles,
            column_tiles,
        }
    }

    /// Units of one packed B.
    fn packed_units(&self) -> usize {
        self.padded_columns * self.units
    }

    /// The units of depth of a block.
    fn block(&self, block: usize) -> Range<usize> {
        block * self.block_units..((block + 1) * self.block_units).min(self.units)
    }

    /// The valid columns of a panel.
    fn panel(&self, panel: usize) -> Range<usize> {
        panel * self.sizes.columns..((panel + 1) * self.sizes.columns).min(self.columns)
    }

    /// The valid columns of a tile's panels.
    fn tile_columns(&self, panels: &Range<usize>) -> Range<usize> {
        self.panel(panels.start).start..self.panel(panels.end - 1).end
    }

    /// Offset of a block's panel in packed B.
    fn panel_start(&self, block: &Range<usize>, panel: usize) -> usize {
        block.start * self.padded_columns + panel * self.sizes.columns * block.len()
    }

    fn tiles(&self) -> usize {
        self.row_tiles * self.column_tiles
    }

    /// The register tiles of a tile: rows and columns.
    fn tile(&self, tile: usize) -> (Range<usize>, Range<usize>) {
        let (column, row) = (tile / self.row_tiles, tile % self.row_tiles);
        (part(self.groups, self.row_tiles, row), part(self.panels, self.column_tiles, column))
    }

    /// Scratch for packed rows of A.
    fn row_scratch(&self) -> usize {
        PACKED_ROWS.min(self.groups * self.sizes.rows) * self.block_units
    }

    /// Scratch for a tile's sums, for outputs that are not f32.
    fn sum_scratch(&self) -> usize {
        let rows = self.groups.div_ceil(self.row_tiles) * self.sizes.rows;
        let columns = self.panels.div_ceil(self.column_tiles) * self.sizes.columns;
        (rows * columns).next_multiple_of(16)
    }
}

/// Part `index` of `count` nearly equal parts of `0..total`.
fn part(total: usize, count: usize, index: usize) -> Range<usize> {
    total * index / count..total * (index + 1) / count
}

impl Shape {
    fn route(&self, kind: MicroKernel) -> Route {
        let rows = if self.shared_b { self.rows * self.batch } else { self.rows };
        if self.prepacked {
            Route::Tiles
        } else if rows <= FEW_ROWS {
            Route::FewRows
        } else if !self.shared_b
            && self.batch >= WHOLE_PRODUCTS
            && Blocking::new(self, kind).packed_units() <= WHOLE_PRODUCT_UNITS
        {
            Route::WholeProducts
        } else {
            Route::Tiles
        }
    }

    /// A batch with a shared B as one multiplication.
    fn folded(&self) -> Shape {
        Shape { rows: self.rows * self.batch, batch: 1, ..*self }
    }
}

/// Whether a multiplication of this shape rounds its operands: with few rows, or without bf16 dot products, it computes
/// in f32.
pub fn rounds_operands(shape: &Shape, precision: Precision) -> bool {
    let kind = MicroKernel::best(precision);
    kind.rounds() && shape.route(kind) != Route::FewRows
}

/// Floats of workspace, for packed B.
pub fn workspace_floats(shape: &Shape, precision: Precision) -> usize {
    let kind = MicroKernel::best(precision);
    match shape.route(kind) {
        Route::FewRows | Route::WholeProducts => 0,
        Route::Tiles => Blocking::new(shape, kind).packed_units() * if shape.shared_b { 1 } else { shape.batch },
    }
}

/// Floats of scratch per thread. Any scratch beyond is passed to [`Finish`].
pub fn scratch_floats(shape: &Shape, precision: Precision) -> usize {
    let kind = MicroKernel::best(precision);
    let needed = |shape: &Shape| {
        let blocking = Blocking::new(shape, kind);
        blocking.row_scratch() + blocking.sum_scratch()
    };
    match shape.route(kind) {
        Route::FewRows => few::scratch_floats(shape),
        Route::WholeProducts => Blocking::new(shape, kind).packed_units().next_multiple_of(16) + needed(shape),
        // Whether a batch with a shared B can be folded depends on A's strides.
        Route::Tiles if shape.shared_b => needed(shape).max(needed(&shape.folded())),
        Route::Tiles => needed(shape),
    }
}

/// The most columns of a piece of a row that [`Finish`] is called with.
pub fn piece_columns(shape: &Shape, precision: Precision) -> usize {
    let kind = MicroKernel::best(precision);
    let columns = |shape: &Shape| {
        let blocking = Blocking::new(shape, kind);
        let tile = |index: usize| blocking.tile_columns(&part(blocking.panels, blocking.column_tiles, index)).len();
        (0..blocking.column_tiles).map(tile).max().unwrap_or(0)
    };
    match shape.route(kind) {
        Route::FewRows => few::tile_columns(shape),
        Route::Tiles if shape.shared_b => columns(shape).max(columns(&shape.folded())),
        Route::WholeProducts | Route::Tiles => columns(shape),
    }
}

impl Operand<'_> {
    /// Panics unless `batch` matrices of rows x columns lie inside the values.
    fn check(&self, rows: usize, columns: usize, batch: usize, batch_stride: usize) {
        let steps = [(rows, self.row_stride), (columns, self.column_stride), (batch, batch_stride)];
        let last = steps.iter().try_fold(self.offset, |last, (count, stride)| {
            last.checked_add(count.saturating_sub(1).checked_mul(*stride)?)
        });
        let empty = rows == 0 || columns == 0 || batch == 0;
        assert!(
            empty || last.is_some_and(|last| last < self.values.len()),
            "{} values are not {batch} matrices of {rows} x {columns} with strides {}, {}, {batch_stride} from {} on",
            self.values.len(),
            self.row_stride,
            self.column_stride,
            self.offset
        );
    }
}

impl Product<'_> {
    /// The sizes.
    pub fn shape(&self) -> Shape {
        Shape {
            rows: self.rows,
            columns: self.columns,
            depth: self.depth,
            batch: self.batch,
            shared_b: self.batch == 1 || self.b_batch_stride == 0,
            prepacked: self.prepacked,
        }
    }
}

/// A multiplication with checked operands, and how it is computed.
struct Checked<'a> {
    product: Product<'a>,
    shape: Shape,
    kind: MicroKernel,
    route: Route,
    /// Floats of each thread's scratch that are not available to [`Finish`].
    claimed: usize,
}

impl<'a> Checked<'a> {
    /// `None` if there is nothing to compute.
    fn new(product: &Product<'a>, workspace: usize) -> Option<Self> {
        let mut shape = product.shape();
        let kind = MicroKernel::best(product.precision);
        product.a.check(shape.rows, shape.depth, shape.batch, product.a_batch_stride);
        let route = shape.route(kind);
        // Packed B was checked when it was packed, and the original may be gone.
        if route != Route::Tiles {
            product.b.check(shape.depth, shape.columns, shape.batch, product.b_batch_stride);
        }
        let outputs = shape.batch.checked_mul(shape.rows).and_then(|rows| rows.checked_mul(shape.columns));
        assert!(outputs.is_some_and(|outputs| outputs <= product.output.len()), "the output is too short");
        assert!(workspace >= workspace_floats(&shape, product.precision), "the workspace is too short");
        if outputs == Some(0) {
            return None;
        }
        let claimed = scratch_floats(&shape, product.precision);
        let mut product = *product;
        if shape.shared_b && shape.batch > 1 && product.a_batch_stride == shape.rows * product.a.row_stride {
            shape = shape.folded();
            (product.rows, product.batch) = (shape.rows, 1);
        }
        Some(Checked { product, shape, kind, route, claimed })
    }

    fn packed_batches(&self) -> usize {
        if self.shape.shared_b { 1 } else { self.shape.batch }
    }
}

/// Computes a matrix multiplication.
///
/// `finish`, if any, sees every element of the output once.
///
/// # Panics
/// Panics if an operand or the output is too short for the shape, or the workspace or the threads' scratch for
/// [`workspace_floats`] and [`scratch_floats`].
pub fn multiply(team: &mut Team, product: &Product, workspace: &mut [f32], finish: Option<&Finish>) {
    pack(team, product, workspace);
    multiply_packed(team, product, workspace, finish);
}

/// Packs B into the workspace, if the multiplication needs it. A and the output are not accessed. The packing depends
/// on B alone: multiplications with another number of rows and the same B can use it too, as long as they have more
/// than a few, or are said to be prepacked.
///
/// # Panics
/// Panics if B or the workspace is too short.
pub fn pack(team: &mut Team, product: &Product, workspace: &mut [f32]) {
    let (shape, kind) = (product.shape(), MicroKernel::best(product.precision));
    product.b.check(shape.depth, shape.columns, shape.batch, product.b_batch_stride);
    if shape.route(kind) != Route::Tiles {
        return;
    }
    let blocking = &Blocking::new(&shape, kind);
    let packed_units = blocking.packed_units();
    let batches = if shape.shared_b { 1 } else { shape.batch };
    let workspace = Shared::new(&mut workspace[..batches * packed_units]);
    let per_batch = blocking.blocks * blocking.panels;
    team.run(batches * per_batch, &|index, _| {
        let (batch, index) = (index / per_batch, index % per_batch);
        let (block, panel) = (index / blocking.panels, index % blocking.panels);
        // SAFETY: the kernel is supported by this CPU; the batch's part lies inside the workspace, and each index writes its
        // own panel of it.
        unsafe {
            let packed = Shared::from_raw(workspace.as_ptr().add(batch * packed_units), packed_units);
            tile::pack_panel(kind, product, blocking, batch, block, panel, packed);
        }
    });
}

/// Values of B that [`pack_columns`] reads at once.
const PIECE: usize = 1 << 18;

/// As [`pack`], of one product's B that is stored in a format of its own: `read` gives some of its columns as f32, one behind the
/// other. So B is never in memory as f32 as a whole.
///
/// # Panics
/// Panics if the workspace is too short.
pub fn pack_columns(
    team: &mut Team,
    shape: &Shape,
    precision: Precision,
    read: impl Fn(Range<usize>, &mut [f32]),
    workspace: &mut [f32],
) {
    let kind = MicroKernel::best(precision);
    if shape.route(kind) != Route::Tiles {
        return;
    }
    let whole = Blocking::new(shape, kind);
    let panels_at_once = (PIECE / (shape.depth * whole.sizes.columns).max(1)).max(1);
    let mut columns = Vec::new();
    let mut packed = Vec::new();
    for first_panel in (0..whole.panels).step_by(panels_at_once) {
        let last_panel = (first_panel + panels_at_once).min(whole.panels) - 1;
        let range = whole.panel(first_panel).start..whole.panel(last_panel).end;
        columns.resize(range.len() * shape.depth, 0.0);
        read(range.clone(), &mut columns);
        let operand = |values| Operand { values, offset: 0, row_stride: 1, column_stride: shape.depth };
        let product = Product {
            // As many rows as there are, so that it is packed for the same route.
            rows: shape.rows,
            columns: range.len(),
            depth: shape.depth,
            a: operand(FloatSlice::F32(&[])),
            b: operand(FloatSlice::F32(&columns)),
            precision,
            output: FloatShared::F32(Shared::new(&mut [])),
            batch: 1,
            a_batch_stride: 0,
            b_batch_stride: 0,
            prepacked: shape.prepacked,
        };
        let piece = Blocking::new(&product.shape(), kind);
        packed.resize(piece.packed_units(), 0.0);
        pack(team, &product, &mut packed);
        // The panels of a block lie side by side, in the piece and in the whole.
        for block in 0..whole.blocks {
            let units = whole.block(block);
            let (from, to) = (piece.panel_start(&units, 0), whole.panel_start(&units, first_panel));
            let count = piece.padded_columns * units.len();
            workspace[to..to + count].copy_from_slice(&packed[from..from + count]);
        }
    }
}

/// Computes a product whose B was packed by [`pack`].
///
/// # Panics
/// As [`multiply`].
pub fn multiply_packed(team: &mut Team, product: &Product, workspace: &[f32], finish: Option<&Finish>) {
    let Some(checked) = Checked::new(product, workspace.len()) else { return };
    match checked.route {
        Route::FewRows => few::multiply(team, &checked.product, checked.claimed, finish),
        Route::WholeProducts => multiply_whole(team, &checked, finish),
        Route::Tiles => multiply_tiles(team, &checked, workspace, finish),
    }
}

fn multiply_tiles(team: &mut Team, checked: &Checked, workspace: &[f32], finish: Option<&Finish>) {
    let Checked { product, shape, kind, claimed, .. } = checked;
    let blocking = &Blocking::new(shape, *kind);
    let (tiles, packed_units) = (blocking.tiles(), blocking.packed_units());
    let workspace = &workspace[..checked.packed_batches() * packed_units];
    team.run(shape.batch * tiles, &|index, scratch| {
        let (batch, tile) = (index / tiles, index % tiles);
        let part = if shape.shared_b { 0 } else { batch };
        let packed = &workspace[part * packed_units..(part + 1) * packed_units];
        // SAFETY: packed B is only read here; operands and output were checked, and each index writes its own part of the
        // output.
        unsafe {
            let packed = Shared::from_raw(packed.as_ptr().cast_mut(), packed_units);
            tile::compute(*kind, product, blocking, batch, tile, false, packed, scratch, *claimed, finish);
        }
    });
}

fn multiply_whole(team: &mut Team, checked: &Checked, finish: Option<&Finish>) {
    let Checked { product, shape, kind, claimed, .. } = checked;
    let blocking = &Blocking::new(shape, *kind);
    let work = (shape.rows * shape.columns * shape.depth).max(1);
    let together = LEAST_TILE_WORK.div_ceil(work).min(shape.batch.div_ceil(LEAST_TILES));
    let parts = shape.batch.div_ceil(together);
    team.run(parts, &|index, scratch| {
        let (packed, scratch) = scratch.split_at_mut(blocking.packed_units().next_multiple_of(16));
        let claimed = claimed - packed.len();
        let packed = Shared::new(packed);
        for batch in part(shape.batch, parts, index) {
            for block in 0..blocking.blocks {
                for panel in 0..blocking.panels {
                    // SAFETY: the kernel is supported by this CPU; `packed` holds all panels.
                    unsafe { tile::pack_panel(*kind, product, blocking, batch, block, panel, packed) };
                }
            }
            for tile in 0..blocking.tiles() {
                // SAFETY: as above; operands and output were checked, and no other thread has this product.
                unsafe {
                    tile::compute(*kind, product, blocking, batch, tile, false, packed, scratch, claimed, finish)
                };
            }
        }
    });
}
