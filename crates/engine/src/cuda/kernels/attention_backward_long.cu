// Attention backward on tensor cores for sequences of any length, in two kernels without atomics. With P recomputed from the log-sums and
// the dropout factors F: delta = rowsum(dO * O), dP = dO V^T, dS = P (F dP - delta), dQ = scale dS K, dK = scale dS^T Q, dV = (F P)^T dO.
//
// Both have the same structure: a warp owns sixteen rows, with two operands of them in registers, and iterates over tiles of two operands
// of the other side in shared memory, alone or, on Hopper, as a warpgroup with the three others of its block, which own adjacent rows.
// `attention_backward_queries` owns queries (q, dO), iterates over keys (k, v), and writes the deltas in addition to dQ;
// `attention_backward_keys` owns keys (k, v) and iterates over queries (q, dO) with their log-sums and deltas, those of all heads of a
// group one after the other. A query head has QUERY_BLOCKS blocks of QUERY_GROUPS warps, a key/value head KEY_BLOCKS blocks of KEY_GROUPS
// warps. Tiles out of reach of all rows of a block are not read.
//
// Constants in addition to the common ones: QUERY_GROUPS, QUERY_BLOCKS, KEY_GROUPS, KEY_BLOCKS, KEY_TILE, KEY_STAGES, QUERY_TILE,
// QUERY_STAGES, QUERY_MIN_BLOCKS, KEY_MIN_BLOCKS (that an SM should hold at once), OUT_TYPE, D_OUT_TYPE; TOGETHER (whether the four warps of
// a block multiply together, see attention_backward_together.cu).

// Rows that meet a tile together.
#define ROWS_TOGETHER (TOGETHER ? 64 : 16)
static_assert(!TOGETHER || (QUERY_GROUPS == 4 && KEY_GROUPS == 4 && KEY_TILE == 64 && QUERY_TILE == 64), "a block is a warpgroup");

struct Warp {
    uint32 pair;
    // Its first row, and this thread's upper one.
    int first, upper;
    bool active;
};

// `pairs` is the number of pairs per block.
__device__ __forceinline__ Warp this_warp(int groups, int blocks, int rows, int pairs) {
    Warp w;
    w.pair = blockIdx.x / blocks * pairs;
    w.first = (blockIdx.x % blocks * groups + threadIdx.x / 32) * 16;
    w.active = w.first < rows;
    w.upper = w.first + threadIdx.x % 32 / 4;
    return w;
}

// The sum of dO * O over a head for this thread's two rows, in all four lanes of a row.
__device__ __forceinline__ void output_dots(float (&deltas)[2], const uint32 (&d_out)[DEPTH][4], const OUT_TYPE* out_rows, bool upper,
                                            bool lower) {
    uint32 out[DEPTH][4];
    load_left(out, out_rows, DIM, upper, lower);
    deltas[0] = deltas[1] = 0.0f;
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float low = __uint_as_float(d_out[d][i] << 16) * __uint_as_float(out[d][i] << 16);
            deltas[i % 2] += low + __uint_as_float(d_out[d][i] & 0xffff0000u) * __uint_as_float(out[d][i] & 0xffff0000u);
        }
    }
    deltas[0] = row_sum(deltas[0]);
    deltas[1] = row_sum(deltas[1]);
}

