// Gradients of LayerNorm (LAYER) and RMSNorm, before their steps: dx and, if AFFINE, the gradients of gamma (and LayerNorm's beta). Each
// block sums those of its rows; `add_partials` sums over the blocks.

// Rows of partial sums per block: of gamma, and of beta.
constexpr int SUMS = LAYER ? 2 : 1;
constexpr int WIDTH = SUMS * COLUMNS;

// A thread's part of its block's sums.
struct Sums {
    float of[SUMS][KEPT][VECTOR];
};

// Sums over the teams of a block, always in the same order, and stores the result in `partial`. All threads must call it.
__device__ __forceinline__ void leave_sums(Sums& sums, float* partial) {
#if KEEPS
    // The rows of a warp.
#pragma unroll
    for (int offset = THREADS; offset < 32; offset *= 2)
#pragma unroll
        for (int which = 0; which < SUMS; which++)
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    sums.of[which][part][i] += __shfl_xor_sync(0xffffffffu, sums.of[which][part][i], offset);
    const bool first_of_warp = threadIdx.x % TEAM < THREADS;
#if BLOCK > THREADS && BLOCK > 32
    // The teams of the block, one after the other.
    __shared__ __align__(16) float totals[WIDTH];
    for (int team = 0; team < BLOCK / TEAM; team++) {
        each_part(first_of_warp && threadIdx.x / TEAM == team, [&](int part, int column) {
#pragma unroll
            for (int which = 0; which < SUMS; which++) {
                float total[VECTOR] = {};
                if (team > 0) load<VECTOR>(totals + which * COLUMNS + column, total);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) total[i] += sums.of[which][part][i];
                store<VECTOR>(totals + which * COLUMNS + column, total);
            }
        });
        __syncthreads();
    }
    for (int column = threadIdx.x; column < WIDTH; column += BLOCK) partial[column] = totals[column];
#else
    each_part(first_of_warp, [&](int part, int column) {
#pragma unroll
        for (int which = 0; which < SUMS; which++) store<VECTOR>(partial + which * COLUMNS + column, sums.of[which][part]);
    });
#endif
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_HELD)
norm_gradient(const DY_TYPE* __restrict__ dy, const X_TYPE* __restrict__ x, const float* __restrict__ means,
              const float* __restrict__ inverses, const float* __restrict__ gamma, DX_TYPE* __restrict__ dx, float* partials,
              const Run* run, const uint64 ROWS STEP_PARAMETERS) {
    float* partial = partials + (uint64)blockIdx.x * WIDTH;
    Sums sums = {};
    for (uint64 first = first_row(); first < ROWS; first += row_stride()) {
        const uint64 row = first + threadIdx.x / THREADS;
        const bool inside = row < ROWS;
        const float mean = LAYER && inside ? means[row] : 0.0f;
        const float inverse = inside ? inverses[row] : 0.0f;
        float normals[KEPT][VECTOR], gradients[KEPT][VECTOR];
        // The operands of the steps are loaded while the row's sums are computed.
        StepOperands<VECTOR> operands[KEPT];
        // Stores the normalised x, and dy; then `weigh` computes g = gamma dy.
        auto read = [&](int part, int column) {
            load<VECTOR>(x + row * COLUMNS + column, normals[part]);
            load<VECTOR>(dy + row * COLUMNS + column, gradients[part]);
            if constexpr (KEEPS) read_operands<VECTOR>(operands[part], row, column STEP_ARGUMENTS);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) normals[part][i] = (normals[part][i] - mean) * inverse;
        };
        auto weigh = [&](int part, int column) {
            if constexpr (AFFINE) {
                float factors[VECTOR];
                load<VECTOR>(gamma + column, factors);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) gradients[part][i] *= factors[i];
            }
        };

        float row_total[2] = {};
        each_part(inside, [&](int part, int column) {
            read(part, column);
            if constexpr (AFFINE) {
                if constexpr (!KEEPS) {
                    // Too long for registers: the sums are in memory, each accessed by the one thread that has the column. The first row
                    // initialises them.
                    if (first == first_row()) {
                        sums = {};
                    } else {
#pragma unroll
                        for (int which = 0; which < SUMS; which++) load<VECTOR>(partial + which * COLUMNS + column, sums.of[which][0]);
                    }
                }
#pragma unroll
                for (int i = 0; i < VECTOR; i++) {
                    sums.of[0][part][i] += gradients[part][i] * normals[part][i];
                    if constexpr (LAYER) sums.of[SUMS - 1][part][i] += gradients[part][i];
                }
                if constexpr (!KEEPS) {
#pragma unroll
                    for (int which = 0; which < SUMS; which++) store<VECTOR>(partial + which * COLUMNS + column, sums.of[which][0]);
                }
            }
            weigh(part, column);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                row_total[0] += gradients[part][i];
                row_total[1] += gradients[part][i] * normals[part][i];
            }
        });
        row_sums(row_total);
        const float mean_gradient = LAYER ? row_total[0] / (float)COLUMNS : 0.0f;
        const float mean_product = row_total[1] / (float)COLUMNS;

        each_part(inside, [&](int part, int column) {
            if constexpr (!KEEPS) {
                read(part, column);
                weigh(part, column);
            }
            float values[VECTOR];
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                values[i] = (gradients[part][i] - mean_gradient - normals[part][i] * mean_product) * inverse;
            if constexpr (!KEEPS) read_operands<VECTOR>(operands[part], row, column STEP_ARGUMENTS);
            apply_steps<VECTOR>(values, operands[part], row, column, run STEP_ARGUMENTS);
            store<VECTOR>(dx + row * COLUMNS + column, values);
        });
    }
    if constexpr (AFFINE) leave_sums(sums, partial);
}

// Sums PARTIALS rows of partial sums, always in the same order: 32 columns per block, each by SLICES threads.
constexpr int SLICES = 16;

extern "C" __global__ void __launch_bounds__(32 * SLICES)
add_partials(const float* __restrict__ partials, float* __restrict__ d_gamma, float* __restrict__ d_beta, const int PARTIALS) {
    __shared__ float of_slices[SLICES][32];
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
    const int column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < WIDTH) {
#pragma unroll 8
        for (int row = slice; row < PARTIALS; row += SLICES) sum += partials[(uint64)row * WIDTH + column];
    }
    of_slices[slice][lane] = sum;
    __syncthreads();
    if (slice > 0 || column >= WIDTH) return;
#pragma unroll
    for (int other = 1; other < SLICES; other++) sum += of_slices[other][lane];
    if (column < COLUMNS)
        d_gamma[column] = sum;
    else
        d_beta[column - COLUMNS] = sum;
}
