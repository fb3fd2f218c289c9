//! How attention is cut into tiles, blocks and warps. All of it follows from shapes alone.

use crate::ops::attention::Sizes;

/// Rows that a warp owns: what a tensor core's product has.
const GROUP: usize = 16;
/// Warps that a block should not have more of.
const MOST_WARPS: usize = 8;
/// Warps of a block of several short heads, if the heads are small. More than [`MOST_WARPS`] have to do with 128 registers a thread, which
/// larger heads' sums do not fit into.
const MOST_SMALL_WARPS: usize = 16;
/// Values of a small head.
const SMALL_HEAD: usize = 32;
/// With up to so many (sample, head) pairs, each gets a block: there would be processors without work.
const FEW_PAIRS: usize = 264;
/// Bytes of shared memory that let a processor hold two blocks or more.
const MODEST_BYTES: usize = 72 << 10;
/// Warps whose registers a processor has, if each thread takes 128 of them.
const RESIDENT_WARPS: usize = 16;

/// Bytes of shared memory that a block may have on every GPU since the A100.
const PLAIN_MOST_BYTES: usize = 160 << 10;

/// The tiles of the kernels that use tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorTiling {
    /// (sample, head) pairs of a block.
    pub pairs: usize,
    /// Warps of a pair, where a block owns queries.
    pub query_groups: usize,
    /// Blocks of a pair, where they own queries.
    pub query_blocks: usize,
    /// Warps of a pair, where a block owns keys.
    pub key_groups: usize,
    /// Blocks of a pair, where they own keys.
    pub key_blocks: usize,
    /// Keys that a block that owns queries meets at once.
    pub key_tile: usize,
    /// Queries that a block that owns keys meets at once.
    pub query_tile: usize,
    /// Bytes of a row in shared memory.
    pub row_bytes: usize,
    sizes: Sizes,
}

/// Warps of a block for so many groups of sixteen rows: as few of them idle as can be.
fn warps_for(groups: usize) -> usize {
    if groups <= MOST_WARPS {
        return groups.max(1);
    }
    (4..=MOST_WARPS).rev().min_by_key(|&warps| groups.div_ceil(warps) * warps).unwrap_or(MOST_WARPS)
}

/// Pairs of a block whose heads have so many warps each. Registers are given to four warps at once, so that a number of warps that four
/// does not divide leaves some unused.
fn pairs_for(warps: usize, pair_count: usize, head_dim: usize) -> usize {
    if pair_count <= FEW_PAIRS {
        return 1;
    }
    let most_warps = if head_dim <= SMALL_HEAD { MOST_SMALL_WARPS } else { MOST_WARPS };
    let most = (most_warps / warps).max(1);
    let idle = |pairs: usize| {
        let used = pairs * warps;
        // In thousandths, to be ordered.
        1000 - 1000 * used / used.next_multiple_of(4)
    };
    (1..=most).min_by_key(|&pairs| idle(pairs)).unwrap_or(1)
}

/// Rows of a tile: all rows in tiles that are about equally large, none larger than `most`.
fn tile_for(rows: usize, most: usize) -> usize {
    let groups = rows.div_ceil(GROUP).max(1);
    let tiles = groups.div_ceil(most / GROUP);
    GROUP * groups.div_ceil(tiles)
}

fn stages(rows: usize, tile: usize) -> usize {
    if rows > tile { 2 } else { 1 }
}

impl TensorTiling {
    /// Whether the kernels take heads of this size.
    pub fn takes(head_dim: usize) -> bool {
        head_dim.is_multiple_of(16) && (32..=128).contains(&head_dim)
    }

    /// For the forward pass, which does not look at the tiles of blocks that own keys, or for the gradient.
    pub fn new(sizes: Sizes, gradient: bool) -> TensorTiling {
        let query_groups = warps_for(sizes.queries.div_ceil(GROUP));
        let key_groups = warps_for(sizes.keys.div_ceil(GROUP));
        let most_groups = if gradient { query_groups.max(key_groups) } else { query_groups };
        let mut most_rows = if sizes.head_dim <= SMALL_HEAD { 96 } else { 64 };
        let mut tiling = TensorTiling {
            pairs: pairs_for(most_groups, sizes.batch * sizes.heads, sizes.head_dim),
            query_groups,
            query_blocks: sizes.queries.div_ceil(GROUP * query_groups).max(1),
            key_groups,
            key_blocks: sizes.keys.div_ceil(GROUP * key_groups).max(1),
            key_tile: tile_for(sizes.keys, most_rows),
            query_tile: tile_for(sizes.queries, most_rows),
            // An odd number of 16-byte chunks.
            row_bytes: 2 * sizes.head_dim + 16,
            sizes,
        };
        while tiling.key_bytes().max(if gradient { tiling.query_bytes() } else { 0 }) > MODEST_BYTES {
            if most_rows > GROUP {
                most_rows -= GROUP;
                tiling.key_tile = tile_for(sizes.keys, most_rows);
                tiling.query_tile = tile_for(sizes.queries, most_rows);
            } else {
                tiling.pairs = (tiling.pairs / 2).max(1);
            }
        }
        tiling
    }

