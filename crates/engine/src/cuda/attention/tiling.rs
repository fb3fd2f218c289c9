//! How attention is split into tiles, blocks and warps. Everything follows from the shapes and the GPU model alone.

use super::super::chip::Chip;
use crate::ops::attention::Sizes;

/// Rows per warp: those of a tensor core instruction.
const GROUP: usize = 16;
/// The most warps per block, unless a pair needs more.
const MOST_WARPS: usize = 8;
/// The least warps per block: one for each of an SM's four schedulers.
const LEAST_WARPS: usize = 4;
/// The largest head whose sums fit into 128 registers per thread.
const MODERATE_HEAD: usize = 64;
/// With up to this many (sample, head) pairs, each gets a block of its own: otherwise there would be idle processors.
const FEW_PAIRS: usize = 264;
/// Shared memory that lets an SM hold two blocks: one loads its rows while the other multiplies.
const MODEST_BYTES: usize = 110 << 10;
/// Shared memory that lets a Hopper SM hold four blocks.
const SMALL_BYTES: usize = 56 << 10;
/// The same for three blocks.
const THIRD_BYTES: usize = 75 << 10;
/// The most shared memory per block: all that a block may have on an A100. Some GPUs have less.
const MOST_BYTES: usize = 163 << 10;
/// Warps that fit into an SM's registers, at 128 per thread.
const RESIDENT_WARPS: usize = 16;
/// The most groups of sixteen queries whose dQ helper warps sum: each has a barrier, and a block has sixteen.
const MOST_HELPED_GROUPS: usize = 15;
/// Keys or queries per tile, if not all are processed at once.
const TILE: usize = 64;
/// Values per head whose rows in shared memory have an order that Hopper's tensor cores know.
pub(super) const HEAD_TOGETHER: usize = 64;

/// Whether the tensor core kernels support this head size.
pub(super) fn suits_tensor_cores(head_dim: usize) -> bool {
    head_dim.is_multiple_of(16) && (32..=128).contains(&head_dim)
}

/// Whether there are kernels in which warpgroups multiply: for heads whose rows they can read, and without dropout.
fn suits_warpgroups(sizes: Sizes, dropout: bool, chip: Chip) -> bool {
    chip.is_hopper && sizes.head_dim == HEAD_TOGETHER && !dropout
}

/// Bytes of a row in shared memory: see `kernels/attention_tensor.cu`.
fn row_bytes(head_dim: usize) -> usize {
    let chunks = head_dim / 8;
    16 * if chunks.is_power_of_two() { chunks } else { chunks + 1 }
}

/// Groups of sixteen rows; at least one.
fn groups_of(rows: usize) -> usize {
    rows.div_ceil(GROUP).max(1)
}

/// Warps of a block for a number of groups of sixteen rows, with as few idle ones as possible.
fn warps_for(groups: usize) -> usize {
    if groups <= MOST_WARPS {
        return groups.max(1);
    }
    (LEAST_WARPS..=MOST_WARPS).rev().min_by_key(|&warps| groups.div_ceil(warps) * warps).unwrap_or(MOST_WARPS)
}

/// Pairs per block, where each has a number of warps.
fn pairs_for(warps: usize, sizes: Sizes) -> usize {
    if sizes.batch * sizes.heads <= FEW_PAIRS { 1 } else { (LEAST_WARPS / warps).max(1) }
}

/// Blocks of a number of warps that a processor should hold at once: more than one if a thread's values fit into 128 registers.
fn resident_blocks(warps: usize, head_dim: usize) -> usize {
    if head_dim <= MODERATE_HEAD { (RESIDENT_WARPS / warps).max(1) } else { 1 }
}

/// Rows per tile: all rows in tiles of about equal size.
fn tile_for(rows: usize) -> usize {
    let groups = groups_of(rows);
    GROUP * groups.div_ceil(groups.div_ceil(TILE / GROUP))
}

/// The tiling of the tensor core forward kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForwardTiling {
    /// (sample, head) pairs per block.
    pub pairs: usize,
    /// Warps per pair.
    pub warps: usize,
    /// Groups of sixteen queries that a warp processes one after the other.
    pub rounds: usize,
    /// Blocks per pair.
    pub blocks: usize,
    /// Keys per tile.
    pub key_tile: usize,
    /// Tiles in shared memory.
    pub key_stages: usize,
    /// Whether queries go through shared memory, too.
    pub queries_shared: bool,
    /// Whether four warps multiply together (a warpgroup).
    pub together: bool,
    dropout: bool,
    sizes: Sizes,
}

