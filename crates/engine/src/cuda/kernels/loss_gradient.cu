// The gradient of cross-entropy: (softmax(x) Σt - t) times the loss's gradient, over the number of rows that are not ignored.

#if HARD
// The number of rows that are not ignored: one block of MEAN_BLOCK threads.
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

extern "C" __global__ void __launch_bounds__(BLOCK)
cross_entropy_gradient(const D_LOSS_TYPE* __restrict__ d_loss, const LOGITS_TYPE* __restrict__ logits,
                       const TARGETS_TYPE* __restrict__ targets, const float* __restrict__ log_sums,
                       const uint32* __restrict__ counted, D_LOGITS_TYPE* __restrict__ d_logits, int* fault,
                       const uint64 ROWS) {
    const uint32 rows = HAS_IGNORED ? max(*counted, 1u) : (uint32)ROWS;
    const float factor = widen(d_loss[0]) / (float)rows;
    const float share = SMOOTHING / COLUMNS;
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        const float log_sum = inside ? log_sums[row] : 0.0f;
#if HARD
        const int target = inside ? class_of_row(targets, row, fault) : -1;
        each_part(inside, [&](int part, int column) {
            float values[VECTOR] = {};
            if (target >= 0) {
                load<VECTOR>(logits + row * COLUMNS + column, values);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) {
                    const float p = expf(values[i] - log_sum);
                    // The target's value is a difference of numbers near 1.
                    values[i] = factor * (column + i == target ? (p - 1.0f) + SMOOTHING - share : p - share);
                }
            }
            store<VECTOR>(d_logits + row * COLUMNS + column, values);
        });
#else
        float shares[KEPT][VECTOR];
        float sum = 0.0f;
        each_part(inside, [&](int part, int column) {
            load<VECTOR>(targets + row * COLUMNS + column, shares[part]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sum += shares[part][i];
        });
        const float total = row_sum(sum) * (1.0f - SMOOTHING) + SMOOTHING;
        each_part(inside, [&](int part, int column) {
            if constexpr (!KEEPS) load<VECTOR>(targets + row * COLUMNS + column, shares[part]);
            float values[VECTOR];
            load<VECTOR>(logits + row * COLUMNS + column, values);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                values[i] = factor * (expf(values[i] - log_sum) * total - (shares[part][i] * (1.0f - SMOOTHING) + share));
            store<VECTOR>(d_logits + row * COLUMNS + column, values);
        });
#endif
    }
}
