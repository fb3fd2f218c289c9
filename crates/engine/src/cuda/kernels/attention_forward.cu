// Attention forward on tensor cores. A warp owns sixteen queries of a (sample, head) pair at a time and iterates over the keys tile by
// tile, alone or, on Hopper, as a warpgroup with three others that own adjacent queries; the weights of a tile stay in registers (online
// softmax). A block processes PAIRS pairs with QUERY_WARPS warps each, with QUERY_BLOCKS blocks per pair. If all keys and values of a pair
// fit into shared memory, they are loaded once, and each warp iterates over them up to QUERY_ROUNDS times, with other queries.
//
// Constants in addition to the common ones: PAIRS, QUERY_WARPS, QUERY_ROUNDS, QUERY_BLOCKS, QUERY_MIN_BLOCKS (that an SM should hold at
// once), QUERIES_SHARED (whether queries go through shared memory, too: they arrive earlier, but leave room for fewer blocks), KEY_TILE,
// KEY_STAGES (tiles in shared memory), OUT_TYPE; TOGETHER (whether four warps multiply together, see attention_together.cu).

#define KEY_TILE_BYTES (KEY_TILE * ROW_BYTES)
#define KEY_TILES ((KEYS + KEY_TILE - 1) / KEY_TILE)
#define PAIR_THREADS (32 * QUERY_WARPS)
// Whether all keys stay in shared memory. Then all copies are issued at once; otherwise those of all tiles but the one being read.
#define ALL_STAY (KEY_TILES <= KEY_STAGES)
#define QUERY_ROWS (16 * QUERY_WARPS * QUERY_ROUNDS)
#define QUERY_BYTES (QUERIES_SHARED ? QUERY_ROWS * ROW_BYTES : 0)
// A pair's memory: queries, the tiles of keys, those of values.
#define HELD_ROWS (ALL_STAY ? (KEYS + 15) / 16 * 16 : KEY_STAGES * KEY_TILE)
#define HELD_BYTES (HELD_ROWS * ROW_BYTES)
// Where keys do not begin with a block of random numbers, warps would make many of them twice: one bit per weight is kept for all. Some are read
// for keys and queries past the last, where nothing depends on them.
#define SHARED_MASK (DROPOUT && QUERIES % 8 != 0 && QUERY_BLOCKS == 1 && ALL_STAY)
#define MASK_BYTES (SHARED_MASK ? ((HELD_ROWS * QUERIES + QUERY_ROWS) / 8 + 16 + 255) / 256 * 256 : 0)
#define PAIR_BYTES (QUERY_BYTES + 2 * HELD_BYTES + MASK_BYTES)
#define AHEAD (ALL_STAY ? (KEY_TILES > 0 ? KEY_TILES : 1) : KEY_STAGES - 1)
// Queries processed together.
#define ROWS_TOGETHER (TOGETHER ? 64 : 16)
static_assert(!TOGETHER || (PAIRS == 1 && QUERY_WARPS % 4 == 0), "four warps have a pair");
static_assert(!TOGETHER || KEY_TILE_BYTES % 1024 == 0, "tensor cores find chunks by their address");
// Scores stay unscaled, and the scale is part of the exponent, if that keeps their order.
#define RAW (!BIAS && SCALE_IS_POSITIVE)
#define POWER_FACTOR (RAW ? SCALE_LOG2 : 1.0f)
// Powers may grow to two to this before they are rescaled to a new maximum: the quotient with their sum is the same.
#define GROWTH 8.0f

struct Queries {
    uint32 pair;
    int first;
    Visible visible;
    // Keys that all of the sixteen queries attend to, and that any of them attends to; in a warpgroup, of all of its queries.
    int sure_from, sure;
    int from, seen;
    // Whether the first one exists.
    bool is_there;
    uint64 stream;
    // The pair's mask, if it is shared.
    const unsigned char* mask;
};

#if DROPOUT
// See `kept_of_query_rows`.
__device__ __forceinline__ void kept_of(uint32 (&kept)[4], const Queries& queries, int first_key) {
    if (!SHARED_MASK) {
        kept_of_query_rows(kept, queries.stream, queries.pair, queries.first, first_key);
        return;
    }
    const int lane = threadIdx.x % 32, column = (first_key + 2 * (lane % 4)) * QUERIES + queries.first + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int here = column + (i / 2 * 8 + i % 2) * QUERIES;
        kept[i] = (queries.mask[here / 8] | (uint32)queries.mask[here / 8 + 1] << 8) >> (here % 8);
    }
}
#endif