impl ForwardTiling {
    pub fn new(sizes: Sizes, dropout: bool, chip: Chip) -> ForwardTiling {
        let groups = groups_of(sizes.queries);
        let few = sizes.batch * sizes.heads * groups.div_ceil(MOST_WARPS) <= FEW_PAIRS;
        // It gains nothing for few queries.
        let together = suits_warpgroups(sizes, dropout, chip) && groups >= MOST_WARPS;
        // If SMs would be idle, blocks are small.
        let warps = match (few, together) {
            (true, _) => groups.min(LEAST_WARPS),
            (false, true) => MOST_WARPS,
            (false, false) => warps_for(groups),
        };
        let key_tile = TILE.min(GROUP * groups_of(sizes.keys));
        let key_tiles = sizes.keys.div_ceil(key_tile).max(1);
        let of = |warps: usize, rounds: usize, key_stages: usize, queries_shared: bool| {
            let blocks = groups.div_ceil(warps * rounds);
            ForwardTiling {
                pairs: 1,
                warps,
                rounds,
                blocks,
                key_tile,
                key_stages,
                queries_shared,
                together,
                dropout,
                sizes,
            }
        };
        // Four small blocks per SM, or three with warpgroups, are better than two large ones, if their keys and values
        // fit.
        let small = of(LEAST_WARPS, groups.div_ceil(LEAST_WARPS), key_tiles, false);
        let suits = !few && !dropout && groups > MOST_WARPS && sizes.head_dim <= MODERATE_HEAD;
        if suits && small.bytes() <= if together { THIRD_BYTES } else { SMALL_BYTES } {
            return small;
        }
        // Two rounds of a warpgroup, whose queries arrive with the keys: four such blocks per SM.
        if together && !few && groups == MOST_WARPS && sizes.keys <= sizes.queries {
            return of(LEAST_WARPS, 2, key_tiles, true);
        }
        let modest_bytes = MODEST_BYTES.min(chip.shared_bytes);
        let all_stay = of(warps, if few { 1 } else { groups.div_ceil(warps) }, key_tiles, true);
        let tiling = if all_stay.bytes() <= modest_bytes { all_stay } else { of(warps, 1, 2, true) };
        let mut pairs = pairs_for(warps, sizes);
        while pairs > 1 && pairs * tiling.bytes() > modest_bytes {
            pairs /= 2;
        }
        ForwardTiling { pairs, ..tiling }
    }

    pub fn threads(&self) -> usize {
        32 * self.pairs * self.warps
    }

    pub fn grid(&self) -> usize {
        (self.sizes.batch * self.sizes.heads).div_ceil(self.pairs) * self.blocks
    }

    /// Shared memory per block: queries, keys, values, and the dropout mask. Equal to the kernel's `PAIR_BYTES` for
    /// each pair.
    pub fn bytes(&self) -> usize {
        let queries = GROUP * self.warps * self.rounds;
        let all_keys = GROUP * groups_of(self.sizes.keys);
        let keys = all_keys.min(self.key_stages * self.key_tile);
        let shares_mask = self.dropout && !self.sizes.queries.is_multiple_of(8) && self.blocks == 1 && keys == all_keys;
        let mask = if shares_mask { ((keys * self.sizes.queries + queries) / 8 + 16).next_multiple_of(256) } else { 0 };
        let rows = 2 * keys + if self.queries_shared { queries } else { 0 };
        self.pairs * (rows * row_bytes(self.sizes.head_dim) + mask)
    }

