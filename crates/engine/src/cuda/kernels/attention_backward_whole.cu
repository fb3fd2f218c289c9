// Attention backward on tensor cores if a whole (sample, head) pair fits into shared memory: one kernel that computes each product once.
// With P recomputed from the log-sums and the dropout factors F: delta = rowsum(dO * O), dP = dO V^T, dS = P (F dP - delta), dQ = scale dS
// K, dK = scale dS^T Q, dV = (F P)^T dO.
//
// A warp owns sixteen keys: their rows of k and v in registers as left operands, and the sums of dK and dV. It iterates over the queries in
// groups of sixteen and stores dS in shared memory. When all warps have done so, a warp takes sixteen queries and sums their dQ over all
// keys. If dS of all queries does not fit, this is done in PARTS passes over PART_GROUPS groups of queries each. A block processes PAIRS
// pairs with KEY_GROUPS warps each.
//
// If an SM has registers for more warps than a pair has keys for, HELPERS additional warps sum dQ concurrently: then there is one pair and
// one part, and each group of sixteen queries has a barrier of its own.
//
// Constants in addition to the common ones: PAIRS, KEY_GROUPS, HELPERS, PARTS, PART_GROUPS, DQ_SPLIT (warps that share the columns of dQ),
// MIN_BLOCKS (that an SM should hold at once), KEEP_DELTAS (whether another kernel needs them), OUT_TYPE, D_OUT_TYPE.

#define PAIR_THREADS (32 * (KEY_GROUPS + HELPERS))
#define QUERY_GROUPS ((QUERIES + 15) / 16)
#define QUERY_ROWS (16 * QUERY_GROUPS)
#define KEY_ROWS (16 * KEY_GROUPS)
// Rows of dS are keys, as long as a part's queries; an odd number of chunks, so that the chunks of eight rows are in different banks.
#define PART_CHUNKS (PARTS == 1 ? (QUERIES + 7) / 8 : 2 * PART_GROUPS)
#define SCORE_CHUNKS (PART_CHUNKS | 1)
#define SCORE_BYTES (16 * SCORE_CHUNKS)
// The values are needed only before there is any dS, and share its memory. Sixteen bytes more: the last chunk of the last sixteen queries may
// reach past a row, where nothing reads what was made of it.
#define SCORES_SIZE (KEY_ROWS * SCORE_BYTES + 16)
#define SHARED_SIZE (SCORES_SIZE > KEY_ROWS * ROW_BYTES ? SCORES_SIZE : KEY_ROWS * ROW_BYTES)
// A pair's memory: queries, output gradients, keys, dS, then log-sums (to base 2) and deltas interleaved, both negated: they are added.
#define GRADIENTS_AT (QUERY_ROWS * ROW_BYTES)
#define KEYS_AT (2 * QUERY_ROWS * ROW_BYTES)
#define SCORES_AT (KEYS_AT + KEY_ROWS * ROW_BYTES)
#define SUMS_AT ((SCORES_AT + SHARED_SIZE + 15) / 16 * 16)
#define PAIR_BYTES ((SUMS_AT + 8 * QUERY_ROWS + 255) / 256 * 256)

// Lanes that share a row of outputs, rows processed at once by a pair's threads, and passes. The rows of the first pass are loaded first.
#define DELTA_LANES 4
#define DELTA_STRIDE (PAIR_THREADS / DELTA_LANES)
#define DELTA_TIMES ((QUERY_ROWS + DELTA_STRIDE - 1) / DELTA_STRIDE)
#define DELTA_EARLY (DELTA_TIMES < 2 ? DELTA_TIMES : 2)
#define DELTA_CHUNKS ((CHUNKS + DELTA_LANES - 1) / DELTA_LANES)

struct Block {
    uint32 pair;
    bool is_there;
    // Index of this thread in the pair.
    int thread;
    unsigned char* memory;
    uint32 at;
};

// This lane's part of a row of outputs.
__device__ __forceinline__ void load_outputs(float (&to)[DELTA_CHUNKS][8], const Block& block, const OUT_TYPE* out, int row) {
#pragma unroll
    for (int i = 0; i < DELTA_CHUNKS; i++) {
        const int chunk = block.thread % DELTA_LANES + i * DELTA_LANES;
#pragma unroll
        for (int n = 0; n < 8; n++) to[i][n] = 0.0f;
        if (row < QUERIES && chunk < CHUNKS) load<8>(head_of(out, block.pair, QUERIES, DIM) + (uint64)row * DIM + 8 * chunk, to[i]);
    }
}

