// Cross-entropy of rows of logits against a class each (HARD) or a distribution each: the loss and log-sum of every row. SMOOTHING is the
// label smoothing; SMOOTHS says whether it is above 0. Z_LOSS is the factor of the squared log-sum. FIRST is the target of the first row.

extern "C" __global__ void __launch_bounds__(BLOCK)
cross_entropy(const LOGITS_TYPE* __restrict__ logits, const TARGETS_TYPE* __restrict__ targets, float* __restrict__ losses,
              float* __restrict__ log_sums, int* fault, const uint64 FIRST, const uint64 ROWS) {
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        float values[KEPT][VECTOR];
        Exponentials own;
        each_part(inside, [&](int part, int column) {
            load<VECTOR>(logits + row * COLUMNS + column, values[part]);
            own.add(values[part]);
        });
        const Exponentials all = own.of_row();
        const float log_sum = all.max + logf(all.sum);

        // The sum over classes of -ln p = log_sum - logit, weighted by the target if targets are distributions.
        float loss = 0.0f;
        if constexpr (!HARD || SMOOTHS) {
            each_part(inside, [&](int part, int column) {
                if constexpr (!KEEPS) load<VECTOR>(logits + row * COLUMNS + column, values[part]);
#if HARD
#pragma unroll
                for (int i = 0; i < VECTOR; i++) loss += log_sum - values[part][i];
#else
                float shares[VECTOR];
                load<VECTOR>(targets + row * COLUMNS + column, shares);
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    loss += (shares[i] * (1.0f - SMOOTHING) + SMOOTHING / COLUMNS) * (log_sum - values[part][i]);
#endif
            });
            loss = row_sum(loss);
        }
        if (inside && leads()) {
#if HARD
            const int target = class_of_row(targets, FIRST + row, fault);
            if (target < 0) {
                // Marks an ignored row.
                loss = MINUS_INFINITY;
            } else {
                // Without smoothing, other classes with logit minus infinity do not matter.
                const float surprise = log_sum - widen(logits[row * COLUMNS + target]);
                loss = SMOOTHS ? (1.0f - SMOOTHING) * surprise + SMOOTHING * (loss / (float)COLUMNS) : surprise;
            }
#endif
            losses[row] = loss + Z_LOSS * log_sum * log_sum;
            log_sums[row] = log_sum;
        }
    }
}
