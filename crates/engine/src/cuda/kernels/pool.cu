// Sums of rows times FACTOR: over leading axes, over blocks of rows, and, as means, over tokens. A thread has TURNS rows at most.

constexpr int AT_ONCE = TURNS < 8 ? TURNS : 8;

extern "C" __global__ void __launch_bounds__(BLOCK) sum_rows(const X_TYPE* __restrict__ x, float* __restrict__ sums,
                                                                const uint64 ROWS, const uint64 GROUP) {
    __shared__ __align__(16) float of_slices[SLICES][TILE];
    const Place at = place_of_thread(ROWS, GROUP);
    float sum[VECTOR] = {};
    if (at.inside) {
        // Several rows at once, so that their loads overlap.
#pragma unroll 1
        for (int first = 0; first < TURNS; first += AT_ONCE) {
            float values[AT_ONCE][VECTOR];
#pragma unroll
            for (int turn = 0; turn < AT_ONCE; turn++) {
                const uint64 row = at.first_row + (uint64)(first + turn) * SLICES;
                if (row < at.end_row) load<VECTOR>(x + row * COLUMNS + at.column, values[turn]);
            }
#pragma unroll
            for (int turn = 0; turn < AT_ONCE; turn++) {
                if (at.first_row + (uint64)(first + turn) * SLICES >= at.end_row) break;
#pragma unroll
                for (int i = 0; i < VECTOR; i++) sum[i] += values[turn][i];
            }
        }
    }
    store<VECTOR>(&of_slices[at.slice][at.lane * VECTOR], sum);
    __syncthreads();
    if (at.slice > 0 || !at.inside) return;
    for (int slice = 1; slice < SLICES; slice++) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum[i] += of_slices[slice][at.lane * VECTOR + i];
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum[i] *= FACTOR;
    store<VECTOR>(sums + at.group * COLUMNS + at.column, sum);
}
