// The gradient of softmax: dx = y (dy - sum of y dy).

extern "C" __global__ void __launch_bounds__(BLOCK)
softmax_gradient(const DY_TYPE* __restrict__ dy, const Y_TYPE* __restrict__ y, DX_TYPE* __restrict__ dx, const uint64 ROWS) {
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        float gradients[KEPT][VECTOR], weights[KEPT][VECTOR];
        auto read = [&](int part, int column) {
            load<VECTOR>(dy + row * COLUMNS + column, gradients[part]);
            load<VECTOR>(y + row * COLUMNS + column, weights[part]);
        };
        float sum = 0.0f;
        each_part(inside, [&](int part, int column) {
            read(part, column);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sum += weights[part][i] * gradients[part][i];
        });
        sum = row_sum(sum);
        each_part(inside, [&](int part, int column) {
            if constexpr (!KEEPS) read(part, column);
            float values[VECTOR];
#pragma unroll
            for (int i = 0; i < VECTOR; i++) values[i] = (gradients[part][i] - sum) * weights[part][i];
            store<VECTOR>(dx + row * COLUMNS + column, values);
        });
    }
}