    /// The constants of the kernel.
    pub fn constants(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("PAIRS", self.pairs),
            ("QUERY_WARPS", self.warps),
            ("QUERY_ROUNDS", self.rounds),
            ("QUERY_BLOCKS", self.blocks),
            ("QUERY_MIN_BLOCKS", resident_blocks(self.pairs * self.warps, self.sizes.head_dim)),
            ("QUERIES_SHARED", usize::from(self.queries_shared)),
            ("KEY_TILE", self.key_tile),
            ("KEY_STAGES", self.key_stages),
            ("TOGETHER", usize::from(self.together)),
        ]
    }

    /// Keys per tile, and of the last one, if it has fewer.
    pub fn tile_sizes(&self) -> Vec<usize> {
        let last = (GROUP * groups_of(self.sizes.keys) - 1) % self.key_tile + 1;
        if last < self.key_tile { vec![self.key_tile, last] } else { vec![self.key_tile] }
    }
}

/// The tiling of the backward kernel that keeps whole pairs in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WholeTiling {
    /// (sample, head) pairs per block.
    pub pairs: usize,
    /// Warps per pair that own keys, sixteen each.
    pub key_groups: usize,
    /// Warps without keys that sum dQ concurrently.
    pub helpers: usize,
    /// Number of passes in which the gradients of a part of the scores are in shared memory.
    pub parts: usize,
    /// Groups of sixteen queries per part.
    pub part_groups: usize,
    sizes: Sizes,
}

impl WholeTiling {
    /// `None` if pairs are too large for it, in memory or in registers, or if several query heads share keys, whose
    /// gradients one block has to sum.
    pub fn new(sizes: Sizes, chip: Chip) -> Option<WholeTiling> {
        let key_groups = groups_of(sizes.keys);
        if sizes.group() > 1 {
            return None;
        }
        if key_groups > if sizes.head_dim <= MODERATE_HEAD { 2 * MOST_WARPS } else { MOST_WARPS } {
            return None;
        }
        let query_groups = groups_of(sizes.queries);
        let of_parts = |wanted: usize| {
            let part_groups = query_groups.div_ceil(wanted);
            let parts = query_groups.div_ceil(part_groups);
            // A processor holds one block of that many keys: some of the other warps that it has registers for help.
            let can_help = key_groups > MOST_WARPS && parts == 1 && query_groups <= MOST_HELPED_GROUPS;
            let helpers = if can_help { (RESIDENT_WARPS - key_groups).min(LEAST_WARPS) } else { 0 };
            WholeTiling { pairs: 1, key_groups, helpers, parts, part_groups, sizes }
        };
        let fits = |tiling: &WholeTiling| tiling.bytes() <= MOST_BYTES.min(chip.shared_bytes);
        let tiling = (1..=query_groups).map(of_parts).find(fits)?;
        let mut pairs = if tiling.parts == 1 { pairs_for(tiling.warps(), sizes) } else { 1 };
        while pairs > 1 && pairs * tiling.bytes() > MODEST_BYTES.min(chip.shared_bytes) {
            pairs /= 2;
        }
        Some(WholeTiling { pairs, ..tiling })
    }

    /// Warps per pair.
    fn warps(&self) -> usize {
        self.key_groups + self.helpers
    }

    pub fn threads(&self) -> usize {
        32 * self.pairs * self.warps()
    }

    pub fn grid(&self) -> usize {
        (self.sizes.batch * self.sizes.heads).div_ceil(self.pairs)
    }

    /// Shared memory per block: queries, output gradients and keys; the score gradients, which replace the values;
    /// log-sums and deltas. Equal to the kernel's `PAIR_BYTES` for each pair.
    pub fn bytes(&self) -> usize {
        let row = row_bytes(self.sizes.head_dim);
        let (query_rows, key_rows) = (GROUP * groups_of(self.sizes.queries), GROUP * self.key_groups);
        let chunks = if self.parts == 1 { self.sizes.queries.div_ceil(8) } else { 2 * self.part_groups };
        let scores = key_rows * 16 * (chunks | 1) + 16;
        let rows = (2 * query_rows + key_rows) * row + scores.max(key_rows * row);
        self.pairs * (rows.next_multiple_of(16) + 8 * query_rows).next_multiple_of(256)
    }

    /// The constants of the kernel.
    pub fn constants(&self) -> Vec<(&'static str, usize)> {
        let unshared = self.helpers == 0 && self.key_groups >= 2 * self.part_groups;
        let halves = unshared && (self.sizes.head_dim / GROUP).is_multiple_of(2);
        vec![
            ("PAIRS", self.pairs),
            ("KEY_GROUPS", self.key_groups),
            ("HELPERS", self.helpers),
            ("PARTS", self.parts),
            ("PART_GROUPS", self.part_groups),
            ("DQ_SPLIT", if halves { 2 } else { 1 }),
            ("MIN_BLOCKS", resident_blocks(self.pairs * self.warps(), self.sizes.head_dim)),
        ]
    }
}

