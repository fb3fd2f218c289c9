// Attention forward on tensor cores. A warp owns sixteen queries of a (sample, head) pair and meets the keys tile by tile; a block is PAIRS
// pairs with QUERY_GROUPS warps each, QUERY_BLOCKS blocks to a pair. The weights of a tile stay in registers (online softmax).
//
// Constants besides the common ones: PAIRS, QUERY_GROUPS, QUERY_BLOCKS, QUERY_MIN_BLOCKS (that a processor should hold at once), KEY_TILE,
// KEY_STAGES (tiles in shared memory: 2, or 1 if all keys are one tile), OUT_TYPE.

#define KEY_TILE_BYTES (KEY_TILE * ROW_BYTES)
// Scores stay what the product gave, and the scale is part of the power, where that keeps their order.
#define RAW (!BIAS && SCALE_IS_POSITIVE)
#define POWER_FACTOR (RAW ? SCALE_LOG2 : 1.0f)

struct Queries {
    uint32 pair;
    int first;
    int visible;
    // Keys that all of the sixteen queries see, and that any of them sees.
    int sure, seen;
    uint64 stream;
};

struct Running {
    float maximum[2];
    float sum[2];
    float out[CHUNKS][4];
};

// Takes a tile of keys into account. CHECKED: some query of the warp does not see some of its keys.
template <bool CHECKED>
__device__ __forceinline__ void meet_tile(Running& running, const Queries& queries, const uint32 (&q)[DEPTH][4], uint32 tile, int first_key,
                                          const int* padding, const float* bias) {
    const int lane = threadIdx.x % 32, upper = queries.first + lane / 4;
    float scores[KEY_TILE / 8][4];
    const uint32 keys = along_head(tile), values = along_rows(tile + KEY_TILE_BYTES);
#pragma unroll
    for (int sixteen = 0; sixteen < KEY_TILE / 16; sixteen++) {
        float products[2][4] = {};
        if (!CHECKED || first_key + 16 * sixteen < queries.seen) multiply_rows(products, q, keys + 16 * sixteen * ROW_BYTES);
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = first_key + 16 * sixteen + 8 * half + 2 * (lane % 4) + i % 2, query = upper + i / 2 * 8;
                float score = products[half][i];
                if (!RAW) score = score * SCALE_LOG2 + bias_of(bias, queries.pair, query, key);
                if (CHECKED && !(key_counts(padding, queries.pair, key, queries.visible) && in_order(query, key))) score = -INFINITE;
                scores[2 * sixteen + half][i] = score;
            }
        }
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float maximum = running.maximum[row];
#pragma unroll
        for (int n = 0; n < KEY_TILE / 8; n++) maximum = fmaxf(maximum, fmaxf(scores[n][2 * row], scores[n][2 * row + 1]));
        maximum = row_max(maximum);
        const float shift = subtractable(maximum) * POWER_FACTOR;
        const float grown = power_of_two(running.maximum[row] * POWER_FACTOR - shift);
        float sum = running.sum[row] * grown;
#pragma unroll
        for (int n = 0; n < KEY_TILE / 8; n++) {
#pragma unroll
            for (int i = 2 * row; i < 2 * row + 2; i++) {
                scores[n][i] = power_of_two(scores[n][i] * POWER_FACTOR - shift);
                sum += scores[n][i];
            }
        }
        running.sum[row] = sum;
        running.maximum[row] = maximum;
#pragma unroll
        for (int n = 0; n < CHUNKS; n++) running.out[n][2 * row] *= grown, running.out[n][2 * row + 1] *= grown;
    }
#pragma unroll
    for (int sixteen = 0; sixteen < KEY_TILE / 16; sixteen++) {
        if (CHECKED && first_key + 16 * sixteen >= queries.seen) continue;
        float weights[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
#if DROPOUT
            const uint32 kept = kept_of_query_rows(queries.stream, queries.pair, queries.first, first_key + 16 * sixteen + 8 * half);
#else
            const uint32 kept = 0xf;
#endif
#pragma unroll
            for (int i = 0; i < 4; i++) weights[half][i] = kept >> i & 1 ? scores[2 * sixteen + half][i] : 0.0f;
        }
        add_rows(running.out, weights, values + 16 * sixteen * ROW_BYTES);
    }
}

