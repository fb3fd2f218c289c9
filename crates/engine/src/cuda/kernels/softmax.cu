// Softmax of rows: e^(x - max) / sum of e^(x - max). A row in which every element is minus infinity gives zeros.

extern "C" __global__ void __launch_bounds__(BLOCK)
softmax(const X_TYPE* __restrict__ x, Y_TYPE* __restrict__ y, const uint64 ROWS) {
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        float values[KEPT][VECTOR];
        Exponentials own;
        each_part(inside, [&](int part, int column) {
            load<VECTOR>(x + row * COLUMNS + column, values[part]);
            own.add(values[part]);
        });
        const Exponentials all = own.of_row();
        const float base = all.base();
        const float factor = all.max == MINUS_INFINITY ? 0.0f : 1.0f / all.sum;
        each_part(inside, [&](int part, int column) {
            if constexpr (!KEEPS) load<VECTOR>(x + row * COLUMNS + column, values[part]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) values[part][i] = expf(values[part][i] - base) * factor;
            store<VECTOR>(y + row * COLUMNS + column, values[part]);
        });
    }
}
