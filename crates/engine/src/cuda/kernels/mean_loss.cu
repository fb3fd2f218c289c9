// The mean of the rows' losses: by one block of MEAN_BLOCK threads, in double, always in the same order. The sum is divided by DIVISOR or,
// if that is 0, by the number of rows that are not ignored.

extern "C" __global__ void __launch_bounds__(MEAN_BLOCK) mean_loss(const float* __restrict__ losses, float* __restrict__ loss, const uint64 ROWS) {
    __shared__ double sums[MEAN_BLOCK];
    __shared__ uint32 counts[MEAN_BLOCK];
    double sum = 0.0;
    uint32 count = 0;
#pragma unroll 4
    for (uint64 row = threadIdx.x; row < ROWS; row += MEAN_BLOCK) {
        const float of_row = losses[row];
        if (DIVISOR != 0 || of_row != MINUS_INFINITY) {
            sum += (double)of_row;
            count++;
        }
    }
    sums[threadIdx.x] = sum;
    counts[threadIdx.x] = count;
    for (int half = MEAN_BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            counts[threadIdx.x] += counts[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        const double divisor = DIVISOR != 0 ? (double)DIVISOR : (double)(counts[0] > 0 ? counts[0] : 1);
        *loss = (float)(sums[0] / divisor);
    }
}
