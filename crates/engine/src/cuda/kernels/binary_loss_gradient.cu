// The gradient of binary cross-entropy: (sigmoid(x) - t) times the loss's gradient, over DIVISOR.

extern "C" __global__ void __launch_bounds__(BLOCK)
binary_cross_entropy_gradient(const D_LOSS_TYPE* __restrict__ d_loss, const LOGITS_TYPE* __restrict__ logits,
                              const TARGETS_TYPE* __restrict__ targets, D_LOGITS_TYPE* __restrict__ d_logits,
                              const uint64 ROWS) {
    const float factor = widen(d_loss[0]) / (float)DIVISOR;
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        each_part(row < ROWS, [&](int part, int column) {
            float values[VECTOR], shares[VECTOR];
            load<VECTOR>(logits + row * COLUMNS + column, values);
            load<VECTOR>(targets + row * COLUMNS + column, shares);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) values[i] = factor * (1.0f / (1.0f + expf(-values[i])) - shares[i]);
            store<VECTOR>(d_logits + row * COLUMNS + column, values);
        });
    }
}
