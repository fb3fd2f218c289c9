// A row is processed by THREADS threads: some lanes of a warp, or whole warps. Each takes VECTOR adjacent columns, PARTS times, with a
// stride of THREADS * VECTOR columns. If KEEPS, values stay in registers from one pass over the row to the next; longer rows are read
// again.

constexpr int STRIDE = THREADS * VECTOR;
constexpr int PARTS = (COLUMNS + STRIDE - 1) / STRIDE;
constexpr int KEPT = KEEPS ? PARTS : 1;
constexpr int ROWS_PER_BLOCK = BLOCK / THREADS;

#define MINUS_INFINITY __uint_as_float(0xff800000u)

// The first row of the block, and the stride to its next ones. Both are uniform in a block, so that all threads take part in the sums of
// its last rows; those without a row are not `inside`.
__device__ __forceinline__ uint64 first_row() { return (uint64)blockIdx.x * ROWS_PER_BLOCK; }
__device__ __forceinline__ uint64 row_stride() { return (uint64)gridDim.x * ROWS_PER_BLOCK; }

// Whether the thread writes the per-row results.
__device__ __forceinline__ bool leads() { return threadIdx.x % THREADS == 0; }

// Calls body(part, column) for each of the thread's vectors of the row; `part` is the index of its registers.
template <class Body> __device__ __forceinline__ void each_part(bool inside, Body body) {
    const int place = threadIdx.x % THREADS * VECTOR;
    if constexpr (KEEPS) {
        // Unrolled: registers cannot be indexed dynamically.
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int column = part * STRIDE + place;
            if (inside && ((part + 1) * STRIDE <= COLUMNS || column < COLUMNS)) body(part, column);
        }
    } else if (inside) {
#pragma unroll 4
        for (int column = place; column < COLUMNS; column += STRIDE) body(0, column);
    }
}

// Whole warps that process a row, or several.
constexpr int TEAM = THREADS < 32 ? 32 : THREADS;

// Synchronises the threads that share a row.
__device__ __forceinline__ void wait_for_team() {
    if constexpr (BLOCK == TEAM)
        __syncthreads();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / TEAM), "n"(TEAM) : "memory");
}

// Sums and maxima over a row, bit-identical in all of its threads. All threads of the block must call them.
template <int N> __device__ __forceinline__ void row_sums(float (&x)[N]) {
#pragma unroll
    for (int offset = (THREADS < 32 ? THREADS : 32) / 2; offset > 0; offset /= 2)
#pragma unroll
        for (int i = 0; i < N; i++) x[i] += __shfl_xor_sync(0xffffffffu, x[i], offset);
    if constexpr (THREADS > 32) {
        __shared__ float of_warps[BLOCK / 32][N];
        wait_for_team(); // The previous content may still be read.
#pragma unroll
        for (int i = 0; i < N; i++)
            if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32][i] = x[i];
        wait_for_team();
        const int first = threadIdx.x / TEAM * (TEAM / 32);
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = 0.0f;
#pragma unroll
            for (int warp = 0; warp < TEAM / 32; warp++) x[i] += of_warps[first + warp][i];
        }
    }
}
__device__ __forceinline__ float row_sum(float x) {
    float sums[1] = {x};
    row_sums(sums);
    return sums[0];
}
// NaN may be lost.
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
    for (int offset = (THREADS < 32 ? THREADS : 32) / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    if constexpr (THREADS > 32) {
        __shared__ float of_warps[BLOCK / 32];
        wait_for_team(); // The previous content may still be read.
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
        wait_for_team();
        const int first = threadIdx.x / TEAM * (TEAM / 32);
        x = MINUS_INFINITY;
#pragma unroll
        for (int warp = 0; warp < TEAM / 32; warp++) x = fmaxf(x, of_warps[first + warp]);
    }
    return x;
}
