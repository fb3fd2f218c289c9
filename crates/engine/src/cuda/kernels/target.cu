// Hard targets.

// The row's class, or -1 if it is ignored. An invalid class is reported by its row, and ignored.
__device__ __forceinline__ int class_of_row(const int* targets, uint64 row, int* fault) {
    const int target = targets[row];
    if (HAS_IGNORED && target == IGNORED) return -1;
    if (target >= 0 && target < COLUMNS) return target;
    if (leads()) atomicMin(fault, (int)row);
    return -1;
}

#if HAS_IGNORED
// The number of targets that are not ignored: one block of MEAN_BLOCK threads.
extern "C" __global__ void __launch_bounds__(MEAN_BLOCK) count_targets(const int* __restrict__ targets, uint32* __restrict__ counted, const uint64 ROWS) {
    __shared__ uint32 total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    uint32 count = 0;
#pragma unroll 4
    for (uint64 row = threadIdx.x; row < ROWS; row += MEAN_BLOCK) count += targets[row] != IGNORED;
    // Integers: any order gives the same sum.
    atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0) *counted = total;
}
#endif
