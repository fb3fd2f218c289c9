//! Kernels for attention, its weights and its gradient.
//!
//! There are two families. If queries, keys and values are stored as bf16 and the head size suits tensor cores, those
//! multiply the tiles (`kernels/attention_forward.cu`, on Hopper with `attention_together.cu`;
//! `attention_backward_whole.cu` for up to about 256 tokens, `attention_backward_long.cu` for more and for
//! grouped-query attention, on Hopper with `attention_backward_together.cu`). Everything else, the weights for inspection and the bias gradient are computed in f32
//! (`*_f32.cu`, `attention_weights.cu`). A single query, as in decoding, has a kernel of its own
//! (`attention_one_query.cu`). None stores the weight matrix, and no kernel uses atomic additions, so that runs are
//! deterministic.
//!
//! Groups of heads, windows and offsets are compile-time constants of the source: where they are unused, they cost
//! nothing.

mod tiling;

#[cfg(test)]
mod tests;

use super::chip::Chip;
use super::launch::{Address, Argument, Building, Launch, c_type, source};
use super::steps::float;
use super::warpgroup::{AROUND, Left, multiply};
use crate::graph::{Graph, Node, Value};
use crate::ops::attention::{PaddingKind, Sizes};
use crate::ops::{Attention, AttentionGradient, Op};
use crate::random::{Mask, Stream};
use crate::types::DType;
use tiling::{ForwardTiling, HEAD_TOGETHER, LongTiling, WholeTiling, plain_bytes, plain_tile};

const COMMON: &str = include_str!("kernels/attention_common.cu");
const TENSOR: [&str; 2] = [include_str!("kernels/attention_tensor.cu"), include_str!("kernels/attention_tiles.cu")];
const PLAIN: &str = include_str!("kernels/attention_plain.cu");
const TOGETHER: &str = include_str!("kernels/attention_together.cu");
const FORWARD: &str = include_str!("kernels/attention_forward.cu");
const FORWARD_F32: &str = include_str!("kernels/attention_forward_f32.cu");
const BACKWARD_WHOLE: &str = include_str!("kernels/attention_backward_whole.cu");
const BACKWARD_LONG: &str = include_str!("kernels/attention_backward_long.cu");
const BACKWARD_TOGETHER: &str = include_str!("kernels/attention_backward_together.cu");
const BACKWARD_F32: &str = include_str!("kernels/attention_backward_f32.cu");
const ONE_QUERY: &str = include_str!("kernels/attention_one_query.cu");
const WEIGHTS: &str = include_str!("kernels/attention_weights.cu");

/// Threads per block of the kernels without tensor cores.
const PLAIN_THREADS: u32 = 256;

/// A window of at least this many keys is no limit; positions are clamped to twice as many.
const UNLIMITED: usize = 1 << 29;

/// Threads per block of the kernel for one query: more, where there are fewer blocks than the GPU could run at once.
const ONE_QUERY_THREADS: [usize; 2] = [128, 512];

/// Bytes that a node's kernels exchange: the deltas of a gradient, one per query and head.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    match &node.op {
        Op::AttentionGradient(op) => {
            let sizes = sizes(&op.of, graph, node);
            4 * sizes.batch * sizes.heads * sizes.queries
        }
        _ => 0,
    }
}

/// The launches of an attention node.
pub(super) fn build(building: &Building, chip: Chip) -> Vec<Launch> {
    match &building.node().op {
        Op::Attention(op) => Site::new(building, op, chip).forward(),
        Op::AttentionWeights(op) => Site::new(building, &op.of, chip).weights(),
        Op::AttentionGradient(op) => Site::new(building, &op.of, chip).gradient(op),
        op => unreachable!("{} is not an attention op", op.name()),
    }
}

fn sizes(op: &Attention, graph: &Graph, node: &Node) -> Sizes {
    op.sizes(node.inputs.len(), |input| graph.shape_of(node.inputs[input]))
        .expect("shapes were checked when the graph was built")
}

/// An attention node and its sizes.
struct Site<'s, 'p> {
    building: &'s Building<'p>,
    op: &'s Attention,
    sizes: Sizes,
    chip: Chip,
}

