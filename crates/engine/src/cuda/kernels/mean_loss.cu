// The sum of the losses of rows that are not ignored, divided by the number of targets that are not ignored, or by DIVISOR if none can be: by
// one block of MEAN_BLOCK threads, in double, always in the same order.

extern "C" __global__ void __launch_bounds__(MEAN_BLOCK)
mean_loss(const float* __restrict__ losses, const uint32* __restrict__ counted, float* __restrict__ loss, const uint64 DIVISOR,
          const uint64 ROWS) {
    __shared__ double sums[MEAN_BLOCK];
    double sum = 0.0;
#pragma unroll 4
    for (uint64 row = threadIdx.x; row < ROWS; row += MEAN_BLOCK) {
        const float of_row = losses[row];
        if (!HAS_IGNORED || of_row != MINUS_INFINITY) sum += (double)of_row;
    }
    sums[threadIdx.x] = sum;
    for (int half = MEAN_BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *loss = (float)(sums[0] / (HAS_IGNORED ? (double)max(*counted, 1u) : (double)DIVISOR));
}