extern "C" __global__ void __launch_bounds__(32 * PAIRS * QUERY_GROUPS, QUERY_MIN_BLOCKS)
attention_forward(const bf16* q, const bf16* k, const bf16* v, const int* padding, const float* bias, OUT_TYPE* out, float* log_sums,
                  uint32 pair_count, const Run* run) {
    constexpr int THREADS = 32 * PAIRS * QUERY_GROUPS;
    extern __shared__ __align__(16) unsigned char memory[];
    const uint32 tiles_at = shared_address(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, local = warp / QUERY_GROUPS;
    const uint32 first_pair = blockIdx.x / QUERY_BLOCKS * PAIRS;
    const int block_query = blockIdx.x % QUERY_BLOCKS * QUERY_GROUPS * 16;

    Queries queries;
    queries.pair = min(first_pair + local, pair_count - 1);
    queries.first = block_query + warp % QUERY_GROUPS * 16;
    const bool active = first_pair + local < pair_count && queries.first < QUERIES;
    const int upper = queries.first + lane / 4;
    queries.visible = visible_keys(padding, queries.pair);
    queries.seen = active ? keys_up_to(min(queries.first + 15, QUERIES - 1), queries.visible) : 0;
    queries.sure = PADDING == 2 ? 0 : keys_up_to(queries.first, queries.visible);
    queries.stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;

    // All threads go through the tiles that any of the block's queries sees.
    int block_keys = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        block_keys = max(block_keys, visible_keys(padding, min(first_pair + i, pair_count - 1)));
    block_keys = keys_up_to(min(block_query + 16 * QUERY_GROUPS, QUERIES) - 1, block_keys);
    const int tiles = (block_keys + KEY_TILE - 1) / KEY_TILE;

    if (tiles > 0) load_keys<THREADS>(tiles_at, k, v, padding, first_pair, pair_count, 0);
    uint32 left[DEPTH][4];
    load_left(left, head_of(q, queries.pair, QUERIES, Q_STRIDE) + (uint64)(active ? upper : 0) * Q_STRIDE, Q_STRIDE,
              active && upper < QUERIES, active && upper + 8 < QUERIES);
    Running running;
#pragma unroll
    for (int row = 0; row < 2; row++) running.maximum[row] = -INFINITE, running.sum[row] = 0.0f;
#pragma unroll
    for (int n = 0; n < CHUNKS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) running.out[n][i] = 0.0f;

    for (int tile = 0; tile < tiles; tile++) {
        // The tile has arrived, and nobody reads the one before any more: the next one takes its place.
        copies_arrived();
        __syncthreads();
        const int first_key = tile * KEY_TILE;
        if (tile + 1 < tiles)
            load_keys<THREADS>(tiles_at + (tile + 1) % KEY_STAGES * 2 * PAIRS * KEY_TILE_BYTES, k, v, padding, first_pair, pair_count,
                               first_key + KEY_TILE);
        const uint32 at = tiles_at + (tile % KEY_STAGES * PAIRS + local) * 2 * KEY_TILE_BYTES;
        if (first_key + KEY_TILE <= queries.sure && active)
            meet_tile<false>(running, queries, left, at, first_key, padding, bias);
        else if (first_key < queries.seen)
            meet_tile<true>(running, queries, left, at, first_key, padding, bias);
    }
    if (!active) return;

    float factor[2];
#pragma unroll
    for (int row = 0; row < 2; row++) {
        // A query that sees no key has a sum of 0: its output is 0, and its log-sum infinite.
        const float sum = row_sum(running.sum[row]);
        const float log_sum = sum == 0.0f ? INFINITE : (running.maximum[row] * POWER_FACTOR + log2f(sum)) * LN_2;
        factor[row] = sum == 0.0f ? 0.0f : (DROPOUT ? DROP_SCALE : 1.0f) / sum;
        const int query = upper + 8 * row;
        if (lane % 4 == 0 && query < QUERIES) log_sums[(uint64)queries.pair * QUERIES + query] = log_sum;
    }
    store_rows(head_of(out, queries.pair, QUERIES, DIM) + (uint64)upper * DIM, DIM, running.out, upper < QUERIES, upper + 8 < QUERIES,
               factor[0], factor[1]);
}