/// The tiling of the backward kernels for any sequence length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongTiling {
    /// Warps per block that owns queries.
    pub query_groups: usize,
    /// Blocks per pair that own queries.
    pub query_blocks: usize,
    /// Warps per block that owns keys.
    pub key_groups: usize,
    /// Blocks per pair that own keys.
    pub key_blocks: usize,
    /// Keys that a block owning queries processes at once.
    pub key_tile: usize,
    /// Queries that a block owning keys processes at once.
    pub query_tile: usize,
    /// Whether the four warps of a block multiply together (a warpgroup).
    pub together: bool,
    sizes: Sizes,
}

fn stages(rows: usize, tile: usize) -> usize {
    if rows > tile { 2 } else { 1 }
}

impl LongTiling {
    pub fn new(sizes: Sizes, dropout: bool, chip: Chip) -> LongTiling {
        let (of_queries, of_keys) = (groups_of(sizes.queries), groups_of(sizes.keys));
        // With few rows most of a warpgroup's would be none.
        if suits_warpgroups(sizes, dropout, chip) && of_queries.min(of_keys) >= MOST_WARPS {
            return LongTiling {
                query_groups: LEAST_WARPS,
                query_blocks: of_queries.div_ceil(LEAST_WARPS),
                key_groups: LEAST_WARPS,
                key_blocks: of_keys.div_ceil(LEAST_WARPS),
                key_tile: TILE,
                query_tile: TILE,
                together: true,
                sizes,
            };
        }
        let (query_groups, key_groups) = (warps_for(groups_of(sizes.queries)), warps_for(groups_of(sizes.keys)));
        LongTiling {
            query_groups,
            query_blocks: groups_of(sizes.queries).div_ceil(query_groups),
            key_groups,
            key_blocks: groups_of(sizes.keys).div_ceil(key_groups),
            key_tile: tile_for(sizes.keys),
            query_tile: tile_for(sizes.queries),
            together: false,
            sizes,
        }
    }

    /// Shared memory of a block that owns queries: keys and values.
    pub fn key_bytes(&self) -> usize {
        stages(self.sizes.keys, self.key_tile) * self.key_tile * 2 * row_bytes(self.sizes.head_dim)
    }

    /// Shared memory of a block that owns keys: queries, output gradients, log-sums and deltas.
    pub fn query_bytes(&self) -> usize {
        let tile = self.query_tile * (2 * row_bytes(self.sizes.head_dim) + 8);
        stages(self.sizes.queries, self.query_tile) * tile.next_multiple_of(if self.together { 1024 } else { 256 })
    }

    /// The constants of the kernels.
    pub fn constants(&self) -> Vec<(&'static str, usize)> {
        // The results of a warpgroup take 168 registers per thread, or up to 255 where it has two sums.
        let [query_min_blocks, key_min_blocks] = match self.together {
            true => [3, 2],
            false => [self.query_groups, self.key_groups].map(|warps| resident_blocks(warps, self.sizes.head_dim)),
        };
        vec![
            ("QUERY_GROUPS", self.query_groups),
            ("QUERY_BLOCKS", self.query_blocks),
            ("QUERY_MIN_BLOCKS", query_min_blocks),
            ("KEY_GROUPS", self.key_groups),
            ("KEY_BLOCKS", self.key_blocks),
            ("KEY_MIN_BLOCKS", key_min_blocks),
            ("KEY_TILE", self.key_tile),
            ("KEY_STAGES", stages(self.sizes.keys, self.key_tile)),
            ("QUERY_TILE", self.query_tile),
            ("QUERY_STAGES", stages(self.sizes.queries, self.query_tile)),
            ("TOGETHER", usize::from(self.together)),
        ]
    }
}