extern "C" __global__ void __launch_bounds__(32 * QUERY_GROUPS, QUERY_MIN_BLOCKS)
attention_backward_queries(const bf16* q, const bf16* k, const bf16* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                           const OUT_TYPE* out, const float* log_sums, const D_OUT_TYPE* d_out, float* deltas, bf16* dq,
                           const Run* run, const uint64 DROP_PLACE) {
    constexpr int THREADS = 32 * QUERY_GROUPS;
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32 tiles_at = shared_address(memory);
    const int lane = threadIdx.x % 32;
    const Warp w = this_warp(QUERY_GROUPS, QUERY_BLOCKS, QUERIES, 1);
    const bool upper = w.active && w.upper < QUERIES, lower = w.active && w.upper + 8 < QUERIES;

    const Visible visible = visible_keys(padding, w.pair OFFSETS_ARGUMENT);
    const int block_keys = keys_up_to(min((int)(blockIdx.x % QUERY_BLOCKS + 1) * QUERY_GROUPS * 16, QUERIES) - 1, visible);
    const int first_tile = keys_from((int)(blockIdx.x % QUERY_BLOCKS) * QUERY_GROUPS * 16, visible) / KEY_TILE;
    const int tiles = (block_keys + KEY_TILE - 1) / KEY_TILE;
    const bf16 *keys = kv_head_of(k, w.pair, K_STRIDE), *values = kv_head_of(v, w.pair, V_STRIDE);
    const auto bring = [&](int tile) {
        const auto counts = [&](int key) { return key_counts(padding, w.pair, key, visible); };
        const uint32 to = tiles_at + tile % KEY_STAGES * 2 * KEY_TILE * ROW_BYTES;
        copy_rows<KEY_TILE, THREADS>(to, keys, K_STRIDE, tile * KEY_TILE, threadIdx.x, counts);
        copy_rows<KEY_TILE, THREADS>(to + KEY_TILE * ROW_BYTES, values, V_STRIDE, tile * KEY_TILE, threadIdx.x, counts);
        end_copies();
    };
    if (first_tile < tiles) bring(first_tile);

    const int first_row = w.first / ROWS_TOGETHER * ROWS_TOGETHER, last = min(first_row + ROWS_TOGETHER, QUERIES) - 1;
    [[maybe_unused]] const int from = keys_from(w.first, visible), seen = w.active ? keys_up_to(last, visible) : 0;
    const int sure_from = keys_from(last, visible), sure = PADDING == 2 ? 0 : keys_up_to(first_row, visible);
    [[maybe_unused]] const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const uint64 row = w.active ? w.upper : 0, sum_row = (uint64)w.pair * QUERIES + row;

    uint32 query_rows[DEPTH][4], d_rows[DEPTH][4];
    load_left(query_rows, head_of(q, w.pair, QUERIES, Q_STRIDE) + row * Q_STRIDE, Q_STRIDE, upper, lower);
    load_left(d_rows, head_of(d_out, w.pair, QUERIES, DIM) + row * DIM, DIM, upper, lower);
    float delta[2];
    output_dots(delta, d_rows, head_of(out, w.pair, QUERIES, DIM) + row * DIM, upper, lower);
    if (lane % 4 == 0 && upper) deltas[sum_row] = delta[0];
    if (lane % 4 == 0 && lower) deltas[sum_row + 8] = delta[1];
    const float log_sum[2] = {upper ? log_sums[sum_row] * LOG2_E : INFINITE, lower ? log_sums[sum_row + 8] * LOG2_E : INFINITE};
    float sums[CHUNKS][4];
    clear(sums);

    for (int tile = first_tile; tile < tiles; tile++) {
        // The tile has arrived, and nothing reads the previous one any more: the next one replaces it.
        copies_arrived<0>();
#if TOGETHER
        copies_become_operands();
#endif
        __syncthreads();
        if (tile + 1 < tiles) bring(tile + 1);
        const uint32 at = tiles_at + tile % KEY_STAGES * 2 * KEY_TILE * ROW_BYTES;
#if TOGETHER
        const QueryRows rows = {w.pair, w.upper, visible, {log_sum[0], log_sum[1]}, {delta[0], delta[1]}};
        if ((tile + 1) * KEY_TILE > sure || (LIMITED_BEHIND && tile * KEY_TILE < sure_from))
            meet_keys<true>(sums, rows, query_rows, d_rows, at, tile * KEY_TILE, padding, bias);
        else
            meet_keys<false>(sums, rows, query_rows, d_rows, at, tile * KEY_TILE, padding, bias);
#else
        const int begin = LIMITED_BEHIND ? max(from - tile * KEY_TILE, 0) / 16 * 16 : 0, end = min(KEY_TILE, seen - tile * KEY_TILE);
#pragma unroll 2
        for (int first = begin; first < end; first += 16) {
            const int first_key = tile * KEY_TILE + first;
            float scores[2][4] = {}, d_weights[2][4] = {};
            multiply_rows(scores, query_rows, along_head(at + first * ROW_BYTES), 0);
            multiply_rows(d_weights, d_rows, along_head(at + first * ROW_BYTES), KEY_TILE * ROW_BYTES);
            const bool checked = first_key + 16 > sure || (LIMITED_BEHIND && first_key < sure_from);
#if DROPOUT
            uint32 kept[4];
            kept_of_query_rows(kept, stream, w.pair, w.first, first_key);
#endif
#pragma unroll
            for (int half = 0; half < 2; half++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int key = first_key + 8 * half + 2 * (lane % 4) + i % 2, query = w.upper + i / 2 * 8;
                    float shift = -log_sum[i / 2];
                    if (BIAS) shift += bias_of(bias, w.pair, query, key);
                    float weight = power_of_two(scores[half][i] * SCALE_LOG2 + shift);
                    if (checked && !(key_counts(padding, w.pair, key, visible) && in_reach(query, key, visible))) weight = 0.0f;
                    float d_weight = d_weights[half][i];
#if DROPOUT
                    d_weight = is_kept(kept, half, i) ? d_weight * DROP_SCALE : 0.0f;
#endif
                    scores[half][i] = weight * (d_weight - delta[i / 2]);
                }
            }
            uint32 left[4];
            as_left(left, scores);
            add_rows(sums, left, along_rows(at + first * ROW_BYTES), 0);
        }
#endif
    }
    store_rows(head_of(dq, w.pair, QUERIES, Q_STRIDE) + row * Q_STRIDE, Q_STRIDE, sums, upper, lower, SCALE, SCALE);
}

