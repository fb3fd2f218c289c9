// Binary cross-entropy, independently per class: max(x, 0) - x t + ln(1 + e^-|x|). The sum over classes of every row.

extern "C" __global__ void __launch_bounds__(BLOCK)
binary_cross_entropy(const LOGITS_TYPE* __restrict__ logits, const TARGETS_TYPE* __restrict__ targets, float* __restrict__ losses,
                     const uint64 ROWS) {
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        float loss = 0.0f;
        each_part(inside, [&](int part, int column) {
            float values[VECTOR], shares[VECTOR];
            load<VECTOR>(logits + row * COLUMNS + column, values);
            load<VECTOR>(targets + row * COLUMNS + column, shares);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                loss += fmaxf(values[i], 0.0f) - values[i] * shares[i] + log1pf(expf(-fabsf(values[i])));
        });
        loss = row_sum(loss);
        if (inside && leads()) losses[row] = loss;
    }
}