// Stores a query's log-sum and delta in shared memory, where the output gradients are already.
__device__ __forceinline__ void keep_sums(const Block& block, const float (&outputs)[DELTA_CHUNKS][8], const float* log_sums, float* deltas,
                                          int row) {
    const int lane = block.thread % DELTA_LANES;
    float delta = 0.0f;
#pragma unroll
    for (int i = 0; i < DELTA_CHUNKS; i++) {
        const int chunk = lane + i * DELTA_LANES;
        if (row >= QUERY_ROWS || chunk >= CHUNKS) continue;
        float gradient[8];
        load<8>(reinterpret_cast<const bf16*>(block.memory + (chunk_at(block.at + GRADIENTS_AT, row, chunk) - block.at)), gradient);
#pragma unroll
        for (int n = 0; n < 8; n++) delta += outputs[i][n] * gradient[n];
    }
    delta = row_sum(delta);
    if (lane != 0 || row >= QUERY_ROWS) return;
    // Queries past the end get an infinite log-sum: all their weights are 0.
    const uint64 from = (uint64)block.pair * QUERIES + row;
    float2* sums = reinterpret_cast<float2*>(block.memory + SUMS_AT);
    sums[row] = row < QUERIES ? make_float2(-log_sums[from] * LOG2_E, -delta) : make_float2(-INFINITE, 0.0f);
    if (KEEP_DELTAS && block.is_there && row < QUERIES) deltas[from] = delta;
}

// Loads a whole pair into shared memory, with its deltas. This warp's rows of keys and values become left operands.
__device__ __forceinline__ void bring_pair(const Block& block, const bf16* q, const bf16* k, const bf16* v, const int* padding
                                           OFFSETS_PARAMETER, const OUT_TYPE* out, const float* log_sums, const D_OUT_TYPE* d_out,
                                           float* deltas, int first_key, uint32 (&key_rows)[DEPTH][4], uint32 (&value_rows)[DEPTH][4]) {
    const Visible visible = visible_keys(padding, block.pair OFFSETS_ARGUMENT);
    const auto counts = [&](int key) { return key_counts(padding, block.pair, key, visible); };
    const auto is_query = [](int query) { return query < QUERIES; };
    copy_rows<QUERY_ROWS, PAIR_THREADS>(block.at + GRADIENTS_AT, head_of(d_out, block.pair, QUERIES, DIM), DIM, 0, block.thread, is_query);
    copy_rows<QUERY_ROWS, PAIR_THREADS>(block.at, head_of(q, block.pair, QUERIES, Q_STRIDE), Q_STRIDE, 0, block.thread, is_query);
    copy_rows<KEY_ROWS, PAIR_THREADS>(block.at + KEYS_AT, kv_head_of(k, block.pair, K_STRIDE), K_STRIDE, 0, block.thread, counts);
    copy_rows<KEY_ROWS, PAIR_THREADS>(block.at + SCORES_AT, kv_head_of(v, block.pair, V_STRIDE), V_STRIDE, 0, block.thread, counts);
    end_copies();

    // The first outputs are loaded while the copies are in flight.
    const int first_row = block.thread / DELTA_LANES;
    float outputs[DELTA_EARLY > 0 ? DELTA_EARLY : 1][DELTA_CHUNKS][8];
#pragma unroll
    for (int i = 0; i < DELTA_EARLY; i++) load_outputs(outputs[i], block, out, first_row + i * DELTA_STRIDE);
    copies_arrived<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DELTA_EARLY; i++) keep_sums(block, outputs[i], log_sums, deltas, first_row + i * DELTA_STRIDE);
    for (int i = DELTA_EARLY; i < DELTA_TIMES; i++) {
        load_outputs(outputs[0], block, out, first_row + i * DELTA_STRIDE);
        keep_sums(block, outputs[0], log_sums, deltas, first_row + i * DELTA_STRIDE);
    }
    take_left(key_rows, along_rows(block.at + KEYS_AT + first_key * ROW_BYTES));
    take_left(value_rows, along_rows(block.at + SCORES_AT + first_key * ROW_BYTES));
    __syncthreads();
}

// Address of this lane's part of sixteen keys (rows) by sixteen queries of dS, for a left operand of queries by keys.
__device__ __forceinline__ uint32 score_matrices(uint32 scores) {
    const int lane = threadIdx.x % 32;
    return scores + (lane % 8 + lane / 16 * 8) * SCORE_BYTES + lane / 8 % 2 * 16;
}

