// Attention tiles without tensor cores, in f32 whatever the storage dtype, for any head size.
//
// A block is 16 x 16 threads: `down` and `across`. A tile is TILE queries by TILE keys; a thread holds ROWS x ROWS scores of it, those of
// rows down + 16 i and columns across + 16 j, so that sixteen adjacent lanes hold a row.

#define ROWS (TILE / 16)
#define THREADS 256
// Rows of a head in shared memory: whole groups of four values, and four more so that eight rows are in different banks.
#define PADDED_DIM ((HEAD_DIM + 3) / 4 * 4)
#define ROW_FLOATS (PADDED_DIM + 4)
#define TILE_FLOATS (TILE * ROW_FLOATS)
// Rows of scores in shared memory.
#define SCORE_FLOATS (TILE + 4)
// A thread's columns of a head: four at 64 c + 4 across.
#define PARTS ((PADDED_DIM + 63) / 64)

// Blocks for a number of rows; at least one, since it is a divisor.
__device__ constexpr int blocks_of(int rows) { return rows > TILE ? (rows + TILE - 1) / TILE : 1; }

__device__ __forceinline__ int down() { return threadIdx.x / 16; }
__device__ __forceinline__ int across() { return threadIdx.x % 16; }

// Loads rows `first ..` of a head into shared memory, zeros where `there` is false.
template <typename T, typename There>
__device__ __forceinline__ void load_plain(float* to, const T* head, int stride, int first, There there) {
    for (int i = threadIdx.x; i < TILE * PADDED_DIM; i += THREADS) {
        const int row = i / PADDED_DIM, column = i % PADDED_DIM;
        to[row * ROW_FLOATS + column] =
            column < HEAD_DIM && there(first + row) ? widen(head[(uint64)(first + row) * stride + column]) : 0.0f;
    }
}

// The products of rows of `upright` (down) and rows of `lying` (across).
__device__ __forceinline__ void dots(float (&products)[ROWS][ROWS], const float* upright, const float* lying) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < ROWS; j++) products[i][j] = 0.0f;
#pragma unroll 4
    for (int column = 0; column < PADDED_DIM; column += 4) {
        float4 left[ROWS], right[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            left[i] = *reinterpret_cast<const float4*>(upright + (down() + 16 * i) * ROW_FLOATS + column);
            right[i] = *reinterpret_cast<const float4*>(lying + (across() + 16 * i) * ROW_FLOATS + column);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < ROWS; j++)
                products[i][j] += left[i].x * right[j].x + left[i].y * right[j].y + left[i].z * right[j].z + left[i].w * right[j].w;
    }
}

// sums += scores * rows, for the first `count` columns of the scores.
__device__ __forceinline__ void add_plain(float (&sums)[ROWS][PARTS][4], const float* scores, const float* rows, int count) {
    for (int k = 0; k < count; k++) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int column = 64 * part + 4 * across();
            if (column >= PADDED_DIM) continue;
            const float4 right = *reinterpret_cast<const float4*>(rows + k * ROW_FLOATS + column);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float left = scores[(down() + 16 * i) * SCORE_FLOATS + k];
                sums[i][part][0] += left * right.x;
                sums[i][part][1] += left * right.y;
                sums[i][part][2] += left * right.z;
                sums[i][part][3] += left * right.w;
            }
        }
    }
}

__device__ __forceinline__ void clear_plain(float (&sums)[ROWS][PARTS][4]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][part][j] = 0.0f;
}

// Writes rows `first ..` of a head up to `count`, each with its factor.
template <typename T>
__device__ __forceinline__ void store_plain(T* head, int stride, int first, int count, const float (&sums)[ROWS][PARTS][4],
                                            const float (&factors)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = first + down() + 16 * i;
        if (row >= count) continue;
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int column = 64 * part + 4 * across() + j;
                if (column < HEAD_DIM) put(head + (uint64)row * stride + column, sums[i][part][j] * factors[i]);
            }
    }
}

__device__ __forceinline__ void keep_scores(float* to, const float (&scores)[ROWS][ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < ROWS; j++) to[(down() + 16 * i) * SCORE_FLOATS + across() + 16 * j] = scores[i][j];
}

// A product turned into a score: scaled, biased, masked.
__device__ __forceinline__ float score_of(float product, uint32 pair, int query, int key, Visible visible, const int* padding,
                                          const float* bias) {
    if (query >= QUERIES || !key_counts(padding, pair, key, visible) || !in_reach(query, key, visible)) return -INFINITE;
    return product * SCALE_LOG2 + bias_of(bias, pair, query, key);
}

// The dropout factor of a weight.
__device__ __forceinline__ float factor_of(uint64 stream, uint32 pair, int query, int key) {
#if DROPOUT
    const uint64 column = column_of(query, key);
    return kept_bits(stream, pair, (uint32)(column / 8)) >> (column % 8) & 1 ? DROP_SCALE : 0.0f;
#else
    return 1.0f;
#endif
}

// Over the sixteen lanes that hold a row.
__device__ __forceinline__ float half_warp_max(float x) {
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
__device__ __forceinline__ float half_warp_sum(float x) {
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

// Softmax state of this thread's queries; sums are over this thread's keys alone until they are reduced.
struct PlainRunning {
    float maximum[ROWS], sum[ROWS];
};

// Turns scores into 2^(score - maximum); `grown` is the factor of earlier sums.
__device__ __forceinline__ void soften(PlainRunning& running, float (&scores)[ROWS][ROWS], float (&grown)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float maximum = running.maximum[i];
#pragma unroll
        for (int j = 0; j < ROWS; j++) maximum = fmaxf(maximum, scores[i][j]);
        maximum = half_warp_max(maximum);
        const float shift = subtractable(maximum);
        grown[i] = power_of_two(running.maximum[i] - shift);
        running.maximum[i] = maximum;
        running.sum[i] *= grown[i];
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            scores[i][j] = power_of_two(scores[i][j] - shift);
            running.sum[i] += scores[i][j];
        }
    }
}