struct Running {
    // For this thread's two rows: what is subtracted from scores, which is some earlier maximum, and the sums of the powers.
    float maximum[2];
    float sum[2];
    float out[CHUNKS][4];
};

// Whether none of sixteen keys of a tile matters to the warp. Warpgroups process whole tiles.
template <bool CHECKED> __device__ __forceinline__ bool is_unseen(const Queries& queries, int first_key) {
    return CHECKED && !TOGETHER && (first_key >= queries.seen || (LIMITED_BEHIND && first_key + 16 <= queries.from));
}

// Turns the scores of COUNT groups of sixteen keys into weights, and updates maxima and sums. Each group is passed on as a left operand.
// CHECKED: some query of the warp or warpgroup does not attend to some of them.
template <bool CHECKED, int COUNT, typename PassOn>
__device__ __forceinline__ void weigh(float (&scores)[COUNT][2][4], Running& running, const Queries& queries, int first_key,
                                      const int* padding, const float* bias, PassOn pass_on) {
    const int lane = threadIdx.x % 32;
    float maximum[2] = {-INFINITE, -INFINITE};
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        if (is_unseen<CHECKED>(queries, first_key + 16 * n)) continue;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int key = first_key + 16 * n + i / 4 * 8 + 2 * (lane % 4) + i % 2, query = queries.first + lane / 4 + i / 2 % 2 * 8;
            float& score = scores[n][i / 4][i % 4];
            if (!RAW) score = score * SCALE_LOG2 + bias_of(bias, queries.pair, query, key);
            if (CHECKED && !(key_counts(padding, queries.pair, key, queries.visible) && in_reach(query, key, queries.visible)))
                score = -INFINITE;
            maximum[i / 2 % 2] = fmaxf(maximum[i / 2 % 2], score);
        }
    }
    bool grows = false;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        maximum[row] = row_max(maximum[row]);
        // Also if there were no keys before: then the difference is infinite or, if there are none now either, NaN.
        grows |= (maximum[row] - running.maximum[row]) * POWER_FACTOR > GROWTH;
    }
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const float larger = fmaxf(maximum[row], running.maximum[row]);
            const float grown = power_of_two((running.maximum[row] - subtractable(larger)) * POWER_FACTOR);
            running.maximum[row] = larger;
            running.sum[row] *= grown;
#pragma unroll
            for (int n = 0; n < CHUNKS; n++) running.out[n][2 * row] *= grown, running.out[n][2 * row + 1] *= grown;
        }
    }
    const float shift[2] = {subtractable(running.maximum[0]) * POWER_FACTOR, subtractable(running.maximum[1]) * POWER_FACTOR};
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        if (is_unseen<CHECKED>(queries, first_key + 16 * n)) continue;
        float weights[2][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = i / 2 % 2;
            weights[i / 4][i % 4] = power_of_two(scores[n][i / 4][i % 4] * POWER_FACTOR - shift[row]);
            running.sum[row] += weights[i / 4][i % 4];
        }
#if DROPOUT
        uint32 kept[4];
        kept_of(kept, queries, first_key + 16 * n);
#pragma unroll
        for (int i = 0; i < 8; i++) weights[i / 4][i % 4] = is_kept(kept, i / 4, i % 4) ? weights[i / 4][i % 4] : 0.0f;
#endif
        uint32 left[4];
        as_left(left, weights);
        pass_on(n, left);
    }
}

// Processes the first COUNT groups of sixteen keys of a tile.
template <bool CHECKED, int COUNT>
__device__ __forceinline__ void meet_tile(Running& running, const Queries& queries, const uint32 (&q)[DEPTH][4], uint32 tile, int first_key,
                                          const int* padding, const float* bias) {
    float scores[COUNT][2][4];
#if TOGETHER
    uint32 weights[COUNT][4] = {};
    multiply_tile(scores, q, tile);
    // Warps without queries only take part in the multiplication.
    if (queries.is_there)
        weigh<CHECKED>(scores, running, queries, first_key, padding, bias, [&](int n, const uint32 (&left)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++) weights[n][i] = left[i];
        });
    add_tile(running.out, weights, tile + HELD_BYTES);