    /// Tiles of keys in shared memory at once.
    pub fn key_stages(&self) -> usize {
        stages(self.sizes.keys, self.key_tile)
    }

    /// Tiles of queries in shared memory at once.
    pub fn query_stages(&self) -> usize {
        stages(self.sizes.queries, self.query_tile)
    }

    /// Bytes of shared memory of a block that owns queries: keys and values.
    pub fn key_bytes(&self) -> usize {
        self.key_stages() * self.pairs * self.key_tile * 2 * self.row_bytes
    }

    /// Bytes of shared memory of a block that owns keys: queries, outputs' gradients, log-sums and deltas.
    pub fn query_bytes(&self) -> usize {
        self.query_stages() * self.pairs * self.query_tile * (2 * self.row_bytes + 8)
    }

    /// Blocks that a processor should hold at once, where so many warps of a pair are in a block: more than one, if `light`, which says
    /// that a thread's values fit into 128 registers.
    pub fn resident_blocks(&self, groups: usize, light: bool) -> usize {
        let warps = (self.pairs * groups).next_multiple_of(4);
        if light { (RESIDENT_WARPS / warps).max(1) } else { 1 }
    }

    /// Blocks of pairs.
    pub fn pair_blocks(&self) -> usize {
        (self.sizes.batch * self.sizes.heads).div_ceil(self.pairs)
    }
}

/// Rows of a tile of the kernels without tensor cores, where `row_tiles` tiles of rows and `score_tiles` of scores are held at once and
/// `rows` is the most rows that there are. Smaller for heads whose tiles would not fit; heads of up to 600 values have one that does.
pub(super) fn plain_tile(head_dim: usize, rows: usize, row_tiles: usize, score_tiles: usize) -> usize {
    let fits = |tile: &usize| plain_bytes(head_dim, *tile, row_tiles, score_tiles) <= PLAIN_MOST_BYTES;
    let enough = rows.next_multiple_of(16).clamp(16, 64);
    [64, 32, 16].into_iter().filter(|&tile| tile < 2 * enough).find(fits).unwrap_or(16)
}

/// Bytes of so many tiles in shared memory.
pub(super) fn plain_bytes(head_dim: usize, tile: usize, row_tiles: usize, score_tiles: usize) -> usize {
    4 * (row_tiles * tile * (head_dim.next_multiple_of(4) + 4) + score_tiles * tile * (tile + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(batch: usize, heads: usize, tokens: usize, head_dim: usize) -> Sizes {
        Sizes { batch, heads, queries: tokens, keys: tokens, head_dim }
    }

    #[test]
    fn few_warps_are_idle() {
        // ViT-B/16: thirteen groups in two blocks of seven warps.
        let tiling = TensorTiling::new(sizes(256, 12, 197, 64), true);
        assert_eq!((tiling.pairs, tiling.query_groups, tiling.query_blocks, tiling.key_tile), (1, 7, 2, 64));
        // A small ViT: three heads of five warps fill sixteen places.
        let tiling = TensorTiling::new(sizes(1024, 4, 65, 32), true);
        assert_eq!((tiling.pairs, tiling.query_groups, tiling.query_blocks, tiling.key_tile), (3, 5, 1, 80));
        let tiling = TensorTiling::new(sizes(1024, 4, 17, 32), true);
        assert_eq!((tiling.pairs, tiling.query_groups), (2, 2));
        // Large heads need more registers than sixteen warps leave a thread.
        let tiling = TensorTiling::new(sizes(1024, 4, 65, 128), true);
        assert_eq!((tiling.pairs, tiling.query_groups), (1, 5));
    }

    #[test]
    fn tiles_fit_into_shared_memory() {
        for head_dim in (32..=128).step_by(16) {
            for tokens in [1, 16, 17, 65, 128, 197, 577, 5000] {
                for batch in [1, 64, 4096] {
                    for (queries, keys) in [(tokens, tokens), (1, tokens), (tokens, 1)] {
                        let sizes = Sizes { queries, keys, ..sizes(batch, 8, tokens, head_dim) };
                        for gradient in [false, true] {
                            let tiling = TensorTiling::new(sizes, gradient);
                            assert!(tiling.key_bytes() <= MODEST_BYTES, "{tiling:?}");
                            assert!(!gradient || tiling.query_bytes() <= MODEST_BYTES, "{tiling:?}");
                            assert!(tiling.pairs * tiling.query_groups <= 32, "{tiling:?}");
                            assert!(!gradient || tiling.pairs * tiling.key_groups <= 32, "{tiling:?}");
                            assert!(tiling.query_blocks * tiling.query_groups * GROUP >= queries);
                            assert!(tiling.key_blocks * tiling.key_groups * GROUP >= keys);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn plain_tiles_fit_for_large_heads() {
        for head_dim in 1..=600 {
            let tile = plain_tile(head_dim, 1000, 4, 2);
            assert!(plain_bytes(head_dim, tile, 4, 2) <= PLAIN_MOST_BYTES, "{head_dim}");
        }
        assert_eq!(plain_tile(64, 1, 4, 2), 16);
        assert_eq!(plain_tile(64, 17, 4, 2), 32);
        assert_eq!(plain_tile(64, 197, 4, 2), 64);
    }
}
