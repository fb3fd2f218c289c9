// How the rows of a warpgroup meet a tile of 64 rows of the other side in attention_backward_long.cu: four warps multiply together (see
// attention_together.cu). While tensor cores compute the second product, threads work on the first one's results. There is no dropout.

static_assert(!DROPOUT, "weights that are dropped have no code here");

// A thread's two queries: the upper one's number, and their log-sums (to base 2) and deltas.
struct QueryRows {
    uint32 pair;
    int upper;
    Visible visible;
    float log_sum[2], delta[2];
};

// A thread's two keys, and the head whose queries they meet.
struct KeyRows {
    uint32 pair;
    int upper;
    Visible visible;
};

// Begins sums = left * tile^T.
__device__ __forceinline__ void begin_scores(float (&scores)[4][2][4], const uint32 (&left)[DEPTH][4], uint32 tile) {
    auto& sums = reinterpret_cast<float (&)[32]>(scores);
    const uint64 right = operand(tile, 16);
    products_begin();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) multiply_along_head(sums, left[d], right + 2 * d, d > 0);
    products_end();
}

// Waits until all but that many products have ended, of which this was one.
template <int STILL_UNDER_WAY> __device__ __forceinline__ void scores_ended(float (&scores)[4][2][4]) {
    products_ended<STILL_UNDER_WAY>();
    pin(reinterpret_cast<float (&)[32]>(scores));
}

// Begins out += weights * tile. The weights must stay as they are until it has ended.
__device__ __forceinline__ void begin_sums(float (&out)[CHUNKS][4], uint32 (&weights)[4][4], uint32 tile) {
    auto& sums = reinterpret_cast<float (&)[4 * CHUNKS]>(out);
    const uint64 right = operand(tile, 16);
    pin(sums);
#pragma unroll
    for (int n = 0; n < 4; n++) pin(weights[n]);
    products_begin();
#pragma unroll
    for (int n = 0; n < 4; n++) multiply_along_rows(sums, weights[n], right + n * ROW_BYTES, 1);
    products_end();
}

// After all products have ended: results may be read, and weights change.
__device__ __forceinline__ void sums_ended(float (&out)[CHUNKS][4], uint32 (&weights)[4][4]) {
    pin(reinterpret_cast<float (&)[4 * CHUNKS]>(out));
#pragma unroll
    for (int n = 0; n < 4; n++) pin(weights[n]);
}

// sums += dS K for the queries of a warpgroup and a tile of keys, which begins at `at`, with its values behind it. CHECKED: some query does
// not attend to some of them.
template <bool CHECKED>
__device__ __forceinline__ void meet_keys(float (&sums)[CHUNKS][4], const QueryRows& rows, const uint32 (&query_rows)[DEPTH][4],
                                          const uint32 (&d_rows)[DEPTH][4], uint32 at, int first_key, const int* padding,
                                          const float* bias) {
    float scores[4][2][4], d_weights[4][2][4];
    begin_scores(scores, query_rows, at);
    begin_scores(d_weights, d_rows, at + KEY_TILE * ROW_BYTES);
    scores_ended<1>(scores);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = i / 2 % 2, query = rows.upper + 8 * row, key = first_key + 16 * n + i / 4 * 8 + 2 * (threadIdx.x % 4) + i % 2;
            float shift = -rows.log_sum[row];
            if (BIAS) shift += bias_of(bias, rows.pair, query, key);
            float& score = scores[n][i / 4][i % 4];
            score = power_of_two(score * SCALE_LOG2 + shift);
            if (CHECKED && !(key_counts(padding, rows.pair, key, rows.visible) && in_reach(query, key, rows.visible))) score = 0.0f;
        }
    }
    scores_ended<0>(d_weights);
    uint32 left[4][4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int i = 0; i < 8; i++) scores[n][i / 4][i % 4] *= d_weights[n][i / 4][i % 4] - rows.delta[i / 2 % 2];
        as_left(left[n], scores[n]);
    }
    begin_sums(sums, left, at);
    products_ended<0>();
    sums_ended(sums, left);
}

// key_sums += dS^T Q and value_sums += P^T dO for the keys of a warpgroup and a tile of queries, which begins at `at`, with their output
// gradients behind it; `of_queries` are their log-sums and deltas.
template <bool CHECKED>
__device__ __forceinline__ void meet_queries(float (&key_sums)[CHUNKS][4], float (&value_sums)[CHUNKS][4], const KeyRows& rows,
                                             const uint32 (&key_rows)[DEPTH][4], const uint32 (&value_rows)[DEPTH][4], uint32 at,
                                             const float* of_queries, int first_query, const float* bias) {
    float scores[4][2][4], d_weights[4][2][4];
    begin_scores(scores, key_rows, at);
    begin_scores(d_weights, value_rows, at + QUERY_TILE * ROW_BYTES);
    scores_ended<1>(scores);
    uint32 weights[4][4], d_scores[4][4];
    const int column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 log_sums = *reinterpret_cast<const float2*>(of_queries + 16 * n + 8 * half + column);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int query = first_query + 16 * n + 8 * half + column + i % 2, key = rows.upper + i / 2 * 8;
                float shift = -(i % 2 ? log_sums.y : log_sums.x);
                if (BIAS) shift += bias_of(bias, rows.pair, query, key);
                float& score = scores[n][half][i];
                score = power_of_two(score * SCALE_LOG2 + shift);
                if (CHECKED && !in_reach(query, key, rows.visible)) score = 0.0f;
            }
        }
        as_left(weights[n], scores[n]);
    }
    begin_sums(value_sums, weights, at + QUERY_TILE * ROW_BYTES);
    scores_ended<1>(d_weights);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 deltas = *reinterpret_cast<const float2*>(of_queries + QUERY_TILE + 16 * n + 8 * half + column);
#pragma unroll
            for (int i = 0; i < 4; i++) scores[n][half][i] *= d_weights[n][half][i] - (i % 2 ? deltas.y : deltas.x);
        }
        as_left(d_scores[n], scores[n]);
    }
    begin_sums(key_sums, d_scores, at);
    products_ended<0>();
    sums_ended(value_sums, weights);
    sums_ended(key_sums, d_scores);
}
