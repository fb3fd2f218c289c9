// What all kernels of attention share: which keys are seen, the bias, and dropout.
//
// Constants: QUERIES, KEYS, HEADS, HEAD_DIM; Q_STRIDE, K_STRIDE, V_STRIDE (values from one token to the next; the gradients' are the same);
// CAUSAL, PADDING (0 none, 1 lengths, 2 a mask), BIAS, BIAS_BATCH, BIAS_HEADS; DROPOUT, DROP_PLACE, DROP_THRESHOLD, DROP_SCALE; SCALE, and
// SCALE_LOG2 = SCALE * log2(e): scores are in units of log 2, so that the power is one of two.

#define DIM (HEADS * HEAD_DIM)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define INFINITE __uint_as_float(0x7f800000u)

// Where the values of a head begin: rows of `stride` values, `tokens` of them a sample.
template <typename T> __device__ __forceinline__ T* head_of(T* values, uint32 pair, int tokens, int stride) {
    return values + (uint64)(pair / HEADS) * tokens * stride + (pair % HEADS) * HEAD_DIM;
}

// The number of a sample's keys that count, but for holes in its mask.
__device__ __forceinline__ int visible_keys(const int* padding, uint32 pair) {
#if PADDING == 1
    return min(max(padding[pair / HEADS], 0), KEYS);
#else
    return KEYS;
#endif
}

// Whether a key's row may be read at all. What padding masks may hold anything: its rows are taken as zeros, since a weight of 0 times
// something infinite is not 0. What is only hidden by order, from some queries, has to be finite.
__device__ __forceinline__ bool key_counts(const int* padding, uint32 pair, int key, int visible) {
    if (key >= visible) return false;
#if PADDING == 2
    return padding[(uint64)(pair / HEADS) * KEYS + key] != 0;
#else
    return true;
#endif
}

// Query i sees key j where j <= i + keys - queries.
__device__ __forceinline__ bool in_order(int query, int key) { return !CAUSAL || key <= query + (KEYS - QUERIES); }

// The number of keys up to the last that a query sees.
__device__ __forceinline__ int keys_up_to(int query, int visible) {
    return CAUSAL ? min(visible, max(query + (KEYS - QUERIES) + 1, 0)) : visible;
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

// 2^x to about two units in the last place; minus infinity gives 0.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The logarithm to base two, and 1 / x, to about one unit in the last place, of numbers that are neither tiny nor negative.
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

// A maximum that can be subtracted: 0 where no key was seen.
__device__ __forceinline__ float subtractable(float maximum) { return maximum == -INFINITE ? 0.0f : maximum; }

#if DROPOUT
// Whether each of the eight columns of a block of random numbers is kept, a bit a column. A weight's column is key * QUERIES + query.
__device__ __forceinline__ uint32 kept_bits(uint64 stream, uint64 pair, uint32 block) {
    uint4 words = philox(make_uint4(block, (uint32)pair, (uint32)(pair >> 32), 0), (uint32)stream, (uint32)(stream >> 32));
    uint32 all[4] = {words.x, words.y, words.z, words.w};
    if (DROP_THRESHOLD > 0xffffu) return 0;
    // The upper number of a word reaches the threshold where the word reaches it, shifted.
    uint32 bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) bits |= (uint32)((i % 2 ? all[i / 2] : all[i / 2] << 16) >= DROP_THRESHOLD << 16) << i;
    return bits;
}
__device__ __forceinline__ uint64 column_of(int query, int key) { return (uint64)key * QUERIES + query; }
#endif
