// The maximum over tokens and its token index: the first of equals, and NaN before all numbers.

__device__ __forceinline__ bool wins(float value, int token, float best, int winner) {
    if (value != value) return best == best || token < winner;
    return value > best || (value == best && token < winner);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
max_tokens(const X_TYPE* __restrict__ x, float* __restrict__ maxima, int* __restrict__ winners, const uint64 ROWS, const uint64 GROUP) {
    __shared__ float best_of_slices[SLICES][TILE];
    __shared__ int winner_of_slices[SLICES][TILE];
    const Place at = place_of_thread(ROWS, GROUP);
    float best[VECTOR];
    int winner[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        best[i] = __uint_as_float(0xff800000u); // Minus infinity.
        winner[i] = 0x7fffffff;
    }
    auto compare = [&](int i, float value, int token) {
        if (wins(value, token, best[i], winner[i])) {
            best[i] = value;
            winner[i] = token;
        }
    };
    if (at.inside) {
#pragma unroll 4
        for (uint64 row = at.first_row; row < at.end_row; row += SLICES) {
            float values[VECTOR];
            load<VECTOR>(x + row * COLUMNS + at.column, values);
            const int token = (int)(row - at.group * GROUP);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) compare(i, values[i], token);
        }
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        best_of_slices[at.slice][at.lane * VECTOR + i] = best[i];
        winner_of_slices[at.slice][at.lane * VECTOR + i] = winner[i];
    }
    __syncthreads();
    if (at.slice > 0 || !at.inside) return;
    for (int slice = 1; slice < SLICES; slice++) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            compare(i, best_of_slices[slice][at.lane * VECTOR + i], winner_of_slices[slice][at.lane * VECTOR + i]);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        maxima[at.group * COLUMNS + at.column + i] = best[i];
        winners[at.group * COLUMNS + at.column + i] = winner[i];
    }
}