// dS of a group of sixteen queries is complete: signalled by warps that own keys, awaited by one that sums dQ. Barrier 0 is the block's
// own.
__device__ __forceinline__ void announce_scores(int group) {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + group), "n"(32 * (KEY_GROUPS + 1)) : "memory");
}
__device__ __forceinline__ void await_scores(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(32 * (KEY_GROUPS + 1)) : "memory");
}

extern "C" __global__ void __launch_bounds__(PAIRS * PAIR_THREADS, MIN_BLOCKS)
attention_backward(const bf16* q, const bf16* k, const bf16* v, const int* padding, const float* bias OFFSETS_PARAMETER,
                   const OUT_TYPE* out, const float* log_sums, const D_OUT_TYPE* d_out, float* deltas, bf16* dq, bf16* dk, bf16* dv,
                   uint32 pair_count, const Run* run, const uint64 DROP_PLACE) {
    extern __shared__ __align__(256) unsigned char memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % (KEY_GROUPS + HELPERS), local = threadIdx.x / PAIR_THREADS;
    Block block;
    block.pair = min(blockIdx.x * PAIRS + local, pair_count - 1);
    block.is_there = blockIdx.x * PAIRS + local < pair_count;
    block.thread = threadIdx.x - local * PAIR_THREADS;
    block.memory = memory + local * PAIR_BYTES;
    block.at = shared_address(block.memory);
    const bool is_helper = HELPERS > 0 && warp >= KEY_GROUPS;
    // Helpers load keys, too, so that all warps do the same until they diverge.
    const int first_key = 16 * min(warp, KEY_GROUPS - 1), upper_key = first_key + lane / 4;
    uint32 key_rows[DEPTH][4], value_rows[DEPTH][4];
    bring_pair(block, q, k, v, padding OFFSETS_ARGUMENT, out, log_sums, d_out, deltas, first_key, key_rows, value_rows);

    const Visible visible = visible_keys(padding, block.pair OFFSETS_ARGUMENT);
    const bool upper = key_counts(padding, block.pair, upper_key, visible), lower = key_counts(padding, block.pair, upper_key + 8, visible);
    const bool rows_checked = PADDING == 2 || first_key + 16 > END_OF(visible);
    // Other queries do not attend to the warp's keys, and masked keys are attended to by none.
    const int first_seeing = queries_from(first_key, visible) / 16;
    const int first_group = first_key < END_OF(visible) && !is_helper ? OFFSETS ? min(first_seeing, QUERY_GROUPS) : first_seeing : QUERY_GROUPS;
    const int end_group = LIMITED_BEHIND ? (queries_up_to(first_key + 15, visible) + 15) / 16 : QUERY_GROUPS;
    if (HELPERS > 0 && !is_helper)
        for (int group = 0; group < first_group; group++) announce_scores(group);
    const uint32 queries = along_head(block.at), query_rows = along_rows(block.at);
    const float4* sums = reinterpret_cast<const float4*>(block.memory + SUMS_AT) + lane % 4;
    unsigned char* own_scores = block.memory + SCORES_AT + upper_key * SCORE_BYTES + 4 * (lane % 4);
    float key_sums[CHUNKS][4], value_sums[CHUNKS][4];
    clear(key_sums);
    clear(value_sums);
#if DROPOUT
    const uint64 stream = stream_key(run, DROP_PLACE);
    const int random_key = first_key + lane / 2;
    uint32 next = QUERIES % 8 == 0 ? 0 : kept_bits(stream, block.pair, (uint32)(column_of(16 * first_group, random_key) / 8));
#endif

#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        const int part_start = part * PART_GROUPS, part_end = min(part_start + PART_GROUPS, QUERY_GROUPS);
#pragma unroll 1
        for (int group = max(first_group, part_start); group < (LIMITED_BEHIND ? min(part_end, end_group) : part_end); group++) {
            float scores[2][4] = {}, d_weights[2][4] = {};
            multiply_rows(scores, key_rows, queries + 16 * group * ROW_BYTES, 0);
            multiply_rows(d_weights, value_rows, queries + 16 * group * ROW_BYTES, GRADIENTS_AT);
#if DROPOUT
            const uint32 kept = kept_of_key_rows(kept_window_in_turn(stream, block.pair, 16 * group, random_key, next));
#endif
            const bool checked = rows_checked || (LIMITED_AHEAD && 16 * group + (OFFSET_OF(visible) + REACH_AHEAD) < first_key + 15) ||
                                 (LIMITED_BEHIND && 16 * group + 15 + (OFFSET_OF(visible) - REACH_BEHIND) > first_key);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                // Log-sum and delta of two adjacent queries.
                const float4 known = sums[8 * group + 4 * half];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int query = 16 * group + 8 * half + 2 * (lane % 4) + i % 2, key = upper_key + i / 2 * 8;
                    float shift = i % 2 ? known.z : known.x;
                    if (BIAS) shift += bias_of(bias, block.pair, query, key);
                    float weight = power_of_two(scores[half][i] * SCALE_LOG2 + shift);
                    if (checked && !((i / 2 ? lower : upper) && in_reach(query, key, visible))) weight = 0.0f;
                    float d_weight = d_weights[half][i], kept_weight = weight;
#if DROPOUT
                    d_weight = kept >> (4 * half + i) & 1 ? d_weight : 0.0f;
                    kept_weight = kept >> (4 * half + i) & 1 ? weight : 0.0f;
#endif
                    scores[half][i] = kept_weight;
                    d_weights[half][i] = weight * (d_weight * (DROPOUT ? DROP_SCALE : 1.0f) + (i % 2 ? known.w : known.y));
                }
            }
            uint32 left[4], d_left[4];
            as_left(left, scores);
            as_left(d_left, d_weights);
            const int chunk = 2 * (group - part_start);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if (2 * PART_GROUPS > SCORE_CHUNKS && chunk + half >= SCORE_CHUNKS) continue;
                *reinterpret_cast<uint32*>(own_scores + 16 * (chunk + half)) = d_left[2 * half];
                *reinterpret_cast<uint32*>(own_scores + 16 * (chunk + half) + 8 * SCORE_BYTES) = d_left[2 * half + 1];
            }
            if (HELPERS > 0) announce_scores(group);
            add_rows(value_sums, left, query_rows + 16 * group * ROW_BYTES, GRADIENTS_AT);
            add_rows(key_sums, d_left, query_rows + 16 * group * ROW_BYTES, 0);
        }
        if (HELPERS > 0 && LIMITED_BEHIND && !is_helper)
            for (int group = max(first_group, end_group); group < QUERY_GROUPS; group++) announce_scores(group);
        if (part == PARTS - 1 && !is_helper) {
            const bool store_upper = block.is_there && upper_key < KEYS, store_lower = block.is_there && upper_key + 8 < KEYS;
            const uint64 row = store_upper ? upper_key : 0;
            const float value_factor = DROPOUT ? DROP_SCALE : 1.0f;
            store_rows(kv_head_of(dk, block.pair, K_STRIDE) + row * K_STRIDE, K_STRIDE, key_sums, store_upper, store_lower, SCALE, SCALE);
            store_rows(kv_head_of(dv, block.pair, V_STRIDE) + row * V_STRIDE, V_STRIDE, value_sums, store_upper, store_lower,
                       value_factor, value_factor);
        }
        if (HELPERS == 0) __syncthreads();
        if (HELPERS > 0 && !is_helper) return;

        // dQ of the part's queries. A warp takes sixteen of them, and one of DQ_SPLIT parts of the head.
        const uint32 scores_at = score_matrices(block.at + SCORES_AT), keys_at = along_rows(block.at + KEYS_AT);
        const int first_unit = HELPERS > 0 ? warp - KEY_GROUPS : warp, unit_step = HELPERS > 0 ? HELPERS : KEY_GROUPS;