// Tensor cores find chunks by their address: tiles begin with a group of eight rows.
#define TILE_ALIGNMENT (TOGETHER ? 1024 : 256)
#define QUERY_TILE_BYTES ((QUERY_TILE * (2 * ROW_BYTES + 8) + TILE_ALIGNMENT - 1) / TILE_ALIGNMENT * TILE_ALIGNMENT)

// Loads a tile of queries into shared memory: their rows, output gradients, log-sums (to base 2) and deltas. Queries past the end get an
// infinite log-sum: all their weights are 0.
template <int THREADS>
__device__ __forceinline__ void load_queries(unsigned char* to, const bf16* q, const D_OUT_TYPE* d_out, const float* log_sums,
                                             const float* deltas, uint32 pair, int first_query) {
    const uint32 at = shared_address(to);
    const auto is_query = [](int query) { return query < QUERIES; };
    copy_rows<QUERY_TILE, THREADS>(at, head_of(q, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, threadIdx.x, is_query);
    copy_rows<QUERY_TILE, THREADS>(at + QUERY_TILE * ROW_BYTES, head_of(d_out, pair, QUERIES, DIM), DIM, first_query, threadIdx.x, is_query);
    end_copies();
    float* sums = reinterpret_cast<float*>(to + 2 * QUERY_TILE * ROW_BYTES);
    for (int row = threadIdx.x; row < QUERY_TILE; row += THREADS) {
        const int query = first_query + row;
        const uint64 from = (uint64)pair * QUERIES + query;
        sums[row] = query < QUERIES ? log_sums[from] * LOG2_E : INFINITE;
        sums[QUERY_TILE + row] = query < QUERIES ? deltas[from] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(32 * KEY_GROUPS, KEY_MIN_BLOCKS)
attention_backward_keys(const bf16* q, const bf16* k, const bf16* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                        const float* log_sums, const D_OUT_TYPE* d_out, const float* deltas, bf16* dk, bf16* dv, const Run* run, const uint64 DROP_PLACE) {
    constexpr int THREADS = 32 * KEY_GROUPS;
    extern __shared__ __align__(1024) unsigned char memory[];
    const int lane = threadIdx.x % 32;
    // The first pair of a group: the keys and values are the same for all.
    const Warp w = this_warp(KEY_GROUPS, KEY_BLOCKS, KEYS, GROUP);
    const Visible visible = visible_keys(padding, w.pair OFFSETS_ARGUMENT);
    const bool upper = w.active && key_counts(padding, w.pair, w.upper, visible);
    const bool lower = w.active && key_counts(padding, w.pair, w.upper + 8, visible);
    const uint64 row = w.active ? w.upper : 0;
    [[maybe_unused]] const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;

    // Other queries do not attend to the block's keys, or this warp's.
    const int block_key = (int)(blockIdx.x % KEY_BLOCKS) * KEY_GROUPS * 16;
    const int block_start = queries_from(block_key, visible), block_stop = queries_up_to(block_key + KEY_GROUPS * 16 - 1, visible);
    [[maybe_unused]] const int start = queries_from(w.first, visible), stop = queries_up_to(w.first + 15, visible);
    const int first_tile = block_start / QUERY_TILE, tiles = (block_stop + QUERY_TILE - 1) / QUERY_TILE;
    if (first_tile < tiles) load_queries<THREADS>(memory, q, d_out, log_sums, deltas, w.pair, first_tile * QUERY_TILE);

    uint32 key_rows[DEPTH][4], value_rows[DEPTH][4];
    load_left(key_rows, kv_head_of(k, w.pair, K_STRIDE) + row * K_STRIDE, K_STRIDE, upper, lower);
    load_left(value_rows, kv_head_of(v, w.pair, V_STRIDE) + row * V_STRIDE, V_STRIDE, upper, lower);
    float key_sums[CHUNKS][4], value_sums[CHUNKS][4];
    clear(key_sums);
    clear(value_sums);

#if GROUP > 1
#pragma unroll 1
#endif
    for (int head = 0; head < GROUP; head++) {
        const uint32 pair = w.pair + head;
        if (head > 0) {
            // Nothing reads the queries of the previous head any more.
            __syncthreads();
            if (first_tile < tiles) load_queries<THREADS>(memory, q, d_out, log_sums, deltas, pair, first_tile * QUERY_TILE);
        }
        for (int tile = first_tile; tile < tiles; tile++) {
            copies_arrived<0>();
#if TOGETHER
            copies_become_operands();
#endif
            __syncthreads();
            if (tile + 1 < tiles)
                load_queries<THREADS>(memory + (tile + 1 - first_tile) % QUERY_STAGES * QUERY_TILE_BYTES, q, d_out, log_sums, deltas, pair,
                                      (tile + 1) * QUERY_TILE);
            const unsigned char* here = memory + (tile - first_tile) % QUERY_STAGES * QUERY_TILE_BYTES;
            const uint32 at = shared_address(here);
            const float* sums = reinterpret_cast<const float*>(here + 2 * QUERY_TILE * ROW_BYTES);
#if TOGETHER
            // Whether all queries of the tile attend to all of the block's keys.
            const int first_query = tile * QUERY_TILE, last_query = min(first_query + QUERY_TILE, QUERIES) - 1;
            const bool sure = in_reach(first_query, block_key + ROWS_TOGETHER - 1, visible) && in_reach(last_query, block_key, visible);
            const KeyRows rows = {pair, w.upper, visible};
            if (sure)
                meet_queries<false>(key_sums, value_sums, rows, key_rows, value_rows, at, sums, first_query, bias);
            else
                meet_queries<true>(key_sums, value_sums, rows, key_rows, value_rows, at, sums, first_query, bias);
#else
            const int begin = max(start - tile * QUERY_TILE, 0) / 16 * 16;
            const int end = w.active ? min(QUERY_TILE, stop - tile * QUERY_TILE) : 0;
#pragma unroll 1
            for (int first = begin; first < end; first += 16) {
                [[maybe_unused]] const int first_query = tile * QUERY_TILE + first;
                float scores[2][4] = {}, d_weights[2][4] = {};
                multiply_rows(scores, key_rows, along_head(at + first * ROW_BYTES), 0);
                multiply_rows(d_weights, value_rows, along_head(at + first * ROW_BYTES), QUERY_TILE * ROW_BYTES);
#if DROPOUT
                const uint32 kept = kept_of_key_rows(kept_window(stream, pair, first_query, w.first + lane / 2));
#endif
#pragma unroll
                for (int half = 0; half < 2; half++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int column = first + 8 * half + 2 * (lane % 4) + i % 2;
                        const int query = tile * QUERY_TILE + column, key = w.upper + i / 2 * 8;
                        float shift = -sums[column];
                        if (BIAS) shift += bias_of(bias, pair, query, key);
                        float weight = power_of_two(scores[half][i] * SCALE_LOG2 + shift);
                        if (!in_reach(query, key, visible)) weight = 0.0f;
                        float d_weight = d_weights[half][i], kept_weight = weight;
#if DROPOUT
                        d_weight = kept >> (4 * half + i) & 1 ? d_weight * DROP_SCALE : 0.0f;
                        kept_weight = kept >> (4 * half + i) & 1 ? weight : 0.0f;
#endif
                        scores[half][i] = kept_weight;
                        d_weights[half][i] = weight * (d_weight - sums[QUERY_TILE + column]);
                    }
                }
                uint32 left[4];
                as_left(left, scores);
                add_rows(value_sums, left, along_rows(at + first * ROW_BYTES), QUERY_TILE * ROW_BYTES);
                as_left(left, d_weights);
                add_rows(key_sums, left, along_rows(at + first * ROW_BYTES), 0);
            }
#endif
        }
    }
    // Masked keys have no gradient. A row's sums depend on its own key alone, so nothing else is affected.
    if (!upper)
#pragma unroll
        for (int n = 0; n < CHUNKS; n++) key_sums[n][0] = key_sums[n][1] = value_sums[n][0] = value_sums[n][1] = 0.0f;
    if (!lower)
#pragma unroll
        for (int n = 0; n < CHUNKS; n++) key_sums[n][2] = key_sums[n][3] = value_sums[n][2] = value_sums[n][3] = 0.0f;
    const bool store_upper = w.active && w.upper < KEYS, store_lower = w.active && w.upper + 8 < KEYS;
    const float value_factor = DROPOUT ? DROP_SCALE : 1.0f;
    store_rows(kv_head_of(dk, w.pair, K_STRIDE) + row * K_STRIDE, K_STRIDE, key_sums, store_upper, store_lower, SCALE, SCALE);
    store_rows(kv_head_of(dv, w.pair, V_STRIDE) + row * V_STRIDE, V_STRIDE, value_sums, store_upper, store_lower, value_factor,
               value_factor);
}
