// The attention weights, before dropout: a block owns TILE queries and iterates over the keys twice, first for maxima and sums, then to
// write.

extern "C" __global__ void __launch_bounds__(THREADS)
attention_weights(const Q_TYPE* q, const K_TYPE* k, const int* padding, const float* bias OFFSETS_PARAMETER, float* weights) {
    extern __shared__ __align__(16) float memory_f32[];
    float* own = memory_f32;
    float* other = own + TILE_FLOATS;
    constexpr int BLOCKS = blocks_of(QUERIES);
    const uint32 pair = blockIdx.x / BLOCKS;
    const int first_query = blockIdx.x % BLOCKS * TILE;
    const Visible visible = visible_keys(padding, pair OFFSETS_ARGUMENT);
    const int from = keys_from(first_query, visible), seen = keys_up_to(min(first_query + TILE, QUERIES) - 1, visible);
    load_plain(own, head_of(q, pair, QUERIES, Q_STRIDE), Q_STRIDE, first_query, [](int query) { return query < QUERIES; });
    PlainRunning running;
    float factors[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) running.maximum[i] = -INFINITE, running.sum[i] = 0.0f, factors[i] = 0.0f;

    for (int pass = 0; pass < 2; pass++) {
        for (int first_key = 0; first_key < KEYS; first_key += TILE) {
            float scores[ROWS][ROWS], grown[ROWS];
            // Keys that none of the queries attends to have a weight of 0.
            if (first_key < seen && first_key + TILE > from) {
                __syncthreads();
                load_plain(other, kv_head_of(k, pair, K_STRIDE), K_STRIDE, first_key,
                           [&](int key) { return key_counts(padding, pair, key, visible); });
                __syncthreads();
                dots(scores, own, other);
            } else if (pass == 0) {
                continue;
            } else {
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int j = 0; j < ROWS; j++) scores[i][j] = 0.0f;
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < ROWS; j++)
                    scores[i][j] = score_of(scores[i][j], pair, first_query + down() + 16 * i, first_key + across() + 16 * j, visible, padding, bias);
            if (pass == 0) {
                soften(running, scores, grown);
                continue;
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int query = first_query + down() + 16 * i;
                const float shift = subtractable(running.maximum[i]);
#pragma unroll
                for (int j = 0; j < ROWS; j++) {
                    const int key = first_key + across() + 16 * j;
                    if (query < QUERIES && key < KEYS)
                        weights[((uint64)pair * QUERIES + query) * KEYS + key] = power_of_two(scores[i][j] - shift) * factors[i];
                }
            }
        }
        if (pass == 0) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float sum = half_warp_sum(running.sum[i]);
                factors[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
            }
        }
    }
}
