// The gradient of cross-entropy: (softmax(x) (Σt + 2 Z_LOSS log Σe^x) - t) times the loss's gradient, over the number of targets that are
// not ignored. TARGETS is the number of all, FIRST the target of the first row.

extern "C" __global__ void __launch_bounds__(BLOCK)
cross_entropy_gradient(const D_LOSS_TYPE* __restrict__ d_loss, const LOGITS_TYPE* __restrict__ logits,
                       const TARGETS_TYPE* __restrict__ targets, const float* __restrict__ log_sums,
                       const uint32* __restrict__ counted, D_LOGITS_TYPE* __restrict__ d_logits, int* fault,
                       const uint64 FIRST, const uint64 TARGETS, const uint64 ROWS) {
    const uint32 rows = HAS_IGNORED ? max(*counted, 1u) : (uint32)TARGETS;
    const float factor = widen(d_loss[0]) / (float)rows;
    const float share = SMOOTHING / COLUMNS;
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        const float log_sum = inside ? log_sums[row] : 0.0f;
        const float z_slope = 2.0f * Z_LOSS * log_sum;
#if HARD
        const int target = inside ? class_of_row(targets, FIRST + row, fault) : -1;
        each_part(inside, [&](int part, int column) {
            float values[VECTOR] = {};
            if (target >= 0) {
                load<VECTOR>(logits + row * COLUMNS + column, values);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) {
                    const float p = expf(values[i] - log_sum);
                    // The target's value is a difference of numbers near 1.
                    values[i] = factor * (p * z_slope + (column + i == target ? (p - 1.0f) + SMOOTHING - share : p - share));
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
        const float total = row_sum(sum) * (1.0f - SMOOTHING) + SMOOTHING + z_slope;
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
