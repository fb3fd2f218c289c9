// The K largest numbers of each row, a block per row. Every thread knows the best of its own numbers, which are every THREADSth of the
// row; the best of all threads' is taken K times, and the thread that it was looks for its next.

// Whether a number comes before another: it is larger, or as large with a smaller index. A thread that has none left has the index -1.
__device__ __forceinline__ bool comes_before(float a, int a_index, float b, int b_index) {
    if (a_index < 0 || b_index < 0) return a_index >= 0;
    return a > b || (a == b && a_index < b_index);
}

// The best of a thread's numbers that come behind one that was taken; NaN is never among them.
__device__ __forceinline__ void next_of(const FROM* row, float taken, int taken_index, float& best, int& index) {
    best = 0.0f, index = -1;
#pragma unroll 4
    for (int i = threadIdx.x; i < COLUMNS; i += THREADS) {
        const float x = widen(row[i]);
        const bool is_left = taken_index < 0 ? x == x : x < taken || (x == taken && i > taken_index);
        if (is_left && (index < 0 || x > best)) best = x, index = i;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) top_k(const FROM* x, float* values, int* indices) {
    wait_for_previous();
    let_next_start();
    __shared__ float warp_best[THREADS / 32];
    __shared__ int warp_index[THREADS / 32];
    const FROM* row = x + (uint64)blockIdx.x * COLUMNS;
    float own;
    int own_index;
    next_of(row, 0.0f, -1, own, own_index);
    for (int rank = 0; rank < K; rank++) {
        float best = own;
        int index = own_index;
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, best, offset);
            const int other_index = __shfl_xor_sync(0xffffffffu, index, offset);
            if (comes_before(other, other_index, best, index)) best = other, index = other_index;
        }
        if (threadIdx.x % 32 == 0) warp_best[threadIdx.x / 32] = best, warp_index[threadIdx.x / 32] = index;
        __syncthreads();
        best = warp_best[0], index = warp_index[0];
#pragma unroll
        for (int warp = 1; warp < THREADS / 32; warp++)
            if (comes_before(warp_best[warp], warp_index[warp], best, index)) best = warp_best[warp], index = warp_index[warp];
        if (threadIdx.x == 0) {
            values[(uint64)blockIdx.x * K + rank] = index < 0 ? __uint_as_float(0xff800000u) : best;
            indices[(uint64)blockIdx.x * K + rank] = index;
        }
        if (index >= 0 && index == own_index) next_of(row, best, index, own, own_index);
        // Nobody may overwrite the warps' best while others read them.
        __syncthreads();
    }
}
