// Gradients of means and maxima over tokens: every token's share of its sample's gradient. COUNT vectors in all.

// Calls body(sample, token, column, to) for the thread's vectors, where `to` is the index in the result.
template <class Body> __device__ __forceinline__ void each_vector(Body body) {
    constexpr uint64 VECTORS = COLUMNS / VECTOR;
    for (uint64 index = (uint64)blockIdx.x * BLOCK + threadIdx.x; index < COUNT; index += (uint64)gridDim.x * BLOCK) {
        const uint64 row = index / VECTORS;
        body(row / TOKENS, (int)(row % TOKENS), (int)(index % VECTORS) * VECTOR, index * VECTOR);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) mean_tokens_gradient(const DY_TYPE* __restrict__ dy, DY_TYPE* __restrict__ dx) {
    each_vector([&](uint64 sample, int token, int column, uint64 to) {
        float values[VECTOR];
        load<VECTOR>(dy + sample * COLUMNS + column, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[i] *= FACTOR;
        store<VECTOR>(dx + to, values);
    });
}

extern "C" __global__ void __launch_bounds__(BLOCK)
max_tokens_gradient(const DY_TYPE* __restrict__ dy, const int* __restrict__ winners, DY_TYPE* __restrict__ dx) {
    each_vector([&](uint64 sample, int token, int column, uint64 to) {
        float values[VECTOR];
        load<VECTOR>(dy + sample * COLUMNS + column, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[i] = winners[sample * COLUMNS + column + i] == token ? values[i] : 0.0f;
        store<VECTOR>(dx + to, values);
    });
}
