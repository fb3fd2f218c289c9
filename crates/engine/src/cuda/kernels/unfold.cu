// Unfold and fold: both gather, a value of the result per thread, so that sums have a fixed order and need no atomics.
//
// Constants: FROM, TO (types), TIME, POSITIONS, CHANNELS, KERNEL, STRIDE, PADDING, COUNT (values of the result).

// y[b, p, c * KERNEL + k] = x[b, p * STRIDE + k - PADDING, c], 0 outside of x.
extern "C" __global__ void __launch_bounds__(256) unfold(const FROM* x, TO* y) {
    for (uint64 i = blockIdx.x * 256ull + threadIdx.x; i < COUNT; i += gridDim.x * 256ull) {
        const int k = (int)(i % KERNEL), channel = (int)(i / KERNEL % CHANNELS);
        const uint64 row = i / (KERNEL * CHANNELS), sample = row / POSITIONS;
        const long long time = (long long)(row % POSITIONS) * STRIDE + k - PADDING;
        put(y + i, time >= 0 && time < TIME ? widen(x[(sample * TIME + time) * CHANNELS + channel]) : 0.0f);
    }
}

// dx[b, t, c] = sum over k of dy[b, p, c * KERNEL + k] where p * STRIDE + k - PADDING = t.
extern "C" __global__ void __launch_bounds__(256) fold(const FROM* dy, TO* dx) {
    for (uint64 i = blockIdx.x * 256ull + threadIdx.x; i < COUNT; i += gridDim.x * 256ull) {
        const int channel = (int)(i % CHANNELS);
        const uint64 row = i / CHANNELS, sample = row / TIME;
        const long long time = (long long)(row % TIME);
        float sum = 0.0f;
        for (int k = 0; k < KERNEL; k++) {
            const long long start = time + PADDING - k, position = start / STRIDE;
            if (start >= 0 && start % STRIDE == 0 && position < POSITIONS)
                sum += widen(dy[(sample * POSITIONS + position) * (KERNEL * CHANNELS) + channel * KERNEL + k]);
        }
        put(dx + i, sum);
    }
}