#pragma unroll 1
        for (int unit = first_unit; unit < (part_end - part_start) * DQ_SPLIT; unit += unit_step) {
            const int group = unit / DQ_SPLIT, first_query = 16 * (part_start + group), first_step = unit % DQ_SPLIT * (DEPTH / DQ_SPLIT);
            const int from = keys_from(first_query, visible) / 16 * 16, seen = keys_up_to(min(first_query + 15, QUERIES - 1), visible);
            if (HELPERS > 0) await_scores(group);
            float query_sums[CHUNKS / DQ_SPLIT][4];
            clear(query_sums);
#pragma unroll 2
            for (int key = from; key < seen; key += 16) {
                uint32 left[4];
                load_transposed(left, scores_at + key * SCORE_BYTES + 32 * group);
                add_rows(query_sums, left, keys_at + key * ROW_BYTES, 0, first_step);
            }
            const int query = first_query + lane / 4;
            const bool store_upper = block.is_there && query < QUERIES, store_lower = block.is_there && query + 8 < QUERIES;
            store_rows(head_of(dq, block.pair, QUERIES, Q_STRIDE) + (uint64)(store_upper ? query : 0) * Q_STRIDE + 16 * first_step, Q_STRIDE,
                       query_sums, store_upper, store_lower, SCALE, SCALE);
        }
        if (part < PARTS - 1) __syncthreads();
    }
}
