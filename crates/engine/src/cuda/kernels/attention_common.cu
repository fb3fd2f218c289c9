// Shared by all attention kernels: which keys a query attends to, the bias, and dropout.
//
// Constants: QUERIES, KEYS, HEADS, KV_HEADS, HEAD_DIM; Q_STRIDE, K_STRIDE, V_STRIDE (values from one token to the next; the same for
// gradients); REACH_AHEAD, REACH_BEHIND (how many keys after and before its position a query attends to; -1: all), OFFSETS (whether each
// sample has its own position of the first query), PADDING (0 none, 1 lengths, 2 a mask), BIAS, BIAS_BATCH, BIAS_HEADS; DROPOUT,
// DROP_THRESHOLD, DROP_SCALE (DROP_PLACE, the number of the random stream, is an argument); SCALE, and SCALE_LOG2 = SCALE * log2(e): scores are in units of log 2, so that exponentials are
// powers of two.

#define DIM (HEADS * HEAD_DIM)
// Query heads that share a key/value head.
#define GROUP (HEADS / KV_HEADS)
#define LIMITED_AHEAD (REACH_AHEAD >= 0)
#define LIMITED_BEHIND (REACH_BEHIND >= 0)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define INFINITE __uint_as_float(0x7f800000u)

// Kernels take offsets only if there are any.
#if OFFSETS
#define OFFSETS_PARAMETER , const int* offsets
#define OFFSETS_ARGUMENT , offsets
#else
#define OFFSETS_PARAMETER
#define OFFSETS_ARGUMENT
#endif

// The values of a query head: rows of `stride` values, `tokens` per sample.
template <typename T> __device__ __forceinline__ T* head_of(T* values, uint32 pair, int tokens, int stride) {
    return values + (uint64)(pair / HEADS) * tokens * stride + (pair % HEADS) * HEAD_DIM;
}
// The keys or values of a query head: those of its group.
template <typename T> __device__ __forceinline__ T* kv_head_of(T* values, uint32 pair, int stride) {
    return values + (uint64)(pair / HEADS) * KEYS * stride + pair % HEADS / GROUP * HEAD_DIM;
}

// What the queries of a sample attend to. If only the end of the keys is not a constant, that alone.
#if OFFSETS || LIMITED_BEHIND
struct Visible {
    // The position of the first query.
    int offset;
    // The keys that some query may attend to, including holes in the mask: no other row is read.
    int first, end;
};
#define OFFSET_OF(visible) ((visible).offset)
#define FIRST_OF(visible) ((visible).first)
#define END_OF(visible) ((visible).end)
#else
typedef int Visible;
#define OFFSET_OF(visible) (KEYS - QUERIES)
#define FIRST_OF(visible) 0
#define END_OF(visible) (visible)
#endif

__device__ __forceinline__ Visible visible_keys(const int* padding, uint32 pair OFFSETS_PARAMETER) {
#if PADDING == 1
    const int end = min(max(padding[pair / HEADS], 0), KEYS);
#else
    const int end = KEYS;
#endif
#if OFFSETS
    // Positions that far away attend to nothing, and do not overflow.
    const int offset = min(max(offsets[pair / HEADS], -(1 << 30)), 1 << 30);
    const int reached = LIMITED_AHEAD ? min(end, max(offset + QUERIES + REACH_AHEAD, 0)) : end;
    return {offset, LIMITED_BEHIND ? max(offset - REACH_BEHIND, 0) : 0, reached};
#elif LIMITED_BEHIND
    return {KEYS - QUERIES, max(KEYS - QUERIES - REACH_BEHIND, 0), end};
#else
    return end;
#endif
}

// Whether a key's row may be read at all. Rows hidden from all queries by padding or position may hold anything: they are taken as zeros,
// since a weight of 0 times infinity is not 0. Rows hidden from some queries only must be finite.
__device__ __forceinline__ bool key_counts(const int* padding, uint32 pair, int key, Visible visible) {
    if (key >= END_OF(visible)) return false;
#if LIMITED_BEHIND
    if (key < FIRST_OF(visible)) return false;
#endif
#if PADDING == 2
    return padding[(uint64)(pair / HEADS) * KEYS + key] != 0;
#else
    return true;
#endif
}

// Whether a key is in reach of a query's position.
__device__ __forceinline__ bool in_reach(int query, int key, Visible visible) {
#if LIMITED_BEHIND
    if (key < query + (OFFSET_OF(visible) - REACH_BEHIND)) return false;
#endif
    return !LIMITED_AHEAD || key <= query + (OFFSET_OF(visible) + REACH_AHEAD);
}

// The first key that a query attends to, and one past the last.
__device__ __forceinline__ int keys_from(int query, Visible visible) {
    return LIMITED_BEHIND ? max(query + (OFFSET_OF(visible) - REACH_BEHIND), 0) : 0;
}
__device__ __forceinline__ int keys_up_to(int query, Visible visible) {
    return LIMITED_AHEAD ? min(END_OF(visible), max(query + (OFFSET_OF(visible) + REACH_AHEAD) + 1, 0)) : END_OF(visible);
}

// The first query that attends to a key, and one past the last; clamped to 0 and QUERIES.
__device__ __forceinline__ int queries_from(int key, Visible visible) {
    return LIMITED_AHEAD ? max(key - (OFFSET_OF(visible) + REACH_AHEAD), 0) : 0;
}
__device__ __forceinline__ int queries_up_to(int key, Visible visible) {
    return LIMITED_BEHIND ? min(QUERIES, max(key + 1 - (OFFSET_OF(visible) - REACH_BEHIND), 0)) : QUERIES;
}

// The queries-by-keys matrix of the bias that a (sample, head) pair uses.
__device__ __forceinline__ uint64 bias_slice(uint32 pair) {
    return (uint64)(pair / HEADS % BIAS_BATCH) * BIAS_HEADS + pair % HEADS % BIAS_HEADS;
}

// The bias of a score in units of log 2; 0 outside the matrix.
__device__ __forceinline__ float bias_of(const float* bias, uint32 pair, int query, int key) {
#if BIAS
    if (query < QUERIES && key < KEYS) return bias[(bias_slice(pair) * QUERIES + query) * KEYS + key] * LOG2_E;
#endif
    return 0.0f;
}

// 2^x to about two ulp; minus infinity gives 0.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The logarithm to base two, and 1 / x, to about one ulp, of numbers that are neither tiny nor negative.
__device__ __forceinline__ float log_two(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A maximum that can be subtracted: 0 if there was no key.
__device__ __forceinline__ float subtractable(float maximum) { return maximum == -INFINITE ? 0.0f : maximum; }

#if DROPOUT
// Which of the eight columns of a block of random numbers are kept, one bit per column. A weight's column is key * QUERIES + query.
__device__ __forceinline__ uint32 kept_bits(uint64 stream, uint64 pair, uint32 block) {
    uint4 words = philox(make_uint4(block, (uint32)pair, (uint32)(pair >> 32), 0), (uint32)stream, (uint32)(stream >> 32));
    uint32 all[4] = {words.x, words.y, words.z, words.w};
    if (DROP_THRESHOLD > 0xffffu) return 0;
    // The upper number of a word reaches the threshold if the word reaches the shifted threshold.
    uint32 bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) bits |= (uint32)((i % 2 ? all[i / 2] : all[i / 2] << 16) >= DROP_THRESHOLD << 16) << i;
    return bits;
}
__device__ __forceinline__ uint64 column_of(int query, int key) { return (uint64)key * QUERIES + query; }
#endif