/// Rows per tile of the kernels without tensor cores, with `row_tiles` tiles of rows and `score_tiles` tiles of scores
/// in shared memory at once, for at most `rows` rows. Smaller for heads whose tiles would not fit; there is a size for
/// heads of up to 600 values, on GPUs with less shared memory of up to 380.
pub(super) fn plain_tile(head_dim: usize, rows: usize, row_tiles: usize, score_tiles: usize, chip: Chip) -> usize {
    let most_bytes = MOST_BYTES.min(chip.shared_bytes);
    let fits = |tile: &usize| plain_bytes(head_dim, *tile, row_tiles, score_tiles) <= most_bytes;
    let enough = rows.next_multiple_of(16).clamp(16, 64);
    [64, 32, 16].into_iter().filter(|&tile| tile < 2 * enough).find(fits).unwrap_or(16)
}

/// Bytes of tiles in shared memory.
pub(super) fn plain_bytes(head_dim: usize, tile: usize, row_tiles: usize, score_tiles: usize) -> usize {
    4 * (row_tiles * tile * (head_dim.next_multiple_of(4) + 4) + score_tiles * tile * (tile + 4))
}

#[cfg(test)]
mod tests {
    use super::super::super::chip::testing::{A100, H200, RTX_4090};
    use super::*;

    /// Warps per warpgroup.
    const WARPS_TOGETHER: usize = 4;

    fn sizes(batch: usize, heads: usize, tokens: usize, head_dim: usize) -> Sizes {
        Sizes { batch, heads, kv_heads: heads, queries: tokens, keys: tokens, head_dim }
    }

    #[test]
    fn few_warps_are_idle() {
        // ViT-B/16: thirteen groups are four rounds of four warps; or one warp each, and three helpers.
        let vit = sizes(256, 12, 197, 64);
        let forward = ForwardTiling::new(vit, false, A100);
        assert_eq!((forward.pairs, forward.warps, forward.rounds, forward.blocks), (1, 4, 4, 1));
        assert_eq!(
            WholeTiling::new(vit, A100).map(|tiling| (tiling.pairs, tiling.key_groups, tiling.parts)),
            Some((1, 13, 1))
        );
        // With the dropout mask, two rounds of seven.
        let forward = ForwardTiling::new(vit, true, A100);
        assert_eq!((forward.pairs, forward.warps, forward.rounds, forward.blocks), (1, 7, 2, 1));
        // A single image: small blocks on many SMs.
        let forward = ForwardTiling::new(sizes(1, 12, 197, 64), false, A100);
        assert_eq!((forward.pairs, forward.warps, forward.rounds, forward.blocks), (1, 4, 1, 4));
        // On Hopper the same with warpgroups, except with dropout, for few queries or other heads; with 257 tokens,
        // three blocks per SM.
        let on_hopper = |sizes: Sizes, dropout: bool| {
            let tiling = ForwardTiling::new(sizes, dropout, H200);
            (tiling.together, tiling.warps, tiling.rounds, tiling.blocks)
        };
        assert_eq!(on_hopper(vit, false), (true, 4, 4, 1));
        assert_eq!(on_hopper(vit, true), (false, 7, 2, 1));
        assert_eq!(on_hopper(sizes(1, 12, 197, 64), false), (true, 4, 1, 4));
        assert_eq!(on_hopper(sizes(256, 12, 128, 64), false), (true, 4, 2, 1));
        assert_eq!(on_hopper(sizes(256, 12, 112, 64), false), (false, 7, 1, 1));
        assert_eq!(on_hopper(sizes(256, 12, 197, 32), false), (false, 4, 4, 1));
        assert_eq!(on_hopper(sizes(256, 12, 257, 64), false), (true, 4, 5, 1));
        assert_eq!(on_hopper(sizes(256, 12, 577, 64), false), (true, 8, 1, 5));
        // A small ViT: several heads per block if one has few warps.
        let forward = ForwardTiling::new(sizes(1024, 4, 17, 32), true, A100);
        assert_eq!((forward.pairs, forward.warps, forward.blocks), (2, 2, 1));
        assert_eq!(
            WholeTiling::new(sizes(1024, 4, 16, 32), A100).map(|tiling| (tiling.pairs, tiling.key_groups)),
            Some((4, 1))
        );
        // Large heads need more registers than sixteen warps leave per thread.
        assert_eq!(
            WholeTiling::new(sizes(1024, 4, 65, 128), A100).map(|tiling| (tiling.pairs, tiling.key_groups)),
            Some((1, 5))
        );
        assert_eq!(WholeTiling::new(sizes(1024, 4, 197, 128), A100), None);
    }

