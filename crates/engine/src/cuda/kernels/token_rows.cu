// Rows of tokens that are rotated (rotary positions), written into a cache, or both. Several parts share a launch; a block does a token's row
// of one part. For a rotation its threads compute the cosines and sines of the token once for all heads, in shared memory; then each takes
// VECTOR adjacent values of a head at a time (with HALVES, and as many of the other half).
//
// Constants: TOKENS (per sample), THREADS, ROW_PARAMETERS and ROW_PARTS (the parts). Of rotations: HEAD_DIM, PAIRS, VECTOR, HALVES (0: pairs
// are adjacent), SIGN (of the angle), FACTOR; FREQUENCY_BITS, a list: the frequencies' bits. Without rotations PAIRS is 0.

#if PAIRS > 0
__constant__ const uint32 frequency_bits[PAIRS] = {FREQUENCY_BITS};

// A pair of values rotated.
__device__ __forceinline__ void rotate(float& a, float& b, float c, float s) {
    const float x = a;
    a = x * c - b * s;
    b = b * c + x * s;
}

template <int COLUMNS, class FROM, class TO> __device__ __forceinline__ void rotate_row(const FROM* from, TO* to, int position) {
    constexpr int HEADS = COLUMNS / HEAD_DIM;
    __shared__ float cosines[PAIRS], sines[PAIRS];
    for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) {
        // The product is rounded by itself, as the definition says.
        const float angle = SIGN __fmul_rn((float)position, __uint_as_float(frequency_bits[pair]));
        float s, c;
        sincosf(angle, &s, &c);
        cosines[pair] = c * FACTOR;
        sines[pair] = s * FACTOR;
    }
    __syncthreads();
#if HALVES
    constexpr int UNITS = PAIRS / VECTOR;
    for (int unit = threadIdx.x; unit < HEADS * UNITS; unit += THREADS) {
        const int pair = unit % UNITS * VECTOR, at = unit / UNITS * HEAD_DIM + pair;
        float first[VECTOR], second[VECTOR];
        load<VECTOR>(from + at, first);
        load<VECTOR>(from + at + PAIRS, second);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) rotate(first[i], second[i], cosines[pair + i], sines[pair + i]);
        store<VECTOR>(to + at, first);
        store<VECTOR>(to + at + PAIRS, second);
    }
#else
    constexpr int UNITS = 2 * PAIRS / VECTOR;
    for (int unit = threadIdx.x; unit < HEADS * UNITS; unit += THREADS) {
        const int column = unit % UNITS * VECTOR, at = unit / UNITS * HEAD_DIM + column;
        float values[VECTOR];
        load<VECTOR>(from + at, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i += 2) rotate(values[i], values[i + 1], cosines[(column + i) / 2], sines[(column + i) / 2]);
        store<VECTOR>(to + at, values);
    }
#endif
    // What is not rotated.
    constexpr int REST = HEAD_DIM - 2 * PAIRS;
    if (REST > 0)
        for (int i = threadIdx.x; i < HEADS * REST; i += THREADS) {
            const int at = i / REST * HEAD_DIM + 2 * PAIRS + i % REST;
            put(to + at, widen(from[at]));
        }
}
#endif

template <int COLUMNS, int WIDTH, class FROM, class TO> __device__ __forceinline__ void copy_row(const FROM* from, TO* to) {
    for (int column = threadIdx.x * WIDTH; column < COLUMNS; column += THREADS * WIDTH) {
        float values[WIDTH];
        load<WIDTH>(from + column, values);
        store<WIDTH>(to + column, values);
    }
}

// Where a row of a cache of CAPACITY rows per sample begins that a token goes to; null if there is no room, which is noted in `fault` (the
// smallest sample wins).
template <int COLUMNS, int CAPACITY, class TO> __device__ __forceinline__ TO* cache_row(TO* cache, const int* offsets, int row, int* fault) {
    const int sample = row / TOKENS, offset = offsets[sample];
    if (offset < 0 || offset > CAPACITY - TOKENS) {
        if (threadIdx.x == 0) atomicMin(fault, sample);
        return nullptr;
    }
    return cache + ((uint64)sample * CAPACITY + offset + row % TOKENS) * COLUMNS;
}

extern "C" __global__ void __launch_bounds__(THREADS) token_rows(int* fault, const uint32 rows ROW_PARAMETERS) {
    wait_for_previous();
    let_next_start();
    const int part = blockIdx.x / rows, row = blockIdx.x % rows;
    ROW_PARTS
}
