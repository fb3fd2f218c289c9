// Attention forward of a single query, as in decoding: each row of keys and values is read once, and no multiplication is wasted.
//
// A block processes a (sample, head) pair. LANES adjacent threads form a team that holds a row, eight values each; teams take turns over
// the keys, AHEAD at once so that many loads are in flight, and their softmaxes are merged at the end. The only query attends to everything
// that its sample does. Constants in addition to the common ones: LANES (a power of two), THREADS, OUT_TYPE.

#define WARPS (THREADS / 32)
#define TEAMS (THREADS / LANES)
#define AHEAD 4

struct Part {
    float maximum, sum;
    float out[8];
};

// Rescales both to a common maximum and adds the second to the first.
__device__ __forceinline__ void join(Part& part, const Part& other) {
    const float maximum = fmaxf(part.maximum, other.maximum), shift = subtractable(maximum);
    const float own = power_of_two(part.maximum - shift), others = power_of_two(other.maximum - shift);
    part.maximum = maximum;
    part.sum = part.sum * own + other.sum * others;
#pragma unroll
    for (int i = 0; i < 8; i++) part.out[i] = part.out[i] * own + other.out[i] * others;
}

__device__ __forceinline__ Part from_lane(const Part& part, int offset) {
    Part other;
    other.maximum = __shfl_xor_sync(0xffffffffu, part.maximum, offset);
    other.sum = __shfl_xor_sync(0xffffffffu, part.sum, offset);
#pragma unroll
    for (int i = 0; i < 8; i++) other.out[i] = __shfl_xor_sync(0xffffffffu, part.out[i], offset);
    return other;
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_one_query(const Q_TYPE* q, const K_TYPE* k, const V_TYPE* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                    OUT_TYPE* out, float* log_sums, const Run* run, const uint64 DROP_PLACE) {
    wait_for_previous();
    let_next_start();
    __shared__ Part parts[WARPS][LANES];
    const uint32 pair = blockIdx.x;
    const int team = threadIdx.x / LANES, lane = threadIdx.x % LANES, column = 8 * lane;
    const Visible visible = visible_keys(padding, pair OFFSETS_ARGUMENT);
    // If the head size is not a power of two, some lanes have no values.
    const bool has_values = column < HEAD_DIM;
    [[maybe_unused]] const uint64 stream = DROPOUT ? stream_key(run, DROP_PLACE) : 0;
    const K_TYPE* keys = kv_head_of(k, pair, K_STRIDE) + column;
    const V_TYPE* values = kv_head_of(v, pair, V_STRIDE) + column;
    float query[8] = {};
    if (has_values) load<8>(head_of(q, pair, 1, Q_STRIDE) + column, query);

    Part part = {-INFINITE, 0.0f, {}};
    for (int first = FIRST_OF(visible); first < END_OF(visible); first += TEAMS * AHEAD) {
        float key_rows[AHEAD][8] = {}, value_rows[AHEAD][8] = {}, scores[AHEAD];
        bool there[AHEAD];
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const int key = first + ahead * TEAMS + team;
            there[ahead] = key_counts(padding, pair, key, visible);
            if (there[ahead] && has_values) {
                load<8>(keys + (uint64)key * K_STRIDE, key_rows[ahead]);
                load<8>(values + (uint64)key * V_STRIDE, value_rows[ahead]);
            }
        }
        float maximum = part.maximum;
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            float product = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) product += query[i] * key_rows[ahead][i];
#pragma unroll
            for (int offset = LANES / 2; offset > 0; offset /= 2) product += __shfl_xor_sync(0xffffffffu, product, offset);
            const int key = first + ahead * TEAMS + team;
            scores[ahead] = there[ahead] ? product * SCALE_LOG2 + bias_of(bias, pair, 0, key) : -INFINITE;
            maximum = fmaxf(maximum, scores[ahead]);
        }
        const float shift = subtractable(maximum), grown = power_of_two(part.maximum - shift);
        part.maximum = maximum;
        part.sum *= grown;
#pragma unroll
        for (int i = 0; i < 8; i++) part.out[i] *= grown;
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            float weight = power_of_two(scores[ahead] - shift);
            part.sum += weight;
#if DROPOUT
            const uint64 random = column_of(0, first + ahead * TEAMS + team);
            weight = kept_bits(stream, pair, (uint32)(random / 8)) >> (random % 8) & 1 ? weight * DROP_SCALE : 0.0f;
#endif
#pragma unroll
            for (int i = 0; i < 8; i++) part.out[i] += weight * value_rows[ahead][i];
        }
    }

    // The teams of a warp, then the warps.
#pragma unroll
    for (int offset = LANES; offset < 32; offset *= 2) join(part, from_lane(part, offset));
    if (threadIdx.x % 32 < LANES) parts[threadIdx.x / 32][lane] = part;
    __syncthreads();
    if (threadIdx.x >= LANES) return;
#pragma unroll
    for (int warp = 1; warp < WARPS; warp++) join(part, parts[warp][lane]);
    // A query without keys has a sum of 0: its output is 0, and its log-sum infinite.
    const float factor = part.sum == 0.0f ? 0.0f : 1.0f / part.sum;
#pragma unroll
    for (int i = 0; i < 8; i++) part.out[i] *= factor;
    if (has_values) store<8>(head_of(out, pair, 1, DIM) + column, part.out);
    if (lane == 0) log_sums[pair] = part.sum == 0.0f ? INFINITE : (part.maximum + log2f(part.sum)) * LN_2;
}