#else
    const uint32 keys = along_head(tile), values = along_rows(tile + HELD_BYTES);
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        if (is_unseen<CHECKED>(queries, first_key + 16 * n)) continue;
        clear(scores[n]);
        multiply_rows(scores[n], q, keys, 16 * n * ROW_BYTES);
    }
    weigh<CHECKED>(scores, running, queries, first_key, padding, bias,
                   [&](int n, const uint32 (&left)[4]) { add_rows(running.out, left, values, 16 * n * ROW_BYTES); });
#endif
}

// Groups of sixteen in the last tile of keys.
#define LAST_SIXTEENS ((KEYS - (KEY_TILES - 1) * KEY_TILE + 15) / 16)

__device__ __forceinline__ void meet_keys(Running& running, const Queries& queries, const uint32 (&q)[DEPTH][4], uint32 at, int tile,
                                          const int* padding, const float* bias) {
    const int first_key = tile * KEY_TILE;
    if (first_key >= queries.seen || (LIMITED_BEHIND && first_key + KEY_TILE <= queries.from)) return;
    // The last tile has its own code if it is shorter, or if nothing but its end is ever checked.
    constexpr bool OFTEN_CHECKED = LIMITED_AHEAD || LIMITED_BEHIND || PADDING != 0;
    if (KEY_TILES > 0 && tile == KEY_TILES - 1 && (LAST_SIXTEENS < KEY_TILE / 16 || !OFTEN_CHECKED)) {
        if (!OFTEN_CHECKED && KEYS % 16 == 0)
            meet_tile<false, LAST_SIXTEENS>(running, queries, q, at, first_key, padding, bias);
        else
            meet_tile<true, LAST_SIXTEENS>(running, queries, q, at, first_key, padding, bias);
    } else if (!OFTEN_CHECKED || (first_key + KEY_TILE <= queries.sure && (!LIMITED_BEHIND || first_key >= queries.sure_from))) {
        meet_tile<false, KEY_TILE / 16>(running, queries, q, at, first_key, padding, bias);
    } else {
        meet_tile<true, KEY_TILE / 16>(running, queries, q, at, first_key, padding, bias);
    }
}

extern "C" __global__ void __launch_bounds__(PAIRS * PAIR_THREADS, QUERY_MIN_BLOCKS)
attention_forward(const bf16* q, const bf16* k, const bf16* v, const int* padding, const float* bias OFFSETS_PARAMETER, OUT_TYPE* out,
                  float* log_sums, uint32 pair_count, const Run* run, const uint64 DROP_PLACE) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, local = warp / QUERY_WARPS, thread = threadIdx.x - local * PAIR_THREADS;
    const uint32 queries_at = shared_address(memory) + local * PAIR_BYTES, tiles_at = queries_at + QUERY_BYTES;
    const uint32 first_pair = blockIdx.x / QUERY_BLOCKS * PAIRS;
    const int block_query = blockIdx.x % QUERY_BLOCKS * QUERY_ROWS;

    Queries queries;
    queries.pair = min(first_pair + local, pair_count - 1);
    queries.visible = visible_keys(padding, queries.pair OFFSETS_ARGUMENT);
    queries.stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const bool pair_is_there = first_pair + local < pair_count;

    // All threads iterate over the tiles that any of the block's queries attends to.
    int block_from = KEYS, block_keys = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const Visible visible = visible_keys(padding, min(first_pair + i, pair_count - 1) OFFSETS_ARGUMENT);
#if OFFSETS || LIMITED_BEHIND
        block_from = min(block_from, keys_from(block_query, visible));
        block_keys = max(block_keys, keys_up_to(min(block_query + QUERY_ROWS, QUERIES) - 1, visible));
    }
#else
        block_keys = max(block_keys, visible);
    }
    block_keys = keys_up_to(min(block_query + QUERY_ROWS, QUERIES) - 1, block_keys);
