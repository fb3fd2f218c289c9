// The end of a training step, on the flat buffers. A block processes a piece of one parameter.

struct Piece {
    uint64 parameter;  // offset in the buffer of parameters
    uint64 gradient;   // offset in the buffers of gradients and moments
    uint32 length;
    uint32 index;      // index of the parameter
    double decay;
    double rate_factor;
};

// Calls body(i, count) for each four values of a piece that belong to the thread. Parameters are aligned to four values in all buffers: the
// last four can be read as a whole, but only `count` of them belong to the parameter.
template <class Body> __device__ __forceinline__ void each_four(uint32 length, Body body) {
    for (uint32 i = 4 * threadIdx.x; i < length; i += 4 * 256) body(i, (int)min(4u, length - i));
}
template <class T> __device__ __forceinline__ void store_some(T* to, const float (&from)[4], int count) {
    if (count == 4) {
        store<4>(to, from);
    } else {
        for (int j = 0; j < count; j++) put(to + j, from[j]);
    }
}

__device__ __forceinline__ double block_sum(double x) {
    __shared__ double sums[8];
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; i < 8; i++) sum += sums[i];
    return sum;
}

// The sum of squares of a piece's gradients, in a fixed order.
extern "C" __global__ void __launch_bounds__(256) square_sums(const Piece* pieces, const float* gradients, double* sums) {
    Piece piece = pieces[blockIdx.x];
    double sum = 0.0;
    each_four(piece.length, [&](uint32 i, int count) {
        float g[4];
        load<4>(gradients + piece.gradient + i, g);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < count) sum += (double)g[j] * (double)g[j];
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block: the norm, and the factor of the gradients; NaN if there must be no update.
extern "C" __global__ void __launch_bounds__(256) gradient_norm(const double* sums, const float* first, float* norm, float* factor) {
    double sum = 0.0;
    for (uint32 i = threadIdx.x; i < PIECES; i += 256) sum += sums[i];
    sum = block_sum(sum);
    if (threadIdx.x != 0) return;
    double given = *first, scale = SCALED ? given : 1.0;
    double length = sqrt(sum) * scale;
    double found = scale;
#if CLIPS
    double limited = CLIP / (length + 1e-6);
    found *= limited < 1.0 ? limited : 1.0;
#endif
    *norm = (float)length;
    *factor = isfinite(given) && isfinite((float)length) ? (float)found : __int_as_float(0x7fffffff);
}

__device__ __forceinline__ void put_parameters(float* p, bf16* narrow, uint64 at, const float (&values)[4], int count) {
    store_some(p + at, values, count);
    if (narrow) store_some(narrow + at, values, count);
}

#if RULE == 1
extern "C" __global__ void __launch_bounds__(256) adamw(const Piece* pieces, float* p, bf16* narrow, const float* gradients, float* first,
                                                        float* second, const float* rate, const float* factor, const Run* run) {
    if (isnan(*factor)) return;
    Piece piece = pieces[blockIdx.x];
    double step = (double)run->step + 1.0, own_rate = (double)*rate * piece.rate_factor;
    float scale = *factor, keep = (float)(1.0 - own_rate * piece.decay);
    float new1 = (float)(1.0 - BETA1), old2 = (float)BETA2, new2 = (float)(1.0 - BETA2), eps = (float)EPS;
    float stride = (float)(-own_rate / (1.0 - pow(BETA1, step))), root = (float)(1.0 / sqrt(1.0 - pow(BETA2, step)));
    each_four(piece.length, [&](uint32 i, int count) {
        float g[4], m[4], v[4], values[4];
        load<4>(gradients + piece.gradient + i, g);
        load<4>(first + piece.gradient + i, m);
        load<4>(second + piece.gradient + i, v);
        load<4>(p + piece.parameter + i, values);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float scaled = g[j] * scale;
            m[j] = fmaf(scaled - m[j], new1, m[j]);
            v[j] = fmaf(scaled * scaled, new2, v[j] * old2);
            values[j] = fmaf(values[j], keep, m[j] * stride / fmaf(sqrtf(v[j]), root, eps));
        }
        store_some(first + piece.gradient + i, m, count);
        store_some(second + piece.gradient + i, v, count);
        put_parameters(p, narrow, piece.parameter + i, values, count);
    });
}
#elif RULE == 2
extern "C" __global__ void __launch_bounds__(256) sgd(const Piece* pieces, float* p, bf16* narrow, const float* gradients, float* first,
                                                      const float* rate, const float* factor, const Run* run) {
    if (isnan(*factor)) return;
    Piece piece = pieces[blockIdx.x];
    float own_rate = (float)((double)*rate * piece.rate_factor), decay = (float)piece.decay, momentum = (float)MOMENTUM, scale = *factor;
    bool begins = run->step == 0;
    each_four(piece.length, [&](uint32 i, int count) {
        float g[4], velocity[4], values[4];
        load<4>(gradients + piece.gradient + i, g);
        if (HAS_MOMENTUM) load<4>(first + piece.gradient + i, velocity);
        load<4>(p + piece.parameter + i, values);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float own = fmaf(values[j], decay, g[j] * scale);
            float move = own;
            if (HAS_MOMENTUM) {
                velocity[j] = begins ? own : fmaf(velocity[j], momentum, own);
                move = NESTEROV ? fmaf(velocity[j], momentum, own) : velocity[j];
            }
            values[j] = fmaf(move, -own_rate, values[j]);
        }
        if (HAS_MOMENTUM) store_some(first + piece.gradient + i, velocity, count);
        put_parameters(p, narrow, piece.parameter + i, values, count);
    });
}
#elif RULE == 3
__device__ __forceinline__ float lamb_update(float p, float m, float v, float correct1, float root, float decay) {
    return fmaf(p, decay, m * correct1 / fmaf(sqrtf(v), root, (float)EPS));
}
// Updates the moments, and computes the squared norms of parameters and updates per piece.
extern "C" __global__ void __launch_bounds__(256) lamb_moments(const Piece* pieces, const float* p, const float* gradients, float* first,
                                                               float* second, double* sums, const float* factor, const Run* run) {
    Piece piece = pieces[blockIdx.x];
    double step = (double)run->step + 1.0, parameters = 0.0, updates = 0.0;
    float scale = *factor, correct1 = (float)(1.0 / (1.0 - pow(BETA1, step))), root = (float)(1.0 / sqrt(1.0 - pow(BETA2, step)));
    if (!isnan(scale)) {
        each_four(piece.length, [&](uint32 i, int count) {
            float g[4], m[4], v[4], values[4];
            load<4>(gradients + piece.gradient + i, g);
            load<4>(first + piece.gradient + i, m);
            load<4>(second + piece.gradient + i, v);
            load<4>(p + piece.parameter + i, values);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float scaled = g[j] * scale;
                m[j] = fmaf(scaled - m[j], (float)(1.0 - BETA1), m[j]);
                v[j] = fmaf(scaled * scaled, (float)(1.0 - BETA2), v[j] * (float)BETA2);
                const float update = lamb_update(values[j], m[j], v[j], correct1, root, (float)piece.decay);
                if (j < count) {
                    parameters += (double)values[j] * values[j];
                    updates += (double)update * update;
                }
            }
            store_some(first + piece.gradient + i, m, count);
            store_some(second + piece.gradient + i, v, count);
        });
    }
    parameters = block_sum(parameters);
    updates = block_sum(updates);
    if (threadIdx.x == 0) sums[2 * blockIdx.x] = parameters, sums[2 * blockIdx.x + 1] = updates;
}
// Updates the parameters, with a rate that all pieces of a parameter share.
extern "C" __global__ void __launch_bounds__(256) lamb_move(const Piece* pieces, float* p, bf16* narrow, const float* first, const float* second,
                                                            const double* sums, const float* rate, const float* factor, const Run* run) {
    if (isnan(*factor)) return;
    Piece piece = pieces[blockIdx.x];
    double parameters = 0.0, updates = 0.0;
    for (uint32 i = 0; i < PIECES; i++)
        if (pieces[i].index == piece.index) parameters += sums[2 * i], updates += sums[2 * i + 1];
    double trust = piece.decay != 0.0 && parameters > 0.0 && updates > 0.0 ? sqrt(parameters) / sqrt(updates) : 1.0;
    if (TRUST_CLIP && trust > 1.0) trust = 1.0;
    double step = (double)run->step + 1.0;
    float correct1 = (float)(1.0 / (1.0 - pow(BETA1, step))), root = (float)(1.0 / sqrt(1.0 - pow(BETA2, step)));
    float move = (float)(-(double)*rate * piece.rate_factor * trust);
    each_four(piece.length, [&](uint32 i, int count) {
        float m[4], v[4], values[4];
        load<4>(first + piece.gradient + i, m);
        load<4>(second + piece.gradient + i, v);
        load<4>(p + piece.parameter + i, values);
#pragma unroll
        for (int j = 0; j < 4; j++)
            values[j] = fmaf(lamb_update(values[j], m[j], v[j], correct1, root, (float)piece.decay), move, values[j]);
        put_parameters(p, narrow, piece.parameter + i, values, count);
    });
}
#elif RULE == 4
// The direction of each matrix of a parameter, and the sum of its squares per piece of 16384 values.
extern "C" __global__ void __launch_bounds__(256) muon_direction(const float* gradient, const float* first, float* direction, double* sums,
                                                                 const float* factor) {
    uint64 begin = blockIdx.x / MATRIX_PIECES * MATRIX + blockIdx.x % MATRIX_PIECES * 16384ull;
    uint64 end = min(begin + 16384ull, (uint64)((blockIdx.x / MATRIX_PIECES + 1) * MATRIX));
    float scale = *factor;
    double sum = 0.0;
    for (uint64 i = begin + threadIdx.x; i < end; i += 256) {
        float u = 0.0f;
        if (!isnan(scale)) {
            const float g = gradient[i] * scale;
            const float m = fmaf(g - first[i], (float)NEW, first[i]);
            u = NESTEROV ? fmaf(m - g, (float)OLD, g) : m;
        }
        direction[i] = u;
        sum += (double)u * (double)u;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
// Divides each matrix by its norm.
extern "C" __global__ void __launch_bounds__(256) muon_normalise(float* direction, const double* sums) {
    uint32 matrix = blockIdx.x / MATRIX_PIECES;
    double sum = 0.0;
    for (uint32 i = threadIdx.x; i < MATRIX_PIECES; i += 256) sum += sums[matrix * MATRIX_PIECES + i];
    double length = sqrt(block_sum(sum));
    float factor = (float)(1.0 / (length > 1e-7 ? length : 1e-7));
    uint64 begin = matrix * MATRIX + blockIdx.x % MATRIX_PIECES * 16384ull;
    uint64 end = min(begin + 16384ull, (uint64)((matrix + 1) * MATRIX));
    for (uint64 i = begin + threadIdx.x; i < end; i += 256) direction[i] *= factor;
}
#elif RULE == 5
extern "C" __global__ void __launch_bounds__(256) muon(float* p, bf16* narrow, const float* gradient, float* first, const float* direction,
                                                       const float* rate, const float* factor) {
    float scale = *factor;
    if (isnan(scale)) return;
    double own_rate = (double)*rate * RATE_FACTOR;
    float keep = (float)(1.0 - own_rate * DECAY), stride = (float)(-own_rate * SCALE);
    for (uint64 i = blockIdx.x * 256ull + threadIdx.x; i < VALUES; i += gridDim.x * 256ull) {
        first[i] = fmaf(fmaf(gradient[i], scale, -first[i]), (float)NEW, first[i]);
        const float value = fmaf(direction[i], stride, p[i] * keep);
        p[i] = value;
        if (narrow) put(narrow + i, value);
    }
}
#endif

// The moving average of all parameters; VALUES is a multiple of four.
extern "C" __global__ void __launch_bounds__(256) average(const float* p, float* mean, const float* decay, const float* factor) {
    if (isnan(*factor)) return;
    float fresh = (float)(1.0 - (double)*decay);
    for (uint64 i = 4 * (blockIdx.x * 256ull + threadIdx.x); i < VALUES; i += 4 * gridDim.x * 256ull) {
        float values[4], means[4];
        load<4>(p + i, values);
        load<4>(mean + i, means);
#pragma unroll
        for (int j = 0; j < 4; j++) means[j] = fmaf(values[j] - means[j], fresh, means[j]);
        store<4>(mean + i, means);
    }
}

// Adds a gradient to the buffer, or overwrites it.
extern "C" __global__ void __launch_bounds__(256) accumulate(const float* adds, const GRADIENT* gradient, float* sum) {
    bool add = *adds != 0.0f;
    for (uint64 i = blockIdx.x * 256ull + threadIdx.x; i < VALUES; i += gridDim.x * 256ull) {
        float g = widen(gradient[i]);
        sum[i] = add ? sum[i] + g : g;
    }
}