    #[test]
    fn long_pairs_have_their_own_kernels() {
        assert_eq!(WholeTiling::new(sizes(2, 2, 256, 64), A100).map(|tiling| tiling.parts > 1), Some(true));
        assert_eq!(WholeTiling::new(sizes(2, 2, 257, 64), A100), None);
        assert_eq!(WholeTiling::new(Sizes { kv_heads: 1, ..sizes(2, 2, 16, 64) }, A100), None);
        assert_eq!(WholeTiling::new(Sizes { queries: 5000, ..sizes(2, 2, 16, 64) }, A100), None);
    }

    #[test]
    fn tiles_fit_into_shared_memory() {
        for head_dim in (32..=128).step_by(16) {
            for tokens in [1, 16, 17, 65, 128, 197, 208, 256, 577, 5000] {
                for batch in [1, 64, 4096] {
                    for (queries, keys) in [(tokens, tokens), (1, tokens), (tokens, 1)] {
                        let sizes = Sizes { queries, keys, ..sizes(batch, 8, tokens, head_dim) };
                        for chip in [A100, RTX_4090, H200] {
                            let forward = ForwardTiling::new(sizes, tokens % 2 == 1, chip);
                            let most_bytes = MODEST_BYTES.min(chip.shared_bytes);
                            assert!(forward.bytes() <= most_bytes && forward.threads() <= 512, "{forward:?}");
                            assert!(forward.blocks * forward.rounds * forward.warps * GROUP >= queries, "{forward:?}");
                            assert!(
                                forward.rounds == 1 || forward.key_stages * forward.key_tile >= keys,
                                "{forward:?}"
                            );
                            // The warps of a warpgroup belong to one pair.
                            let whole = forward.warps.is_multiple_of(WARPS_TOGETHER) && forward.pairs == 1;
                            assert!(!forward.together || whole, "{forward:?}");
                            if let Some(whole) = WholeTiling::new(sizes, chip) {
                                let most_bytes = MOST_BYTES.min(chip.shared_bytes);
                                assert!(whole.bytes() <= most_bytes && whole.threads() <= 512, "{whole:?}");
                                assert!(whole.key_groups * GROUP >= keys, "{whole:?}");
                                assert!(whole.parts * whole.part_groups * GROUP >= queries, "{whole:?}");
                            }
                        }
                        for chip in [RTX_4090, H200] {
                            let long = LongTiling::new(sizes, tokens % 2 == 1, chip);
                            let bytes = long.key_bytes().max(long.query_bytes());
                            assert!(bytes <= RTX_4090.shared_bytes, "{long:?}");
                            assert!(long.query_blocks * long.query_groups * GROUP >= queries, "{long:?}");
                            assert!(long.key_blocks * long.key_groups * GROUP >= keys, "{long:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_have_all_keys() {
        for keys in 1..300 {
            let tiling = ForwardTiling::new(Sizes { keys, ..sizes(1, 1, 200, 64) }, false, H200);
            let (first, last) = (tiling.key_tile, *tiling.tile_sizes().last().unwrap());
            // Tiles of the first size, except for the last one, which ends with the last group of sixteen.
            let all = keys.div_ceil(first).saturating_sub(1) * first + last;
            assert_eq!(all, keys.next_multiple_of(GROUP), "{keys} keys: {:?}", tiling.tile_sizes());
        }
    }

    #[test]
    fn plain_tiles_fit_for_large_heads() {
        for (chip, largest) in [(A100, 600), (RTX_4090, 380)] {
            for head_dim in 1..=largest {
                let tile = plain_tile(head_dim, 1000, 4, 2, chip);
                assert!(plain_bytes(head_dim, tile, 4, 2) <= chip.shared_bytes, "{head_dim}");
            }
        }
        assert_eq!([1, 17, 197].map(|rows| plain_tile(64, rows, 4, 2, A100)), [16, 32, 64]);
        assert_eq!(plain_tile(64, 197, 4, 2, RTX_4090), 32);
    }
}