#endif
    const int first_tile = LIMITED_BEHIND ? block_from / KEY_TILE : 0, tiles = (block_keys + KEY_TILE - 1) / KEY_TILE;

    const bf16 *keys = kv_head_of(k, queries.pair, K_STRIDE), *values = kv_head_of(v, queries.pair, V_STRIDE);
    const auto bring = [&](int tile) {
        const auto counts = [&](int key) { return key_counts(padding, queries.pair, key, queries.visible); };
        const uint32 to = tiles_at + tile % KEY_STAGES * KEY_TILE_BYTES;
        if (tile < tiles && tile < KEY_TILES - 1) {
            copy_rows<KEY_TILE, PAIR_THREADS>(to, keys, K_STRIDE, tile * KEY_TILE, thread, counts);
            copy_rows<KEY_TILE, PAIR_THREADS>(to + HELD_BYTES, values, V_STRIDE, tile * KEY_TILE, thread, counts);
        } else if (tile < tiles) {
            copy_rows<16 * LAST_SIXTEENS, PAIR_THREADS>(to, keys, K_STRIDE, tile * KEY_TILE, thread, counts);
            copy_rows<16 * LAST_SIXTEENS, PAIR_THREADS>(to + HELD_BYTES, values, V_STRIDE, tile * KEY_TILE, thread, counts);
        }
        end_copies();
    };
    if (QUERIES_SHARED)
        copy_rows<QUERY_ROWS, PAIR_THREADS>(queries_at, head_of(q, queries.pair, QUERIES, Q_STRIDE), Q_STRIDE, block_query, thread,
                                        [](int query) { return query < QUERIES; });
#pragma unroll 1
    for (int tile = 0; tile < AHEAD; tile++) bring(first_tile + tile);
#if DROPOUT
    unsigned char* mask = memory + local * PAIR_BYTES + QUERY_BYTES + 2 * HELD_BYTES;
    queries.mask = mask;
    if (SHARED_MASK)
        for (int i = thread; 8 * i < END_OF(queries.visible) * QUERIES; i += PAIR_THREADS) mask[i] = kept_bits(queries.stream, queries.pair, i);
#endif

#pragma unroll 1
    for (int round = 0; round < QUERY_ROUNDS; round++) {
        queries.first = block_query + (round * QUERY_WARPS + warp % QUERY_WARPS) * 16;
        queries.is_there = pair_is_there && queries.first < QUERIES;
        const int upper = queries.first + lane / 4;
        const bool is_there[2] = {queries.is_there && upper < QUERIES, queries.is_there && upper + 8 < QUERIES};
        const int first = queries.first / ROWS_TOGETHER * ROWS_TOGETHER;
        const int last = min(first + ROWS_TOGETHER, QUERIES) - 1;
        queries.from = keys_from(first, queries.visible);
        queries.seen = pair_is_there && first < QUERIES ? keys_up_to(last, queries.visible) : 0;
        queries.sure_from = keys_from(last, queries.visible);
        queries.sure = PADDING == 2 ? 0 : keys_up_to(first, queries.visible);
        uint32 left[DEPTH][4];
        const uint32 shared_queries = along_rows(queries_at + (queries.first - block_query) * ROW_BYTES);
        if (!QUERIES_SHARED)
            load_left(left, head_of(q, queries.pair, QUERIES, Q_STRIDE) + (uint64)upper * Q_STRIDE, Q_STRIDE, is_there[0], is_there[1]);
        else if (round > 0)
            take_left(left, shared_queries);
        Running running;
#pragma unroll
        for (int row = 0; row < 2; row++) running.maximum[row] = -INFINITE, running.sum[row] = 0.0f;
        clear(running.out);

#pragma unroll 1
        for (int tile = first_tile; tile < tiles; tile++) {
            if (round == 0) {
                // The tile has arrived, and nothing reads the previous one any more: unless all stay, another one replaces it.
                copies_arrived<AHEAD - 1>();
#if TOGETHER
                copies_become_operands();
#endif
                __syncthreads();
                if (ALL_STAY)
                    end_copies();
                else
                    bring(tile + AHEAD);
                // They arrive with the first tile.
                if (tile == first_tile && QUERIES_SHARED) take_left(left, shared_queries);
            }
            meet_keys(running, queries, left, tiles_at + tile % KEY_STAGES * KEY_TILE_BYTES, tile, padding, bias);
        }

        float factor[2];
#pragma unroll
        for (int row = 0; row < 2; row++) {
            // A query without keys has a sum of 0: its output is 0, and its log-sum infinite.
            const float sum = row_sum(running.sum[row]);
            const float log_sum = sum == 0.0f ? INFINITE : (running.maximum[row] * POWER_FACTOR + log_two(sum)) * LN_2;
            factor[row] = sum == 0.0f ? 0.0f : (DROPOUT ? DROP_SCALE : 1.0f) * reciprocal(sum);
            if (is_there[row] && lane % 4 == 0) log_sums[(uint64)queries.pair * QUERIES + upper + 8 * row] = log_sum;
        }
        store_rows(head_of(out, queries.pair, QUERIES, DIM) + (uint64)upper * DIM, DIM, running.out, is_there[0], is_there[1], factor[0],
                   factor[1]);
    }
}
