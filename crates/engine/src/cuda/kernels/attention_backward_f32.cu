// Attention backward in f32, in kernels without atomics: deltas = rowsum(dO * O), dQ by blocks that own queries, dK and dV by blocks that
// own keys, the bias gradient by blocks that own a piece of the bias. The formulas are those of attention_backward_whole.cu.

// One warp per row. `rows` is the number of (sample, head, query).
extern "C" __global__ void __launch_bounds__(THREADS) attention_deltas(const OUT_TYPE* out, const D_OUT_TYPE* d_out, float* deltas, uint64 rows) {
    const uint64 row = (uint64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    constexpr uint64 queries = QUERIES > 0 ? QUERIES : 1;
    const uint32 pair = (uint32)(row / queries);
    const uint64 at = row % queries * DIM;
    const OUT_TYPE* values = head_of(out, pair, QUERIES, DIM) + at;
    const D_OUT_TYPE* gradients = head_of(d_out, pair, QUERIES, DIM) + at;
    float sum = 0.0f;
    for (int column = threadIdx.x % 32; column < HEAD_DIM; column += 32) sum += widen(values[column]) * widen(gradients[column]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) deltas[row] = sum;
}

// A recomputed weight, and the gradient of its score; `factor` becomes the dropout factor.
__device__ __forceinline__ void score_gradient(float product, float d_weight, uint32 pair, int query, int key, Visible visible, float log_sum,
                                               float delta, const int* padding, const float* bias, uint64 stream, float& weight,
                                               float& d_score) {
    const float score = score_of(product, pair, query, key, visible, padding, bias);
    const float whole = score == -INFINITE ? 0.0f : power_of_two(score - log_sum * LOG2_E);
    const float factor = factor_of(stream, pair, query, key);
    weight = whole * factor;
    d_score = whole == 0.0f ? 0.0f : whole * (factor * d_weight - delta);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_queries_f32(const Q_TYPE* q, const K_TYPE* k, const V_TYPE* v, const int* padding, const float* bias
                               OFFSETS_PARAMETER, const float* log_sums, const D_OUT_TYPE* d_out, const float* deltas, Q_TYPE* dq,
                               const Run* run, const uint64 DROP_PLACE) {
    extern __shared__ __align__(16) float memory_f32[];
    float* query_rows = memory_f32;
    float* d_rows = query_rows + TILE_FLOATS;
    float* key_rows = d_rows + TILE_FLOATS;
    float* value_rows = key_rows + TILE_FLOATS;
    float* kept = value_rows + TILE_FLOATS;
    constexpr int BLOCKS = blocks_of(QUERIES);
    const uint32 pair = blockIdx.x / BLOCKS;
    const int first_query = blockIdx.x % BLOCKS * TILE;
    const Visible visible = visible_keys(padding, pair OFFSETS_ARGUMENT);
    const int from = keys_from(first_query, visible), seen = keys_up_to(min(first_query + TILE, QUERIES) - 1, visible);
    const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const auto key_there = [&](int key) { return key_counts(padding, pair, key, visible); };
    const auto query_there = [](int query) { return query < QUERIES; };

    load_plain(query_rows, head_of(q, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, query_there);
    load_plain(d_rows, head_of(d_out, pair, QUERIES, DIM), DIM, first_query, query_there);
    float log_sum[ROWS], delta[ROWS], factors[ROWS], sums[ROWS][PARTS][4];
    clear_plain(sums);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int query = first_query + down() + 16 * i;
        const uint64 at = (uint64)pair * QUERIES + query;
        log_sum[i] = query < QUERIES ? log_sums[at] : INFINITE;
        delta[i] = query < QUERIES ? deltas[at] : 0.0f;
        factors[i] = SCALE;
    }
    for (int first_key = from; first_key < seen; first_key += TILE) {
        __syncthreads();
        load_plain(key_rows, kv_head_of(k, pair, K_STRIDE), K_STRIDE, first_key, key_there);
        load_plain(value_rows, kv_head_of(v, pair, V_STRIDE), V_STRIDE, first_key, key_there);
        __syncthreads();
        float scores[ROWS][ROWS], d_weights[ROWS][ROWS];
        dots(scores, query_rows, key_rows);
        dots(d_weights, d_rows, value_rows);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                float weight;
                score_gradient(scores[i][j], d_weights[i][j], pair, first_query + down() + 16 * i, first_key + across() + 16 * j, visible,
                               log_sum[i], delta[i], padding, bias, stream, weight, scores[i][j]);
            }
        keep_scores(kept, scores);
        __syncthreads();
        add_plain(sums, kept, key_rows, min(TILE, seen - first_key));
    }
    store_plain(head_of(dq, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, QUERIES, sums, factors);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_keys_f32(const Q_TYPE* q, const K_TYPE* k, const V_TYPE* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                            const float* log_sums, const D_OUT_TYPE* d_out, const float* deltas, K_TYPE* dk, V_TYPE* dv, const Run* run, const uint64 DROP_PLACE) {
    extern __shared__ __align__(16) float memory_f32[];
    float* key_rows = memory_f32;
    float* value_rows = key_rows + TILE_FLOATS;
    float* query_rows = value_rows + TILE_FLOATS;
    float* d_rows = query_rows + TILE_FLOATS;
    float* kept = d_rows + TILE_FLOATS;
    float* kept_gradients = kept + TILE * SCORE_FLOATS;
    constexpr int BLOCKS = blocks_of(KEYS);
    // The first pair of a group: the keys and values are the same for all.
    const uint32 first_pair = blockIdx.x / BLOCKS * GROUP;
    const int first_key = blockIdx.x % BLOCKS * TILE;
    const Visible visible = visible_keys(padding, first_pair OFFSETS_ARGUMENT);
    const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const auto key_there = [&](int key) { return key_counts(padding, first_pair, key, visible); };
    const auto query_there = [](int query) { return query < QUERIES; };

    load_plain(key_rows, kv_head_of(k, first_pair, K_STRIDE), K_STRIDE, first_key, key_there);
    load_plain(value_rows, kv_head_of(v, first_pair, V_STRIDE), V_STRIDE, first_key, key_there);
    float key_sums[ROWS][PARTS][4], value_sums[ROWS][PARTS][4];
    clear_plain(key_sums);
    clear_plain(value_sums);
    // Other queries do not attend to these keys.
    const int start = queries_from(first_key, visible) / TILE * TILE, stop = queries_up_to(first_key + TILE - 1, visible);
#if GROUP > 1
#pragma unroll 1
#endif
    for (int head = 0; head < GROUP; head++) {
        const uint32 pair = first_pair + head;
        for (int first_query = start; first_query < stop; first_query += TILE) {
            __syncthreads();
            load_plain(query_rows, head_of(q, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, query_there);
            load_plain(d_rows, head_of(d_out, pair, QUERIES, DIM), DIM, first_query, query_there);
            __syncthreads();
            float scores[ROWS][ROWS], d_weights[ROWS][ROWS];
            dots(scores, key_rows, query_rows);
            dots(d_weights, value_rows, d_rows);
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                const int query = first_query + across() + 16 * j;
                const uint64 at = (uint64)pair * QUERIES + query;
                const float log_sum = query < QUERIES ? log_sums[at] : INFINITE, delta = query < QUERIES ? deltas[at] : 0.0f;
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    score_gradient(scores[i][j], d_weights[i][j], pair, query, first_key + down() + 16 * i, visible, log_sum, delta, padding, bias,
                                   stream, scores[i][j], d_weights[i][j]);
            }
            keep_scores(kept, scores);
            keep_scores(kept_gradients, d_weights);
            __syncthreads();
            add_plain(value_sums, kept, d_rows, min(TILE, QUERIES - first_query));
            add_plain(key_sums, kept_gradients, query_rows, min(TILE, QUERIES - first_query));
        }
    }
    float key_factors[ROWS], value_factors[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) key_factors[i] = SCALE, value_factors[i] = 1.0f;
    store_plain(kv_head_of(dk, first_pair, K_STRIDE), K_STRIDE, first_key, KEYS, key_sums, key_factors);
    store_plain(kv_head_of(dv, first_pair, V_STRIDE), V_STRIDE, first_key, KEYS, value_sums, value_factors);
}

#if BIAS
// A block owns a tile of one matrix of the bias and sums over the pairs that share it, in order. There are `pair_count` pairs.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_bias_gradient(const Q_TYPE* q, const K_TYPE* k, const V_TYPE* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                        const float* log_sums, const D_OUT_TYPE* d_out, const float* deltas, float* d_bias, uint32 pair_count,
                        const Run* run, const uint64 DROP_PLACE) {
    extern __shared__ __align__(16) float memory_f32[];
    float* query_rows = memory_f32;
    float* d_rows = query_rows + TILE_FLOATS;
    float* key_rows = d_rows + TILE_FLOATS;
    float* value_rows = key_rows + TILE_FLOATS;
    constexpr int ACROSS = blocks_of(KEYS), DOWN = blocks_of(QUERIES);
    const int first_key = blockIdx.x % ACROSS * TILE, first_query = blockIdx.x / ACROSS % DOWN * TILE;
    const uint32 slice = blockIdx.x / ACROSS / DOWN;
    const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const auto query_there = [](int query) { return query < QUERIES; };
    float sums[ROWS][ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < ROWS; j++) sums[i][j] = 0.0f;
    for (uint32 pair = 0; pair < pair_count; pair++) {
        if (bias_slice(pair) != slice) continue;
        const Visible visible = visible_keys(padding, pair OFFSETS_ARGUMENT);
        // None of the queries attends to any of the keys.
        if (first_key >= keys_up_to(min(first_query + TILE, QUERIES) - 1, visible)) continue;
        if (LIMITED_BEHIND && first_key + TILE <= keys_from(first_query, visible)) continue;
        const auto key_there = [&](int key) { return key_counts(padding, pair, key, visible); };
        __syncthreads();
        load_plain(query_rows, head_of(q, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, query_there);
        load_plain(d_rows, head_of(d_out, pair, QUERIES, DIM), DIM, first_query, query_there);
        load_plain(key_rows, kv_head_of(k, pair, K_STRIDE), K_STRIDE, first_key, key_there);
        load_plain(value_rows, kv_head_of(v, pair, V_STRIDE), V_STRIDE, first_key, key_there);
        __syncthreads();
        float scores[ROWS][ROWS], d_weights[ROWS][ROWS];
        dots(scores, query_rows, key_rows);
        dots(d_weights, d_rows, value_rows);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int query = first_query + down() + 16 * i;
            const uint64 at = (uint64)pair * QUERIES + query;
            const float log_sum = query < QUERIES ? log_sums[at] : INFINITE, delta = query < QUERIES ? deltas[at] : 0.0f;
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                float weight, d_score;
                score_gradient(scores[i][j], d_weights[i][j], pair, query, first_key + across() + 16 * j, visible, log_sum, delta, padding, bias,
                               stream, weight, d_score);
                sums[i][j] += d_score;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            const int query = first_query + down() + 16 * i, key = first_key + across() + 16 * j;
            if (query < QUERIES && key < KEYS) d_bias[((uint64)slice * QUERIES + query) * KEYS + key] = sums[i][j];
        }
}
#endif
