// A row belongs to THREADS threads: some lanes of a warp, or a whole block (then BLOCK is THREADS). Each takes VECTOR neighbouring columns,
// PARTS times, THREADS * VECTOR columns further each time. Where KEEPS, values stay in registers from one pass over the row to the next;
// longer rows are read again.

constexpr int STRIDE = THREADS * VECTOR;
constexpr int PARTS = (COLUMNS + STRIDE - 1) / STRIDE;
constexpr int KEPT = KEEPS ? PARTS : 1;
constexpr int ROWS_PER_BLOCK = BLOCK / THREADS;

#define MINUS_INFINITY __uint_as_float(0xff800000u)

// The first row of the block, and how far its next ones are. Both are the same for all threads of a block, so that all of them take part
// in the sums of its last rows; those that have no row left are not `inside`.
__device__ __forceinline__ uint64 first_row() { return (uint64)blockIdx.x * ROWS_PER_BLOCK; }
__device__ __forceinline__ uint64 row_stride() { return (uint64)gridDim.x * ROWS_PER_BLOCK; }

// Whether the thread is the one that writes what there is once a row.
__device__ __forceinline__ bool leads() { return threadIdx.x % THREADS == 0; }

// Calls body(part, column) for each vector of the row that is the thread's; `part` says where it is kept.
template <class Body> __device__ __forceinline__ void each_part(bool inside, Body body) {
    const int place = threadIdx.x % THREADS * VECTOR;
    if constexpr (KEEPS) {
        // In full: registers cannot be indexed.
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

// Sums and maxima over a row, the same bits in all of its threads. All threads of the block must call them.
__device__ __forceinline__ float row_sum(float x) {
    if constexpr (THREADS <= 32) {
#pragma unroll
        for (int offset = THREADS / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
        return x;
    } else {
        __shared__ float of_warps[BLOCK / 32];
        x = warp_sum(x);
        __syncthreads(); // What was here before may still be read.
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
        __syncthreads();
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < BLOCK / 32; warp++) sum += of_warps[warp];
        return sum;
    }
}
// NaN may be lost.
__device__ __forceinline__ float row_max(float x) {
    if constexpr (THREADS <= 32) {
#pragma unroll
        for (int offset = THREADS / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
        return x;
    } else {
        __shared__ float of_warps[BLOCK / 32];
        x = warp_max(x);
        __syncthreads(); // What was here before may still be read.
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
        __syncthreads();
        float max = MINUS_INFINITY;
#pragma unroll
        for (int warp = 0; warp < BLOCK / 32; warp++) max = fmaxf(max, of_warps[warp]);
        return max;
    }
}