type Constants = Vec<(&'static str, String)>;

impl<'s, 'p> Site<'s, 'p> {
    fn new(building: &'s Building<'p>, op: &'s Attention, chip: Chip) -> Self {
        Site { building, op, sizes: sizes(op, building.graph(), building.node()), chip }
    }

    fn pair_count(&self) -> usize {
        self.sizes.batch * self.sizes.heads
    }

    /// (sample, key/value head) pairs.
    fn kv_pair_count(&self) -> usize {
        self.sizes.batch * self.sizes.kv_heads
    }

    /// Input, or output of a gradient, that contains q, k or v, and its first column there.
    fn part(&self, which: usize) -> (usize, usize) {
        if self.op.packed { (0, which * self.sizes.heads * self.sizes.head_dim) } else { (which, 0) }
    }

    fn projection_type(&self, which: usize) -> DType {
        self.building.input_type(self.part(which).0).dtype
    }

    /// Address of q, k or v.
    fn projection(&self, which: usize) -> Address {
        let (input, column) = self.part(which);
        self.building.place(self.building.node().inputs[input]).plus(column * self.projection_type(which).bytes())
    }

    /// Address of the gradient of q, k or v.
    fn projection_gradient(&self, which: usize) -> Argument {
        let (output, column) = self.part(which);
        let bytes = column * self.building.output_type(output).dtype.bytes();
        Argument::Address(self.building.place(Value::new(self.building.index, output)).plus(bytes))
    }

    /// q, k, v, padding, bias, offsets: the first arguments of most kernels.
    fn first_arguments(&self) -> Vec<Argument> {
        let mut arguments = [0, 1, 2].map(|which| Argument::Address(self.projection(which))).to_vec();
        arguments.extend(self.masks());
        arguments
    }

    /// Padding and bias, which may be null, and offsets, if there are any.
    fn masks(&self) -> Vec<Argument> {
        let optional = [self.op.padding_input(), self.op.bias_input()];
        let always = optional.map(|input| input.map_or(Argument::Nothing, |input| self.building.input(input)));
        let offsets = self.op.offsets_input().map(|input| self.building.input(input));
        always.into_iter().chain(offsets).collect()
    }

    fn bias_axes(&self) -> Option<&'p [usize]> {
        self.op.bias_input().map(|input| self.building.input_type(input).shape.axes())
    }

    /// Whether the tensor core kernels apply: they load 16 bytes at once.
    fn suits_tensor_cores(&self, also_read: &[usize]) -> bool {
        let aligned = |place: Address| place.byte.is_multiple_of(16);
        tiling::suits_tensor_cores(self.sizes.head_dim)
            && (0..3).all(|which| self.projection_type(which) == DType::Bf16 && aligned(self.projection(which)))
            && also_read.iter().all(|&input| aligned(self.building.place(self.building.node().inputs[input])))
    }

    /// The constants of all kernels. `out` and `d_out` are the dtypes of the output and its gradient.
    fn constants(&self, out: DType, d_out: DType) -> Constants {
        let (op, sizes) = (self.op, self.sizes);
        let (dim, kv_dim) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
        let (q_stride, kv_stride) = if op.packed { (3 * dim, 3 * dim) } else { (dim, kv_dim) };
        let reach = op.reach();
        let limit = |keys: Option<usize>| {
            keys.filter(|&keys| keys < UNLIMITED).map_or("(-1)".to_string(), |keys| keys.to_string())
        };
        let padding = match op.padding {
            PaddingKind::None => 0,
            PaddingKind::Lengths => 1,
            PaddingKind::Mask => 2,
        };
        let bias = self.bias_axes().map_or([1, 1], |axes| [axes[0].max(1), axes[1].max(1)]);
        let rate = op.dropout.as_ref().map_or(0.0, |drop| drop.rate);
        // Threshold and scale do not depend on the stream.
        let mask = Mask::new(Stream::new(0, 0, 0), rate);
        let scale = op.scale_for(sizes.head_dim);
        let flag = |flag: bool| usize::from(flag).to_string();
        vec![
            ("QUERIES", sizes.queries.to_string()),
            ("KEYS", sizes.keys.to_string()),
            ("HEADS", sizes.heads.to_string()),
            ("KV_HEADS", sizes.kv_heads.to_string()),
            ("HEAD_DIM", sizes.head_dim.to_string()),
            ("Q_STRIDE", q_stride.to_string()),
            ("K_STRIDE", kv_stride.to_string()),
            ("V_STRIDE", kv_stride.to_string()),
            ("Q_TYPE", c_type(self.projection_type(0))),
            ("K_TYPE", c_type(self.projection_type(1))),
            ("V_TYPE", c_type(self.projection_type(2))),
            ("OUT_TYPE", c_type(out)),
            ("D_OUT_TYPE", c_type(d_out)),
            ("REACH_AHEAD", limit(reach.ahead)),
            ("REACH_BEHIND", limit(reach.behind)),
            ("OFFSETS", flag(op.offsets)),
            ("PADDING", padding.to_string()),
            ("BIAS", flag(op.bias)),
            ("BIAS_BATCH", bias[0].to_string()),
            ("BIAS_HEADS", bias[1].to_string()),
            ("DROPOUT", flag(op.dropout.is_some())),
            ("DROP_THRESHOLD", format!("{}u", mask.threshold())),
            ("DROP_SCALE", float(mask.scale())),
            ("SCALE", float(scale)),
            ("SCALE_LOG2", float(scale * std::f32::consts::LOG2_E)),
            ("SCALE_IS_POSITIVE", flag(scale > 0.0)),
        ]
    }

    /// The source of tensor core kernels.
    fn tensor_text(&self, mut constants: Constants, tiles: &[(&'static str, usize)], kernel: &str) -> String {
        constants.extend(tiles.iter().map(|&(name, value)| (name, value.to_string())));
        source(&constants, COMMON, &(TENSOR.concat() + kernel))
    }

    /// The source of kernels without tensor cores.
    fn plain_text(&self, mut constants: Constants, tile: usize, kernel: &str) -> String {
        constants.push(("TILE", tile.to_string()));
        source(&constants, COMMON, &format!("{PLAIN}{kernel}"))
    }

    fn plain_tile(&self, rows: usize, row_tiles: usize, score_tiles: usize) -> usize {
        plain_tile(self.sizes.head_dim, rows, row_tiles, score_tiles, self.chip)
    }

    fn plain_launch(
        &self,
        source: &str,
        entry: &'static str,
        blocks: usize,
        bytes: usize,
        arguments: Vec<Argument>,
    ) -> Launch {
        Launch {
            source: source.to_string(),
            entry,
            grid: [blocks as u32, 1, 1],
            block: PLAIN_THREADS,
            shared_bytes: bytes as u32,
            arguments,
        }
    }

    /// The last arguments of all kernels that drop weights: the run, and which of its random streams this node has.
    fn run(&self) -> [Argument; 2] {
        [self.building.run(), Argument::U64(self.op.dropout.as_ref().map_or(0, |drop| drop.place))]
    }

    fn forward(&self) -> Vec<Launch> {
        let (sizes, building) = (self.sizes, self.building);
        let out = building.output_type(0).dtype;
        let constants = self.constants(out, out);
        let mut arguments = self.first_arguments();
        arguments.extend([building.output(0), building.output(1)]);
        if self.suits_one_query() {
            arguments.extend(self.run());
            return vec![self.one_query(constants, arguments)];
        }
        if self.suits_tensor_cores(&[]) {
            let tiling = ForwardTiling::new(sizes, self.op.dropout.is_some(), self.chip);
            arguments.push(Argument::U32(self.pair_count() as u32));
            arguments.extend(self.run());
            let kernel = if tiling.together { together(&tiling.tile_sizes()) + FORWARD } else { FORWARD.to_string() };
            return vec![Launch {
                source: self.tensor_text(constants, &tiling.constants(), &kernel),
                entry: "attention_forward",
                grid: [tiling.grid() as u32, 1, 1],
                block: tiling.threads() as u32,
                shared_bytes: tiling.bytes() as u32,
                arguments,
            }];
        }
        let tile = self.plain_tile(sizes.queries, 2, 1);
        arguments.extend(self.run());
        let text = self.plain_text(constants, tile, FORWARD_F32);
        let blocks = self.pair_count() * sizes.queries.div_ceil(tile);
        let bytes = plain_bytes(sizes.head_dim, tile, 2, 1);
        vec![self.plain_launch(&text, "attention_forward_f32", blocks, bytes, arguments)]
    }

    /// Whether the kernel for one query applies: its threads load eight values at once.
    fn suits_one_query(&self) -> bool {
        let places =
            (0..3).map(|which| self.projection(which)).chain([self.building.place(Value::new(self.building.index, 0))]);
        self.sizes.queries == 1
            && self.sizes.head_dim.is_multiple_of(8)
            && self.sizes.head_dim <= 256
            && places.into_iter().all(|place| place.byte.is_multiple_of(16))
    }

    fn one_query(&self, mut constants: Constants, arguments: Vec<Argument>) -> Launch {
        let is_few = self.pair_count() <= 2 * self.chip.processors as usize;
        let threads = ONE_QUERY_THREADS[usize::from(is_few)];
        constants.push(("LANES", (self.sizes.head_dim / 8).next_power_of_two().to_string()));
        constants.push(("THREADS", threads.to_string()));
        Launch {
            source: source(&constants, COMMON, ONE_QUERY),
            entry: "attention_one_query",
            grid: [self.pair_count() as u32, 1, 1],
            block: threads as u32,
            shared_bytes: 0,
            arguments,
        }
    }

    fn weights(&self) -> Vec<Launch> {
        let sizes = self.sizes;
        let tile = self.plain_tile(sizes.queries, 2, 0);
        let text = self.plain_text(self.constants(DType::F32, DType::F32), tile, WEIGHTS);
        let mut arguments = [0, 1].map(|which| Argument::Address(self.projection(which))).to_vec();
        arguments.extend(self.masks());
        arguments.push(self.building.output(0));
        let blocks = self.pair_count() * sizes.queries.div_ceil(tile);
        vec![self.plain_launch(&text, "attention_weights", blocks, plain_bytes(sizes.head_dim, tile, 2, 0), arguments)]
    }

    fn gradient(&self, op: &AttentionGradient) -> Vec<Launch> {
        let out = self.op.input_count();
        let mut launches = if !self.suits_tensor_cores(&[out, out + 2]) {
            self.plain_gradient(out)
        } else if let Some(tiling) = WholeTiling::new(self.sizes, self.chip) {
            vec![self.whole_gradient(out, &tiling, op.bias_gradient)]
        } else {
            self.long_gradient(out)
        };
        if op.bias_gradient {
            launches.extend(self.bias_gradient(out));
        }
        launches
    }

    /// The arguments of tensor core kernels for dQ, up to dQ itself. `out` is the input with the output; log-sums and
    /// the output's gradient follow it.
    fn query_gradient_arguments(&self, out: usize) -> Vec<Argument> {
        let mut arguments = self.first_arguments();
        arguments.extend([out, out + 1, out + 2].map(|input| self.building.input(input)));
        arguments.extend([self.building.workspace(), self.projection_gradient(0)]);
        arguments
    }

    /// The constants of the tensor core backward kernels.
    fn gradient_constants(&self, out: usize) -> Constants {
        self.constants(self.building.input_type(out).dtype, self.building.input_type(out + 2).dtype)
    }

    /// dQ, dK and dV at once.
    fn whole_gradient(&self, out: usize, tiling: &WholeTiling, keep_deltas: bool) -> Launch {
        let mut tiles = tiling.constants();
        tiles.push(("KEEP_DELTAS", usize::from(keep_deltas)));
        let mut arguments = self.query_gradient_arguments(out);
        arguments.extend([self.projection_gradient(1), self.projection_gradient(2)]);
        arguments.push(Argument::U32(self.pair_count() as u32));
        arguments.extend(self.run());
        Launch {
            source: self.tensor_text(self.gradient_constants(out), &tiles, BACKWARD_WHOLE),
            entry: "attention_backward",
            grid: [tiling.grid() as u32, 1, 1],
            block: tiling.threads() as u32,
            shared_bytes: tiling.bytes() as u32,
            arguments,
        }
    }

    /// dQ and the deltas, then dK and dV.
    fn long_gradient(&self, out: usize) -> Vec<Launch> {
        let tiling = LongTiling::new(self.sizes, self.op.dropout.is_some(), self.chip);
        let kernel = match tiling.together {
            true => together(&[tiling.key_tile]) + BACKWARD_TOGETHER + BACKWARD_LONG,
            false => BACKWARD_LONG.to_string(),
        };
        let source = self.tensor_text(self.gradient_constants(out), &tiling.constants(), &kernel);
        let mut query_arguments = self.query_gradient_arguments(out);
        query_arguments.extend(self.run());
        let mut key_arguments = self.backward_arguments(out);
        key_arguments.extend([self.projection_gradient(1), self.projection_gradient(2)]);
        key_arguments.extend(self.run());
        vec![
            Launch {
                source: source.clone(),
                entry: "attention_backward_queries",
                grid: [(self.pair_count() * tiling.query_blocks) as u32, 1, 1],
                block: (32 * tiling.query_groups) as u32,
                shared_bytes: tiling.key_bytes() as u32,
                arguments: query_arguments,
            },
            Launch {
                source,
                entry: "attention_backward_keys",
                grid: [(self.kv_pair_count() * tiling.key_blocks) as u32, 1, 1],
                block: (32 * tiling.key_groups) as u32,
                shared_bytes: tiling.query_bytes() as u32,
                arguments: key_arguments,
            },
        ]
    }

    /// The source of the backward kernels without tensor cores, and their tile size.
    fn plain_backward(&self, out: usize) -> (String, usize) {
        let tile = self.plain_tile(self.sizes.queries.max(self.sizes.keys), 4, 2);
        let types = [out, out + 2].map(|input| self.building.input_type(input).dtype);
        (self.plain_text(self.constants(types[0], types[1]), tile, BACKWARD_F32), tile)
    }

    /// Log-sums, the output's gradient, deltas: the arguments after the first ones of the backward kernels.
    fn backward_arguments(&self, out: usize) -> Vec<Argument> {
        let building = self.building;
        let mut arguments = self.first_arguments();
        arguments.extend([building.input(out + 1), building.input(out + 2), building.workspace()]);
        arguments
    }

    fn plain_gradient(&self, out: usize) -> Vec<Launch> {
        let (sizes, building) = (self.sizes, self.building);
        let (text, tile) = self.plain_backward(out);
        let bytes = |score_tiles: usize| plain_bytes(sizes.head_dim, tile, 4, score_tiles);
        let rows = self.pair_count() * sizes.queries;
        let delta_arguments =
            vec![building.input(out), building.input(out + 2), building.workspace(), Argument::U64(rows as u64)];
        let mut query_arguments = self.backward_arguments(out);
        query_arguments.push(self.projection_gradient(0));
        query_arguments.extend(self.run());
        let mut key_arguments = self.backward_arguments(out);
        key_arguments.extend([self.projection_gradient(1), self.projection_gradient(2)]);
        key_arguments.extend(self.run());
        let query_blocks = self.pair_count() * sizes.queries.div_ceil(tile);
        let key_blocks = self.kv_pair_count() * sizes.keys.div_ceil(tile);
        let delta_blocks = rows.div_ceil(PLAIN_THREADS as usize / 32);
        vec![
            self.plain_launch(&text, "attention_deltas", delta_blocks, 0, delta_arguments),
            self.plain_launch(&text, "attention_backward_queries_f32", query_blocks, bytes(1), query_arguments),
            self.plain_launch(&text, "attention_backward_keys_f32", key_blocks, bytes(2), key_arguments),
        ]
    }

    /// The bias gradient, after either family has computed the deltas.
    fn bias_gradient(&self, out: usize) -> Option<Launch> {
        let sizes = self.sizes;
        let slices: usize = self.bias_axes()?[..2].iter().product();
        let (text, tile) = self.plain_backward(out);
        let blocks = slices * sizes.queries.div_ceil(tile) * sizes.keys.div_ceil(tile);
        let mut arguments = self.backward_arguments(out);
        arguments.extend([self.building.output(self.op.projections()), Argument::U32(self.pair_count() as u32)]);
        arguments.extend(self.run());
        let bytes = plain_bytes(sizes.head_dim, tile, 4, 0);
        Some(self.plain_launch(&text, "attention_bias_gradient", blocks, bytes, arguments))
    }
}

/// The warpgroup instructions (wgmma): one per number of rows of a tile, and one for the head.
fn together(tile_sizes: &[usize]) -> String {
    let mut text = AROUND.to_string();
    for &columns in tile_sizes {
        text += &multiply("multiply_along_head", columns, Left::Registers, true);
    }
    text + &multiply("multiply_along_rows", HEAD_TOGETHER, Left::Registers, false) + TOGETHER
}
