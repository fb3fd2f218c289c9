// Rotary positions: a block does a token's row. Its threads compute the cosines and sines of the token once for all heads, in shared memory;
// then each takes VECTOR neighbouring values of a head at a time (with HALVES, and as many of the other half).
//
// Constants: TYPE, TOKENS, HEADS, HEAD_DIM, PAIRS, THREADS, VECTOR, HALVES (0: pairs are neighbours), OFFSETS, SIGN (of the angle), FACTOR;
// FREQUENCY_BITS, a list: the frequencies' bits.

__constant__ const uint32 frequency_bits[PAIRS] = {FREQUENCY_BITS};

// A pair of values rotated.
__device__ __forceinline__ void rotate(float& a, float& b, float c, float s) {
    const float x = a;
    a = x * c - b * s;
    b = b * c + x * s;
}

extern "C" __global__ void __launch_bounds__(THREADS) rotary(const TYPE* from, const int* offsets, TYPE* to) {
    __shared__ float cosines[PAIRS], sines[PAIRS];
    const uint64 row = blockIdx.x;
    const int position = (OFFSETS ? offsets[row / TOKENS] : 0) + (int)(row % TOKENS);
    for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) {
        // The product is rounded by itself, as the definition says.
        const float angle = SIGN __fmul_rn((float)position, __uint_as_float(frequency_bits[pair]));
        float s, c;
        sincosf(angle, &s, &c);
        cosines[pair] = c * FACTOR;
        sines[pair] = s * FACTOR;
    }
    __syncthreads();
    from += row * (HEADS * HEAD_DIM);
    to += row * (HEADS * HEAD_DIM);
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
            to[at] = from[at];
        }
}
