// Attention forward in f32: a block owns TILE queries of a (sample, head) pair and iterates over the keys tile by tile (online softmax).

extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward_f32(const Q_TYPE* q, const K_TYPE* k, const V_TYPE* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                      OUT_TYPE* out, float* log_sums, const Run* run, const uint64 DROP_PLACE) {
    extern __shared__ __align__(16) float memory_f32[];
    float* own = memory_f32;
    float* other = own + TILE_FLOATS;
    float* weights = other + TILE_FLOATS;
    constexpr int BLOCKS = blocks_of(QUERIES);
    const uint32 pair = blockIdx.x / BLOCKS;
    const int first_query = blockIdx.x % BLOCKS * TILE;
    const Visible visible = visible_keys(padding, pair OFFSETS_ARGUMENT);
    const int from = keys_from(first_query, visible), seen = keys_up_to(min(first_query + TILE, QUERIES) - 1, visible);
    const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const auto key_there = [&](int key) { return key_counts(padding, pair, key, visible); };

    load_plain(own, head_of(q, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, [](int query) { return query < QUERIES; });
    PlainRunning running;
    float sums[ROWS][PARTS][4];
    clear_plain(sums);
#pragma unroll
    for (int i = 0; i < ROWS; i++) running.maximum[i] = -INFINITE, running.sum[i] = 0.0f;

    for (int first_key = from; first_key < seen; first_key += TILE) {
        __syncthreads();
        load_plain(other, kv_head_of(k, pair, K_STRIDE), K_STRIDE, first_key, key_there);
        __syncthreads();
        float scores[ROWS][ROWS], grown[ROWS];
        dots(scores, own, other);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < ROWS; j++)
                scores[i][j] = score_of(scores[i][j], pair, first_query + down() + 16 * i, first_key + across() + 16 * j, visible, padding, bias);
        soften(running, scores, grown);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < ROWS; j++)
                scores[i][j] *= factor_of(stream, pair, first_query + down() + 16 * i, first_key + across() + 16 * j);
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][part][j] *= grown[i];
        }
        keep_scores(weights, scores);
        __syncthreads();
        load_plain(other, kv_head_of(v, pair, V_STRIDE), V_STRIDE, first_key, key_there);
        __syncthreads();
        add_plain(sums, weights, other, min(TILE, seen - first_key));
    }

    float factors[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        // A query without keys has a sum of 0: its output is 0, and its log-sum infinite.
        const float sum = half_warp_sum(running.sum[i]);
        const int query = first_query + down() + 16 * i;
        factors[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
        if (across() == 0 && query < QUERIES)
            log_sums[(uint64)pair * QUERIES + query] = sum == 0.0f ? INFINITE : (running.maximum[i] + log2f(sum)) * LN_2;
    }
    store_plain(head_of(out, pair, QUERIES, DIM), DIM, first_query, QUERIES, sums, factors);
}
