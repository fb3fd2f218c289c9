// LayerNorm (LAYER) and RMSNorm of rows, after their steps; with gamma (and LayerNorm's beta) if AFFINE.

extern "C" __global__ void __launch_bounds__(BLOCK)
normalize(const X_TYPE* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta, Y_TYPE* __restrict__ y,
          float* __restrict__ means, float* __restrict__ inverses, const Run* run, const uint64 ROWS STEP_PARAMETERS) {
    wait_for_previous();
    let_next_start();
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        float values[KEPT][VECTOR];
        auto read = [&](int part, int column) {
            load<VECTOR>(x + row * COLUMNS + column, values[part]);
            apply_steps<VECTOR>(values[part], row, column, run STEP_ARGUMENTS);
        };

        float mean = 0.0f;
        if constexpr (LAYER || KEEPS) {
            float sum = 0.0f;
            each_part(inside, [&](int part, int column) {
                read(part, column);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) sum += values[part][i];
            });
            if constexpr (LAYER) mean = row_sum(sum) / (float)COLUMNS;
        }

        // About the mean, to keep precision if it is large.
        float squares = 0.0f;
        each_part(inside, [&](int part, int column) {
            if constexpr (!KEEPS) read(part, column);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                const float away = values[part][i] - mean;
                squares += away * away;
            }
        });
        const float inverse = 1.0f / sqrtf(row_sum(squares) / (float)COLUMNS + EPS);

        each_part(inside, [&](int part, int column) {
            if constexpr (!KEEPS) read(part, column);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) values[part][i] = (values[part][i] - mean) * inverse;
            if constexpr (AFFINE) {
                float factors[VECTOR];
                load<VECTOR>(gamma + column, factors);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) values[part][i] *= factors[i];
            }
            if constexpr (AFFINE && LAYER) {
                float shifts[VECTOR];
                load<VECTOR>(beta + column, shifts);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) values[part][i] += shifts[i];
            }
            store<VECTOR>(y + row * COLUMNS + column, values[part]);
        });
        if (inside && leads()) {
            if constexpr (LAYER) means[row] = mean;
            inverses[row] = inverse;
        }
    }
}
